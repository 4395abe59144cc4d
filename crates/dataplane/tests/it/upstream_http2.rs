//! HTTP/2 to the upstream: requests, distribution of streams, silent connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::net::{TcpListener, TcpStream};

use super::identity::aliases;
use dataplane::harness::{CONTROL, Fixture, PATIENCE, Setup, Upstream, until};
use dataplane::http2::{connect, get, request, run};

/// An HTTP/2 upstream that records its requests.
pub(crate) struct Http2Upstream {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Parts>>>,
}

/// Behaviour of an [`Http2Upstream`].
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// Largest number of concurrent streams on one connection.
    streams: u32,
    /// Number of requests that must be in flight before any is answered.
    together: usize,
    /// Number of first connections on which it sends nothing.
    silent: usize,
    /// Number of first requests that it refuses to process.
    refuses: usize,
    /// Delay of its settings.
    late: Duration,
}

pub(crate) const USUAL: Manner =
    Manner { streams: 100, together: 1, silent: 0, refuses: 0, late: Duration::ZERO };

impl Http2Upstream {
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = CONTROL.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Self { address, connections: Arc::default(), seen: Arc::default() };
        let (connections, seen) = (upstream.connections.clone(), upstream.seen.clone());
        let barrier = Arc::new(tokio::sync::Barrier::new(manner.together));
        CONTROL.spawn(async move {
            let mut silent = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                if connections.fetch_add(1, Ordering::SeqCst) < manner.silent {
                    silent.push(socket);
                    continue;
                }
                tokio::spawn(serve(socket, manner, seen.clone(), barrier.clone()));
            }
        });
        upstream
    }

    pub(crate) fn setup(&self) -> Setup {
        Setup {
            upstream: format!("endpoints = [\"http://{}\"]\nprotocol = \"h2\"", self.address),
            ..Setup::default()
        }
    }

    pub(crate) fn seen(&self) -> Vec<Parts> {
        self.seen.lock().unwrap().clone()
    }

    fn wait_for(&self, requests: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.seen().len() < requests {
            assert!(Instant::now() < deadline, "{requests} requests arrive");
            std::thread::yield_now();
        }
    }
}

async fn serve(
    socket: TcpStream,
    manner: Manner,
    seen: Arc<Mutex<Vec<Parts>>>,
    barrier: Arc<tokio::sync::Barrier>,
) {
    tokio::time::sleep(manner.late).await;
    let mut builder = h2::server::Builder::new();
    let mut connection =
        builder.max_concurrent_streams(manner.streams).handshake::<_, Bytes>(socket).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (seen, barrier) = (seen.clone(), barrier.clone());
        let (head, body) = request.into_parts();
        let count = {
            let mut seen = seen.lock().unwrap();
            seen.push(head);
            seen.len()
        };
        if count <= manner.refuses {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
            continue;
        }
        tokio::spawn(async move {
            drop(body);
            barrier.wait().await;
            let _ = respond.send_response(Response::new(()), true);
        });
    }
}

