//! security: HTTP limits everywhere: counts, bytes and times.

use std::io::Write;
use std::time::{Duration, Instant};

use dataplane::harness::{Fixture, Setup, TestClient, Upstream};
use dataplane::http2;

#[test]
fn http_more_than_100_fields_are_431() {
    let f = Fixture::new();
    let fields = |n: usize| (0..n).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    assert_eq!(f.send(f.request("/", &fields(98))).status, 200, "100 with host and authorization");
    let response = f.send(f.request("/", &fields(99)));
    assert!(response.status == 431 && response.closes(), "{}", response.head);
    assert_eq!(f.upstream.seen().len(), 1);
}

/// Each field is compared with each that a `Connection` field names, so their number is limited.
#[test]
fn http_more_than_16_nominated_fields_are_431_of_a_client_and_502_of_an_upstream() {
    let options = |n: usize| (0..n).map(|i| format!("x-{i}")).collect::<Vec<_>>().join(",");
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|seen, socket| {
            // As many as requested, each with a field of that name.
            let told = seen.line().split(['=', ' ']).nth(2).and_then(|n| n.parse().ok()).unwrap_or(0);
            let options = (0..told).map(|i| format!("y-{i}")).collect::<Vec<_>>().join(",");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive,{options}\r\nY-0: 1\r\nY-15: 1\r\nZ: 1\r\n\r\n"
            );
            socket.write_all(answer.as_bytes()).is_ok()
        }),
    );
    let fields = |n: usize| format!("Connection: keep-alive,{}\r\nX-0: 1\r\nX-15: 1\r\nZ: 1\r\n", options(n));
    let response = f.send(f.request("/?n=16", &fields(16)));
    assert_eq!(response.status, 200);
    assert_eq!((response.value("y-0"), response.value("y-15"), response.value("z")), (None, None, Some("1")));
    let seen = f.upstream.only();
    assert!(seen.values("x-0").is_empty() && seen.values("x-15").is_empty(), "{seen:?}");
    assert_eq!(seen.values("z"), ["1"]);
    let response = f.send(f.request("/", &fields(17)));
    assert!(response.status == 431 && response.closes(), "{}", response.head);
    let many = format!("Connection: {}\r\n", "a,".repeat(15_000));
    assert_eq!(f.send(f.request("/", &many)).status, 431);
    assert_eq!(f.upstream.seen().len(), 1);
    assert_eq!(f.get("/?n=17").status, 502);
}

#[test]
fn http_heads_over_32_kib_are_431() {
    let f = Fixture::new();
    assert_eq!(f.send(f.request("/", &format!("X-Big: {}\r\n", "y".repeat(30_000)))).status, 200);
    let mut client = f.connect();
    let _ = client.socket.write_all(f.request("/", &format!("X-Big: {}\r\n", "y".repeat(33_000))).as_bytes());
    let response = client.response();
    assert!(response.status == 431 && response.closes(), "{}", response.head);
    // A head that never ends is refused as soon as it is too large, not when its time limit ends.
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
    let setup = Setup { listener: "timeouts = { idle = \"2s\" }".into(), ..Setup::default() };
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
        std::thread::sleep(Duration::from_secs(30));
        false
    });
    let f = Fixture::with(setup, stopping);
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert_eq!(client.head().status, 200);
    let started = Instant::now();
    assert!(client.rest().len() < 100);
    assert!(started.elapsed() < Duration::from_secs(9));
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
    let inner = f.gateway().addresses()[1].1.ip().expect("a port");
    let serves = |client: &mut TestClient| {
        let _ = client.socket.write_all(f.request("/", "").as_bytes());
        client.head().status
    };
    let mut outer: Vec<_> = (0..4).map(|_| f.connect()).collect();
    assert!(outer.iter_mut().all(|c| serves(c) == 200));
    let mut held: Vec<_> = (0..2).map(|_| TestClient::connect(inner)).collect();
    assert!(held.iter_mut().all(|c| serves(c) == 200), "what others hold elsewhere does not count here");
    assert!(TestClient::connect(inner).is_closed());
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
    // Each endpoint gets one of two requests. A response is cut for idling too long, but both
    // endpoints stay in use.
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

#[test]
fn http_more_than_64_trailers_are_refused_whatever_the_protocol() {
    let f = Fixture::new();
    let chunked = f.request("/", "Transfer-Encoding: chunked\r\n").replacen("GET", "POST", 1);
    let over_http1 = |n: usize| {
        let trailers: String = (0..n).map(|i| format!("X-{i}: y\r\n")).collect();
        f.send(format!("{chunked}2\r\nhi\r\n0\r\n{trailers}\r\n")).status
    };
    let over_http2 = |n: usize, same: bool| {
        http2::run(async {
            let mut send = http2::connect(f.address).await.ready().await.unwrap();
            let (response, mut body) = send.send_request(http2::request(&f, "POST", "/"), false).unwrap();
            body.send_data("hi".into(), false).unwrap();
            let mut trailers = http::HeaderMap::new();
            for i in 0..n {
                let name = if same { "x".to_owned() } else { format!("x-{i}") };
                trailers.append(http::HeaderName::try_from(name).unwrap(), "y".parse().unwrap());
            }
            body.send_trailers(trailers).unwrap();
            response.await.unwrap().status().as_u16()
        })
    };
    assert_eq!((over_http1(64), over_http2(64, false), over_http2(64, true)), (200, 200, 200));
    assert_eq!((over_http1(65), over_http2(65, false), over_http2(65, true)), (400, 400, 400));
    let whole = f.upstream.seen().iter().filter(|seen| seen.trailers.len() == 64).count();
    assert_eq!(whole, 3);
    assert!(f.upstream.seen().iter().all(|seen| seen.trailers.len() <= 64), "no more ever pass");
}

