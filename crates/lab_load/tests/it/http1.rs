//! HTTP/1.1 runs: what is counted, and from which time latency counts.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use lab_load::load::{Plan, Protocol, RequestFault, RequestTemplate, Schedule, Stop, TokenChoice};
use lab_load::observe::WatchedProcess;
use lab_load::report::{LoadReport, run_load};

use crate::server::{Reply, Server, ServerProtocol};
use crate::{NOBODY, open, plan, target};

fn ok_server() -> Server {
    Server::start(|_| Reply::Status(200))
}

fn only_fault(report: &LoadReport) -> (RequestFault, u64) {
    assert_eq!(report.faults.len(), 1, "{:?}", report.faults);
    (report.faults[0].class, report.faults[0].count)
}

#[test]
fn counts_are_exact() {
    let server = ok_server();
    let report = run_load(&Plan { connections: 8, ..plan(&server.url(), 5000.0, 2500) }).unwrap();
    assert_eq!((report.totals.planned, report.totals.ok, report.totals.failed), (2500, 2500, 0));
    assert_eq!(server.counts.requests(), 2500);
    assert_eq!(server.counts.connections(), 8, "connections are kept alive");
    assert_eq!(report.totals.connections_opened, 8);
    assert_eq!(report.latency_us.count, 2500);
    let rows: u64 = report.timeline.iter().map(|row| row.completed).sum();
    assert_eq!(rows, 2500);
    let response = "HTTP/1.1 200 Some Reason\r\nserver: test\r\ncontent-length: 5\r\n\r\nhello".len() as u64;
    assert_eq!(report.totals.bytes_received, 2500 * response);
}

#[test]
fn warm_up_is_sent_but_not_measured() {
    let server = ok_server();
    let warm = Plan { warmup: Duration::from_millis(500), ..plan(&server.url(), 200.0, 50) };
    let report = run_load(&warm).unwrap();
    assert_eq!(server.counts.requests(), 150);
    assert_eq!((report.totals.planned, report.all_us.count), (50, 50));
}

#[test]
fn a_timed_run_sends_what_falls_into_its_time() {
    let server = ok_server();
    let timed = Plan { stop: Stop::After(Duration::from_secs(1)), ..plan(&server.url(), 300.0, 0) };
    let report = run_load(&timed).unwrap();
    assert_eq!((report.totals.planned, report.totals.ok), (300, 300));
    assert!((report.totals.seconds - 1.0).abs() < 1e-9);
}

/// The main property: one stall of half a second at 200 requests a second delays a hundred
/// requests. A generator that waits for each response would have sent, and seen, one.
#[test]
fn latency_counts_a_stall_for_every_request_it_delayed() {
    let stalling = || {
        Server::start(|seen| match seen.number {
            50 => Reply::After(Duration::from_millis(500)),
            _ => Reply::Status(200),
        })
    };
    let server = stalling();
    let open_loop = run_load(&plan(&server.url(), 200.0, 200)).unwrap();
    // Requests that were due in the first half of the stall, a quarter of all, waited longer than a
    // quarter of a second.
    assert!(open_loop.latency_us.p75 > 240_000.0, "{:?}", open_loop.latency_us);
    assert!(open_loop.service_us.p75 < 100_000.0, "{:?}", open_loop.service_us);
    assert!(open_loop.service_us.max >= 500_000.0);
    assert!(
        open_loop.findings.iter().any(|finding| finding.name == "connections-exhausted"),
        "{:?}",
        open_loop.findings
    );

    let server = stalling();
    let closed = Plan { schedule: Schedule::Closed { concurrency: 1 }, ..plan(&server.url(), 0.0, 200) };
    let closed = run_load(&closed).unwrap();
    assert!(closed.latency_us.p95 < 100_000.0, "a closed loop hides it: {:?}", closed.latency_us);
    assert!(closed.findings.iter().any(|finding| finding.name == "closed-loop"));
}

#[test]
fn a_status_is_counted_with_its_own_latency() {
    let server =
        Server::start(|seen| if seen.number % 4 == 0 { Reply::Status(503) } else { Reply::Status(200) });
    let report = run_load(&plan(&server.url(), 2000.0, 400)).unwrap();
    let counts: Vec<(u16, u64)> = report.statuses.iter().map(|row| (row.status, row.count)).collect();
    assert_eq!(counts, [(200, 300), (503, 100)]);
    assert_eq!((report.totals.ok, report.totals.refused, report.totals.failed), (300, 100, 0));
    assert_eq!(report.latency_us.count, 300, "latency is of successes only");
    assert_eq!(report.all_us.count, 400);
    assert_eq!(server.counts.connections(), 1, "a refusal keeps the connection");
}

