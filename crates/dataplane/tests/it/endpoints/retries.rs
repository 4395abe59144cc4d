//! Retries of requests that reached a failing endpoint.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use dataplane::harness::{Fixture, Seen, Setup, Upstream, until};
use telemetry::metrics::Format;

use super::OK;

/// A gateway in front of these servers, with these retries.
fn retrying(servers: &[&Upstream], retries: &str, more: &str) -> Fixture {
    let endpoints: Vec<_> = servers.iter().map(|server| format!("\"http://{}\"", server.address)).collect();
    let setup = Setup {
        upstream: format!(
            "endpoints = [{}]\nunhealthy_after = 1000\nretries = {{ {retries} }}\n{more}",
            endpoints.join(", ")
        ),
        ..Setup::default()
    };
    Fixture::with(setup, Upstream::start())
}

fn answering(head: &'static str) -> Upstream {
    Upstream::answering(move |_, s| write!(s, "HTTP/1.1 {head}\r\ncontent-length: 4\r\n\r\nbusy").is_ok())
}

/// Closes the connection behind every request.
fn closing() -> Upstream {
    Upstream::answering(|_, _| false)
}

#[test]
fn an_idempotent_request_is_sent_again_to_another_endpoint() {
    let retries = "on = [\"reset\", \"503\"], min_per_second = 100";
    for failing in [closing(), answering("503 Busy")] {
        let good = Upstream::start();
        let f = retrying(&[&failing, &good], retries, "");
        for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
            let request = f.request("/thing", "X-A: b\r\n").replacen("GET", method, 1);
            for _ in 0..2 {
                assert_eq!(f.send(&request).status, 200, "{method}");
            }
        }
        assert_eq!(good.seen().len(), 8);
        let sent = failing.seen();
        assert!(!sent.is_empty());
        // The same request, byte for byte.
        let head = |seen: &Seen| seen.head.clone();
        let again = good.seen();
        assert!(sent.iter().all(|one| again.iter().any(|other| head(other) == head(one))));
        let labels = format!("{{upstream=\"backend\",endpoint=\"{}\"}}", failing.address);
        let counted = f.counted(&format!("postern_upstream_retries_total{labels}"));
        assert_eq!(counted, f64::from(u32::try_from(sent.len()).unwrap()));
    }
}

#[test]
fn what_could_do_harm_twice_is_sent_once() {
    let failing = closing();
    let f = retrying(&[&failing], "attempts = 5, min_per_second = 100", "");
    let get = f.request("/", "");
    for (request, sent) in [
        (get.replacen("GET", "POST", 1), 1),
        (get.replacen("GET", "PATCH", 1), 1),
        (f.request("/", "Content-Length: 2\r\n").replacen("GET", "PUT", 1) + "hi", 1),
        (f.request("/", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n", 1),
        (get, 5),
    ] {
        let before = failing.seen().len();
        let response = f.send(&request);
        assert_eq!(response.status, 502, "{request}");
        assert!(response.text().contains("upstream_closed"), "{}", response.text());
        assert_eq!(failing.seen().len() - before, sent, "{request}");
    }
}

#[test]
fn nothing_is_sent_again_once_the_client_has_received_something() {
    for begun in ["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
        let server = Upstream::answering(move |_, s| {
            s.write_all(begun.as_bytes()).unwrap();
            false
        });
        let f = retrying(&[&server], "attempts = 5, min_per_second = 100", "");
        let mut client = f.connect();
        client.send(f.request("/", ""));
        client.rest();
        assert_eq!(server.seen().len(), 1, "{begun}");
    }
}

#[test]
fn the_last_response_is_the_clients_and_unlisted_ones_are_not_repeated() {
    let server = answering("503 Busy");
    let f = retrying(&[&server], "attempts = 3, on = [\"503\"], min_per_second = 100", "");
    let response = f.get("/");
    assert_eq!((response.status, response.text().as_str()), (503, "busy"));
    assert_eq!(server.seen().len(), 3);
    let server = answering("500 Broken");
    let f = retrying(&[&server], "attempts = 3, on = [\"502\", \"503\", \"504\"]", "");
    assert_eq!((f.get("/").status, server.seen().len()), (500, 1));
}

#[test]
fn the_budget_limits_retries() {
    let server = answering("503 Busy");
    let f =
        retrying(&[&server], "attempts = 10, on = [\"503\"], budget_percent = 20, min_per_second = 0", "");
    let mut client = f.connect();
    for _ in 0..50 {
        client.send(f.request("/", ""));
        assert_eq!(client.response().status, 503);
    }
    assert_eq!(server.seen().len(), 60, "a fifth of the requests was sent again");
}

#[test]
fn an_attempt_that_takes_too_long_is_replaced() {
    let slow = Upstream::answering(|seen, s| {
        std::thread::sleep(Duration::from_millis(if seen.line().contains("/slow") { 3000 } else { 0 }));
        s.write_all(OK).is_ok()
    });
    let fast = Upstream::start();
    let f = retrying(&[&slow, &fast], "per_try_timeout = \"100ms\", min_per_second = 100", "");
    for _ in 0..4 {
        assert_eq!(f.get("/slow").status, 200);
    }
    assert!(!slow.seen().is_empty() && fast.seen().len() == 4);
}

#[test]
fn connecting_is_tried_again_while_the_only_endpoint_restarts() {
    let address: SocketAddr = dataplane::ports::free().parse().unwrap();
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{address}\"]\nretries = {{ attempts = 10, min_per_second = 100 }}"
        ),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    client.send(f.request("/", ""));
    let errors =
        format!("postern_upstream_connect_errors_total{{upstream=\"backend\",endpoint=\"{address}\"}} ");
    let count = || {
        let text = f.metrics.render(Format::Text);
        text.lines().find_map(|line| line.strip_prefix(&errors)?.parse::<u32>().ok()).unwrap_or_default()
    };
    until("connecting has failed more than once", || count() > 1);
    let server = Upstream::listening(TcpListener::bind(address).unwrap(), |_, s| s.write_all(OK).is_ok());
    assert_eq!(client.response().status, 200);
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn the_host_of_another_endpoint_is_its_own() {
    let (failing, good) = (closing(), Upstream::start());
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{}\", \"http://{}\"]\nretries = {{ min_per_second = 100 }}",
            failing.address, good.address
        ),
        route: "preserve_host = false".into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    for _ in 0..4 {
        assert_eq!(f.get("/").status, 200);
    }
    assert!(!failing.seen().is_empty());
    assert!(good.seen().iter().all(|seen| seen.values("host") == [good.address.to_string()]));
}
