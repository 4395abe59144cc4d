//! Metrics of a large cluster: which series there are, and how much that is.

use std::sync::Arc;

use parking_lot::Mutex;
use telemetry::metrics::{
    ClusterMetrics, Exposition, Format, GatewayListenerMetrics, GatewayListenerName, GatewayRouteMetrics,
    ListenerMetrics, Metrics, Outcome, Protocol, WorkerMetrics, WorkerServiceEndpoint,
};
use telemetry::test_support::exposition::{assert_sample, read};

use crate::prometheus_client::{MetricFamily, decode};

/// A process whose configuration can change.
struct Process {
    metrics: Arc<Metrics>,
    worker: std::rc::Rc<WorkerMetrics>,
    in_force: Arc<Mutex<Vec<Part>>>,
}

/// A Gateway with its parts.
#[derive(Clone)]
struct Part {
    connections: Arc<ListenerMetrics>,
    listeners: Vec<Arc<GatewayListenerMetrics>>,
    routes: Vec<Arc<GatewayRouteMetrics>>,
}

fn listener(gateway: &str, listener_set: &str, listener: &str) -> Arc<GatewayListenerMetrics> {
    Arc::new(GatewayListenerMetrics::new(GatewayListenerName {
        gateway: gateway.into(),
        listener_set: listener_set.into(),
        listener: listener.into(),
    }))
}

impl Process {
    fn start() -> Self {
        let metrics = Metrics::new(2);
        let worker = metrics.worker(0).expect("a free shard").into();
        let in_force: Arc<Mutex<Vec<Part>>> = Arc::default();
        let sampled = in_force.clone();
        metrics.set_cluster(move || {
            let parts = sampled.lock();
            ClusterMetrics {
                // Each socket of a Gateway names its metrics, and each rule of a route.
                gateways: parts.iter().flat_map(|part| vec![part.connections.clone(); 2]).collect(),
                listeners: parts.iter().flat_map(|part| part.listeners.clone()).collect(),
                routes: parts
                    .iter()
                    .flat_map(|part| [part.routes.clone(), part.routes.clone()].concat())
                    .collect(),
            }
        });
        Self { metrics, worker, in_force }
    }

    fn add(&self, gateway: &str, listeners: &[(&str, &str)], routes: &[&str]) -> Part {
        let part = Part {
            connections: Arc::new(ListenerMetrics::new(gateway)),
            listeners: listeners.iter().map(|(set, name)| listener(gateway, set, name)).collect(),
            routes: routes.iter().map(|name| Arc::new(GatewayRouteMetrics::new(*name))).collect(),
        };
        self.in_force.lock().push(part.clone());
        part
    }

    fn text(&self) -> String {
        self.metrics.render(Format::Text)
    }
}

