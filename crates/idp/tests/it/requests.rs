//! Authorization requests that are not what they should be, and those that were pushed (RFC 9126).

use std::time::Duration;

use crate::{
    browser::query,
    wire::encode,
    world::{Ask, World},
};

#[tokio::test]
async fn duplicate_parameters_are_refused() {
    let world = World::new().await;
    let mut browser = world.browser();
    let twice = format!("{}&state=2", Ask::new("app").target());
    let page = browser.get(&twice).await;
    assert_eq!((page.status, page.field("location")), (400, None));
    let body = "grant_type=password&username=ada&username=bob&password=x";
    world.call("/token", "legacy", body).await.assert_error(400, "invalid_request");
}

#[tokio::test]
async fn an_unknown_client_is_sent_nowhere() {
    let world = World::new().await;
    let page = world.browser().get(&Ask::new("nobody").target()).await;
    assert_eq!((page.status, page.field("location")), (400, None));
    assert!(page.text().contains("unknown_client"));
}

#[tokio::test]
async fn request_uri_is_refused_unless_it_was_pushed() {
    let world = World::new().await;
    let mut browser = world.browser();
    let foreign = Ask::new("app").with("request_uri", "https://app.example/request.jwt");
    let answer = browser.get(&foreign.target()).await;
    assert_eq!(query(answer.location())["error"], "request_uri_not_supported");
    let made_up = Ask::new("app").with("request_uri", "urn:ietf:params:oauth:request_uri:made-up");
    assert_eq!(browser.get(&made_up.target()).await.status, 400);
}

#[tokio::test]
async fn a_pushed_request_is_its_clients_and_counts_once() {
    let world = World::new().await;
    let pushed = world.call("/par", "pushing", &Ask::new("pushing").query()).await;
    assert_eq!((pushed.status, pushed.field("cache-control")), (201, Some("no-store")), "{}", pushed.text());
    let pushed = pushed.json();
    assert_eq!(pushed["expires_in"], 300);
    let uri = encode(pushed["request_uri"].as_str().unwrap());
    let mut browser = world.browser();
    let plain = browser.get(&Ask::new("pushing").target()).await;
    assert_eq!(query(plain.location())["error"], "invalid_request", "this client must push");
    let stolen = browser.get(&format!("/authorize?client_id=app&request_uri={uri}")).await;
    assert_eq!(stolen.status, 400);
    // what comes along with the reference does not count
    let target = format!("/authorize?client_id=pushing&request_uri={uri}&scope=admin&state=another");
    let answer = browser.get(&target).await;
    let fields = world.walk(&mut browser, answer, &Ask::new("pushing")).await;
    assert_eq!(fields["state"], "the-state");
    assert_eq!(world.redeem("pushing", &fields["code"]).await.status, 200);
    assert_eq!(browser.get(&target).await.status, 400, "answered");
    for bad in ["&request_uri=x", "&redirect_uri=https%3A%2F%2Fevil.example"] {
        let ask = Ask::new("pushing").with("redirect_uri", "").query();
        world.call("/par", "pushing", &format!("{ask}{bad}")).await.assert_error(400, bad_code(bad));
    }
}

fn bad_code(of: &str) -> &'static str {
    if of.contains("request_uri") { "request_uri_not_supported" } else { "invalid_request" }
}

#[tokio::test]
async fn a_pushed_request_expires() {
    let world = World::new().await;
    let pushed = world.call("/par", "pushing", &Ask::new("pushing").query()).await.json();
    let uri = encode(pushed["request_uri"].as_str().unwrap());
    world.server.clock.advance(Duration::from_mins(5));
    let page = world.browser().get(&format!("/authorize?client_id=pushing&request_uri={uri}")).await;
    assert_eq!(page.status, 400);
}

#[tokio::test]
async fn who_asks_for_no_scope_is_asked_about_all_the_same() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &Ask::new("trusted")).await;
    let bare = Ask::new("app").scope("");
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
