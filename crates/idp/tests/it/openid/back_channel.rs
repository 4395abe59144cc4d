//! Conformance plan "Back-Channel OP".

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use auth::algorithm::AlgorithmSet;
use aws_lc_rs::rand::SystemRandom;
use idp::{ClientConfig, OutboundClient, PendingResponse, PostRequest};
use serde_json::{Value, json};
use store::deliveries::QueueDelivery;

use crate::{
    browser::query,
    server::{Server, TestClock, decode_unverified},
    verify::keys_of,
    wire::encode,
    world::{GOODBYE, TestAuthorizationRequest, World, app, config},
};

#[tokio::test]
async fn oidcc_backchannel_rp_initiated_logout_discovery_endpoint_verification() {
    let world = World::new().await;
    let document = world.server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(document["backchannel_logout_supported"], true);
    assert_eq!(document["backchannel_logout_session_supported"], true);
}

#[tokio::test]
async fn oidcc_backchannel_rp_initiated_logout() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    let hint = tokens["id_token"].as_str().unwrap();
    let (_, id_token) = decode_unverified(hint);
    // Another client of the same session without a logout URI.
    world.code(&mut browser, &TestAuthorizationRequest::new("other")).await;
    let target = format!("/logout?id_token_hint={hint}&post_logout_redirect_uri={}", encode(GOODBYE));
    assert_eq!(browser.get(&target).await.location(), GOODBYE, "nobody waits for the clients");

    let heard = world.posts_received(1).await;
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].0, "https://app.example/logged-out");
    let token = query(&format!("?{}", heard[0].1))["logout_token"].clone();
    let (header, claims) = decode_unverified(&token);
    assert_eq!((&header["typ"], &header["alg"]), (&json!("logout+jwt"), &json!("RS256")));
    let keys = keys_of(&world.server).await;
    assert!(auth::token::jwt::parse(token.as_bytes()).unwrap().signed(AlgorithmSet::ALL, &keys).is_ok());
    assert_eq!(claims["iss"], world.server.issuer.as_str());
    assert_eq!(claims["aud"], "app");
    assert_eq!((&claims["sub"], &claims["sid"]), (&id_token["sub"], &id_token["sid"]));
    assert_eq!(claims["events"], json!({ "http://schemas.openid.net/event/backchannel-logout": {} }));
    assert!(claims["jti"].is_string() && claims["iat"].is_u64() && claims["exp"].is_u64());
    assert_eq!(claims.get("nonce"), None::<&Value>, "which would make it an ID token");
    // Everything granted in the session is revoked too.
    assert!(!world.is_active(tokens["access_token"].as_str().unwrap()).await);
    let refresh =
        format!("grant_type=refresh_token&refresh_token={}", tokens["refresh_token"].as_str().unwrap());
    world.call("/token", "app", &refresh).await.assert_error(400, "invalid_grant");
    // A logout token is not accepted as an ID token.
    let target = format!("/logout?id_token_hint={token}");
    assert_eq!(browser.get(&target).await.status, 400);
}

#[tokio::test]
async fn a_client_that_does_not_answer_is_told_again_and_delays_nobody() {
    let world = World::new().await;
    *world.told.1.lock().unwrap() = 0;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    let hint = tokens["id_token"].as_str().unwrap();
    let page = browser.get(&format!("/logout?id_token_hint={hint}")).await;
    assert!(page.text().contains("You are signed out"));
    assert_eq!(world.posts_received(1).await.len(), 1);
    *world.told.1.lock().unwrap() = 503;
    world.server.clock.advance(Duration::from_secs(11));
    assert_eq!(world.posts_received(2).await.len(), 2, "tried again");
    *world.told.1.lock().unwrap() = 204;
    world.server.clock.advance(Duration::from_secs(21));
    assert_eq!(world.posts_received(3).await.len(), 3);
    world.server.clock.advance(Duration::from_hours(1));
    assert_eq!(world.posts_received(4).await.len(), 3, "heard, and not told again");
}

const ANSWERING: &str = "https://app.example/logged-out";
const SILENT: &str = "https://silent.example/logged-out";

/// URLs of the requests that clients received. All of them answer, except the silent one.
#[derive(Clone, Default)]
struct OneIsSilent(Arc<Mutex<Vec<String>>>);

impl OneIsSilent {
    /// Number of requests to a URL.
    fn received(&self, url: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|received| *received == url).count()
    }
}

impl OutboundClient for OneIsSilent {
    fn post(&self, post: PostRequest) -> PendingResponse {
        let is_silent = post.url == SILENT;
        self.0.lock().unwrap().push(post.url);
        Box::pin(async move { if is_silent { std::future::pending().await } else { Ok(204) } })
    }
}

#[tokio::test]
async fn a_client_that_never_answers_delays_no_other() {
    let posts = OneIsSilent::default();
    let with_silent = |issuer: &str| {
        let mut config = config(issuer);
        let silent = ClientConfig { backchannel_logout_uri: Some(SILENT.into()), ..app("silent") };
        config.clients.push(silent);
        config
    };
    let clock = TestClock::new();
    let server = Box::pin(Server::of("", clock, with_silent, SystemRandom::new(), posts.clone())).await;
    let now = server.clock.now();
    for n in 0..40 {
        for client in ["app", "silent"] {
            let ended = QueueDelivery {
                id: format!("sid-{n:02}/{client}"),
                client_id: client.into(),
                user_id: "ada-id".into(),
                sid: format!("sid-{n:02}"),
                due_at: now,
                expires_at: now.plus(Duration::from_hours(1)),
            };
            server.provider.store().write(ended).await.unwrap();
        }
    }
    let maintained = tokio::spawn(idp::maintain(server.provider.clone()));
    let all_heard = async {
        while posts.received(ANSWERING) < 40 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(10), all_heard).await;
    maintained.abort();
    assert!(in_time.is_ok(), "{} of 40 logouts delivered", posts.received(ANSWERING));
    assert_eq!(posts.received(ANSWERING), 40, "each once");
    assert!((1..=16).contains(&posts.received(SILENT)), "{} to the silent one", posts.received(SILENT));
}

#[tokio::test]
async fn a_password_change_tells_the_clients_of_all_sessions() {
    let world = World::new().await;
    let mut browsers = [world.browser(), world.browser()];
    for browser in &mut browsers {
        world.code(browser, &TestAuthorizationRequest::new("app")).await;
    }
    let [browser, other] = &mut browsers;
    let page = browser.get("/account").await;
    let new = "a completely different sentence";
    let fields = [("current", crate::world::PASSWORD), ("new", new), ("again", new)];
    world.server.clock.advance(Duration::from_secs(1));
    let answer = browser.submit(&page.form("/account/password"), &fields).await;
    assert!(answer.location().ends_with("/account?done=password"), "{}", answer.text());
    let to = answer.location().to_owned();
    assert!(
        browser.get(&to).await.text().contains("Your password is changed."),
        "who did it stays logged in"
    );
    assert!(
        other.get("/account").await.text().contains("name=\"password\""),
        "the other browser is logged out"
    );
    assert_eq!(world.posts_received(2).await.len(), 2);
}
