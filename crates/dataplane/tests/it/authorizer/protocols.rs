//! Authorizers over HTTP/2, Unix sockets and another Postern, and protocol switches.

use super::{asking, asking_at, get, head, say, saying, tables, tables_with};
use auth::token::jws::{Signer, SigningAlgorithm};
use dataplane::harness::{Fixture, Issuer, Seen, Setup, Upstream};
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn connections_to_the_authorizer_are_kept() {
    let authorizer = saying("200 OK", &[], "a body nobody needs");
    let f = asking(&authorizer, "");
    for _ in 0..5 {
        assert_eq!(get(&f, "").status, 200);
    }
    assert_eq!((authorizer.seen().len(), authorizer.connections()), (5, 1));
    let refusing = saying("403 Forbidden", &[], "no");
    let f = asking(&refusing, "");
    let mut client = f.connect();
    for _ in 0..3 {
        client.send(head("GET /asked", ""));
        assert_eq!(client.response().text(), "no");
    }
    assert_eq!((refusing.seen().len(), refusing.connections()), (3, 1));
}

#[test]
fn head_asks_with_head_and_is_answered_without_a_body() {
    let authorizer = Upstream::answering(|seen, socket| {
        let body: &[u8] = if seen.line().starts_with("HEAD ") { b"" } else { b"no" };
        socket.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\n").is_ok()
            && socket.write_all(body).is_ok()
    });
    let f = asking(&authorizer, "");
    let mut client = f.connect();
    for _ in 0..2 {
        client.send(head("HEAD /asked", ""));
        assert_eq!(client.head().status, 403);
    }
    client.send(head("GET /asked", ""));
    assert_eq!(client.response().text(), "no");
    assert_eq!(authorizer.connections(), 1);
}

#[test]
fn http2_clients_and_upgrades_are_asked_about_too() {
    let authorizer = Upstream::answering(|seen, socket| match seen.values("authorization")[..] {
        [] => say(socket, "401 Unauthorized", &["WWW-Authenticate: Basic"], "log in"),
        _ => say(socket, "200 OK", &["X-Auth-Request-User: ada"], ""),
    });
    let f = asking(&authorizer, "");
    dataplane::http2::run(async {
        let send = dataplane::http2::connect(f.address).await;
        let (head, _) = dataplane::http2::get(&send, dataplane::http2::request(&f, "GET", "/asked/h2")).await;
        assert_eq!(head.status, 200);
        let mut bare = dataplane::http2::request(&f, "GET", "/asked/h2");
        bare.headers_mut().remove("authorization");
        let (head, body) = dataplane::http2::get(&send, bare).await;
        assert_eq!(
            (head.status.as_u16(), &head.headers["www-authenticate"]),
            (401, &"Basic".parse().unwrap())
        );
        assert_eq!(body, b"log in"[..]);
    });
    assert_eq!(f.upstream.only().values("x-auth-request-user"), ["ada"]);
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(f.send(head("GET /asked/ws", upgrade)).status, 401);
    let question = &authorizer.seen()[2];
    assert!(question.values("upgrade").is_empty() && question.values("connection").is_empty());
}

/// A Postern that other proxies query. It forwards nothing.
fn postern(listener: &str, more: &str) -> Fixture {
    let listener = format!("authorization = {{ from = [\"127.0.0.1\"], {listener} }}");
    Fixture::with(Setup { listener, more: more.into(), ..Setup::default() }, Upstream::start())
}

fn asked_questions(f: &Fixture) -> f64 {
    f.counted("postern_requests_total{route=\"protected\",outcome=\"allowed\",class=\"2xx\"}")
}

#[test]
fn one_postern_asks_another_in_each_way() {
    for (serving, asking_with) in [
        ("http = \"envoy\"", ""),
        ("http = \"envoy\", path_prefix = \"/check\"", "path_prefix = \"/check\""),
        ("http = \"x-original\"", "http = \"x-original\"\npath = \"/auth\""),
        ("http = \"x-forwarded\"", "http = \"x-forwarded\"\npath = \"/auth?x=1\""),
    ] {
        for kept in [false, true] {
            let max_age = if kept { ", max_age = \"30s\"" } else { "" };
            let authorizer = postern(&format!("{serving}{max_age}"), "");
            let f = asking_at(authorizer.address, asking_with);
            let token = authorizer.issuer.token(|_| {});
            let bearer =
                format!("Authorization: Bearer {token}\r\nX-Forwarded-User: root\r\nX-Request-Id: 1\r\n");
            for nth in 1..=2 {
                assert_eq!(get(&f, &bearer.replace("Id: 1", &format!("Id: {nth}"))).status, 200, "{serving}");
            }
            let served = f.upstream.seen();
            assert_eq!((served.len(), served[1].values("x-forwarded-user")), (2, vec!["alice"]), "{serving}");
            assert!(!served[1].head.to_lowercase().contains("postern-"), "{}", served[1].head);
            assert_eq!(get(&f, "").status, 401);
            assert_eq!(get(&f, "Authorization: Bearer x\r\n").status, 401);
            assert_eq!(f.upstream.seen().len(), 2);
            assert_eq!(asked_questions(&authorizer), if kept { 1.0 } else { 2.0 }, "{serving} {kept}");
        }
    }
}

