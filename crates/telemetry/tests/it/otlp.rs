//! Spans from a finished request to a collector that speaks OTLP over HTTP, decoded with the
//! official schema.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::identity::{CredentialKind, Identity};
use auth::time::Timestamp;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;
use rustls::pki_types::PrivatePkcs8KeyDer;
use telemetry::access_log::{AccessRecord, ForwardedTo, RequestProtocol, RequestTarget};
use telemetry::metrics::{Format, Metrics, Outcome};
use telemetry::phases::{CacheUse, Phase, Recorder};
use telemetry::trace::{
    CollectorEndpoint, ExportOptions, Exporter, FinishedRequest, Sampling, TraceContext, Tracer,
};
use telemetry::trace_context::{IdGenerator, TraceParent};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

const LONG: Duration = Duration::from_secs(30);
const START: u64 = 1_700_000_000_000_000_000;

/// A message that the collector received.
struct Got {
    path: String,
    content_type: String,
    authorization: String,
    request: ExportTraceServiceRequest,
}

/// A response of the collector.
#[derive(Clone, Copy)]
enum Reply {
    Status(u16),
    Reject(i64),
    Never,
}

/// A collector on loopback: sends `replies` in order, then 200.
struct Collector {
    address: SocketAddr,
    got: UnboundedReceiver<Got>,
}

impl Collector {
    async fn start(replies: Vec<Reply>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, got) = unbounded_channel();
        let replies = Arc::new(parking_lot::Mutex::new(replies));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, replies, tls) = (sender.clone(), Arc::clone(&replies), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let reply = match replies.lock() {
                            mut left if !left.is_empty() => left.remove(0),
                            _ => Reply::Status(200),
                        };
                        take(request, sender.clone(), reply)
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = match tls {
                        None => server.serve_connection(TokioIo::new(stream), service).await,
                        Some(tls) => {
                            let stream = tls.accept(stream).await.unwrap();
                            server.serve_connection(TokioIo::new(stream), service).await
                        }
                    };
                });
            }
        });
        Self { address, got }
    }

    async fn next(&mut self) -> Got {
        timeout(LONG, self.got.recv()).await.unwrap().unwrap()
    }

    fn options(&self) -> ExportOptions {
        let headers = [("Authorization".to_owned(), "Bearer s3cret".to_owned())];
        let endpoint = CollectorEndpoint::new(&format!("http://{}", self.address), &headers, None).unwrap();
        ExportOptions { interval: Duration::from_millis(20), ..ExportOptions::new(endpoint) }
    }
}

async fn take(
    request: http::Request<hyper::body::Incoming>,
    sender: UnboundedSender<Got>,
    reply: Reply,
) -> Result<http::Response<Full<bytes::Bytes>>, Infallible> {
    assert_eq!(request.method(), "POST");
    let field = |name: &str| {
        request.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let (path, content_type) = (request.uri().path().to_owned(), field("content-type"));
    let authorization = field("authorization");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    sender.send(Got { path, content_type, authorization, request }).unwrap();
    let mut response = http::Response::new(Full::default());
    match reply {
        Reply::Status(status) => *response.status_mut() = status.try_into().unwrap(),
        Reply::Reject(rejected_spans) => {
            let error_message = "too old".into();
            let partial_success = Some(ExportTracePartialSuccess { rejected_spans, error_message });
            *response.body_mut() = ExportTraceServiceResponse { partial_success }.encode_to_vec().into();
        }
        Reply::Never => std::future::pending().await,
    }
    Ok(response)
}

fn record(identity: Option<&Identity>) -> AccessRecord<'_> {
    AccessRecord {
        time: Timestamp::from_millis(START / 1_000_000),
        listener: "public",
        peer: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 4711)),
        client: None,
        protocol: RequestProtocol::Http2,
        target: Some(RequestTarget {
            method: "GET",
            host: "api.example",
            path: "/v1/items",
            other_path: None,
        }),
        status: 200,
        outcome: Outcome::Allowed,
        reason: None,
        request_id: None,
        upstream_fault: None,
        route: Some("items"),
        identity,
        forwarded: Some(ForwardedTo {
            upstream: "app",
            endpoint: "10.0.0.1:8080",
            duration_nanos: 2_000_000,
            retries: 0,
        }),
        bytes_in: 0,
        bytes_out: 2,
        total_nanos: 3_000_000,
        cache_result: Some(CacheUse::Hit),
        trace: None,
    }
}