#[test]
fn http_as_many_fields_as_can_be_configured_are_served() {
    let setup = Setup { listener: "limits = { header_fields = 128 }".into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    let over_http1 =
        |n: usize| f.send(f.request("/", &(2..n).map(|i| format!("X-{i}: y\r\n")).collect::<String>()));
    let over_http2 = |n: usize| {
        let mut request = http2::request(&f, "GET", "/");
        for i in 1..n {
            let name = http::HeaderName::try_from(format!("x-{i}")).unwrap();
            request.headers_mut().insert(name, "y".parse().unwrap());
        }
        http2::run(async { http2::get(&http2::connect(f.address).await, request).await.0.status.as_u16() })
    };
    assert_eq!((over_http1(128).status, over_http2(128)), (200, 200));
    assert_eq!((over_http1(129).status, over_http2(129)), (431, 431));
}

#[test]
fn http_a_listener_may_accept_long_targets() {
    let limits = "limits = { header_size = \"128KiB\", target_size = \"64KiB\" }";
    let f = Fixture::with(Setup { listener: limits.into(), ..Setup::default() }, Upstream::start());
    for (length, status) in [(60_000, 200), (65_000, 200), (66_000, 414)] {
        let target = format!("/{}?q={}", "a".repeat(length / 2), "b".repeat(length - length / 2 - 4));
        let request = f.request(&target, "");
        let mut client = f.connect();
        let _ = client.socket.write_all(request.as_bytes());
        assert_eq!(client.response().status, status, "{length}");
    }
    assert_eq!(f.upstream.seen().len(), 2);
}

/// An upstream that answers the head after this time, then is silent as long as the client waits.
fn slow(head_after: Duration) -> Upstream {
    Upstream::answering(move |seen, socket| {
        if seen.line().contains("chat") {
            let _ = socket.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
        } else {
            std::thread::sleep(head_after);
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n");
        }
        std::thread::sleep(Duration::from_secs(3));
        let _ = socket.write_all(b"1\r\nb\r\n0\r\n\r\n");
        true
    })
}

#[test]
fn time_a_route_says_how_long_streams_and_tunnels_may_be_silent() {
    let setup = |route: &str| Setup {
        listener: "timeouts = { idle = \"500ms\" }".into(),
        upstream: "timeouts = { stall = \"500ms\" }".into(),
        route: route.into(),
        ..Setup::default()
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    // The limits of listener and upstream, where the route says nothing.
    let f = Fixture::with(setup(""), slow(Duration::ZERO));
    let mut stream = f.connect();
    stream.send(f.request("/stream", ""));
    assert_eq!(stream.head().status, 200);
    let mut tunnel = f.connect();
    tunnel.send(f.request("/chat", upgrade));
    assert_eq!(tunnel.head().status, 101);
    let began = Instant::now();
    assert!(!stream.rest().ends_with(b"0\r\n\r\n"), "the stream is cut");
    assert!(tunnel.rest().is_empty());
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
    for limit in ["unlimited", "10s"] {
        let f = Fixture::with(setup(&format!("idle_timeout = \"{limit}\"")), slow(Duration::ZERO));
        let mut stream = f.connect();
        stream.send(f.request("/stream", ""));
        let mut tunnel = f.connect();
        tunnel.send(f.request("/chat", upgrade));
        assert_eq!(tunnel.head().status, 101);
        let response = stream.response();
        assert_eq!((response.status, response.body.as_slice()), (200, &b"ab"[..]), "{limit}");
        assert_eq!(tunnel.bytes(6), b"1\r\nb\r\n", "{limit}");
    }
}

#[test]
fn time_a_route_says_how_long_the_head_of_a_response_may_take() {
    let setup = |route: &str| Setup {
        upstream: "timeouts = { response_header = \"300ms\" }".into(),
        route: route.into(),
        ..Setup::default()
    };
    for (route, status) in [
        ("", 504),
        ("response_header_timeout = \"unlimited\"", 200),
        ("response_header_timeout = \"5s\"", 200),
        ("response_header_timeout = \"200ms\"", 504),
    ] {
        let f = Fixture::with(setup(route), slow(Duration::from_millis(900)));
        let mut client = f.connect();
        client.send(f.request("/", ""));
        assert_eq!(client.head().status, status, "{route}");
    }
}
