//! Audit log: an entry for each kind of event, through the endpoints that cause it.

use std::time::Duration;

use idp::admin::Admin;
use idp::admin::audit::{AuditEntry, ListEntries};
use idp::{AuditEvents, Config};
use serde_json::Value;

use crate::{
    browser::Browser,
    wire::encode,
    world::{GOODBYE, PASSWORD, TestAuthorizationRequest, World, config, redemption},
};

impl World {
    fn admin(&self) -> Admin<'_> {
        Admin::new(&self.server.provider, "operator:grace")
    }

    /// Entries that match, failures included.
    async fn entries(&self, list: &ListEntries) -> Vec<AuditEntry> {
        self.server.provider.write_failures(true).await.unwrap();
        assert!(self.admin().verify_audit_log().await.unwrap().intact);
        self.admin().audit_log(list).await.unwrap().items
    }

    /// Entries after this number, as `actor action target`.
    async fn lines(&self, after: u64) -> Vec<String> {
        let all = self.entries(&ListEntries { after: Some(after), ..ListEntries::default() }).await;
        all.iter().map(|entry| format!("{} {} {}", entry.actor, entry.action, entry.target)).collect()
    }

    async fn of(&self, action: &str) -> Vec<AuditEntry> {
        self.entries(&ListEntries { action: Some(action.into()), ..ListEntries::default() }).await
    }

    async fn head(&self) -> u64 {
        self.entries(&ListEntries::default()).await.last().map_or(0, |entry| entry.seq)
    }
}

fn detail(entry: &AuditEntry) -> Value {
    serde_json::from_str(&entry.detail).unwrap()
}

/// Name of the user and of the client of an entry.
fn names(entry: &AuditEntry) -> (Option<&str>, Option<&str>) {
    (entry.user_name.as_deref(), entry.client_name.as_deref())
}

const BOTH: (Option<&str>, Option<&str>) = (Some("ada"), Some("The app"));

/// Tries to log in on the page of a client.
async fn try_login(browser: &mut Browser<'_>, name: &str, password: &str) -> u16 {
    let page = browser.get(&TestAuthorizationRequest::new("app").target()).await;
    browser.submit(&page.form("/login"), &[("username", name), ("password", password)]).await.status
}

#[tokio::test]
async fn a_login_its_consent_and_its_grant_are_entries_with_names() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app").scope("openid read")).await;
    assert_eq!(world.redeem("app", &code).await.status, 200);
    let entries = world.entries(&ListEntries::default()).await;
    let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["login.success", "consent.give", "grant.issue"]);
    assert!(entries.iter().all(|entry| names(entry) == BOTH), "{entries:?}");
    assert!(entries.iter().all(|entry| entry.user.as_deref() == Some("ada-id")), "{entries:?}");
    assert!(entries.iter().all(|entry| entry.client.as_deref() == Some("app")), "{entries:?}");
    let [login, consent, grant] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((login.actor.as_str(), &detail(login)["method"]), ("user:ada-id", &"pwd".into()));
    assert_eq!(detail(login)["address"], "0.0.0.0", "the test server sets no address");
    assert_eq!((consent.target.as_str(), &detail(consent)["scopes"]), ("client:app", &"openid read".into()));
    assert_eq!((grant.actor.as_str(), grant.target.as_str()), ("client:app", "user:ada-id"));
    let sid = login.target.strip_prefix("session:").unwrap();
    assert_eq!(
        (&detail(grant)["grant"], &detail(grant)["session"]),
        (&"authorization_code".into(), &sid.into())
    );
    assert!(!entries.iter().any(|entry| entry.detail.contains(&code)), "no secret");

    // The same person in the same browser: the session continues.
    world.server.clock.advance(Duration::from_secs(1));
    let again = TestAuthorizationRequest::new("app").scope("openid read").with("prompt", "login");
    world.code(&mut browser, &again).await;
    let second = &world.of("login.success").await[1];
    assert_eq!((&second.target, &detail(second)["continues_session"]), (&login.target, &true.into()));
}

#[tokio::test]
async fn another_user_in_the_same_browser_ends_the_session_of_the_first() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let before = world.head().await;
    world.server.clock.advance(Duration::from_secs(1));
    let page = browser.get(&TestAuthorizationRequest::new("app").with("prompt", "login").target()).await;
    browser.submit(&page.form("/login"), &[("username", "bob"), ("password", PASSWORD)]).await;
    let entries = world.entries(&ListEntries { after: Some(before), ..ListEntries::default() }).await;
    let [end, login] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(
        (end.action.as_str(), end.actor.as_str(), names(end).0),
        ("session.end", "user:bob-id", Some("ada"))
    );
    assert_eq!((login.action.as_str(), names(login).0), ("login.success", Some("bob")));
    assert_ne!(end.target, login.target);
}

