//! Malformed authorization requests, and pushed ones (RFC 9126).

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::json;

use crate::{
    browser::query,
    wire::encode,
    world::{CALLBACK, TestAuthorizationRequest, World},
};

#[tokio::test]
async fn duplicate_parameters_are_refused() {
    let world = World::new().await;
    let mut browser = world.browser();
    let twice = format!("{}&state=2", TestAuthorizationRequest::new("app").target());
    let page = browser.get(&twice).await;
    assert_eq!((page.status, page.field("location")), (400, None));
    let body = "grant_type=password&username=ada&username=bob&password=x";
    world.call("/token", "legacy", body).await.assert_error(400, "invalid_request");
}

#[tokio::test]
async fn an_unknown_client_is_sent_nowhere() {
    let world = World::new().await;
    let page = world.browser().get(&TestAuthorizationRequest::new("nobody").target()).await;
    assert_eq!((page.status, page.field("location")), (400, None));
    assert!(page.text().contains("unknown_client"));
}

#[tokio::test]
async fn request_uri_is_refused_unless_it_was_pushed() {
    let world = World::new().await;
    let mut browser = world.browser();
    let foreign = TestAuthorizationRequest::new("app").with("request_uri", "https://app.example/request.jwt");
    let answer = browser.get(&foreign.target()).await;
    assert_eq!(query(answer.location())["error"], "request_uri_not_supported");
    let made_up =
        TestAuthorizationRequest::new("app").with("request_uri", "urn:ietf:params:oauth:request_uri:made-up");
    assert_eq!(browser.get(&made_up.target()).await.status, 400);
}

/// A request object is refused, and the error goes to the redirect URI and in the mode that it
/// names.
#[tokio::test]
async fn a_refused_request_object_says_how_it_is_refused() {
    let world = World::new().await;
    let object = |claims: serde_json::Value| {
        let part = |value: &serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.", part(&json!({ "alg": "none" })), part(&claims))
    };
    let bare = || TestAuthorizationRequest::new("app").with("state", "").with("redirect_uri", "");
    let inside = json!({ "redirect_uri": CALLBACK, "state": "inside", "response_mode": "form_post" });
    // All parameters in the object, or only the mode.
    for ask in [
        bare().with("request", &object(inside.clone())),
        TestAuthorizationRequest::new("app")
            .with("state", "inside")
            .with("request", &object(json!({ "response_mode": "form_post" }))),
    ] {
        let page = world.browser().get(&ask.target()).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let fields = page.form(CALLBACK).hidden;
        let field = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!((field("error"), field("state")), (Some("request_not_supported"), Some("inside")));
    }
    // Parameters of the request itself have precedence; an unknown mode is ignored.
    for (mode, object) in
        [("query", object(inside.clone())), ("", object(json!({ "response_mode": "smoke" })))]
    {
        let ask = TestAuthorizationRequest::new("app").with("response_mode", mode).with("request", &object);
        let answer = world.browser().get(&ask.target()).await;
        let fields = query(answer.location());
        assert_eq!((&*fields["error"], &*fields["state"]), ("request_not_supported", "the-state"));
    }
    for nonsense in ["x", "a.b.c", "..", &"a".repeat(5000)] {
        let answer = world
            .browser()
            .get(&TestAuthorizationRequest::new("app").with("request", nonsense).target())
            .await;
        assert_eq!(query(answer.location())["error"], "request_not_supported", "{nonsense}");
    }
    // An object cannot redirect to an unregistered URI.
    let elsewhere = json!({ "redirect_uri": "https://evil.example/cb", "response_mode": "form_post" });
    let page = world.browser().get(&bare().with("request", &object(elsewhere)).target()).await;
    assert!(page.status == 400 && !page.text().contains("evil.example"), "{}", page.text());
}

#[tokio::test]
async fn a_pushed_request_is_its_clients_and_counts_once() {
    let world = World::new().await;
    let pushed = world.call("/par", "pushing", &TestAuthorizationRequest::new("pushing").query()).await;
    assert_eq!((pushed.status, pushed.field("cache-control")), (201, Some("no-store")), "{}", pushed.text());
    let pushed = pushed.json();
    assert_eq!(pushed["expires_in"], 300);
    let uri = encode(pushed["request_uri"].as_str().unwrap());
    let mut browser = world.browser();
    let plain = browser.get(&TestAuthorizationRequest::new("pushing").target()).await;
    assert_eq!(query(plain.location())["error"], "invalid_request", "this client must push");
    let stolen = browser.get(&format!("/authorize?client_id=app&request_uri={uri}")).await;
    assert_eq!(stolen.status, 400);
    // Parameters sent beside the reference are ignored.
    let target = format!("/authorize?client_id=pushing&request_uri={uri}&scope=admin&state=another");
    let answer = browser.get(&target).await;
    let fields = world.walk(&mut browser, answer, &TestAuthorizationRequest::new("pushing")).await;
    assert_eq!(fields["state"], "the-state");
    assert_eq!(world.redeem("pushing", &fields["code"]).await.status, 200);
    assert_eq!(browser.get(&target).await.status, 400, "answered");
    for bad in ["&request_uri=x", "&redirect_uri=https%3A%2F%2Fevil.example"] {
        let ask = TestAuthorizationRequest::new("pushing").with("redirect_uri", "").query();
        world.call("/par", "pushing", &format!("{ask}{bad}")).await.assert_error(400, bad_code(bad));
    }
}

fn bad_code(of: &str) -> &'static str {
    if of.contains("request_uri") { "request_uri_not_supported" } else { "invalid_request" }
}

#[tokio::test]
async fn a_pushed_request_expires() {
    let world = World::new().await;
    let pushed =
        world.call("/par", "pushing", &TestAuthorizationRequest::new("pushing").query()).await.json();
    let uri = encode(pushed["request_uri"].as_str().unwrap());
    world.server.clock.advance(Duration::from_mins(5));
    let page = world.browser().get(&format!("/authorize?client_id=pushing&request_uri={uri}")).await;
    assert_eq!(page.status, 400);
}

#[tokio::test]
async fn who_asks_for_no_scope_is_asked_about_all_the_same() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &TestAuthorizationRequest::new("trusted")).await;
    let bare = TestAuthorizationRequest::new("app").scope("");
    let silent = bare.clone().with("prompt", "none");
    let refused = browser.get(&silent.target()).await;
    assert_eq!(query(refused.location())["error"], "consent_required");
    let page = browser.get(&bare.target()).await;
    let denied = browser.submit(&page.form("/consent"), &[("decision", "deny")]).await;
    assert_eq!(query(denied.location())["error"], "access_denied");
    let code = world.code(&mut browser, &bare).await;
    assert_eq!(world.redeem("app", &code).await.status, 200);
    assert!(browser.get(&silent.target()).await.location().contains("code="), "once is enough");
    let account = browser.get("/account").await;
    assert!(account.text().contains("The app"), "and can be withdrawn");
}
