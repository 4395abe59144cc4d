//! TLS on both sides: ALPN, client certificates as a credential, choice of certificate authorities.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConnection, StreamOwned};

use dataplane::certificates::Authority;
use dataplane::harness::{Fixture, Issuer, Setup, Upstream};

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    path.display().to_string()
}

struct TlsFixture {
    fixture: Fixture,
    authority: Authority,
    clients: Authority,
    setup: Setup,
}

/// A TLS gateway with optional client certificates, whose common name is the subject.
fn tls_fixture(upstream: Upstream) -> TlsFixture {
    let dir = tempfile::tempdir().unwrap();
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (certificate, key) = authority.issue(&["app.test"], "app.test");
    let cert = write(dir.path(), "cert.pem", &certificate.pem());
    let key = write(dir.path(), "key.pem", &key.serialize_pem());
    let ca = write(dir.path(), "clients.pem", &clients.pem());
    let issuer = Issuer::new();
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let setup = Setup {
        listener: format!(
            "tls = {{ certificate = \"{cert}\", key = \"{key}\", client_ca = \"{ca}\", client_certificates = \"optional\" }}"
        ),
        more: r#"
[client_certificates]
name = "mesh"
subject = "subject_cn"
[[route]]
name = "machines"
path = { prefix = "/machines" }
upstream = "backend"
policy = { allow = [{ subjects = ["robot-7"], issuers = ["mesh"] }] }
"#
        .into(),
        ..Setup::default()
    };
    let text = setup.file(dir.path(), upstream.address);
    TlsFixture { fixture: Fixture::from_text(dir, issuer, upstream, &text), authority, clients, setup }
}

impl TlsFixture {
    fn connect(
        &self,
        alpn: &[&[u8]],
        identity: Option<(&rcgen::Certificate, &rcgen::KeyPair)>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        self.authority.connect(self.fixture.address, alpn, identity)
    }
}

/// Status of a request over TLS.
fn status(stream: &mut StreamOwned<ClientConnection, TcpStream>, request: &str) -> std::io::Result<u16> {
    stream.write_all(request.as_bytes())?;
    let mut held = Vec::new();
    let mut chunk = [0; 4096];
    while !held.windows(4).any(|w| w == b"\r\n\r\n") {
        let n = stream.read(&mut chunk)?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        held.extend_from_slice(&chunk[..n]);
    }
    let text = String::from_utf8_lossy(&held);
    Ok(text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0))
}

#[test]
fn tls_negotiates_http2_or_http1_by_alpn() {
    let t = tls_fixture(Upstream::start());
    let mut stream = t.connect(&[b"h2", b"http/1.1"], None);
    stream.flush().unwrap();
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    assert_eq!(stream.conn.alpn_protocol(), Some(b"h2".as_slice()));
    for alpn in [&[b"http/1.1".as_slice()] as &[&[u8]], &[]] {
        let mut stream = t.connect(alpn, None);
        assert_eq!(status(&mut stream, &t.fixture.request("/", "")).unwrap(), 200);
    }
    assert_eq!(t.fixture.upstream.seen()[0].values("x-forwarded-proto"), ["https"]);
}

