//! `postern check --request`: explains step by step what happens to a request.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::support::{FILES, Folder, NOW, SIGNER, expect, output_text, postern};

const CONFIG: &str = r#"
[[listener]]
name = "web"
address = "127.0.0.1:8080"

[[issuer]]
name = "main"
issuer = "https://id.example"
audiences = ["orders", "api"]
jwks_file = "jwks.json"

[[issuer]]
name = "elsewhere"
issuer = "http://127.0.0.1:1"
audiences = ["orders"]

[[upstream]]
name = "orders"
endpoints = ["http://127.0.0.1:9000", "unix:/run/orders.sock"]

[[route]]
name = "orders"
hosts = ["app.example"]
path = { prefix = "/orders" }
upstream = "orders"
strip_prefix = "/orders"
policy = { allow = [
    { groups = ["staff"], scopes = { all = ["orders:read"] }, methods = ["GET"] },
    { groups = ["managers"], claims = { "realm.dept" = ["sales"] } },
], deny = [{ users = ["mallory"] }] }

[[route]]
name = "everything"
upstream = "orders"
policy = { allow = [{ authenticated = true }] }

[[route]]
name = "health"
path = { exact = "/health" }
methods = ["GET"]
upstream = "orders"
public = true
"#;

fn claims() -> Value {
    json!({
        "iss": "https://id.example", "aud": ["orders", "other"], "sub": "17", "preferred_username": "alice",
        "email": "alice@example.org", "email_verified": true, "azp": "shop", "groups": ["staff", "berlin"],
        "scope": "orders:read profile", "realm": { "dept": "sales" }, "iat": NOW - 60, "exp": NOW + 240,
    })
}

fn token(claims: &Value) -> String {
    SIGNER.sign(&[("typ", "at+jwt")], claims).unwrap()
}

/// The explanation of a request without what differs between runs, and the exit code.
fn explain(request: &str, token: Option<&str>, more: &[&str]) -> (String, Option<i32>) {
    static FILE: LazyLock<String> =
        LazyLock::new(|| FILES.write("explain.toml", CONFIG).display().to_string());
    explain_by(&FILE, request, token, more)
}

fn explain_by(file: &str, request: &str, token: Option<&str>, more: &[&str]) -> (String, Option<i32>) {
    let now = NOW.to_string();
    let mut arguments = vec!["check", "--config", file, "--at", &now, "--request", request];
    if let Some(token) = token {
        arguments.extend(["--as", token]);
    }
    arguments.extend(more);
    let output = postern(&arguments);
    let text =
        output_text(&output).replace(&format!("{}/", FILES.0.display()), "").replace(SIGNER.kid(), "KID");
    let warnings = text.find("request\n").unwrap_or(0);
    (text[warnings..].to_owned(), output.status.code())
}

#[test]
fn a_permitted_request() {
    let (text, code) = explain(
        "GET https://App.Example:443/orders/%37?page=2",
        Some(&token(&claims())),
        &["--header", "Accept: */*", "--header", "X-Forwarded-User: root", "--header", "Connection: close"],
    );
    assert_eq!(code, Some(0), "{text}");
    expect("explain-permitted.txt", &text);
}

#[test]
fn a_forbidden_request() {
    let (text, code) = explain("DELETE https://app.example/orders/7", Some(&token(&claims())), &[]);
    assert_eq!(code, Some(1), "{text}");
    expect("explain-forbidden.txt", &text);
}

#[test]
fn a_request_without_credential() {
    let (text, code) = explain("GET https://app.example/orders", None, &[]);
    assert_eq!(code, Some(1), "{text}");
    expect("explain-unauthenticated.txt", &text);
}

