//! Codes and refresh tokens: bound to client, redirect URI, PKCE and session, and valid once.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use idp::{ClientConfig, Config, GrantType};
use serde_json::Value;

use crate::{
    browser::query,
    wire::{Answer, encode},
    world::{TestAuthorizationRequest, VERIFIER, World, app, challenge, config, redemption},
};

#[tokio::test]
async fn a_code_is_bound_to_its_client() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app")).await;
    world.call("/token", "other", &redemption(&code)).await.assert_error(400, "invalid_grant");
    assert_eq!(world.redeem("app", &code).await.status, 200, "the thief did not use it up");
}

#[tokio::test]
async fn a_code_is_bound_to_its_redirect_uri() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app")).await;
    for other in ["&redirect_uri=https%3A%2F%2Fapp.example%2Fother", ""] {
        let body = format!("grant_type=authorization_code&code={code}{other}");
        world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
    }
    assert_eq!(world.redeem("app", &code).await.status, 200);
}

#[tokio::test]
async fn a_code_is_bound_to_its_challenge() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app").pkce()).await;
    let wrong = VERIFIER.replace('a', "b");
    for verifier in [String::new(), format!("&code_verifier={wrong}"), "&code_verifier=short".into()] {
        let body = redemption(&code) + &verifier;
        world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
    }
    let body = redemption(&code) + &format!("&code_verifier={VERIFIER}");
    assert_eq!(world.call("/token", "app", &body).await.status, 200);
}

#[tokio::test]
async fn a_verifier_without_a_challenge_is_refused() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app")).await;
    let body = redemption(&code) + &format!("&code_verifier={VERIFIER}");
    world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn pkce_is_enforced_for_public_clients() {
    let world = World::new().await;
    let native = |ask: TestAuthorizationRequest| ask.with("redirect_uri", "http://127.0.0.1:51004/cb");
    let mut browser = world.browser();
    let refused = browser.get(&native(TestAuthorizationRequest::new("native")).target()).await;
    assert_eq!(query(refused.location())["error"], "invalid_request");
    let plain = native(TestAuthorizationRequest::new("native")).with("code_challenge", &challenge(VERIFIER));
    assert_eq!(query(browser.get(&plain.target()).await.location())["error"], "invalid_request", "not plain");
    let code = world.code(&mut browser, &native(TestAuthorizationRequest::new("native")).pkce()).await;
    let body = format!(
        "grant_type=authorization_code&client_id=native&code={code}&redirect_uri={}&code_verifier={VERIFIER}",
        encode("http://127.0.0.1:51004/cb")
    );
    assert_eq!(world.call_with("/token", &[], &body).await.status, 200, "the port of a loopback may differ");
}

#[tokio::test]
async fn a_code_dies_with_its_session() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let page = browser.get("/account").await;
    browser.submit(&page.form("/account/logout"), &[]).await;
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn a_code_expires_and_is_remembered_longer() {
    let world = World::new().await;
    let mut browser = world.browser();
    let late = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    world.server.clock.advance(Duration::from_mins(1));
    world.redeem("app", &late).await.assert_error(400, "invalid_grant");
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    world.server.clock.advance(Duration::from_mins(4));
    world
        .server
        .provider
        .store()
        .delete_expired(world.server.clock.now(), Duration::from_hours(1))
        .await
        .unwrap();
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
    assert!(!world.is_active(tokens["access_token"].as_str().unwrap()).await, "noticed four minutes later");
}

#[tokio::test]
async fn replay_of_a_refresh_token_kills_the_family() {
    for client in ["app", "opaque"] {
        let world = World::new().await;
        let first = world.tokens(client, "openid offline_access").await;
        let refresh = |tokens: &Value| {
            format!("grant_type=refresh_token&refresh_token={}", tokens["refresh_token"].as_str().unwrap())
        };
        let second = world.call("/token", client, &refresh(&first)).await.json();
        let active = |tokens: &Value| tokens["access_token"].as_str().unwrap().to_owned();
        assert!(world.is_active(&active(&second)).await);
        world.call("/token", client, &refresh(&first)).await.assert_error(400, "invalid_grant");
        world.call("/token", client, &refresh(&second)).await.assert_error(400, "invalid_grant");
        for tokens in [first, second] {
            assert!(!world.is_active(&active(&tokens)).await, "{client}");
        }
    }
}

/// Consumers of the revocation log revoke a token with the session that it names. So it names only
/// a session that it ends with.
#[tokio::test]
async fn a_token_names_the_session_that_it_ends_with() {
    let world = World::new().await;
    for client in ["app", "opaque"] {
        for (scope, ends) in [("openid", true), ("openid offline_access", false)] {
            let tokens = world.tokens(client, scope).await;
            let token = tokens["access_token"].as_str().unwrap();
            let told = world.introspect(token).await;
            assert_eq!(
                (&told["active"], told["sid"].is_string()),
                (&Value::Bool(true), ends),
                "{client} {scope}"
            );
            if let Some(claims) = token.split('.').nth(1) {
                let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
                assert_eq!(claims["sid"].is_string(), ends, "{client} {scope}");
            }
        }
    }
}

