//! Exchanges that last longer than their token or certificate are cut when it expires. This holds
//! for every transport, and at an edge that queries another gateway.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Request;
use serde_json::{Value, json};

use crate::support::{Folder, Running};
use dataplane::certificates::Authority;
use dataplane::harness::{CONTROL, Issuer, TestClient, Upstream, now, until};
use dataplane::http2::connect;
use dataplane::ports::free;
use dataplane::upgrade::UPGRADE;

/// The cut comes within a second of the expiry. A busy machine gets some more time.
const PROMISED: f64 = 1.4;
/// Permitted clock difference in seconds.
const SKEW: u64 = 1;
/// Lifetime of a short-lived token in whole seconds: long enough to start every exchange.
const BRIEF: u64 = 5;

/// A service with endless responses: `/stream` in chunks, an upgrade as an echo. `/slow` takes ten
/// seconds to begin.
fn service() -> Upstream {
    Upstream::answering(|seen, socket| {
        if !seen.values("upgrade").is_empty() {
            let head =
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            let _ = socket.write_all(head);
            let mut chunk = [0; 64];
            while matches!(socket.read(&mut chunk), Ok(n) if n > 0 && socket.write_all(&chunk[..n]).is_ok()) {
            }
            return false;
        }
        if seen.line().starts_with("GET /slow") {
            std::thread::sleep(Duration::from_secs(10));
        }
        if !seen.line().contains("/stream") {
            return socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok();
        }
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while socket.write_all(b"4\r\ndata\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    })
}

/// A gateway in front of that service.
struct Fixture {
    address: String,
    issuer: Issuer,
    folder: Folder,
    _process: Running,
    _service: Upstream,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let route = "[[route]]\nname = \"all\"\nupstream = \"service\"\npolicy = { allow = [{ authenticated = true }] }\n";
        Self::with(name, Issuer::new(), "", route)
    }

    /// Starts it with these lines of its listener, and these tables.
    fn with(name: &str, issuer: Issuer, listener: &str, tables: &str) -> Self {
        Self::in_folder(Folder::new(&format!("expiry-{name}")), issuer, listener, tables)
    }

    fn in_folder(folder: Folder, issuer: Issuer, listener: &str, tables: &str) -> Self {
        issuer.write_jwks(&folder.0.join("jwks.json"));
        let (address, service) = (free(), service());
        // A listener that is only queried forwards nothing.
        let upstream = if tables.contains("\"service\"") {
            format!("[[upstream]]\nname = \"service\"\nendpoints = [\"http://{}\"]\n", service.address)
        } else {
            String::new()
        };
        let text = format!(
            "[server]\nreload_on_change = false\nworkers = 1\n[admin]\nenabled = false\n[access_log]\nformat = \"off\"\n\
             [[listener]]\nname = \"main\"\naddress = \"{address}\"\n{listener}\n\
             [[issuer]]\nname = \"test\"\nissuer = \"https://issuer.test\"\naudiences = [\"postern-test\"]\n\
             jwks_file = \"jwks.json\"\nclock_skew = \"{SKEW}s\"\n{upstream}{tables}"
        );
        let file = folder.write("postern.toml", text);
        let mut process = Running::start(&["serve", "--config", file.to_str().unwrap()]);
        process.wait_for("listening");
        Self { address, issuer, folder, _process: process, _service: service }
    }

    /// A short-lived token, and when it becomes invalid.
    fn brief(&self) -> (String, f64) {
        let exp = now() + BRIEF - SKEW;
        (self.issuer.token(|claims| claims["exp"] = json!(exp)), (exp + SKEW) as f64)
    }

    fn client(&self) -> TestClient {
        let client = TestClient::connect(self.address.parse().unwrap());
        client.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client
    }

    fn head(path: &str, token: &str, more: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
    }

    fn status(&self, token: &str) -> u16 {
        let mut client = self.client();
        client.send(Self::head("/", token, ""));
        client.response().status
    }

    /// A chunked response that has begun.
    fn stream(&self, token: &str) -> Lasting {
        let mut client = self.client();
        client.send(Self::head("/stream", token, ""));
        assert_eq!(client.head().status, 200);
        Lasting::reading(client.socket)
    }

    /// A tunnel with traffic.
    fn tunnel(&self, token: &str) -> Lasting {
        let mut client = self.client();
        client.send(Self::head("/chat", token, UPGRADE));
        assert_eq!(client.head().status, 101);
        client.send("one");
        assert_eq!(client.bytes(3), b"one");
        Lasting::reading(client.socket)
    }

    /// A stream over HTTP/2.
    fn http2(&self, token: &str) -> Lasting {
        let request = Request::builder()
            .uri("http://app.test/stream")
            .header("authorization", format!("Bearer {token}"))
            .body(())
            .unwrap();
        let address = self.address.parse().unwrap();
        let mut body = CONTROL.block_on(async move {
            let mut send = connect(address).await.ready().await.unwrap();
            let (response, _) = send.send_request(request, true).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), 200);
            // The connection stays open while the sender exists.
            (response.into_body(), send)
        });
        Lasting(std::thread::spawn(move || {
            CONTROL.block_on(async move {
                while let Some(Ok(chunk)) = body.0.data().await {
                    let _ = body.0.flow_control().release_capacity(chunk.len());
                }
                assert!(!body.0.is_end_stream(), "cut, and not ended");
                seconds()
            })
        }))
    }
}

