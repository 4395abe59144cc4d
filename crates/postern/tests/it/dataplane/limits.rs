//! security: HTTP, bounds everywhere: count as well as bytes, and time.

use std::io::Write;
use std::time::{Duration, Instant};

use super::harness::{Client, Fixture, Setup, Upstream};

#[test]
fn http_more_than_100_fields_are_431() {
    let f = Fixture::new();
    let fields = |n: usize| (0..n).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    assert_eq!(f.send(f.request("/", &fields(98))).status, 200, "100 with host and authorization");
    let response = f.send(f.request("/", &fields(99)));
    assert!(response.status == 431 && response.closes(), "{}", response.head);
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn http_heads_over_32_kib_are_431() {
    let f = Fixture::new();
    assert_eq!(f.send(f.request("/", &format!("X-Big: {}\r\n", "y".repeat(30_000)))).status, 200);
    let mut client = f.connect();
    let _ = client.socket.write_all(f.request("/", &format!("X-Big: {}\r\n", "y".repeat(33_000))).as_bytes());
    let response = client.response();
    assert!(response.status == 431 && response.closes(), "{}", response.head);
    // A head that never ends is refused as soon as it is too large, not when its time is up.
    let mut client = f.connect();
    let _ = client.socket.write_all(format!("GET / HTTP/1.1\r\nX-Big: {}", "y".repeat(40_000)).as_bytes());
    assert_eq!(client.response().status, 431);
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn http_targets_over_8_kib_are_414() {
    let f = Fixture::new();
    assert_eq!(f.get(&format!("/{}", "a".repeat(8000))).status, 200);
    assert_eq!(f.get(&format!("/{}", "a".repeat(8200))).status, 414);
}

#[test]
fn http_a_head_has_a_deadline_however_slowly_it_comes() {
    let setup = Setup { listener: "timeouts = { header = \"500ms\" }".into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    let started = Instant::now();
    for byte in b"GET / HTTP/1.1\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'y')).take(40) {
        if client.socket.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    let response = client.response();
    assert!(response.status == 408 && response.closes(), "{}", response.head);
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(450) && took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn http_an_idle_connection_is_closed_without_a_word() {
    let setup = Setup { listener: "timeouts = { idle = \"300ms\" }".into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    let mut fresh = f.connect();
    let mut used = f.connect();
    used.send(f.request("/", ""));
    assert_eq!(used.response().status, 200);
    assert!(used.is_closed());
    assert!(fresh.is_closed());
}

#[test]
fn http_a_stalled_body_is_408() {
    let setup = Setup { listener: "timeouts = { stall = \"300ms\" }".into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    client.send(f.request("/", "Content-Length: 100\r\n").replacen("GET", "POST", 1) + "only this");
    let response = client.response();
    assert!(response.status == 408 && response.closes(), "{}", response.head);
}

#[test]
fn http_bodies_over_the_limit_are_413() {
    let f =
        Fixture::with(Setup { route: "body_size = \"1KiB\"".into(), ..Setup::default() }, Upstream::start());
    let post = |fields: &str| f.request("/", fields).replacen("GET", "POST", 1);
    assert_eq!(f.send(post("Content-Length: 1024\r\n") + &"x".repeat(1024)).status, 200);
    let response = f.send(post("Content-Length: 1025\r\n"));
    assert!(response.status == 413, "refused before the body comes: {}", response.head);
    let mut client = f.connect();
    client.send(post("Transfer-Encoding: chunked\r\n"));
    for _ in 0..40 {
        if client.socket.write_all(format!("40\r\n{}\r\n", "x".repeat(64)).as_bytes()).is_err() {
            break;
        }
    }
    let response = client.response();
    assert!(response.status == 413 && response.closes(), "{}", response.head);
    let seen = f.upstream.seen();
    assert!(seen.iter().skip(1).all(|s| s.body.len() <= 2048), "it never gets a whole request");
}

#[test]
fn http_a_silent_upstream_is_504_and_a_late_one_too() {
    let silent = || {
        Upstream::answering(|_, _| {
            std::thread::sleep(Duration::from_secs(3));
            false
        })
    };
    let setup = Setup { upstream: "timeouts = { response_header = \"300ms\" }".into(), ..Setup::default() };
    let f = Fixture::with(setup, silent());
    let response = f.get("/");
    assert_eq!(response.status, 504, "{}", response.head);
    assert!(response.text().contains("upstream_timeout"));
    let f =
        Fixture::with(Setup { route: "request_timeout = \"300ms\"".into(), ..Setup::default() }, silent());
    let response = f.get("/");
    assert_eq!(response.status, 504, "{}", response.head);
    assert!(response.text().contains("request_timeout"));
}

#[test]
fn http_an_upstream_that_stops_in_mid_answer_is_cut_off() {
    let setup = Setup { upstream: "timeouts = { stall = \"300ms\" }".into(), ..Setup::default() };
    let stopping = Upstream::answering(|_, s| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart");
        std::thread::sleep(Duration::from_secs(3));
        false
    });
    let f = Fixture::with(setup, stopping);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert_eq!(client.head().status, 200);
    let started = Instant::now();
    assert!(client.rest().len() < 100);
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn http_connections_over_the_limit_are_closed_at_once() {
    let setup = Setup { listener: "limits = { connections = 3 }".into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    let mut held: Vec<_> = (0..3).map(|_| f.connect()).collect();
    for client in &mut held {
        client.send(f.request("/", ""));
        assert_eq!(client.response().status, 200);
    }
    assert!(f.connect().is_closed());
    drop(held.pop());
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let mut client = f.connect();
        if client.socket.write_all(f.request("/", "").as_bytes()).is_ok()
            && client.rest().starts_with(b"HTTP/1.1 200")
        {
            break;
        }
        assert!(Instant::now() < deadline, "a place becomes free");
    }
}

#[test]
fn http_a_body_over_the_limit_is_not_let_through_because_it_came_at_once() {
    let f =
        Fixture::with(Setup { route: "body_size = \"1KiB\"".into(), ..Setup::default() }, Upstream::start());
    let head = f.request("/", "Transfer-Encoding: chunked\r\n").replacen("GET", "POST", 1);
    let response = f.send(head + &format!("401\r\n{}\r\n0\r\n\r\n", "x".repeat(0x401)));
    assert!(response.status == 413 && response.closes(), "{}", response.head);
    assert_eq!(f.get("/").status, 200);
    assert!(f.upstream.seen().iter().all(|s| s.body.is_empty()), "it never gets a whole request");
}

#[test]
fn http_a_listeners_connections_are_its_own() {
    let more = "[[listener]]\nname = \"inner\"\naddress = \"127.0.0.2:0\"\nlimits = { connections = 2 }\n";
    let f = Fixture::with(Setup { more: more.into(), ..Setup::default() }, Upstream::start());
    let inner = f.gateway().addresses()[1].1;
    let serves = |client: &mut Client| {
        let _ = client.socket.write_all(f.request("/", "").as_bytes());
        client.head().status
    };
    let mut outer: Vec<_> = (0..4).map(|_| f.connect()).collect();
    assert!(outer.iter_mut().all(|c| serves(c) == 200));
    let mut held: Vec<_> = (0..2).map(|_| Client::connect(inner)).collect();
    assert!(held.iter_mut().all(|c| serves(c) == 200), "what others hold elsewhere does not count here");
    assert!(Client::connect(inner).is_closed());
}

#[test]
fn quiet_answers_do_not_speak_against_their_endpoint() {
    let quiet = Upstream::answering(|seen, s| {
        if seen.line().contains("quiet") {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n");
            let _ = std::io::Read::read(s, &mut [0]);
            return false;
        }
        s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
    });
    let other = Upstream::start();
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{}\", \"http://{}\"]\nunhealthy_after = 1\nunhealthy_for = \"60s\"\ntimeouts = {{ stall = \"300ms\" }}",
            quiet.address, other.address
        ),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    // One of two goes to each; an answer is cut off for resting too long, but both go on being asked.
    for _ in 0..2 {
        let mut client = f.connect();
        client.send(f.request("/quiet", "Connection: close\r\n"));
        client.rest();
    }
    let before = quiet.seen().len();
    for _ in 0..4 {
        assert_eq!(f.get("/").status, 200);
    }
    assert_eq!(quiet.seen().len(), before + 2, "both endpoints take their turns");
}
