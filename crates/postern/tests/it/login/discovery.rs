//! An issuer and login providers of one URL share what it publishes, and follow when it moves.

use std::sync::Arc;

use auth::time::Timestamp;
use credentials::authenticate::DEMAND_INTERVAL;
use http_engine::clock::ManualClock;
use serde_json::json;

use super::fixture::{LoginFixture, setup, start};
use super::provider::{Browser, SimulatedProvider};
use dataplane::harness::{Setup, now, until};

/// The usual login, beside an issuer of the same URL, and a second client at its provider.
fn shared_setup(provider: &SimulatedProvider) -> Setup {
    let usual = setup(provider, "");
    let more = format!(
        "{}\n[[login.provider]]\nname = \"again\"\nurl = \"{url}\"\nclient_id = \"gateway\"\n\
         client_secret_file = \"secret\"\n\
         [[issuer]]\nname = \"id\"\nissuer = \"{url}\"\naudiences = [\"orders\"]\n",
        usual.more,
        url = provider.url
    );
    Setup { more, ..usual }
}

fn stage_with(setup: impl Fn(&SimulatedProvider) -> Setup) -> LoginFixture {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let fixture = start(&setup(&provider), &clock, None);
    LoginFixture { clock, provider, fixture }
}

fn log_in(stage: &LoginFixture, browser: &mut Browser) -> u16 {
    let started = browser.visit("/oauth2/start?rd=/&provider=id");
    let location = started.value("location").unwrap_or_else(|| panic!("{}", started.text())).to_owned();
    browser.back(&stage.provider.approve(&location)).status
}

/// Fetches keys of a provider early, as a token with an unknown key does.
fn demand_keys(stage: &LoginFixture) {
    stage.clock.advance(DEMAND_INTERVAL);
    let stranger = SimulatedProvider::new(&stage.clock);
    let url = stage.provider.url.clone();
    let token = stranger.access_token(&json!({ "iss": url, "exp": now() + 7200 }));
    let refused = stage
        .fixture
        .send(format!("GET /api/x HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"));
    // 503: what it found cannot be used.
    assert!(matches!(refused.status, 401 | 503), "{}", refused.head);
}

#[test]
fn one_discovery_serves_an_issuer_and_the_login() {
    let stage = stage_with(shared_setup);
    let mut browser = stage.browser();
    assert_eq!(log_in(&stage, &mut browser), 303);
    assert_eq!(browser.visit("/").status, 200);
    let token = stage.provider.access_token(&json!({}));
    let api = format!("GET /api/x HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n");
    assert_eq!(stage.fixture.send(&api).status, 200);
    {
        let state = stage.provider.state();
        assert_eq!((state.discovered, state.keys_asked), (1, 1));
    }
    // A reload does not ask again.
    stage.fixture.reload(&shared_setup(&stage.provider));
    assert_eq!(log_in(&stage, &mut stage.browser()), 303);
    assert_eq!(stage.fixture.send(&api).status, 200);
    let state = stage.provider.state();
    assert_eq!((state.discovered, state.keys_asked), (1, 1));
}

#[test]
fn what_moved_is_found_when_keys_are_refreshed() {
    let stage = stage_with(shared_setup);
    assert_eq!(log_in(&stage, &mut stage.browser()), 303);
    {
        let mut state = stage.provider.state();
        state.place = "/moved";
        state.metadata =
            json!({ "token_endpoint_auth_methods_supported": ["private_key_jwt", "client_secret_post"] });
    }
    assert_eq!(log_in(&stage, &mut stage.browser()), 503, "nothing answers at the old token endpoint");
    // The fetch for a token of the issuer brings the login's endpoints too.
    demand_keys(&stage);
    until("the metadata are there", || stage.provider.state().discovered == 2);
    // The provider checks that the secret is sent as its new metadata say.
    until("the new endpoint is used", || log_in(&stage, &mut stage.browser()) == 303);
    let state = stage.provider.state();
    assert_eq!((state.discovered, state.keys_asked), (2, 2));
}

#[test]
fn metadata_that_cannot_be_used_do_not_replace_others() {
    let stage = stage_with(shared_setup);
    assert_eq!(log_in(&stage, &mut stage.browser()), 303);
    stage.provider.state().metadata = json!({ "token_endpoint": null });
    demand_keys(&stage);
    until("the metadata are there", || stage.provider.state().discovered == 2);
    for _ in 0..2 {
        assert_eq!(log_in(&stage, &mut stage.browser()), 303, "the last ones stay");
    }
    // Metadata of another issuer are not even kept.
    stage.provider.state().metadata = json!({ "issuer": "https://evil.test" });
    demand_keys(&stage);
    until("the metadata are there", || stage.provider.state().discovered == 3);
    assert_eq!(log_in(&stage, &mut stage.browser()), 303);
}

#[test]
fn other_authorities_are_not_shared() {
    // The issuer's keys come from a file here, so the login asks by itself.
    let of_file = |provider: &SimulatedProvider| {
        let shared = shared_setup(provider);
        let more = shared
            .more
            .replace("audiences = [\"orders\"]", "audiences = [\"orders\"]\njwks_file = \"other.json\"");
        Setup { more, ..shared }
    };
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let (dir, upstream) = (super::fixture::keyed(), dataplane::harness::Upstream::start());
    let signer = auth::token::jws::Signer::generate(auth::token::jws::SigningAlgorithm::Es256).unwrap();
    let jwks = auth::token::jws::public_jwks([&signer]).to_string();
    std::fs::write(dir.path().join("other.json"), jwks).unwrap();
    let text = of_file(&provider).file(dir.path(), upstream.address);
    let fixture = dataplane::harness::Fixture::keeping(dir, upstream, &text, clock.clone(), None);
    let stage = LoginFixture { clock, provider, fixture };
    assert_eq!(log_in(&stage, &mut stage.browser()), 303);
    let token = stage.provider.access_token(&json!({}));
    let api = format!("GET /api/x HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n");
    assert_eq!(stage.fixture.send(&api).status, 401, "the file has other keys");
    assert_eq!(stage.provider.state().discovered, 1, "both clients of the login share theirs");
}
