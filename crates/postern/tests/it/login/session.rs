//! Scope of a session: it is a credential only where it was created and where a route wants it.
//! Sessions are in a cookie, or in a database.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use base64::Engine as _;
use http_engine::clock::ManualClock;

use super::broken::Blinking;
use super::fixture::{KEY, LoginFixture, OTHER_KEY, database, everywhere, gateway, keyed, setup};
use super::provider::{Browser, SimulatedProvider, parameters};
use dataplane::harness::{Fixture, Setup, Upstream, load_all, now, until};
use gateway::server::{GatewayListeners, RoutesUpdate};

#[test]
fn a_session_is_a_credential_where_it_was_begun_and_wanted() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        assert_eq!(browser.visit("/").status, 200);
        assert_eq!(browser.visit("/api/x").status, 401, "the route takes no sessions");
        let mut elsewhere =
            Browser { cookies: browser.cookies.clone(), ..Browser::new(stage.fixture.address, "other.test") };
        assert_eq!(elsewhere.visit("/").status, 302, "a cookie that was carried to another host");
        let mut http = browser.clone();
        let session = http.cookies.remove("__Host-postern").unwrap();
        http.cookies.insert("postern".into(), session.clone());
        assert_eq!(http.visit("/").status, 302, "under the name that any host could set");
        let twice = format!("Cookie: __Host-postern={session}; __Host-postern={session}\r\n");
        assert_eq!(stage.browser().send("GET", "/", &twice, "").status, 401);
        let mut forged = browser.clone();
        let mut bytes = session.into_bytes();
        let last = bytes.len() - 1;
        bytes[last] = if bytes[last] == b'A' { b'B' } else { b'A' };
        forged.cookies.insert("__Host-postern".into(), String::from_utf8(bytes).unwrap());
        assert_eq!(forged.visit("/").status, 302);
        // If the request has a token, only the token is the credential.
        let bearer = browser.send("GET", "/", "Authorization: Bearer nonsense\r\n", "");
        assert_eq!(bearer.status, 401);
        let token = stage.fixture.issuer.token(|claims| claims["preferred_username"] = "bob".into());
        assert_eq!(browser.send("GET", "/", &format!("Authorization: Bearer {token}\r\n"), "").status, 200);
        assert_eq!(stage.fixture.upstream.seen().last().unwrap().values("x-forwarded-user"), ["bob"]);
    });
}

#[test]
fn somebody_else_in_the_same_browser_ends_the_session_before() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        let before = browser.clone();
        stage.provider.state().subject = "bob-id".into();
        let location = parameters(browser.visit("/oauth2/start?rd=/").value("location").unwrap());
        assert!(location.contains_key("state"));
        let started = browser.visit("/oauth2/start?rd=/");
        let location = started.value("location").unwrap().to_owned();
        assert_eq!(browser.back(&stage.provider.approve(&location)).status, 303);
        assert_eq!(browser.visit("/").status, 200);
        assert_eq!(stage.fixture.upstream.seen().last().unwrap().values("x-forwarded-user"), ["bob"]);
        assert_eq!(before.clone().visit("/").status, 302);
    });
}

/// What a connection remembers of its requests names the login that they used. A login of before reads
/// its database, four times a second, as long as anybody holds it.
#[test]
fn a_busy_connection_holds_no_login_of_before() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let store = Arc::new(Blinking::new(0));
    let fixture = gateway(&provider, &clock, "", Some(store.clone()));
    let stage = LoginFixture { clock, provider, fixture };
    let session = stage.logged_in().session().unwrap().clone();
    let mut client = stage.fixture.connect();
    let mut status = |field: &str| {
        let cookie = format!("Cookie: __Host-postern={session}\r\n");
        client.send(format!("GET / HTTP/1.1\r\nHost: app.test\r\n{cookie}{field}\r\n"));
        client.response().status
    };
    assert_eq!([(); 4].map(|()| status("")), [200; 4]);
    stage.fixture.reload(&setup(&stage.provider, "lifetime = \"13h\""));
    let mut number = 0;
    until("only the new login reads the database", || {
        let before = store.reads.load(SeqCst);
        let began = Instant::now();
        // Without a pause, and always with other fields: nothing takes the place of what was
        // remembered.
        while began.elapsed() < Duration::from_secs(2) {
            number += 1;
            assert_eq!(status(&format!("X-Number: {number}\r\n")), 200);
            std::thread::sleep(Duration::from_millis(50));
        }
        store.reads.load(SeqCst) - before <= 10
    });
}