#[test]
fn canonical_an_http2_upstream_is_asked_for_what_was_permitted() {
    let upstream = Http2Upstream::start(USUAL);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    // Browsers send these characters raw in a query. HTTP/2 does not permit them, so they are
    // percent-encoded.
    for (asked, expected) in [
        ("/open/a?q=<b>&r=\"c\"", "/open/a?q=%3Cb%3E&r=%22c%22"),
        ("/open/{id}?x=[1]|`^{}", "/open/%7Bid%7D?x=[1]|`^{}"),
        ("/open/%41?", "/open/A?"),
        ("/open", "/open"),
    ] {
        let response = f.send(format!("GET {asked} HTTP/1.1\r\nHost: app.test\r\n\r\n"));
        assert_eq!(response.status, 200, "{asked}");
        let target = upstream.seen().pop().unwrap().uri.path_and_query().unwrap().to_string();
        assert_eq!(target, expected);
    }
    let response = f.send("PURGE /open HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(response.status, 200);
    assert_eq!(upstream.seen().pop().unwrap().method, "PURGE");
}

#[test]
fn an_http2_upstream_sees_the_clients_host_or_its_own() {
    let upstream = Http2Upstream::start(USUAL);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    assert_eq!(f.get("/").status, 200);
    let f =
        Fixture::with(Setup { route: "preserve_host = false".into(), ..upstream.setup() }, Upstream::start());
    assert_eq!(f.get("/").status, 200);
    let seen = upstream.seen();
    let authority = |n: usize| seen[n].uri.authority().unwrap().to_string();
    assert_eq!(authority(0), "app.test");
    assert_eq!(authority(1), upstream.address.to_string());
    assert_eq!(seen[1].headers["x-forwarded-host"], "app.test");
}

/// A length in a response to HEAD is that of the response to GET (RFC 9110 §8.6). An upstream that
/// sends none has not sent 0.
#[test]
fn http_an_answer_to_head_has_no_length_that_the_upstream_did_not_tell() {
    let upstream = Http2Upstream::start(USUAL);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    let mut client = f.connect();
    for (method, length) in [("HEAD", None), ("GET", Some("0")), ("HEAD", None)] {
        client.send(format!("{method} /open HTTP/1.1\r\nHost: app.test\r\n\r\n"));
        let head = client.head();
        assert_eq!((head.status, head.value("content-length")), (200, length), "{method}");
        assert_eq!(head.value("transfer-encoding"), None, "{method}");
    }
    run(async {
        let send = connect(f.address).await;
        for (method, length) in [("HEAD", None), ("GET", Some("0"))] {
            let (head, body) = get(&send, request(&f, method, "/open")).await;
            let told = head.headers.get("content-length").map(|value| value.to_str().unwrap());
            assert_eq!((head.status.as_u16(), told, body.len()), (200, length, 0), "{method}");
        }
    });
    assert_eq!(upstream.seen().len(), 5);
}

#[test]
fn requests_beyond_an_upstreams_stream_limit_take_another_connection() {
    let upstream = Http2Upstream::start(Manner { streams: 1, together: 3, ..USUAL });
    let f = Fixture::with(upstream.setup(), Upstream::start());
    let mut clients = Vec::new();
    for n in 1..=3 {
        let mut client = f.connect();
        client.send(f.request("/", ""));
        clients.push(client);
        upstream.wait_for(n);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 3);
    // The streams are free again.
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = f.connect();
            client.send(f.request("/", ""));
            client
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 3);
}

#[test]
fn http_an_upstream_connection_that_fell_silent_is_not_used_again() {
    let upstream = Http2Upstream::start(Manner { silent: 1, ..USUAL });
    let mut setup = upstream.setup();
    setup.upstream += "\ntimeouts = { response_header = \"300ms\" }";
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(f.get("/").status, 504);
    assert_eq!(f.get("/").status, 200);
}

#[test]
fn an_http2_connection_that_rests_too_long_is_closed() {
    let listener = CONTROL.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (closed, heard) = std::sync::mpsc::channel();
    CONTROL.spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data(Bytes::from_static(b"x"), false).unwrap();
            send.send_trailers(HeaderMap::new()).unwrap();
        }
        let _ = closed.send(());
    });
    let upstream =
        format!("endpoints = [\"http://{address}\"]\nprotocol = \"h2\"\ntimeouts = {{ idle = \"300ms\" }}");
    let f = Fixture::with(Setup { upstream, ..Setup::default() }, Upstream::start());
    assert_eq!(f.get("/").text(), "x");
    assert!(heard.recv_timeout(Duration::from_secs(5)).is_ok());
}

