//! Conformance plan "RP-Initiated Logout OP".

use std::time::Duration;

use crate::{
    browser::Browser,
    wire::{Answer, encode},
    world::{GOODBYE, PASSWORD, TestAuthorizationRequest, World},
};

/// A browser in which Ada is logged in, and her ID token.
async fn logged_in(world: &World) -> (Browser<'_>, String) {
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    (browser, tokens["id_token"].as_str().unwrap().to_owned())
}

async fn ask(browser: &mut Browser<'_>, fields: &[(&str, &str)]) -> Answer {
    let fields: Vec<String> = fields.iter().map(|(n, v)| format!("{n}={}", encode(v))).collect();
    browser.get(&format!("/logout?{}", fields.join("&"))).await
}

/// Whether the browser gets a code without interaction.
async fn is_logged_in(browser: &mut Browser<'_>) -> bool {
    let answer = browser.get(&TestAuthorizationRequest::new("app").with("prompt", "none").target()).await;
    answer.location().contains("code=")
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_discovery_endpoint_verification() {
    let world = World::new().await;
    let document = world.server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(document["end_session_endpoint"], format!("{}/logout", world.server.issuer));
}

#[tokio::test]
async fn oidcc_rp_initiated_logout() {
    let world = World::new().await;
    let (mut browser, hint) = logged_in(&world).await;
    let fields = [("id_token_hint", &*hint), ("post_logout_redirect_uri", GOODBYE), ("state", "a b&c")];
    let answer = ask(&mut browser, &fields).await;
    assert_eq!(answer.location(), format!("{GOODBYE}?state=a%20b%26c"));
    assert!(!is_logged_in(&mut browser).await);
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_by_post() {
    let world = World::new().await;
    let (mut browser, hint) = logged_in(&world).await;
    let fields = [("id_token_hint", &*hint), ("post_logout_redirect_uri", GOODBYE)];
    let answer = browser.post("/logout", &fields).await;
    let to = answer.location().to_owned();
    assert_eq!(browser.get(&to).await.location(), GOODBYE);
    assert!(!is_logged_in(&mut browser).await);
}

/// A browser whose session exceeded the idle timeout, and Ada's ID token.
async fn idle_session(world: &World) -> (Browser<'_>, String) {
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    world.server.clock.advance(Duration::from_hours(3));
    assert!(!is_logged_in(&mut browser).await, "nobody is logged in by it");
    assert!(is_there(world).await, "but it is there");
    (browser, tokens["id_token"].as_str().unwrap().to_owned())
}

/// Whether there is a session that was not ended, idle or not.
async fn is_there(world: &World) -> bool {
    let (store, now) = (world.server.provider.store(), world.server.clock.now());
    !store.sessions_of(&world.ada.id, now).await.unwrap().is_empty()
}

#[tokio::test]
async fn a_session_that_rested_for_too_long_is_there_to_be_ended() {
    let world = World::new().await;
    let (mut browser, hint) = idle_session(&world).await;
    let page = ask(&mut browser, &[("id_token_hint", &hint)]).await;
    assert!(page.text().contains("You are signed out"), "{}", page.text());
    assert!(!is_there(&world).await);

    let (mut browser, _) = idle_session(&world).await;
    let form = ask(&mut browser, &[]).await.form("/logout/decision");
    browser.submit(&form, &[("decision", "logout")]).await;
    assert!(!is_there(&world).await);

    // The account page was open all the time.
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    world.redeem("app", &code).await;
    let account = browser.get("/account").await;
    world.server.clock.advance(Duration::from_hours(3));
    browser.submit(&account.form("/account/logout"), &[]).await;
    assert!(!is_there(&world).await);
}

#[tokio::test]
async fn whoever_follows_hears_of_a_rested_session_that_another_user_ends() {
    let world = World::new().await;
    let (mut browser, _) = idle_session(&world).await;
    let store = world.server.provider.store();
    let before = store.head().await.unwrap().seq;
    let login = browser.get(&TestAuthorizationRequest::new("app").target()).await.form("/login");
    browser.submit(&login, &[("username", "bob"), ("password", PASSWORD)]).await;
    assert_eq!(store.head().await.unwrap().seq, before + 1);
    assert!(!is_there(&world).await);
}

#[tokio::test]
async fn a_post_from_another_site_names_no_browser() {
    let world = World::new().await;
    for (path, fields) in [
        ("/logout", &[][..]),
        ("/authorize", &TestAuthorizationRequest::new("app").fields()),
        ("/login", &[]),
    ] {
        // Browsers send no cookies with this POST, and would store those of the response.
        let answer = world.browser().post(path, fields).await;
        assert_eq!(answer.field("set-cookie"), None, "{path}");
    }
    let mut browser = world.browser();
    browser.get("/logout").await;
    assert!(browser.cookies.contains_key("postern_browser"), "{:?}", browser.cookies);
}

/// The user sees an error, is not redirected, and stays logged in.
async fn refused(fields: &[(&str, &str)]) -> String {
    let world = World::new().await;
    let (mut browser, hint) = logged_in(&world).await;
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|&(n, v)| (n, if v == "HINT" { hint.as_str() } else { v })).collect();
    let answer = ask(&mut browser, &fields).await;
    assert_eq!((answer.status, answer.field("location")), (400, None), "{}", answer.text());
    assert!(is_logged_in(&mut browser).await);
    answer.text().to_owned()
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_bad_post_logout_redirect_uri() {
    refused(&[("id_token_hint", "HINT"), ("post_logout_redirect_uri", "https://evil.example/")]).await;
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_query_added_to_post_logout_redirect_uri() {
    let uri = format!("{GOODBYE}?foo=bar");
    refused(&[("id_token_hint", "HINT"), ("post_logout_redirect_uri", &uri)]).await;
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_bad_id_token_hint() {
    refused(&[("id_token_hint", "foo"), ("post_logout_redirect_uri", GOODBYE)]).await;
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_modified_id_token_hint() {
    let world = World::new().await;
    let (mut browser, hint) = logged_in(&world).await;
    let (signed, signature) = hint.rsplit_once('.').unwrap();
    let flipped = if signature.starts_with('A') { "B" } else { "A" };
    let modified = format!("{signed}.{flipped}{}", &signature[1..]);
    let answer =
        ask(&mut browser, &[("id_token_hint", &modified), ("post_logout_redirect_uri", GOODBYE)]).await;
    assert_eq!((answer.status, answer.field("location")), (400, None));
    assert!(is_logged_in(&mut browser).await);
}

/// Without a hint any site could have sent the browser here, so the user is asked.
async fn asked(fields: &[(&str, &str)], afterwards: Option<&str>) {
    let world = World::new().await;
    let (mut browser, _) = logged_in(&world).await;
    let page = ask(&mut browser, fields).await;
    let form = page.form("/logout/decision");
    assert!(is_logged_in(&mut browser).await, "nothing has happened yet");
    let stays = browser.submit(&form, &[("decision", "stay")]).await;
    assert!(stays.location().ends_with("/account"));
    assert!(is_logged_in(&mut browser).await);
    let answer = browser.submit(&form, &[("decision", "logout")]).await;
    match afterwards {
        Some(uri) => assert_eq!(answer.location(), uri),
        None => assert!(browser.follow(answer).await.text().contains("You are signed out")),
    }
    assert!(!is_logged_in(&mut browser).await);
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_no_id_token_hint() {
    let to = format!("{GOODBYE}?state=s");
    let fields = [("client_id", "app"), ("post_logout_redirect_uri", GOODBYE), ("state", "s")];
    asked(&fields, Some(&to)).await;
    // Without a client no redirect URI can be verified, and the page explains it.
    let page = refused(&[("post_logout_redirect_uri", GOODBYE), ("state", "s")]).await;
    assert!(page.contains("(id_token_hint) is missing") && page.contains("id_token_hint_missing"), "{page}");
    assert!(!page.contains("named an address that is not registered"), "{page}");
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_no_params() {
    asked(&[], None).await;
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_only_state() {
    asked(&[("state", "s")], None).await;
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_no_post_logout_redirect_uri() {
    let world = World::new().await;
    let (mut browser, hint) = logged_in(&world).await;
    let page = ask(&mut browser, &[("id_token_hint", &hint), ("state", "s")]).await;
    assert!(page.text().contains("You are signed out"), "{}", page.text());
    assert!(!is_logged_in(&mut browser).await);
}

#[tokio::test]
async fn oidcc_rp_initiated_logout_no_state() {
    let world = World::new().await;
    let (mut browser, hint) = logged_in(&world).await;
    let answer = ask(&mut browser, &[("id_token_hint", &hint), ("post_logout_redirect_uri", GOODBYE)]).await;
    assert_eq!(answer.location(), GOODBYE);
    assert!(!is_logged_in(&mut browser).await);
}

/// An ID token of another session does not log this user out without confirmation.
#[tokio::test]
async fn a_hint_of_another_session_is_asked_about() {
    let world = World::new().await;
    let (_, others) = logged_in(&world).await;
    let (mut browser, _) = logged_in(&world).await;
    let page = ask(&mut browser, &[("id_token_hint", &others)]).await;
    page.form("/logout/decision");
    assert!(is_logged_in(&mut browser).await);
}