/// An open exchange that reports when it was cut.
struct Lasting(JoinHandle<f64>);

impl Lasting {
    fn reading(mut socket: TcpStream) -> Self {
        Self(std::thread::spawn(move || {
            let (mut buffer, mut last) = ([0; 4096], Vec::new());
            while let Ok(n @ 1..) = socket.read(&mut buffer) {
                last.extend_from_slice(&buffer[..n]);
                last.drain(..last.len().saturating_sub(5));
            }
            assert_ne!(last, b"0\r\n\r\n", "cut, and not ended");
            seconds()
        }))
    }

    fn ends_with(self, end: f64, what: &str) {
        self.ends_no_sooner(end, end, what);
    }

    /// The same at a gateway that queried another one. The response contained the remaining time in
    /// whole milliseconds. It is counted from the query, so the cut may be early by the time that
    /// opening took.
    fn ends_with_an_answer(self, end: f64, opening: Duration, what: &str) {
        self.ends_no_sooner(end - opening.as_secs_f64() - 0.001, end, what);
    }

    fn ends_no_sooner(self, earliest: f64, end: f64, what: &str) {
        let cut = self.0.join().unwrap();
        assert!(earliest <= cut && cut < end + PROMISED, "{what}: cut {:.3} s after the end", cut - end);
    }
}

/// Wall clock with fractions of a second.
#[allow(clippy::disallowed_methods, reason = "the gateway under test runs on the system clock")]
fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn what_a_token_let_in_is_cut_when_it_ends() {
    let town = Fixture::new("token");
    let (token, end) = town.brief();
    let other = town.issuer.token(|_| {});
    let goes_on = [town.stream(&other), town.tunnel(&other), town.http2(&other)];
    let cut = [
        ("chunks", town.stream(&token)),
        ("a tunnel", town.tunnel(&token)),
        ("a stream of HTTP/2", town.http2(&token)),
    ];
    for (what, lasting) in cut {
        lasting.ends_with(end, what);
    }
    assert_eq!(town.status(&token), 401);
    assert!(goes_on.iter().all(|lasting| !lasting.0.is_finished()), "of a token that is good");
}

#[test]
fn who_still_waits_for_an_answer_is_told_that_the_token_has_ended() {
    let town = Fixture::new("slow");
    let (token, end) = town.brief();
    let mut client = town.client();
    client.send(Fixture::head("/slow", &token, ""));
    let answer = client.response();
    let after = seconds() - end;
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert!(answer.text().contains("\"expired\""), "{}", answer.text());
    assert!((0.0..PROMISED).contains(&after), "{after:.3} s after the end");
}

