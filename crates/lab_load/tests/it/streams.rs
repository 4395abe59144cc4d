//! Streams of events: what is counted, from when, and how a stream may end.

use std::time::Duration;

use lab_analysis::record::{StreamKind, Streams};
use lab_load::load::{
    Exchange, LoadError, Plan, Protocol, RequestFault, RequestTemplate, StreamForm, StreamSettings,
};
use lab_load::report::{LoadReport, run_load};

use crate::server::{Reply, Server, ServerProtocol};
use crate::{plan, target};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/// Three events over HTTP/1.1: after 20 ms, 60 ms and, in two parts, 100 ms.
const EVENTS: &[(u64, &[u8])] = &[
    (0, HEAD),
    (20, b"9\r\ndata: 1\n\n\r\n"),
    (40, b"9\r\ndata: 2\n\n\r\n"),
    (20, b"4\r\ndata\r\n"),
    (20, b"5\r\n: 3\n\n\r\n0\r\n\r\n"),
];
/// Two gRPC messages after 20 ms and 60 ms.
const MESSAGES: &[(u64, &[u8])] = &[(20, b"\0\0\0\0\x02ab"), (40, b"\0\0\0\0\x01"), (0, b"c")];

fn streaming(url: &str, protocol: Protocol, form: StreamForm, events: Option<u64>) -> Plan {
    let settings = StreamSettings { form, stall: Duration::from_millis(30), events };
    let flow = RequestTemplate::of_exchange(Exchange::Stream(settings), 1);
    let streams = if protocol == Protocol::Http2 { 2 } else { 1 };
    Plan { target: target(url, protocol), flow, connections: 4, streams, ..plan(url, 40.0, 10) }
}

fn streams(report: &LoadReport) -> &Streams {
    report.streams.as_ref().unwrap()
}

/// Median of a distribution in ms.
fn p50(times: &lab_analysis::record::Distribution) -> f64 {
    times.micros(0.5) / 1e3
}

#[test]
fn events_have_times_of_their_own() {
    for (protocol, url) in [
        (ServerProtocol::Http1, Server::url as fn(&Server) -> String),
        (ServerProtocol::Tls1, Server::tls_url),
    ] {
        let server = Server::speaking(protocol, |_| Reply::Parts(EVENTS));
        let plan = streaming(&url(&server), Protocol::Http1, StreamForm::ServerSentEvents, Some(3));
        let report = run_load(&plan).unwrap();
        assert_eq!((report.totals.ok, report.totals.failed), (10, 0), "{:?}", report.faults);
        let seen = streams(&report);
        assert_eq!((seen.kind, seen.opened, seen.completed, seen.cut), (StreamKind::Sse, 10, 10, 0));
        assert_eq!((seen.events, seen.gap.count(), seen.first_event.count()), (30, 20, 10));
        assert!(p50(&seen.head) < 20.0 && p50(&seen.first_event) >= 19.0, "{seen:?}");
        assert!(seen.gap.micros(0.0) >= 35_000.0 && p50(&seen.last_event) >= 95.0, "{seen:?}");
        assert_eq!(seen.stalls, 20, "every gap is above 30 ms");
        assert!(seen.stalled.iter().all(|stall| stall.ms >= 35), "{:?}", seen.stalled);
        assert_eq!(seen.together, 0);
        assert_eq!(server.counts.connections(), 4, "connections are kept");
    }
}

#[test]
fn grpc_messages_end_with_a_status() {
    for (protocol, url) in [
        (ServerProtocol::Http2, Server::url as fn(&Server) -> String),
        (ServerProtocol::Tls2, Server::tls_url),
    ] {
        let server = Server::speaking(protocol, |seen| {
            Reply::Grpc(MESSAGES, if seen.number.is_multiple_of(5) { "16" } else { "0" })
        });
        let plan = streaming(&url(&server), Protocol::Http2, StreamForm::Grpc, Some(2));
        let report = run_load(&plan).unwrap();
        let seen = streams(&report);
        assert_eq!((seen.opened, seen.completed, seen.error_status, seen.cut), (10, 8, 2, 0));
        assert_eq!((seen.events, seen.gap.count()), (20, 10));
        assert_eq!((report.totals.ok, report.totals.failed), (8, 2));
        assert_eq!(report.faults[0].class, RequestFault::GrpcStatus);
        assert_eq!(report.faults[0].example, "grpc-status 16: as asked");
        let last = server.counts.last.lock().unwrap();
        assert!(last.head.starts_with("POST ") && last.body == 5, "{last:?}");
    }
}

#[test]
fn events_over_http2_are_counted_too() {
    let server = Server::speaking(ServerProtocol::Http2, |_| {
        Reply::Parts(&[(20, b"data: 1\n\ndata: 2\n"), (20, b"\ndata: 3\n\n")])
    });
    let plan = streaming(&server.url(), Protocol::Http2, StreamForm::ServerSentEvents, Some(3));
    let report = run_load(&plan).unwrap();
    let seen = streams(&report);
    assert_eq!((report.totals.ok, seen.completed, seen.events), (10, 10, 30), "{:?}", report.faults);
}

