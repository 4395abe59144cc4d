//! Start of a login, redirect to the provider and back: where it leads, which browser it belongs
//! to, and that it works once.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use http_engine::clock::ManualClock;
use serde_json::json;

use super::fixture::{FORM, LoginFixture, everywhere, setup, start};
use super::provider::{Browser, SimulatedProvider, parameters};
use dataplane::harness::now;

#[test]
fn whoever_has_no_session_logs_in_and_comes_to_where_they_wanted() {
    everywhere(|stage| {
        let mut browser = stage.browser();
        let sent = browser.visit("/reports/7?year=2026&q=a%20b");
        assert_eq!(sent.status, 302);
        assert_eq!(sent.value("cache-control"), Some("no-store"));
        let location = browser.go_to_provider("/reports/7?year=2026&q=a%20b");
        let asked = parameters(&location);
        assert_eq!(asked["client_id"], "gateway");
        assert_eq!(asked["scope"], "openid profile email");
        assert_eq!(asked["redirect_uri"], "https://app.test/oauth2/callback");
        let back = browser.back(&stage.provider.approve(&location));
        assert_eq!(back.value("location"), Some("https://app.test/reports/7?year=2026&q=a%20b"));
        browser.cookies.insert("theme".into(), "dark".into());
        assert_eq!(browser.follow(&back).status, 200);
        let seen = stage.fixture.upstream.only();
        assert_eq!(seen.line(), "GET /reports/7?year=2026&q=a%20b HTTP/1.1");
        assert_eq!(seen.values("x-forwarded-user"), ["alice"]);
        assert_eq!(seen.values("x-forwarded-groups"), ["dev"]);
        assert_eq!(seen.values("cookie"), ["theme=dark"], "ours stay here");
        assert!(seen.values("x-forwarded-access-token").is_empty());
        assert_eq!(stage.status().logins, 1);
    });
}

#[test]
fn programs_are_told_and_not_led() {
    let stage = LoginFixture::with_cookie_sessions();
    for lines in [
        "",
        "Accept: */*\r\n",
        "Accept: application/json\r\n",
        "Accept: text/html\r\nX-Requested-With: XMLHttpRequest\r\n",
        "Accept: text/html\r\nSec-Fetch-Mode: cors\r\n",
        "Accept: text/html\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
        "Content-Type: application/grpc\r\n",
    ] {
        let told = stage.browser().send("GET", "/", lines, "");
        assert_eq!(told.status, 401, "{lines}");
        assert!(told.value("www-authenticate").unwrap().starts_with("Bearer"), "{lines}");
        assert!(told.value("location").is_none());
    }
    let bearer = stage.browser().send("GET", "/", "Accept: text/html\r\nAuthorization: Bearer x\r\n", "");
    assert_eq!(bearer.status, 401);
    assert_eq!(stage.browser().visit("/api/x").status, 401, "this route asks for no login");
    assert_eq!(Browser::new(stage.fixture.address, "else.test").visit("/").status, 401, "no origin of ours");
    assert!(stage.fixture.upstream.seen().is_empty());
}

#[test]
fn tabs_log_in_at_once_without_getting_into_each_others_way() {
    everywhere(|stage| {
        let mut browser = stage.browser();
        let tabs: Vec<_> = (0..12).map(|n| browser.go_to_provider(&format!("/tab/{n}"))).collect();
        assert_eq!(browser.cookies.len(), 1, "one cookie for all of them: {:?}", browser.cookies.keys());
        for (n, location) in tabs.iter().enumerate().rev() {
            let back = browser.back(&stage.provider.approve(location));
            assert_eq!(
                (back.status, back.value("location")),
                (303, Some(&*format!("https://app.test/tab/{n}")))
            );
            assert_eq!(browser.visit("/").status, 200);
        }
        assert_eq!(browser.cookies.len(), 2);
    });
}

