//! A user with a temporary password chooses a new one before any session or token.

use std::time::Duration;

use idp::admin::{
    Admin, Secret,
    users::{SetPassword, UserChange},
};
use serde_json::Value;

use crate::{
    browser::{Browser, Form},
    wire::{Answer, encode},
    world::{PASSWORD, TestAuthorizationRequest, World},
};

const TEMPORARY: &str = "borrowed lantern for a day";
const OWN: &str = "seven quiet otters drum";

/// Gives Ada a temporary password, as an operator.
async fn make_temporary(world: &World, password: &str) {
    let set =
        SetPassword { password: Some(Secret::new(password.to_owned())), temporary: true, generate: false };
    Admin::new(&world.server.provider, "operator:test").set_password(&world.ada.id, set).await.unwrap();
    world.server.clock.advance(Duration::from_secs(1));
}

async fn require(world: &World, required: bool) {
    let change = UserChange { must_change_password: Some(required), ..UserChange::default() };
    let admin = Admin::new(&world.server.provider, "operator:test");
    assert_eq!(admin.change_user(&world.ada.id, change).await.unwrap().must_change_password, required);
}

/// Signs Ada in at a client with this password.
async fn sign_in(browser: &mut Browser<'_>, client: &str, password: &str) -> Answer {
    let page = browser.get(&TestAuthorizationRequest::new(client).target()).await;
    let page = browser.follow(page).await;
    browser.submit(&page.form("/login"), &[("username", "ada"), ("password", password)]).await
}

fn has_session(browser: &Browser<'_>) -> bool {
    browser.cookies.keys().any(|name| name.ends_with("postern_session"))
}

async fn choose(browser: &mut Browser<'_>, form: &Form, new: &str, again: &str) -> Answer {
    browser.submit(form, &[("new", new), ("again", again)]).await
}

async fn by_password(world: &World, password: &str) -> Answer {
    let body = format!("grant_type=password&username=ada&password={}&scope=openid", encode(password));
    world.call("/token", "legacy", &body).await
}

#[tokio::test]
async fn a_temporary_password_leads_to_a_page_before_any_session() {
    let world = World::new().await;
    make_temporary(&world, TEMPORARY).await;
    let mut ada = world.browser();
    let page = sign_in(&mut ada, "app", TEMPORARY).await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("Choose a new password") && !has_session(&ada), "{}", page.text());
    assert_eq!(page.field("cache-control"), Some("no-store"));
    assert_eq!(page.field("referrer-policy"), Some("no-referrer"));
    let form = page.form("/login/password");

    for (new, again, says) in [
        (OWN, "seven quiet otters drums", "are not the same"),
        ("short", "short", "too short"),
        ("password1234", "password1234", "too easy to guess"),
        (TEMPORARY, TEMPORARY, "same as the current one"),
    ] {
        let refused = choose(&mut ada, &form, new, again).await;
        assert_eq!(refused.status, 400, "{new}: {}", refused.text());
        assert!(refused.text().contains(says), "{new}: {}", refused.text());
        assert!(!has_session(&ada), "{new}");
    }
    let consent = choose(&mut ada, &form, OWN, OWN).await;
    assert!(has_session(&ada) && consent.text().contains("action=\"/consent\""), "{}", consent.text());
    let answer = ada.submit(&consent.form("/consent"), &[("decision", "allow")]).await;
    let code = crate::browser::query(answer.location()).remove("code").unwrap();
    assert_eq!(world.redeem("app", &code).await.status, 200);

    by_password(&world, TEMPORARY).await.assert_error(400, "invalid_grant");
    assert_eq!(by_password(&world, OWN).await.status, 200, "it is hers to keep");
    let log = world.server.provider.store().audit_log(0).await.unwrap();
    let entry = &log.iter().rfind(|record| record.entry.action == "user.password").unwrap().entry;
    assert_eq!(entry.actor, "user:ada-id");
}