#[tokio::test]
async fn a_refresh_narrows_and_never_widens() {
    let world = World::new().await;
    let first = world.tokens("app", "openid email offline_access").await;
    let refresh = |tokens: &Value, scope: &str| {
        let token = tokens["refresh_token"].as_str().unwrap();
        format!("grant_type=refresh_token&refresh_token={token}&scope={}", encode(scope))
    };
    world.call("/token", "app", &refresh(&first, "openid profile")).await.assert_error(400, "invalid_scope");
    let second = world.call("/token", "app", &refresh(&first, "openid")).await.json();
    assert_eq!(second["scope"], "openid");
    let third = world.call("/token", "app", &refresh(&second, "openid email")).await.json();
    assert_eq!(third["scope"], "openid email", "what was granted is not lost");
}

/// A client that names targets gets tokens for exactly those; a target that was not granted is
/// refused, not ignored.
#[tokio::test]
async fn a_target_that_was_not_granted_is_refused_at_the_token_endpoint() {
    let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let targets = ["https://api.example.com", "reports", "invoices"];
    let world = World::with(|issuer| {
        let base = config(issuer);
        let wide = ClientConfig { audiences: owned(&targets), ..app("wide") };
        let grants = vec![GrantType::DeviceCode];
        let clients =
            [wide.clone(), ClientConfig { id: "wide-tv".into(), redirect_uris: vec![], grants, ..wide }];
        Config {
            audiences: owned(&targets),
            clients: base.clients.iter().cloned().chain(clients).collect(),
            ..base
        }
    })
    .await;
    let audience_of = async |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let tokens = answer.json();
        (world.introspect(tokens["access_token"].as_str().unwrap()).await["aud"].clone(), tokens)
    };
    let bad = [
        "audience=elsewhere",
        "resource=https%3A%2F%2Felsewhere.example",
        "resource=reports",
        "audience=a%20b",
    ];
    let ask =
        TestAuthorizationRequest::new("wide").with("audience", "reports").scope("openid offline_access");
    let target = format!("{}&resource={}", ask.target(), encode(targets[0]));
    let mut browser = world.browser();
    let page = browser.get(&target).await;
    let fields = world.walk(&mut browser, page, &ask).await;
    let redeem = redemption(&fields["code"]);
    for named in bad.iter().chain(&["audience=invoices"]) {
        let refused = world.call("/token", "wide", &format!("{redeem}&{named}")).await;
        refused.assert_error(400, "invalid_target");
    }
    let (aud, first) =
        audience_of(world.call("/token", "wide", &format!("{redeem}&audience=reports")).await).await;
    assert_eq!(aud, "reports");
    let refresh = |tokens: &Value| {
        format!("grant_type=refresh_token&refresh_token={}", tokens["refresh_token"].as_str().unwrap())
    };
    for named in bad.iter().chain(&["audience=invoices"]) {
        let refused = world.call("/token", "wide", &format!("{}&{named}", refresh(&first))).await;
        refused.assert_error(400, "invalid_target");
    }
    let narrowed = format!("{}&resource={}", refresh(&first), encode(targets[0]));
    let (aud, second) = audience_of(world.call("/token", "wide", &narrowed).await).await;
    assert_eq!(aud, targets[0]);
    let (aud, _) = audience_of(world.call("/token", "wide", &refresh(&second)).await).await;
    assert_eq!(aud, serde_json::json!([targets[0], "reports"]), "what was granted is not lost");

    let begun =
        world.call("/device_authorization", "wide-tv", "audience=reports&audience=invoices&scope=read").await;
    let begun = begun.json();
    let code = format!(
        "grant_type={}&device_code={}",
        encode("urn:ietf:params:oauth:grant-type:device_code"),
        begun["device_code"].as_str().unwrap()
    );
    let mut page = browser.get(begun["verification_uri_complete"].as_str().unwrap()).await;
    page =
        browser.submit(&page.form("/device"), &[("user_code", begun["user_code"].as_str().unwrap())]).await;
    page = browser.follow(page).await;
    browser.submit(&page.form("/device/decision"), &[("decision", "allow")]).await;
    for named in bad {
        world.server.clock.advance(Duration::from_secs(6));
        world.call("/token", "wide-tv", &format!("{code}&{named}")).await.assert_error(400, "invalid_target");
    }
    world.server.clock.advance(Duration::from_secs(6));
    let (aud, _) =
        audience_of(world.call("/token", "wide-tv", &format!("{code}&audience=invoices")).await).await;
    assert_eq!(aud, "invoices");
}