#[test]
fn a_login_ends_where_it_began_and_once() {
    let stage = LoginFixture::with_cookie_sessions();
    let mut victim = stage.browser();
    let mut attacker = stage.browser();
    let location = attacker.go_to_provider("/");
    let approved = stage.provider.approve(&location);
    assert_eq!(victim.back(&approved).status, 400, "a browser without a login");
    victim.go_to_provider("/");
    let refused = victim.back(&approved);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("did not begin here"));
    assert!(victim.session().is_none());
    for state in ["", "nonsense", &approved.1[1..]] {
        assert_eq!(attacker.back(&(approved.0.clone(), state.to_owned())).status, 400, "{state}");
    }
    let twice = format!("/oauth2/callback?code={}&code=x&state={}", approved.0, approved.1);
    let fresh = attacker.clone();
    assert_eq!(attacker.visit(&twice).status, 400);
    let mut attacker = fresh;
    let again = attacker.go_to_provider("/page");
    let approved = stage.provider.approve(&again);
    assert_eq!(attacker.back(&approved).status, 303);
    assert!(attacker.session().is_some());
    let replayed = attacker.back(&approved);
    assert_eq!((replayed.status, replayed.value("location")), (303, Some("https://app.test/page")));
    assert!(replayed.value("set-cookie").is_none());
    assert_eq!(
        stage.provider.state().asked["authorization_code"],
        1,
        "asked once, and not for the refused ones"
    );
}

#[test]
fn a_login_page_left_open_over_night_leads_on() {
    let stage = LoginFixture::with_cookie_sessions();
    // The provider's keys are loaded. Otherwise an hour that passes during the fetch would make
    // them too old.
    stage.browser().log_in(&stage.provider, "/");
    let mut browser = stage.browser();
    let location = browser.go_to_provider("/deep?link");
    stage.clock.advance(Duration::from_hours(1));
    let late = browser.back(&stage.provider.approve(&location));
    assert_eq!(late.status, 303);
    let started = browser.follow(&late);
    let location = started.value("location").unwrap().to_owned();
    let back = browser.back(&stage.provider.approve(&location));
    assert_eq!(back.value("location"), Some("https://app.test/deep?link"), "{} {}", back.status, back.text());
}

#[test]
fn every_provider_answers_at_an_address_of_its_own() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let (provider, second) = (SimulatedProvider::new(&clock), SimulatedProvider::new(&clock));
    let mut setup = setup(&provider, "");
    let further = format!(
        "\n[[login.provider]]\nname = \"second\"\nurl = \"{}\"\nclient_id = \"gateway\"\nclient_secret_file = \"secret\"",
        second.url
    );
    setup.more.push_str(&further);
    let fixture = start(&setup, &clock, None);
    let stage = LoginFixture { clock, provider, fixture };
    let mut browser = stage.browser();
    let sent = browser.visit("/x");
    let chosen = browser.follow(&sent);
    assert_eq!(chosen.value("location"), Some("https://app.test/oauth2/sign_in?rd=%2Fx"));
    let page = browser.follow(&chosen).text();
    assert!(page.contains("The Provider") && page.contains("<bdi>second</bdi></a>"), "{page}");
    let go = |browser: &mut Browser, name: &str| {
        let started = browser.visit(&format!("/oauth2/start?rd=/x&provider={name}"));
        started.value("location").unwrap().to_owned()
    };
    let location = go(&mut browser, "second");
    assert_eq!(parameters(&location)["redirect_uri"], "https://app.test/oauth2/callback/second");
    // A response of one provider cannot be used as another's: the code would be sent to the wrong
    // one.
    let (code, state) = second.approve(&location);
    assert_eq!(browser.visit(&format!("/oauth2/callback?code={code}&state={state}")).status, 400);
    let location = go(&mut browser, "id");
    let (code, state) = stage.provider.approve(&location);
    assert_eq!(browser.visit(&format!("/oauth2/callback/second?code={code}&state={state}")).status, 400);
    assert!(second.state().asked.is_empty() && stage.provider.state().asked.is_empty());
    assert_eq!(browser.visit("/oauth2/start?provider=third").status, 404);
    let location = go(&mut browser, "id");
    assert_eq!(browser.back(&stage.provider.approve(&location)).status, 303);
    assert_eq!(browser.visit("/x").status, 200);
}

