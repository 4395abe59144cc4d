//! Lists and their searches, and entries that are named instead of identified.

use std::time::Duration;

use serde_json::json;

use super::{API, PASSWORD, TestProvider, refused_paths};
use crate::admin::{
    AdminFault,
    audit::ListEntries,
    clients::{AddClient, ListClients},
    followers::ListFollowers,
    groups::{AddGroup, ListNames},
    keys::{KeyStage, ListKeys},
    sessions::ListSessions,
    tokens::{ListFamilies, RevokeAll},
    users::{AddUser, ListUsers},
};

async fn add_client(bench: &TestProvider, id: &str, name: &str) {
    let add = json!({ "id": id, "settings": { "name": name, "grants": ["client_credentials"], "audiences": [API] } });
    let add: AddClient = serde_json::from_value(add).unwrap();
    bench.admin().add_client(add).await.unwrap();
}

#[tokio::test]
async fn a_client_is_named_by_id_or_name() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    for (id, name) in
        [("shop", "The shop"), ("till", "Till"), ("till-2", "TILL"), ("safe-2", "safe"), ("x", "shop")]
    {
        add_client(&bench, id, name).await;
    }
    for (text, id) in [
        ("shop", "shop"),
        ("The shop", "shop"),
        ("the SHOP", "shop"),
        // The same case, then any case.
        ("Till", "till"),
        ("TILL", "till-2"),
        // An id has precedence over the name of another client.
        ("safe", "safe"),
        ("robot", "robot"),
    ] {
        assert_eq!(admin.client_id(text).await.unwrap(), id, "{text:?}");
    }
    let ambiguous = admin.client_id("tilL").await.unwrap_err();
    assert!(matches!(ambiguous, AdminFault::Conflict(_)), "{ambiguous}");
    let text = ambiguous.to_string();
    assert_eq!(text, r#"client "tilL" is ambiguous: use one of the ids till ("Till"), till-2 ("TILL")"#);
    let unknown = admin.client_id("nobody").await.unwrap_err();
    assert_eq!(unknown.to_string(), r#"client "nobody" not found"#);

    // Lists and changes take both.
    bench.user("ada").await;
    bench.log_in("desk", "ada", PASSWORD).await;
    add_client(&bench, "other-desk", "Desks").await;
    let of = |client: &str, user: Option<&str>| ListFamilies {
        client: Some(client.to_owned()),
        user: user.map(str::to_owned),
        ..ListFamilies::default()
    };
    assert_eq!(admin.families(&of("DESK", Some("ada"))).await.unwrap().items.len(), 1, "by name, any case");
    assert!(admin.families(&of("Desks", None)).await.unwrap().items.is_empty());
    assert!(matches!(admin.families(&of("nobody", None)).await, Err(AdminFault::NotFound { .. })));
    let log = |client: &str| ListEntries { client: Some(client.to_owned()), ..ListEntries::default() };
    assert_eq!(admin.audit_log(&log("Desks")).await.unwrap().items[0].action, "client.add");
    admin.revoke_all(&RevokeAll { client: "Desks".into(), user: None }).await.unwrap();
    admin.delete_client("other-desk").await.unwrap();
    let of_deleted = admin.audit_log(&log("other-desk")).await.unwrap().items;
    assert_eq!(of_deleted.last().unwrap().action, "client.delete", "by its id");
    assert!(matches!(admin.audit_log(&log("Desks")).await, Err(AdminFault::NotFound { .. })));
}

#[tokio::test]
async fn a_group_is_named_by_id_or_name() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let staff = admin.add_group(AddGroup { name: "staff".into() }).await.unwrap();
    let odd = admin.add_group(AddGroup { name: staff.id.clone() }).await.unwrap();
    let ada = bench.user("ada").await;
    admin.add_member(&staff.id, &ada).await.unwrap();
    let members = async |group: &str| admin.members(group, &ListNames::default()).await.unwrap().items.len();
    assert_eq!([members("staff").await, members(&staff.id).await, members(&odd.id).await], [1, 1, 0]);
    admin.delete_group(&staff.id).await.unwrap();
    assert!(matches!(admin.members("staff", &ListNames::default()).await, Err(AdminFault::NotFound { .. })));
    assert_eq!(members(&staff.id).await, 0, "the id is gone, so the name counts");
    let entries = bench.audit_entries().await;
    assert!(entries.contains(&"group.delete group:staff".to_owned()), "{entries:?}");
}