#[tokio::test]
async fn failed_logins_are_counted_and_what_was_typed_is_not_written() {
    let world = World::new().await;
    let mut browser = world.browser();
    // Users type passwords into the field for the name.
    for name in ["correct-horse-battery", "Tr0ub4dor&3", "correct-horse-battery"] {
        assert_eq!(try_login(&mut browser, name, "a secret typed in vain").await, 403);
    }
    for _ in 0..3 {
        assert_eq!(try_login(&mut browser, "ADA", "wrong").await, 403);
    }
    let failures = world.of("login.failure").await;
    let [unknown, wrong] = &failures[..] else { panic!("{failures:?}") };
    let unknown = if unknown.user.is_none() { unknown } else { wrong };
    let wrong = failures.iter().find(|entry| entry.user.is_some()).unwrap();
    assert_eq!((unknown.actor.as_str(), unknown.target.as_str()), ("anonymous", "network:0.0.0.0/32"));
    assert_eq!((&detail(unknown)["reason"], &detail(unknown)["count"]), (&"unknown_name".into(), &3.into()));
    assert_eq!((wrong.target.as_str(), names(wrong)), ("user:ada-id", BOTH));
    assert_eq!((&detail(wrong)["reason"], &detail(wrong)["count"]), (&"wrong_password".into(), &3.into()));
    let text = format!("{:?}", world.entries(&ListEntries::default()).await);
    for typed in ["horse", "Tr0ub4dor", "vain", "wrong\""] {
        assert!(!text.contains(typed), "{typed}: {text}");
    }

    // Two more lock the account; then nothing is verified until the lock ends.
    for _ in 0..2 {
        assert_eq!(try_login(&mut browser, "ada", "wrong").await, 403);
    }
    assert_eq!(try_login(&mut browser, "ada", PASSWORD).await, 429);
    let locks = world.of("login.lock").await;
    assert_eq!(locks.len(), 1);
    assert_eq!(
        (locks[0].target.as_str(), &detail(&locks[0])["reason"]),
        ("user:ada-id", &"account_locked".into())
    );
    let refused = world.of("login.failure").await;
    assert!(refused.iter().any(|entry| detail(entry)["reason"] == "account_locked"), "{refused:?}");
    world.server.clock.advance(Duration::from_secs(11));
    assert_eq!(try_login(&mut browser, "ada", PASSWORD).await, 200, "the consent page");
    let lifted = world.of("login.unlock").await;
    assert_eq!((names(&lifted[0]), &detail(&lifted[0])["failures"]), (BOTH, &5.into()));

    world.admin().disable_user("bob-id").await.unwrap();
    assert_eq!(try_login(&mut world.browser(), "bob", PASSWORD).await, 403);
    let refused = world.of("login.failure").await;
    let disabled = refused.iter().find(|entry| detail(entry)["reason"] == "account_disabled").unwrap();
    assert_eq!(names(disabled).0, Some("bob"));
}

#[tokio::test]
async fn refreshes_are_written_if_asked_and_replays_always() {
    for refreshes in [false, true] {
        let events = AuditEvents { refreshes, ..AuditEvents::default() };
        let world = World::with(|issuer| Config { audit: events, ..config(issuer) }).await;
        let first = world.tokens("app", "openid").await;
        let before = world.head().await;
        let refresh = |token: &Value| {
            format!("grant_type=refresh_token&refresh_token={}", token["refresh_token"].as_str().unwrap())
        };
        let next = world.call("/token", "app", &refresh(&first)).await;
        assert_eq!(next.status, 200);
        let written: &[&str] = if refreshes { &["client:app grant.refresh user:ada-id"] } else { &[] };
        assert_eq!(world.lines(before).await, written);
        let before = world.head().await;
        for _ in 0..5 {
            world.call("/token", "app", &refresh(&first)).await.assert_error(400, "invalid_grant");
        }
        let lines = world.lines(before).await;
        assert_eq!(lines, ["client:app grant.replay user:ada-id", "client:app grant.refuse client:app"]);
        let replay = &world.of("grant.replay").await[0];
        assert_eq!((names(replay), &detail(replay)["grant"]), (BOTH, &"refresh_token".into()));
        let refused = &world.of("grant.refuse").await[0];
        assert_eq!(
            (&detail(refused)["reason"], &detail(refused)["count"]),
            (&"redeemed twice".into(), &5.into())
        );
    }
}