#[test]
fn identity_an_http2_upstream_hears_who_is_calling_from_us_alone() {
    let upstream = Http2Upstream::start(USUAL);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    for chunk in aliases().chunks(80) {
        let spoofed: String = chunk.iter().map(|name| format!("{name}: evil\r\n")).collect();
        assert_eq!(f.send(f.request("/", &spoofed)).status, 200);
        assert_eq!(f.send(format!("GET /open HTTP/1.1\r\nHost: app.test\r\n{spoofed}\r\n")).status, 200);
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2 * aliases().chunks(80).count());
    let values = |head: &Parts, name: &str| -> Vec<String> {
        head.headers.get_all(name).iter().map(|v| v.to_str().unwrap().to_owned()).collect()
    };
    for (n, head) in seen.iter().enumerate() {
        let evil: Vec<_> = head.headers.iter().filter(|(_, value)| *value == "evil").collect();
        assert!(evil.is_empty(), "{evil:?}");
        let user: &[&str] = if n % 2 == 0 { &["alice"] } else { &[] };
        assert_eq!(values(head, "x-forwarded-user"), user, "nobody is named on an open route");
        assert_eq!(values(head, "x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(values(head, "x-forwarded-host"), ["app.test"]);
        assert!(head.headers.get("authorization").is_none());
    }
}

#[test]
fn identity_nominations_do_not_reach_an_http2_upstream() {
    let upstream = Http2Upstream::start(USUAL);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    let fields = "Connection: keep-alive, X-Forwarded-User, x-forwarded-groups, Host, Cookie, X-Mine\r\n\
                  Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\n\
                  Transfer_Encoding: chunked\r\nX-Mine: 1\r\nCookie: a=b\r\nX-Other: 2\r\n";
    assert_eq!(f.send(f.request("/", fields)).status, 200);
    let seen = upstream.seen();
    let head = &seen[0];
    for (name, value) in [
        ("x-forwarded-user", Some("alice")),
        ("x-forwarded-groups", Some("dev,ops")),
        ("cookie", Some("a=b")),
        ("x-other", Some("2")),
        ("x-mine", None),
        ("connection", None),
        ("keep-alive", None),
        ("proxy-connection", None),
        ("proxy-authorization", None),
        ("transfer_encoding", None),
        ("host", None),
    ] {
        assert_eq!(head.headers.get(name).map(|v| v.to_str().unwrap()), value, "{name}");
    }
    assert_eq!(head.uri.authority().unwrap(), "app.test");
}

#[test]
fn a_burst_on_a_cold_http2_upstream_keeps_to_its_stream_limit() {
    let manner = Manner { late: Duration::from_millis(300), ..USUAL };
    let upstream = Http2Upstream::start(manner);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    let mut clients: Vec<_> = (0..300)
        .map(|_| {
            let mut client = f.connect();
            client.send("GET /open HTTP/1.1\r\nHost: app.test\r\n\r\n");
            client
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(upstream.seen().len(), 300);
}

#[test]
fn a_request_that_an_http2_upstream_refused_unprocessed_is_sent_once_more() {
    let refusing = |refuses| Http2Upstream::start(Manner { refuses, ..USUAL });
    let upstream = refusing(1);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    assert_eq!(f.get("/").status, 200);
    assert_eq!(upstream.seen().len(), 2);
    let upstream = refusing(2);
    let f = Fixture::with(upstream.setup(), Upstream::start());
    assert_eq!(f.get("/").status, 502, "once, not until it works");
    assert_eq!(upstream.seen().len(), 2);
}

#[test]
fn a_refused_request_of_which_the_body_was_begun_is_not_sent_again() {
    let upstream = Http2Upstream::start(Manner { refuses: 1, ..USUAL });
    let f = Fixture::with(upstream.setup(), Upstream::start());
    let request = f.request("/", "Content-Length: 5\r\n").replacen("GET", "POST", 1) + "hello";
    assert_eq!(f.send(request).status, 502);
    assert_eq!(upstream.seen().len(), 1);
}

/// Reads the next frame of a raw HTTP/2 connection: type, stream and payload.
fn frame(socket: &mut std::net::TcpStream) -> (u8, u32, Vec<u8>) {
    use std::io::Read;
    let mut head = [0; 9];
    socket.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    socket.read_exact(&mut payload).unwrap();
    (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
}

/// Answers the first request on a connection with GOAWAY, with `last` as the last processed stream.
/// Forwards further connections to `next`.
fn going_away(last: u8, reason: u8, next: SocketAddr) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 24]).unwrap();
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        while frame(&mut socket).0 != 1 {}
        let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, reason];
        socket.write_all(&go_away).unwrap();
        std::thread::spawn(move || while socket.read(&mut [0; 64]).is_ok_and(|n| n > 0) {});
        for mut down in listener.incoming().flatten() {
            let mut up = std::net::TcpStream::connect(next).unwrap();
            let (mut up_read, mut down_write) = (up.try_clone().unwrap(), down.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut up_read, &mut down_write));
            std::thread::spawn(move || std::io::copy(&mut down, &mut up));
        }
    });
    address
}

