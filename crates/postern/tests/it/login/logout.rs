//! End of sessions: by sign-out, by the provider, or by expiry. An ended session stays ended.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use auth::token::jws::SigningAlgorithm;
use http_engine::clock::ManualClock;
use serde_json::json;

use super::fixture::{FORM, LoginFixture, database, everywhere, gateway, setup, start};
use super::provider::{SimulatedProvider, parameters};
use dataplane::harness::now;

#[test]
fn logging_out_leaves_nothing_alive() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        let stolen = browser.clone();
        assert_eq!(browser.visit("/").status, 200);
        let out = browser.visit("/oauth2/sign_out");
        assert_eq!(out.status, 303);
        let location = out.value("location").unwrap();
        assert!(location.starts_with(&format!("{}/logout?", stage.provider.url)), "{location}");
        let asked = parameters(location);
        assert_eq!(asked["post_logout_redirect_uri"], "https://app.test/oauth2/signed_out");
        assert_eq!(asked["client_id"], "gateway");
        assert!(asked["id_token_hint"].split('.').count() == 3);
        assert!(browser.cookies.is_empty());
        assert!(stage.provider.state().revoked.iter().any(|token| token.starts_with("refresh-")));
        assert_eq!(stolen.clone().visit("/").status, 302, "the cookie from before");
        assert_eq!(stolen.clone().send("GET", "/oauth2/auth", "", "").status, 401);
        let done = browser.visit("/oauth2/signed_out");
        assert!(done.text().contains("You are signed out"));
        // The second time there is nothing to end.
        assert_eq!(
            browser.visit("/oauth2/sign_out").value("location"),
            Some("https://app.test/oauth2/signed_out")
        );
        // A link on another site leads to a confirmation. So does a form, which browsers send
        // without the cookie, and whose response they accept.
        let mut other = stage.logged_in();
        let posted = stage.browser().send("POST", "/oauth2/sign_out", "Sec-Fetch-Site: cross-site\r\n", "");
        assert_eq!((posted.status, posted.value("set-cookie")), (200, None));
        let asked = other.send("GET", "/oauth2/sign_out", "Sec-Fetch-Site: cross-site\r\n", "");
        assert_eq!((asked.status, asked.value("set-cookie")), (200, None));
        // Browsers apply the `form-action` of a page to redirects after a form, and these lead to
        // the provider.
        let text = asked.text();
        assert!(
            !text.contains("<form") && text.contains("href=\"https://app.test/oauth2/sign_out\""),
            "{text}"
        );
        assert_eq!(other.visit("/").status, 200);
        let mut link = other.clone();
        assert_eq!(link.send("GET", "/oauth2/sign_out", "Sec-Fetch-Site: same-origin\r\n", "").status, 303);
        assert_eq!(other.visit("/").status, 302);
        let mut other = stage.logged_in();
        assert_eq!(other.send("POST", "/oauth2/sign_out", "Sec-Fetch-Site: same-origin\r\n", "").status, 303);
        assert_eq!(other.visit("/").status, 302);
    });
}

#[test]
fn what_is_renewed_while_somebody_logs_out_does_not_live_on() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        stage.clock.advance(Duration::from_mins(6));
        stage.provider.state().slow = Duration::from_millis(300);
        let mut tab = browser.clone();
        let renewing = std::thread::spawn(move || tab.visit("/").status);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(browser.visit("/oauth2/sign_out").status, 303);
        renewing.join().unwrap();
        // The renewal may end after the response.
        for _ in 0..50 {
            if stage.provider.state().living() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(stage.provider.state().living(), 0, "no refresh token is good any more");
        assert_eq!(browser.visit("/").status, 302);
    });
}

#[test]
fn what_ended_stays_ended_through_a_reload() {
    let stage = LoginFixture::with_cookie_sessions();
    let mut browser = stage.logged_in();
    let stolen = browser.clone();
    browser.visit("/oauth2/sign_out");
    stage.fixture.reload(&setup(&stage.provider, "lifetime = \"13h\""));
    assert_eq!(stolen.clone().visit("/").status, 302);
}

