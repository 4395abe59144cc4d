//! security: one session for the hosts of a domain. A login takes place at one of them, leads only
//! to origins that are configured, and ends for all of them.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::session_store::SessionStore;
use http_engine::clock::ManualClock;
use serde_json::json;

use super::fixture::{FORM, LoginFixture, ORIGINS, database, setup, start};
use super::hosts::{Hosts, location};
use super::provider::{SimulatedProvider, parameters};
use dataplane::harness::{Setup, now};

const AUTH: &str = "https://auth.shared.test";
const A: &str = "https://a.shared.test";
const B: &str = "https://b.deep.shared.test";
/// The session cookie of the domain.
const SESSION: &str = "__Secure-postern";

/// The usual configuration, with a session for all hosts below `shared.test`.
fn shared_setup(provider: &SimulatedProvider) -> Setup {
    let origins = format!(
        "origins = [\"{AUTH}\", \"https://*.shared.test\"]\ncookie_domain = \"shared.test\"\n\
         callback_origin = \"{AUTH}\""
    );
    provider.state().callback = format!("{AUTH}/oauth2/callback");
    let usual = setup(provider, "");
    Setup { more: usual.more.replace(ORIGINS, &origins), ..usual }
}

fn sharing(sessions: Option<Arc<dyn SessionStore>>) -> LoginFixture {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let fixture = start(&shared_setup(&provider), &clock, sessions);
    LoginFixture { clock, provider, fixture }
}

fn everywhere(test: impl Fn(&LoginFixture)) {
    test(&sharing(None));
    test(&sharing(Some(database())));
}

/// Goes to the provider and back. Returns the last redirect.
fn log_in(stage: &LoginFixture, browser: &mut Hosts, url: &str) -> String {
    let started = location(&browser.visit(url));
    let sent = location(&browser.visit(&started));
    let (code, state) = stage.provider.approve(&sent);
    location(&browser.visit(&format!("{AUTH}/oauth2/callback?code={code}&state={state}")))
}

#[test]
fn one_sign_in_serves_all_hosts_of_the_domain() {
    everywhere(|stage| {
        let mut browser = Hosts::new(stage.fixture.address);
        let started = location(&browser.visit(&format!("{A}/reports?x=1")));
        let expected = format!("{AUTH}/oauth2/start?rd=https%3A%2F%2Fa.shared.test%2Freports%3Fx%3D1");
        assert_eq!(started, expected);
        let sent = location(&browser.visit(&started));
        assert_eq!(parameters(&sent)["redirect_uri"], format!("{AUTH}/oauth2/callback"));
        assert_eq!(browser.kept(), [("auth.shared.test", "__Host-postern-login")], "no sibling sets it");
        let (code, state) = stage.provider.approve(&sent);
        let back = browser.visit(&format!("{AUTH}/oauth2/callback?code={code}&state={state}"));
        assert_eq!(location(&back), format!("{A}/reports?x=1"));
        assert!(browser.attributes[SESSION].contains("; Domain=shared.test"), "{:?}", browser.attributes);
        browser.cookies.insert(("a.shared.test".into(), "theme".into()), "dark".into());
        for url in [&format!("{A}/reports?x=1"), &format!("{B}/"), &format!("{AUTH}/")] {
            assert_eq!(browser.visit(url).status, 200, "{url}");
        }
        let seen = stage.fixture.upstream.seen();
        assert_eq!(seen[0].values("cookie"), ["theme=dark"], "ours stay here");
        assert!(seen[1].values("cookie").is_empty());
        assert_eq!(stage.status().logins, 1);
        for foreign in
            ["https://shared.test/", "https://evil-shared.test/", "https://a.shared.test.evil.test/"]
        {
            assert_eq!(browser.visit(foreign).status, 401, "no origin of ours: {foreign}");
        }
    });
}