#[tokio::test]
async fn codes_that_are_used_twice_and_grants_that_are_refused_are_entries() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    world.call("/token", "other", &redemption(&code)).await.assert_error(400, "invalid_grant");
    world.redeem("app", &code).await;
    let before = world.head().await;
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
    assert_eq!(world.lines(before).await[0], "client:app grant.replay user:ada-id");
    let list = ListEntries {
        client: Some("other".into()),
        action: Some("grant.refuse".into()),
        ..ListEntries::default()
    };
    let refused = world.entries(&list).await;
    assert_eq!((refused.len(), names(&refused[0]).1), (1, Some("The other")));
    assert_eq!(detail(&refused[0])["reason"], "code of another client");
}

#[tokio::test]
async fn the_password_grant_and_the_clients_own_tokens_have_entries() {
    let all = AuditEvents { client_credentials: true, ..AuditEvents::default() };
    let world = World::with(|issuer| Config { audit: all, ..config(issuer) }).await;
    let body = |password: &str| {
        format!("grant_type=password&username=ada&scope=openid&password={}", encode(password))
    };
    for client in ["legacy", "legacy-opaque", "once"] {
        let before = world.head().await;
        assert_eq!(world.call("/token", client, &body(PASSWORD)).await.status, 200);
        assert_eq!(world.lines(before).await, [format!("client:{client} grant.issue user:ada-id")]);
        let issued = world.of("grant.issue").await.pop().unwrap();
        assert_eq!((names(&issued).0, &detail(&issued)["grant"]), (Some("ada"), &"password".into()));
    }
    let before = world.head().await;
    world.call("/token", "legacy", &body("wrong")).await.assert_error(400, "invalid_grant");
    assert_eq!(
        world.lines(before).await,
        ["anonymous login.failure user:ada-id"],
        "and not a refused grant too"
    );
    let before = world.head().await;
    assert_eq!(world.call("/token", "gateway", "grant_type=client_credentials").await.status, 200);
    assert_eq!(world.lines(before).await, ["client:gateway grant.issue client:gateway"]);

    let world = World::new().await;
    assert_eq!(world.call("/token", "gateway", "grant_type=client_credentials").await.status, 200);
    assert_eq!(world.lines(0).await, [""; 0], "not by default");
}