#[test]
fn tls_a_client_that_half_closes_behind_its_request_is_answered() {
    for wait in [0, 50] {
        let upstream = Upstream::answering(move |_, socket| {
            std::thread::sleep(std::time::Duration::from_millis(wait));
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
        });
        let t = tls_fixture(upstream);
        for n in 0..20 {
            let mut stream = t.connect(&[b"http/1.1"], None);
            stream.write_all(t.fixture.request("/", "").as_bytes()).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
            if n % 2 == 0 {
                stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let mut answer = String::new();
            // An end without close_notify would be an error.
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
        }
    }
}

#[test]
fn tls_a_client_certificate_is_a_credential() {
    let t = tls_fixture(Upstream::start());
    let request = "GET /machines HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-User: evil\r\n\r\n";
    let (certificate, key) = t.clients.issue(&[], "robot-7");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    assert_eq!(status(&mut stream, request).unwrap(), 200);
    assert_eq!(t.fixture.upstream.only().values("x-forwarded-user"), ["robot-7"]);
    let (certificate, key) = t.clients.issue(&[], "robot-8");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    assert_eq!(status(&mut stream, request).unwrap(), 403);
    let mut stream = t.connect(&[], None);
    assert_eq!(status(&mut stream, request).unwrap(), 401);
    // A certificate of another authority fails in the handshake.
    let (certificate, key) = t.authority.issue(&[], "robot-7");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    assert!(status(&mut stream, request).is_err());
    assert_eq!(t.fixture.upstream.seen().len(), 1);
}

#[test]
fn tls_a_websocket_by_a_client_certificate_is_opened_by_its_own_pages_alone() {
    let t = tls_fixture(super::upgrade::shouting());
    let (certificate, key) = t.clients.issue(&[], "robot-7");
    let open = |origin: &str| {
        let request =
            format!("GET /machines HTTP/1.1\r\nHost: app.test\r\n{}{origin}\r\n", super::upgrade::UPGRADE);
        status(&mut t.connect(&[], Some((&certificate, &key))), &request).unwrap()
    };
    assert_eq!(open("Origin: https://app.test\r\n"), 101);
    assert_eq!(open(""), 101, "no browser");
    for origin in ["https://evil.test", "http://app.test", "https://app.test:8443", "null"] {
        assert_eq!(open(&format!("Origin: {origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(t.fixture.upstream.seen().len(), 2);
}

#[test]
fn tls_the_certificate_of_a_proxy_that_asks_is_nobodys_credential() {
    let t = tls_fixture(Upstream::start());
    let asked = "authorization = { from = [\"127.0.0.1\"], http = \"envoy\" }";
    let Setup { listener, more, .. } = &t.setup;
    let setup = Setup { listener: format!("{listener}\n{asked}"), more: more.clone(), ..Setup::default() };
    t.fixture.reload(&setup);
    let (certificate, key) = t.clients.issue(&[], "robot-7");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    let checked = status(&mut stream, "GET /machines HTTP/1.1\r\nHost: app.test\r\n\r\n").unwrap();
    assert_eq!(checked, 401, "the proxy has a certificate, and the request in question has nothing");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    assert_eq!(status(&mut stream, &t.fixture.request("/", "")).unwrap(), 200);
}

#[test]
fn tls_a_failed_handshake_is_told_by_an_alert() {
    let t = tls_fixture(Upstream::start());
    let (certificate, key) = t.authority.issue(&[], "robot-7");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    stream.flush().unwrap();
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    // The alert has arrived, but a client that is still sending (TLS 1.3 permits it) has not read
    // it yet. If the gateway answered its bytes with a reset, its next write would fail, and it
    // would never read the reason.
    stream.sock.peek(&mut [0]).unwrap();
    for _ in 0..5 {
        stream.write_all(&[b'x'; 10_000]).expect("the gateway takes what is sent meanwhile");
    }
    let error = stream.read(&mut [0]).unwrap_err();
    let told = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    assert!(matches!(told, Some(rustls::Error::AlertReceived(_))), "{error:?}");
    assert!(t.fixture.upstream.seen().is_empty());
}

#[test]
fn tls_plain_text_on_a_tls_port_and_garbage_end_the_connection_only() {
    let t = tls_fixture(Upstream::start());
    for bytes in [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(), b"\x16\x03\x01\xff\xff\x00garbage", b""] {
        let mut socket = TcpStream::connect(t.fixture.address).unwrap();
        socket.write_all(bytes).unwrap();
        drop(socket);
    }
    let mut stream = t.connect(&[], None);
    assert_eq!(status(&mut stream, &t.fixture.request("/", "")).unwrap(), 200, "the next client is served");
}

/// A TLS server that sends this body, once per connection.
fn tls_server(authority: &Authority, body: &'static str) -> SocketAddr {
    let (certificate, key) = authority.issue(&["backend.test", "localhost"], "backend.test");
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            let mut chunk = [0; 8192];
            if stream.read(&mut chunk).is_ok() {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
                let _ = stream.flush();
            }
        }
    });
    address
}

/// kube-auth-proxy: a changed CA is not applied before the next start.
#[test]
fn tls_a_ca_that_is_exchanged_counts_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let said = r#"{"active":true,"sub":"a","aud":"api","groups":["dev"]}"#;
    let address = tls_server(&new, said);
    let dir = tempfile::tempdir().unwrap();
    let ca = write(dir.path(), "ca.pem", &old.pem());
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"https://{address}\"]\ntls = {{ ca = \"{ca}\", server_name = \"backend.test\" }}"
        ),
        more: format!(
            "[[token_authority]]\nname = \"id\"\nkind = \"introspection\"\nurl = \"https://localhost:{}/\"\nca = \"{ca}\"\naudiences = [\"api\"]",
            address.port()
        ),
        ..Setup::default()
    };
    let f = Fixture::with(
        Setup { upstream: setup.upstream.clone(), more: setup.more.clone(), ..Setup::default() },
        Upstream::start(),
    );
    let opaque = || f.send("GET / HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer opaque\r\n\r\n").status;
    assert_eq!((f.get("/").status, opaque()), (502, 503), "neither is trusted");
    write(dir.path(), "ca.pem", &new.pem());
    f.reload(&setup);
    assert_eq!((f.get("/").status, opaque()), (200, 200));
    write(dir.path(), "ca.pem", &old.pem());
    f.reload(&setup);
    assert_eq!(f.get("/").status, 502, "what it trusted before, it trusts no longer");
}

