//! HTTP/2 runs, with prior knowledge and over TLS.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use lab_load::load::{Plan, Protocol, RequestFault};
use lab_load::report::run_load;

use crate::server::{Reply, Server, ServerProtocol};
use crate::{plan, target};

fn h2_plan(url: &str, rate: f64, count: u64) -> Plan {
    Plan { target: target(url, Protocol::Http2), connections: 2, streams: 5, ..plan(url, rate, count) }
}

#[test]
fn counts_are_exact_on_shared_connections() {
    let server = Server::speaking(ServerProtocol::Http2, |_| Reply::Status(200));
    let report = run_load(&h2_plan(&server.url(), 2000.0, 1000)).unwrap();
    assert_eq!((report.totals.ok, report.totals.failed), (1000, 0), "{:?}", report.faults);
    assert_eq!(server.counts.requests(), 1000);
    assert_eq!(server.counts.connections(), 2);
    assert_eq!(report.totals.bytes_received, 5000);
    assert_eq!(report.plan.protocol, "h2");
}

#[test]
fn a_stall_of_one_stream_does_not_hold_up_the_others() {
    let server = Server::speaking(ServerProtocol::Http2, |seen| match seen.number {
        10 => Reply::After(Duration::from_millis(400)),
        _ => Reply::Status(200),
    });
    let report = run_load(&h2_plan(&server.url(), 100.0, 60)).unwrap();
    assert!(report.latency_us.max >= 400_000.0);
    assert!(report.latency_us.p90 < 300_000.0, "{:?}", report.latency_us);
}

#[test]
fn streams_that_fail_are_told_apart() {
    let reset = Server::speaking(ServerProtocol::Http2, |seen| {
        if seen.number % 2 == 0 { Reply::Reset } else { Reply::Status(503) }
    });
    let report = run_load(&h2_plan(&reset.url(), 1000.0, 40)).unwrap();
    assert_eq!(report.totals.refused, 20);
    assert_eq!((report.faults[0].class, report.faults[0].count), (RequestFault::Reset, 20));
    assert_eq!(reset.counts.connections(), 2, "a reset stream keeps the connection");

    let silent = Server::speaking(ServerProtocol::Http2, |_| Reply::Silence);
    let short = Plan { timeout: Duration::from_millis(200), ..h2_plan(&silent.url(), 1000.0, 10) };
    let report = run_load(&short).unwrap();
    assert_eq!((report.faults[0].class, report.faults[0].count), (RequestFault::Timeout, 10));
}

#[test]
fn a_connection_that_goes_away_is_replaced() {
    let server = Server::speaking(ServerProtocol::Http2, |_| Reply::Close);
    let one = Plan { connections: 1, streams: 1, ..h2_plan(&server.url(), 50.0, 6) };
    let report = run_load(&one).unwrap();
    assert_eq!(report.totals.failed, 6);
    assert!(server.counts.connections() >= 6, "{} connections", server.counts.connections());
}

#[test]
fn tls_agrees_on_http2_or_fails() {
    let server = Server::speaking(ServerProtocol::Tls2, |_| Reply::Status(200));
    let report = run_load(&h2_plan(&server.tls_url(), 500.0, 100)).unwrap();
    assert_eq!(report.totals.ok, 100, "{:?}", report.faults);
    let old = Server::speaking(ServerProtocol::Tls1, |_| Reply::Status(200));
    let report = run_load(&h2_plan(&old.tls_url(), 500.0, 5)).unwrap();
    assert_eq!((report.faults[0].class, report.faults[0].count), (RequestFault::Tls, 5));
}

#[test]
fn tokens_and_bodies_arrive() {
    let server = Server::speaking(ServerProtocol::Http2, |_| Reply::Status(200));
    let mut posting = h2_plan(&server.url(), 100.0, 4);
    posting.flow.method = Method::POST;
    // Larger than the peer's initial window of 65 535 bytes.
    posting.flow.body = Bytes::from(vec![b'x'; 200_000]);
    posting.flow.tokens = vec!["a".to_owned(), "b".to_owned()];
    let report = run_load(&posting).unwrap();
    assert_eq!(report.totals.ok, 4, "{:?}", report.faults);
    assert_eq!(server.counts.last.lock().unwrap().body, 200_000);
    assert_eq!(server.counts.tokens.lock().unwrap().values().copied().collect::<Vec<_>>(), [2, 2]);
}
