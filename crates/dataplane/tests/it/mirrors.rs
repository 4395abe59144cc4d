//! Mirrors: copies of requests, and that nothing about them reaches the client.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dataplane::harness::{Fixture, PATIENCE, Setup, Upstream, until};
use dataplane::http2::{body_of, connect, request, run};
use dataplane::upgrade::UPGRADE;

use super::upstream_http2::{Http2Upstream, USUAL};

/// The route `protected` with this `mirror`, and the upstream `mirror` at this address.
fn mirrored(endpoint: &str, upstream: &str, mirror: &str) -> Setup {
    Setup {
        route: format!("mirror = [{mirror}]"),
        more: format!("[[upstream]]\nname = \"mirror\"\nendpoints = [\"http://{endpoint}\"]\n{upstream}\n"),
        ..Setup::default()
    }
}

fn to(mirror: &Upstream) -> Setup {
    mirrored(&mirror.address.to_string(), "", "{ upstream = \"mirror\" }")
}

fn count(f: &Fixture, result: &str) -> f64 {
    f.counted(&format!("postern_mirrored_requests_total{{route=\"protected\",result=\"{result}\"}}"))
}

/// Waits until so many copies have ended like this.
fn ended(f: &Fixture, result: &str, copies: u32) {
    until(&format!("{copies} copies are {result}"), || count(f, result) >= f64::from(copies));
    assert_eq!(count(f, result), f64::from(copies));
}

#[test]
fn a_mirror_gets_what_the_upstream_gets() {
    let mirror = Upstream::answering(|_, s| {
        use std::io::Write as _;
        s.write_all(b"HTTP/1.1 500 Broken\r\ncontent-length: 3\r\nset-cookie: a=b\r\n\r\nbad").is_ok()
    });
    let f = Fixture::with(to(&mirror), Upstream::start());
    let response = f.send(f.request("/things?a=b", "X-Forwarded-User: root\r\nX-Own: 1\r\n"));
    assert_eq!((response.status, response.text().as_str()), (200, "ok"));
    assert!(!response.head.contains("set-cookie"), "{}", response.head);
    ended(&f, "completed", 1);
    let (seen, copy) = (f.upstream.only(), mirror.only());
    assert_eq!(copy.head, seen.head, "the same head, byte for byte");
    assert_eq!(copy.line(), "GET /things?a=b HTTP/1.1");
    assert_eq!((copy.values("x-forwarded-user"), copy.values("x-own")), (vec!["alice"], vec!["1"]));
    assert!(copy.values("authorization").is_empty(), "the credential stays here");
    // Nobody who is refused is copied.
    assert_eq!(f.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n").status, 401);
    assert_eq!(mirror.seen().len(), 1);
}

#[test]
fn bodies_are_copied_over_both_protocols() {
    let mirror = Upstream::start();
    let f = Fixture::with(to(&mirror), Upstream::start());
    let post = f.request("/", "Content-Length: 7\r\n").replacen("GET", "POST", 1);
    assert_eq!(f.send(post + "payload").status, 200);
    ended(&f, "completed", 1);
    let chunked = f.request("/", "Transfer-Encoding: chunked\r\n").replacen("GET", "POST", 1);
    let response =
        f.send(chunked + "5\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 1\r\nX-Forwarded-User: root\r\n\r\n");
    assert_eq!(response.status, 200);
    ended(&f, "completed", 2);
    let large = Bytes::from((0..1_000_000u32).map(|n| n.to_le_bytes()[0]).collect::<Vec<_>>());
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let (response, mut body) = send.send_request(request(&f, "POST", "/"), false).unwrap();
        body.send_data(large.clone(), true).unwrap();
        assert_eq!(body_of(response.await.unwrap()).await.1, b"ok");
    });
    until("the third copy has ended", || count(&f, "completed") + count(&f, "dropped") > 2.5);
    assert_eq!(count(&f, "completed"), 3.0, "a mirror as fast as the upstream");
    let (seen, copies) = (f.upstream.seen(), mirror.seen());
    assert_eq!(copies.len(), 3);
    for (seen, copy) in seen.iter().zip(&copies) {
        assert!(seen.body == copy.body && seen.trailers == copy.trailers && seen.head == copy.head);
    }
    assert_eq!(
        (copies[1].body.as_slice(), copies[1].trailers.as_slice()),
        (&b"hello!"[..], &["x-sum: 1".to_owned()][..])
    );
}

#[test]
fn a_mirror_may_be_an_http2_upstream() {
    let mirror = Http2Upstream::start(USUAL);
    let setup = mirrored(&mirror.address.to_string(), "protocol = \"h2\"", "{ upstream = \"mirror\" }");
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(f.get("/things?a=b").status, 200);
    ended(&f, "completed", 1);
    let copy = mirror.seen().pop().unwrap();
    assert_eq!(copy.uri, "http://app.test/things?a=b");
    assert_eq!(copy.headers["x-forwarded-user"], "alice");
}