#[test]
fn requests_are_counted_by_listener_and_durations_by_gateway() {
    let process = Process::start();
    let worker = &process.worker;
    let part = process.add("infra/public", &[("", "http"), ("", "https"), ("team/set", "https")], &[]);
    let [http, https, of_set] = &part.listeners[..] else { panic!("three") };
    http.count_finished(worker, Outcome::Local, 301, 20_000);
    https.count_finished(worker, Outcome::Allowed, 200, 250_000_000);
    https.count_finished(worker, Outcome::Forbidden, 403, 1_000_000);
    https.count_bytes(worker, 10, 20);
    http.count_bytes(worker, 0, 5);
    of_set.count_finished(worker, Outcome::Allowed, 503, 30_000_000_000);
    part.connections.accepted(worker);
    part.connections.opened(worker, Protocol::Http2);
    let open_metrics = read(&process.metrics.render(Format::OpenMetrics), true);
    let samples = read(&process.text(), false);
    for (series, value) in [
        (
            r#"postern_requests_total{gateway="infra/public",listener="http",outcome="local",class="3xx"}"#,
            1.0,
        ),
        (
            r#"postern_requests_total{gateway="infra/public",listener="https",outcome="allowed",class="2xx"}"#,
            1.0,
        ),
        (
            r#"postern_requests_total{gateway="infra/public",listener="https",outcome="forbidden",class="4xx"}"#,
            1.0,
        ),
        (
            r#"postern_requests_total{gateway="infra/public",listener_set="team/set",listener="https",outcome="allowed",class="5xx"}"#,
            1.0,
        ),
        (r#"postern_request_body_bytes_total{gateway="infra/public"}"#, 10.0),
        (r#"postern_response_body_bytes_total{gateway="infra/public"}"#, 25.0),
        (r#"postern_connections_accepted_total{gateway="infra/public"}"#, 1.0),
        (r#"postern_connections_open{gateway="infra/public"}"#, 1.0),
        (r#"postern_gateway_request_duration_seconds_count{gateway="infra/public"}"#, 3.0),
        (r#"postern_gateway_request_duration_seconds_bucket{gateway="infra/public",le="0.00390625"}"#, 2.0),
        (r#"postern_gateway_request_duration_seconds_bucket{gateway="infra/public",le="0.25"}"#, 3.0),
        (
            r#"postern_gateway_request_duration_seconds_count{gateway="infra/public",listener_set="team/set"}"#,
            1.0,
        ),
    ] {
        assert_sample(&samples, series, value);
    }
    let of_whole_seconds = r#"postern_gateway_request_duration_seconds_bucket{gateway="infra/public",listener_set="team/set",le="4.0"}"#;
    assert_sample(&open_metrics, of_whole_seconds, 0.0);
    // A Gateway that had connections keeps its gauge.
    part.connections.closed(worker, Protocol::Http2);
    let lines = process.text();
    let open = r#"postern_connections_open{gateway="infra/public"} 0"#;
    assert!(lines.contains(open), "{lines}");
    // Nothing else that is 0, and no label without a value.
    let lines = lines.replace(open, "");
    let of_cluster = lines.lines().filter(|line| line.contains("gateway=") && line.ends_with(" 0"));
    assert!(of_cluster.clone().all(|line| line.contains("_bucket")), "{lines}");
    assert!(!lines.contains("=\"\""), "{lines}");
}

#[test]
fn a_route_has_few_series_and_they_go_with_it() {
    let process = Process::start();
    let part = process.add("infra/public", &[("", "http")], &["HTTPRoute team/app", "HTTPRoute team/idle"]);
    let app = &part.routes[0];
    app.count_finished(&process.worker, 200, 5_000_000);
    app.count_finished(&process.worker, 404, 5_000_000);
    part.listeners[0].count_finished(&process.worker, Outcome::Allowed, 200, 5_000_000);
    let of_route = || process.text().lines().filter(|line| line.contains("HTTPRoute")).count();
    assert_eq!(of_route(), 2 + 9, "two classes, and a histogram");
    assert_sample(
        &read(&process.text(), false),
        r#"postern_route_requests_total{route="HTTPRoute team/app",class="4xx"}"#,
        1.0,
    );
    process.in_force.lock().clear();
    // A request that outlives its Gateway is counted, and not shown.
    app.count_finished(&process.worker, 200, 5_000_000);
    assert!(!process.text().contains("team/app") && !process.text().contains("infra/public"));
}

#[test]
fn endpoints_of_services_are_counted_together() {
    use http_engine::endpoint_stats::EndpointStats as _;
    let process = Process::start();
    assert!(!process.text().contains("(cluster)"), "nothing before the first request");
    for last in 0..100 {
        let endpoint =
            WorkerServiceEndpoint::new(process.worker.clone(), "team/app:80", &format!("10.0.0.{last}:80"));
        endpoint.request_begun();
        endpoint.connected();
        endpoint.unhealthy(&"refused");
        endpoint.ejected();
        endpoint.request_ended();
    }
    let samples = read(&process.text(), false);
    assert_sample(&samples, r#"postern_upstream_requests_total{upstream="(cluster)"}"#, 100.0);
    assert_sample(&samples, r#"postern_upstream_connections_open{upstream="(cluster)"}"#, 100.0);
    assert_sample(&samples, r#"postern_upstream_ejections_total{upstream="(cluster)"}"#, 100.0);
    assert!(!process.text().contains("10.0.0."));
}

/// 2500 Gateways with a listener that redirects and one that serves every kind of request.
fn large() -> Process {
    let process = Process::start();
    let worker = &process.worker;
    for number in 0..2500 {
        let gateway = format!("team-{number:04}/public");
        let part = process.add(&gateway, &[("", "http"), ("", "https")], &[]);
        let [http, https] = &part.listeners[..] else { panic!("two") };
        http.count_finished(worker, Outcome::Local, 301, 20_000);
        for (outcome, status) in [
            (Outcome::Allowed, 200),
            (Outcome::Allowed, 304),
            (Outcome::Allowed, 404),
            (Outcome::Unauthenticated, 401),
            (Outcome::Forbidden, 403),
            (Outcome::UpstreamError, 502),
        ] {
            for exponent in 10..36 {
                https.count_finished(worker, outcome, status, 1 << exponent);
            }
        }
        https.count_bytes(worker, 123_456, 123_456_789);
        part.connections.accepted(worker);
        part.connections.opened(worker, Protocol::Http1);
        part.connections.opened(worker, Protocol::Http2);
    }
    process
}

#[test]
fn a_scrape_of_a_large_cluster_is_within_five_megabytes() {
    let process = large();
    let text = process.text();
    let (lines, bytes) = (text.lines().count(), text.len());
    assert!(bytes < 5_000_000, "{bytes} bytes in {lines} lines");
    assert!(lines < 2500 * 20 + 1000, "{lines} lines");
    let messages = std::thread::scope(|scope| {
        scope.spawn(|| process_exposed(&process.metrics)).join().expect("it is written")
    });
    assert!(messages.len() < bytes, "{} bytes of messages", messages.len());
    assert_eq!(family(&decode(&messages), "postern_requests_total").metric.len(), 2500 * 7 + 1);
}

fn process_exposed(metrics: &Metrics) -> Vec<u8> {
    metrics.expose(Exposition::Protobuf)
}

fn family<'f>(all: &'f [MetricFamily], name: &str) -> &'f MetricFamily {
    all.iter().find(|family| family.name() == name).unwrap_or_else(|| panic!("{name} is missing"))
}

#[test]
fn messages_have_native_histograms() {
    let process = Process::start();
    let part = process.add("infra/public", &[("", "http")], &[]);
    // In seconds: 0.000001 (below the first bound), 0.25 (a bound), 0.26, 0.3, 1, 20 000 (too long).
    for micros in [1, 250_000, 260_000, 300_000, 1_000_000, 20_000_000_000] {
        part.listeners[0].count_finished(&process.worker, Outcome::Allowed, 200, micros * 1000);
    }
    let metrics = process.metrics.clone();
    let bytes = std::thread::spawn(move || process_exposed(&metrics)).join().expect("it is written");
    let all = decode(&bytes);
    let requests = family(&all, "postern_requests_total");
    assert_eq!(requests.r#type(), 0);
    let of_listener = requests.metric.iter().find(|metric| metric.label("gateway") == Some("infra/public"));
    let of_listener = of_listener.expect("a sample");
    assert_eq!((of_listener.label("listener"), of_listener.label("listener_set")), (Some("http"), None));
    assert!(
        (of_listener.counter.as_ref().and_then(|counter| counter.value).expect("a value") - 6.0).abs() < 1e-9
    );
    let workers = &family(&all, "postern_workers").metric[0];
    assert!((workers.gauge.as_ref().and_then(|gauge| gauge.value).expect("a value") - 2.0).abs() < 1e-9);
    let durations = family(&all, "postern_gateway_request_duration_seconds");
    assert_eq!((durations.r#type(), durations.metric.len()), (4, 1));
    let histogram = durations.metric[0].histogram.as_ref().expect("a histogram");
    assert_eq!((histogram.sample_count, histogram.schema, histogram.zero_count), (Some(6), Some(1), Some(1)));
    assert!((histogram.sample_sum.expect("a sum") - 20_001.810_001).abs() < 1e-6);
    assert!((histogram.zero_threshold.expect("a threshold") - 2f64.powi(-17)).abs() < f64::EPSILON);
    let classic: Vec<_> =
        histogram.bucket.iter().map(|bucket| bucket.cumulative_count.unwrap_or(0)).collect();
    assert_eq!(classic, [1, 1, 1, 2, 5, 5, 6]);
    // The bound with the index i is the square root of two to the power of i.
    assert_eq!(histogram.native(), [(-4, 1), (-3, 2), (0, 1), (26, 1)]);
    let classic_only = family(&all, "postern_phase_duration_seconds").metric[0].histogram.as_ref();
    assert_eq!(classic_only.expect("a histogram").schema, None);
}