#[test]
fn a_public_request() {
    let (text, code) = explain("GET https://app.example/health", Some("nonsense"), &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the route is public: no credential is needed"), "{text}");
    assert!(text.contains("(not forwarded: Authorization)"), "{text}");
}

/// A route with a browser login, and the login's own addresses.
const LOGIN: &str = r#"
[login]
origins = ["https://app.example"]
keys_file = "login.keys"

[[login.provider]]
name = "main"
url = "https://id.example"
client_id = "gateway"

[[route]]
name = "pages"
hosts = ["app.example"]
path = { prefix = "/pages" }
upstream = "orders"
login = true
policy = { allow = [{ authenticated = true }] }
"#;

fn with_login(request: &str, token: Option<&str>, more: &[&str]) -> (String, Option<i32>) {
    static FILE: LazyLock<String> =
        LazyLock::new(|| FILES.write("explain-login.toml", format!("{CONFIG}{LOGIN}")).display().to_string());
    explain_by(&FILE, request, token, more)
}

#[test]
fn a_browser_without_a_session_is_sent_to_log_in() {
    let (text, code) =
        with_login("GET https://app.example/pages/7?a=b", None, &["--header", "Accept: text/html"]);
    assert_eq!(code, Some(1), "{text}");
    expect("explain-login.txt", &text);
    let form = ["--header", "Sec-Fetch-Mode: navigate"];
    let (text, _) = with_login("POST https://app.example/pages", None, &form);
    assert!(text.contains("a browser that sends a form"), "{text}");
    // A program, and a client with a token, get an error instead of a redirect.
    let bad = token(&json!({ "iss": "https://id.example" }));
    for (token, more) in [
        (None, &[][..]),
        (None, &["--header", "Accept: application/json"]),
        (Some(bad.as_str()), &["--header", "Accept: text/html"]),
    ] {
        let (text, _) = with_login("GET https://app.example/pages", token, more);
        assert!(text.contains("  401 ") && !text.contains("login_required"), "{text}");
    }
    // Only a serving process knows sessions.
    let cookie = ["--header", "Accept: text/html", "--header", "Cookie: __Host-postern=x"];
    let (text, _) = with_login("GET https://app.example/pages", None, &cookie);
    assert!(text.contains("this command does not open session cookies"), "{text}");
    // There is no login at other hosts.
    let (text, _) = with_login("GET https://other.example/", None, &["--header", "Accept: text/html"]);
    assert!(text.contains("  401 "), "{text}");
}

#[test]
fn the_addresses_of_the_login_are_known() {
    for (request, status, code) in [
        ("GET https://app.example/oauth2/start?rd=/pages", "302", 0),
        ("GET https://app.example/oauth2/callback?code=x", "303", 0),
        ("GET https://app.example/oauth2/sign_in", "200", 0),
        ("POST https://app.example/oauth2/sign_out", "303", 0),
        ("GET https://app.example/oauth2/userinfo", "200", 0),
        ("GET https://app.example/oauth2/auth", "202", 0),
        ("POST https://app.example/oauth2/backchannel_logout", "200", 0),
        ("GET https://app.example/oauth2/nothing", "404", 1),
        // A site may begin a login by form (OpenID Connect Core 1.0 §4).
        ("POST https://app.example/oauth2/start", "302", 0),
        ("PUT https://app.example/oauth2/start", "405", 1),
    ] {
        let (text, seen) = with_login(request, None, &[]);
        let answer = text.rsplit("answer\n").next().unwrap();
        assert_eq!(seen, Some(code), "{request}: {text}");
        assert!(answer.trim_start().starts_with(status), "{request}: {text}");
    }
    // At another host it is a path like any other.
    let (text, _) = with_login("GET https://other.example/oauth2/start", None, &[]);
    assert!(text.contains("everything matches"), "{text}");
}

#[test]
fn a_request_without_canonical_form() {
    let (text, code) = explain("GET https://app.example/orders/%2e%2e/admin", None, &[]);
    assert_eq!(code, Some(1));
    assert!(text.contains("  400 ") && text.contains("no canonical form"), "{text}");
}

#[test]
fn each_check_of_a_token_is_told_as_far_as_it_came() {
    let change = |key: &str, value: Value| {
        let mut claims = claims();
        claims[key] = value;
        token(&claims)
    };
    let typ = SIGNER.sign(&[("typ", "logout+jwt")], &claims()).unwrap();
    let (signed, _) = token(&claims()).rsplit_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let (_, signature) = typ.rsplit_once('.').unwrap();
    for (token, failed, last, status) in [
        ("opaque".to_owned(), "form", "", "401 not_jwt"),
        ("-abc.def".to_owned(), "form", "", "401 not_jwt"),
        (change("iss", json!("https://other.example")), "issuer", "form", "401 wrong_issuer"),
        (format!("{signed}.{signature}"), "signature", "key", "401 bad_signature"),
        (typ.clone(), "type", "signature", "401 wrong_type"),
        (change("aud", json!("else")), "audience", "type", "401 wrong_audience"),
        (change("exp", json!(NOW - 60)), "times and claims", "audience", "401 expired"),
        (change("nbf", json!(NOW + 60)), "times and claims", "audience", "401 not_yet_valid"),
        (change("iss", json!("http://127.0.0.1:1")), "key", "algorithm", "503 "),
    ] {
        let (text, code) = explain("GET https://app.example/orders", Some(&token), &[]);
        // Unavailable keys prove nothing about the token.
        assert_eq!(code, Some(if status == "503 " { 3 } else { 1 }), "{text}");
        assert!(text.contains(&format!("✗ {failed}")), "{failed}: {text}");
        assert!(last.is_empty() || text.contains(&format!("✓ {last}")), "{last}: {text}");
        assert!(text.contains(&format!("  {status}")), "{status}: {text}");
        assert!(!text.contains("decision"), "{text}");
    }
}

#[test]
fn keys_can_be_given_in_place_of_the_issuers() {
    let mut other = claims();
    other["iss"] = json!("http://127.0.0.1:1");
    let jwks = FILES.0.join("jwks.json").display().to_string();
    let (text, code) = explain("GET https://app.example/x", Some(&token(&other)), &["--jwks", &jwks]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("authenticated by \"elsewhere\""), "{text}");
}

#[test]
fn keys_that_are_not_there_are_a_failure_and_no_refusal() {
    let (text, code) =
        explain("GET https://app.example/x", Some(&token(&claims())), &["--jwks", "/missing.json"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("/missing.json"), "{text}");
}

#[test]
fn a_rewrite_is_explained_with_all_whom_it_concerns() {
    let config = r#"
[[listener]]
name = "web"
address = "127.0.0.1:8080"
[[issuer]]
name = "main"
issuer = "https://id.example"
audiences = ["app"]
jwks_file = "jwks.json"
[[upstream]]
name = "app"
endpoints = ["http://127.0.0.1:9000"]
[[route]]
name = "open"
path = { prefix = "/pub" }
upstream = "app"
strip_prefix = "/pub"
public = true
[[route]]
name = "guarded"
hosts = ["other.example"]
path = { prefix = "/admin" }
upstream = "app"
policy = { allow = [{ users = ["root"] }] }
"#;
    let file = FILES.write("rewritten.toml", config).display().to_string();
    let ask = |request: &str| {
        let output = postern(&["check", "--config", &file, "--request", request]);
        (output_text(&output), output.status.code())
    };
    let (text, code) = ask("GET http://a/pub/admin/x");
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("guarded guards /admin/x on the same upstream") && text.contains("  401 "),
        "{text}"
    );
    let (text, code) = ask("GET http://a/pub/admin;v=1/x");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("400 ambiguous_path: the path may be read as \"/admin;v=1/x\" and as"), "{text}");
    let (text, code) = ask("GET http://a/pub/else");
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("guards"), "{text}");
}

