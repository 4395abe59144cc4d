//! Refusals of the gateway: pages for browsers, problem documents for programs.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use dataplane::ext_authz::{check, denied, question};
use dataplane::harness::{Fixture, Response, Setup, Upstream};
use dataplane::http2;
use http::Request;
use http_engine::clock::SystemClock;
use serde_json::Value;

use crate::telemetry::logged;

/// What Chromium sends when it navigates.
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
                       Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\nAccept-Language: de-DE,de;q=0.9\r\n";

/// A token of a user whom the policy does not allow.
fn guest(f: &Fixture) -> String {
    let token = f.issuer.token(|claims| claims["groups"] = serde_json::json!(["guests"]));
    format!("Authorization: Bearer {token}\r\n")
}

fn member(f: &Fixture) -> String {
    format!("Authorization: Bearer {}\r\n", f.issuer.token(|_| {}))
}

fn get(f: &Fixture, target: &str, lines: &str) -> Response {
    f.send(format!("GET {target} HTTP/1.1\r\nHost: app.test\r\n{lines}\r\n"))
}

/// The problem document of a response.
fn problem(response: &Response) -> Value {
    assert_eq!(response.value("content-type"), Some("application/problem+json"), "{}", response.head);
    serde_json::from_slice(&response.body).unwrap()
}

/// Checks that a response is a page in German with this title, and returns its text.
fn page(response: &Response, title: &str) -> String {
    let text = response.text();
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("content-language", "de"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(response.value(name), Some(value), "{}", response.head);
    }
    let policy = response.value("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'none'"), "{policy}");
    assert!(text.contains(&format!("<h1>{title}</h1>")), "{text}");
    text
}

/// An address at which nothing listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Routes on one host that fail in each way.
fn failing() -> Fixture {
    let silent = Upstream::answering(|_, _| {
        std::thread::sleep(Duration::from_millis(400));
        false
    });
    let more = format!(
        r#"
[[upstream]]
name = "gone"
endpoints = ["http://{}"]
[[route]]
name = "gone"
path = {{ prefix = "/gone" }}
hosts = ["app.test"]
upstream = "gone"
public = true
[[route]]
name = "small"
path = {{ prefix = "/small" }}
hosts = ["app.test"]
upstream = "backend"
public = true
body_size = "1KiB"
[[route]]
name = "slow"
path = {{ prefix = "/slow" }}
hosts = ["app.test"]
upstream = "backend"
public = true
response_header_timeout = "100ms"
[[token_authority]]
name = "lost"
kind = "introspection"
url = "http://{}/introspect"
client_id = "x"
client_secret_file = "secret"
prefixes = ["lost_"]
any_audience = true
"#,
        nowhere(),
        nowhere()
    );
    let setup = Setup { route: "hosts = [\"app.test\"]".into(), more, ..Setup::default() };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "x").unwrap();
    let issuer = dataplane::harness::Issuer::new();
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let text = setup.file(dir.path(), silent.address);
    let text = text.replace("{ groups = ", "{ issuers = [\"test\"], groups = ");
    Fixture::from_text(dir, issuer, silent, &text)
}

