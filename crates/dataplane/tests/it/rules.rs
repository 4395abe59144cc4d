//! Rules on the client's address, its e-mail domain and the time, for requests that are forwarded
//! and for checks of other proxies.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use envoy_types::pb::envoy::config::core::v3::address::Address as Kind;
use envoy_types::pb::envoy::config::core::v3::{Address, SocketAddress};
use http_engine::clock::ManualClock;

use dataplane::ext_authz::{allowed, check, denied, question};
use dataplane::harness::{Fixture, Response, Setup, TestClient, Upstream, now};

/// A route `/near` for clients in two networks, and a route `/far` for all others.
const BY_ADDRESS: &str = r#"
[[route]]
name = "near"
path = { prefix = "/near" }
upstream = "backend"
policy = { allow = [{ addresses = ["203.0.113.0/24", "fd00::/8"] }] }

[[route]]
name = "far"
path = { prefix = "/far" }
upstream = "backend"
policy = { allow = [{ authenticated = true }], deny = [{ addresses = ["203.0.113.0/24", "fd00::/8"] }] }
"#;

/// Sends a request over a connection that begins with this PROXY header.
fn from(f: &Fixture, proxy: &str, path: &str) -> u16 {
    f.send(format!("PROXY {proxy}\r\n{}", f.request(path, ""))).status
}

#[test]
fn the_address_of_the_connection_decides() {
    let listener = "proxy_protocol_from = [\"127.0.0.1/32\"]".into();
    let f = Fixture::with(Setup { listener, more: BY_ADDRESS.into(), ..Setup::default() }, Upstream::start());
    let (to, to6) = ("192.0.2.1 4000 443", "2001:db8::1 4000 443");
    for near in [
        format!("TCP4 203.0.113.9 {to}"),
        format!("TCP6 fd00::7 {to6}"),
        format!("TCP6 ::ffff:203.0.113.9 {to6}"),
    ] {
        assert_eq!((from(&f, &near, "/near"), from(&f, &near, "/far")), (200, 403), "{near}");
    }
    for far in [
        format!("TCP4 203.0.114.9 {to}"),
        format!("TCP6 fe80::7 {to6}"),
        format!("TCP6 ::ffff:198.51.100.1 {to6}"),
    ] {
        assert_eq!((from(&f, &far, "/near"), from(&f, &far, "/far")), (403, 200), "{far}");
    }
    assert_eq!(f.upstream.seen().len(), 6);
}