#[test]
fn several_upstreams_and_copies_are_named() {
    const MORE: &str = r#"
[[upstream]]
name = "next"
endpoints = ["http://127.0.0.1:9001"]
[[route]]
name = "split"
path = { prefix = "/split" }
upstreams = [{ upstream = "orders", weight = 9 }, { upstream = "next", request_headers.set = { X-A = "b" } }, { status = 503 }]
mirror = [{ upstream = "next", percent = 10 }, { upstream = "orders" }]
rewrite_host = "app.internal"
replace_path = "/health"
public = true
"#;
    let file = FILES.write("explain-split.toml", format!("{CONFIG}{MORE}")).display().to_string();
    let (text, code) = explain_by(&file, "GET http://app.example/split/x?y=z", None, &[]);
    assert_eq!(code, Some(0), "{text}");
    let expected = "\
answer
  forwarded to one of the upstreams orders (weight 9), next (weight 1), status 503 (weight 1), \
with a copy of 10 in 100 requests to next, with a copy to orders
    GET /health?y=z
    Host: app.internal
    (and changes of headers for each upstream)
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn the_readings_of_a_path_are_shown() {
    let config = r#"
[[listener]]
name = "public"
address = "127.0.0.1:8080"
[[upstream]]
name = "app"
endpoints = ["http://127.0.0.1:8000"]
[[route]]
name = "api"
path = { prefix = "/api" }
upstream = "app"
public = true
[[route]]
name = "strict"
path = { prefix = "/strict" }
paths = "strict"
upstream = "app"
public = true
"#;
    let file = FILES.write("readings.toml", config).display().to_string();
    let ask = |request: &str| {
        let output = postern(&["check", "--config", &file, "--request", request]);
        (output_text(&output), output.status.code())
    };
    let (text, code) = ask("GET http://a/api/%2f/x");
    assert_eq!(code, Some(0), "{text}");
    for shown in ["GET http://a/api/%2f/x\n", "read the path as /api///x;", "as /api/x;", "GET /api/%2f/x"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    let (text, code) = ask("GET http://a/api/..%2fstrict");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("400 ambiguous_path: the path may be read as"), "{text}");
    assert!(text.contains("api: the path is not /api or below in some of its readings"), "{text}");
    let (text, code) = ask("GET http://a/strict/a%2fb");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("400 forbidden_escape: ") && text.contains("paths = \"strict\""), "{text}");
}