#[test]
fn a_stream_that_ends_early_is_cut() {
    const SHORT: &[(u64, &[u8])] = &[(0, HEAD), (1, b"9\r\ndata: 1\n\n\r\n0\r\n\r\n")];
    for (reply, fault, words) in [
        (Reply::Parts(SHORT), RequestFault::Closed, "after 1 of 3 events"),
        (
            Reply::Last(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"),
            RequestFault::Closed,
            "inside the response",
        ),
    ] {
        let server = Server::start(move |_| reply.clone());
        let plan = streaming(&server.url(), Protocol::Http1, StreamForm::ServerSentEvents, Some(3));
        let report = run_load(&plan).unwrap();
        let seen = streams(&report);
        assert_eq!((seen.opened, seen.completed, seen.cut), (10, 0, 10));
        assert_eq!((report.faults[0].class, report.faults[0].count), (fault, 10));
        assert!(report.faults[0].example.contains(words), "{:?}", report.faults);
    }
    // An answer without any event is no stream.
    let server = Server::start(|_| Reply::Status(200));
    let plan = streaming(&server.url(), Protocol::Http1, StreamForm::ServerSentEvents, None);
    assert_eq!(streams(&run_load(&plan).unwrap()).cut, 10);
    // A call without a status, and one that is no gRPC.
    let server = Server::speaking(ServerProtocol::Http2, |seen| {
        Reply::Parts(if seen.number.is_multiple_of(2) { MESSAGES } else { &[(0, b"<html>")] })
    });
    let plan = streaming(&server.url(), Protocol::Http2, StreamForm::Grpc, None);
    let report = run_load(&plan).unwrap();
    assert_eq!((report.faults[0].class, report.faults[0].count), (RequestFault::Protocol, 10));
}

#[test]
fn the_last_line_needs_no_newline() {
    const LINES: &[(u64, &[u8])] =
        &[(0, HEAD), (20, b"3\r\n{}\n\r\n"), (40, b"8\r\n{\"done\":\r\n"), (0, b"5\r\ntrue}\r\n0\r\n\r\n")];
    const CONTENT: &[(u64, &[u8])] = &[(20, b"{}\n"), (40, b"{\"done\":"), (0, b"true}")];
    for (spoken, protocol, parts) in
        [(ServerProtocol::Http1, Protocol::Http1, LINES), (ServerProtocol::Http2, Protocol::Http2, CONTENT)]
    {
        let server = Server::speaking(spoken, move |_| Reply::Parts(parts));
        let plan = streaming(&server.url(), protocol, StreamForm::Lines, Some(2));
        let report = run_load(&plan).unwrap();
        let seen = streams(&report);
        assert_eq!((report.totals.ok, report.totals.failed), (10, 0), "{:?}", report.faults);
        assert_eq!((seen.kind, seen.completed, seen.cut), (StreamKind::Lines, 10, 0));
        assert_eq!((seen.events, seen.gap.count()), (20, 10));
        assert!(seen.gap.micros(0.0) >= 35_000.0, "{seen:?}");
    }
    // A line inside which the connection is closed is none.
    let server = Server::start(|_| {
        Reply::Last(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\n{}\n{\"a\r\n")
    });
    let plan = streaming(&server.url(), Protocol::Http1, StreamForm::Lines, Some(2));
    let report = run_load(&plan).unwrap();
    assert_eq!((streams(&report).cut, streams(&report).events), (10, 10), "{:?}", report.faults);
    assert_eq!(report.faults[0].class, RequestFault::Closed);
}

#[test]
fn a_refusal_is_no_stream() {
    let server = Server::start(|_| Reply::Status(401));
    let plan = streaming(&server.url(), Protocol::Http1, StreamForm::ServerSentEvents, Some(3));
    let report = run_load(&plan).unwrap();
    let seen = streams(&report);
    assert_eq!((report.totals.refused, report.totals.failed), (10, 0));
    assert_eq!((seen.opened, seen.events, seen.bytes), (0, 0, 0));
}

#[test]
fn a_silence_until_the_timeout_is_a_stall() {
    const SILENT: &[(u64, &[u8])] = &[(0, HEAD), (0, b"9\r\ndata: 1\n\n\r\n"), (60_000, b"")];
    let server = Server::start(|_| Reply::Parts(SILENT));
    let plan = streaming(&server.url(), Protocol::Http1, StreamForm::ServerSentEvents, None);
    let report = run_load(&Plan { timeout: Duration::from_millis(400), ..plan }).unwrap();
    let seen = streams(&report);
    assert_eq!(report.faults[0].class, RequestFault::Timeout);
    assert_eq!((seen.cut, seen.stalls), (seen.opened, seen.opened));
    assert!(seen.opened > 0 && seen.gap.is_empty(), "a gap needs a second event: {seen:?}");
}

#[test]
fn events_that_come_at_the_end_come_together() {
    const LATE: &[(u64, &[u8])] =
        &[(100, HEAD), (0, b"1b\r\ndata: 1\n\ndata: 2\n\ndata: 3\n\n\r\n0\r\n\r\n")];
    let server = Server::start(|_| Reply::Parts(LATE));
    let plan = streaming(&server.url(), Protocol::Http1, StreamForm::ServerSentEvents, Some(3));
    let report = run_load(&plan).unwrap();
    let seen = streams(&report);
    assert_eq!((seen.completed, seen.together), (10, 10), "{:?}", report.faults);
}

#[test]
fn grpc_needs_http2() {
    let plan = streaming("http://127.0.0.1:9/", Protocol::Http1, StreamForm::Grpc, None);
    assert!(matches!(run_load(&plan), Err(LoadError::Plan(why)) if why == "gRPC needs HTTP/2"));
}
