//! Held connections: idle and slow ones.

use std::time::Duration;

use lab_load::idle_connections::{HoldBehavior, HoldError, HoldPlan};
use lab_load::load::{Protocol, RequestTemplate};
use lab_load::report::{HoldReport, run_hold};

use crate::server::{Reply, Server};
use crate::{NOBODY, target};

fn holding(url: &str, connections: usize, manner: HoldBehavior) -> HoldPlan {
    HoldPlan {
        target: target(url, Protocol::Http1),
        connections,
        behavior: manner,
        hold: Duration::from_millis(500),
        timeout: Duration::from_secs(20),
        max_concurrent_connects: 16,
        watch: Vec::new(),
    }
}

fn hold(plan: HoldPlan) -> Result<HoldReport, HoldError> {
    let mut told = None;
    let report = run_hold(plan, |open| told = Some(open));
    assert_eq!(told.is_some(), report.is_ok(), "the caller is told once all have been tried");
    report
}

#[test]
fn idle_connections_stay_open() {
    let server = Server::start(|_| Reply::Status(200));
    let report = hold(holding(&server.url(), 100, HoldBehavior::Idle { first: None })).unwrap();
    assert_eq!(
        (report.opened, report.open_max, report.open_at_end, report.closed_by_peer),
        (100, 100, 100, 0)
    );
    assert_eq!(server.counts.connections(), 100);
    assert_eq!(server.counts.requests(), 0);
}

#[test]
fn idle_connections_can_have_been_used() {
    let server = Server::start(|_| Reply::Status(401));
    let first = Some(Box::new(RequestTemplate::get()));
    let report = hold(holding(&server.url(), 20, HoldBehavior::Idle { first })).unwrap();
    assert_eq!(server.counts.requests(), 20);
    assert_eq!(report.statuses.get(&401), Some(&20));
    assert_eq!(report.open_at_end, 20);
}

#[test]
fn connections_the_server_closes_are_counted() {
    let server = Server::start(|_| Reply::Last(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let first = Some(Box::new(RequestTemplate::get()));
    let report = hold(holding(&server.url(), 10, HoldBehavior::Idle { first })).unwrap();
    assert_eq!((report.opened, report.closed_by_peer, report.open_at_end), (10, 10, 0));
}

#[test]
fn connections_that_cannot_be_opened_are_counted() {
    let plan = holding(&format!("http://{NOBODY}/"), 10, HoldBehavior::Idle { first: None });
    let report = hold(plan).unwrap();
    assert_eq!((report.opened, report.failed[0].count), (0, 10));
}

#[test]
fn slow_connections_never_finish_their_head() {
    let server = Server::start(|_| Reply::Status(200));
    let manner = HoldBehavior::SlowLoris { interval: Duration::from_millis(20) };
    let report = hold(holding(&server.url(), 10, manner)).unwrap();
    assert_eq!((report.opened, report.open_at_end), (10, 10));
    assert_eq!(server.counts.requests(), 0);
}

/// The server reads a few bytes and then rejects the client.
#[test]
fn slow_connections_that_are_turned_away_come_back() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            let _ = stream.write_all(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n");
        }
    });
    let manner = HoldBehavior::SlowLoris { interval: Duration::from_secs(5) };
    let report = hold(holding(&url, 2, manner)).unwrap();
    assert!(report.closed_by_peer >= 2 && report.opened >= 4, "{report:?}");
    assert_eq!(report.statuses.get(&408), Some(&report.closed_by_peer));
}

#[test]
fn more_connections_than_files_is_refused_before_anything_is_opened() {
    let server = Server::start(|_| Reply::Status(200));
    let error = hold(holding(&server.url(), 50_000_000, HoldBehavior::Idle { first: None })).unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    assert_eq!(server.counts.connections(), 0);
}