#[test]
fn what_serving_would_not_pass_on_is_not_shown_as_passed() {
    let more =
        ["--header", "Connection: X-Hop, Upgrade", "--header", "X-Hop: 1", "--header", "Content-Length: 7"];
    let (text, code) = explain("GET https://app.example/x", Some(&token(&claims())), &more);
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("X-Hop: 1") && !text.contains("Content-Length: 7"), "{text}");
    assert!(text.contains("X-Hop, Content-Length"), "{text}");
    let switch = ["--header", "Connection: upgrade", "--header", "Upgrade: telnet"];
    let (text, code) = explain("GET https://app.example/x", Some(&token(&claims())), &switch);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("403 upgrade_refused"), "{text}");
    // Some clients offer HTTP/2 with every request, and continue without it.
    let offer = ["--header", "Connection: upgrade", "--header", "Upgrade: h2c"];
    let (text, code) = explain("GET https://app.example/x", Some(&token(&claims())), &offer);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn where_other_proxies_forward_it_is_told_what_they_are_told() {
    let listener = |name: &str, port: u16, more: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\naddress = \"127.0.0.1:{port}\"\nauthorization = {{ from = [\"127.0.0.1\"]{more} }}\n"
        )
    };
    let (_, rest) = CONFIG.split_once("[[issuer]]").unwrap();
    let rest = rest
        .replace("upstream = \"orders\"\nstrip_prefix = \"/orders\"\n", "")
        .replace("upstream = \"orders\"\n", "");
    let (head, routes) = rest.split_once("[[upstream]]").unwrap();
    let (_, routes) = routes.split_once("[[route]]").unwrap();
    let rest = format!("[[issuer]]{head}[[route]]{routes}");
    let (grpc, http) = (listener("grpc", 8080, ""), listener("http", 8081, ", http = \"x-forwarded\""));
    let mut nameless = claims();
    nameless["email_verified"] = false.into();
    let ask = |name: &str, listeners: &str, more: &[&str]| {
        let file = FILES.write(name, format!("{listeners}{rest}[assertion]\nkey = \"assertion-key.pem\"\nissuer = \"https://gateway.example\"\n"));
        let (file, now, token) = (file.display().to_string(), NOW.to_string(), token(&nameless));
        let mut arguments = vec![
            "check",
            "--config",
            &file,
            "--at",
            &now,
            "--as",
            &token,
            "--request",
            "GET https://app.example/orders/7",
        ];
        arguments.extend(more);
        let output = postern(&arguments);
        let text = output_text(&output);
        let (_, answer) = text.split_once("answer\n").unwrap_or_else(|| panic!("{text}"));
        (answer.split("\nwarning").next().unwrap().to_owned(), output.status.code())
    };
    let both = format!("{grpc}{http}");
    let claimed = ["--header", "X-Remote-User: root", "--header", "Accept: */*"];
    let (text, code) = ask("asked-both.toml", &both, &claimed);
    assert_eq!(code, Some(0), "{text}");
    expect("explain-vouched.txt", &text);
    let alike = ["--header", "X_Forwarded_User: root"];
    let (text, code) = ask("asked-http.toml", &http, &alike);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("400 identity_look_alike: the header X_Forwarded_User looks like"), "{text}");
    let (text, code) = ask("asked-grpc.toml", &grpc, &alike);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("removed: x_forwarded_user"), "{text}");
    let (text, _) = ask("asked-both.toml", &both, &alike);
    assert!(text.contains("over HTTP only without this: the header X_Forwarded_User"), "{text}");
    assert!(!text.contains("GET /") && !text.contains("Host:"), "nothing is forwarded: {text}");
}