#[tokio::test]
async fn every_list_is_searched() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    for group in ["staff", "Zu\u{308}rich"] {
        admin.add_group(AddGroup { name: group.into() }).await.unwrap();
    }
    // Ids are random, so the texts have characters that no id has, or are long.
    for (name, email) in [("ada", Some("lovelace@example.com")), ("Bob Builder", None), ("100% wool", None)] {
        let add = AddUser { name: name.into(), email: email.map(Into::into), ..AddUser::default() };
        let id = admin.add_user(add).await.unwrap().user.id;
        admin.add_member("staff", &id).await.unwrap();
    }
    let users = async |text: &str| -> Vec<String> {
        let list = ListUsers { search: Some(text.to_owned()), ..ListUsers::default() };
        admin.users(&list).await.unwrap().items.into_iter().map(|user| user.name).collect()
    };
    assert_eq!(users("LOVELACE@").await, ["ada"], "the address");
    assert_eq!(users("B BUI").await, ["Bob Builder"]);
    assert_eq!(users("%").await, ["100% wool"]);
    assert_eq!(users("").await, ["100% wool", "ada", "Bob Builder"]);
    let ada = admin.user_id("ada").await.unwrap();
    assert_eq!(users(&ada.to_uppercase()).await, ["ada"], "the id");
    let groups = ListNames { search: Some("Z\u{dc}RI".to_owned()), ..ListNames::default() };
    assert_eq!(admin.groups(&groups).await.unwrap().items.len(), 1);
    let members = ListNames { search: Some(" ".to_owned()), limit: Some(1), after: None };
    let page = admin.members("staff", &members).await.unwrap();
    assert_eq!((page.items.len(), page.next), (1, Some(page.items[0].id.clone())), "in the order of ids");

    add_client(&bench, "shop", "The market").await;
    let clients = async |text: &str| -> Vec<String> {
        let list = ListClients { search: Some(text.to_owned()), ..ListClients::default() };
        admin.clients(&list).await.unwrap().items.into_iter().map(|client| client.id).collect()
    };
    assert_eq!(clients("MARKET").await, ["shop"]);
    assert_eq!(clients("s").await, ["desk", "safe", "shop"], "of the configuration, then of the database");

    bench.user("cleo").await;
    bench.log_in("desk", "cleo", PASSWORD).await;
    let families = async |text: &str| {
        let list = ListFamilies { search: Some(text.to_owned()), ..ListFamilies::default() };
        admin.families(&list).await.unwrap().items.len()
    };
    assert_eq!([families("DESK").await, families("openid").await, families("mail@nowhere").await], [1, 1, 0]);
    let sessions = ListSessions { search: Some("x".to_owned()), ..ListSessions::default() };
    assert!(admin.sessions(&sessions).await.unwrap().items.is_empty());
    let log = ListEntries { search: Some("cleo".to_owned()), ..ListEntries::default() };
    let log = admin.audit_log(&log).await.unwrap().items;
    assert!(log.len() >= 2 && log.iter().all(|entry| entry.detail.contains("cleo")), "{log:?}");

    let keys = async |text: &str| {
        let list = ListKeys { search: Some(text.to_owned()), ..ListKeys::default() };
        admin.list_keys(&list).await.unwrap().items
    };
    assert!(keys("active").await.iter().all(|key| key.stage == KeyStage::Active));
    assert!(!keys("es256").await.is_empty() && keys("hs256").await.is_empty());
    let consumers = ListFollowers { search: Some("a".to_owned()), ..ListFollowers::default() };
    assert!(admin.list_followers(&consumers).await.unwrap().items.is_empty());
    let gone = ListKeys { after: Some("gone".to_owned()), ..ListKeys::default() };
    assert_eq!(refused_paths(admin.list_keys(&gone).await), ["after"]);
}

#[tokio::test]
async fn a_log_of_which_a_part_has_expired_says_so() {
    let bench = TestProvider::start_with(|config| config.audit_keep = Some(Duration::from_hours(48))).await;
    let admin = bench.admin();
    for name in ["ada", "bob", "cleo"] {
        admin.add_user(AddUser { name: name.into(), ..AddUser::default() }).await.unwrap();
    }
    let expire = async || crate::audit_retention::expire(&bench.provider).await.unwrap().unwrap();
    expire().await;
    let verdict = admin.verify_audit_log().await.unwrap();
    assert_eq!((verdict.entries, verdict.last, verdict.expired), (Some(3), Some(3), None));
    bench.advance(Duration::from_hours(49));
    admin.add_user(AddUser { name: "dora".into(), ..AddUser::default() }).await.unwrap();
    expire().await;
    bench.provider.store().delete_expired(bench.provider.now(), Duration::from_hours(1)).await.unwrap();
    let verdict = admin.verify_audit_log().await.unwrap();
    assert!(verdict.intact);
    assert_eq!((verdict.entries, verdict.last, verdict.expired), (Some(2), Some(5), Some(3)));
    let log = admin.audit_log(&ListEntries::default()).await.unwrap().items;
    assert_eq!(log.iter().map(|entry| &*entry.action).collect::<Vec<_>>(), ["user.add", "audit.expire"]);
    // Without the key everything is kept.
    let bench = TestProvider::start().await;
    bench.admin().add_user(AddUser { name: "ada".into(), ..AddUser::default() }).await.unwrap();
    bench.advance(Duration::from_hours(24 * 999));
    crate::audit_retention::expire(&bench.provider).await.unwrap().unwrap();
    assert_eq!(bench.admin().verify_audit_log().await.unwrap().expired, None);
}