#[test]
fn a_mirror_that_is_down_or_silent_harms_nobody() {
    let f = Fixture::with(mirrored("127.0.0.1:1", "", "{ upstream = \"mirror\" }"), Upstream::start());
    assert_eq!(f.get("/").status, 200);
    ended(&f, "failed", 1);
    let (release, held) = channel::<()>();
    let held = std::sync::Mutex::new(held);
    let silent = Upstream::answering(move |_, _| {
        let _ = held.lock().unwrap().recv_timeout(PATIENCE);
        false
    });
    // One copy is in flight: the second is dropped.
    let setup = mirrored(&silent.address.to_string(), "max_requests = 1", "{ upstream = \"mirror\" }");
    let f = Fixture::with(setup, Upstream::start());
    let began = Instant::now();
    assert_eq!(f.get("/").status, 200);
    until("the mirror has the first copy", || silent.seen().len() == 1);
    assert_eq!(f.get("/").status, 200);
    assert!(began.elapsed() < Duration::from_secs(2));
    ended(&f, "dropped", 1);
    drop(release);
    ended(&f, "failed", 1);
    assert_eq!((f.upstream.seen().len(), silent.seen().len()), (2, 1));
}

#[test]
fn a_copy_ends_when_the_mirror_reads_too_slowly() {
    const SIZE: usize = 24 << 20;
    let mirror = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mirror.local_addr().unwrap().to_string();
    let setup = mirrored(&address, "", "{ upstream = \"mirror\", buffer_size = \"64KiB\" }");
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    client.send(f.request("/", &format!("Content-Length: {SIZE}\r\n")).replacen("GET", "POST", 1));
    let (mut accepted, _) = mirror.accept().unwrap();
    client.send(vec![b'x'; SIZE]);
    assert_eq!(client.response().status, 200);
    assert_eq!(f.upstream.only().body.len(), SIZE);
    ended(&f, "dropped", 1);
    // It can see that the request is not complete.
    let mut got = Vec::new();
    let _ = accepted.read_to_end(&mut got);
    assert!(got.len() < SIZE, "{}", got.len());
}

#[test]
fn the_copy_of_an_incomplete_request_is_never_complete() {
    let mirror = Upstream::start();
    let f = Fixture::with(to(&mirror), Upstream::start());
    let mut client = f.connect();
    client.send(f.request("/", "Content-Length: 10\r\n").replacen("GET", "POST", 1) + "part");
    until("the mirror is connected", || mirror.connections() == 1);
    client.reset();
    ended(&f, "dropped", 1);
    until("the mirror sees the end", || mirror.seen().len() == 1);
    assert!(mirror.only().body.len() < 10);
}

#[test]
fn a_share_of_the_requests_is_copied_to_each_mirror() {
    let (all, some, none) = (Upstream::start(), Upstream::start(), Upstream::start());
    let upstream = |name: &str, upstream: &Upstream| {
        format!("[[upstream]]\nname = \"{name}\"\nendpoints = [\"http://{}\"]\n", upstream.address)
    };
    let setup = Setup {
        route: "mirror = [{ upstream = \"all\" }, { upstream = \"some\", percent = 50 }, \
                { upstream = \"none\", fraction = { numerator = 0, denominator = 3 } }]"
            .into(),
        more: upstream("all", &all) + &upstream("some", &some) + &upstream("none", &none),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    for _ in 0..200 {
        client.send(f.request("/", ""));
        assert_eq!(client.response().status, 200);
    }
    until("all copies have ended", || all.seen().len() == 200 && count(&f, "completed") > 200.0);
    until("each copy is counted", || {
        let copies = all.seen().len() + some.seen().len();
        count(&f, "completed") == f64::from(u32::try_from(copies).unwrap())
    });
    assert!((50..150).contains(&some.seen().len()), "{}", some.seen().len());
    assert!(none.seen().is_empty());
}

#[test]
fn a_protocol_switch_is_not_copied() {
    let mirror = Upstream::start();
    let f = Fixture::with(to(&mirror), dataplane::upgrade::shouting());
    let mut client = f.connect();
    client.send(f.request("/", UPGRADE));
    assert_eq!(client.head().status, 101);
    assert_eq!(mirror.connections(), 0);
}

#[test]
fn an_assertion_is_for_the_mirror_that_gets_it() {
    use base64::Engine as _;
    use std::os::unix::fs::PermissionsExt;
    let (mirror, dir) = (Upstream::start(), tempfile::tempdir().unwrap());
    let signer = auth::token::jws::Signer::generate(auth::token::jws::SigningAlgorithm::Es256).unwrap();
    let key = dir.path().join("assertion.pem");
    std::fs::write(&key, signer.to_pkcs8_pem().unwrap().as_ref()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut setup = to(&mirror);
    let assertion = format!("[assertion]\nkey = \"{}\"\nissuer = \"https://gateway.test\"\n", key.display());
    setup.more.push_str(&assertion);
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(f.get("/").status, 200);
    ended(&f, "completed", 1);
    for (seen, audience) in [(f.upstream.only(), "backend"), (mirror.only(), "mirror")] {
        let payload = seen.values("x-postern-assertion")[0].split('.').nth(1).unwrap().to_owned();
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!(claims["aud"], audience);
    }
}
