//! Invitations and reset links: what their page shows and does.

use std::time::Duration;

use idp::admin::{Admin, AdminFault, links::NewLink, users::AddUser};

use crate::{
    browser::{Browser, Form},
    wire::{Answer, encode},
    world::{PASSWORD, TestAuthorizationRequest, World},
};

const OWN: &str = "seven quiet otters drum";

fn admin(world: &World) -> Admin<'_> {
    Admin::new(&world.server.provider, "operator:test")
}

/// A reset link of Ada.
async fn reset_link(world: &World) -> String {
    let link = admin(world).create_reset_link(&world.ada.id, &NewLink::default()).await.unwrap();
    link.url.unwrap().expose().to_owned()
}

async fn choose(browser: &mut Browser<'_>, form: &Form, new: &str, again: &str) -> Answer {
    browser.submit(form, &[("new", new), ("again", again)]).await
}

async fn by_password(world: &World, name: &str, password: &str) -> u16 {
    let body = format!("grant_type=password&username={name}&password={}&scope=openid", encode(password));
    world.call("/token", "legacy", &body).await.status
}

/// The page without what differs between two requests.
fn lasting(answer: &Answer) -> (u16, String) {
    (answer.status, answer.text().split("<dl class").next().unwrap().to_owned())
}

#[tokio::test]
async fn a_reset_link_sets_a_password_once_and_ends_everything_else() {
    let world = World::new().await;
    let mut elsewhere = world.browser();
    world.code(&mut elsewhere, &TestAuthorizationRequest::new("app")).await;
    let url = reset_link(&world).await;
    assert!(url.contains("/set-password?token="), "{url}");

    let mut ada = world.browser();
    for _ in 0..3 {
        let page = ada.get(&url).await;
        assert_eq!(page.status, 200, "reading it does not use it: {}", page.text());
        assert_eq!(page.field("referrer-policy"), Some("no-referrer"));
        assert_eq!(page.field("cache-control"), Some("no-store"));
        assert!(page.text().contains("ada"), "whose password it is");
    }
    let form = ada.get(&url).await.form("/set-password");
    assert_eq!(choose(&mut ada, &form, OWN, "other").await.status, 400);
    assert_eq!(choose(&mut ada, &form, "short", "short").await.status, 400);
    assert_eq!(by_password(&world, "ada", PASSWORD).await, 200, "nothing has changed so far");

    assert!(choose(&mut ada, &form, OWN, OWN).await.location().contains("/account"));
    assert_eq!(by_password(&world, "ada", PASSWORD).await, 400);
    assert_eq!(by_password(&world, "ada", OWN).await, 200);
    let page = elsewhere.get("/account").await;
    assert!(elsewhere.follow(page).await.text().contains("action=\"/login\""), "the session has ended");
    assert!(!ada.cookies.keys().any(|name| name.ends_with("_session")), "a link is no login");
    assert_eq!(choose(&mut ada, &form, PASSWORD, PASSWORD).await.status, 400);
    assert_eq!(by_password(&world, "ada", OWN).await, 200);
    let log = world.server.provider.store().audit_log(0).await.unwrap();
    let entry = &log.iter().rfind(|record| record.entry.action == "user.password").unwrap().entry;
    assert_eq!(entry.actor, "user:ada-id");
}

#[tokio::test]
async fn a_link_that_does_not_work_says_always_the_same() {
    let world = World::new().await;
    let mut browser = world.browser();
    let replaced = reset_link(&world).await;
    let expired = reset_link(&world).await;
    // Only the last bits of the last character count, so the first one is changed.
    let (before, token) = expired.rsplit_once('=').unwrap();
    let first = if token.starts_with('A') { "B" } else { "A" };
    let wrong = format!("{before}={first}{}", &token[1..]);
    let first = lasting(&browser.get(&replaced).await);
    assert_eq!(first.0, 400);
    assert!(first.1.contains("This link does not work"), "{}", first.1);
    assert_eq!(lasting(&browser.get(&wrong).await), first);
    assert_eq!(lasting(&browser.get("/set-password").await), first);
    world.server.clock.advance(Duration::from_hours(1));
    assert_eq!(lasting(&browser.get(&expired).await), first);
    let disabled = reset_link(&world).await;
    admin(&world).disable_user(&world.ada.id).await.unwrap();
    assert_eq!(lasting(&browser.get(&disabled).await), first, "of a disabled account");
}

#[tokio::test]
async fn guesses_are_slowed_down_and_a_right_link_still_works() {
    let world = World::new().await;
    let mut browser = world.browser();
    let url = reset_link(&world).await;
    let mut statuses = Vec::new();
    for n in 0..8 {
        let answer = browser.get(&format!("/set-password?token=AAAAAAAAAAAAAAAAAAAA{n}A")).await;
        assert_eq!(answer.status == 429, answer.field("retry-after").is_some());
        statuses.push(answer.status);
    }
    assert!(statuses.starts_with(&[400]) && statuses.ends_with(&[429]), "{statuses:?}");
    assert_eq!(browser.get(&url).await.status, 200);
}

#[tokio::test]
async fn an_invitation_is_for_an_account_without_a_password() {
    let world = World::new().await;
    let refused = admin(&world).invite_user(&world.ada.id, &NewLink::default()).await;
    assert!(matches!(refused, Err(AdminFault::Conflict(_))), "{refused:?}");
    let eve = admin(&world).add_user(AddUser { name: "eve".into(), ..AddUser::default() }).await.unwrap();
    for lifetime in [0, 59, 60 * 60 * 24 * 31, u64::MAX] {
        let new = NewLink { expires_in: Some(lifetime), ..NewLink::default() };
        assert!(matches!(admin(&world).invite_user(&eve.user.id, &new).await, Err(AdminFault::Refused(_))));
    }
    let link = admin(&world).invite_user(&eve.user.id, &NewLink::default()).await.unwrap();
    world.server.clock.advance(Duration::from_hours(24) - Duration::from_secs(1));
    let mut browser = world.browser();
    browser.language = Some("de");
    let url = link.url.unwrap();
    let page = browser.get(url.expose()).await;
    assert!(page.text().contains("Willkommen"), "{}", page.text());
    assert_eq!(choose(&mut browser, &page.form("/set-password"), OWN, OWN).await.status, 303);
    assert_eq!(by_password(&world, "eve", OWN).await, 200);
    let entries = world.server.provider.store().audit_log(0).await.unwrap();
    let secret = url.expose().rsplit('=').next().unwrap();
    assert!(entries.iter().any(|recorded| recorded.entry.action == "user.invite"));
    assert!(entries.iter().all(|recorded| !recorded.entry.detail.contains(secret)));
}

#[tokio::test]
async fn another_site_cannot_submit_the_form() {
    let world = World::new().await;
    let url = reset_link(&world).await;
    let token = url.rsplit('=').next().unwrap();
    let mut browser = world.browser();
    let fields = [("token", token), ("new", OWN), ("again", OWN)];
    assert_eq!(browser.post("/set-password", &fields).await.status, 403);
    assert_eq!(browser.get(&url).await.status, 200);
}
