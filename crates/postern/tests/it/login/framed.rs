//! security: sessions in frames of other sites. Their cookie goes with requests that any page causes,
//! so the origin decides what `SameSite=Lax` decides elsewhere.

use std::sync::Arc;

use auth::time::Timestamp;
use http_engine::clock::ManualClock;

use super::fixture::{LoginFixture, keyed, setup, start};
use super::hosts::{Hosts, NAVIGATE, location};
use super::provider::SimulatedProvider;
use dataplane::ext_authz::{allowed, check, denied, question};
use dataplane::harness::{Fixture, Setup, now};
use dataplane::upgrade::{UPGRADE, shouting};

const KEY: &str = "frame_ancestors = [\"https://portal.test\", \"https://*.portals.test\"]";
const APP: &str = "https://app.test";
/// Who may frame the services, as the policies say it.
const ANCESTORS: &str = "frame-ancestors 'self' https://portal.test https://*.portals.test";

fn framed_with(listener: &str, route: &str) -> LoginFixture {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let usual = setup(&provider, KEY);
    let setup = Setup {
        listener: format!("{}{listener}", usual.listener),
        route: format!("{}\n{route}", usual.route),
        ..usual
    };
    let fixture = start(&setup, &clock, None);
    LoginFixture { clock, provider, fixture }
}

fn log_in(stage: &LoginFixture) -> Hosts {
    let mut browser = Hosts::new(stage.fixture.address);
    let started = location(&browser.visit(&format!("{APP}/")));
    let sent = location(&browser.visit(&started));
    let (code, state) = stage.provider.approve(&sent);
    let back = browser.visit(&format!("{APP}/oauth2/callback?code={code}&state={state}"));
    assert_eq!(back.status, 303, "{}", back.text());
    browser
}

#[test]
fn cookies_are_kept_in_frames_of_other_sites() {
    let stage = framed_with("", "");
    let mut browser = log_in(&stage);
    for name in ["__Host-postern", "__Host-postern-login"] {
        let attributes = &browser.attributes[name];
        assert!(
            attributes.contains("SameSite=None;") && attributes.ends_with("Secure; Partitioned"),
            "{attributes}"
        );
    }
    assert_eq!(browser.visit(&format!("{APP}/")).status, 200);
    browser.visit(&format!("{APP}/oauth2/sign_out"));
    assert!(browser.kept().is_empty(), "they are removed with the same attributes");
    for attributes in browser.attributes.values() {
        assert!(attributes.contains("Max-Age=0; Secure; Partitioned"), "{attributes}");
    }
}

#[test]
fn pages_of_other_sites_cause_no_requests_with_a_session() {
    let stage = framed_with("", "");
    let mut browser = log_in(&stage);
    let cross = "Sec-Fetch-Site: cross-site\r\n";
    let navigation = "Sec-Fetch-Mode: navigate\r\n";
    let evil = "Origin: https://evil.test\r\n";
    let mut expect = |method: &str, lines: &str, status: u16| {
        assert_eq!(browser.send(method, &format!("{APP}/x"), lines).status, status, "{method} {lines}");
    };
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        expect(method, evil, 403);
        expect(method, &format!("{evil}{cross}{navigation}"), 403);
        expect(method, "Origin: null\r\n", 403);
        expect(method, &format!("Origin: null\r\n{cross}{navigation}"), 403);
        expect(method, cross, 403);
        // The origin of a page that may only frame the service.
        expect(method, &format!("Origin: https://portal.test\r\n{cross}"), 403);
        expect(method, "Origin: https://other.test\r\n", 403);
        expect(method, "", 403);
        expect(method, &format!("Origin: {APP}\r\n{evil}"), 403);
        expect(method, &format!("Sec-Fetch-Site: same-origin\r\n{cross}"), 403);
        expect(method, &format!("Origin: {APP}\r\n"), 200);
        expect(method, &format!("Origin: {APP}\r\nSec-Fetch-Site: same-origin\r\n"), 200);
        // `Referrer-Policy: no-referrer` makes the page's own origin `null`.
        expect(method, "Origin: null\r\nSec-Fetch-Site: same-origin\r\n", 200);
        expect(method, "Sec-Fetch-Site: none\r\n", 200);
        // Lax cookies go with requests of the same site too.
        expect(method, "Origin: https://www.app.test\r\nSec-Fetch-Site: same-site\r\n", 200);
    }
    // A page is opened, in a tab or in a frame.
    expect("GET", &format!("{cross}{navigation}"), 200);
    expect("GET", &format!("{cross}{navigation}Sec-Fetch-Dest: iframe\r\n"), 200);
    expect("GET", NAVIGATE, 200);
    expect("GET", "", 200);
    // A picture, a script, a query of another site.
    expect("GET", &format!("{cross}Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n"), 403);
    expect("GET", &format!("{cross}{evil}Sec-Fetch-Mode: cors\r\n"), 403);
    expect("GET", &format!("{cross}{navigation}Sec-Fetch-Dest: object\r\n"), 403);
    expect("GET", &format!("{cross}{navigation}Sec-Fetch-Dest: embed\r\n"), 403);
    expect("GET", evil, 403);
    expect("HEAD", cross, 403);
    let forwarded = stage.fixture.upstream.seen();
    assert!(forwarded.iter().all(|seen| !seen.values("origin").contains(&"https://evil.test")));
    // Tokens are sent by programs, and by pages that have them.
    let token = stage.fixture.issuer.token(|_| {});
    let mut program = Hosts::new(stage.fixture.address);
    let lines = format!("{evil}{cross}Authorization: Bearer {token}\r\n");
    assert_eq!(program.send("POST", &format!("{APP}/x"), &lines).status, 200);
    let refused = stage.fixture.counted("postern_denials_total{reason=\"foreign_origin\"}");
    assert!(refused > 50.0, "{refused}");
}