#[tokio::test]
async fn devices_are_approved_denied_and_granted() {
    let world = World::new().await;
    let mut browser = world.browser();
    for (decision, action) in [("deny", "device.deny"), ("allow", "device.approve")] {
        let begun = world.call_with("/device_authorization", &[], "client_id=tv&scope=openid").await.json();
        let page = browser.get("/device").await;
        let code = ("user_code", begun["user_code"].as_str().unwrap());
        let mut page = browser.submit(&page.form("/device"), &[code]).await;
        if page.text().contains("name=\"password\"") {
            page = browser.submit(&page.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
        }
        let before = world.head().await;
        browser.submit(&page.form("/device/decision"), &[("decision", decision)]).await;
        assert_eq!(world.lines(before).await, [format!("user:ada-id {action} client:tv")]);
        world.server.clock.advance(Duration::from_secs(10));
        let body = format!(
            "grant_type={}&client_id=tv&device_code={}",
            encode("urn:ietf:params:oauth:grant-type:device_code"),
            begun["device_code"].as_str().unwrap()
        );
        let answer = world.call_with("/token", &[], &body).await;
        if decision == "allow" {
            assert_eq!(answer.status, 200);
            assert_eq!(world.lines(before + 1).await, ["client:tv grant.issue user:ada-id"]);
            for _ in 0..2 {
                world.server.clock.advance(Duration::from_secs(10));
                world.call_with("/token", &[], &body).await.assert_error(400, "invalid_grant");
            }
            let lines = world.lines(before + 2).await;
            assert_eq!(lines, ["client:tv grant.replay user:ada-id", "client:tv grant.refuse client:tv"]);
        }
    }
}

#[tokio::test]
async fn what_users_end_themselves_has_their_name() {
    let world = World::new().await;
    let mut browser = world.browser();
    let page = browser.get(&TestAuthorizationRequest::new("app").target()).await;
    let page = browser.submit(&page.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
    browser.submit(&page.form("/consent"), &[("decision", "deny")]).await;
    let denied = &world.of("consent.deny").await[0];
    assert_eq!((names(denied), denied.target.as_str()), (BOTH, "client:app"));

    let ask = TestAuthorizationRequest::new("app").scope("openid offline_access").with("prompt", "consent");
    let code = world.code(&mut browser, &ask).await;
    let tokens = world.redeem("app", &code).await.json();
    let press = async |browser: &mut Browser<'_>, form: &str| {
        let page = browser.get("/account").await;
        browser.submit(&page.form(form), &[]).await.location().to_owned()
    };
    let before = world.head().await;
    press(&mut browser, "/account/revoke").await;
    press(&mut browser, "/account/withdraw").await;
    let ended = world.entries(&ListEntries { after: Some(before), ..ListEntries::default() }).await;
    assert_eq!(
        ended.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(),
        ["family.revoke", "consent.withdraw"]
    );
    assert_eq!((names(&ended[0]).0, names(&ended[1])), (Some("ada"), BOTH));

    let form = browser.get("/account").await.form("/account/password");
    let new = "another winter in the dunes";
    browser.submit(&form, &[("current", PASSWORD), ("new", new), ("again", new)]).await;
    let changed = &world.of("user.password").await[0];
    assert_eq!((changed.actor.as_str(), names(changed).0), ("user:ada-id", Some("ada")));
    assert!(!changed.detail.contains("winter"));

    let before = world.head().await;
    press(&mut browser, "/account/logout").await;
    let end = &world.of("session.end").await[0];
    assert_eq!(
        (end.seq, names(end), &detail(end)["reason"]),
        (before + 1, (Some("ada"), None), &"logout".into())
    );
    drop(tokens);
}

#[tokio::test]
async fn clients_that_log_out_and_revoke_have_entries() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    let before = world.head().await;
    let body = format!("token={}", tokens["refresh_token"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(world.call("/revoke", "app", &body).await.status, 200);
    }
    let revoked = world.entries(&ListEntries { after: Some(before), ..ListEntries::default() }).await;
    assert_eq!(revoked.len(), 1, "what is revoked already has no second entry");
    assert_eq!((revoked[0].action.as_str(), names(&revoked[0])), ("family.revoke", BOTH));
    let to = format!(
        "/logout?id_token_hint={}&post_logout_redirect_uri={}",
        tokens["id_token"].as_str().unwrap(),
        encode(GOODBYE)
    );
    browser.get(&to).await;
    let end = &world.of("session.end").await[0];
    assert_eq!((end.actor.as_str(), names(end)), ("user:ada-id", BOTH));
}

#[tokio::test]
async fn entries_keep_their_names_and_are_found_by_whatever_they_concern() {
    let world = World::new().await;
    let start = world.server.clock.now();
    world.tokens("app", "openid").await;
    world.server.clock.advance(Duration::from_hours(2));
    let (admin, list) = (world.admin(), ListEntries::default());
    let rename = serde_json::from_str(r#"{"name":"lovelace"}"#).unwrap();
    admin.change_user("ada-id", rename).await.unwrap();
    let of_user = |user: &str| ListEntries { user: Some(user.into()), ..ListEntries::default() };
    let by_name = world.entries(&of_user("lovelace")).await;
    assert_eq!(by_name.len(), 4);
    assert_eq!((names(&by_name[0]).0, by_name[3].action.as_str()), (Some("ada"), "user.change"));
    assert_eq!(names(&by_name[3]).0, Some("ada"), "the name before the change");
    assert!(matches!(admin.audit_log(&of_user("ada")).await, Err(idp::admin::AdminFault::NotFound { .. })));
    admin.delete_user("ada-id").await.unwrap();
    let deleted = world.entries(&of_user("ada-id")).await;
    assert_eq!((deleted.len(), names(&deleted[4]).0), (5, Some("lovelace")));

    let actions = async |list: ListEntries| -> Vec<String> {
        world.entries(&list).await.into_iter().map(|entry| entry.action).collect()
    };
    let recent = ListEntries { since: Some("1h".into()), ..list.clone() };
    assert_eq!(actions(recent.clone()).await, ["user.change", "user.delete"]);
    let noon = format!(
        "{}.000Z",
        start.plus(Duration::from_hours(1)).to_string().replace(' ', "T").trim_end_matches('Z')
    );
    let early = ListEntries { until: Some(noon.clone()), ..list.clone() };
    assert_eq!(actions(early).await, ["login.success", "consent.give", "grant.issue"]);
    let late = ListEntries { since: Some(noon), action: Some("user.delete".into()), ..list.clone() };
    assert_eq!(actions(late).await, ["user.delete"]);
    let client = ListEntries { client: Some("app".into()), ..list.clone() };
    assert_eq!(actions(client).await, ["login.success", "consent.give", "grant.issue"]);
    let operator = ListEntries { actor: Some("operator:grace".into()), ..list.clone() };
    assert_eq!(actions(operator).await, ["user.change", "user.delete"]);
    let page = admin
        .audit_log(&ListEntries { limit: Some(2), user: Some("ada-id".into()), ..list.clone() })
        .await
        .unwrap();
    assert_eq!((page.items.len(), page.next.as_deref()), (2, Some("2")));
    let bad =
        admin.audit_log(&ListEntries { since: Some("soon".into()), ..list }).await.unwrap_err().to_string();
    assert!(bad.contains("since") && bad.contains("RFC 3339") && bad.contains("2h"), "{bad}");
}
