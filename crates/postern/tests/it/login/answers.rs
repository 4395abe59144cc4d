//! Provider responses at the end of a login, or their absence: valid ones are accepted, and each
//! invalid one has its own error.

use std::sync::Arc;

use auth::time::Timestamp;
use credentials::authenticate::DEMAND_INTERVAL;
use http_engine::clock::ManualClock;
use serde_json::json;

use super::fixture::{LoginFixture, setup, start};
use super::provider::{Browser, SimulatedProvider};
use dataplane::harness::{Setup, now, until};

#[test]
fn what_a_provider_says_is_believed_only_when_it_is_right() {
    for (claims, what) in [
        (json!({"nonce": "another"}), "nonce"),
        (json!({"nonce": null}), "no nonce"),
        (json!({"aud": "else"}), "audience"),
        (json!({"aud": ["gateway", "else"]}), "audience without party"),
        (json!({"azp": "else"}), "party"),
        (json!({"iss": "https://evil.test"}), "issuer"),
        (json!({"sub": null}), "nobody"),
        (json!({"preferred_username": "a\r\nb"}), "control character"),
        (json!({"events": {}}), "logout token"),
    ] {
        let stage = LoginFixture::with_cookie_sessions();
        stage.provider.state().claims = claims;
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        let refused = browser.back(&stage.provider.approve(&location));
        assert_eq!(refused.status, 403, "{what}: {}", refused.text());
        assert!(browser.session().is_none(), "{what}");
        assert_eq!(stage.status().login_refused, 1, "{what}");
    }
}

#[test]
fn a_provider_whose_clock_is_wrong_is_not_the_persons_fault() {
    for claims in [json!({"exp": 1}), json!({"iat": 4_102_444_800_u64})] {
        let stage = LoginFixture::with_cookie_sessions();
        stage.provider.state().claims = claims;
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        assert_eq!(browser.back(&stage.provider.approve(&location)).status, 503);
        assert!(browser.session().is_none());
    }
}

#[test]
fn an_answer_is_of_the_provider_that_was_asked() {
    let stage = LoginFixture::with_metadata(json!({"authorization_response_iss_parameter_supported": true}));
    let mut browser = stage.browser();
    for (iss, status) in [("", 403), ("&iss=https://evil.test", 403), ("&iss=&iss=", 403)] {
        let location = browser.go_to_provider("/");
        let (code, state) = stage.provider.approve(&location);
        let back = browser.visit(&format!("/oauth2/callback?code={code}&state={state}{iss}"));
        assert_eq!(back.status, status, "{iss}");
    }
    let location = browser.go_to_provider("/");
    let (code, state) = stage.provider.approve(&location);
    let back =
        browser.visit(&format!("/oauth2/callback?code={code}&state={state}&iss={}", stage.provider.url));
    assert_eq!(back.status, 303);
    let mut browser = stage.browser();
    let refused = browser.go_to_provider("/x");
    let (_, state) = stage.provider.approve(&refused);
    let url = &stage.provider.url;
    let back = browser.visit(&format!("/oauth2/callback?error=access_denied%3Cb%3E&state={state}&iss={url}"));
    assert_eq!(back.status, 403);
    assert!(
        back.text().contains("<bdi>The Provider</bdi> refused: <bdi>access_denied&#60;b&#62;</bdi>"),
        "{}",
        back.text()
    );
}

#[test]
fn the_client_authenticates_as_the_provider_says() {
    for methods in [
        json!(["client_secret_basic"]),
        json!(["private_key_jwt", "client_secret_post"]),
        json!(["client_secret_post", "client_secret_basic"]),
        json!(["private_key_jwt"]),
    ] {
        let metadata = json!({ "token_endpoint_auth_methods_supported": methods });
        let stage = LoginFixture::with_metadata(metadata);
        // The provider checks how the client authenticates, for tokens and for revocation.
        let mut browser = stage.logged_in();
        assert!(browser.session().is_some(), "{methods}");
        assert_eq!(browser.visit("/oauth2/sign_out?rd=%2F").status, 303, "{methods}");
    }
}

