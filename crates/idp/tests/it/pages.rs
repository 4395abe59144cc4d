//! Pages and sessions in a browser; each test names the attack that a rule prevents.

use std::time::Duration;

use crate::{
    browser::Browser,
    wire::{self, encode},
    world::{CALLBACK, PASSWORD, TestAuthorizationRequest, World, config},
};

#[tokio::test]
async fn every_page_is_hardened() {
    let world = World::new().await;
    let mut browser = world.browser();
    let login = browser.get(&TestAuthorizationRequest::new("app").target()).await;
    let fields = [("username", "ada"), ("password", PASSWORD)];
    let consent = browser.submit(&login.form("/login"), &fields).await;
    let account = browser.get("/account").await;
    let logout = browser.get("/logout").await;
    let device = browser.get("/device").await;
    let error = browser.get("/authorize").await;
    for (name, page) in [
        ("login", login),
        ("consent", consent),
        ("account", account),
        ("logout", logout),
        ("device", device),
        ("error", error),
    ] {
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"), "{name}");
        let policy = page.field("content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"), "{name}");
        assert!(!policy.contains("script-src") && !policy.contains("unsafe"), "{name}: {policy}");
        assert_eq!(page.field("x-frame-options"), Some("DENY"), "{name}");
        assert_eq!(page.field("x-content-type-options"), Some("nosniff"), "{name}");
        assert_eq!(page.field("referrer-policy"), Some("no-referrer"), "{name}");
        assert_eq!(page.field("cache-control"), Some("no-store"), "{name}");
        assert_eq!(page.field("access-control-allow-origin"), None, "{name}");
    }
}

#[tokio::test]
async fn reflections_are_escaped() {
    let world = World::new().await;
    let probe = "\"><script>alert(1)</script>";
    let mut browser = world.browser();
    let page = browser
        .get(&TestAuthorizationRequest::new("app").with("login_hint", probe).with("state", probe).target())
        .await;
    assert!(!page.text().contains("<script>"), "{}", page.text());
    let page = browser.get(&TestAuthorizationRequest::new(probe).target()).await;
    assert!(!page.text().contains("<script>"));
    let page = browser.get(&format!("/device?user_code={}", encode(probe))).await;
    assert!(!page.text().contains("<script>"));
    let posted = TestAuthorizationRequest::new("app")
        .with("state", probe)
        .with("response_mode", "form_post")
        .with("prompt", "none");
    let page = browser.get(&posted.target()).await;
    assert_eq!(page.text().matches("<script>").count(), 1, "our own: {}", page.text());
    assert_eq!(page.form("/cb").hidden.iter().find(|(n, _)| n == "state").unwrap().1, probe);
}

#[tokio::test]
async fn a_form_of_another_site_does_nothing() {
    let world = World::new().await;
    let mut ada = world.browser();
    world.code(&mut ada, &TestAuthorizationRequest::new("app")).await;
    // Eve gets a page in her own browser, and makes Ada's browser submit its form.
    let mut eve = world.browser();
    let page = eve.get(&TestAuthorizationRequest::new("app").target()).await;
    let form = page.form("/login");
    let answer = ada.submit(&form, &[("username", "bob"), ("password", PASSWORD)]).await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("form_rejected"));
    for path in ["/consent", "/login", "/logout/decision", "/device", "/device/decision", "/account/logout"] {
        let answer = ada.post(path, &[("decision", "allow"), ("csrf", "")]).await;
        assert_eq!(answer.status, 403, "{path}");
    }
    let bare = world.browser().post("/account/logout", &[("csrf", "x")]).await;
    assert_eq!(bare.status, 403, "a browser that was here never");
    assert!(ada.get("/account").await.text().contains("Your account"), "Ada is still logged in");
}

