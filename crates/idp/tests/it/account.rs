//! Account page: its content and the effect of each button.

use serde_json::Value;
use store::{
    families::Family,
    redeem::{BeginFamily, Successors},
};

use crate::{
    browser::{Browser, Form},
    world::{PASSWORD, TestAuthorizationRequest, World},
};

/// Tokens of a client with access that outlives the session.
async fn offline_tokens(world: &World, browser: &mut Browser<'_>, client: &str) -> Value {
    granted(world, browser, client, "openid offline_access").await
}

async fn granted(world: &World, browser: &mut Browser<'_>, client: &str, scope: &str) -> Value {
    let ask = TestAuthorizationRequest::new(client).scope(scope).with("prompt", "consent");
    let code = world.code(browser, &ask).await;
    let answer = world.redeem(client, &code).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn is_alive(world: &World, tokens: &Value) -> bool {
    world.is_active(tokens["access_token"].as_str().unwrap()).await
}

async fn refreshed(world: &World, client: &str, tokens: &Value) -> u16 {
    let token = tokens["refresh_token"].as_str().unwrap();
    world.call("/token", client, &format!("grant_type=refresh_token&refresh_token={token}")).await.status
}

/// The forms of the page that are posted to one path.
async fn forms(browser: &mut Browser<'_>, action: &str) -> Vec<Form> {
    let page = browser.get("/account").await;
    page.forms().into_iter().filter(|form| form.action == action).collect()
}

#[tokio::test]
async fn lasting_access_is_revoked_one_by_one() {
    let world = World::new().await;
    let mut ada = world.browser();
    let first = offline_tokens(&world, &mut ada, "app").await;
    world.server.clock.advance(std::time::Duration::from_secs(1));
    let second = offline_tokens(&world, &mut ada, "other").await;
    let rows = forms(&mut ada, "/account/revoke").await;
    assert_eq!(rows.len(), 2);

    // The newest comes first; another user cannot revoke it.
    let mut bob = world.browser();
    let login = bob.get("/account").await.form("/login");
    bob.submit(&login, &[("username", "bob"), ("password", PASSWORD)]).await;
    let page = bob.get("/account").await;
    assert!(!page.text().contains("/account/revoke"), "Bob gave nobody access");
    let csrf = page.form("/account/logout").hidden.into_iter().find(|(name, _)| name == "csrf").unwrap().1;
    let of_ada = rows[0].hidden.iter().find(|(name, _)| name == "token").unwrap().1.clone();
    assert_eq!(bob.post("/account/revoke", &[("csrf", &csrf), ("token", &of_ada)]).await.status, 404);
    assert!(is_alive(&world, &second).await);

    assert!(ada.submit(&rows[0], &[]).await.location().ends_with("?done=token"));
    assert!(!is_alive(&world, &second).await);
    assert_eq!(refreshed(&world, "other", &second).await, 400);
    assert!(is_alive(&world, &first).await);
    assert_eq!(refreshed(&world, "app", &first).await, 200);
    assert_eq!(forms(&mut ada, "/account/revoke").await.len(), 1);
    assert!(forms(&mut ada, "/account/revoke-all").await.is_empty(), "one button is enough for one row");
}

#[tokio::test]
async fn lasting_access_is_revoked_all_at_once() {
    let world = World::new().await;
    let mut ada = world.browser();
    let mut all = Vec::new();
    for client in ["app", "other", "app", "opaque"] {
        all.push((client, offline_tokens(&world, &mut ada, client).await));
    }
    let passing = granted(&world, &mut ada, "trusted", "openid").await;
    let button = forms(&mut ada, "/account/revoke-all").await.remove(0);
    assert!(ada.submit(&button, &[]).await.location().ends_with("?done=tokens"));
    let said = ada.get("/account?done=tokens").await;
    assert!(said.text().contains("All lasting access is revoked."));
    assert!(said.text().contains("No app has access while you are away."));
    for (client, tokens) in all {
        assert!(!is_alive(&world, &tokens).await, "{client}");
        assert_eq!(refreshed(&world, client, &tokens).await, 400, "{client}");
    }
    assert!(is_alive(&world, &passing).await, "what ends with the session does not last");
}

#[tokio::test]
async fn consents_are_withdrawn_one_by_one_and_all_at_once() {
    let world = World::new().await;
    let mut ada = world.browser();
    let mut of = Vec::new();
    for client in ["app", "other", "opaque"] {
        of.push((client, granted(&world, &mut ada, client, "openid profile").await));
    }
    let rows = forms(&mut ada, "/account/withdraw").await;
    assert_eq!(rows.len(), 3);
    let row_of_app = rows.iter().find(|form| form.hidden.iter().any(|(_, value)| value == "app")).unwrap();
    assert!(ada.submit(row_of_app, &[]).await.location().ends_with("?done=consent"));
    assert!(!is_alive(&world, &of[0].1).await);
    assert!(is_alive(&world, &of[1].1).await && is_alive(&world, &of[2].1).await);
    let asked = ada.get(&TestAuthorizationRequest::new("app").scope("openid profile").target()).await;
    assert!(asked.text().contains("action=\"/consent\""), "the app has to ask again");

    let button = forms(&mut ada, "/account/withdraw-all").await.remove(0);
    assert!(ada.submit(&button, &[]).await.location().ends_with("?done=consents"));
    let said = ada.get("/account?done=consents").await;
    assert!(said.text().contains("No app has access any more."));
    assert!(forms(&mut ada, "/account/withdraw").await.is_empty());
    for (client, tokens) in of {
        assert!(!is_alive(&world, &tokens).await, "{client}");
    }
}

#[tokio::test]
async fn lasting_access_is_not_hidden_by_what_ends_with_sessions() {
    let world = World::new().await;
    let mut ada = world.browser();
    offline_tokens(&world, &mut ada, "app").await;
    for n in 0..120 {
        let family = Family {
            id: format!("passing-{n:03}"),
            client_id: "other".into(),
            user_id: Some(world.ada.id.clone()),
            sid: None,
            scopes: "openid".into(),
            audiences: String::new(),
            details: String::new(),
            outlives_session: false,
            created_at: world.server.clock.now(),
            expires_at: world.server.clock.now().plus(std::time::Duration::from_hours(1)),
            revoked_at: None,
            read_at: auth::time::Timestamp::from_millis(0),
        };
        let successors = Successors::default();
        assert!(
            world
                .server
                .provider
                .store()
                .write(BeginFamily { family, origins: [store::Tag([0; 16]); 2], successors })
                .await
                .unwrap()
        );
    }
    assert_eq!(forms(&mut ada, "/account/revoke").await.len(), 1);
}

#[tokio::test]
async fn a_locked_account_says_how_long_on_the_page() {
    let world = World::new().await;
    let mut ada = world.browser();
    granted(&world, &mut ada, "app", "openid").await;
    let form = ada.get("/account").await.form("/account/password");
    let wrong = [
        ("current", "wrong"),
        ("new", "another winter in the dunes"),
        ("again", "another winter in the dunes"),
    ];
    for _ in 0..5 {
        assert_eq!(ada.submit(&form, &wrong).await.status, 403);
    }
    let page = ada.submit(&form, &wrong).await;
    assert_eq!((page.status, page.field("retry-after")), (429, Some("10")));
    assert!(page.text().contains("wait <bdi>10\u{a0}seconds</bdi>"), "{}", page.text());
}
