//! security: a browser may open a WebSocket with a session only from a page of the same origin, or
//! of an origin that the route names.
//!
//! Browsers let any page open a WebSocket to any server and send the cookies with it. Only the
//! `Origin` field distinguishes the pages.

use std::sync::Arc;

use auth::time::Timestamp;
use http_engine::clock::ManualClock;

use super::fixture::{LoginFixture, keyed, setup};
use super::provider::{Browser, SimulatedProvider};
use dataplane::ext_authz::{allowed, check, denied, question};
use dataplane::harness::{Fixture, Setup, TestClient, now};
use dataplane::upgrade::{UPGRADE, shouting};

/// Origins other than `https://app.test`.
const FOREIGN: [&str; 9] = [
    "https://evil.test",
    "http://app.test",
    "https://app.test:8443",
    "https://app.test.evil.test",
    "https://other.test",
    "https://sub.app.test",
    "null",
    "app.test",
    "https://app.test/",
];

impl LoginFixture {
    /// Starts it in front of a WebSocket service. `route` contains further keys of the route.
    fn with_websockets(listener: &str, route: &str) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let usual = setup(&provider, "");
        let setup = Setup { listener: listener.into(), route: format!("{}\n{route}", usual.route), ..usual };
        let (dir, upstream) = (keyed(), shouting());
        let text = setup.file(dir.path(), upstream.address);
        let fixture = Fixture::keeping(dir, upstream, &text, clock.clone(), None);
        Self { clock, provider, fixture }
    }
}

fn cookie(browser: &Browser) -> String {
    browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
}

/// Status of a handshake with these further lines.
fn open(stage: &LoginFixture, lines: &str) -> u16 {
    let mut client = TestClient::connect(stage.fixture.address);
    client.send(format!("GET /chat HTTP/1.1\r\nHost: app.test\r\n{lines}\r\n"));
    client.head().status
}

#[test]
fn websocket_with_a_session_is_refused_to_pages_of_other_origins() {
    let stage = LoginFixture::with_websockets("", "");
    let browser = stage.logged_in();
    let session = format!("Cookie: {}\r\n{UPGRADE}", cookie(&browser));
    assert_eq!(open(&stage, &format!("{session}Origin: https://app.test\r\n")), 101);
    assert_eq!(open(&stage, &session), 101, "browsers always name an origin: this is none");
    for origin in FOREIGN {
        assert_eq!(open(&stage, &format!("{session}Origin: {origin}\r\n")), 403, "{origin}");
    }
    let twice = format!("{session}Origin: https://app.test\r\nOrigin: https://evil.test\r\n");
    assert_eq!(open(&stage, &twice), 403);
    let respelled = session.replace("websocket", "WebSocket");
    assert_eq!(open(&stage, &format!("{respelled}Origin: https://evil.test\r\n")), 403);
    assert_eq!(stage.fixture.upstream.seen().len(), 2);
    let refused = stage.fixture.counted("postern_denials_total{reason=\"foreign_origin\"}");
    assert!((refused - 11.0).abs() < 0.1, "{refused}");
}

#[test]
fn websocket_origins_of_the_route_may_open_one() {
    let stage = LoginFixture::with_websockets(
        "",
        "websocket_origins = [\"https://other.test\", \"https://Sub.app.test:443\", \"http://127.0.0.1:3000\"]",
    );
    let browser = stage.logged_in();
    let session = format!("Cookie: {}\r\n{UPGRADE}", cookie(&browser));
    for origin in ["https://app.test", "https://other.test", "https://sub.app.test", "http://127.0.0.1:3000"]
    {
        assert_eq!(open(&stage, &format!("{session}Origin: {origin}\r\n")), 101, "{origin}");
    }
    for origin in ["https://evil.test", "http://other.test", "http://127.0.0.1", "https://sub.app.test:444"] {
        assert_eq!(open(&stage, &format!("{session}Origin: {origin}\r\n")), 403, "{origin}");
    }
}