#[test]
fn refused_connections_are_a_class() {
    let report = run_load(&plan(&format!("http://{NOBODY}/"), 1000.0, 20)).unwrap();
    assert_eq!(only_fault(&report), (RequestFault::Connect, 20));
    assert!(report.faults[0].example.contains("refused"), "{}", report.faults[0].example);
    assert_eq!((report.totals.failed, report.unsuccessful()), (20, 20));
}

#[test]
fn silence_is_a_timeout_after_the_timeout() {
    let server = Server::start(|_| Reply::Silence);
    let short =
        Plan { timeout: Duration::from_millis(200), connections: 5, ..plan(&server.url(), 1000.0, 5) };
    let report = run_load(&short).unwrap();
    assert_eq!(only_fault(&report), (RequestFault::Timeout, 5));
    assert!(report.faults[0].latency_us.min >= 200_000.0, "{:?}", report.faults[0].latency_us);
}

#[test]
fn requests_that_never_got_a_connection_are_counted() {
    let server = Server::start(|_| Reply::Silence);
    let short = Plan { timeout: Duration::from_millis(300), ..plan(&server.url(), 1000.0, 100) };
    let report = run_load(&short).unwrap();
    let classes: Vec<(RequestFault, u64)> =
        report.faults.iter().map(|fault| (fault.class, fault.count)).collect();
    assert_eq!(classes.iter().map(|(_, count)| count).sum::<u64>(), 100);
    assert!(classes.iter().any(|&(class, count)| class == RequestFault::Unsent && count > 90), "{classes:?}");
    assert_eq!(report.totals.planned, 100);
    assert!(report.findings.iter().any(|finding| finding.name == "requests-unsent"));
}