#[tokio::test]
async fn a_client_without_a_consent_page_gets_its_code_at_once() {
    let world = World::new().await;
    make_temporary(&world, TEMPORARY).await;
    let mut ada = world.browser();
    let form = sign_in(&mut ada, "trusted", TEMPORARY).await.form("/login/password");
    let answer = choose(&mut ada, &form, OWN, OWN).await;
    let code = crate::browser::query(answer.location()).remove("code").unwrap();
    let tokens = world.redeem("trusted", &code).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    assert!(world.is_active(tokens.json()["access_token"].as_str().unwrap()).await);
    // The form is worthless now.
    assert_eq!(choose(&mut ada, &form, "another of her own", "another of her own").await.status, 400);
    assert_eq!(by_password(&world, OWN).await.status, 200);
}

#[tokio::test]
async fn no_token_is_issued_for_a_temporary_password() {
    let world = World::new().await;
    make_temporary(&world, TEMPORARY).await;
    let answer = by_password(&world, TEMPORARY).await;
    answer.assert_error(400, "invalid_grant");
    let text = answer.json()["error_description"].as_str().unwrap().to_owned();
    assert!(text.contains("log in with a browser"), "{text}");
    let wrong = by_password(&world, "wrong").await.json()["error_description"].clone();
    assert_eq!(wrong, Value::from("wrong user name or password"), "only the right password is told");
}

#[tokio::test]
async fn the_page_is_worthless_after_another_change_and_in_another_browser() {
    let world = World::new().await;
    make_temporary(&world, TEMPORARY).await;
    let (mut ada, mut other) = (world.browser(), world.browser());
    let form = sign_in(&mut ada, "app", TEMPORARY).await.form("/login/password");
    other.get("/account").await;
    assert_ne!(choose(&mut other, &form, OWN, OWN).await.status, 200);
    assert!(!has_session(&other));

    let admin = Admin::new(&world.server.provider, "operator:test");
    make_temporary(&world, "another lantern for a day").await;
    assert_eq!(choose(&mut ada, &form, OWN, OWN).await.status, 400, "the password was set again");
    let form = sign_in(&mut ada, "app", "another lantern for a day").await.form("/login/password");
    admin.disable_user(&world.ada.id).await.unwrap();
    assert_eq!(choose(&mut ada, &form, OWN, OWN).await.status, 400, "the account is disabled");
    assert!(!has_session(&ada));
    by_password(&world, OWN).await.assert_error(400, "invalid_grant");

    // The state of a login that has not happened proves nothing.
    let login = other.get("/account").await;
    let login = other.follow(login).await.form("/login");
    let forged = Form { action: "/login/password".into(), hidden: login.hidden };
    assert_eq!(choose(&mut other, &forged, OWN, OWN).await.status, 403);
}

#[tokio::test]
async fn sessions_of_before_go_on_and_the_account_page_lifts_it() {
    let world = World::new().await;
    let mut ada = world.browser();
    world.code(&mut ada, &TestAuthorizationRequest::new("app")).await;
    require(&world, true).await;
    by_password(&world, PASSWORD).await.assert_error(400, "invalid_grant");
    let page = ada.get("/account").await;
    let form = page.form("/account/password");
    let fields = [("current", PASSWORD), ("new", OWN), ("again", OWN)];
    assert!(ada.submit(&form, &fields).await.location().ends_with("?done=password"));
    assert_eq!(by_password(&world, OWN).await.status, 200);

    require(&world, true).await;
    by_password(&world, OWN).await.assert_error(400, "invalid_grant");
    require(&world, false).await;
    assert_eq!(by_password(&world, OWN).await.status, 200);
}

#[tokio::test]
async fn the_page_speaks_german() {
    let world = World::new().await;
    make_temporary(&world, TEMPORARY).await;
    let mut ada = world.browser();
    ada.language = Some("de");
    let page = sign_in(&mut ada, "app", TEMPORARY).await;
    assert!(page.text().contains("Neues Passwort w\u{e4}hlen"), "{}", page.text());
}