#[test]
fn websocket_origin_is_asked_of_sessions_alone() {
    let stage = LoginFixture::with_websockets("", "");
    let token = stage.fixture.issuer.token(|_| {});
    let foreign = "Origin: https://evil.test\r\n";
    // A page cannot make a browser send a token.
    assert_eq!(open(&stage, &format!("Authorization: Bearer {token}\r\n{UPGRADE}{foreign}")), 101);
    // A request that is not a handshake is left to the service and its CORS rules.
    let browser = stage.logged_in();
    let session = format!("Cookie: {}\r\n", cookie(&browser));
    assert_eq!(open(&stage, &format!("{session}{foreign}")), 502, "101 that was not asked for");
    assert_eq!(stage.fixture.upstream.seen().len(), 2);
}

#[test]
fn websocket_origin_counts_when_envoy_asks() {
    let stage = LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"] }");
    let session = envoy_session(&stage);
    let handshake = [
        ("cookie", session.as_str()),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let asked = |origin: &[(&str, &str)]| {
        check(&stage.fixture, &question("/chat", &[&handshake[..], origin].concat()))
    };
    allowed(asked(&[("origin", "https://app.test")]));
    allowed(asked(&[]));
    for origin in FOREIGN {
        let (status, _, body, _) = denied(asked(&[("origin", origin)]));
        assert!(status == 403 && body.contains("foreign_origin"), "{origin}: {body}");
    }
    // A handshake over HTTP/2 has no key.
    let about = [("cookie", session.as_str()), ("upgrade", "websocket"), ("origin", "https://evil.test")];
    assert_eq!(denied(check(&stage.fixture, &question("/chat", &about))).0, 403);
    let plain = [("cookie", session.as_str()), ("origin", "https://evil.test")];
    allowed(check(&stage.fixture, &question("/chat", &plain)));
}

/// Cookie of a user who logged in behind Envoy.
fn envoy_session(stage: &LoginFixture) -> String {
    let elsewhere = LoginFixture {
        fixture: super::fixture::gateway(&stage.provider, &stage.clock, "", None),
        clock: stage.clock.clone(),
        provider: SimulatedProvider::new(&stage.clock),
    };
    let mut browser = elsewhere.browser();
    browser.log_in(&stage.provider, "/");
    cookie(&browser)
}

#[test]
fn websocket_origin_counts_when_another_postern_asks() {
    let stage = LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"], http = \"envoy\" }");
    let session = envoy_session(&stage);
    let more = format!(
        "[[upstream]]\nname = \"auth\"\nendpoints = [\"http://{}\"]\n[[authorizer]]\nname = \"other\"\nupstream = \"auth\"\n\
         [[route]]\nname = \"asked\"\npath = {{ prefix = \"/chat\" }}\nupstream = \"backend\"\nupgrades = [\"websocket\"]\npublic = true\nauthorizer = \"other\"\n",
        stage.fixture.address
    );
    let edge = Fixture::with(Setup { more, ..Setup::default() }, shouting());
    let open = |lines: &str| {
        let mut client = edge.connect();
        client.send(format!("GET /chat HTTP/1.1\r\nHost: app.test\r\nCookie: {session}\r\n{lines}\r\n"));
        client.head().status
    };
    assert_eq!(open(&format!("{UPGRADE}Origin: https://app.test\r\n")), 101);
    for origin in FOREIGN {
        assert_eq!(open(&format!("{UPGRADE}Origin: {origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(open("Origin: https://evil.test\r\n"), 502, "no handshake: 101 that was not asked for");
    assert_eq!(edge.upstream.seen().len(), 2);
}

#[test]
fn websocket_origin_counts_when_nginx_asks() {
    // nginx removes Upgrade; only the key of the handshake remains.
    let stage =
        LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"], http = \"x-original\" }");
    let session = envoy_session(&stage);
    let ask = |lines: &str| {
        let about = "X-Original-Method: GET\r\nX-Original-URI: /chat\r\n";
        let head = format!("GET /ask HTTP/1.1\r\nHost: app.test\r\n{about}Cookie: {session}\r\n{lines}\r\n");
        stage.fixture.send(head).status
    };
    let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert_eq!(ask(&format!("{key}Origin: https://app.test\r\n")), 200);
    assert_eq!(ask(key), 200);
    assert_eq!(ask("Origin: https://evil.test\r\n"), 200, "no handshake");
    for origin in FOREIGN {
        assert_eq!(ask(&format!("{key}Origin: {origin}\r\n")), 403, "{origin}");
    }
}
