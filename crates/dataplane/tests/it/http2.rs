//! HTTP/2 on both sides: prior knowledge, streams, trailers, interim responses, limits.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use dataplane::harness::{CONTROL, Fixture, Setup, Upstream};
use dataplane::http2::{body_of, connect, get, request, run};

#[test]
fn http2_with_prior_knowledge_is_served_beside_http1() {
    let f = Fixture::new();
    run(async {
        let send = connect(f.address).await;
        let (head, body) = get(&send, request(&f, "GET", "/a?b=c")).await;
        assert_eq!((head.status.as_u16(), body.as_slice()), (200, b"ok".as_slice()));
        let refused = Request::builder().uri("http://app.test/").body(()).unwrap();
        let (head, body) = get(&send, refused).await;
        assert_eq!(head.status, 401);
        assert_eq!(head.headers["www-authenticate"], "Bearer realm=\"postern\"");
        assert!(String::from_utf8(body).unwrap().contains("unauthenticated"));
    });
    assert_eq!(f.get("/h1").status, 200);
    let seen = f.upstream.seen();
    assert_eq!(seen[0].line(), "GET /a?b=c HTTP/1.1");
    assert_eq!(seen[0].values("host"), ["app.test"]);
    assert_eq!(seen[0].values("via"), ["2.0 postern"]);
    assert_eq!(seen[0].values("x-forwarded-user"), ["alice"]);
}