#[test]
fn a_postern_says_how_long_its_answer_holds_and_on_what_it_rests() {
    let f = postern("http = \"envoy\", max_age = \"20s\"", "");
    let good = f.get("/x");
    assert_eq!(
        (good.value("cache-control"), good.value("vary")),
        (Some("max-age=20, must-revalidate"), Some("Authorization, Cookie"))
    );
    assert_eq!(
        (good.value("postern-revocable"), good.value("postern-revocable-by")),
        (None, None),
        "nobody tells of it"
    );
    assert_eq!(f.get("/open").value("cache-control"), Some("max-age=20, must-revalidate"));
    // Not longer than its credential, which stays valid for half a minute.
    let token = f.issuer.token(|claims| claims["exp"] = (dataplane::harness::now() - 20).into());
    let short = f.send(head("GET /x", &format!("Authorization: Bearer {token}\r\n")));
    let age = short
        .value("cache-control")
        .and_then(|value| value.strip_prefix("max-age=")?.split(',').next()?.parse().ok());
    assert!(matches!(age, Some(5..=10)), "{}", short.head);
    for refused in [f.send(head("GET /x", "")), f.send(head("GET /x", "Authorization: Bearer x\r\n"))] {
        assert_eq!((refused.status, refused.value("cache-control")), (401, Some("no-store")));
    }
    // Not longer than an assertion in the response.
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let signer = Signer::generate(SigningAlgorithm::Es256).unwrap();
    std::fs::write(dir.path().join("assertion.pem"), signer.to_pkcs8_pem().unwrap().as_ref()).unwrap();
    let more = "[assertion]\nkey = \"assertion.pem\"\nissuer = \"https://edge\"\nlifetime = \"20s\"\n\
                [[route]]\nname = \"by-tenant\"\npath = { prefix = \"/t\" }\nheaders = { x-tenant = \"blue\" }\n\
                upstream = \"backend\"\npublic = true\n";
    let listener = "authorization = { from = [\"127.0.0.1\"], http = \"envoy\", max_age = \"20s\" }".into();
    let text = Setup { listener, more: more.into(), ..Setup::default() }.file(dir.path(), upstream.address);
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    let good = f.get("/x");
    assert_eq!(good.value("cache-control"), Some("max-age=5, must-revalidate"));
    assert_eq!(
        good.value("vary"),
        Some("Authorization, Cookie, x-tenant"),
        "what chooses a route decides as well"
    );
}

#[test]
fn a_unix_socket_leads_to_an_authorizer_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, lines) = (asked.clone(), Arc::new(Mutex::new(Vec::new())));
    let heard = lines.clone();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut head = [0; 4096];
            while let Ok(n @ 1..) = std::io::Read::read(&mut socket, &mut head) {
                count.fetch_add(1, Ordering::SeqCst);
                heard.lock().unwrap().push(String::from_utf8_lossy(&head[..n]).into_owned());
                if socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                    break;
                }
            }
        }
    });
    let more = tables(&format!("unix:{}", path.display()), "");
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    assert_eq!([get(&f, "").status, get(&f, "").status], [200; 2]);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(lines.lock().unwrap()[0].contains("host: app.test\r\n"));
}

#[test]
fn questions_travel_over_http2_as_well() {
    // Postern accepts HTTP/2 with prior knowledge.
    let authorizer = postern("http = \"envoy\"", "");
    let more = tables_with(&format!("http://{}", authorizer.address), "protocol = \"h2\"", "");
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    let token = authorizer.issuer.token(|_| {});
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let posted = f.send(head("POST /asked?a=\"b\"", &format!("{bearer}Content-Length: 2\r\n")) + "hi");
    assert_eq!((posted.status, get(&f, "").status), (200, 401));
    let served = f.upstream.only();
    assert_eq!((served.values("x-forwarded-user"), served.body.as_slice()), (vec!["alice"], &b"hi"[..]));
}

#[test]
fn a_stream_that_an_authorizer_let_in_lasts() {
    let authorizer = saying("200 OK", &["Cache-Control: max-age=1"], "");
    let service = Upstream::answering(|_: &Seen, socket| {
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        (0..20).all(|_| {
            std::thread::sleep(Duration::from_millis(100));
            socket.write_all(b"4\r\ndata\r\n").is_ok()
        });
        socket.write_all(b"0\r\n\r\n").is_ok()
    });
    let more = tables(&format!("http://{}", authorizer.address), "");
    let f = Fixture::with(Setup { more, ..Setup::default() }, service);
    assert_eq!(get(&f, "").body.len(), 80, "what is not told to be over is not cut");
}