#[test]
fn what_the_provider_ended_is_over() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        let token = "refresh-2".to_owned();
        {
            let mut state = stage.provider.state();
            state.revoked.push(token);
            state.lasts = 600;
        }
        stage.provider.state().subject = "mallory-id".into();
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 302, "it speaks of somebody else");
        assert_eq!(browser.visit("/").status, 302);
        assert!(stage.status().renewal_refused >= 1);
    });
}

#[test]
fn a_session_ends_by_itself() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        stage.clock.advance(Duration::from_mins(64));
        assert_eq!(browser.visit("/").status, 200, "idle for almost an hour, and five minutes");
        stage.clock.advance(Duration::from_mins(65));
        assert_eq!(browser.visit("/").status, 302, "idle for longer");
        let mut busy = stage.logged_in();
        for _ in 0..23 {
            stage.clock.advance(Duration::from_mins(30));
            assert_eq!(busy.visit("/").status, 200);
        }
        stage.clock.advance(Duration::from_mins(30));
        assert_eq!(busy.visit("/").status, 302, "twelve hours");
    });
}

#[test]
fn a_refreshed_id_token_of_somebody_else_ends_the_session_before_anybody_is_asked() {
    for sessions in [None, Some(database())] {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let mut setup = setup(&provider, "");
        setup.more.push_str("\nuserinfo = true");
        let stage = LoginFixture { fixture: start(&setup, &clock, sessions), clock, provider };
        let mut browser = stage.logged_in();
        assert_eq!(browser.visit("/").status, 200);
        let asked = {
            let mut state = stage.provider.state();
            state.subject = "mallory-id".into();
            // Its userinfo endpoint must not matter in either case.
            state.userinfo_ill = true;
            state.userinfo_asked
        };
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 302, "it speaks of somebody else");
        assert_eq!(stage.provider.state().userinfo_asked, asked, "its userinfo is not asked for");
        assert_eq!(stage.provider.state().living(), 0, "what it gave out is revoked");
        // The session stays ended when the provider returns the right user again.
        stage.provider.state().subject = "alice-id".into();
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 302);
    }
}

#[test]
fn a_message_is_good_once_at_all_processes_of_a_database() {
    let sessions = database();
    let stage = LoginFixture::new("", Some(sessions.clone()));
    let other = gateway(&stage.provider, &stage.clock, "", Some(sessions));
    let mut alice = stage.logged_in();
    let token = stage.provider.logout_token("logout+jwt", &json!({"sid": null, "sub": "alice-id"}));
    let said = |address| {
        let body = format!("logout_token={token}");
        stage.browser().at(address).send("POST", "/oauth2/backchannel_logout", FORM, &body).status
    };
    assert_eq!(said(stage.fixture.address), 200);
    assert_eq!(alice.visit("/").status, 302);
    stage.clock.advance(Duration::from_secs(45));
    let mut again = stage.logged_in();
    assert_eq!([said(other.address), said(stage.fixture.address), said(other.address)], [400; 3]);
    assert_eq!(again.visit("/").status, 200);
    assert_eq!(again.at(other.address).visit("/").status, 200, "nor has it ended anything there");
}

#[test]
fn a_message_is_signed_as_id_tokens_are() {
    everywhere(|stage| {
        let mut alice = stage.logged_in();
        let said = |token: &str| {
            let body = format!("logout_token={token}");
            stage.browser().send("POST", "/oauth2/backchannel_logout", FORM, &body).status
        };
        // The provider has another key, which does not sign its ID tokens for this client.
        let other = stage.provider.logout_token_by(SigningAlgorithm::EdDsa);
        // Keys are fetched again ten seconds after the last fetch at the earliest.
        stage.clock.advance(Duration::from_secs(11));
        assert_eq!(said(&other), 400);
        assert_eq!(alice.visit("/").status, 200);
        assert_eq!(said(&stage.provider.logout_token("logout+jwt", &json!({}))), 200);
        assert_eq!(alice.visit("/").status, 302);
    });
}