fn phases() -> Recorder {
    let mut phases = Recorder::start(Instant::now());
    phases.add(Phase::Accept, 9_000_000);
    phases.add(Phase::Parse, 100_000);
    phases.add(Phase::Authenticate, 200_000);
    phases.add(Phase::Upstream, 1_500_000);
    phases
}

fn finish(tracer: &Tracer, trace: &TraceContext, record: &AccessRecord<'_>) {
    let phases = phases();
    tracer.finish(&FinishedRequest {
        trace,
        state: Some("a=1"),
        start_unix_nanos: START,
        phases: &phases,
        record,
    });
}

fn texts(attributes: &[KeyValue]) -> HashMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => text,
        Value::IntValue(n) => n.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

fn spans(got: &Got) -> &[Span] {
    assert_eq!(got.request.resource_spans.len(), 1);
    let scopes = &got.request.resource_spans[0].scope_spans;
    assert_eq!(scopes.len(), 1);
    assert_eq!(scopes[0].scope.as_ref().unwrap().name, "postern.gateway");
    &scopes[0].spans
}

fn ids() -> IdGenerator {
    IdGenerator::from_seed([9; 32])
}

#[tokio::test]
async fn a_request_becomes_two_spans_with_its_phases() {
    let mut collector = Collector::start(Vec::new(), None).await;
    let (queue, exporter) = Exporter::new(collector.options());
    let stats = exporter.stats();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(exporter.run(async { drop(stopped.await) }));
    let tracer = Tracer::new(Sampling::Parent(0.0), Some(queue));
    let parent = TraceParent::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let trace = tracer.begin(Some(&parent), &mut ids());
    let alice = Identity {
        kind: CredentialKind::Jwt,
        issuer: "corp".into(),
        subject: "s-1".into(),
        user: None,
        email: None,
        client: None,
        groups: Vec::new(),
        groups_elsewhere: false,
        scopes: Vec::new(),
        claims: Vec::new(),
    };
    finish(&tracer, &trace, &record(Some(&alice)));
    let unsampled = tracer.begin(None, &mut ids());
    finish(&tracer, &unsampled, &record(None));

    let got = collector.next().await;
    assert_eq!((got.path.as_str(), got.content_type.as_str()), ("/v1/traces", "application/x-protobuf"));
    assert_eq!(got.authorization, "Bearer s3cret");
    let resource = texts(&got.request.resource_spans[0].resource.as_ref().unwrap().attributes);
    assert_eq!(resource["service.name"], "postern");
    let [server, client] = spans(&got) else { panic!("{:?}", spans(&got)) };
    assert_eq!(server.trace_id, parent.trace.as_bytes());
    assert_eq!(server.parent_span_id, parent.span.as_bytes());
    assert_eq!((server.name.as_str(), server.kind()), ("GET items", SpanKind::Server));
    assert_eq!((server.start_time_unix_nano, server.end_time_unix_nano), (START, START + 3_000_000));
    assert_eq!((server.trace_state.as_str(), server.flags), ("a=1", 0x301));
    assert!(server.status.is_none());
    let attributes = texts(&server.attributes);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.path", "/v1/items"),
        ("server.address", "api.example"),
        ("client.address", "192.0.2.1"),
        ("network.protocol.version", "2"),
        ("postern.route", "items"),
        ("postern.outcome", "allowed"),
        ("postern.cache", "hit"),
        ("postern.issuer", "corp"),
        ("enduser.id", "s-1"),
    ] {
        assert_eq!(attributes.get(key).map(String::as_str), Some(value), "{key}");
    }
    let events: Vec<_> =
        server.events.iter().map(|event| (event.name.as_str(), event.time_unix_nano - START)).collect();
    assert_eq!(
        events,
        [("accept", 0), ("parse", 100_000), ("authenticate", 300_000), ("upstream", 1_800_000)]
    );
    assert_eq!(texts(&server.events[0].attributes)["postern.phase.nanoseconds"], "9000000");

    assert_eq!((client.parent_span_id.clone(), client.kind()), (server.span_id.clone(), SpanKind::Client));
    assert_eq!(client.span_id, trace.outgoing().span.as_bytes(), "the upstream's parent");
    assert_eq!(
        (client.start_time_unix_nano, client.end_time_unix_nano),
        (START + 300_000, START + 2_300_000)
    );
    assert_eq!(texts(&client.attributes)["server.port"], "8080");
    drop(stop);
    timeout(LONG, running).await.unwrap().unwrap();
    assert_eq!((stats.exported(), stats.dropped(), stats.failed(), stats.rejected()), (2, 0, 0, 0));
}

