//! Tokens that only a token authority can validate: introspection, `TokenReview`, `OpenShift`.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::time::Timestamp;
use http_engine::clock::ManualClock;
use serde_json::{Value, json};

use dataplane::harness::{Fixture, Issuer, Response, Seen, Setup, Upstream, now, until};

/// An authority that answers with this status and body.
fn says(status: u16, body: &'static str) -> Upstream {
    Upstream::answering(move |_, socket| answer(socket, status, body))
}

fn answer(socket: &mut TcpStream, status: u16, body: &str) -> bool {
    answer_as(socket, status, "application/json", body)
}

fn answer_as(socket: &mut TcpStream, status: u16, kind: &str, body: &str) -> bool {
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}");
    socket.write_all(text.as_bytes()).is_ok()
}

const ALICE: &str =
    r#"{"active":true,"sub":"alice-id","username":"alice","aud":"api","groups":["dev"],"exp":4102444800}"#;

/// A gateway that introspects tokens at this authority.
fn introspecting(authority: &Upstream, more: &str) -> Fixture {
    asking(&format!(
        "[[token_authority]]\nname = \"id\"\nkind = \"introspection\"\nurl = \"http://{}/introspect\"\naudiences = [\"api\"]\n\
         client_id = \"gate way\"\nclient_secret_file = \"secret\"\n{more}",
        authority.address
    ))
}

fn asking(more: &str) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("secret"), "s:e%c\n").unwrap();
    std::fs::write(dir.path().join("token"), "account-token\n").unwrap();
    let text = Setup { more: more.into(), ..Setup::default() }.file(dir.path(), upstream.address);
    Fixture::from_text(dir, issuer, upstream, &text)
}

fn with(f: &Fixture, token: &str) -> Response {
    f.send(format!("GET /a HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"))
}

fn body(seen: &Seen) -> String {
    String::from_utf8(seen.body.clone()).unwrap()
}