#[test]
fn http2_bodies_and_trailers_reach_an_http1_upstream_as_chunks() {
    let f = Fixture::new();
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let (response, mut body) = send.send_request(request(&f, "POST", "/"), false).unwrap();
        body.send_data(Bytes::from_static(b"hello "), false).unwrap();
        body.send_data(Bytes::from_static(b"world"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "11".parse().unwrap());
        trailers.insert("x-forwarded-user", "evil".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
    let seen = f.upstream.only();
    assert_eq!(seen.body, b"hello world");
    assert_eq!(seen.trailers, ["x-sum: 11"]);
}

#[test]
fn http2_an_answer_of_our_own_arrives_although_the_client_is_still_sending() {
    let f = Fixture::new();
    run(async {
        let send = connect(f.address).await;
        // After a complete exchange the client knows the gateway's window, and sends the whole body
        // with the head.
        assert_eq!(get(&send, request(&f, "GET", "/")).await.0.status, 200);
        let mut open = Vec::new();
        for _ in 0..10 {
            let mut send = send.clone().ready().await.unwrap();
            let refused = Request::builder().method("POST").uri("http://app.test/").body(()).unwrap();
            let (response, mut body) = send.send_request(refused, false).unwrap();
            body.send_data(Bytes::from(vec![b'x'; 1 << 20]), false).unwrap();
            let (head, text, _) = body_of(response.await.expect("an answer")).await;
            assert_eq!(head.status, 401);
            assert!(String::from_utf8(text).unwrap().contains("unauthenticated"));
            open.push(body);
        }
        let last = open.last_mut().unwrap();
        let early = std::future::poll_fn(|cx| last.poll_reset(cx));
        let early = tokio::time::timeout(Duration::from_millis(300), early).await;
        assert!(early.is_err(), "some clients lose an answer that comes together with a reset");
        for mut body in open {
            let reset = std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
            assert_eq!(reset, h2::Reason::NO_ERROR, "RFC 9113 section 8.1");
        }
        // The connection stays open, with its whole window.
        let mut send = send.ready().await.unwrap();
        let (response, mut body) = send.send_request(request(&f, "POST", "/"), false).unwrap();
        body.send_data(Bytes::from(vec![b'x'; 2 << 20]), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
    let seen = f.upstream.seen();
    assert_eq!((seen.len(), seen[1].body.len()), (2, 2 << 20));
}

#[test]
fn http2_a_stream_given_up_in_mid_answer_frees_a_silent_upstream() {
    let (gone, heard) = std::sync::mpsc::channel();
    let events = Upstream::answering(move |_, s| {
        s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nevent\r\n").unwrap();
        let _ = gone.send(matches!(s.read(&mut [0]), Ok(0) | Err(_)));
        false
    });
    let f = Fixture::with(Setup::default(), events);
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let (response, mut stream) = send.send_request(request(&f, "GET", "/"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "event");
        stream.send_reset(h2::Reason::CANCEL);
        let heard = tokio::task::spawn_blocking(move || heard.recv_timeout(Duration::from_secs(5)));
        assert_eq!(heard.await.unwrap(), Ok(true));
    });
}

#[test]
fn http2_a_request_may_end_in_a_frame_of_its_own_after_its_answer() {
    let f = Fixture::new();
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let mut posted = request(&f, "POST", "/");
        posted.headers_mut().insert("content-length", 5.into());
        let (response, mut body) = send.send_request(posted, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        // The upstream has all promised bytes, and answers. To the client, its request is still
        // open.
        assert_eq!(body_of(response.await.unwrap()).await.1, b"ok");
        let early =
            tokio::time::timeout(Duration::from_millis(300), std::future::poll_fn(|cx| body.poll_reset(cx)));
        assert!(early.await.is_err(), "no reset while the client may still end its request");
        body.send_data(Bytes::new(), true).unwrap();
        // The same if the client never ends it: the request is dropped after a while, without an
        // error.
        let mut send = send.ready().await.unwrap();
        let mut posted = request(&f, "POST", "/");
        posted.headers_mut().insert("content-length", 5.into());
        let (response, mut body) = send.send_request(posted, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        assert_eq!(body_of(response.await.unwrap()).await.1, b"ok");
        let reset = std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
        assert_eq!(reset, h2::Reason::NO_ERROR);
    });
}

#[test]
fn http2_an_early_answer_of_the_upstream_arrives_whole() {
    const MAX_RESPONSE_BODY: usize = 200_000;
    // Answers after the head (the harness does not read the body of a request with `Expect`) and
    // never reads again.
    let upstream = Upstream::answering(|_, s| {
        let head = format!("HTTP/1.1 413 Content Too Large\r\nContent-Length: {MAX_RESPONSE_BODY}\r\n\r\n");
        s.write_all(head.as_bytes()).and_then(|()| s.write_all(&vec![b'y'; MAX_RESPONSE_BODY])).unwrap();
        std::thread::park_timeout(dataplane::harness::PATIENCE);
        false
    });
    let f = Fixture::with(Setup::default(), upstream);
    let upload = Bytes::from(vec![b'x'; 16 << 20]);
    run(async {
        for _ in 0..10 {
            let mut send = connect(f.address).await.ready().await.unwrap();
            let mut posted = request(&f, "POST", "/");
            posted.headers_mut().insert("expect", "100-continue".parse().unwrap());
            posted.headers_mut().insert("content-length", upload.len().into());
            let (response, mut body) = send.send_request(posted, false).unwrap();
            body.send_data(upload.clone(), false).unwrap();
            let (head, text, _) = body_of(response.await.expect("an answer")).await;
            assert_eq!((head.status.as_u16(), text.len()), (413, MAX_RESPONSE_BODY));
        }
    });
}

#[test]
fn http2_cookie_crumbs_are_joined_and_counted() {
    let f = Fixture::new();
    run(async {
        let send = connect(f.address).await;
        let mut crumbs = request(&f, "GET", "/");
        for n in 0..90 {
            crumbs.headers_mut().append("cookie", format!("c{n}=v").parse().unwrap());
        }
        assert_eq!(get(&send, crumbs).await.0.status, 200);
        let mut many = request(&f, "GET", "/");
        for n in 0..101 {
            many.headers_mut().append("cookie", format!("c{n}=v").parse().unwrap());
        }
        assert_eq!(get(&send, many).await.0.status, 431);
    });
    let joined = (0..90).map(|n| format!("c{n}=v")).collect::<Vec<_>>().join("; ");
    assert_eq!(f.upstream.only().values("cookie"), [joined]);
}

#[test]
fn http2_authority_must_agree_with_host() {
    let f = Fixture::new();
    run(async {
        let send = connect(f.address).await;
        let mut same = request(&f, "GET", "/");
        same.headers_mut().insert("host", "app.test".parse().unwrap());
        assert_eq!(get(&send, same).await.0.status, 200);
        let mut other = request(&f, "GET", "/");
        other.headers_mut().insert("host", "other.test".parse().unwrap());
        assert_eq!(get(&send, other).await.0.status, 400);
    });
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn http2_connect_is_refused() {
    let f = Fixture::new();
    run(async {
        let send = connect(f.address).await;
        let connect = Request::builder().method("CONNECT").uri("app.test:443").body(()).unwrap();
        let (head, _) = get(&send, connect).await;
        assert!((400..=405).contains(&head.status.as_u16()), "{}", head.status);
    });
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn http2_interim_responses_pass() {
    use std::io::Write;
    let hints = Upstream::answering(|_, s| {
        s.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
    });
    let f = Fixture::with(Setup::default(), hints);
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let (mut response, _) = send.send_request(request(&f, "GET", "/"), true).unwrap();
        let interim = std::future::poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(
            (interim.status().as_u16(), interim.headers()["link"].to_str().unwrap()),
            (103, "</a.css>")
        );
        assert_eq!(response.await.unwrap().status(), 200);
    });
}

#[test]
fn http2_streams_at_once_are_limited() {
    let f = Fixture::new();
    run(async {
        let socket = TcpStream::connect(f.address).await.unwrap();
        let (send, mut connection) = h2::client::handshake::<TcpStream>(socket).await.unwrap();
        std::future::poll_fn(|cx| {
            // Until the settings have arrived.
            let _ = std::pin::Pin::new(&mut connection).poll(cx);
            if connection.max_concurrent_send_streams() == 128 {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        drop(send);
    });
}

/// An HTTP/2 upstream that streams its input back, with a trailer.
async fn echoing_http2() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        let user = request.headers().get("x-forwarded-user").cloned();
                        let te = request.headers().get("te").cloned();
                        let mut body = request.into_body();
                        let mut head = Response::builder().status(200);
                        for (name, value) in [("x-user", user), ("x-te", te)] {
                            if let Some(value) = value {
                                head = head.header(name, value);
                            }
                        }
                        let mut send = respond.send_response(head.body(()).unwrap(), false).unwrap();
                        while let Some(Ok(chunk)) = body.data().await {
                            let _ = body.flow_control().release_capacity(chunk.len());
                            send.send_data(chunk, false).unwrap();
                        }
                        let mut trailers = HeaderMap::new();
                        trailers.insert("grpc-status", "0".parse().unwrap());
                        send.send_trailers(trailers).unwrap();
                    });
                }
            });
        }
    });
    address
}