#[test]
fn a_websocket_of_a_foreign_page_is_refused_as_in_serving() {
    let more = "\n[client_certificates]\nname = \"mesh\"\nsubject = \"subject_cn\"\n";
    let listener = "address = \"127.0.0.1:8080\"\ntls = { certificate = \"c.pem\", key = \"k.pem\", client_ca = \"c.pem\", client_certificates = \"optional\" }";
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["app.example".to_owned()]).unwrap();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "robot-7");
    let certificate = parameters.self_signed(&key).unwrap();
    let folder = Folder::new("explain-websocket");
    let pem = folder.write("c.pem", certificate.pem()).display().to_string();
    let path = folder.write("k.pem", key.serialize_pem());
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let text = CONFIG
        .replace("address = \"127.0.0.1:8080\"", listener)
        .replace("jwks.json", &FILES.0.join("jwks.json").display().to_string());
    let text = text.replace("name = \"everything\"", "name = \"everything\"\nupgrades = [\"websocket\"]");
    let file = folder.write("postern.toml", format!("{text}{more}")).display().to_string();
    let ask = |origin: &str| {
        let more = [
            "--certificate",
            &pem,
            "--header",
            "Connection: upgrade",
            "--header",
            "Upgrade: websocket",
            "--header",
            origin,
        ];
        explain_by(&file, "GET https://app.example/chat", None, &more)
    };
    let (text, code) = ask("Origin: https://evil.example");
    assert!(code == Some(1) && text.contains("foreign_origin"), "{code:?} {text}");
    let (text, code) = ask("Origin: https://app.example");
    assert!(code == Some(0), "{code:?} {text}");
}

#[test]
fn no_token_is_printed() {
    let token = token(&claims());
    for request in [
        "GET https://app.example/orders",
        "DELETE https://app.example/orders",
        "GET https://app.example/health",
    ] {
        let (text, _) = explain(request, Some(&token), &[]);
        assert!(token.split('.').all(|part| !text.contains(part)), "{text}");
    }
}