#[test]
fn what_does_not_fit_into_a_cookie_is_kept_in_a_database() {
    let carried = LoginFixture::with_cookie_sessions();
    carried.provider.state().padding = 6000;
    let mut browser = carried.browser();
    let location = browser.go_to_provider("/");
    let refused = browser.back(&carried.provider.approve(&location));
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("can keep in a cookie"), "{}", refused.text());
    assert!(browser.session().is_none());
    let kept = LoginFixture::with_database_sessions();
    kept.provider.state().padding = 8000;
    let mut browser = kept.logged_in();
    assert_eq!(browser.session().unwrap().len(), 86);
    assert_eq!(browser.visit("/").status, 200);
}

#[test]
fn an_upstream_cannot_make_somebody_somebody_else() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let dir = keyed();
    let upstream = Upstream::answering(|_, socket| {
        let cookies = "Set-Cookie: __Host-postern=other; Path=/; Secure; HttpOnly; SameSite=Lax\r\nSet-Cookie: theme=dark; Path=/; Secure; HttpOnly; SameSite=Lax\r\n";
        socket
            .write_all(format!("HTTP/1.1 200 OK\r\n{cookies}content-length: 2\r\n\r\nok").as_bytes())
            .is_ok()
    });
    let text = setup(&provider, "").file(dir.path(), upstream.address);
    let fixture = Fixture::keeping(dir, upstream, &text, clock.clone(), None);
    let stage = LoginFixture { clock, provider, fixture };
    let mut browser = stage.logged_in();
    let session = browser.session().unwrap().clone();
    assert_eq!(browser.visit("/").status, 200);
    assert_eq!(browser.session(), Some(&session));
    assert_eq!(browser.cookies["theme"], "dark");
}

#[test]
fn proxies_and_pages_ask_whose_session_it_is() {
    everywhere(|stage| {
        let ask = |browser: &Browser, query: &str| {
            browser.clone().send("GET", &format!("/oauth2/auth{query}"), "", "")
        };
        assert_eq!(ask(&stage.browser(), "").status, 401);
        let browser = stage.logged_in();
        let told = ask(&browser, "");
        assert_eq!((told.status, told.value("cache-control")), (202, Some("no-store")));
        assert_eq!(told.value("x-auth-request-user"), Some("alice"));
        assert_eq!(told.value("x-auth-request-email"), Some("alice@example.com"));
        assert_eq!(told.value("x-auth-request-groups"), Some("dev"));
        for (query, status) in [
            ("?allowed_groups=dev", 202),
            ("?allowed_groups=ops,dev", 202),
            ("?allowed_groups=ops", 403),
            ("?allowed_groups=", 403),
            ("?allowed_emails=Alice@example.com", 202),
            ("?allowed_emails=bob@example.com", 403),
            ("?allowed_email_domains=example.com", 202),
            ("?allowed_email_domains=evil.com", 403),
            ("?allowed_groups=dev&allowed_emails=bob@example.com", 403),
        ] {
            assert_eq!(ask(&browser, query).status, status, "{query}");
        }
        let user = browser.clone().send("GET", "/oauth2/userinfo", "", "");
        let user: serde_json::Value = serde_json::from_slice(&user.body).unwrap();
        assert_eq!(user["preferredUsername"], "alice");
        assert_eq!(user["email"], "alice@example.com");
        assert_eq!(stage.browser().send("GET", "/oauth2/userinfo", "", "").status, 401);
        assert_eq!(browser.clone().visit("/oauth2/nothing").status, 404);
        assert_eq!(browser.clone().visit("/oauth2").status, 404);
        assert!(stage.fixture.upstream.seen().is_empty());
    });
}

#[test]
fn a_key_is_exchanged_without_anybody_noticing() {
    let stage = LoginFixture::with_cookie_sessions();
    let mut browser = stage.logged_in();
    let keys = stage.fixture.dir.path().join("keys");
    let setup = setup(&stage.provider, "");
    std::fs::write(&keys, format!("{OTHER_KEY}\n{KEY}\n")).unwrap();
    stage.fixture.reload(&setup);
    assert_eq!(browser.visit("/").status, 200, "what the old key sealed");
    let mut new = stage.logged_in();
    std::fs::write(&keys, OTHER_KEY).unwrap();
    stage.fixture.reload(&setup);
    assert_eq!(new.visit("/").status, 200, "the new one seals");
    assert_eq!(browser.visit("/").status, 302, "the old one is gone");
}

#[test]
fn an_upstream_is_given_the_access_token_when_it_is_said_so() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let stage = {
        let fixture = gateway(&provider, &clock, "", Some(database()));
        LoginFixture { clock, provider, fixture }
    };
    let with_token =
        Setup { route: "login = true\nforward_access_token = true".into(), ..setup(&stage.provider, "") };
    stage.fixture.reload(&with_token);
    let mut browser = stage.logged_in();
    assert_eq!(browser.send("GET", "/", "X-Forwarded-Access-Token: forged\r\n", "").status, 200);
    let seen = stage.fixture.upstream.only();
    assert_eq!(seen.values("x-forwarded-access-token"), ["access-2"]);
    stage.clock.advance(Duration::from_mins(6));
    browser.visit("/");
    assert_eq!(stage.fixture.upstream.seen()[1].values("x-forwarded-access-token"), ["access-3"]);
}