fn http2_upstream() -> Fixture {
    let address = CONTROL.block_on(echoing_http2());
    let upstream = format!("endpoints = [\"http://{address}\"]\nprotocol = \"h2\"");
    Fixture::with(Setup { upstream, ..Setup::default() }, Upstream::start())
}

#[test]
fn http2_bidirectional_streams_run_to_and_fro_with_trailers() {
    let f = http2_upstream();
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let mut call = request(&f, "POST", "/service/Method");
        call.headers_mut().insert("te", "trailers".parse().unwrap());
        let (response, mut body) = send.send_request(call, false).unwrap();
        let (head, mut stream) = response.await.unwrap().into_parts();
        assert_eq!(head.headers["x-user"], "alice");
        assert_eq!(head.headers["x-te"], "trailers");
        // Each message waits for the echo of the previous one, so the gateway may not delay any.
        for n in 0..20 {
            let message = Bytes::from(format!("message {n}"));
            body.send_data(message.clone(), false).unwrap();
            let mut got = Vec::new();
            while got.len() < message.len() {
                let chunk = stream.data().await.unwrap().unwrap();
                let _ = stream.flow_control().release_capacity(chunk.len());
                got.extend_from_slice(&chunk);
            }
            assert_eq!(got, message);
        }
        body.send_data(Bytes::new(), true).unwrap();
        assert!(stream.data().await.is_none());
        assert_eq!(stream.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    });
}

#[test]
fn http2_many_streams_share_few_upstream_connections() {
    let f = http2_upstream();
    run(async {
        let send = connect(f.address).await;
        let mut calls = Vec::new();
        for n in 0..100 {
            let mut send = send.clone().ready().await.unwrap();
            let (response, mut body) =
                send.send_request(request(&f, "POST", &format!("/{n}")), false).unwrap();
            body.send_data(Bytes::from(vec![b'x'; 50_000]), true).unwrap();
            calls.push(tokio::spawn(async move { body_of(response.await.unwrap()).await }));
        }
        for call in calls {
            let (head, body, trailers) = call.await.unwrap();
            assert_eq!((head.status.as_u16(), body.len()), (200, 50_000));
            assert_eq!(trailers.unwrap()["grpc-status"], "0");
        }
    });
}

#[test]
fn an_http1_client_reaches_an_http2_upstream() {
    let f = http2_upstream();
    let head = f.request("/", "Transfer-Encoding: chunked\r\n").replacen("GET", "POST", 1);
    let response = f.send(head + "5\r\nhello\r\n0\r\n\r\n");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    assert_eq!(response.trailers, ["grpc-status: 0"]);
    assert_eq!(response.value("x-user"), Some("alice"));
}

