//! User names and passwords as a credential (HTTP Basic).

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use dataplane::ext_authz::{check, question};
use dataplane::harness::{Fixture, Issuer, Response, Setup, Upstream};

/// bcrypt hashes of `U*U` and `abc`, from the tests of other implementations.
const UU: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
const ABC: &str = "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i";

const TABLE: &str = r#"
[basic_auth]
file = "users.htpasswd"
realm = "Metrics"
groups = { ada = ["dev", "ops"], grace = ["guests"] }
"#;

const ROUTES: &str = r#"
[[route]]
name = "asks"
path = { prefix = "/asks" }
upstream = "backend"
basic_auth = "challenge"
policy = { allow = [{ groups = ["dev"] }] }

[[route]]
name = "takes"
path = { prefix = "/takes" }
upstream = "backend"
basic_auth = "accept"
forward_authorization = true
policy = { allow = [{ credentials = ["basic"], issuers = ["basic"], users = ["ada", "grace"] }] }

[[route]]
name = "tokens"
path = { prefix = "/tokens" }
upstream = "backend"
basic_auth = "challenge"
policy = { allow = [{ credentials = ["jwt"] }] }
"#;

fn setup(listener: &str) -> Setup {
    Setup { listener: listener.into(), more: format!("{TABLE}{ROUTES}"), ..Setup::default() }
}

fn gateway(setup: &Setup, users: &str) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("users.htpasswd"), users).unwrap();
    let text = setup.file(dir.path(), upstream.address);
    Fixture::from_text(dir, issuer, upstream, &text)
}