#[test]
fn who_was_logged_out_everywhere_logs_in_again_at_once() {
    everywhere(|stage| {
        let (mut alice, mut waiting) = (stage.logged_in(), stage.browser());
        // The browser goes to the provider before the logout and returns afterwards. By then the
        // provider has forgotten the user.
        let location = waiting.go_to_provider("/");
        let back = stage.provider.approve(&location);
        let token = stage.provider.logout_token("logout+jwt", &json!({"sid": null, "sub": "alice-id"}));
        let body = format!("logout_token={token}");
        assert_eq!(stage.browser().send("POST", "/oauth2/backchannel_logout", FORM, &body).status, 200);
        assert_eq!(alice.visit("/").status, 302);
        let refused = waiting.back(&back);
        assert_eq!((refused.status, waiting.session()), (403, None), "{}", refused.text());
        // Within the same second.
        stage.clock.advance(Duration::from_millis(1));
        let mut again = stage.logged_in();
        assert_eq!(again.visit("/").status, 200);
        stage.clock.advance(Duration::from_mins(2));
        assert_eq!(again.visit("/").status, 200, "nor later");
    });
}

#[test]
fn a_provider_logs_people_out() {
    everywhere(|stage| {
        let (mut alice, mut phone) = (stage.logged_in(), stage.browser());
        {
            let mut state = stage.provider.state();
            state.sid = Some("sid-2".into());
        }
        phone.log_in(&stage.provider, "/");
        assert_eq!((alice.visit("/").status, phone.visit("/").status), (200, 200));
        let said = |token: &str| {
            stage.browser().send("POST", "/oauth2/backchannel_logout", FORM, &format!("logout_token={token}"))
        };
        let token = |changes| stage.provider.logout_token("logout+jwt", &changes);
        for (bad, what) in [
            (json!({"nonce": "n"}), "nonce"),
            (json!({"events": null}), "no event"),
            (json!({"events": {"x": {}}}), "another event"),
            (json!({"aud": "else"}), "for somebody else"),
            (json!({"iss": "https://evil.test"}), "of somebody else"),
            (json!({"exp": 1}), "old"),
            (json!({"jti": null}), "without a name"),
            (json!({"sid": null}), "about nobody"),
            (json!({"iat": "now"}), "without a time"),
            (json!({"iat": now() + 3600, "exp": now() + 7200}), "of the future"),
            (json!({"nbf": now() + 3600}), "good later"),
        ] {
            let refused = said(&token(bad));
            assert_eq!((refused.status, refused.value("cache-control")), (400, Some("no-store")), "{what}");
        }
        let mut forged = token(json!({}));
        forged.truncate(forged.len() - 4);
        assert_eq!(said(&format!("{forged}AAAA")).status, 400);
        assert_eq!(said("nonsense").status, 400);
        let as_id = stage.provider.logout_token("at+jwt", &json!({}));
        assert_eq!(said(&as_id).status, 400);
        let whole = stage.browser().send("GET", "/oauth2/backchannel_logout", "", "");
        assert_eq!((whole.status, whole.value("allow")), (405, Some("POST")));
        assert_eq!((alice.visit("/").status, phone.visit("/").status), (200, 200), "nobody was logged out");
        let good = token(json!({}));
        assert_eq!(said(&good).status, 200);
        assert_eq!(alice.visit("/").status, 302, "with the next request");
        assert_eq!(phone.visit("/").status, 200, "another session of the provider's");
        assert_eq!(said(&good).status, 400, "a second time");
        stage.clock.advance(Duration::from_secs(2));
        let held_back = token(json!({"sid": null, "sub": "alice-id"}));
        stage.clock.advance(Duration::from_secs(35));
        let mut later = stage.logged_in();
        assert_eq!(said(&held_back).status, 200);
        assert_eq!(phone.visit("/").status, 302, "all of alice");
        assert_eq!(later.visit("/").status, 200, "what began after the message was made");
        assert_eq!(stage.status().provider_logouts, 2);
    });
}
