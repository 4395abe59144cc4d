//! What the upstream gets in place of host and path, and time limits of requests and attempts.

use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dataplane::harness::{Fixture, Setup, Upstream, until};

use super::upstream_http2::{Http2Upstream, USUAL};

fn route(route: &str) -> Setup {
    Setup { route: route.into(), ..Setup::default() }
}

#[test]
fn the_upstream_gets_the_host_of_the_route() {
    let f = Fixture::with(route("rewrite_host = \"app.internal:8080\""), Upstream::start());
    assert_eq!(f.get("/x").status, 200);
    let seen = f.upstream.only();
    assert_eq!(
        (seen.values("host"), seen.values("x-forwarded-host")),
        (vec!["app.internal:8080"], vec!["app.test"])
    );
    let upstream = Http2Upstream::start(USUAL);
    let f = Fixture::with(
        Setup { route: "rewrite_host = \"app.internal\"".into(), ..upstream.setup() },
        Upstream::start(),
    );
    assert_eq!(f.get("/x").status, 200);
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(seen.uri, "http://app.internal/x");
    assert_eq!(seen.headers["x-forwarded-host"], "app.test");
}

#[test]
fn a_location_at_the_other_host_leads_back() {
    let upstream = Upstream::answering(|_, s| {
        let fields = "location: http://app.internal/open/login\r\ncontent-length: 0\r\n";
        write!(s, "HTTP/1.1 302 Found\r\n{fields}\r\n").is_ok()
    });
    let setup = Setup {
        more:
            "[[route]]\nname = \"app\"\npath = { prefix = \"/app\" }\nupstream = \"backend\"\npublic = true\n\
               replace_prefix = { from = \"/app\", to = \"/open\" }\nrewrite_host = \"app.internal\"\nrewrite_responses = true\n"
                .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, upstream);
    let response = f.send("GET /app HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(response.value("location"), Some("http://app.test/app/login"));
}

#[test]
fn a_whole_path_is_replaced_and_authorized_again() {
    let setup = Setup {
        more: r#"
[[route]]
name = "whole"
path = { prefix = "/whole" }
upstream = "backend"
public = true
replace_path = "/open/it"
[[route]]
name = "to-guarded"
path = { prefix = "/to-guarded" }
upstream = "backend"
public = true
replace_path = "/guarded"
"#
        .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let get = |path: &str| f.send(format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n\r\n")).status;
    assert_eq!((get("/whole/a/b?c=d"), get("/whole")), (200, 200));
    let seen = f.upstream.seen();
    assert_eq!(seen[0].line(), "GET /open/it?c=d HTTP/1.1");
    assert!(seen[0].values("x-forwarded-prefix").is_empty());
    assert_eq!(seen[1].line(), "GET /open/it HTTP/1.1");
    assert_eq!(get("/to-guarded/x"), 401, "the route `protected` guards the new path");
}

/// Answers a path with `slow` after so long, others at once. Its `nth` request is slow, if that is
/// given.
pub(crate) fn sleepy(sleep: Duration, head_first: bool, slow: usize) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |_, s| {
        let is_slow = count.fetch_add(1, Ordering::SeqCst) < slow;
        if head_first {
            s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").unwrap();
        }
        if is_slow {
            std::thread::sleep(sleep);
        }
        if !head_first && s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").is_err() {
            return false;
        }
        s.write_all(b"ok").is_ok()
    })
}

#[test]
fn a_request_or_an_attempt_that_takes_too_long_gets_504() {
    const LONG: Duration = Duration::from_secs(4);
    for (limit, code) in [
        ("request_timeout = \"300ms\"", "request_timeout"),
        ("attempt_timeout = \"300ms\"", "upstream_timeout"),
        ("request_timeout = \"400ms\"\nattempt_timeout = \"200ms\"", "upstream_timeout"),
    ] {
        let f = Fixture::with(route(limit), sleepy(LONG, false, 1));
        let began = Instant::now();
        let response = f.get("/");
        assert!(began.elapsed() < Duration::from_secs(2), "{limit}");
        assert_eq!(response.status, 504, "{limit}");
        assert!(response.text().contains(code), "{limit}: {}", response.text());
        assert_eq!(f.get("/").status, 200, "{limit}");
    }
    // The limit also applies to the rest of a response that has begun.
    let f = Fixture::with(route("attempt_timeout = \"300ms\""), sleepy(LONG, true, 1));
    let began = Instant::now();
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert_eq!(client.head().status, 200);
    assert!(client.rest().is_empty() && began.elapsed() < Duration::from_secs(2));
}

#[test]
fn an_attempt_that_takes_too_long_is_repeated_where_the_upstream_allows_it() {
    let mut setup = route("attempt_timeout = \"300ms\"");
    setup.upstream = "retries = { min_per_second = 100 }\nunhealthy_after = 1000".into();
    let f = Fixture::with(setup, sleepy(Duration::from_secs(4), false, 1));
    assert_eq!(f.get("/").status, 200);
    assert_eq!(f.upstream.seen().len(), 2);
}

#[test]
fn the_time_to_connect_counts_too() {
    // Accepts connections, and never answers a handshake.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"https://{}\"]\ntimeouts.connect = \"1s\"",
            silent.local_addr().unwrap()
        ),
        ..route("request_timeout = \"300ms\"")
    };
    let f = Fixture::with(setup, Upstream::start());
    let began = Instant::now();
    let response = f.get("/");
    assert_eq!(response.status, 504, "{}", response.text());
    assert!(response.text().contains("request_timeout"), "{}", response.text());
    assert!(began.elapsed() < Duration::from_secs(2));
    // The endpoint is found out although no request waited for it.
    let failed = format!(
        "postern_upstream_connect_errors_total{{upstream=\"backend\",endpoint=\"{}\"}}",
        silent.local_addr().unwrap()
    );
    until("connecting has failed", || f.counted(&failed) > 0.5);
}

#[test]
fn a_client_that_sends_slowly_is_not_counted_against_the_endpoint() {
    let f = Fixture::with(route("attempt_timeout = \"300ms\""), Upstream::start());
    let mut client = f.connect();
    client.send(f.request("/", "Content-Length: 10\r\n").replacen("GET", "POST", 1) + "part");
    let response = client.response();
    assert_eq!(response.status, 504, "{}", response.text());
    assert!(response.text().contains("request_timeout"), "{}", response.text());
    let timeouts = format!(
        "postern_upstream_timeouts_total{{upstream=\"backend\",endpoint=\"{}\"}}",
        f.upstream.address
    );
    assert_eq!(f.counted(&timeouts), 0.0);
}