#[test]
fn resets_closures_and_nonsense_are_told_apart() {
    for (reply, class) in [
        (Reply::Reset, RequestFault::Reset),
        (Reply::Close, RequestFault::Closed),
        (Reply::Last(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort"), RequestFault::Closed),
        (Reply::Raw(b"220 mail.example ESMTP\r\n\r\n"), RequestFault::Protocol),
    ] {
        let server = Server::start(move |_| reply.clone());
        let report = run_load(&plan(&server.url(), 500.0, 10)).unwrap();
        assert_eq!(only_fault(&report), (class, 10));
        assert_eq!(server.counts.connections(), 10, "a failed connection is replaced");
    }
}

#[test]
fn a_connection_closed_while_idle_is_replaced_without_a_failure() {
    let server = Server::start(|_| Reply::Last(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let report = run_load(&plan(&server.url(), 20.0, 10)).unwrap();
    assert_eq!((report.totals.ok, report.totals.failed), (10, 0));
    assert_eq!(report.totals.connections_opened, 10);
}

#[test]
fn every_kind_of_framing_is_followed() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"[..],
        b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    ] {
        let server = Server::start(move |_| Reply::Raw(bytes));
        let report = run_load(&plan(&server.url(), 1000.0, 50)).unwrap();
        assert_eq!((report.totals.ok, server.counts.connections()), (50, 1));
    }
    let until_close = Server::start(|_| Reply::Last(b"HTTP/1.1 200 OK\r\n\r\nto the end"));
    let report = run_load(&plan(&until_close.url(), 1000.0, 20)).unwrap();
    assert_eq!((report.totals.ok, report.totals.failed), (20, 0));
}

#[test]
fn a_connection_per_request_when_asked() {
    let server = ok_server();
    let mut fresh = plan(&server.url(), 500.0, 25);
    fresh.flow.keep_alive = false;
    let report = run_load(&fresh).unwrap();
    assert_eq!(report.totals.ok, 25);
    assert_eq!(server.counts.connections(), 25);
}

#[test]
fn tokens_are_spread_as_asked() {
    let tokens: Vec<String> = (0..10).map(|number| format!("token-{number}")).collect();
    let server = ok_server();
    let mut even = plan(&server.url(), 5000.0, 1000);
    even.flow.tokens = tokens.clone();
    run_load(&even).unwrap();
    let seen = server.counts.tokens.lock().unwrap().clone();
    assert_eq!(seen.len(), 10);
    assert!(seen.values().all(|&count| count == 100), "{seen:?}");

    let server = ok_server();
    let mut skewed = plan(&server.url(), 5000.0, 1000);
    skewed.flow = RequestTemplate { tokens, choice: TokenChoice::Zipf(1.5), ..RequestTemplate::get() };
    run_load(&skewed).unwrap();
    let seen = server.counts.tokens.lock().unwrap().clone();
    assert!(seen["token-0"] > 2 * seen["token-1"] && seen["token-1"] > seen["token-9"], "{seen:?}");
}

#[test]
fn method_fields_and_body_arrive() {
    let server = ok_server();
    let mut posting = plan(&server.url(), 1000.0, 3);
    posting.flow.method = Method::POST;
    posting.flow.body = Bytes::from(vec![b'x'; 300_000]);
    posting.flow.headers.insert("x-test", HeaderValue::from_static("yes"));
    let report = run_load(&posting).unwrap();
    assert_eq!(report.totals.ok, 3, "{:?}", report.faults);
    let last = server.counts.last.lock().unwrap().clone();
    assert_eq!(last.body, 300_000);
    assert!(last.head.starts_with("post /path?query http/1.1\r\n"), "{}", last.head);
    assert!(last.head.contains("x-test: yes\r\n"));
}

#[test]
fn tls_is_spoken_and_verified() {
    let server = Server::speaking(ServerProtocol::Tls1, |_| Reply::Status(200));
    let report = run_load(&Plan { connections: 3, ..plan(&server.tls_url(), 1000.0, 60) }).unwrap();
    assert_eq!((report.totals.ok, server.counts.connections()), (60, 3), "{:?}", report.faults);
    assert!(report.plan.tls);
    // A server without TLS cannot complete a TLS handshake.
    let plain = Server::start(|_| Reply::Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n\r\n\r\n"));
    let report =
        run_load(&Plan { timeout: Duration::from_millis(500), ..plan(&plain.tls_url(), 100.0, 1) }).unwrap();
    assert!(
        matches!(only_fault(&report).0, RequestFault::Tls | RequestFault::Connect),
        "{:?}",
        report.faults
    );
}

#[test]
fn a_closed_loop_keeps_its_workers_busy() {
    let server = Server::start(|_| Reply::After(Duration::from_millis(20)));
    let closed = Plan {
        schedule: Schedule::Closed { concurrency: 4 },
        connections: 4,
        stop: Stop::After(Duration::from_secs(1)),
        warmup: Duration::from_millis(200),
        ..plan(&server.url(), 0.0, 0)
    };
    let report = run_load(&closed).unwrap();
    assert_eq!(server.counts.connections(), 4);
    assert!(
        report.totals.mean_in_flight > 3.5 && report.totals.mean_in_flight <= 4.01,
        "{:?}",
        report.totals
    );
    assert!(report.totals.ok_per_s <= 4.0 / 0.020 + 5.0, "concurrency ÷ latency: {:?}", report.totals);
}

#[test]
fn a_closed_loop_counts_exactly_and_does_not_flood_a_dead_server() {
    let closed =
        Plan { schedule: Schedule::Closed { concurrency: 1 }, ..plan(&format!("http://{NOBODY}/"), 0.0, 10) };
    let report = run_load(&closed).unwrap();
    assert_eq!(only_fault(&report), (RequestFault::Connect, 10));
    let seconds = report.timeline.iter().map(|row| row.second).max().unwrap_or(0);
    assert!(
        report.totals.seconds >= 0.09,
        "pauses between attempts: {} s, row {seconds}",
        report.totals.seconds
    );
}

#[test]
fn watched_processes_are_in_the_report() {
    let server = ok_server();
    let watch = vec![WatchedProcess { name: "me".to_owned(), pid: std::process::id() }];
    let report = run_load(&Plan { watch, ..plan(&server.url(), 200.0, 100) }).unwrap();
    let me = &report.watched[0];
    assert_eq!(me.name, "me");
    assert!(me.rss_max_bytes > 1 << 20 && me.series.len() >= 3, "{me:?}");
    let used = me.series.last().unwrap().usage.since(&me.series[0].usage);
    assert!(used.cpu_ns > 0 && me.cpu_error_s > 0.0, "{me:?}");
    // In half a second a CPU figure exists only if more time was used than one clock step.
    assert!(me.cpu_us_per_request.is_none() || me.cpu_cores.is_some(), "{me:?}");
}

#[test]
fn plans_that_cannot_be_are_refused() {
    let server = ok_server();
    let base = || plan(&server.url(), 1.0, 1);
    let refused = |plan: Plan| run_load(&plan).unwrap_err().to_string();
    assert!(refused(Plan { connections: 0, ..base() }).contains("at least one connection"));
    assert!(refused(Plan { streams: 2, ..base() }).contains("streams need HTTP/2"));
    assert!(
        refused(Plan { timeout: Duration::ZERO, ..base() }).contains("the timeout must be greater than zero")
    );
    assert!(refused(Plan { schedule: open(f64::NAN), ..base() }).contains("rate"));
    assert!(
        refused(Plan { schedule: Schedule::Closed { concurrency: 9 }, ..base() }).contains("concurrency")
    );
    let mut fresh = Plan { target: target(&server.url(), Protocol::Http2), ..base() };
    fresh.flow.keep_alive = false;
    assert!(refused(fresh).contains("HTTP/1.1 only"));
}