#[test]
fn tls_upstreams_are_verified_against_the_chosen_ca() {
    let authority = Authority::new("backend");
    let address = tls_server(&authority, "tls");
    let dir = tempfile::tempdir().unwrap();
    let good = write(dir.path(), "good.pem", &authority.pem());
    let bad = write(dir.path(), "bad.pem", &Authority::new("other").pem());
    for (ca, name, expected) in
        [(&good, "backend.test", 200), (&bad, "backend.test", 502), (&good, "other.test", 502)]
    {
        let upstream = format!(
            "endpoints = [\"https://{address}\"]\ntls = {{ ca = \"{ca}\", server_name = \"{name}\" }}"
        );
        let f = Fixture::with(Setup { upstream, ..Setup::default() }, Upstream::start());
        assert_eq!(f.get("/").status, expected, "{ca} {name}");
    }
}

#[test]
fn tls_an_authorizer_that_cannot_show_who_it_is_lets_nobody_in() {
    let authority = Authority::new("authorizers");
    let address = tls_server(&authority, "");
    let dir = tempfile::tempdir().unwrap();
    let good = write(dir.path(), "good.pem", &authority.pem());
    let bad = write(dir.path(), "bad.pem", &Authority::new("other").pem());
    for (ca, name, expected) in
        [(&good, "backend.test", 200), (&bad, "backend.test", 503), (&good, "other.test", 503)]
    {
        let more = format!(
            r#"
[[upstream]]
name = "auth"
endpoints = ["https://{address}"]
tls = {{ ca = "{ca}", server_name = "{name}" }}
[[authorizer]]
name = "other"
upstream = "auth"
[[route]]
name = "asked"
path = {{ prefix = "/asked" }}
upstream = "backend"
public = true
authorizer = "other"
"#
        );
        let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
        let status = f.send("GET /asked HTTP/1.1\r\nHost: app.test\r\n\r\n").status;
        assert_eq!(
            (status, f.upstream.seen().len()),
            (expected, usize::from(expected == 200)),
            "{ca} {name}"
        );
    }
}

