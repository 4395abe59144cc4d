//! Protocol switches: a tunnel exists only after 101, and only if the route permits it.

use std::io::{Read, Write};
use std::time::Duration;

use dataplane::harness::{Fixture, Setup, Upstream};
pub(crate) use dataplane::upgrade::{UPGRADE, shouting};

#[test]
fn http_a_tunnel_opens_after_101_and_carries_bytes_both_ways() {
    let f = Fixture::with(Setup::default(), shouting());
    let mut client = f.connect();
    client.send(f.request("/chat", UPGRADE));
    let head = client.head();
    assert_eq!(head.status, 101, "{}", head.head);
    assert_eq!(head.value("upgrade"), Some("websocket"));
    assert_eq!(head.value("connection"), Some("upgrade"));
    assert_eq!(head.value("sec-websocket-accept"), Some("x"));
    assert_eq!(client.bytes(5), b"hello", "what follows 101 at once is part of the tunnel");
    for text in ["one", "two"] {
        client.send(text);
        assert_eq!(client.bytes(3), text.to_uppercase().as_bytes());
    }
    client.send("bye");
    assert!(client.is_closed(), "the upstream's end is the client's");
    let seen = f.upstream.only();
    assert_eq!(seen.values("upgrade"), ["websocket"]);
    assert_eq!(seen.values("connection"), ["upgrade"]);
    assert_eq!(seen.values("x-forwarded-user"), ["alice"]);
}

#[test]
fn http_without_101_there_is_no_tunnel() {
    let f = Fixture::new();
    let mut client = f.connect();
    // The upstream answers 200, so the client's next bytes are an ordinary request.
    client.send(f.request("/chat", UPGRADE) + "GET /secret HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(client.response().status, 401, "it is authenticated like any other");
    assert_eq!(f.upstream.only().line(), "GET /chat HTTP/1.1");
}

#[test]
fn http_a_tunnel_needs_a_permit_and_an_allowed_protocol() {
    let f = Fixture::with(Setup::default(), shouting());
    let response = f.send(format!("GET / HTTP/1.1\r\nHost: app.test\r\n{UPGRADE}\r\n"));
    assert_eq!(response.status, 401);
    let response = f.send(f.request("/", "Connection: Upgrade\r\nUpgrade: spdy/3, websocket\r\n"));
    assert_eq!(response.status, 403, "{}", response.head);
    assert!(f.upstream.seen().is_empty());
    let twice = "Connection: Upgrade\r\nUpgrade: x\r\nUpgrade: websocket\r\n";
    assert_eq!(f.send(f.request("/chat", twice)).status, 400, "what is judged is all that is offered");
    assert!(f.upstream.seen().is_empty());
    // Without the connection option the field is hop-by-hop and is not forwarded.
    let f = Fixture::new();
    assert_eq!(f.send(f.request("/", "Upgrade: websocket\r\n")).status, 200);
    assert!(f.upstream.only().values("upgrade").is_empty());
}

#[test]
fn http_a_101_to_what_was_not_offered_is_502_and_no_tunnel() {
    for upgrade in [
        "Upgrade: h2c\r\n",
        "Upgrade: websocket, h2c\r\n",
        "Upgrade: websocket\r\nUpgrade: h2c\r\n",
        "Upgrade: websocket/13\r\n",
        "Upgrade: web\r\n",
        "Upgrade:\r\n",
        "",
    ] {
        let f = Fixture::with(
            Setup::default(),
            Upstream::answering(move |_, s| {
                let head =
                    format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{upgrade}\r\n");
                s.write_all(head.as_bytes()).is_ok()
            }),
        );
        let mut client = f.connect();
        client.send(f.request("/chat", UPGRADE));
        let refused = client.response();
        assert_eq!(refused.status, 502, "{upgrade:?}: {}", refused.head);
        assert!(refused.text().contains("upstream_protocol"), "{}", refused.text());
        client.send(f.request("/next", ""));
        assert_eq!(client.response().status, 502, "what follows is a request, on a connection of its own");
        assert_eq!(f.upstream.connections(), 2, "{upgrade:?}");
    }
    // Protocols are compared without regard to case.
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|_, s| {
            let head =
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\nhello";
            let _ = s.write_all(head);
            false
        }),
    );
    let mut client = f.connect();
    client.send(f.request("/chat", UPGRADE));
    assert_eq!(client.head().status, 101);
    assert_eq!(client.bytes(5), b"hello");
}