#[test]
fn what_an_opaque_token_let_in_is_cut_when_it_ends() {
    let exp = Arc::new(AtomicU64::new(0));
    let says = exp.clone();
    let authority = Upstream::answering(move |_, socket| {
        let exp = says.load(Relaxed);
        let answer = format!(r#"{{"active":true,"sub":"alice-id","aud":"api","exp":{exp}}}"#);
        let length = answer.len();
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}"
        );
        socket.write_all(text.as_bytes()).is_ok()
    });
    let tables = format!(
        "[[token_authority]]\nname = \"id\"\nkind = \"introspection\"\nurl = \"http://{}/\"\naudiences = [\"api\"]\n\
         [[route]]\nname = \"all\"\nupstream = \"service\"\npolicy = {{ allow = [{{ authenticated = true }}] }}\n",
        authority.address
    );
    let town = Fixture::with("opaque", Issuer::new(), "", &tables);
    let end = now() + BRIEF;
    exp.store(end, Relaxed);
    let (stream, tunnel) = (town.stream("opaque"), town.tunnel("opaque"));
    stream.ends_with(end as f64, "chunks");
    tunnel.ends_with(end as f64, "a tunnel");
}

#[test]
fn what_a_certificate_let_in_is_cut_when_it_ends() {
    let folder = Folder::new("expiry-certificate");
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (certificate, key) = servers.issue(&["app.test"], "app.test");
    folder.write("cert.pem", certificate.pem());
    let path = folder.write("key.pem", key.serialize_pem());
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    folder.write("clients.pem", clients.pem());
    let listener = "tls = { certificate = \"cert.pem\", key = \"key.pem\", client_ca = \"clients.pem\", client_certificates = \"optional\" }";
    let tables = "[client_certificates]\nname = \"mesh\"\nsubject = \"subject_cn\"\n\
                  [[route]]\nname = \"all\"\nupstream = \"service\"\npolicy = { allow = [{ authenticated = true }] }\n";
    let town = Fixture::in_folder(folder, Issuer::new(), listener, tables);
    let end = now() + BRIEF;
    let brief = clients.issue_until(end, "robot-7");
    let long = clients.issue(&[], "robot-8");
    let open = |(certificate, key): (rcgen::Certificate, rcgen::KeyPair)| {
        let mut stream = servers.connect(town.address.parse().unwrap(), &[], Some((&certificate, &key)));
        stream.write_all(b"GET /stream HTTP/1.1\r\nHost: app.test\r\n\r\n").unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        Lasting(std::thread::spawn(move || {
            while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
            seconds()
        }))
    };
    let (goes_on, cut) = (open(long), open(brief));
    cut.ends_with(end as f64, "chunks");
    assert!(!goes_on.0.is_finished());
    assert!(town.folder.0.exists());
}

/// A gateway that queries another one and authorizes nothing itself.
fn edge(name: &str, asked: &Fixture, more: &str) -> Fixture {
    let tables = format!(
        "[[upstream]]\nname = \"auth\"\nendpoints = [\"http://{}\"]\n\
         [[authorizer]]\nname = \"other\"\nupstream = \"auth\"\n\
         [[route]]\nname = \"all\"\nupstream = \"service\"\npublic = true\nauthorizer = \"other\"\n{more}\n",
        asked.address
    );
    Fixture::with(name, Issuer::new(), "", &tables)
}

#[test]
fn an_edge_that_asked_another_gateway_cuts_when_the_token_ends() {
    let route = "[[route]]\nname = \"all\"\npolicy = { allow = [{ authenticated = true }] }\n";
    // With and without permission to cache its responses.
    for (name, keeping) in [("asked", ""), ("asked-kept", ", max_age = \"60s\"")] {
        let listener = format!("authorization = {{ from = [\"127.0.0.1\"], http = \"envoy\"{keeping} }}");
        let asked = Fixture::with(name, Issuer::new(), &listener, route);
        let edge = edge(&format!("edge-{name}"), &asked, "");
        let (token, end) = asked.brief();
        let other = asked.issuer.token(|_| {});
        let goes_on = edge.stream(&other);
        let began = Instant::now();
        let (stream, tunnel) = (edge.stream(&token), edge.tunnel(&token));
        let opening = began.elapsed();
        stream.ends_with_an_answer(end, opening, "chunks");
        tunnel.ends_with_an_answer(end, opening, "a tunnel");
        assert_eq!(edge.status(&token), 401);
        assert!(!goes_on.0.is_finished());
    }
}