/// Each status with its request line, fields, and the title of its page in German.
fn cases(f: &Fixture) -> [(u16, &'static str, String, &'static str, &'static str); 8] {
    let (guest, member) = (guest(f), member(f));
    let lost = "Authorization: Bearer lost_0123456789\r\n".to_owned();
    [
        (400, "/a\\b", member.clone(), "Diese Anfrage kann nicht bearbeitet werden", "backslash"),
        (401, "/", String::new(), "Sie müssen sich anmelden", "unauthenticated"),
        (403, "/", guest, "Sie haben keinen Zugriff auf diese Seite", "forbidden"),
        (404, "/x", String::new(), "Diese Seite gibt es nicht", "no_route"),
        (
            413,
            "/small",
            "Content-Length: 9999\r\n".into(),
            "Was Sie gesendet haben, ist zu groß",
            "body_too_large",
        ),
        (502, "/gone", String::new(), "Der Dienst antwortet nicht", "upstream_unreachable"),
        (503, "/", lost, "Der Dienst ist gerade nicht erreichbar", "auth_unavailable"),
        (504, "/slow", String::new(), "Der Dienst braucht zu lange für eine Antwort", "upstream_timeout"),
    ]
}

#[test]
fn every_refusal_is_a_page_for_browsers_and_a_document_for_programs() {
    let f = failing();
    for (status, target, fields, title, code) in cases(&f) {
        let host = if status == 404 { "other.test" } else { "app.test" };
        let send =
            |lines: &str| f.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}{lines}\r\n"));
        let shown = send(BROWSER);
        assert_eq!(shown.status, status, "{target}: {}", shown.text());
        let text = page(&shown, title);
        assert!(text.contains(&format!("<dd dir=\"ltr\">{code}</dd>")), "{code}: {text}");
        assert!(!text.contains("/introspect") && !text.contains("127.0.0.1"), "{text}");
        let told = send("Accept: */*\r\n");
        assert_eq!(told.status, status, "{target}");
        let told_problem = problem(&told);
        assert_eq!(told_problem["status"], status);
        assert_eq!(told_problem["code"], code);
        assert_eq!(told_problem["request_id"].as_str().unwrap().len(), 32);
        for name in ["www-authenticate", "retry-after"] {
            assert_eq!(shown.value(name), told.value(name), "{name} at {status}");
        }
        let fetched = send("Accept: text/html\r\nSec-Fetch-Mode: cors\r\n");
        assert_eq!(problem(&fetched)["code"], code, "a script of a page is a program");
    }
}

#[test]
fn every_refusal_is_a_page_over_http2_too() {
    let f = failing();
    for (status, target, fields, title, code) in cases(&f) {
        // A client of HTTP/2 cannot send these.
        if matches!(status, 400 | 413) {
            continue;
        }
        let host = if status == 404 { "other.test" } else { "app.test" };
        let request = |accept: &str| {
            let mut request = Request::builder()
                .uri(format!("http://{host}{target}"))
                .header("accept", accept)
                .header("accept-language", "de");
            if let Some((name, value)) = fields.trim().split_once(": ") {
                request = request.header(name, value);
            }
            request.body(()).unwrap()
        };
        http2::run(async {
            let send = http2::connect(f.address).await;
            let (head, body) = http2::get(&send, request("text/html,*/*;q=0.8")).await;
            let text = String::from_utf8(body).unwrap();
            assert_eq!(head.status, status, "{text}");
            assert_eq!(head.headers["content-type"], "text/html; charset=utf-8");
            assert_eq!(head.headers["content-language"], "de");
            assert!(text.contains(&format!("<h1>{title}</h1>")), "{text}");
            let (head, body) = http2::get(&send, request("application/json")).await;
            assert_eq!(head.headers["content-type"], "application/problem+json");
            let problem: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(problem["code"], code);
        });
    }
}