#[test]
fn an_active_token_is_asked_about_once_and_names_its_holder() {
    let authority = says(200, ALICE);
    let f = introspecting(&authority, "");
    for _ in 0..3 {
        assert_eq!(with(&f, "opaque+1/x").status, 200);
    }
    let asked = authority.only();
    assert_eq!(asked.line(), "POST /introspect HTTP/1.1");
    assert_eq!(asked.values("content-type"), ["application/x-www-form-urlencoded"]);
    assert_eq!(body(&asked), "token=opaque%2B1%2Fx&token_type_hint=access_token");
    // base64 of `gate+way:s%3Ae%25c`: RFC 6749 section 2.3.1 encodes both parts.
    assert_eq!(asked.values("authorization"), ["Basic Z2F0ZSt3YXk6cyUzQWUlMjVj"]);
    let seen = f.upstream.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].values("x-forwarded-user"), ["alice"]);
    assert!(seen[0].values("authorization").is_empty());
    // A request is counted when it ends, which may be after its response.
    until("both hits are counted", || {
        (f.counted(r#"postern_cache_lookups_total{result="hit"}"#) - 2.0).abs() < 0.1
    });
}

#[test]
fn what_is_not_active_here_is_the_clients_fault() {
    for (answer, code) in [
        (r#"{"active":false}"#, "inactive"),
        (r#"{"active":true,"sub":"a","aud":"else","exp":4102444800}"#, "wrong_audience"),
        (r#"{"active":true,"sub":"a","exp":4102444800}"#, "missing_claim"),
        (r#"{"active":true,"aud":"api","exp":4102444800}"#, "missing_claim"),
        (r#"{"active":true,"sub":"a","aud":"api","exp":1}"#, "expired"),
        (r#"{"active":true,"sub":"a","aud":"api","token_use":"refresh_token"}"#, "not_an_access_token"),
    ] {
        let authority = says(200, answer);
        let f = introspecting(&authority, "");
        let refused = with(&f, "opaque");
        assert_eq!(refused.status, 401, "{answer}");
        assert!(refused.text().contains(&format!("\"{code}\"")), "{answer}: {}", refused.text());
        assert!(refused.value("www-authenticate").unwrap().contains("invalid_token"));
        assert_eq!(with(&f, "opaque").status, 401);
        assert_eq!(authority.seen().len(), 1, "remembered for a moment");
        assert!(f.upstream.seen().is_empty());
    }
}

#[test]
fn an_answer_that_says_nothing_lets_nobody_in_and_is_not_remembered() {
    for (status, answer) in [
        (200, "{}"),
        (200, r#"{"active":"true","sub":"a","aud":"api"}"#),
        (200, r#"{"active":true,"active":false}"#),
        (200, "<html>"),
        (200, ""),
        (401, r#"{"error":"invalid_client"}"#),
        (403, "{}"),
        (404, "{}"),
        (302, r#"{"active":true,"sub":"a","aud":"api"}"#),
        (500, r#"{"active":true,"sub":"a","aud":"api"}"#),
    ] {
        let authority = says(status, answer);
        let f = introspecting(&authority, "");
        let first = with(&f, "opaque");
        assert_eq!((first.status, first.value("retry-after")), (503, Some("1")), "{status} {answer}");
        assert!(first.text().contains("auth_unavailable"));
        assert_eq!(with(&f, "opaque").status, 503);
        assert_eq!(authority.seen().len(), 2, "{status} {answer}: asked again");
        assert!(f.upstream.seen().is_empty());
    }
}

#[test]
fn a_review_that_says_yes_and_that_it_could_not_be_made_lets_nobody_in() {
    let contradicts = r#"{"kind":"TokenReview","status":{"authenticated":true,"user":{"username":"alice","groups":["dev"]},"error":"the webhook timed out"}}"#;
    let authority = says(201, contradicts);
    let f = asking(&format!(
        "[[token_authority]]\nname = \"k8s\"\nkind = \"token-review\"\nurl = \"http://{}/\"\nany_audience = true\ntoken_file = \"token\"\nwatch = false",
        authority.address
    ));
    for asked in 1..=2 {
        let refused = with(&f, "opaque");
        assert_eq!((refused.status, refused.value("retry-after")), (503, Some("1")), "{}", refused.text());
        assert_eq!(authority.seen().len(), asked, "asked again");
    }
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn an_authority_that_is_down_or_slow_is_not_waited_for_long() {
    let f = asking(
        "[[token_authority]]\nname = \"id\"\nkind = \"introspection\"\nurl = \"http://127.0.0.1:1/x\"\nany_audience = true",
    );
    assert_eq!(with(&f, "opaque").status, 503);
    let silent = Upstream::answering(|_, _| {
        std::thread::sleep(Duration::from_secs(30));
        false
    });
    let f = introspecting(&silent, "timeout = \"100ms\"");
    let began = std::time::Instant::now();
    assert_eq!(with(&f, "opaque").status, 503);
    assert!(began.elapsed() < Duration::from_secs(9), "the authority itself takes 30 s");
    let cut = Upstream::answering(|_, socket| {
        let _ = socket.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 500\r\n\r\n{\"active\":true");
        false
    });
    let f = introspecting(&cut, "");
    assert_eq!(with(&f, "opaque").status, 503);
}

#[test]
fn an_answer_is_believed_for_its_time_and_no_longer() {
    let authority = says(200, ALICE);
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let more = format!(
        "[[token_authority]]\nname = \"id\"\nkind = \"introspection\"\nurl = \"http://{}/\"\naudiences = [\"api\"]\nttl = \"5s\"",
        authority.address
    );
    let text = Setup { more, ..Setup::default() }.file(dir.path(), upstream.address);
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let f = Fixture::observed(dir, issuer, upstream, &text, clock.clone(), None);
    for (advance, asked) in [(0, 1), (4, 1), (2, 2), (4, 2)] {
        clock.advance(Duration::from_secs(advance));
        assert_eq!(with(&f, "opaque").status, 200);
        assert_eq!(authority.seen().len(), asked, "after {advance} s more");
    }
}

#[test]
fn each_token_is_shown_to_one_authority_and_jwts_of_issuers_to_none() {
    let (a, b, rest) = (says(200, ALICE), says(200, ALICE), says(200, ALICE));
    let one = |name: &str, at: &Upstream, more: &str| {
        format!(
            "[[token_authority]]\nname = \"{name}\"\nkind = \"introspection\"\nurl = \"http://{}/\"\nany_audience = true\n{more}\n",
            at.address
        )
    };
    let f = asking(&format!(
        "{}{}{}",
        one("a", &a, "prefixes = [\"sha256~\", \"x-\"]"),
        one("b", &b, "prefixes = [\"x-y-\"]\nissuers = [\"https://elsewhere.test\"]"),
        one("rest", &rest, "")
    ));
    assert_eq!(with(&f, "sha256~abc").status, 200);
    assert_eq!(with(&f, "x-abc").status, 200);
    assert_eq!(with(&f, "x-y-abc").status, 200, "the longest prefix counts");
    assert_eq!(with(&f, "whatever").status, 200);
    let foreign = f.issuer.token(|claims| claims["iss"] = "https://elsewhere.test".into());
    assert_eq!(with(&f, &foreign).status, 200);
    let unknown = f.issuer.token(|claims| claims["iss"] = "https://nobody.test".into());
    assert_eq!(with(&f, &unknown).status, 401, "a JWT of nobody is asked of nobody");
    assert_eq!(f.get("/a").status, 200, "one of a configured issuer neither");
    let tokens = |u: &Upstream| {
        u.seen().iter().map(|s| body(s).split('&').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tokens(&a), ["token=sha256%7Eabc", "token=x-abc"]);
    assert_eq!(tokens(&b), ["token=x-y-abc".to_owned(), format!("token={foreign}")]);
    assert_eq!(tokens(&rest), ["token=whatever"]);
}

#[test]
fn a_token_of_ours_that_is_cut_is_known_without_asking() {
    let authority = says(200, ALICE);
    let f = introspecting(&authority, "");
    let token = auth::token::opaque::mint(auth::token::opaque::OpaqueKind::Access, &[7; 32]);
    let refresh = auth::token::opaque::mint(auth::token::opaque::OpaqueKind::Refresh, &[7; 32]);
    assert_eq!(with(&f, &token[..token.len() - 1]).status, 401);
    assert_eq!(with(&f, &refresh).status, 401);
    assert!(authority.seen().is_empty());
    assert_eq!(with(&f, &token).status, 200);
}

#[test]
fn kubernetes_reviews_a_token_for_our_audience() {
    let review = r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,
        "user":{"username":"system:serviceaccount:ns:app","groups":["dev","system:authenticated"]},"audiences":["postern"]}}"#;
    let authority = says(201, review);
    let f = asking(&format!(
        "[[token_authority]]\nname = \"cluster\"\nkind = \"token-review\"\nurl = \"http://{}/\"\naudiences = [\"postern\"]\n\
         token_file = \"token\"\nwatch = false",
        authority.address
    ));
    assert_eq!(with(&f, "opaque").status, 200);
    let asked = authority.only();
    assert_eq!(asked.line(), "POST /apis/authentication.k8s.io/v1/tokenreviews HTTP/1.1");
    assert_eq!(asked.values("authorization"), ["Bearer account-token"]);
    let sent: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(sent["spec"], serde_json::json!({ "token": "opaque", "audiences": ["postern"] }));
    assert_eq!(f.upstream.only().values("x-forwarded-user"), ["system:serviceaccount:ns:app"]);
}

#[test]
fn openshift_is_asked_by_the_token_itself() {
    let authority = Upstream::answering(|seen, socket| match seen.values("authorization")[..] {
        ["Bearer sha256~good"] => {
            answer(socket, 200, r#"{"kind":"User","metadata":{"name":"alice"},"groups":["dev"]}"#)
        }
        ["Bearer sha256~narrow"] => answer(socket, 403, r#"{"kind":"Status"}"#),
        ["Bearer sha256~odd"] => answer(socket, 200, r#"{"kind":"Status"}"#),
        _ => answer(socket, 401, r#"{"kind":"Status"}"#),
    });
    let f = asking(&format!(
        "[[token_authority]]\nname = \"openshift\"\nkind = \"openshift-user\"\nurl = \"http://{}\"\nprefixes = [\"sha256~\"]",
        authority.address
    ));
    assert_eq!(with(&f, "sha256~good").status, 200);
    assert_eq!(f.upstream.only().values("x-forwarded-groups"), ["dev"]);
    assert_eq!(authority.only().line(), "GET /apis/user.openshift.io/v1/users/~ HTTP/1.1");
    assert_eq!(with(&f, "sha256~bad").status, 401);
    assert_eq!(with(&f, "sha256~narrow").status, 401);
    assert_eq!(with(&f, "sha256~odd").status, 503);
}

#[test]
fn a_secret_that_is_not_accepted_is_read_again() {
    let authority = Upstream::answering(|seen, socket| match seen.values("authorization")[..] {
        ["Basic Z2F0ZSt3YXk6bmV3"] => answer(socket, 200, ALICE),
        _ => answer(socket, 401, r#"{"error":"invalid_client"}"#),
    });
    let f = introspecting(&authority, "");
    assert_eq!(with(&f, "opaque").status, 503);
    std::fs::write(f.dir.path().join("secret"), "new\n").unwrap();
    assert_eq!(with(&f, "opaque").status, 200);
}

#[test]
fn many_at_once_ask_once_and_too_many_are_told() {
    let (go, gate) = channel();
    let gate = Mutex::new(gate);
    let slow = Upstream::answering(move |_, socket| {
        gate.lock().unwrap().recv().is_ok() && answer(socket, 200, ALICE)
    });
    let f = introspecting(&slow, "max_requests = 1\ntimeout = \"10s\"");
    let mut clients: Vec<_> = (0..8).map(|_| f.connect()).collect();
    for client in &mut clients {
        client.send("GET /a HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer same\r\n\r\n");
    }
    until("all of them wait", || f.counted("postern_requests_in_flight") > 7.5);
    go.send(()).unwrap();
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    assert_eq!(slow.seen().len(), 1);
    let (mut a, mut b) = (f.connect(), f.connect());
    a.send("GET /a HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer one\r\n\r\n");
    until("it is asked again", || slow.seen().len() == 2);
    b.send("GET /a HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer other\r\n\r\n");
    assert_eq!(b.response().status, 503);
    go.send(()).unwrap();
    assert_eq!(a.response().status, 200);
}

const SIGNED: &str = "application/token-introspection+jwt";

/// A valid signed response, with the changes of a test.
fn signed(by: &Issuer, typ: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut claims = json!({
        "iss": "https://id.test", "aud": "gate way", "iat": now(),
        "token_introspection": serde_json::from_str::<Value>(ALICE).unwrap(),
    });
    change(&mut claims);
    by.signer.sign(&[("typ", typ)], &claims).unwrap()
}

/// A gateway that requires responses signed with one of the keys in this file.
fn demanding(keys: &Path, authority: &Upstream) -> Fixture {
    let file = keys.display();
    introspecting(authority, &format!("signed = {{ issuer = \"https://id.test\", jwks_file = \"{file}\" }}"))
}

/// A file with the keys of a signer.
fn key_file(of: &Issuer) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    of.write_jwks(file.path());
    file
}

#[test]
fn a_signed_answer_that_is_demanded_names_the_holder() {
    let keys = Arc::new(Issuer::new());
    let by = keys.clone();
    let authority = Upstream::answering(move |seen, socket| {
        let said = signed(&by, "token-introspection+jwt", |claims| {
            if body(seen).starts_with("token=bad") {
                claims["token_introspection"] = json!({ "active": false });
            }
        });
        answer_as(socket, 200, "Application/Token-Introspection+jwt; charset=x", &said)
    });
    let file = key_file(&keys);
    let f = demanding(file.path(), &authority);
    for _ in 0..3 {
        assert_eq!(with(&f, "good").status, 200);
    }
    assert_eq!(authority.only().values("accept"), [SIGNED]);
    assert_eq!(f.upstream.seen()[0].values("x-forwarded-user"), ["alice"]);
    let refused = with(&f, "bad");
    assert_eq!(refused.status, 401);
    assert!(refused.text().contains("\"inactive\""), "{}", refused.text());
    assert_eq!(f.upstream.seen().len(), 3);
}

#[test]
fn an_answer_that_is_not_signed_as_demanded_lets_nobody_in_and_is_not_remembered() {
    type Make = fn(&Issuer, &Issuer) -> (&'static str, String);
    const TYPE: &str = "token-introspection+jwt";
    let cases: [(&str, Make); 12] = [
        ("unsigned", |_, _| ("application/json", ALICE.into())),
        ("unsigned, and called signed", |_, _| (SIGNED, ALICE.into())),
        ("signed, and called json", |by, _| ("application/json", signed(by, TYPE, |_| {}))),
        ("without a signature", |by, _| {
            (SIGNED, {
                let whole = signed(by, TYPE, |_| {});
                whole.rsplit_once('.').map(|(head, _)| format!("{head}.")).unwrap()
            })
        }),
        ("of another key", |_, other| (SIGNED, signed(other, TYPE, |_| {}))),
        ("an access token", |by, _| (SIGNED, signed(by, "at+jwt", |_| {}))),
        ("of another server", |by, _| (SIGNED, signed(by, TYPE, |c| c["iss"] = "https://id.test/".into()))),
        ("for another client", |by, _| (SIGNED, signed(by, TYPE, |c| c["aud"] = "gate".into()))),
        ("an old one", |by, _| (SIGNED, signed(by, TYPE, |c| c["iat"] = (now() - 90).into()))),
        ("of the future", |by, _| (SIGNED, signed(by, TYPE, |c| c["iat"] = (now() + 90).into()))),
        ("active is no boolean", |by, _| {
            (
                SIGNED,
                signed(by, TYPE, |c| {
                    c["token_introspection"]["active"] = "true".into();
                }),
            )
        }),
        ("nothing in it", |by, _| (SIGNED, signed(by, TYPE, |c| c["token_introspection"] = Value::Null))),
    ];
    for (what, make) in cases {
        let (keys, other) = (Arc::new(Issuer::new()), Issuer::new());
        let by = keys.clone();
        let authority = Upstream::answering(move |_, socket| {
            let (kind, said) = make(&by, &other);
            answer_as(socket, 200, kind, &said)
        });
        let file = key_file(&keys);
        let f = demanding(file.path(), &authority);
        for asked in 1..=2 {
            let refused = with(&f, "opaque");
            assert_eq!((refused.status, refused.value("retry-after")), (503, Some("1")), "{what}");
            assert_eq!(authority.seen().len(), asked, "{what}: asked again");
        }
        assert_eq!(f.gateway().authenticator().authorities()[0].failed, 2, "{what}");
        assert!(f.upstream.seen().is_empty(), "{what}");
    }
}

#[test]
fn a_signed_answer_by_a_new_key_waits_for_the_new_key_set() {
    let (old, new) = (Issuer::new(), Arc::new(Issuer::new()));
    let by = new.clone();
    let authority = Upstream::answering(move |_, socket| {
        answer_as(socket, 200, SIGNED, &signed(&by, "token-introspection+jwt", |_| {}))
    });
    let file = key_file(&old);
    let f = demanding(file.path(), &authority);
    assert_eq!(with(&f, "opaque").status, 503);
    new.write_jwks(file.path());
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while with(&f, "opaque").status != 200 {
        assert!(std::time::Instant::now() < until, "the new keys are never read");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(f.upstream.only().values("x-forwarded-user"), ["alice"]);
}