#[test]
fn an_edge_keeps_nothing_open_beyond_the_end_that_whoever_it_asked_speaks_of() {
    let route = |more: &str| {
        format!("[[route]]\nname = \"all\"\npolicy = {{ allow = [{{ authenticated = true }}] }}\n{more}\n")
    };
    let listener = "authorization = { from = [\"127.0.0.1\"], http = \"envoy\" }";
    let asked = Fixture::with("asked-keep", Issuer::new(), listener, &route(""));
    let keeps = Fixture::with("asked-keeps", Issuer::new(), listener, &route("on_expiry = \"keep\""));
    let cut = edge("edge-keep", &asked, "on_expiry = \"keep\"");
    let kept = edge("edge-keeps", &keeps, "on_expiry = \"keep\"");
    let (token, end) = asked.brief();
    let (other, later) = keeps.brief();
    let began = Instant::now();
    let (stream, kept) = (cut.stream(&token), kept.stream(&other));
    stream.ends_with_an_answer(end, began.elapsed(), "chunks");
    until("the promise is over", || seconds() > later + PROMISED);
    assert!(!kept.0.is_finished(), "whoever was asked keeps it as well");
}

#[test]
fn a_route_may_keep_open_what_a_token_let_in() {
    let route = |name: &str, more: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\npath = {{ prefix = \"/{name}\" }}\nupstream = \"service\"\n\
             policy = {{ allow = [{{ authenticated = true }}] }}\n{more}\n"
        )
    };
    let tables = [route("kept", "on_expiry = \"keep\""), route("closed", "on_expiry = \"close\"")].concat();
    let town = Fixture::with("keep", Issuer::new(), "", &tables);
    let (token, end) = town.brief();
    let open = |path: &str| {
        let mut client = town.client();
        client.send(Fixture::head(path, &token, ""));
        assert_eq!(client.head().status, 200);
        Lasting::reading(client.socket)
    };
    let (kept, closed) = (open("/kept/stream"), open("/closed/stream"));
    closed.ends_with(end, "chunks");
    until("the promise is over", || seconds() > end + PROMISED);
    assert!(!kept.0.is_finished());
    let mut client = town.client();
    client.send(Fixture::head("/kept", &token, ""));
    assert_eq!(client.response().status, 401, "what is open is kept, and nothing else");
}

#[test]
fn an_answer_says_when_the_credential_ends_unless_the_route_keeps_what_it_let_in() {
    let route = |name: &str, more: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\npath = {{ prefix = \"/{name}\" }}\n\
             policy = {{ allow = [{{ authenticated = true }}] }}\n{more}\n"
        )
    };
    let tables = [
        route("closed", ""),
        route("kept", "on_expiry = \"keep\""),
        "[[route]]\nname = \"open\"\npath = { prefix = \"/open\" }\npublic = true\n".to_owned(),
    ]
    .concat();
    let listener = "authorization = { from = [\"127.0.0.1\"], http = \"envoy\" }";
    let town = Fixture::with("says", Issuer::new(), listener, &tables);
    let token = town.issuer.token(|claims: &mut Value| claims["exp"] = json!(now() + 100));
    let says = |path: &str| {
        let mut client = town.client();
        client.send(Fixture::head(path, &token, ""));
        let answer = client.response();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.value("postern-ends-in-ms").map(|value| value.parse::<u64>().unwrap())
    };
    let said = says("/closed").unwrap();
    assert!((95_000..=100_000 + SKEW * 1000).contains(&said), "{said}");
    assert_eq!((says("/kept"), says("/open")), (None, None));
}
