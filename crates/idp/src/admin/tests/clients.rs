//! Tests of client and key administration.

use std::time::Duration;

use serde_json::{Value, json};

use super::{API, TestProvider, refused_paths};
use crate::{
    admin::{
        AdminFault, UtcTime,
        clients::{AddClient, ClientChanged, ListClients, ProofView, ReplaceClient},
        keys::{KeyStage, RotateKey},
    },
    client::config::ClientConfig,
    keys::LEAD,
};

#[expect(clippy::needless_pass_by_value, reason = "it is written where it is used")]
fn settings(more: Value) -> ClientConfig {
    let mut all = json!({ "grants": ["client_credentials"], "scopes": ["orders"], "audiences": [API] });
    all.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

async fn add(bench: &TestProvider, id: &str, more: Value) -> Result<ClientChanged, AdminFault> {
    bench.admin().add_client(AddClient { id: Some(id.into()), settings: settings(more) }).await
}

async fn status(bench: &TestProvider, id: &str, secret: &str) -> u16 {
    bench.form("/token", id, secret, "grant_type=client_credentials").await.status
}

#[tokio::test]
async fn a_client_gets_a_secret_that_is_shown_once() {
    let bench = TestProvider::start().await;
    let added = add(&bench, "shop", json!({ "name": "Shop" })).await.unwrap();
    let secret = added.secret.unwrap();
    assert_eq!(status(&bench, "shop", secret.expose()).await, 200);
    let shown = bench.admin().client("shop").await.unwrap();
    assert_eq!((shown.version, shown.proof, shown.configured), (Some(1), ProofView::Secret, false));
    let text = serde_json::to_string(&shown).unwrap();
    assert!(!text.contains("secrets") && !text.contains("sha256") && text.contains("Shop"), "{text}");
    let stored = bench.provider.store().client("shop").await.unwrap().unwrap().settings;
    assert!(stored.contains("sha256") && !stored.contains(secret.expose()), "{stored}");

    assert!(matches!(add(&bench, "shop", json!({})).await, Err(AdminFault::Taken(_))));
    assert!(matches!(add(&bench, "robot", json!({})).await, Err(AdminFault::Configured(_))));
    let drawn = AddClient { id: None, settings: settings(json!({})) };
    assert_eq!(bench.admin().add_client(drawn).await.unwrap().client.id.len(), 22);
    let public = json!({ "grants": ["device_code"], "public": true });
    let public = add(&bench, "phone", public).await.unwrap();
    assert_eq!((public.secret, public.client.proof), (None, ProofView::Nothing));
}

#[tokio::test]
async fn a_client_that_could_not_be_is_refused_with_every_fault() {
    let bench = TestProvider::start().await;
    let faults = refused_paths(add(&bench, "a b", json!({ "grants": [], "audiences": ["nobody"] })).await);
    assert_eq!(faults, ["id", "settings.grants", "settings.audiences[0]"]);
    let own = json!({ "secrets": [{ "plain": super::SECRET }] });
    assert_eq!(refused_paths(add(&bench, "shop", own).await), ["settings.secrets"]);
    let user = bench.user("ada").await;
    assert_eq!(refused_paths(add(&bench, &user, json!({})).await), ["id"], "nobody shares a subject");
}

#[tokio::test]
async fn whose_tokens_a_client_introspects_is_stored_as_the_former_version_stored_it() {
    let bench = TestProvider::start().await;
    for (word, stored) in [("all", Some(json!(true))), ("own", None), ("audience", Some(json!("audience")))] {
        let added = add(&bench, word, json!({ "introspects": word })).await.unwrap();
        assert_eq!(status(&bench, word, added.secret.unwrap().expose()).await, 200);
        let settings = bench.provider.store().client(word).await.unwrap().unwrap().settings;
        let settings: Value = serde_json::from_str(&settings).unwrap();
        assert_eq!(settings.get("introspects"), stored.as_ref(), "{settings}");
        let shown = serde_json::to_value(bench.admin().client(word).await.unwrap()).unwrap();
        let expected = Some(json!(word)).filter(|_| word != "own");
        assert_eq!(shown["settings"].get("introspects"), expected.as_ref(), "{shown}");
    }
}

#[tokio::test]
async fn addresses_of_before_that_are_patterns_are_left_out_and_named() {
    let bench = TestProvider::start().await;
    let addresses = json!(["https://shop.example/*", "https://shop.example/cb"]);
    let code = json!({ "grants": ["authorization_code"], "public": true, "redirect_uris": addresses });
    assert_eq!(refused_paths(add(&bench, "shop", code.clone()).await), ["settings.redirect_uris[0]"]);
    let (store, clients) = (bench.provider.store(), bench.provider.clients());
    let now = bench.provider.now();
    store
        .write(store::clients::AddClient { id: "old".into(), settings: code.to_string(), now })
        .await
        .unwrap();
    let found = clients.find(store, "old").await.unwrap().expect("it goes on with its other address");
    assert_eq!(found.redirect_uris.len(), 1);
    let named = clients.ignored_settings(store).await.unwrap();
    let expected =
        r#"client "old": redirect_uris[0]: ignored "https://shop.example/*": redirect URI is a pattern"#;
    assert!(named.len() == 1 && named[0].starts_with(expected), "{named:?}");
    let shown = bench.admin().client("old").await.unwrap();
    assert_eq!(shown.faults.len(), 1, "and an administrator sees it");
}

#[tokio::test]
async fn settings_are_replaced_from_the_version_that_was_seen() {
    let bench = TestProvider::start().await;
    let (admin, secret) = (bench.admin(), add(&bench, "shop", json!({})).await.unwrap().secret.unwrap());
    let token = bench.form("/token", "shop", secret.expose(), "grant_type=client_credentials").await;
    let replace = |version, more| ReplaceClient { version, settings: settings(more) };
    let changed =
        admin.replace_client("shop", replace(1, json!({ "scopes": ["orders", "more"] }))).await.unwrap();
    assert_eq!((changed.client.version, changed.secret), (Some(2), None));
    assert_eq!(status(&bench, "shop", secret.expose()).await, 200, "the secret stays");
    assert!(bench.is_active(&token.text("access_token")).await, "what it holds goes on");
    let late = admin.replace_client("shop", replace(1, json!({}))).await;
    assert!(
        matches!(&late, Err(AdminFault::Conflict(text)) if text.contains("version 2, not 1")),
        "{late:?}"
    );
    assert_eq!(
        refused_paths(admin.replace_client("shop", replace(2, json!({ "grants": [] }))).await),
        ["settings.grants"]
    );
    assert!(matches!(
        admin.replace_client("no", replace(1, json!({}))).await,
        Err(AdminFault::NotFound { .. })
    ));
    assert!(matches!(
        admin.replace_client("robot", replace(1, json!({}))).await,
        Err(AdminFault::Configured(_))
    ));

    let public = replace(2, json!({ "grants": ["device_code"], "public": true }));
    assert_eq!(admin.replace_client("shop", public).await.unwrap().client.proof, ProofView::Nothing);
    let back = admin.replace_client("shop", replace(3, json!({}))).await.unwrap();
    let new = back.secret.unwrap();
    assert_eq!(status(&bench, "shop", secret.expose()).await, 401, "a new secret, not the old one");
    assert_eq!(status(&bench, "shop", new.expose()).await, 200);
}

#[tokio::test]
async fn the_secret_before_counts_until_the_next_time() {
    let bench = TestProvider::start().await;
    let mut secrets = vec![add(&bench, "shop", json!({})).await.unwrap().secret.unwrap()];
    for _ in 0..2 {
        secrets.push(bench.admin().rotate_secret("shop").await.unwrap().secret.unwrap());
    }
    let mut statuses = Vec::new();
    for secret in &secrets {
        statuses.push(status(&bench, "shop", secret.expose()).await);
    }
    assert_eq!(statuses, [401, 200, 200]);
    assert!(matches!(bench.admin().rotate_secret("robot").await, Err(AdminFault::Configured(_))));
    let public = json!({ "grants": ["device_code"], "public": true });
    add(&bench, "phone", public).await.unwrap();
    assert_eq!(refused_paths(bench.admin().rotate_secret("phone").await), ["id"]);
}

#[tokio::test]
async fn a_client_that_ends_takes_its_tokens_with_it() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    for (id, format) in [("signed", "jwt"), ("asked", "opaque")] {
        let secret = add(&bench, id, json!({ "access_token": format })).await.unwrap().secret.unwrap();
        let token = async || {
            bench.advance(Duration::from_secs(2));
            bench
                .form("/token", id, secret.expose(), "grant_type=client_credentials")
                .await
                .text("access_token")
        };
        let first = token().await;
        assert!(bench.is_active(&first).await, "{id}");
        assert!(admin.disable_client(id).await.unwrap().disabled_at.is_some());
        assert_eq!(status(&bench, id, secret.expose()).await, 401);
        assert_eq!(admin.enable_client(id).await.unwrap().disabled_at, None);
        assert!(!bench.is_active(&first).await, "{id}: nothing comes back");
        let second = token().await;
        assert!(bench.is_active(&second).await, "{id}");
        admin.delete_client(id).await.unwrap();
        assert!(!bench.is_active(&second).await, "{id}");
        assert_eq!(status(&bench, id, secret.expose()).await, 401);
        assert!(matches!(admin.delete_client(id).await, Err(AdminFault::NotFound { .. })));
    }
    for fault in [admin.disable_client("robot").await.err(), admin.delete_client("robot").await.err()] {
        assert!(matches!(fault, Some(AdminFault::Configured(_))));
    }
}