#[test]
fn proxy_protocol_is_demanded_of_configured_peers_and_believed_from_them_alone() {
    let setup = Setup { listener: "proxy_protocol_from = [\"127.0.0.0/8\"]".into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    client.send(format!("PROXY TCP4 203.0.113.9 192.0.2.1 5555 443\r\n{}", f.request("/", "")));
    assert_eq!(client.response().status, 200);
    assert_eq!(f.upstream.only().values("x-forwarded-for"), ["203.0.113.9"]);
    assert_eq!(f.upstream.only().values("x-forwarded-proto"), ["http"]);
    // Version 2, from a peer that terminates its client's TLS.
    let mut client = f.connect();
    client.send(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x14\xcb\0\x71\x09\xc0\0\x02\x01\x15\xb3\x01\xbb\x20\0\x05\x01\0\0\0\0");
    client.send(f.request("/", ""));
    assert_eq!(client.response().status, 200);
    let seen = f.upstream.seen();
    assert_eq!(seen[1].values("x-forwarded-for"), ["203.0.113.9"]);
    assert_eq!(seen[1].values("x-forwarded-proto"), ["https"]);
    // Without the header such a peer is not served.
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert!(client.rest().is_empty());
    assert_eq!(f.upstream.seen().len(), 2);
    // Other peers may not send one: it is not HTTP.
    let f = Fixture::new();
    let response = f.send(format!("PROXY TCP4 203.0.113.9 192.0.2.1 5555 443\r\n{}", f.request("/", "")));
    assert!(matches!(response.status, 400 | 505) && response.closes(), "{}", response.head);
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn tls_a_tunnels_end_is_told_as_one() {
    let t = tls_fixture(Upstream::answering(|_, s| {
        s.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbye",
        )
        .unwrap();
        false
    }));
    let mut stream = t.connect(&[], None);
    let request = t.fixture.request("/", "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    // Without a TLS close this is an error, because the client could not distinguish the end from
    // an attack.
    stream.read_to_end(&mut all).expect("an orderly end");
    assert!(all.ends_with(b"\r\n\r\nbye"), "{}", String::from_utf8_lossy(&all));
}

#[test]
fn tls_requests_do_not_queue_behind_a_handshake_that_never_comes() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ca = write(dir.path(), "ca.pem", &Authority::new("backend").pem());
    let upstream = format!(
        "endpoints = [\"https://{}\"]\nprotocol = \"h2\"\ntls = {{ ca = \"{ca}\", server_name = \"a.test\" }}\n\
         timeouts = {{ connect = \"1s\" }}",
        silent.local_addr().unwrap()
    );
    let f = Fixture::with(Setup { upstream, ..Setup::default() }, Upstream::start());
    let started = std::time::Instant::now();
    let mut clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = f.connect();
            client.send(f.request("/", ""));
            client
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.response().status, 502);
    }
    let took = started.elapsed();
    assert!(
        took < std::time::Duration::from_secs(6),
        "each waits for one attempt, not for all before it: {took:?}"
    );
}

#[test]
fn tls_a_certificate_names_whom_the_configuration_in_force_says() {
    let mut t = tls_fixture(Upstream::start());
    let request = "GET /machines HTTP/1.1\r\nHost: app.test\r\n\r\n";
    let (certificate, key) = t.clients.issue(&[], "robot-7");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    assert_eq!(status(&mut stream, request).unwrap(), 200);
    // From now on the common name identifies no caller, also on open connections.
    t.setup.more = t.setup.more.replace("subject_cn", "san_dns");
    t.fixture.reload(&t.setup);
    assert_eq!(status(&mut stream, request).unwrap(), 401);
}

#[test]
fn tls_an_authority_taken_out_vouches_for_nobody_on_connections_that_stand() {
    let t = tls_fixture(Upstream::start());
    let request = "GET /machines HTTP/1.1\r\nHost: app.test\r\n\r\n";
    let other = Authority::new("other clients");
    let ca = t.fixture.dir.path().join("clients.pem");
    let (certificate, key) = t.clients.issue(&[], "robot-7");
    let mut stream = t.connect(&[], Some((&certificate, &key)));
    assert_eq!(status(&mut stream, request).unwrap(), 200);
    // One more authority, and another order: the first one's certificates stay valid.
    std::fs::write(&ca, other.pem() + &t.clients.pem()).unwrap();
    t.fixture.reload(&t.setup);
    assert_eq!(status(&mut stream, request).unwrap(), 200);
    std::fs::write(&ca, other.pem()).unwrap();
    t.fixture.reload(&t.setup);
    assert_eq!(status(&mut stream, request).unwrap(), 401);
    let served = t.fixture.upstream.seen().len();
    assert_eq!(status(&mut stream, request).unwrap(), 401);
    assert_eq!(t.fixture.upstream.seen().len(), served);
    // When the authority is back in its place, it authenticates again.
    std::fs::write(&ca, t.clients.pem()).unwrap();
    t.fixture.reload(&t.setup);
    assert_eq!(status(&mut stream, request).unwrap(), 200);
}
