//! Size and CPU time of a scrape of a large cluster, in each format.
//!
//!     cargo run --release -p telemetry --example scrape_cost -- [gateways] [routes] [file]
//!
//! Every Gateway has a listener that redirects and one that answers in six ways. `routes` have
//! metrics of their own; 0 is what a cluster has where none asks for them. With `file`, writes the
//! protobuf exposition there.

#![allow(clippy::print_stdout, reason = "the figures are for the terminal")]

use std::sync::Arc;
use std::time::Instant;

use telemetry::metrics::{
    ClusterMetrics, Exposition, Format, GatewayListenerMetrics, GatewayListenerName, GatewayRouteMetrics,
    ListenerMetrics, Metrics, Outcome, Protocol, WorkerMetrics,
};

/// Number of scrapes of a format; the result is their median.
const ROUNDS: usize = 9;

const ANSWERS: [(Outcome, u16); 6] = [
    (Outcome::Allowed, 200),
    (Outcome::Allowed, 304),
    (Outcome::Allowed, 404),
    (Outcome::Unauthenticated, 401),
    (Outcome::Forbidden, 403),
    (Outcome::UpstreamError, 502),
];

fn listener(gateway: &str, listener: &str) -> Arc<GatewayListenerMetrics> {
    Arc::new(GatewayListenerMetrics::new(GatewayListenerName {
        gateway: gateway.into(),
        listener_set: "".into(),
        listener: listener.into(),
    }))
}

/// Durations from a millisecond to a second.
fn durations(seed: usize) -> impl Iterator<Item = u64> {
    (0..10).map(move |n| 1_000_000 << ((n + seed) % 10))
}

fn gateway(number: usize, worker: &WorkerMetrics, cluster: &mut Cluster) {
    let name = format!("team-{number:04}/public");
    let (http, https) = (listener(&name, "http"), listener(&name, "https"));
    http.count_finished(worker, Outcome::Local, 301, 20_000);
    for (outcome, status) in ANSWERS {
        durations(number).for_each(|nanos| https.count_finished(worker, outcome, status, nanos));
    }
    https.count_bytes(worker, 123_456, 123_456_789);
    let connections = Arc::new(ListenerMetrics::new(&name));
    connections.accepted(worker);
    connections.opened(worker, Protocol::Http2);
    cluster.gateways.push(connections);
    cluster.listeners.extend([http, https]);
}

fn route(number: usize, worker: &WorkerMetrics, cluster: &mut Cluster) {
    let route = GatewayRouteMetrics::new(format!("HTTPRoute team-{:04}/app-{number:05}", number / 16));
    durations(number).for_each(|nanos| route.count_finished(worker, 200, nanos));
    route.count_finished(worker, 404, 1_000_000);
    cluster.routes.push(Arc::new(route));
}

#[derive(Default)]
struct Cluster {
    gateways: Vec<Arc<ListenerMetrics>>,
    listeners: Vec<Arc<GatewayListenerMetrics>>,
    routes: Vec<Arc<GatewayRouteMetrics>>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let gateways = arguments.next().map_or(Ok(2500), |text| text.parse())?;
    let routes = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let metrics = Metrics::new(2);
    let mut cluster = Cluster::default();
    for index in 0..metrics.workers() {
        let worker = metrics.worker(index).ok_or("the shard is free")?;
        cluster = Cluster::default();
        (0..gateways).for_each(|number| gateway(number, &worker, &mut cluster));
        (0..routes).for_each(|number| route(number, &worker, &mut cluster));
    }
    metrics.set_cluster(move || ClusterMetrics {
        gateways: cluster.gateways.clone(),
        listeners: cluster.listeners.clone(),
        routes: cluster.routes.clone(),
    });
    for (name, exposition) in [
        ("Prometheus text", Exposition::Text(Format::Text)),
        ("OpenMetrics", Exposition::Text(Format::OpenMetrics)),
        ("protobuf", Exposition::Protobuf),
    ] {
        let mut millis = Vec::new();
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            bytes = metrics.expose(exposition).len();
            millis.push(began.elapsed().as_secs_f64() * 1e3);
        }
        millis.sort_by(f64::total_cmp);
        println!("{name:<16} {bytes:>10} bytes {:>7.1} ms   (fastest {:.1})", millis[ROUNDS / 2], millis[0]);
    }
    if let Some(path) = arguments.next() {
        std::fs::write(path, metrics.expose(Exposition::Protobuf))?;
    }
    Ok(())
}