#[test]
fn a_request_above_the_last_stream_of_a_goaway_is_sent_once_more() {
    let upstream = Http2Upstream::start(USUAL);
    let through = |address| {
        let upstream = format!("endpoints = [\"http://{address}\"]\nprotocol = \"h2\"");
        Fixture::with(Setup { upstream, ..Setup::default() }, Upstream::start())
    };
    let f = through(going_away(0, 0, upstream.address));
    assert_eq!(f.get("/").status, 200);
    assert_eq!(upstream.seen().len(), 1);
    // After an error on the connection, repeating the request is not safe.
    let f = through(going_away(0, 11, upstream.address));
    assert_eq!(f.get("/").status, 502);
    assert_eq!(upstream.seen().len(), 1);
}

/// An HTTP/2 upstream that answers each request with a body of `length`, and counts the bytes that
/// it could send.
fn generous(length: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = CONTROL.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    CONTROL.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    let count = count.clone();
                    tokio::spawn(async move {
                        let mut left = length;
                        while left > 0 {
                            body.reserve_capacity(left.min(16 * 1024));
                            let capacity = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
                            let Some(Ok(n)) = capacity else { return };
                            left -= n.min(left);
                            body.send_data(Bytes::from(vec![b'x'; n]), left == 0).unwrap();
                            count.fetch_add(n, Ordering::SeqCst);
                        }
                    });
                }
            });
        }
    });
    (address, sent)
}

#[test]
fn clients_that_read_nothing_leave_an_http2_upstream_to_the_others() {
    const LENGTH: usize = 512 * 1024;
    let (address, sent) = generous(LENGTH);
    let upstream = format!("endpoints = [\"http://{address}\"]\nprotocol = \"h2\"");
    let f = Fixture::with(Setup { upstream, ..Setup::default() }, Upstream::start());
    let held = CONTROL.block_on(async {
        let socket = TcpStream::connect(f.address).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let (send, connection) = builder.initial_window_size(0).handshake::<_, Bytes>(socket).await.unwrap();
        tokio::spawn(connection);
        let mut held = Vec::new();
        for _ in 0..16 {
            let mut send = send.clone().ready().await.unwrap();
            let request = http::Request::builder().uri("http://app.test/open").body(()).unwrap();
            held.push(send.send_request(request, true).unwrap().0.await.unwrap());
        }
        held
    });
    let deadline = Instant::now() + PATIENCE;
    while sent.load(Ordering::SeqCst) < 16 * 256 * 1024 {
        assert!(Instant::now() < deadline, "every stream fills its window");
        std::thread::yield_now();
    }
    assert_eq!(f.get("/").body.len(), LENGTH);
    drop(held);
}

#[test]
fn endpoints_are_checked_over_http2_too() {
    let upstream = Http2Upstream::start(USUAL);
    let mut setup = upstream.setup();
    setup.upstream += "\nhealth_check = { path = \"/healthz?a\", interval = \"50ms\", timeout = \"50ms\" }";
    let f = Fixture::with(setup, Upstream::start());
    until("a check arrives", || !upstream.seen().is_empty());
    let check = &upstream.seen()[0];
    assert_eq!(
        (check.method.as_str(), check.uri.to_string()),
        ("GET", format!("http://{}/healthz?a", upstream.address))
    );
    until("it has passed", || f.gateway().discoveries()[0].0.healthy_endpoints == 1);
    assert_eq!(f.get("/").status, 200);
}

#[test]
fn a_request_on_a_silent_connection_is_sent_again() {
    let upstream = Http2Upstream::start(Manner { silent: 1, ..USUAL });
    let mut setup = upstream.setup();
    setup.upstream += "\nretries = { per_try_timeout = \"1s\", min_per_second = 100 }";
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(f.get("/").status, 200);
    assert_eq!((upstream.connections.load(Ordering::SeqCst), upstream.seen().len()), (2, 1));
    let post = f.request("/", "").replacen("GET", "POST", 1);
    assert_eq!(f.send(post).status, 200);
}
