//! Other proxies query over HTTP whether a request may pass.

use dataplane::harness::{Fixture, Response, Setup, Upstream};

fn asked(authorization: &str) -> Fixture {
    let listener = format!("authorization = {{ from = [\"127.0.0.1/32\"], {authorization} }}");
    Fixture::with(Setup { listener, ..Setup::default() }, Upstream::start())
}

/// Sends a query with these lines, with or without alice's token.
fn ask(f: &Fixture, request_line: &str, lines: &[&str], token: bool) -> Response {
    let mut head = format!("{request_line} HTTP/1.1\r\nHost: app.test\r\n");
    if token {
        for part in ["Authorization: Bearer ", &f.issuer.token(|_| {}), "\r\n"] {
            head.push_str(part);
        }
    }
    for line in lines {
        head.push_str(line);
        head.push_str("\r\n");
    }
    f.send(head + "\r\n")
}

const FORWARDED: [&str; 4] = [
    "X-Forwarded-Method: GET",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: app.test",
    "X-Forwarded-Uri: /a?b=c",
];

#[test]
fn whoever_may_is_named_and_whoever_may_not_is_told() {
    let f = asked(r#"http = "x-forwarded""#);
    let good = ask(&f, "GET /", &FORWARDED, true);
    assert_eq!((good.status, good.body.as_slice()), (200, b"".as_slice()), "{good:?}");
    assert_eq!(good.value("x-forwarded-user"), Some("alice"));
    assert_eq!(good.value("x-forwarded-groups"), Some("dev,ops"));
    assert_eq!(good.value("cache-control"), Some("no-store"));
    let nobody = ask(&f, "GET /", &FORWARDED, false);
    assert_eq!((nobody.status, nobody.value("x-forwarded-user")), (401, None));
    assert_eq!(nobody.value("www-authenticate"), Some("Bearer realm=\"postern\""));
    let token = f.issuer.token(|claims| claims["groups"] = serde_json::json!(["guests"]));
    let bearer = format!("Authorization: Bearer {token}");
    let lines: Vec<&str> = FORWARDED.iter().copied().chain([bearer.as_str()]).collect();
    let refused = ask(&f, "GET /", &lines, false);
    assert_eq!(refused.status, 403);
    assert!(f.upstream.seen().is_empty(), "nothing is ever forwarded here");
}

#[test]
fn the_request_in_question_decides_and_not_the_asking() {
    let f = asked(r#"http = "x-forwarded""#);
    let open = ["X-Forwarded-Method: GET", "X-Forwarded-Host: app.test", "X-Forwarded-Uri: /open/x"];
    assert_eq!(ask(&f, "GET /", &open, false).status, 200);
    assert_eq!(ask(&f, "GET /open", &FORWARDED, false).status, 401, "asked at an open path about another");
    for uri in ["/open/../secret", "/open%2f..%2fsecret", "//evil/open", "/open\\x", "/open/%2e%2e/secret"] {
        let uri = format!("X-Forwarded-Uri: {uri}");
        let lines = ["X-Forwarded-Method: GET", "X-Forwarded-Host: app.test", uri.as_str()];
        assert_eq!(ask(&f, "GET /", &lines, false).status, 400, "{uri}");
    }
}

#[test]
fn what_the_proxy_does_not_set_is_cleared() {
    let f = asked(r#"http = "x-forwarded""#);
    let anonymous = [
        "X-Forwarded-Method: GET",
        "X-Forwarded-Host: app.test",
        "X-Forwarded-Uri: /open",
        "X-Forwarded-User: root",
    ];
    let answer = ask(&f, "GET /", &anonymous, false);
    assert_eq!(answer.status, 200);
    for name in
        ["x-forwarded-user", "x-forwarded-email", "x-forwarded-groups", "x-forwarded-preferred-username"]
    {
        assert_eq!(answer.value(name), Some(""), "{name} is there to be put in place of the client's");
    }
    // A proxy that replaces fields by name would let these pass.
    for alias in ["X_Forwarded_User: root", "X-Forwarded_User: root", "X!Forwarded!User: root"] {
        let lines: Vec<&str> = FORWARDED.iter().copied().chain([alias]).collect();
        let answer = ask(&f, "GET /", &lines, true);
        assert_eq!(answer.status, 400, "{alias}");
        assert!(answer.text().contains("identity_look_alike"), "{}", answer.text());
    }
}

#[test]
fn nobody_asks_who_is_not_configured_to() {
    let listener = "authorization = { from = [\"192.0.2.0/24\"], http = \"x-forwarded\" }";
    let f = Fixture::with(Setup { listener: listener.into(), ..Setup::default() }, Upstream::start());
    let answer = ask(&f, "GET /", &FORWARDED, true);
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("untrusted_peer"), "{}", answer.text());
}

#[test]
fn a_question_without_a_subject_is_refused() {
    let f = asked(r#"http = "x-forwarded""#);
    for missing in 0..4 {
        let lines: Vec<&str> =
            FORWARDED.iter().enumerate().filter(|(i, _)| *i != missing).map(|(_, line)| *line).collect();
        let answer = ask(&f, "GET /open", &lines, true);
        // Only the scheme may be missing, because it affects no decision.
        assert_eq!(answer.status, if missing == 1 { 200 } else { 400 }, "{lines:?}");
    }
    let twice: Vec<&str> = FORWARDED.iter().copied().chain(["X-Forwarded-Uri: /open"]).collect();
    let answer = ask(&f, "GET /", &twice, false);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("X-Forwarded-Uri is repeated"), "{}", answer.text());
}

#[test]
fn nginx_asks_with_its_own_headers() {
    let f = asked(r#"http = "x-original""#);
    let about = |uri| ["X-Original-Method: GET", uri];
    assert_eq!(ask(&f, "GET /auth", &about("X-Original-URI: /open"), false).status, 200);
    assert_eq!(ask(&f, "GET /auth", &about("X-Original-URI: /secret"), false).status, 401);
    assert_eq!(ask(&f, "GET /auth", &about("X-Original-URI: /secret"), true).status, 200);
    assert_eq!(ask(&f, "GET /auth", &about("X-Original-URL: https://app.test/open"), false).status, 200);
    assert_eq!(ask(&f, "GET /open", &FORWARDED, true).status, 400, "those are another proxy's headers");
}

#[test]
fn envoy_asks_with_the_request_itself() {
    let f = asked(r#"http = "envoy", path_prefix = "/check""#);
    assert_eq!(ask(&f, "GET /check/open/x", &[], false).status, 200);
    assert_eq!(ask(&f, "GET /check/secret", &[], false).status, 401);
    assert_eq!(ask(&f, "GET /check/secret", &[], true).status, 200);
    assert_eq!(ask(&f, "GET /open/x", &[], true).status, 400, "without the prefix");
    // The body that the filter sends is ignored.
    let token = f.issuer.token(|_| {});
    let post = format!(
        "POST /check/secret HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\nContent-Length: 5\r\n\r\nhello"
    );
    let mut client = f.connect();
    client.send(&post);
    assert_eq!(client.response().status, 200);
    client.send(&post);
    assert_eq!(client.response().status, 200, "the connection goes on");
}