#[test]
fn a_login_that_begins_at_any_host_takes_place_at_one() {
    let stage = sharing(None);
    let mut browser = Hosts::new(stage.fixture.address);
    let asked = format!("{B}/oauth2/start?rd=/x&provider=id&login_hint=ada&prompt=select_account");
    let started = location(&browser.visit(&asked));
    let query = parameters(&started);
    assert!(started.starts_with(&format!("{AUTH}/oauth2/start?")), "{started}");
    assert_eq!((&*query["rd"], &*query["provider"]), (&*format!("{B}/x"), "id"));
    assert_eq!((&*query["login_hint"], &*query["prompt"]), ("ada", "select_account"));
    // Elsewhere nothing is begun, and nothing comes back.
    assert!(browser.kept().is_empty());
    let sent = location(&browser.visit(&started));
    let (code, state) = stage.provider.approve(&sent);
    let elsewhere = browser.visit(&format!("{B}/oauth2/callback?code={code}&state={state}"));
    assert_eq!(elsewhere.status, 400, "{}", elsewhere.text());
    // A cookie that a sibling host sets cannot stand for the one that is bound to this host.
    let mut other = Hosts::new(stage.fixture.address);
    let login = browser.cookies.values().next().unwrap().clone();
    other.cookies.insert((".shared.test".into(), "__Secure-postern-login".into()), login);
    let stolen = other.visit(&format!("{AUTH}/oauth2/callback?code={code}&state={state}"));
    assert_eq!(stolen.status, 400, "{}", stolen.text());
    let back = browser.visit(&format!("{AUTH}/oauth2/callback?code={code}&state={state}"));
    assert_eq!(location(&back), format!("{B}/x"));
}

#[test]
fn a_login_leads_to_origins_that_are_configured() {
    let stage = sharing(None);
    for (rd, goes) in [
        ("https%3A%2F%2Fa.shared.test%2Fx", format!("{A}/x")),
        ("%2Fx", format!("{AUTH}/x")),
        ("https%3A%2F%2Fshared.test%2F", format!("{AUTH}/")),
        ("https%3A%2F%2Fevil.test%2F", format!("{AUTH}/")),
        ("https%3A%2F%2Fa.shared.test%40evil.test%2F", format!("{AUTH}/")),
        ("https%3A%2F%2Fa.shared.test.evil.test%2F", format!("{AUTH}/")),
        ("https%3A%2F%2Fa.shared.test%3A8443%2F", format!("{AUTH}/")),
        ("http%3A%2F%2Fa.shared.test%2F", format!("{AUTH}/")),
        ("%2F%2Fa.shared.test%2F", format!("{AUTH}/")),
        ("https%3A%2F%2Fevil.test%5C.shared.test%2F", format!("{AUTH}/")),
    ] {
        let mut browser = Hosts::new(stage.fixture.address);
        let sent = location(&browser.visit(&format!("{AUTH}/oauth2/start?rd={rd}")));
        let (code, state) = stage.provider.approve(&sent);
        let back = browser.visit(&format!("{AUTH}/oauth2/callback?code={code}&state={state}"));
        assert_eq!(location(&back), goes, "{rd}");
        let out = Hosts::new(stage.fixture.address).visit(&format!("{AUTH}/oauth2/sign_out?rd={rd}"));
        assert_eq!(location(&out), goes, "{rd}");
    }
}

#[test]
fn an_origin_that_was_taken_out_is_not_returned_to() {
    let stage = sharing(None);
    let mut browser = Hosts::new(stage.fixture.address);
    let started = location(&browser.visit(&format!("{A}/x")));
    let sent = location(&browser.visit(&started));
    let setup = shared_setup(&stage.provider);
    let more = setup.more.replace("https://*.shared.test", "https://b.deep.shared.test");
    stage.fixture.reload(&Setup { more, ..setup });
    let (code, state) = stage.provider.approve(&sent);
    let back = browser.visit(&format!("{AUTH}/oauth2/callback?code={code}&state={state}"));
    assert_eq!(location(&back), format!("{AUTH}/"));
}