#[tokio::test]
async fn what_the_gateway_failed_to_do_is_an_error_and_a_refusal_is_not() {
    let mut collector = Collector::start(Vec::new(), None).await;
    let (queue, exporter) = Exporter::new(collector.options());
    let (_stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(exporter.run(async { drop(stopped.await) }));
    let tracer = Tracer::new(Sampling::Ratio(1.0), Some(queue));
    let mut ids = ids();
    let refused = AccessRecord {
        status: 403,
        outcome: Outcome::Forbidden,
        reason: Some("no_rule"),
        forwarded: None,
        ..record(None)
    };
    let broken = AccessRecord {
        status: 503,
        outcome: Outcome::AuthUnavailable,
        reason: Some("no_keys"),
        forwarded: None,
        ..refused
    };
    for record in [refused, broken] {
        let trace = tracer.begin(None, &mut ids);
        finish(&tracer, &trace, &record);
    }
    let got = collector.next().await;
    let [refused, broken] = spans(&got) else { panic!("{:?}", spans(&got)) };
    assert!(refused.status.is_none() && refused.parent_span_id.is_empty());
    assert_eq!(refused.flags, 0x103, "sampled, random, the parent known not to be remote");
    assert_eq!(texts(&refused.attributes)["postern.reason"], "no_rule");
    let status = broken.status.as_ref().unwrap();
    assert_eq!((status.code(), status.message.as_str()), (SpanStatus::Error, "no_keys"));
}

#[tokio::test]
async fn a_deadline_that_passed_is_an_error_unless_it_was_the_client_s() {
    let mut collector = Collector::start(Vec::new(), None).await;
    let (queue, exporter) = Exporter::new(collector.options());
    let (_stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(exporter.run(async { drop(stopped.await) }));
    let tracer = Tracer::new(Sampling::Ratio(1.0), Some(queue));
    let mut ids = ids();
    let cases = [
        (Outcome::Timeout, 200, "upstream_timeout", true),
        (Outcome::Timeout, 504, "request_timeout", true),
        (Outcome::Timeout, 408, "head_timeout", false),
        (Outcome::Timeout, 200, "client_stalled", false),
        (Outcome::Unfinished, 200, "gateway_stopped", true),
        (Outcome::ClientAborted, 200, "client_gone", false),
    ];
    for (outcome, status, reason, _) in cases {
        let trace = tracer.begin(None, &mut ids);
        let reason = Some(reason);
        finish(&tracer, &trace, &AccessRecord { status, outcome, reason, forwarded: None, ..record(None) });
    }
    let mut found = Vec::new();
    while found.len() < cases.len() {
        found.extend(spans(&collector.next().await).to_vec());
    }
    for ((outcome, status, reason, failed), span) in cases.into_iter().zip(found) {
        let said = span.status.map(|status| status.message);
        assert_eq!(said, failed.then(|| reason.to_owned()), "{outcome:?} {status} {reason}");
    }
}

#[tokio::test]
async fn a_full_queue_drops_and_counts() {
    let collector = Collector::start(Vec::new(), None).await;
    let (queue, exporter) = Exporter::new(ExportOptions { queue: 5, ..collector.options() });
    let stats = exporter.stats();
    let tracer = Tracer::new(Sampling::Ratio(1.0), Some(queue));
    let trace = tracer.begin(None, &mut ids());
    // the queue is not drained: two requests fit, half of the third, and no more
    for _ in 0..5 {
        finish(&tracer, &trace, &record(None));
    }
    assert_eq!(stats.dropped(), 5);
    let metrics = Metrics::new(1);
    metrics.set_trace(Arc::clone(&stats));
    assert!(metrics.render(Format::Text).contains("postern_trace_spans_total{result=\"dropped\"} 5\n"));
    // queued spans are sent before the end
    timeout(LONG, exporter.run(async {})).await.unwrap();
    assert_eq!(stats.exported(), 5);
    finish(&tracer, &trace, &record(None));
    assert_eq!(stats.dropped(), 7, "after the end");
}

#[tokio::test]
async fn answers_decide_what_becomes_of_spans() {
    let later = vec![Reply::Status(503), Reply::Status(429), Reply::Status(200)];
    for (replies, messages, (exported, failed, rejected)) in [
        (later, 3, (2, 0, 0)),
        (vec![Reply::Status(400)], 1, (0, 0, 2)),
        (vec![Reply::Status(302)], 1, (0, 0, 2)),
        (vec![Reply::Reject(1)], 1, (1, 0, 1)),
        (vec![Reply::Reject(-1)], 1, (2, 0, 0)),
        (vec![Reply::Status(502); 5], 5, (0, 2, 0)),
    ] {
        let mut collector = Collector::start(replies, None).await;
        let pause = Duration::from_millis(1);
        let (queue, exporter) = Exporter::new(ExportOptions { initial_pause: pause, ..collector.options() });
        let stats = exporter.stats();
        let tracer = Tracer::new(Sampling::Ratio(1.0), Some(queue));
        finish(&tracer, &tracer.begin(None, &mut ids()), &record(None));
        // without a queue no more spans can come, and the exporter ends by itself
        drop(tracer);
        exporter.run(std::future::pending()).await;
        let first = collector.next().await;
        for _ in 1..messages {
            assert_eq!(spans(&collector.next().await), spans(&first), "the same spans again");
        }
        assert!(collector.got.try_recv().is_err());
        assert_eq!((stats.exported(), stats.failed(), stats.rejected()), (exported, failed, rejected));
    }
}

#[tokio::test]
async fn an_unreachable_or_silent_collector_does_not_hold_up_the_end() {
    let silent = Collector::start(vec![Reply::Never; 9], None).await;
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    for address in [silent.address, nobody] {
        let endpoint = CollectorEndpoint::new(&format!("http://{address}"), &[], None).unwrap();
        let drain = Duration::from_millis(50);
        let (queue, exporter) = Exporter::new(ExportOptions { drain, ..ExportOptions::new(endpoint) });
        let stats = exporter.stats();
        let tracer = Tracer::new(Sampling::Ratio(1.0), Some(queue));
        finish(&tracer, &tracer.begin(None, &mut ids()), &record(None));
        timeout(LONG, exporter.run(async {})).await.unwrap();
        assert_eq!((stats.exported(), stats.failed()), (0, 2));
    }
}

#[tokio::test]
async fn a_collector_behind_tls_is_verified() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = |roots| {
        let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    };
    let mut collector = Collector::start(Vec::new(), Some(TlsAcceptor::from(Arc::new(server)))).await;
    let url = format!("https://localhost:{}", collector.address.port());
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut wrong = rustls::RootCertStore::empty();
    wrong.add(other.cert.der().clone()).unwrap();
    for (roots, exported) in [(roots, 2), (wrong, 0)] {
        let endpoint = CollectorEndpoint::new(&url, &[], Some(client(roots))).unwrap();
        let (queue, exporter) = Exporter::new(ExportOptions { attempts: 1, ..ExportOptions::new(endpoint) });
        let stats = exporter.stats();
        let tracer = Tracer::new(Sampling::Ratio(1.0), Some(queue));
        finish(&tracer, &tracer.begin(None, &mut ids()), &record(None));
        timeout(LONG, exporter.run(async {})).await.unwrap();
        assert_eq!((stats.exported(), stats.failed()), (exported, 2 - exported));
    }
    assert_eq!(spans(&collector.next().await).len(), 2);
    assert!(collector.got.try_recv().is_err(), "nothing was told to the stranger");
}