fn users() -> String {
    format!("# staff\nada:{UU}\ngrace:{ABC}\n")
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

fn get(f: &Fixture, path: &str, lines: &str) -> Response {
    f.send(format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n{lines}\r\n"))
}

fn challenges(response: &Response) -> Vec<&str> {
    let fields = response.head.lines().filter_map(|line| line.split_once(':'));
    let named = fields.filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"));
    named.map(|(_, value)| value.trim()).collect()
}

const BEARER: &str = "Bearer realm=\"postern\"";
const BASIC: &str = "Basic realm=\"Metrics\", charset=\"UTF-8\"";

#[test]
fn a_right_password_identifies_its_user() {
    let f = gateway(&setup(""), &users());
    for _ in 0..3 {
        assert_eq!(get(&f, "/asks", &basic("ada", "U*U")).status, 200);
    }
    let seen = &f.upstream.seen()[2];
    assert_eq!(seen.values("x-forwarded-user"), ["ada"]);
    assert_eq!(seen.values("x-forwarded-groups"), ["dev,ops"]);
    assert_eq!(seen.values("authorization"), [""; 0], "the password is not the upstream's");
    let scheme = format!("authorization: bAsIc  {}\r\n", STANDARD.encode("grace:abc"));
    assert_eq!(get(&f, "/takes", &scheme).status, 200);
    assert_eq!(f.upstream.seen()[3].values("authorization").len(), 1, "unless the route says so");
    assert_eq!(get(&f, "/asks", &basic("grace", "abc")).status, 403, "grace is not in the group");
    assert_eq!(get(&f, "/tokens", &basic("ada", "U*U")).status, 403, "a password is no token");
    assert_eq!(f.get("/tokens").status, 200);
    assert_eq!(f.get("/takes").status, 403, "nor is a token a password");
}

#[test]
fn only_a_route_that_says_so_asks_for_a_password() {
    let f = gateway(&setup(""), &users());
    let none = get(&f, "/asks", "");
    assert_eq!((none.status, challenges(&none)), (401, vec![BASIC, BEARER]));
    for (user, password) in [("ada", "u*u"), ("ada", ""), ("nobody", "U*U"), ("Ada", "U*U"), ("grace", "U*U")]
    {
        let wrong = get(&f, "/asks", &basic(user, password));
        assert_eq!((wrong.status, challenges(&wrong)), (401, vec![BASIC, BEARER]), "{user}");
        assert!(wrong.text().contains("wrong_password"), "{}", wrong.text());
        let quiet = get(&f, "/takes", &basic(user, password));
        assert_eq!((quiet.status, challenges(&quiet)), (401, vec![BEARER]), "{user}");
    }
    assert_eq!(challenges(&get(&f, "/takes", "")), [BEARER]);
    for path in ["/elsewhere", "/open"] {
        let response = get(&f, path, &basic("ada", "U*U"));
        let expected = if path == "/open" { 200 } else { 401 };
        assert_eq!(response.status, expected, "a password is no credential there");
        assert!(!challenges(&response).contains(&BASIC));
    }
    for malformed in ["Basic", "Basic ", "Basic ****", "Basic YWRh", "Basic YWRhOgA=", "Basic OlUqVQ=="] {
        let response = get(&f, "/asks", &format!("Authorization: {malformed}\r\n"));
        assert_eq!((response.status, challenges(&response)), (401, vec![BASIC, BEARER]), "{malformed}");
    }
    let twice = format!("{}{}", basic("ada", "U*U"), basic("ada", "U*U"));
    assert_eq!(get(&f, "/asks", &twice).status, 400);
    let expired = f.issuer.token(|claims| claims["exp"] = 1.into());
    let bearer = get(&f, "/asks", &format!("Authorization: Bearer {expired}\r\n"));
    assert!(challenges(&bearer)[1].contains("invalid_token"), "{bearer:?}");
    assert_eq!(f.upstream.seen().len(), 1, "only the public route");
}

#[test]
fn a_changed_or_removed_entry_ends_its_cached_facts() {
    let f = gateway(&setup(""), &users());
    let status = |user: &str, password: &str| get(&f, "/takes", &basic(user, password)).status;
    assert_eq!((status("ada", "U*U"), status("grace", "abc")), (200, 200));
    let file = f.dir.path().join("users.htpasswd");
    std::fs::write(&file, format!("ada:{ABC}\n")).unwrap();
    f.reload(&setup(""));
    assert_eq!((status("ada", "U*U"), status("grace", "abc")), (401, 401));
    assert_eq!(status("ada", "abc"), 200);
    std::fs::write(&file, users()).unwrap();
    f.reload(&setup(""));
    assert_eq!((status("ada", "U*U"), status("grace", "abc"), status("ada", "abc")), (200, 200, 401));
}

#[test]
fn guessing_is_bounded_and_stops_nobody_who_is_known() {
    // Cost 12: about a quarter of a second for each guess.
    let slow = UU.replace("$05$", "$12$");
    let f = gateway(&setup(""), &format!("{}slow:{slow}\n", users()));
    assert_eq!(get(&f, "/asks", &basic("ada", "U*U")).status, 200);
    let cores = std::thread::available_parallelism().unwrap().get();
    let guesses = cores.div_ceil(2) * 9 + 16;
    let mut clients: Vec<_> = (0..guesses).map(|_| f.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let head = format!("GET /asks HTTP/1.1\r\nHost: app.test\r\n{}\r\n", basic("slow", &n.to_string()));
        client.send(head);
    }
    assert_eq!(get(&f, "/asks", &basic("ada", "U*U")).status, 200, "cached meanwhile");
    let mut answers: HashMap<u16, usize> = HashMap::new();
    for client in &mut clients {
        let response = client.response();
        if response.status == 503 {
            assert_eq!(response.value("retry-after"), Some("1"));
        }
        *answers.entry(response.status).or_default() += 1;
    }
    assert_eq!(answers.values().sum::<usize>(), guesses);
    assert!(answers.contains_key(&503) && answers.contains_key(&401), "{answers:?}");
    assert_eq!(answers.len(), 2, "{answers:?}");
}

#[test]
fn a_page_of_another_origin_opens_no_websocket_with_a_password() {
    let f = gateway(&setup(""), &users());
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    let with = |origin: &str| {
        let lines = format!("{}{upgrade}Origin: {origin}\r\n", basic("ada", "U*U"));
        get(&f, "/asks", &lines)
    };
    let foreign = with("https://evil.test");
    assert_eq!(foreign.status, 403);
    assert!(foreign.text().contains("foreign_origin"), "{}", foreign.text());
    assert!(f.upstream.seen().is_empty());
    assert_ne!(with("http://app.test").status, 403);
}

#[test]
fn other_proxies_ask_about_passwords_too() {
    let listener = r#"authorization = { from = ["127.0.0.1"], http = "envoy", max_age = "1m" }"#;
    let f = gateway(&setup(listener), &users());
    let good = get(&f, "/asks", &basic("ada", "U*U"));
    assert_eq!((good.status, good.value("x-forwarded-user")), (200, Some("ada")));
    assert_eq!(good.value("cache-control"), Some("no-store"), "an entry may be removed at any time");
    let none = get(&f, "/asks", "");
    assert_eq!((none.status, challenges(&none)), (401, vec![BASIC, BEARER]));

    let f = gateway(&setup(r#"authorization = { from = ["127.0.0.1"] }"#), &users());
    let encoded = format!("Basic {}", STANDARD.encode("ada:U*U"));
    let good = check(&f, &question("/asks", &[("authorization", &encoded)]));
    assert_eq!(good.status.as_ref().map(|status| status.code), Some(0));
    let ok = dataplane::ext_authz::allowed(good);
    assert!(ok.headers_to_remove.iter().any(|name| name == "authorization"));
    let wrong = check(&f, &question("/asks", &[("authorization", "Basic YWRhOng=")]));
    let Some(envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse::DeniedResponse(denied)) =
        wrong.http_response
    else {
        panic!("not denied")
    };
    let sent: Vec<_> = denied
        .headers
        .iter()
        .filter_map(|option| Some((option.header.as_ref()?, option.append_action)))
        .filter(|(header, _)| header.key == "www-authenticate")
        .map(|(header, action)| (header.value.as_str(), action))
        .collect();
    assert_eq!(sent, [(BASIC, 0), (BEARER, 0)], "each is appended");
}