#[tokio::test]
async fn a_flow_is_one_browsers_and_one_pages() {
    let world = World::new().await;
    let (mut ada, mut eve) = (world.browser(), world.browser());
    let page = eve.get(&TestAuthorizationRequest::new("app").target()).await;
    let stolen = page.form("/login").hidden.iter().find(|(n, _)| n == "flow").unwrap().1.clone();
    let page = ada.get(&TestAuthorizationRequest::new("app").target()).await;
    let mut form = page.form("/login");
    form.hidden.iter_mut().find(|(n, _)| n == "flow").unwrap().1 = stolen;
    let answer = ada.submit(&form, &[("username", "ada"), ("password", PASSWORD)]).await;
    assert_eq!(answer.status, 400, "a flow that another browser began");
    // The page has expired.
    let page = ada.get(&TestAuthorizationRequest::new("app").target()).await;
    world.server.clock.advance(Duration::from_hours(1));
    let answer = ada.submit(&page.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("expired"));
}

/// A page in response to a POST could not be reloaded or returned to; so it has its own URL.
#[tokio::test]
async fn a_page_that_follows_a_form_can_be_gone_back_to() {
    let world = World::new().await;
    let mut browser = world.browser();
    let ada = [("username", "ada"), ("password", PASSWORD)];
    // With `prompt=login`: the request continues after the login without a second login.
    let ask = TestAuthorizationRequest::new("app").scope("openid email").with("prompt", "login");
    let login = browser.get(&ask.target()).await;
    let at = browser.send(&login.form("/login"), &ada).await.location().to_owned();
    assert!(at.starts_with(&format!("{}/consent?flow=", world.server.issuer)), "{at}");
    for _ in 0..2 {
        world.server.clock.advance(Duration::from_secs(1));
        let page = browser.get(&at).await;
        assert_eq!(page.status, 200);
        page.form("/consent");
    }
    let elsewhere = world.browser().get(&at).await;
    assert!(elsewhere.status == 400 && elsewhere.text().contains("expired"), "another browser's");
    let consent = browser.get(&at).await.form("/consent");
    assert!(browser.send(&consent, &[("decision", "allow")]).await.location().starts_with(CALLBACK));
    let back = browser.get(&at).await;
    assert!(back.location().starts_with(CALLBACK), "it is allowed: there is nothing left to ask");
    world.server.clock.advance(Duration::from_hours(1));
    assert_eq!(browser.get(&at).await.status, 400, "a page is open for an hour");

    // The session ends before the consent is submitted.
    let ask = TestAuthorizationRequest::new("other").scope("openid email");
    let page = browser.get(&ask.target()).await;
    let logout = browser.get("/account").await.form("/account/logout");
    let bye = browser.send(&logout, &[]).await.location().to_owned();
    assert_eq!(bye, format!("{}/logout", world.server.issuer));
    for _ in 0..2 {
        assert!(browser.get(&bye).await.text().contains("You are signed out"));
    }
    let at = browser.send(&page.form("/consent"), &[("decision", "allow")]).await.location().to_owned();
    assert!(at.contains("/login?flow="), "{at}");
    let login = browser.get(&at).await.form("/login");
    let consent = browser.submit(&login, &ada).await;
    consent.form("/consent");

    // A state that is too long for a URL is shown in the response itself.
    world.server.clock.advance(Duration::from_secs(1));
    let long = TestAuthorizationRequest::new("opaque").with("state", &"s".repeat(6000));
    let page = browser.get(&long.with("prompt", "login").target()).await;
    let page = browser.send(&page.form("/login"), &ada).await;
    assert_eq!(page.status, 200);
    page.form("/consent");
}

#[tokio::test]
async fn pages_of_a_device_can_be_gone_back_to() {
    let world = World::new().await;
    let begun = world.call_with("/device_authorization", &[], "client_id=tv&scope=openid").await.json();
    let code = [("user_code", begun["user_code"].as_str().unwrap())];
    let mut browser = world.browser();
    world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let page = browser.get("/device").await;
    let confirm = browser.send(&page.form("/device"), &code).await.location().to_owned();
    assert!(confirm.contains("/device?flow="), "{confirm}");
    let page = browser.get(&confirm).await;
    assert_eq!(browser.get(&confirm).await.status, 200);
    let done = browser.send(&page.form("/device/decision"), &[("decision", "allow")]).await;
    let done = done.location().to_owned();
    for _ in 0..2 {
        let page = browser.get(&done).await;
        assert!(
            page.text().contains("Device connected") && page.text().contains("The tv"),
            "{}",
            page.text()
        );
    }
}