#[test]
fn signing_out_at_one_host_ends_the_session_at_all() {
    everywhere(|stage| {
        let mut browser = Hosts::new(stage.fixture.address);
        log_in(stage, &mut browser, &format!("{A}/"));
        let mut stolen = browser.clone();
        assert_eq!(browser.visit(&format!("{A}/")).status, 200);
        assert_eq!(stolen.visit(&format!("{B}/")).status, 200);
        let out = location(&browser.visit(&format!("{B}/oauth2/sign_out")));
        let asked = parameters(&out);
        assert_eq!(asked["post_logout_redirect_uri"], format!("{AUTH}/oauth2/signed_out"));
        assert!(!browser.kept().iter().any(|(_, name)| *name == SESSION), "{:?}", browser.kept());
        for url in [A, B, AUTH] {
            assert_eq!(stolen.visit(&format!("{url}/")).status, 302, "{url}");
        }
        // The provider ends it too.
        let mut browser = Hosts::new(stage.fixture.address);
        log_in(stage, &mut browser, &format!("{B}/"));
        assert_eq!(browser.visit(&format!("{A}/")).status, 200);
        let token = stage.provider.logout_token("logout+jwt", &json!({}));
        let body = format!("logout_token={token}");
        let mut provider = stage.browser();
        provider.host = "auth.shared.test";
        assert_eq!(provider.send("POST", "/oauth2/backchannel_logout", FORM, &body).status, 200);
        assert_eq!(browser.visit(&format!("{A}/")).status, 302);
    });
}

#[test]
fn a_renewed_session_is_that_of_all_hosts() {
    everywhere(|stage| {
        let mut browser = Hosts::new(stage.fixture.address);
        log_in(stage, &mut browser, &format!("{A}/"));
        let before = browser.clone();
        for (minutes, url) in [(6, A), (6, B), (6, AUTH)] {
            stage.clock.advance(Duration::from_mins(minutes));
            assert_eq!(browser.visit(&format!("{url}/")).status, 200, "{url}");
        }
        assert!(browser.attributes[SESSION].contains("; Domain=shared.test"));
        assert!(!stage.provider.state().reused && stage.status().renewed == 3);
        assert_eq!(browser.kept(), before.kept());
    });
}

#[test]
fn a_session_of_one_host_is_none_of_the_domain() {
    everywhere(|stage| {
        let mut browser = Hosts::new(stage.fixture.address);
        log_in(stage, &mut browser, &format!("{A}/"));
        let session = browser.cookies[&(".shared.test".to_owned(), SESSION.to_owned())].clone();
        let with = |cookies: &str| {
            let mut other = Hosts::new(stage.fixture.address);
            other.send("GET", &format!("{A}/"), &format!("Cookie: {cookies}\r\n")).status
        };
        assert_eq!(with(&format!("{SESSION}={session}")), 200);
        assert_eq!(with(&format!("__Host-postern={session}")), 401);
        assert_eq!(with(&format!("postern={session}")), 401);
        // A host of the domain can set another one for a path. Nobody knows which is whose.
        assert_eq!(with(&format!("{SESSION}={session}; {SESSION}=x")), 401);
        assert_eq!(with(&format!("{SESSION}={session}; {SESSION}={session}")), 401);
    });
    // With the same keys, but sealed for one origin.
    let single = LoginFixture::with_cookie_sessions();
    let host = single.logged_in().session().unwrap().clone();
    let stage = sharing(None);
    let mut browser = Hosts::new(stage.fixture.address);
    browser.cookies.insert((".shared.test".into(), SESSION.into()), host);
    assert_eq!(browser.visit(&format!("{A}/")).status, 302);
}

#[test]
fn a_page_that_refuses_its_user_leads_to_the_login_of_all_hosts() {
    let stage = sharing(None);
    stage.provider.state().claims = json!({"groups": ["guests"]});
    let mut browser = Hosts::new(stage.fixture.address);
    log_in(&stage, &mut browser, &format!("{A}/"));
    let refused = browser.visit(&format!("{A}/x"));
    let text = refused.text();
    assert_eq!(refused.status, 403, "{text}");
    assert!(text.contains(&format!("{A}/oauth2/sign_out")), "{text}");
    let other = format!("{AUTH}/oauth2/start?rd=https%3A%2F%2Fa.shared.test%2Fx");
    assert!(text.contains(&other), "{text}");
}