#[test]
fn another_provider_under_the_name_has_no_business_with_what_was_begun() {
    let stage = LoginFixture::with_cookie_sessions();
    let mut browser = stage.logged_in();
    let mut waiting = stage.browser();
    let location = waiting.go_to_provider("/");
    let other = SimulatedProvider::new(&stage.clock);
    stage.fixture.reload(&setup(&other, ""));
    assert_eq!(browser.visit("/").status, 302);
    assert_eq!(waiting.back(&stage.provider.approve(&location)).status, 404);
    browser.visit("/oauth2/sign_out");
    assert!(other.state().asked.is_empty() && other.state().revoked.is_empty(), "it is shown nothing");
}

#[test]
fn where_to_go_is_here_or_home() {
    let stage = LoginFixture::with_cookie_sessions();
    let long = format!("/deep/link?{}", "x".repeat(3000));
    let sent = stage.browser().visit(&long);
    assert_eq!(
        sent.value("location"),
        Some("https://app.test/oauth2/start?rd=%2Fdeep%2Flink"),
        "what is too long is left"
    );
    for (asked, goes) in [
        ("/a%3Fb%3Dc", "/a?b=c"),
        ("https://app.test/a", "/a"),
        ("https://evil.test/", "/"),
        ("//evil.test/", "/"),
        ("/%5Cevil.test", "/"),
        ("/%09/evil.test", "/"),
        ("/%40evil.test", "/"),
        ("https://app.test%40evil.test/", "/"),
        ("javascript:alert(1)", "/"),
    ] {
        let mut browser = stage.browser();
        let started = browser.visit(&format!("/oauth2/start?rd={asked}"));
        let location = started.value("location").unwrap().to_owned();
        let back = browser.back(&stage.provider.approve(&location));
        assert_eq!(back.value("location"), Some(&*format!("https://app.test{goes}")), "{asked}");
        let mut out = stage.browser();
        let gone = out.visit(&format!("/oauth2/sign_out?rd={asked}"));
        assert_eq!(gone.value("location"), Some(&*format!("https://app.test{goes}")), "{asked}");
    }
}

#[test]
fn a_form_is_not_lost_with_a_session() {
    let stage = LoginFixture::with_cookie_sessions();
    let mut browser = stage.browser();
    let lines = format!("Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n{FORM}");
    let ended = browser.send("POST", "/orders", &lines, "item=7");
    assert_eq!(ended.status, 401, "no redirect, which would forget the form");
    let text = ended.text();
    assert!(text.contains("load it again") && text.contains(r#"target="_blank""#), "{text}");
    let link = "/oauth2/start?rd=%2Foauth2%2Fdone";
    assert!(text.contains(&format!("https://app.test{link}")), "{text}");
    assert!(stage.fixture.upstream.seen().is_empty());
    // The next steps of a user.
    let location = browser.visit(link).value("location").unwrap().to_owned();
    let back = browser.back(&stage.provider.approve(&location));
    assert!(browser.follow(&back).text().contains("You are signed in"));
    assert_eq!(browser.send("POST", "/orders", &lines, "item=7").status, 200);
    assert_eq!(stage.fixture.upstream.only().body, b"item=7");
}

#[test]
fn a_login_that_its_provider_ends_on_its_way_does_not_begin() {
    everywhere(|stage| {
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        let back = stage.provider.approve(&location);
        let token = stage.provider.logout_token("logout+jwt", &json!({}));
        let said = browser.clone().send(
            "POST",
            "/oauth2/backchannel_logout",
            FORM,
            &format!("logout_token={token}"),
        );
        assert_eq!(said.status, 200);
        let refused = browser.back(&back);
        assert_eq!((refused.status, browser.session()), (403, None), "{}", refused.text());
        assert_eq!(stage.provider.state().living(), 0);
    });
}
