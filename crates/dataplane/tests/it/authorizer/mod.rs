//! External authorizers are queried before a request is forwarded.

mod protocols;

mod cache;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use dataplane::harness::{Fixture, Response, Setup, Upstream, until};
use dataplane::ports::free;

/// Sends a response: the rest of the status line, field lines, and a body.
fn say(socket: &mut TcpStream, status: &str, fields: &[&str], body: &str) -> bool {
    let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for field in fields {
        text.push_str(field);
        text.push_str("\r\n");
    }
    socket.write_all(format!("{text}\r\n{body}").as_bytes()).is_ok()
}

/// An authorizer that gives this response to every query.
fn saying(status: &'static str, fields: &'static [&'static str], body: &'static str) -> Upstream {
    Upstream::answering(move |_, socket| say(socket, status, fields, body))
}

/// Tables of an authorizer, and of a route `/asked` that is otherwise public.
fn tables(endpoint: &str, more: &str) -> String {
    tables_with(endpoint, "", more)
}

fn tables_with(endpoint: &str, upstream: &str, more: &str) -> String {
    format!(
        r#"
[[upstream]]
name = "auth"
endpoints = ["{endpoint}"]
{upstream}
[[authorizer]]
name = "other"
upstream = "auth"
{more}
[[route]]
name = "asked"
path = {{ prefix = "/asked" }}
upstream = "backend"
public = true
authorizer = "other"
"#
    )
}

fn asking_at(address: SocketAddr, more: &str) -> Fixture {
    let more = tables(&format!("http://{address}"), more);
    Fixture::with(Setup { more, ..Setup::default() }, Upstream::start())
}

fn asking(authorizer: &Upstream, more: &str) -> Fixture {
    asking_at(authorizer.address, more)
}

/// A request head without a token.
fn head(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n")
}

fn get(f: &Fixture, fields: &str) -> Response {
    f.send(head("GET /asked/x?y=1", fields))
}

fn counted(f: &Fixture, result: &str) -> f64 {
    f.counted(&format!("postern_authorizer_requests_total{{authorizer=\"other\",result=\"{result}\"}}"))
}

#[test]
fn a_request_passes_when_the_authorizer_says_so() {
    let authorizer = saying("200 OK", &[], "");
    let f = asking(&authorizer, "path_prefix = \"/check\"");
    let fields = "Authorization: Bearer x\r\nCookie: a=b\r\nX-Secret: s\r\nContent-Length: 4\r\n";
    let passed = f.send(head("POST /asked/x?y=%20z", fields) + "body");
    assert_eq!((passed.status, passed.text().as_str()), (200, "ok"));
    let question = authorizer.only();
    assert_eq!(question.line(), "POST /check/asked/x?y=%20z HTTP/1.1");
    for (name, value) in [
        ("host", "app.test"),
        ("authorization", "Bearer x"),
        ("cookie", "a=b"),
        ("content-length", "0"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "app.test"),
    ] {
        assert_eq!(question.values(name), [value], "{name}");
    }
    assert!(question.body.is_empty() && question.values("x-secret").is_empty());
    let served = f.upstream.only();
    assert_eq!((served.line(), served.body.as_slice()), ("POST /asked/x?y=%20z HTTP/1.1", &b"body"[..]));
    assert!(served.values("authorization").is_empty(), "that is for the authorizer");
    assert_eq!(counted(&f, "allowed"), 1.0);
}

#[test]
fn an_authorizer_is_queried_about_every_reading_of_the_path() {
    let authorizer = Upstream::answering(|seen, socket| {
        let private = seen.line().starts_with("GET /check/asked/private");
        say(socket, if private { "403 Forbidden" } else { "200 OK" }, &[], "")
    });
    let f = asking(&authorizer, "path_prefix = \"/check\"");
    assert_eq!(f.send(head("GET /asked/x%2fprivate", "")).status, 200);
    let asked: Vec<_> = authorizer.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(asked, ["GET /check/asked/x%2fprivate HTTP/1.1", "GET /check/asked/x/private HTTP/1.1"]);
    assert_eq!(f.upstream.only().line(), "GET /asked/x%2fprivate HTTP/1.1");
    // Permitted as it is, and not as some servers read it.
    assert_eq!(f.send(head("GET /asked/x%2f..%2fprivate/y", "")).status, 403);
    assert_eq!(f.send(head("GET /asked//private", "")).status, 403);
    // The upstream may read another query than the authorizer.
    assert_eq!(f.send(head("GET /asked/x%3Fy=2?y=1", "")).status, 400);
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn every_other_answer_is_the_clients() {
    for (status, fields, body) in [
        ("401 Unauthorized", &["WWW-Authenticate: Bearer realm=\"there\""][..], "who?"),
        ("403 Forbidden", &["Content-Type: text/plain"], "no"),
        ("302 Found", &["Location: /oauth2/start?rd=%2Fasked", "Set-Cookie: a=1", "Set-Cookie: b=2"], ""),
        ("404 Not Found", &[], "nothing"),
        ("429 Too Many Requests", &["Retry-After: 7"], ""),
        ("500 Internal Server Error", &[], "broken"),
        ("503 Service Unavailable", &[], "later"),
    ] {
        let authorizer = saying(status, fields, body);
        let f = asking(&authorizer, "");
        let answer = get(&f, "");
        assert!(answer.head.starts_with(&format!("HTTP/1.1 {}", &status[..3])), "{}", answer.head);
        assert_eq!(answer.text(), body);
        for field in fields {
            assert!(answer.head.to_lowercase().contains(&field.to_lowercase()), "{field}: {}", answer.head);
        }
        assert_eq!(answer.value("cache-control"), Some("no-store"));
        assert!(f.upstream.seen().is_empty(), "{status}");
        let result = if status.starts_with('5') { "failed" } else { "refused" };
        assert_eq!(counted(&f, result), 1.0, "{status}");
    }
}

#[test]
fn who_calls_is_said_by_the_authorizer_and_by_nobody_else() {
    let fields = &[
        "X-Auth-Request-User: ada",
        "X-Forwarded-Groups: dev,ops",
        "X-Auth-Request-Email:",
        "X-Admin: yes",
        "Postern-Revocable: x",
    ];
    let authorizer = saying("202 Accepted", fields, "");
    let f = asking(&authorizer, "");
    let forged = "X-Auth-Request-User: root\r\nx_auth_request_user: root\r\nX-Auth-Request-Email: root@a\r\n\
                  X-Forwarded-User: root\r\nX-Forwarded-Groups: admins\r\nX-Postern-Assertion: forged\r\n\
                  Connection: x-auth-request-user\r\n";
    assert_eq!(get(&f, forged).status, 200);
    let served = f.upstream.only();
    assert_eq!(served.values("x-auth-request-user"), ["ada"]);
    assert_eq!(served.values("x-forwarded-groups"), ["dev,ops"]);
    let wrong = ["root", "admins", "forged", "x-admin", "postern-revocable"];
    assert!(!wrong.iter().any(|word| served.head.to_lowercase().contains(word)), "{}", served.head);
    let question = authorizer.only();
    assert!(!question.head.contains("root"), "nor is it told what clients say: {}", question.head);
    // The same holds for other routes.
    assert_eq!(f.send(head("GET /open", forged)).status, 200);
    assert!(!f.upstream.seen()[1].head.contains("root"));
}

#[test]
fn what_is_given_is_configured_and_comes_from_nobody_else() {
    let authorizer = saying("200 OK", &["X-Tenant: blue", "X-Auth-Request-User: ada"], "");
    let f = asking(&authorizer, "response_headers = [\"X-Tenant\"]\nrequest_headers = [\"X-Key\"]");
    assert_eq!(get(&f, "X-Tenant: red\r\nX_Tenant: red\r\nX-Key: k\r\nCookie: a=b\r\n").status, 200);
    let (served, question) = (f.upstream.only(), authorizer.only());
    assert_eq!((served.values("x-tenant"), served.head.contains("red")), (vec!["blue"], false));
    assert!(served.values("x-auth-request-user").is_empty());
    assert_eq!((question.values("x-key"), question.values("cookie")), (vec!["k"], vec![]));
    assert_eq!(f.send(head("GET /open", "X-Tenant: red\r\n")).status, 200);
    assert!(!f.upstream.seen()[1].head.contains("red"), "on no route");
}

#[test]
fn what_a_route_sets_or_removes_comes_after_the_answer() {
    let authorizer = saying("200 OK", &["X-Plan: paid", "X-Tenant: blue", "X-Zone: north"], "");
    let names = "response_headers = [\"X-Plan\", \"X-Tenant\", \"X-Zone\"]";
    let more = tables(&format!("http://{}", authorizer.address), names)
        + "request_headers = { set = { X-Plan = \"free\" }, add = { X-Tenant = \"too\" }, remove = [\"X_Zone\"] }\n";
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    assert_eq!(get(&f, "").status, 200);
    let served = f.upstream.only();
    assert_eq!(served.values("x-plan"), ["free"]);
    assert_eq!(served.values("x-tenant"), ["blue", "too"]);
    assert!(served.values("x-zone").is_empty(), "{}", served.head);
}

#[test]
fn a_token_for_the_service_stands_in_place_of_the_clients() {
    let authorizer = Upstream::answering(|seen, socket| {
        let fields: &[&str] = match seen.values("authorization")[..] {
            ["Bearer known"] => &["Authorization: Bearer for-the-service", "Authorization_: x"],
            _ => &[],
        };
        say(socket, "200 OK", fields, "")
    });
    let f = asking(&authorizer, "response_headers = [\"Authorization\"]");
    for (shown, given) in [("known", vec!["Bearer for-the-service"]), ("other", vec![])] {
        let fields = format!("Authorization: Bearer {shown}\r\nConnection: authorization\r\n");
        assert_eq!(get(&f, &fields).status, 200);
        let served = f.upstream.seen().pop().unwrap();
        assert_eq!(served.values("authorization"), given, "{}", served.head);
        assert!(!served.head.contains("uthorization_"), "{}", served.head);
    }
    // Without an authorizer, only the route decides whether the client's field is forwarded.
    let more = tables(&format!("http://{}", authorizer.address), "response_headers = [\"Authorization\"]");
    let more = more.replace("[[route]]", "[[route]]\nname = \"own\"\npath = { prefix = \"/own\" }\nupstream = \"backend\"\npublic = true\nforward_authorization = true\n[[route]]");
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    assert_eq!(f.send(head("GET /own", "Authorization: Bearer mine\r\n")).status, 200);
    assert_eq!(f.upstream.only().values("authorization"), ["Bearer mine"]);
}

/// Checks the gateway's response when the authorizer gives none.
fn is_unavailable(f: &Fixture, result: &str) {
    let answer = get(f, "");
    assert_eq!((answer.status, answer.value("retry-after")), (503, Some("1")), "{result}: {}", answer.text());
    assert!(answer.text().contains("authorizer_unavailable"), "{}", answer.text());
    assert!(f.upstream.seen().is_empty());
    assert_eq!(counted(f, result), 1.0, "{result}");
    let series = "postern_requests_total{route=\"asked\",outcome=\"auth_unavailable\",class=\"5xx\"}";
    assert_eq!(f.counted(series), 1.0, "{result}");
}

#[test]
fn an_authorizer_that_cannot_be_reached_lets_nobody_in() {
    let gone = free().parse().unwrap();
    is_unavailable(&asking_at(gone, ""), "unreachable");
    is_unavailable(&asking(&Upstream::answering(|_, _| false), ""), "unreachable");
}

#[test]
fn an_authorizer_that_takes_too_long_lets_nobody_in() {
    let slow = Upstream::answering(|_, socket| {
        std::thread::sleep(Duration::from_secs(3));
        say(socket, "200 OK", &[], "")
    });
    is_unavailable(&asking(&slow, "timeout = \"150ms\""), "timeout");
    // An incomplete response is not a response.
    let dripping = Upstream::answering(|_, socket| {
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n");
        (0..50).all(|_| {
            std::thread::sleep(Duration::from_millis(60));
            socket.write_all(b"x").is_ok()
        })
    });
    is_unavailable(&asking(&dripping, "timeout = \"150ms\""), "timeout");
}

#[test]
fn an_answer_that_cannot_be_read_lets_nobody_in() {
    let large = "x".repeat(70 << 10);
    let answers = [
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 1\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nno colon\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "nonsense\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned(),
        "HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-large: {large}\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", "a: b\r\n".repeat(300)),
        format!("HTTP/1.1 403 No\r\ncontent-length: {}\r\n\r\n{}", 300 << 10, "x".repeat(300 << 10)),
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-auth-request-user: ada\r\nX-Auth-Request-User: root\r\n\r\n".to_owned(),
        "HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: /\u{e9}\r\n\r\n".replace('\u{e9}', "\u{0}"),
    ];
    for text in answers {
        let shown = text.chars().take(60).collect::<String>();
        let broken = Upstream::answering(move |_, socket| socket.write_all(text.as_bytes()).is_ok());
        let f = asking(&broken, "");
        let answer = get(&f, "");
        assert_eq!(answer.status, 503, "{shown:?}: {}", answer.text());
        assert!(f.upstream.seen().is_empty());
        assert_eq!(counted(&f, "malformed"), 1.0, "{shown:?}");
    }
}

#[test]
fn one_that_is_asked_too_much_is_not_asked_more() {
    let (go, gate) = channel();
    let gate = Mutex::new(gate);
    let slow = Upstream::answering(move |_, socket| {
        gate.lock().unwrap().recv().is_ok() && say(socket, "200 OK", &[], "")
    });
    let more = tables_with(&format!("http://{}", slow.address), "max_requests = 1", "timeout = \"10s\"");
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    let mut first = f.connect();
    first.send(head("GET /asked/1", ""));
    until("the first one is asked about", || slow.seen().len() == 1);
    assert_eq!(f.send(head("GET /asked/2", "")).status, 503);
    go.send(()).unwrap();
    assert_eq!(first.response().status, 200);
    assert_eq!((counted(&f, "busy"), slow.seen().len()), (1.0, 1));
}

#[test]
fn a_cookie_that_comes_with_leave_reaches_the_client() {
    let fields = &["Set-Cookie: session=2; HttpOnly", "Set-Cookie: csrf=3", "Cache-Control: max-age=9"];
    let authorizer = saying("202 Accepted", fields, "");
    let f = asking(&authorizer, "");
    for _ in 0..2 {
        let answer = get(&f, "Cookie: session=1\r\n");
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
        assert!(
            answer.head.contains("session=2; HttpOnly") && answer.head.contains("csrf=3"),
            "{}",
            answer.head
        );
        assert_eq!(answer.value("cache-control"), Some("private"));
    }
    assert_eq!(authorizer.seen().len(), 2, "a cookie is for one answer");
}

/// Acts like oauth2-proxy at `/oauth2/auth`: 202 with the user's name for a logged-in user, else
/// 401.
fn oauth2_proxy() -> Upstream {
    Upstream::answering(|seen, socket| {
        if seen.line() != "GET /oauth2/auth HTTP/1.1" {
            return say(socket, "404 Not Found", &[], "");
        }
        match seen.values("cookie")[..] {
            ["_oauth2_proxy=ada"] => say(
                socket,
                "202 Accepted",
                &["X-Auth-Request-User: ada-id", "X-Auth-Request-Email: ada@example.com"],
                "",
            ),
            _ => say(socket, "401 Unauthorized", &[], "Unauthorized\n"),
        }
    })
}

#[test]
fn oauth2_proxy_is_asked_at_its_own_address() {
    for (way, method, uri) in [
        ("x-original", "x-original-method", "x-original-uri"),
        ("x-forwarded", "x-forwarded-method", "x-forwarded-uri"),
    ] {
        let authorizer = oauth2_proxy();
        let f = asking(&authorizer, &format!("http = \"{way}\"\npath = \"/oauth2/auth\""));
        let delete = |cookie: &str| {
            f.send(head("DELETE /asked/x?y=1", &format!("Cookie: {cookie}\r\n{method}: GET\r\n")))
        };
        assert_eq!(delete("_oauth2_proxy=ada").status, 200);
        assert_eq!(delete("_oauth2_proxy=bob").status, 401);
        let (served, question) = (f.upstream.only(), &authorizer.seen()[0]);
        assert_eq!(served.values("x-auth-request-email"), ["ada@example.com"]);
        assert_eq!((question.values(method), question.values(uri)), (vec!["DELETE"], vec!["/asked/x?y=1"]));
        assert_eq!((question.values("host"), question.values("content-length")), (vec!["app.test"], vec![]));
    }
}

#[test]
fn our_own_decision_comes_first() {
    let authorizer = Upstream::answering(|seen, socket| match seen.line() {
        line if line.contains("/named") => say(socket, "200 OK", &["X-Forwarded-User: ada"], ""),
        line if line.contains("/no") => say(socket, "403 Forbidden", &[], ""),
        _ => say(socket, "200 OK", &[], ""),
    });
    let more = tables(&format!("http://{}", authorizer.address), "");
    let route = "authorizer = \"other\"".to_owned();
    let f = Fixture::with(Setup { route, more, ..Setup::default() }, Upstream::start());
    assert_eq!(f.send(head("GET /x", "")).status, 401);
    let guest = f.issuer.token(|claims| claims["groups"] = serde_json::json!(["guests"]));
    assert_eq!(f.send(head("GET /x", &format!("Authorization: Bearer {guest}\r\n"))).status, 403);
    assert!(authorizer.seen().is_empty(), "it is not asked about what does not pass anyway");
    assert_eq!(f.get("/no").status, 403);
    assert!(f.upstream.seen().is_empty());
    assert_eq!([f.get("/x").status, f.get("/named").status], [200; 2]);
    let seen = f.upstream.seen();
    assert_eq!(
        (seen[0].values("x-forwarded-user"), seen[0].values("x-forwarded-email").len()),
        (vec!["alice"], 1)
    );
    // Two headers that identify the caller could differ.
    assert_eq!(
        (seen[1].values("x-forwarded-user"), seen[1].values("x-forwarded-email").len()),
        (vec!["ada"], 0)
    );
}

#[test]
fn a_rewrite_does_not_lead_around_an_authorizer() {
    let authorizer = Upstream::answering(|seen, socket| match seen.line() {
        line if line.contains(" /inner/secret ") => say(socket, "403 Forbidden", &[], "inner"),
        _ => say(socket, "200 OK", &["X-Auth-Request-User: ada"], ""),
    });
    let more = tables(&format!("http://{}", authorizer.address), "")
        + r#"
[[route]]
name = "inner"
path = { prefix = "/inner" }
upstream = "backend"
public = true
authorizer = "other"
[[route]]
name = "outer"
path = { prefix = "/outer" }
strip_prefix = "/outer"
upstream = "backend"
public = true
"#;
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    assert_eq!(f.send(head("GET /outer/open/x", "")).status, 200);
    assert!(authorizer.seen().is_empty());
    let refused = f.send(head("GET /outer/inner/secret", ""));
    assert_eq!((refused.status, refused.text().as_str()), (403, "inner"));
    assert_eq!(f.send(head("GET /outer/inner/x", "")).status, 200);
    let lines: Vec<_> = authorizer.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines, ["GET /inner/secret HTTP/1.1", "GET /inner/x HTTP/1.1"]);
    let served = f.upstream.seen();
    assert_eq!((served.len(), served[1].line()), (2, "GET /inner/x HTTP/1.1"));
}

#[test]
fn two_credentials_are_none() {
    let authorizer = saying("200 OK", &[], "");
    let f = asking(&authorizer, "");
    let answer = get(&f, "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n");
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(authorizer.seen().is_empty() && f.upstream.seen().is_empty());
}