#[tokio::test]
async fn clients_of_the_configuration_come_first() {
    let bench = TestProvider::start().await;
    for id in ["another", "zebra"] {
        add(&bench, id, json!({})).await.unwrap();
    }
    let (mut list, mut ids) = (ListClients { limit: Some(2), ..ListClients::default() }, Vec::new());
    loop {
        let page = bench.admin().clients(&list).await.unwrap();
        assert!(page.items.len() <= 2);
        ids.extend(page.items.into_iter().map(|client| client.id));
        list.after = page.next;
        if list.after.is_none() {
            break;
        }
    }
    assert_eq!(ids, ["bare", "desk", "other", "reader", "robot", "safe", "another", "zebra"]);
    let configured = bench.admin().client("robot").await.unwrap();
    assert!(configured.configured && configured.version.is_none());
    list.after = Some("zebra".into());
    assert_eq!(refused_paths(bench.admin().clients(&list).await), ["after"]);
}

#[tokio::test]
async fn a_client_that_no_longer_holds_says_why() {
    let bench = TestProvider::start().await;
    let stale = json!({ "grants": ["client_credentials"], "audiences": ["gone"], "secrets": [] }).to_string();
    let add = store::clients::AddClient { id: "old".into(), settings: stale, now: bench.provider.now() };
    bench.provider.store().write(add).await.unwrap();
    let shown = bench.admin().client("old").await.unwrap();
    assert!(shown.faults.iter().any(|fault| fault.path == "settings.audiences[0]"), "{shown:?}");
}