#[test]
fn a_head_request_gets_the_fields_of_the_page() {
    let f = Fixture::new();
    let shown = get(&f, "/", BROWSER);
    let mut client = f.connect();
    client.send(format!("HEAD / HTTP/1.1\r\nHost: app.test\r\n{BROWSER}\r\n"));
    let head = client.head();
    assert_eq!((head.status, head.value("content-type")), (401, Some("text/html; charset=utf-8")));
    assert_eq!(head.value("content-length"), shown.value("content-length"));
    assert_eq!(head.value("content-security-policy"), shown.value("content-security-policy"));
    client.send("GET /open HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(client.response().status, 200, "no body was sent in between");
}

#[test]
fn a_malformed_head_gets_a_document_because_nobody_is_known_to_browse() {
    let f = Fixture::new();
    let broken = f.send(format!("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n{BROWSER}\r\n"));
    assert_eq!((broken.status, problem(&broken)["code"].as_str()), (400, Some("repeated_host")));
}

#[test]
fn a_route_states_its_own_detail() {
    let route = "denied_detail = \"Zugang gibt es bei <b>IT & \\\"Support\\\"</b>\"".to_owned();
    let f = Fixture::with(Setup { route, ..Setup::default() }, Upstream::start());
    let guest = guest(&f);
    let text = page(&get(&f, "/", &format!("{guest}{BROWSER}")), "Sie haben keinen Zugriff auf diese Seite");
    assert!(text.contains("Zugang gibt es bei &#60;b&#62;IT &#38; &#34;Support&#34;&#60;/b&#62;"), "{text}");
    let told = problem(&get(&f, "/", &guest));
    assert_eq!(told["detail"], "Zugang gibt es bei <b>IT & \"Support\"</b>");
    // Who is not known is asked for a credential first.
    let unknown = get(&f, "/", "");
    assert_ne!(problem(&unknown)["detail"], told["detail"]);
    assert!(!get(&f, "/", BROWSER).text().contains("Zugang gibt es"));
}

#[test]
fn who_has_too_many_groups_for_a_token_is_told() {
    let (f, lines) = logged(&Setup::default(), Upstream::start(), Arc::new(SystemClock));
    // Microsoft Entra ID: the claim is replaced by the place where the groups are.
    let elsewhere = f.issuer.token(|claims| {
        claims.as_object_mut().unwrap().remove("groups");
        claims["_claim_names"] = serde_json::json!({ "groups": "src1" });
    });
    let elsewhere = format!("Authorization: Bearer {elsewhere}\r\n");
    let detail = |lines: &str| problem(&get(&f, "/", lines))["detail"].as_str().unwrap().to_owned();
    let (usual, noted) = (detail(&guest(&f)), detail(&elsewhere));
    let note = "; the token has too many groups to list them, so rules about groups do not match";
    assert_eq!(noted, format!("{usual}{note}"));
    let title = "Sie haben keinen Zugriff auf diese Seite";
    let text = page(&get(&f, "/", &format!("{elsewhere}{BROWSER}")), title);
    assert!(text.contains("Sie sind in mehr Gruppen, als Ihre Anmeldung"), "{text}");
    let text = page(&get(&f, "/", &format!("{}{BROWSER}", guest(&f))), title);
    assert!(!text.contains("in mehr Gruppen"), "{text}");
    assert_eq!(get(&f, "/open", &elsewhere).status, 200, "only a refusal says so");
    drop(lines);
}

#[test]
fn the_log_names_a_refused_request_as_its_client_does() {
    let (f, lines) = logged(&Setup::default(), Upstream::start(), Arc::new(SystemClock));
    let shown = get(&f, "/", BROWSER).text();
    let logged = lines.next();
    let id = logged["request_id"].as_str().unwrap().to_owned();
    assert_eq!(logged["reason"], "unauthenticated");
    assert!(shown.contains(&format!("<dd dir=\"ltr\">{id}</dd>")), "{id}: {shown}");
    let told = problem(&get(&f, "/", &guest(&f)));
    let logged = lines.next();
    assert_eq!(logged["request_id"], told["request_id"]);
    assert_ne!(logged["request_id"], id, "each request has its own");
    assert_eq!(get(&f, "/open", "").status, 200);
    assert_eq!(lines.next().get("request_id"), None, "a request that passed needs none");
    let broken = f.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(lines.next()["request_id"], problem(&broken)["request_id"]);
}

#[test]
fn pages_have_the_brand_and_the_languages_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let french = config::messages().replace("You need to sign in", "Veuillez vous connecter");
    std::fs::write(dir.path().join("fr.toml"), french).unwrap();
    let more = "[pages.brand]\nname = \"Beispiel & Söhne\"\ncolour = \"#a02030\"\n[pages.languages]\nfr = \"fr.toml\"\n";
    let setup = Setup { more: more.into(), ..Setup::default() };
    let (issuer, upstream) = (dataplane::harness::Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let text = setup.file(dir.path(), upstream.address);
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    let shown = get(&f, "/", "Accept: text/html\r\nAccept-Language: fr-CH, en;q=0.5\r\n");
    let text = shown.text();
    assert_eq!(shown.value("content-language"), Some("fr"));
    assert!(text.contains("<h1>Veuillez vous connecter</h1>"), "{text}");
    assert!(text.contains("<bdi class=\"name\">Beispiel &#38; Söhne</bdi>"), "{text}");
    assert!(text.contains("--brand:#a02030"), "{text}");
}

#[test]
fn templates_of_the_operator_are_used_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("own");
    std::fs::create_dir(&folder).unwrap();
    let error = "<h1>{{ title }}</h1><b>{{ code }} {{ status }} {{ detail }}</b><i>{{ request_id }}</i>";
    std::fs::write(folder.join("error.html"), error).unwrap();
    let setup = Setup {
        route: "denied_detail = \"<ask>\"".into(),
        more: "[pages]\ntemplates = \"own\"\n".into(),
        ..Setup::default()
    };
    let (issuer, upstream) = (dataplane::harness::Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let text = setup.file(dir.path(), upstream.address);
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    let guest = guest(&f);
    let shown = page(&get(&f, "/", &format!("{guest}{BROWSER}")), "Sie haben keinen Zugriff auf diese Seite");
    assert!(shown.contains("<b>forbidden 403 &#60;ask&#62;</b><i>"), "{shown}");
    assert!(shown.contains("<bdi class=\"name\">Postern</bdi>"), "the document is built in: {shown}");

    let document = "<title>{{ title }}</title>{{ style }}<main>{{ main }}</main>";
    std::fs::write(folder.join("page.html"), document).unwrap();
    std::fs::write(folder.join("style.css"), "b{color:red}").unwrap();
    f.reload(&setup);
    let shown = get(&f, "/", &format!("{guest}{BROWSER}"));
    let text = shown.text();
    assert!(text.starts_with("<title>Sie haben keinen Zugriff auf diese Seite</title><style>"), "{text}");
    assert!(text.contains("\nb{color:red}</style><main><h1>"), "{text}");
    assert_eq!(problem(&get(&f, "/", &guest))["detail"], "<ask>", "programs are not concerned");
}

#[test]
fn a_route_says_who_may_frame_its_pages() {
    let route =
        "response_headers.set = { Content-Security-Policy = \"frame-ancestors https://portal.test\" }";
    let f = Fixture::with(Setup { route: route.into(), ..Setup::default() }, Upstream::start());
    let shown = get(&f, "/", BROWSER);
    let policy = shown.value("content-security-policy").unwrap();
    assert!(policy.contains("frame-ancestors https://portal.test;"), "{policy}");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert_eq!(shown.value("x-frame-options"), None);
}

#[test]
fn a_service_s_own_errors_pass_unchanged() {
    let upstream = Upstream::answering(|_, socket| {
        socket.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nmine").is_ok()
    });
    let f = Fixture::with(Setup::default(), upstream);
    let passed = get(&f, "/open", BROWSER);
    assert_eq!((passed.status, passed.text().as_str()), (404, "mine"));
    assert_eq!(passed.value("content-security-policy"), None);
}

#[test]
fn a_proxy_that_passes_denials_on_gets_a_page_for_the_browser() {
    let asked = |http: &str| {
        let listener = format!("authorization = {{ from = [\"127.0.0.1/32\"], http = \"{http}\" }}");
        Fixture::with(Setup { listener, ..Setup::default() }, Upstream::start())
    };
    // Traefik and Caddy send the client's fields along, and pass status, fields and body back.
    let traefik = asked("x-forwarded");
    let lines = format!(
        "X-Forwarded-Method: GET\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: app.test\r\nX-Forwarded-Uri: /a\r\n{}",
        guest(&traefik)
    );
    page(&get(&traefik, "/", &format!("{lines}{BROWSER}")), "Sie haben keinen Zugriff auf diese Seite");
    assert_eq!(problem(&get(&traefik, "/", &lines))["code"], "forbidden");
    // nginx reads nothing but the status.
    let nginx = asked("x-original");
    let lines = format!("X-Original-Method: GET\r\nX-Original-URI: /a\r\n{BROWSER}");
    let denied = get(&nginx, "/", &lines);
    assert_eq!((denied.status, problem(&denied)["code"].as_str()), (401, Some("unauthenticated")));
}

#[test]
fn envoy_gets_a_page_to_pass_on() {
    let listener = "authorization = { from = [\"127.0.0.1/32\"] }".to_owned();
    let f = Fixture::with(Setup { listener, ..Setup::default() }, Upstream::start());
    let browser =
        [("accept", "text/html,*/*;q=0.8"), ("accept-language", "de"), ("sec-fetch-mode", "navigate")];
    let (status, headers, body, _) = denied(check(&f, &question("/a", &browser)));
    assert_eq!(status, 401);
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert!(headers["content-security-policy"].contains("frame-ancestors 'none'"));
    assert!(body.contains("<h1>Sie müssen sich anmelden</h1>"), "{body}");
    let (_, headers, body, _) = denied(check(&f, &question("/a", &[("accept", "*/*")])));
    assert_eq!(headers["content-type"], "application/problem+json");
    assert!(serde_json::from_str::<Value>(&body).unwrap()["request_id"].is_string());
}