#[test]
fn a_client_cannot_state_its_address() {
    let f = Fixture::with(Setup { more: BY_ADDRESS.into(), ..Setup::default() }, Upstream::start());
    let mut client = f.connect();
    for (field, value) in
        [("X-Forwarded-For", "203.0.113.9"), ("X-Real-IP", "203.0.113.9"), ("Forwarded", "for=203.0.113.9")]
    {
        client.send(f.request("/near", &format!("{field}: {value}\r\n")));
        assert_eq!(client.response().status, 403, "{field}");
    }
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn clients_of_a_unix_socket_are_local() {
    let more = r#"
[[listener]]
name = "side"
address = "unix:side.sock"

[[route]]
name = "local"
path = { prefix = "/local" }
upstream = "backend"
policy = { allow = [{ addresses = ["127.0.0.0/8"] }] }
"#;
    let f = Fixture::with(Setup { more: more.into(), ..Setup::default() }, Upstream::start());
    let mut client = TestClient::connect_unix(&f.dir.path().join("side.sock")).expect("listens");
    client.send(f.request("/local", ""));
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_rewritten_path_is_decided_for_the_same_address() {
    let more = r#"
[[route]]
name = "outer"
path = { prefix = "/outer" }
upstream = "backend"
strip_prefix = "/outer"
policy = { allow = [{ addresses = ["127.0.0.1"] }] }

[[route]]
name = "inner"
path = { prefix = "/inner" }
upstream = "backend"
policy = { allow = [{ addresses = ["203.0.113.0/24"] }] }
"#;
    let f = Fixture::with(Setup { more: more.into(), ..Setup::default() }, Upstream::start());
    assert_eq!(f.get("/outer/x").status, 200, "the address is known for the new path too");
    assert_eq!(f.get("/outer/inner/x").status, 403, "the guard of the new path reads it as well");
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn domains_of_verified_addresses_are_a_condition() {
    let more = r#"
[[route]]
name = "staff"
path = { prefix = "/staff" }
upstream = "backend"
policy = { allow = [{ email_domains = ["Example.com"] }] }
"#;
    let f = Fixture::with(Setup { more: more.into(), ..Setup::default() }, Upstream::start());
    let with = |email: &str, verified: bool| {
        let token = f.issuer.token(|claims| {
            claims["email"] = email.into();
            claims["email_verified"] = verified.into();
        });
        f.send(format!("GET /staff HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"))
            .status
    };
    assert_eq!(with("alice@EXAMPLE.COM", true), 200);
    assert_eq!(with("alice@example.com", false), 403, "nobody has verified it");
    for other in ["alice@sub.example.com", "example.com@evil.test", "alice@evil-example.com"] {
        assert_eq!(with(other, true), 403, "{other}");
    }
    assert_eq!(f.upstream.seen().len(), 1);
}

/// A route with a time window that began `ago` and ends in `left`, in minutes.
fn window(path: &str, ago: u64, left: u64) -> String {
    let minute = now() / 60;
    let clock = |minute: u64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
    format!(
        "\n[[route]]\nname = \"{path}\"\npath = {{ prefix = \"/{path}\" }}\nupstream = \"backend\"\n\
         policy = {{ allow = [{{ groups = [\"dev\"], time = {{ from = \"{}\", to = \"{}\" }} }}] }}\n",
        clock(minute - ago),
        clock(minute + left)
    )
}

#[test]
fn a_window_ends_for_cached_callers_too() {
    let setup = Setup { more: window("shift", 60, 60) + &window("later", 22 * 60, 60), ..Setup::default() };
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let text = setup.file(dir.path(), upstream.address);
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let f = Fixture::keeping(dir, upstream, &text, clock.clone(), None);
    let token = f.issuer.token(|claims| claims["exp"] = (now() + 86_400).into());
    let get = |path: &str| {
        let response =
            f.send(format!("GET {path} HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"));
        response.status
    };
    assert_eq!((get("/shift"), get("/shift"), get("/later")), (200, 200, 200));
    clock.advance(Duration::from_mins(61));
    assert_eq!((get("/shift"), get("/later")), (403, 403));
    // A day after it began, the other window has been open for an hour less.
    clock.advance(Duration::from_mins(70));
    assert_eq!((get("/shift"), get("/later")), (403, 200));
    assert_eq!(f.upstream.seen().len(), 4);
}

const FORWARDED: &str =
    "X-Forwarded-Method: GET\r\nX-Forwarded-Host: app.test\r\nX-Forwarded-Proto: https\r\n";

/// A check of an HTTP proxy about a path, with further field lines.
fn asked_about(f: &Fixture, path: &str, lines: &str) -> Response {
    f.send(f.request("/", &format!("{FORWARDED}X-Forwarded-Uri: {path}\r\n{lines}")))
}

fn asked(authorization: &str, more: &str) -> Fixture {
    let listener = format!("authorization = {{ from = [\"127.0.0.1/32\"]{authorization} }}");
    Fixture::with(Setup { listener, more: more.into(), ..Setup::default() }, Upstream::start())
}

#[test]
fn a_check_is_about_the_address_that_the_proxy_states() {
    let f = asked(r#", http = "x-forwarded", client_address_header = "X-Forwarded-For""#, BY_ADDRESS);
    let both = |lines: &str| (asked_about(&f, "/near", lines).status, asked_about(&f, "/far", lines).status);
    assert_eq!(both("X-Forwarded-For: 203.0.113.9\r\n"), (200, 403));
    assert_eq!(both("X-Forwarded-For: ::ffff:203.0.113.9\r\n"), (200, 403));
    assert_eq!(both("X-Forwarded-For: 198.51.100.1\r\n"), (403, 200));
    assert_eq!(both("X-Forwarded-For: 203.0.113.9, 198.51.100.1\r\n"), (403, 200), "the client's own, first");
    for unknown in ["", "X-Forwarded-For: unknown\r\n", "X-Real-IP: 203.0.113.9\r\n"] {
        assert_eq!(both(unknown), (403, 403), "who is unknown may be anybody: {unknown:?}");
    }
    let real = asked(r#", http = "x-forwarded", client_address_header = "X-Real-IP""#, BY_ADDRESS);
    let lines = "X-Real-IP: 203.0.113.9\r\nX-Forwarded-For: 198.51.100.1\r\n";
    assert_eq!(asked_about(&real, "/near", lines).status, 200);
    let lines = format!("{lines}X-Real-IP: 203.0.113.9\r\n");
    assert_eq!(asked_about(&real, "/near", &lines).status, 403);
    assert_eq!(asked_about(&real, "/far", &lines).status, 403);
}

#[test]
fn envoy_states_the_address_over_grpc() {
    let f = asked("", BY_ADDRESS);
    let bearer = format!("Bearer {}", f.issuer.token(|_| {}));
    let status = |path: &str, client: Option<&str>| {
        let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", "203.0.113.9")];
        let mut question = question(path, &headers);
        let source = question.attributes.as_mut().unwrap().source.as_mut().unwrap();
        source.address = client.map(|address| {
            let socket = SocketAddress { address: address.into(), ..SocketAddress::default() };
            Address { address: Some(Kind::SocketAddress(socket)) }
        });
        let response = check(&f, &question);
        if response.status.as_ref().unwrap().code == 0 {
            allowed(response);
            200
        } else {
            denied(response).0
        }
    };
    assert_eq!((status("/near", Some("203.0.113.9")), status("/far", Some("203.0.113.9"))), (200, 403));
    assert_eq!((status("/near", Some("198.51.100.1")), status("/far", Some("198.51.100.1"))), (403, 200));
    assert_eq!(
        (status("/near", None), status("/far", None)),
        (403, 403),
        "a header of the client is no address"
    );
}

#[test]
fn a_cached_answer_ends_with_the_window_and_is_for_one_address_only() {
    let mut more = window("shift", 60, 5) + &window("day", 60, 12 * 60);
    let _ = write!(more, "{BY_ADDRESS}");
    let settings = r#", http = "x-forwarded", client_address_header = "X-Forwarded-For", max_age = "1h""#;
    let f = asked(settings, &more);
    let lines = "X-Forwarded-For: 203.0.113.9\r\n";
    let age = |path: &str| {
        let response = asked_about(&f, path, lines);
        assert_eq!(response.status, 200, "{path}");
        let control = response.value("cache-control").unwrap().to_owned();
        control.strip_prefix("max-age=").and_then(|rest| rest.split(',').next()?.parse::<u64>().ok())
    };
    let shift = age("/shift").expect("cached");
    assert!((1..=300).contains(&shift), "{shift}");
    assert!(age("/day").is_some_and(|age| age <= 60), "the facts end first");
    assert_eq!(age("/near"), None, "another address could have another answer");
}
