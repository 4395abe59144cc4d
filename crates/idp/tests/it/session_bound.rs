//! Tokens without `offline_access`: they end with their session, however it ends, and are listed
//! until then.

use std::time::Duration;

use idp::{Config, Lifetimes};
use serde_json::Value;

use crate::{
    browser::Browser,
    world::{PASSWORD, TestAuthorizationRequest, World, config},
};

/// Lifetime and idle timeout of sessions.
const SESSION: Duration = Duration::from_mins(30);
const IDLE: Duration = Duration::from_mins(10);

async fn world() -> World {
    World::with(|issuer| {
        let base = config(issuer);
        Config {
            lifetimes: Lifetimes { session: SESSION, session_idle: IDLE, ..base.lifetimes },
            access_token_lifetime: Duration::from_mins(5),
            ..base
        }
    })
    .await
}

/// Tokens of a client after Ada's consent in this browser.
async fn granted(world: &World, browser: &mut Browser<'_>, client: &str, scope: &str) -> Value {
    let code = world.code(browser, &TestAuthorizationRequest::new(client).scope(scope)).await;
    let answer = world.redeem(client, &code).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn refresh(world: &World, client: &str, tokens: &Value) -> Result<Value, u16> {
    let token = tokens["refresh_token"].as_str().unwrap();
    let body = format!("grant_type=refresh_token&refresh_token={token}");
    let answer = world.call("/token", client, &body).await;
    if answer.status == 200 {
        return Ok(answer.json());
    }
    assert_eq!(answer.json()["error"], "invalid_grant");
    Err(answer.status)
}

async fn is_active(world: &World, tokens: &Value) -> bool {
    world.is_active(tokens["access_token"].as_str().unwrap()).await
}

#[tokio::test]
async fn a_refresh_token_ends_with_the_lifetime_of_its_session() {
    for client in ["app", "opaque"] {
        let world = world().await;
        let mut ada = world.browser();
        let mut tokens = granted(&world, &mut ada, client, "openid").await;
        for _ in 0..5 {
            world.server.clock.advance(Duration::from_mins(5));
            tokens = refresh(&world, client, &tokens).await.unwrap();
        }
        // Late in the session: a new grant does not last longer than an earlier one.
        let late = granted(&world, &mut ada, client, "openid").await;
        let lasting = granted(&world, &mut ada, client, "openid offline_access").await;
        world.server.clock.advance(Duration::from_secs(4 * 60 + 59));
        let last = refresh(&world, client, &late).await.unwrap();
        assert!(is_active(&world, &last).await);
        world.server.clock.advance(Duration::from_secs(2));
        for over in [&tokens, &late, &last] {
            assert!(!is_active(&world, over).await, "{client}: an access token that names the session");
        }
        for over in [&tokens, &last] {
            assert_eq!(refresh(&world, client, over).await, Err(400), "{client}");
        }
        assert!(refresh(&world, client, &lasting).await.is_ok(), "offline access goes on");
    }
}

#[tokio::test]
async fn a_refresh_token_ends_with_a_session_that_nobody_uses() {
    for client in ["app", "opaque"] {
        let world = world().await;
        let mut ada = world.browser();
        let tokens = granted(&world, &mut ada, client, "openid").await;
        let lasting = granted(&world, &mut ada, client, "openid offline_access").await;
        world.server.clock.advance(IDLE);
        assert!(!is_active(&world, &tokens).await);
        assert_eq!(refresh(&world, client, &tokens).await, Err(400), "{client}");
        assert!(refresh(&world, client, &lasting).await.is_ok(), "offline access goes on");
        assert!(ada.get("/account").await.text().contains("action=\"/login\""), "as for the browser");
    }
}

#[tokio::test]
async fn a_client_that_refreshes_uses_the_session() {
    let world = world().await;
    let mut ada = world.browser();
    let mut tokens = granted(&world, &mut ada, "app", "openid").await;
    let lasting = granted(&world, &mut ada, "app", "openid offline_access").await;
    for _ in 0..3 {
        world.server.clock.advance(IDLE.saturating_sub(Duration::from_secs(1)));
        tokens = refresh(&world, "app", &tokens).await.unwrap();
    }
    assert!(
        ada.get("/account").await.text().contains("/account/logout"),
        "it goes on in the browser as well"
    );
    // A grant that outlives the session does not keep the session in use.
    world.server.clock.advance(Duration::from_secs(61));
    refresh(&world, "app", &lasting).await.unwrap();
    assert_eq!(refresh(&world, "app", &tokens).await, Err(400), "its lifetime is over");
}

#[tokio::test]
async fn an_access_token_ends_no_later_than_a_session_that_nobody_uses() {
    let world = World::with(|issuer| {
        let base = config(issuer);
        let lifetimes = Lifetimes { session_idle: Duration::from_mins(2), ..base.lifetimes };
        Config { lifetimes, access_token_lifetime: Duration::from_mins(20), ..base }
    })
    .await;
    for client in ["app", "opaque"] {
        let mut ada = world.browser();
        let passing = granted(&world, &mut ada, client, "openid").await;
        let lasting = granted(&world, &mut ada, client, "openid offline_access").await;
        assert_eq!((&passing["expires_in"], &lasting["expires_in"]), (&120.into(), &1200.into()), "{client}");
    }
}

#[tokio::test]
async fn a_code_is_worth_nothing_after_its_session() {
    let world = world().await;
    let mut ada = world.browser();
    granted(&world, &mut ada, "app", "openid").await;
    world.server.clock.advance(IDLE.saturating_sub(Duration::from_secs(30)));
    ada.get("/account").await;
    world.server.clock.advance(SESSION.saturating_sub(IDLE + Duration::from_secs(10)));
    // The browser uses the session once more, so that only its lifetime ends it.
    let page = ada.get("/account").await;
    assert!(page.text().contains("action=\"/login\""), "it was not used for too long");
    let login = page.form("/login");
    ada.submit(&login, &[("username", "ada"), ("password", PASSWORD)]).await;
    for step in [9, 9, 9] {
        world.server.clock.advance(Duration::from_mins(step));
        ada.get("/account").await;
    }
    world.server.clock.advance(Duration::from_secs(2 * 60 + 30));
    let code = world.code(&mut ada, &TestAuthorizationRequest::new("app")).await;
    world.server.clock.advance(Duration::from_secs(31));
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn what_ends_with_the_session_is_shown_and_can_be_revoked() {
    let world = world().await;
    let mut ada = world.browser();
    let lasting = granted(&world, &mut ada, "other", "openid offline_access").await;
    let passing = granted(&world, &mut ada, "app", "openid").await;
    let page = ada.get("/account").await;
    let rows = page.forms().into_iter().filter(|form| form.action == "/account/revoke").collect::<Vec<_>>();
    assert_eq!(rows.len(), 2, "{}", page.text());
    let section = page.text().split("id=\"passing\"").nth(1).expect("a section of its own");
    assert!(section.contains("The app") && section.contains("ends with the session in"), "{section}");
    assert!(!section.contains("The other"));

    assert!(ada.submit(&rows[1], &[]).await.location().ends_with("?done=token"));
    assert_eq!(refresh(&world, "app", &passing).await, Err(400));
    assert!(!is_active(&world, &passing).await);
    assert!(is_active(&world, &lasting).await);
    let page = ada.get("/account").await;
    assert!(!page.text().contains("id=\"passing\""), "nothing is left of it");
    assert_eq!(page.forms().iter().filter(|form| form.action == "/account/revoke").count(), 1);

    // One browser lists grants of another browser's session until that session ends.
    let mut elsewhere = world.browser();
    granted(&world, &mut elsewhere, "app", "openid").await;
    assert!(ada.get("/account").await.text().contains("id=\"passing\""));
    let logout = elsewhere.get("/account").await.form("/account/logout");
    elsewhere.submit(&logout, &[]).await;
    assert!(!ada.get("/account").await.text().contains("id=\"passing\""));
}