#[test]
fn http_an_offer_of_another_http_version_is_passed_over() {
    for offer in ["h2c", "H2C", "HTTP/2.0", "TLS/1.2, HTTP/1.1"] {
        let f = Fixture::new();
        let fields = format!(
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {offer}\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
        );
        let mut client = f.connect();
        client.send(f.request("/a", &fields) + &f.request("/b", ""));
        assert_eq!(client.response().status, 200, "{offer}");
        assert_eq!(client.response().status, 200, "the connection goes on as it was");
        let seen = &f.upstream.seen()[0];
        for name in ["upgrade", "http2-settings", "connection"] {
            assert!(seen.values(name).is_empty(), "{offer}: {name} is the hop's");
        }
    }
}

#[test]
fn http_a_tunnel_ends_with_its_client() {
    let (gone, heard) = std::sync::mpsc::channel();
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(move |_, s| {
            s.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )
            .unwrap();
            let mut byte = [0];
            let _ = gone.send(matches!(s.read(&mut byte), Ok(0) | Err(_)));
            false
        }),
    );
    let mut client = f.connect();
    client.send(f.request("/chat", UPGRADE));
    assert_eq!(client.head().status, 101);
    drop(client);
    assert_eq!(heard.recv_timeout(Duration::from_secs(5)), Ok(true));
}

#[test]
fn a_tunnel_rests_like_a_connection_and_speaks_not_against_its_endpoint() {
    let setup = Setup {
        listener: "timeouts = { idle = \"3s\" }".into(),
        upstream: "timeouts = { stall = \"300ms\" }".into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, shouting());
    let mut client = f.connect();
    client.send(f.request("/chat", UPGRADE));
    assert_eq!(client.head().status, 101);
    assert_eq!(client.bytes(5), b"hello");
    // Longer than the stall limit of a body. It does not apply to a tunnel.
    std::thread::sleep(Duration::from_millis(800));
    client.send("one");
    assert_eq!(client.bytes(3), b"ONE");
    let rested = std::time::Instant::now();
    assert!(client.is_closed());
    let rested = rested.elapsed();
    assert!(rested > Duration::from_secs(2) && rested < Duration::from_secs(9), "{rested:?}");
}

#[test]
fn http_a_handshake_may_carry_its_token_among_its_protocols() {
    use base64::Engine as _;
    let f = Fixture::with(Setup { route: "websocket_bearer = true".into(), ..Setup::default() }, shouting());
    let encode = |token: &str| {
        format!(
            "base64url.bearer.authorization.k8s.io.{}",
            base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(token)
        )
    };
    let token = f.issuer.token(|_| {});
    let handshake = |protocols: &str, fields: &str| {
        let mut client = f.connect();
        client.send(format!(
            "GET /ws HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Protocol: {protocols}\r\n{fields}\r\n"
        ));
        client.head().status
    };
    assert_eq!(handshake(&format!("chat, {}, v2", encode(&token)), ""), 101);
    assert_eq!(f.upstream.only().values("sec-websocket-protocol"), ["chat, v2"]);
    assert_eq!(f.upstream.only().values("x-forwarded-user"), ["alice"]);
    assert_eq!(handshake(&encode(&token), "Sec-WebSocket-Protocol: chat\r\n"), 101);
    assert_eq!(f.upstream.seen()[1].values("sec-websocket-protocol"), ["chat"]);
    let both = format!("Authorization: Bearer {token}\r\n");
    for (protocols, fields, status) in [
        (format!("chat, {}", encode(&token)), both.as_str(), 400),
        (format!("{}, {}", encode(&token), encode(&token)), "", 400),
        ("base64url.bearer.authorization.k8s.io.???".into(), "", 400),
        (format!("chat, {}", encode(&token[..token.len() - 8])), "", 401),
        ("chat".into(), "", 401),
    ] {
        assert_eq!(handshake(&protocols, fields), status, "{protocols} {fields}");
    }
    // A request that opens no WebSocket has no such credential, and the token goes nowhere.
    let plain =
        format!("GET / HTTP/1.1\r\nHost: app.test\r\nSec-WebSocket-Protocol: {}\r\n\r\n", encode(&token));
    assert_eq!(f.send(plain).status, 401);
    let open =
        format!("GET /open HTTP/1.1\r\nHost: app.test\r\nSec-WebSocket-Protocol: {}\r\n\r\n", encode(&token));
    // The upstream of this test answers everything with 101.
    assert_eq!(f.send(open).status, 502);
    assert_eq!(f.upstream.seen().len(), 3);
    // Without the key the protocol is a protocol like any other.
    let f = Fixture::with(Setup::default(), shouting());
    let mut client = f.connect();
    client.send(format!(
        "GET /ws HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: {}\r\n\r\n",
        encode(&token)
    ));
    assert_eq!(client.head().status, 401);
}