#[test]
fn an_authorizer_that_has_a_say_is_named_and_not_asked() {
    let text = format!(
        "{CONFIG}\n[[upstream]]\nname = \"auth\"\nendpoints = [\"http://127.0.0.1:1\"]\n\
         [[authorizer]]\nname = \"other\"\nupstream = \"auth\"\npath_prefix = \"/check\"\n\
         [[route]]\nname = \"asked\"\npath = {{ prefix = \"/asked\" }}\nupstream = \"orders\"\npublic = true\n\
         authorizer = \"other\"\n"
    );
    let file = FILES.write("explain-authorizer.toml", text).display().to_string();
    let request = "POST https://app.example/asked/x?y=1";
    let output = postern(&["check", "--config", &file, "--at", &NOW.to_string(), "--request", request]);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    for part in [
        "the authorizer other at upstream auth is queried too: POST /check/asked/x?y=1",
        "if the authorizer other permits it",
        "the authorizer decides, which this command does not query",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A route for an office, where its network and its hours are.
const OFFICE: &str = r#"
[[route]]
name = "office"
path = { prefix = "/office" }
upstream = "orders"
policy = { allow = [{
    email_domains = ["Example.org"], addresses = ["192.0.2.0/24"],
    time = { days = ["fri"], from = "08:00", to = "18:00", zone = "+01:00" },
}] }
"#;

#[test]
fn the_address_and_the_time_are_explained() {
    static FILE: LazyLock<String> = LazyLock::new(|| {
        FILES.write("explain-office.toml", format!("{CONFIG}{OFFICE}")).display().to_string()
    });
    // 2027-01-15 08:00:00Z, a Friday.
    assert_eq!(NOW, 1_800_000_000);
    let token = token(&claims());
    let ask = |more: &[&str]| explain_by(&FILE, "GET https://app.example/office", Some(&token), more);
    let (text, code) = ask(&["--client-address", "::ffff:192.0.2.9"]);
    assert_eq!(code, Some(0), "{text}");
    for line in [
        "email domain example.org: there is \"example.org\"",
        "address in [192.0.2.0/24]: there is \"192.0.2.9\"",
        "time fri 08:00-18:00 +01:00: there is \"fri 09:00 +01:00\"",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let (text, code) = ask(&["--client-address", "198.51.100.1"]);
    assert_eq!(code, Some(1), "{text}");
    let (text, code) = ask(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("address in [192.0.2.0/24]: there is none"), "{text}");
}

const PASSWORDS: &str = r#"
[basic_auth]
file = "users.htpasswd"

[[route]]
name = "metrics"
path = { exact = "/metrics" }
upstream = "orders"
basic_auth = "accept"
policy = { allow = [{ credentials = ["basic"] }] }
"#;

#[test]
fn a_password_is_compared() {
    static FILE: LazyLock<String> = LazyLock::new(|| {
        FILES.write("explain-basic.toml", format!("{CONFIG}{PASSWORDS}")).display().to_string()
    });
    let ask = |path: &str, encoded: &str| {
        let header = format!("Authorization: Basic {encoded}");
        explain_by(&FILE, &format!("GET https://app.example{path}"), None, &["--header", &header])
    };
    // prometheus:U*U
    let (text, code) = ask("/metrics", "cHJvbWV0aGV1czpVKlU=");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the user name and the password are right"), "{text}");
    assert!(text.contains("(not forwarded: Authorization)") && !text.contains("U*U"), "{text}");
    let (text, code) = ask("/metrics", "cHJvbWV0aGV1czp4");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("  401 ") && text.contains("wrong_password"), "{text}");
    let (text, code) = ask("/orders", "cHJvbWV0aGV1czpVKlU=");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is no token and no client certificate"), "{text}");
}
