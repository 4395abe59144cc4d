//! `postern echo`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::support::{Folder, Running, address_in, exchange, get};

fn start(arguments: &[&str]) -> (Running, String) {
    let mut all = vec!["echo", "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    let mut echo = Running::start(&all);
    let address = address_in(&echo.wait_for("listens on"), "http://");
    (echo, address)
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn a_fixed_text_by_default() {
    let (mut echo, address) = start(&["--body-bytes", "10", "--workers", "2"]);
    assert_eq!(body(&get(&address, "/")), "the quick ");
    echo.signal("-INT");
    assert_eq!(echo.ended(), Some(0));
}

#[test]
fn a_request_is_reflected_as_it_arrived() {
    let (mut echo, address) = start(&["--reflect", "--log"]);
    let answer = exchange(
        &address,
        "POST /a//b?c HTTP/1.1\r\nHost: x\r\nX_a: 1\r\nx-A:  2 \r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    let seen: Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!((&seen["method"], &seen["target"]), (&"POST".into(), &"/a//b?c".into()));
    assert_eq!(seen["headers"][1], serde_json::json!(["X_a", "1"]));
    assert_eq!(seen["headers"][2], serde_json::json!(["x-A", "2"]));
    assert_eq!(seen["body"]["text"], "hello");
    assert_eq!(seen["body"]["sha256"], "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!(seen["trailers"][0], serde_json::json!(["x-sum", "7"]));
    let logged: Value = serde_json::from_str(&echo.wait_for("X_a")).unwrap();
    assert_eq!(logged, seen);
}

#[test]
fn scenes_are_played() {
    let (_echo, address) = start(&["--reflect"]);
    let events = get(&address, "/events?count=2&interval=1ms");
    assert!(events.contains("data: event 1\n") && events.contains("data: event 2\n"), "{events}");
    assert!(get(&address, "/early-hints").starts_with("HTTP/1.1 103 "));
    assert!(get(&address, "/status/418").starts_with("HTTP/1.1 418 "));
    let empty = get(&address, "/status/204");
    assert!(!empty.to_lowercase().contains("content-length") && body(&empty).is_empty(), "{empty}");
    assert_eq!(body(&get(&address, "/bytes/7")), "xxxxxxx");
    assert!(get(&address, "/chunked/9000").ends_with("0\r\nX-Count: 9000\r\n\r\n"));
    assert_eq!(get(&address, "/close"), "");
    let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.write_all(upgrade.as_bytes()).unwrap();
    // A masked "hi", then a close.
    stream.write_all(&[0x81, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2, 0x88, 0x80, 0, 0, 0, 0]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 101 ") && text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{text}");
    assert!(answer.ends_with(&[0x81, 2, b'h', b'i', 0x88, 0]), "{answer:?}");
}

#[test]
fn it_listens_on_unix_sockets_and_replaces_only_sockets() {
    let folder = Folder::new("echo-unix");
    let socket = folder.0.join("echo.sock").display().to_string();
    let mut first = Running::start(&["echo", "--unix", &socket]);
    first.wait_for("listens on");
    drop(first);
    let mut second = Running::start(&["echo", "--unix", &socket, "--body-bytes", "3"]);
    second.wait_for("listens on");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(body(&answer), "the");
    let file = folder.write("precious", "data").display().to_string();
    let mut third = Running::start(&["echo", "--unix", &file]);
    assert_eq!(third.ended(), Some(3));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "data");
}

#[test]
fn streams_have_the_shape_that_is_asked_for() {
    let (_echo, address) = start(&["--stream"]);
    let answer = get(&address, "/v1/stream?first=1ms&every=1ms&events=3&size=8");
    assert!(answer.contains("Content-Type: text/event-stream\r\n"), "{answer}");
    let events =
        "10\r\ndata: 1 xxxxxx\n\n\r\n10\r\ndata: 2 xxxxxx\n\n\r\n10\r\ndata: 3 xxxxxx\n\n\r\n0\r\n\r\n";
    assert_eq!(body(&answer), events);
    assert_eq!(body(&get(&address, "/")), "ok\n");
    for (target, words) in [
        ("/stream?every=soon", "parameter `every`: `soon` is not a duration"),
        ("/stream?evry=1ms", "parameter `evry`: is unknown"),
    ] {
        let answer = get(&address, target);
        assert!(answer.starts_with("HTTP/1.1 400 ") && body(&answer).starts_with(words), "{answer}");
    }
    let call = "POST /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\
                Content-Type: application/grpc\r\n\r\n\0\0\0\0\0";
    assert!(exchange(&address, call).ends_with("gRPC needs HTTP/2\n"));
    let pushed = "GET /chat?push=1ms&size=3 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.write_all(pushed.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\x81\x030 x\x81\x030 x") {
        let mut part = [0; 1];
        stream.read_exact(&mut part).unwrap();
        answer.push(part[0]);
    }
    let refused = exchange(&address, &pushed.replace("1ms", "0s"));
    assert!(refused.ends_with("parameter `push`: must be above 0\n"), "{refused}");
}

#[test]
fn streams_are_also_served_over_http2() {
    let (_echo, address) = start(&["--stream"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let io = tokio::net::TcpStream::connect(&address).await.unwrap();
        let (client, connection) = h2::client::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let exchange = async |target: &str, kind: &str| {
            let request = http::Request::post(format!("http://{address}{target}"))
                .header("content-type", kind)
                .body(())
                .unwrap();
            let mut client = client.clone().ready().await.unwrap();
            let (response, _) = client.send_request(request, true).unwrap();
            let (head, mut body) = response.await.unwrap().into_parts();
            let mut content = Vec::new();
            while let Some(data) = body.data().await {
                content.extend_from_slice(&data.unwrap());
            }
            let trailers = body.trailers().await.unwrap().unwrap_or_default();
            (head, String::from_utf8(content).unwrap(), trailers)
        };
        let (_, content, _) = exchange("/stream?first=1ms&every=1ms&events=2&size=4", "text/plain").await;
        assert_eq!(content, "data: 1 xx\n\ndata: 2 xx\n\n");
        let (head, content, trailers) =
            exchange("/stream?first=1ms&every=1ms&events=2&size=4", "application/grpc").await;
        assert_eq!(head.headers["content-type"], "application/grpc");
        assert_eq!(content, "\0\0\0\0\x06\x0a\x041 xx\0\0\0\0\x06\x0a\x042 xx");
        assert_eq!(trailers["grpc-status"], "0");
        let (head, content, _) = exchange("/stream?events=0", "application/grpc+proto").await;
        assert_eq!((head.status.as_u16(), &*content), (200, ""));
        assert_eq!(head.headers["grpc-status"], "3");
        assert!(head.headers["grpc-message"].to_str().unwrap().starts_with("parameter `events`"));
        let (head, content, _) = exchange("/stream?events=0", "text/plain").await;
        assert!(head.status.as_u16() == 400 && content.starts_with("parameter `events`: `0`"), "{content}");
        assert_eq!(exchange("/", "text/plain").await.1, "ok\n");
    });
}
