//! Everyday traffic: bodies in both directions, interim responses, streaming, retries, health.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dataplane::harness::{Fixture, PATIENCE, Setup, Upstream, until};
use dataplane::ports::free;

fn answering(bytes: &'static [u8]) -> Upstream {
    Upstream::answering(move |_, s| s.write_all(bytes).is_ok())
}

/// Status, body and number of `Content-Length` fields of the response to an upstream's response.
fn relayed(response: &'static str) -> (u16, String, usize) {
    let f = Fixture::with(Setup::default(), answering(response.as_bytes()));
    let answer = f.get("/open");
    let lengths = answer.head.lines().filter(|line| line.to_ascii_lowercase().starts_with("content-length:"));
    (answer.status, answer.text(), lengths.count())
}

#[test]
fn an_upstream_may_repeat_its_length_and_pad_its_chunk_sizes() {
    for (response, lengths) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 1),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", 1),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5   \r\nhello\r\n0  \r\n\r\n", 0),
    ] {
        assert_eq!(relayed(response), (200, "hello".to_owned(), lengths), "{response:?}");
    }
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
    ] {
        assert_eq!(relayed(response).0, 502, "{response:?}");
    }
}

#[test]
fn a_request_is_forwarded_with_its_body_and_answered_with_the_upstreams() {
    let f = Fixture::with(
        Setup::default(),
        answering(b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\nx-answer: yes\r\nset-cookie: a\r\nset-cookie: b\r\nkeep-alive: timeout=1\r\n\r\nmade\n"),
    );
    let request = f
        .request("/things?x=1", "Content-Length: 7\r\nContent-Type: text/plain\r\n")
        .replacen("GET", "POST", 1);
    let response = f.send(request + "payload");
    assert_eq!((response.status, response.text().as_str()), (201, "made\n"));
    assert_eq!(response.value("x-answer"), Some("yes"));
    assert_eq!(response.head.matches("set-cookie").count(), 2);
    assert!(response.value("keep-alive").is_none(), "the upstream's hop stays there");
    let seen = f.upstream.only();
    assert_eq!(seen.line(), "POST /things?x=1 HTTP/1.1");
    assert_eq!(seen.body, b"payload");
    assert_eq!(seen.values("content-length"), ["7"]);
    assert_eq!(seen.values("content-type"), ["text/plain"]);
    assert_eq!(seen.values("via"), ["1.1 postern"]);
}

#[test]
fn chunked_bodies_and_trailers_pass_both_ways() {
    let f = Fixture::with(
        Setup::default(),
        answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\nx-sum: 7\r\n\r\n"),
    );
    let request = f.request("/", "Transfer-Encoding: chunked\r\n").replacen("GET", "PUT", 1);
    let response = f.send(request + "5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nX-Check: 1\r\n\r\n");
    assert_eq!((response.status, response.text().as_str()), (200, "abcdefg"));
    assert_eq!(response.trailers, ["x-sum: 7"]);
    let seen = f.upstream.only();
    assert_eq!(seen.body, b"hello!");
    assert_eq!(seen.trailers, ["x-check: 1"]);
    assert!(seen.values("content-length").is_empty());
}

#[test]
fn an_answer_without_length_is_chunked_for_1_1_and_closes_for_1_0() {
    let until_close = || {
        Upstream::answering(|_, s| {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end");
            false
        })
    };
    let f = Fixture::with(Setup::default(), until_close());
    let response = f.get("/");
    assert_eq!(response.value("transfer-encoding"), Some("chunked"));
    assert_eq!(response.text(), "until the end");
    let f = Fixture::with(Setup::default(), until_close());
    let response = f.send(f.request("/", "").replacen("HTTP/1.1", "HTTP/1.0", 1));
    assert!(response.value("transfer-encoding").is_none() && response.closes(), "{}", response.head);
    assert_eq!(response.text(), "until the end");
}

#[test]
fn http_1_0_keeps_the_connection_only_when_asked() {
    let f = Fixture::new();
    let mut client = f.connect();
    let request = f.request("/", "Connection: keep-alive\r\n").replacen("HTTP/1.1", "HTTP/1.0", 1);
    for _ in 0..2 {
        client.send(&request);
        assert_eq!(client.response().value("connection"), Some("keep-alive"));
    }
    client.send(f.request("/", "").replacen("HTTP/1.1", "HTTP/1.0", 1));
    assert!(client.response().closes());
    assert!(client.is_closed());
}

#[test]
fn head_and_bodiless_statuses_have_no_body() {
    let f = Fixture::with(Setup::default(), answering(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"));
    let mut client = f.connect();
    for _ in 0..2 {
        client.send(f.request("/", "").replacen("GET", "HEAD", 1));
        let response = client.head();
        assert_eq!((response.status, response.value("content-length")), (200, Some("1000")));
    }
    assert_eq!(f.upstream.connections(), 1, "the upstream connection is fit for reuse");
    for status in ["204 No Content", "304 Not Modified"] {
        let answer = format!("HTTP/1.1 {status}\r\netag: \"x\"\r\n\r\n");
        let f = Fixture::with(
            Setup::default(),
            Upstream::answering(move |_, s| s.write_all(answer.as_bytes()).is_ok()),
        );
        let mut client = f.connect();
        for _ in 0..2 {
            client.send(f.request("/", ""));
            let response = client.response();
            assert_eq!(response.value("etag"), Some("\"x\""));
            assert!(response.body.is_empty() && response.value("transfer-encoding").is_none());
        }
    }
}

#[test]
fn interim_responses_pass_as_they_come() {
    let f = Fixture::with(
        Setup::default(),
        answering(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    );
    let mut client = f.connect();
    client.send(f.request("/", ""));
    let hint = client.head();
    assert_eq!((hint.status, hint.value("link")), (103, Some("</a.css>")));
    assert_eq!(client.head().status, 102);
    assert_eq!(client.response().text(), "ok");
    // HTTP/1.0 has no interim responses.
    assert_eq!(f.send(f.request("/", "").replacen("HTTP/1.1", "HTTP/1.0", 1)).status, 200);
    let endless = Upstream::answering(|_, s| {
        while s.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() {}
        false
    });
    let f = Fixture::with(Setup::default(), endless);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    let statuses: Vec<_> = (0..18).map(|_| client.head().status).collect();
    assert_eq!(statuses.last(), Some(&502), "{statuses:?}");
}

#[test]
fn expect_continue_goes_end_to_end() {
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|seen, s| {
            assert!(!seen.values("expect").is_empty());
            s.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            let mut body = [0; 5];
            s.read_exact(&mut body).unwrap();
            s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").unwrap();
            s.write_all(&body).is_ok()
        }),
    );
    let mut client = f.connect();
    client.send(f.request("/", "Expect: 100-continue\r\nContent-Length: 5\r\n").replacen("GET", "POST", 1));
    assert_eq!(client.head().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
    // The gateway refuses before it requests the body.
    let mut client = f.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let refused = client.head();
    // The client may or may not send the body now, so the following bytes cannot be framed.
    assert!(refused.status == 401 && refused.closes(), "{}", refused.head);
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn events_arrive_one_by_one() {
    let (seen, next) = channel();
    let next = Mutex::new(next);
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(move |_, s| {
            s.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            )
            .unwrap();
            for n in 0..3 {
                s.write_all(format!("9\r\ndata: {n}\n\n\r\n").as_bytes()).unwrap();
                // The next event waits until the client has received this one.
                if next.lock().unwrap().recv_timeout(PATIENCE).is_err() {
                    return false;
                }
            }
            s.write_all(b"0\r\n\r\n").is_ok()
        }),
    );
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert_eq!(client.head().status, 200);
    for n in 0..3 {
        assert_eq!(client.bytes(14), format!("9\r\ndata: {n}\n\n\r\n").as_bytes());
        seen.send(()).unwrap();
    }
    assert_eq!(client.bytes(5), b"0\r\n\r\n");
}

#[test]
fn large_bodies_stream_both_ways_at_once() {
    const SIZE: usize = 20_000_000;
    // Echoes while it reads.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let mut held = Vec::new();
        let mut chunk = [0; 65536];
        while !held.windows(4).any(|w| w == b"\r\n\r\n") {
            let n = s.read(&mut chunk).unwrap();
            held.extend_from_slice(&chunk[..n]);
        }
        let end = held.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        s.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n").as_bytes()).unwrap();
        s.write_all(&held[end..]).unwrap();
        let mut left = SIZE - (held.len() - end);
        while left > 0 {
            let n = s.read(&mut chunk).unwrap();
            assert!(n > 0);
            s.write_all(&chunk[..n]).unwrap();
            left -= n;
        }
    });
    let setup = Setup { upstream: format!("endpoints = [\"http://{address}\"]"), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    let mut writer = client.socket.try_clone().unwrap();
    let head = f.request("/", &format!("Content-Length: {SIZE}\r\n")).replacen("GET", "POST", 1);
    let body: Vec<u8> = (0..SIZE).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
    let sent = body.clone();
    let thread = std::thread::spawn(move || {
        writer.write_all(head.as_bytes()).unwrap();
        writer.write_all(&sent).unwrap();
    });
    let response = client.response();
    thread.join().unwrap();
    assert!(response.body == body, "20 MB come back as they went");
}

#[test]
fn a_request_is_sent_again_only_when_nothing_was_sent() {
    // Closes each connection after one response without announcing it, so the next request finds a
    // closed connection.
    let quiet_close = Upstream::answering(|_, s| {
        // With a corked socket, response and close travel together, so that no request can arrive
        // between them.
        socket2::SockRef::from(&*s).set_tcp_cork(true).unwrap();
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        false
    });
    let f = Fixture::with(Setup::default(), quiet_close);
    let mut client = f.connect();
    for _ in 0..20 {
        client.send(f.request("/", "Content-Length: 2\r\n").replacen("GET", "POST", 1) + "hi");
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(f.upstream.seen().len(), 20, "each request once");
    // Reads the request and closes. The request may have had an effect, so it is not retried.
    let f = Fixture::with(Setup::default(), Upstream::answering(|_, _| false));
    let response = f.send(f.request("/", "Content-Length: 2\r\n").replacen("GET", "POST", 1) + "hi");
    assert_eq!(response.status, 502, "{}", response.head);
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn endpoints_share_the_load_and_failing_ones_rest() {
    let (one, two) = (Upstream::start(), Upstream::start());
    // No server listens here.
    let dead = free();
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{}\", \"http://{dead}\", \"http://{}\"]",
            one.address, two.address
        ),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    for _ in 0..60 {
        client.send(f.request("/", ""));
        assert_eq!(client.response().status, 200, "a dead endpoint costs no request");
    }
    let (a, b) = (one.seen().len(), two.seen().len());
    assert!(a + b == 60 && a >= 20 && b >= 20, "{a} and {b}");
}

#[test]
fn no_endpoint_is_502_and_overload_is_a_fast_503() {
    let dead = free();
    let f = Fixture::with(
        Setup { upstream: format!("endpoints = [\"http://{dead}\"]"), ..Setup::default() },
        Upstream::start(),
    );
    let response = f.get("/");
    assert_eq!(response.status, 502, "{}", response.head);
    assert!(response.text().contains("upstream_unreachable"));
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let slow = Upstream::answering(move |_, s| {
        let _ = held.lock().unwrap().recv_timeout(Duration::from_secs(10));
        s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
    });
    let f = Fixture::with(Setup { upstream: "max_requests = 2".into(), ..Setup::default() }, slow);
    let mut waiting: Vec<_> = (0..2)
        .map(|_| {
            let mut client = f.connect();
            client.send(f.request("/", ""));
            client
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(5);
    while f.upstream.seen().len() < 2 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let response = f.get("/");
    assert_eq!((response.status, response.value("retry-after")), (503, Some("1")));
    assert!(response.text().contains("overloaded"));
    release.send(()).unwrap();
    release.send(()).unwrap();
    for client in &mut waiting {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn a_client_that_leaves_frees_the_upstream() {
    let closed = Arc::new(AtomicUsize::new(0));
    let count = closed.clone();
    let slow = Upstream::answering(move |_, s| {
        let mut byte = [0];
        // The gateway closes the connection, because no client waits any more.
        if matches!(s.read(&mut byte), Ok(0) | Err(_)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        false
    });
    let f = Fixture::with(Setup::default(), slow);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    let deadline = Instant::now() + Duration::from_secs(5);
    while f.upstream.seen().is_empty() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    client.reset();
    while closed.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "the upstream connection is closed");
        std::thread::yield_now();
    }
}

/// Answers `ok` after a delay, with head and body separately.
fn slow(wait: Duration) -> Upstream {
    Upstream::answering(move |_, s| {
        std::thread::sleep(wait);
        let head = s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
        std::thread::sleep(wait / 10);
        head.and_then(|()| s.write_all(b"ok")).is_ok()
    })
}

#[test]
fn a_client_that_half_closes_behind_its_request_is_answered() {
    for (upstream, times) in [(Upstream::start(), 200), (slow(Duration::from_millis(50)), 10)] {
        let f = Fixture::with(Setup::default(), upstream);
        let post = |fields: &str, body: &str| f.request("/", fields).replacen("GET", "POST", 1) + body;
        let requests = [
            f.request("/", ""),
            post("Content-Length: 5\r\n", "hello"),
            post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
            f.request("/", "").replacen("HTTP/1.1", "HTTP/1.0", 1),
            f.request("/open", ""),
        ];
        for n in 0..times {
            let mut client = f.connect();
            client.send(&requests[n % requests.len()]);
            client.half_close();
            let response = client.response();
            assert_eq!((response.status, response.text().as_str()), (200, "ok"), "{n}: {}", response.head);
            assert!(client.rest().is_empty() && client.is_closed(), "{n}: then the gateway closes");
        }
        assert_eq!(f.upstream.seen().len(), times);
        let ended = "postern_requests_total{route=\"protected\",outcome=\"allowed\",class=\"2xx\"}";
        assert!((f.counted(ended) - times as f64 * 0.8).abs() < 0.5, "{}", f.counted(ended));
    }
}

#[test]
fn a_client_that_half_closes_behind_several_requests_is_answered_them_all() {
    let f = Fixture::with(Setup::default(), slow(Duration::from_millis(20)));
    let mut client = f.connect();
    client.send(f.request("/1", "") + &f.request("/2", "") + &f.request("/3", ""));
    client.half_close();
    for _ in 0..3 {
        assert_eq!(client.response().text(), "ok");
    }
    assert!(client.is_closed());
    let lines: Vec<_> = f.upstream.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines, ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /3 HTTP/1.1"]);
}

#[test]
fn a_client_that_half_closes_in_the_middle_of_its_request_is_gone() {
    let f = Fixture::new();
    let mut client = f.connect();
    client.send(f.request("/", "Content-Length: 5\r\n").replacen("GET", "POST", 1) + "hel");
    client.half_close();
    assert!(client.rest().is_empty(), "half a body is no request");
    let gone = "postern_exchange_failures_total{reason=\"client_gone\"}";
    assert!((f.counted(gone) - 1.0).abs() < 0.1);
}

#[test]
fn a_client_that_half_closed_and_left_frees_the_upstream_when_a_write_fails() {
    let (go, may_answer) = channel();
    let (freed, heard) = channel();
    let may_answer = Mutex::new(may_answer);
    let endless = Upstream::answering(move |_, s| {
        let _ = may_answer.lock().unwrap().recv_timeout(PATIENCE);
        let head = s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while head.is_ok() && s.write_all(b"4\r\none\n\r\n").is_ok() {}
        let _ = freed.send(());
        false
    });
    let f = Fixture::with(Setup::default(), endless);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    until("the upstream is asked", || f.upstream.seen().len() == 1);
    drop(client);
    go.send(()).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn a_client_that_half_closed_and_resets_behind_the_head_frees_the_upstream() {
    let (freed, heard) = channel();
    // Sends a head, then nothing.
    let silent = Upstream::answering(move |_, s| {
        std::thread::sleep(Duration::from_millis(200));
        s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        let _ = freed.send(matches!(s.read(&mut [0]), Ok(0) | Err(_)));
        false
    });
    let f = Fixture::with(Setup::default(), silent);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    client.half_close();
    assert_eq!(client.head().status, 200);
    assert!(heard.recv_timeout(Duration::from_millis(1500)).is_err(), "it may still read");
    client.reset();
    assert_eq!(heard.recv_timeout(Duration::from_secs(2)), Ok(true));
}

#[test]
fn a_client_that_half_closed_may_read_slowly() {
    const LENGTH: usize = 16 << 20;
    let large = Upstream::answering(|_, s| {
        std::thread::sleep(Duration::from_millis(200));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n");
        s.write_all(head.as_bytes()).is_ok() && s.write_all(&vec![b'x'; LENGTH]).is_ok()
    });
    let f = Fixture::with(Setup::default(), large);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    client.half_close();
    assert_eq!(client.head().status, 200);
    // Longer than the time until the gateway checks whether the client has disconnected.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(client.bytes(LENGTH).len(), LENGTH);
}

#[test]
fn a_client_that_half_closed_and_left_frees_the_upstream_at_its_limit() {
    let (freed, heard) = channel();
    let silent = Upstream::answering(move |_, s| {
        let _ = freed.send(matches!(s.read(&mut [0]), Ok(0) | Err(_)));
        false
    });
    let setup = Setup { upstream: "timeouts = { response_header = \"300ms\" }".into(), ..Setup::default() };
    let f = Fixture::with(setup, silent);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    drop(client);
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(true));
}

#[test]
fn a_client_that_half_closes_behind_the_head_of_its_answer_ends_the_exchange() {
    let (gone, heard) = channel();
    let events = Upstream::answering(move |_, s| {
        s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n").unwrap();
        let _ = gone.send(matches!(s.read(&mut [0]), Ok(0) | Err(_)));
        false
    });
    let f = Fixture::with(Setup::default(), events);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert_eq!(client.head().status, 200);
    client.half_close();
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(true));
}

#[test]
fn a_client_that_leaves_an_event_stream_frees_the_upstream() {
    let (gone, heard) = std::sync::mpsc::channel();
    let events = Upstream::answering(move |_, s| {
        s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n").unwrap();
        let _ = gone.send(matches!(s.read(&mut [0]), Ok(0) | Err(_)));
        false
    });
    let f = Fixture::with(Setup::default(), events);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert_eq!(client.head().status, 200);
    assert_eq!(client.bytes(9), b"4\r\none\n\r\n");
    drop(client);
    assert_eq!(heard.recv_timeout(Duration::from_secs(5)), Ok(true));
}

#[test]
fn unix_socket_upstreams_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("up.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let mut held = Vec::new();
        let mut chunk = [0; 4096];
        while !held.windows(4).any(|w| w == b"\r\n\r\n") {
            let n = s.read(&mut chunk).unwrap();
            held.extend_from_slice(&chunk[..n]);
        }
        s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nunix").unwrap();
    });
    let setup = Setup { upstream: format!("endpoints = [\"unix:{}\"]", path.display()), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(f.get("/").text(), "unix");
}

#[test]
fn no_route_is_404() {
    let dir = tempfile::tempdir().unwrap();
    let issuer = dataplane::harness::Issuer::new();
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let upstream = Upstream::start();
    let text = Setup::default()
        .file(dir.path(), upstream.address)
        .replace("prefix = \"/\" }", "prefix = \"/app\" }");
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    let response = f.get("/elsewhere");
    assert_eq!(response.status, 404);
    assert!(response.text().contains("no_route"));
    assert_eq!(f.get("/app/x").status, 200);
    assert_eq!(f.get("/apple").status, 404, "a prefix ends on a segment boundary");
}