#[test]
fn a_route_that_comes_later_is_given_the_access_token_if_the_operator_permits_it() {
    for (table, expected) in [
        ("", &[][..]),
        ("[gateway_api]", &[]),
        ("[gateway_api]\npolicies_may_use = [\"forward_access_token\"]", &["access-2"]),
    ] {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let before = setup(&provider, "");
        let before = Setup { more: format!("{}\n{table}", before.more), ..before };
        let fixture = super::fixture::start(&before, &clock, None);
        let stage = LoginFixture { clock, provider, fixture };
        let mut browser = stage.logged_in();
        // The login stays: another source than the file exchanges the routes.
        let after = Setup { route: "login = true\nforward_access_token = true".into(), ..before };
        let (folder, upstream) = (stage.fixture.dir.path(), stage.fixture.upstream.address);
        let routing = load_all(folder, &after.file(folder, upstream)).config.routing;
        let generation = stage.fixture.gateway().config().generation;
        let update = RoutesUpdate { generation, routing, listeners: GatewayListeners::Same };
        let pending = stage.fixture.gateway().update_routes(update).unwrap();
        pending.wait().unwrap();
        assert_eq!(browser.visit("/").status, 200);
        let seen = stage.fixture.upstream.only();
        assert_eq!(seen.values("x-forwarded-access-token"), expected, "{table}");
    }
}

#[test]
fn an_upstream_is_given_the_id_token_as_a_bearer() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let route = "login = true\nrequest_headers.set = { Authorization = \"Bearer {id_token}\", \
                 X-Access = \"{access_token}\", X-User = \"{user}\" }";
    let setup = Setup { route: route.into(), ..setup(&provider, "") };
    let fixture = super::fixture::start(&setup, &clock, None);
    let stage = LoginFixture { clock, provider, fixture };
    let mut browser = stage.logged_in();
    assert_eq!(browser.send("GET", "/", "X-User: root\r\nX_Access: forged\r\n", "").status, 200);
    let seen = stage.fixture.upstream.only();
    let authorization = seen.values("authorization");
    let token = authorization[0].strip_prefix("Bearer ").unwrap();
    let claims =
        token.split('.').nth(1).and_then(|part| base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(part).ok());
    let claims: serde_json::Value = serde_json::from_slice(&claims.unwrap()).unwrap();
    assert_eq!(claims["aud"], "gateway", "{claims}");
    assert!(claims["nonce"].is_string(), "{claims}");
    assert_eq!(seen.values("x-access").len(), 1);
    assert!(seen.values("x_access").is_empty());
    assert!(!seen.values("x-user").contains(&"root"), "{}", seen.head);
}

#[test]
fn an_application_s_own_authorization_passes_beside_a_session() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let setup =
        Setup { route: "login = true\napplication_authorization = true".into(), ..setup(&provider, "") };
    let fixture = super::fixture::start(&setup, &clock, None);
    let stage = LoginFixture { clock, provider, fixture };
    let mut browser = stage.logged_in();
    let foreign_jwt = {
        let part = |json: &str| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(json);
        format!(
            "{}.{}.c2ln",
            part(r#"{"alg":"HS256"}"#),
            part(r#"{"iss":"https://langflow.example","exp":4102444800}"#)
        )
    };
    for value in ["Basic YTpi", "token 1234", "Bearer sk-abc", &format!("Bearer {foreign_jwt}")] {
        assert_eq!(
            browser.send("GET", "/", &format!("Authorization: {value}\r\n"), "").status,
            200,
            "{value}"
        );
        let seen = stage.fixture.upstream.seen().pop().unwrap();
        assert_eq!(seen.values("authorization"), [value]);
        assert_eq!(seen.values("x-forwarded-user"), ["alice"]);
    }
    let forwarded = stage.fixture.upstream.seen().len();
    // Tokens that are for the gateway decide as ever, and stay here.
    let ours = stage.fixture.issuer.token(|_| {});
    assert_eq!(browser.send("GET", "/", &format!("Authorization: Bearer {ours}\r\n"), "").status, 200);
    assert!(stage.fixture.upstream.seen()[forwarded].values("authorization").is_empty());
    let forged = format!("{}x", &ours[..ours.len() - 4]);
    assert_eq!(browser.send("GET", "/", &format!("Authorization: Bearer {forged}\r\n"), "").status, 401);
    // Without a session, a foreign token is no credential.
    let mut stranger = stage.browser();
    let refused =
        stranger.send("GET", "/", "Accept: application/json\r\nAuthorization: Bearer sk-abc\r\n", "");
    assert_eq!(refused.status, 401);
    assert_eq!(stage.fixture.upstream.seen().len(), forwarded + 1);
}