#[tokio::test]
async fn keys_rotate_when_caches_have_the_next_one_and_leaked_ones_go() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let es256 = RotateKey { algorithm: "ES256".into() };
    let of = |list: &crate::admin::keys::KeyList, stage| {
        list.items.iter().find(|key| key.algorithm == "ES256" && key.stage == stage).cloned()
    };
    let before = admin.keys().await.unwrap();
    let (active, next) = (of(&before, KeyStage::Active).unwrap(), of(&before, KeyStage::Next).unwrap());
    assert_eq!(next.ready_at, Some(UtcTime(next.since.0.plus(LEAD))));
    assert!(matches!(admin.rotate_key(&es256).await, Err(AdminFault::Conflict(_))));
    let token = bench.token("robot").await;
    bench.advance(LEAD);
    let after = admin.rotate_key(&es256).await.unwrap();
    assert_eq!(of(&after, KeyStage::Active).unwrap().kid, next.kid);
    let retired = of(&after, KeyStage::Retired).unwrap();
    assert!(retired.kid == active.kid && retired.gone_at > Some(retired.since));
    assert_eq!(
        refused_paths(admin.rotate_key(&RotateKey { algorithm: "HS256".into() }).await),
        ["algorithm"]
    );

    bench.advance(Duration::from_secs(1));
    let fresh = bench.token("robot").await;
    assert!(bench.is_active(&fresh).await);
    admin.revoke_key(&next.kid).await.unwrap();
    assert!(!bench.is_active(&fresh).await);
    assert!(matches!(admin.revoke_key(&next.kid).await, Err(AdminFault::NotFound { kind: "key", .. })));
    drop(token);
    let entries = bench.audit_entries().await;
    assert_eq!(entries, ["key.rotate key:ES256".to_owned(), format!("key.revoke key:{}", next.kid)]);
}