#[test]
fn http2_a_reset_stream_leaves_the_others_alone() {
    let f = http2_upstream();
    run(async {
        let send = connect(f.address).await;
        let mut first = send.clone().ready().await.unwrap();
        let (_, mut body) = first.send_request(request(&f, "POST", "/1"), false).unwrap();
        let mut second = send.clone().ready().await.unwrap();
        let (response, mut rest) = second.send_request(request(&f, "POST", "/2"), false).unwrap();
        body.send_reset(h2::Reason::CANCEL);
        rest.send_data(Bytes::from_static(b"fine"), true).unwrap();
        let (head, body, _) = body_of(response.await.unwrap()).await;
        assert_eq!((head.status.as_u16(), body.as_slice()), (200, b"fine".as_slice()));
    });
}

/// An HTTP/1 upstream that answers as soon as it has the head, and reads no body.
fn impatient() -> SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut socket in listener.incoming().flatten() {
            let mut held = Vec::new();
            let mut chunk = [0; 1024];
            while !held.windows(4).any(|w| w == b"\r\n\r\n") {
                let Ok(n) = socket.read(&mut chunk) else { break };
                held.extend_from_slice(&chunk[..n]);
            }
            let _ = socket.write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\n\r\nlarge");
            kept.push(socket);
        }
    });
    address
}

#[test]
fn http2_an_early_answer_is_delivered_whole() {
    let setup = Setup { upstream: format!("endpoints = [\"http://{}\"]", impatient()), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let (response, mut body) = send.send_request(request(&f, "POST", "/"), false).unwrap();
        body.send_data(Bytes::from_static(b"the first of many"), false).unwrap();
        let (head, body, _) = body_of(response.await.unwrap()).await;
        assert_eq!((head.status.as_u16(), body.as_slice()), (413, b"large".as_slice()));
    });
}

#[test]
fn http2_a_refusal_is_delivered_whole_however_much_was_sent() {
    let f = Fixture::new();
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let request = Request::builder().method("POST").uri("http://app.test/").body(()).unwrap();
        let (response, mut body) = send.send_request(request, false).unwrap();
        body.send_data(Bytes::from(vec![b'x'; 200_000]), false).unwrap();
        let (head, body, _) = body_of(response.await.unwrap()).await;
        assert_eq!(head.status, 401);
        assert!(String::from_utf8(body).unwrap().contains("unauthenticated"));
    });
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn http2_a_client_that_leaves_an_event_stream_frees_the_upstream() {
    use std::io::{Read, Write};
    let (gone, heard) = std::sync::mpsc::channel();
    let events = Upstream::answering(move |_, s| {
        s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n").unwrap();
        let _ = gone.send(matches!(s.read(&mut [0]), Ok(0) | Err(_)));
        false
    });
    let f = Fixture::with(Setup::default(), events);
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let (response, mut stream) = send.send_request(request(&f, "GET", "/"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "one\n");
        stream.send_reset(h2::Reason::CANCEL);
    });
    assert_eq!(heard.recv_timeout(std::time::Duration::from_secs(5)), Ok(true));
}

#[test]
fn http2_a_value_with_blanks_around_it_is_refused() {
    let setup = Setup {
        more: "[[route]]\nname = \"beta\"\npath = { prefix = \"/open\" }\nheaders = { x-tenant = \"beta\" }\nupstream = \"backend\"\npolicy = { allow = [{ groups = { any = [\"nobody\"] } }] }\n".into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    run(async {
        let send = connect(f.address).await;
        let with = |value: &str| {
            let mut open = Request::builder().uri("http://app.test/open").body(()).unwrap();
            open.headers_mut().insert("x-tenant", http::HeaderValue::from_str(value).unwrap());
            open
        };
        // An HTTP/1 upstream would read `beta` where the route saw another value (RFC 9113 §8.2.1).
        for value in ["beta ", " beta", "beta\t", " "] {
            let (head, body) = get(&send, with(value)).await;
            assert_eq!(head.status, 400, "{value:?}");
            assert!(String::from_utf8(body).unwrap().contains("malformed_field"), "{value:?}");
        }
        assert_eq!(get(&send, with("beta")).await.0.status, 401, "the route that asks for it");
        assert_eq!(get(&send, with("be ta")).await.0.status, 200);
        assert_eq!(get(&send, with("")).await.0.status, 200);
    });
    assert_eq!(f.upstream.seen().len(), 2);
}