#[test]
fn the_clock_of_a_provider_may_be_ahead() {
    for (skew, ahead, status) in
        [("30s", 25, 303), ("30s", 40, 503), ("60s", 55, 303), ("60s", 70, 503), ("0s", 5, 503)]
    {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let setup = setup(&provider, "");
        let setup = Setup { more: format!("{}\nclock_skew = \"{skew}\"", setup.more), ..setup };
        let fixture = start(&setup, &clock, None);
        provider.state().claims = json!({ "iat": now() + ahead });
        let mut browser = Browser::new(fixture.address, "app.test");
        let location = browser.go_to_provider("/");
        assert_eq!(browser.back(&provider.approve(&location)).status, status, "{skew} {ahead}");
    }
}

#[test]
fn a_provider_that_is_down_is_503_and_is_asked_again() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    provider.state().ill = true;
    let fixture = start(&setup(&provider, ""), &clock, None);
    let stage = LoginFixture { clock, provider, fixture };
    let mut browser = stage.browser();
    let sent = browser.visit("/");
    let down = browser.follow(&sent);
    assert_eq!(down.status, 503);
    assert!(down.value("retry-after").is_some());
    assert!(down.text().contains("The Provider"));
    stage.provider.state().ill = false;
    // It is asked again by itself, and at the latest for a login some seconds later.
    stage.clock.advance(DEMAND_INTERVAL);
    until("it is asked again", || browser.follow(&sent).status == 302);
    browser.log_in(&stage.provider, "/");
    assert_eq!(browser.visit("/").status, 200);
}

#[test]
fn who_is_refused_is_told_apart_from_a_provider_that_cannot_answer() {
    let stage = LoginFixture::with_cookie_sessions();
    for (error, status) in [("access_denied", 403), ("server_error", 503), ("temporarily_unavailable", 503)] {
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        let (_, state) = stage.provider.approve(&location);
        let refused = browser.visit(&format!("/oauth2/callback?error={error}&state={state}"));
        assert_eq!(refused.status, status, "{error}: {}", refused.text());
    }
    assert_eq!((stage.status().login_refused, stage.status().login_failed), (1, 2));
}

#[test]
fn a_session_that_no_cookie_holds_is_told_with_its_remedy() {
    let stage = LoginFixture::with_cookie_sessions();
    stage.provider.state().groups = (0..200).map(|n| format!("a-group-with-a-long-name-{n:03}")).collect();
    let mut browser = stage.browser();
    let location = browser.go_to_provider("/");
    let back = browser.back(&stage.provider.approve(&location));
    assert_eq!(back.status, 403, "{}", back.text());
    assert!(back.text().contains("<h1>"), "{}", back.text());
    assert!(
        back.text().contains("login.database") && back.text().contains("fewer groups"),
        "{}",
        back.text()
    );
    assert!(browser.session().is_none());
    // A user who satisfies the policy is let in.
    stage.provider.state().groups = vec!["dev".into()];
    let location = browser.go_to_provider("/");
    assert_eq!(browser.back(&stage.provider.approve(&location)).status, 303);
}

/// The time of the provider's log is requested from providers that have one, in addition to other
/// requested claims.
#[test]
fn the_time_of_the_log_is_asked_of_who_tells_it() {
    let claims_of = |stage: &LoginFixture| {
        let location = stage.browser().go_to_provider("/");
        let query = location.split_once('?').unwrap().1.to_owned();
        let claims = query.split('&').find_map(|pair| pair.strip_prefix("claims="));
        claims.map(|text| {
            text.replace("%22", "\"")
                .replace("%7B", "{")
                .replace("%7D", "}")
                .replace("%3A", ":")
                .replace("%2C", ",")
        })
    };
    let stage = LoginFixture::with_cookie_sessions();
    assert_eq!(claims_of(&stage), None, "most know of no such thing");
    let stage = LoginFixture::with_metadata(json!({"claims_supported": ["sub", "read_at"]}));
    assert_eq!(claims_of(&stage), None, "and it may not take the parameter");
    let metadata = json!({"claims_supported": ["sub", "read_at"], "claims_parameter_supported": true});
    let stage = LoginFixture::with_metadata(metadata);
    assert_eq!(claims_of(&stage).as_deref(), Some(r#"{"id_token":{"read_at":null}}"#));
}
