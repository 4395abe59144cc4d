//! Device authorization (RFC 8628), from the view of a device and of a user.

use std::time::Duration;

use serde_json::Value;

use crate::{
    browser::Browser,
    server::decode_unverified,
    wire::{Answer, encode},
    world::{PASSWORD, World},
};

async fn begin(world: &World) -> Value {
    let answer = world.call_with("/device_authorization", &[], "client_id=tv&scope=openid%20email").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn poll(world: &World, begun: &Value) -> Answer {
    world.server.clock.advance(Duration::from_secs(5));
    ask(world, begun).await
}

async fn ask(world: &World, begun: &Value) -> Answer {
    let body = format!(
        "grant_type={}&client_id=tv&device_code={}",
        encode("urn:ietf:params:oauth:grant-type:device_code"),
        begun["device_code"].as_str().unwrap()
    );
    world.call_with("/token", &[], &body).await
}

/// Enters the code, logs in if necessary, and returns the confirmation page.
async fn typed(browser: &mut Browser<'_>, code: &str) -> Answer {
    let page = browser.get("/device").await;
    let page = browser.submit(&page.form("/device"), &[("user_code", code)]).await;
    if !page.text().contains("name=\"password\"") {
        return page;
    }
    browser.submit(&page.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await
}

#[tokio::test]
async fn a_device_gets_its_tokens_when_the_person_said_yes() {
    let world = World::new().await;
    let begun = begin(&world).await;
    assert_eq!(begun["verification_uri"], format!("{}/device", world.server.issuer));
    assert_eq!((&begun["expires_in"], &begun["interval"]), (&600.into(), &5.into()));
    let complete = begun["verification_uri_complete"].as_str().unwrap();
    poll(&world, &begun).await.assert_error(400, "authorization_pending");
    ask(&world, &begun).await.assert_error(400, "slow_down");

    let mut browser = world.browser();
    let page = browser.get(complete).await;
    let code = begun["user_code"].as_str().unwrap();
    assert!(page.text().contains(&format!("value=\"{code}\"")), "{}", page.text());
    let page = typed(&mut browser, &code.to_lowercase().replace('-', "")).await;
    assert!(page.text().contains("The tv") && page.text().contains(code), "{}", page.text());
    let done = browser.submit(&page.form("/device/decision"), &[("decision", "allow")]).await;
    assert!(done.text().contains("Device connected"), "{}", done.text());

    world.server.clock.advance(Duration::from_secs(10));
    let answer = poll(&world, &begun).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let tokens = answer.json();
    assert_eq!(tokens["scope"], "openid email");
    let (_, claims) = decode_unverified(tokens["id_token"].as_str().unwrap());
    assert_eq!((claims["sub"].as_str(), claims["aud"].as_str()), (Some("ada-id"), Some("tv")));
    assert_eq!(claims.get("sid"), None, "the session is another device's");
    let access = tokens["access_token"].as_str().unwrap();
    assert!(world.is_active(access).await);
    // A second redemption: the code was stolen, and the legitimate holder is unknown.
    world.server.clock.advance(Duration::from_secs(5));
    poll(&world, &begun).await.assert_error(400, "invalid_grant");
    assert!(!world.is_active(access).await);
}

#[tokio::test]
async fn a_device_hears_no() {
    let world = World::new().await;
    let begun = begin(&world).await;
    let mut browser = world.browser();
    let page = typed(&mut browser, begun["user_code"].as_str().unwrap()).await;
    let done = browser.submit(&page.form("/device/decision"), &[("decision", "deny")]).await;
    assert!(done.text().contains("Device not connected"));
    poll(&world, &begun).await.assert_error(400, "access_denied");
}

#[tokio::test]
async fn a_device_code_expires() {
    let world = World::new().await;
    let begun = begin(&world).await;
    world.server.clock.advance(Duration::from_mins(10));
    poll(&world, &begun).await.assert_error(400, "expired_token");
    let mut browser = world.browser();
    let page = typed(&mut browser, begun["user_code"].as_str().unwrap()).await;
    assert!(page.text().contains("No device waits with this code"), "{}", page.text());
}

#[tokio::test]
async fn a_device_code_is_its_clients() {
    let world = World::new().await;
    let begun = begin(&world).await;
    let body = format!(
        "grant_type={}&device_code={}",
        encode("urn:ietf:params:oauth:grant-type:device_code"),
        begun["device_code"].as_str().unwrap()
    );
    world.call("/token", "app", &body).await.assert_error(400, "unauthorized_client");
    world.call("/device_authorization", "app", "").await.assert_error(400, "unauthorized_client");
    let nonsense = format!("{body}x&client_id=tv");
    world.call_with("/token", &[], &nonsense).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn codes_cannot_be_tried_out() {
    let world = World::new().await;
    let begun = begin(&world).await;
    let mut browser = world.browser();
    for _ in 0..5 {
        let page = typed(&mut browser, "BBBB-BBBB").await;
        assert_eq!(page.status, 400);
    }
    let page = typed(&mut browser, begun["user_code"].as_str().unwrap()).await;
    assert_eq!((page.status, page.field("retry-after")), (429, Some("10")), "not even the right one now");
    assert!(page.text().contains("wait <bdi>10\u{a0}seconds</bdi>"), "{}", page.text());
    world.server.clock.advance(Duration::from_secs(10));
    let page = typed(&mut browser, begun["user_code"].as_str().unwrap()).await;
    assert_eq!(page.status, 200);
}

#[tokio::test]
async fn an_approval_dies_with_the_account() {
    use store::users::{RevokeUser, UserRevocation};
    let world = World::new().await;
    let begun = begin(&world).await;
    let mut browser = world.browser();
    let page = typed(&mut browser, begun["user_code"].as_str().unwrap()).await;
    browser.submit(&page.form("/device/decision"), &[("decision", "allow")]).await;
    world.server.clock.advance(Duration::from_secs(1));
    let now = world.server.clock.now();
    let revocation = store::Revocation {
        tags: vec![],
        reason: "test",
        reach: store::RevocationReach::UntilDurable,
        until: now,
        occurrence: None,
    };
    let user_id = world.ada.id.clone();
    let end = RevokeUser {
        user_id,
        account_change: UserRevocation::Everything,
        revocation,
        deliver_until: None,
        now,
    };
    world.server.provider.store().write(end).await.unwrap();
    poll(&world, &begun).await.assert_error(400, "invalid_grant");
}