#[tokio::test]
async fn consent_counts_for_the_person_who_was_asked() {
    let world = World::new().await;
    let mut browser = world.browser();
    let login = browser.get(&TestAuthorizationRequest::new("app").scope("openid email").target()).await;
    let consent = browser.submit(&login.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
    let asked_ada = consent.form("/consent");
    // Another user logs in in another tab.
    world.server.clock.advance(Duration::from_secs(1));
    let again = browser.get(&TestAuthorizationRequest::new("other").with("prompt", "login").target()).await;
    browser.submit(&again.form("/login"), &[("username", "bob"), ("password", PASSWORD)]).await;
    let answer = browser.submit(&asked_ada, &[("decision", "allow")]).await;
    assert!(answer.text().contains("bob"), "Bob is asked himself");
    answer.form("/consent");
    let consents = world.server.provider.store().consents_of("bob-id").await.unwrap();
    assert!(consents.is_empty());
}

#[tokio::test]
async fn a_session_cookie_has_its_attributes_and_is_new_at_each_login() {
    let world = World::new().await;
    let mut browser = world.browser();
    let page = browser.get(&TestAuthorizationRequest::new("trusted").target()).await;
    let set = |answer: &wire::Answer| -> Vec<String> {
        let all = answer.fields.iter().filter(|(n, _)| n == "set-cookie");
        all.map(|(_, v)| v.clone()).collect()
    };
    assert!(set(&page)[0].starts_with("postern_browser="));
    let fields = [("username", "ada"), ("password", PASSWORD)];
    // A planted cookie does not become the session.
    browser.cookies.insert("postern_session".into(), "ptn_ss_planted".into());
    let answer = browser.submit(&page.form("/login"), &fields).await;
    let first = set(&answer).into_iter().find(|c| c.starts_with("postern_session=")).unwrap();
    assert!(first.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{first}");
    assert!(!first.contains("planted"));
    let old = browser.cookies.clone();
    world.server.clock.advance(Duration::from_secs(1));
    let page = browser.get(&TestAuthorizationRequest::new("trusted").with("prompt", "login").target()).await;
    browser.submit(&page.form("/login"), &fields).await;
    assert_ne!(browser.cookies["postern_session"], old["postern_session"]);
    let mut thief = Browser { cookies: old, ..world.browser() };
    assert!(
        thief.get("/account").await.text().contains("name=\"password\""),
        "the old cookie is worth nothing"
    );
}

#[tokio::test]
async fn over_tls_cookies_are_bound_to_the_host() {
    let world = World::with(|_| config("https://login.example.com")).await;
    let mut browser = world.browser();
    let page = browser.get(&TestAuthorizationRequest::new("trusted").target()).await;
    let cookie = page.field("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-postern_browser="), "{cookie}");
    assert!(cookie.contains("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{cookie}");
    let answer = browser.submit(&page.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
    let cookie = answer.field("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-postern_session=ptn_ss_"), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(answer.location().starts_with(CALLBACK));
    let page = browser.get("/account").await;
    let bye = browser.submit(&page.form("/account/logout"), &[]).await;
    let gone = bye.field("set-cookie").unwrap();
    assert_eq!(gone, "__Host-postern_session=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0");
}

#[tokio::test]
async fn a_session_that_rests_or_lasts_too_long_is_over() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &TestAuthorizationRequest::new("trusted")).await;
    for _ in 0..5 {
        world.server.clock.advance(Duration::from_mins(119));
        assert!(browser.get("/account").await.text().contains("Your account"), "used now and then");
    }
    world.server.clock.advance(Duration::from_hours(2));
    assert!(browser.get("/account").await.text().contains("name=\"password\""), "rested for too long");
    world.code(&mut browser, &TestAuthorizationRequest::new("trusted").with("prompt", "")).await;
    for _ in 0..7 {
        world.server.clock.advance(Duration::from_mins(110));
        browser.get("/account").await;
    }
    assert!(browser.get("/account").await.text().contains("name=\"password\""), "twelve hours are the end");
}