#[test]
fn a_cors_policy_with_credentials_permits_requests_of_its_origins() {
    let stage = framed_with("", "cors = { origins = [\"https://portal.test\"], credentials = true }");
    let mut browser = log_in(&stage);
    let mut sent = |origin: &str| {
        let lines = format!("Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n");
        browser.send("POST", &format!("{APP}/x"), &lines).status
    };
    assert_eq!(sent("https://portal.test"), 200);
    for other in ["https://evil.test", "http://portal.test", "https://portal.test.evil.test", "null"] {
        assert_eq!(sent(other), 403, "{other}");
    }
    // Without credentials, the pages read only what everybody may.
    let stage = framed_with("", "cors = { origins = [\"https://portal.test\"] }");
    let mut browser = log_in(&stage);
    let lines = "Origin: https://portal.test\r\nSec-Fetch-Site: cross-site\r\n";
    assert_eq!(browser.send("POST", &format!("{APP}/x"), lines).status, 403);
}

#[test]
fn websockets_of_other_sites_are_refused() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let (dir, upstream) = (keyed(), shouting());
    let text = setup(&provider, KEY).file(dir.path(), upstream.address);
    let fixture = Fixture::keeping(dir, upstream, &text, clock.clone(), None);
    let stage = LoginFixture { clock, provider, fixture };
    let browser = log_in(&stage);
    let session = &browser.cookies[&("app.test".to_owned(), "__Host-postern".to_owned())];
    let open = |origin: &str| {
        let mut client = stage.fixture.connect();
        client.send(format!(
            "GET /chat HTTP/1.1\r\nHost: app.test\r\nCookie: __Host-postern={session}\r\n{UPGRADE}{origin}\r\n"
        ));
        client.head().status
    };
    assert_eq!(open("Origin: https://app.test\r\n"), 101);
    assert_eq!(open("Origin: https://portal.test\r\n"), 403);
    assert_eq!(open("Origin: https://evil.test\r\nSec-Fetch-Site: same-origin\r\n"), 403);
}

#[test]
fn only_the_listed_sites_show_the_pages() {
    let stage = framed_with("", "");
    let mut browser = log_in(&stage);
    let policies = |response: &dataplane::harness::Response| -> Vec<String> {
        let lines = response.head.lines().filter_map(|line| line.split_once(": "));
        let lines = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-security-policy"));
        lines.map(|(_, value)| value.to_owned()).collect()
    };
    // Pages of the service itself, beside its own policy.
    let shown = browser.visit(&format!("{APP}/"));
    assert_eq!((shown.status, policies(&shown)), (200, vec![ANCESTORS.to_owned()]));
    // Pages of the login.
    for path in ["/oauth2/sign_in", "/oauth2/signed_out", "/oauth2/nothing"] {
        let shown = browser.visit(&format!("{APP}{path}"));
        assert!(policies(&shown)[0].contains(&format!("{ANCESTORS};")), "{path}: {}", shown.head);
        assert_eq!(shown.value("x-frame-options"), None, "{path}");
    }
    // The page of a refusal.
    stage.provider.state().claims = serde_json::json!({"groups": ["guests"]});
    let mut guest = log_in(&stage);
    let refused = guest.visit(&format!("{APP}/"));
    assert_eq!(refused.status, 403);
    assert!(policies(&refused).iter().all(|policy| policy.contains(ANCESTORS)), "{}", refused.head);
    assert_eq!(refused.value("x-frame-options"), None);
    // A route without the login is left as it is.
    assert!(policies(&browser.visit(&format!("{APP}/open"))).is_empty());
}

#[test]
fn requests_of_other_sites_count_when_envoy_asks() {
    let stage = framed_with("authorization = { from = [\"127.0.0.1/32\"] }", "");
    let elsewhere = framed_with("", "");
    let browser = log_in(&elsewhere);
    // Both have the same keys, and the same provider by name only: so it is the session of this one.
    let url = elsewhere.provider.url.clone();
    let listener = "authorization = { from = [\"127.0.0.1/32\"] }";
    let usual = setup(&stage.provider, KEY);
    let more = usual.more.replace(&stage.provider.url, &url);
    stage.fixture.reload(&Setup { listener: format!("{}{listener}", usual.listener), more, ..usual });
    let cookies: Vec<_> =
        browser.cookies.iter().map(|((_, name), value)| format!("{name}={value}")).collect();
    let cookie = cookies.join("; ");
    let ask = |about: &[(&str, &str)]| {
        check(&stage.fixture, &question("/x", &[&[("cookie", cookie.as_str())], about].concat()))
    };
    allowed(ask(&[("origin", APP)]));
    allowed(ask(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]));
    for about in [&[("origin", "https://evil.test")][..], &[("sec-fetch-site", "cross-site")]] {
        let (status, _, body, _) = denied(ask(about));
        assert!(status == 403 && body.contains("foreign_origin"), "{about:?}: {body}");
    }
}

#[test]
fn without_the_key_browsers_decide() {
    let stage = LoginFixture::with_cookie_sessions();
    let mut browser = log_in(&stage);
    assert!(browser.attributes["__Host-postern"].contains("SameSite=Lax;"));
    let lines = "Origin: https://evil.test\r\nSec-Fetch-Site: cross-site\r\n";
    assert_eq!(
        browser.send("POST", &format!("{APP}/x"), lines).status,
        200,
        "it would come without the cookie"
    );
}
