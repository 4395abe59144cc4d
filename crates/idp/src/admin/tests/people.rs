//! Tests of user and group administration.

use std::time::Duration;

use serde_json::json;

use super::{PASSWORD, TestProvider, refused_paths};
use crate::admin::{
    AdminFault, Secret,
    groups::{AddGroup, ListNames},
    sessions::ListSessions,
    users::{AddUser, ListUsers, SetPassword, UserChange},
};

fn change(json: serde_json::Value) -> UserChange {
    serde_json::from_value(json).unwrap()
}

#[tokio::test]
async fn an_account_is_made_looked_at_changed_and_deleted() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let id = bench.user("ada").await;
    let details = admin.user(&id).await.unwrap();
    assert!(details.has_password && !details.user.email_verified && details.locked_until.is_none());

    let taken = AddUser { name: "ADA".into(), ..AddUser::default() };
    assert!(matches!(admin.add_user(taken).await, Err(AdminFault::Taken(_))));
    let changed = admin
        .change_user(
            &id,
            change(json!({ "name": "Countess", "email_verified": true, "claims": { "name": "Ada" } })),
        )
        .await
        .unwrap();
    assert_eq!((&*changed.name, changed.email_verified), ("Countess", true));
    assert_eq!(changed.claims["name"], "Ada");
    let changed = admin.change_user(&id, change(json!({ "email": "b@example.com" }))).await.unwrap();
    assert!(!changed.email_verified, "another address is not known to be theirs");
    assert_eq!(changed.name, "Countess", "what is absent stays");
    let changed = admin.change_user(&id, change(json!({ "email": null }))).await.unwrap();
    assert_eq!(changed.email, None);

    assert_eq!(admin.user_id("countess").await.unwrap(), id);
    admin.delete_user(&id).await.unwrap();
    assert!(matches!(admin.user(&id).await, Err(AdminFault::NotFound { kind: "user", .. })));
    assert!(matches!(admin.delete_user(&id).await, Err(AdminFault::NotFound { .. })));
    let actions = ["user.add", "user.change", "user.change", "user.change", "user.delete"];
    assert_eq!(bench.audit_entries().await, actions.map(|action| format!("{action} user:{id}")));
}

#[tokio::test]
async fn a_name_is_one_however_it_is_spelt() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let named = |name: &str| AddUser { name: name.into(), ..AddUser::default() };
    let zoe = admin.add_user(named("Zoe\u{308}")).await.unwrap().user;
    assert_eq!(zoe.name, "Zo\u{eb}", "kept in its form");
    let wide = admin.add_user(named("\u{ff2e}ora")).await.unwrap().user;
    assert_eq!(wide.name, "Nora");
    for spelling in ["nora", "NORA", "\u{ff4e}\u{ff4f}\u{ff52}\u{ff41}", "zo\u{eb}", "ZOE\u{308}"] {
        let taken = admin.add_user(named(spelling)).await;
        assert!(matches!(taken, Err(AdminFault::Taken(_))), "{spelling:?}: {taken:?}");
    }
    for refused_name in ["no\u{200b}ra", "\u{200f}Nora", "Nora\u{202c}", "no\0ra"] {
        assert_eq!(refused_paths(admin.add_user(named(refused_name)).await), ["name"], "{refused_name:?}");
        let change = change(json!({ "name": refused_name }));
        assert_eq!(refused_paths(admin.change_user(&zoe.id, change).await), ["name"], "{refused_name:?}");
    }
    let nora = |email: &str| AddUser { email: Some(email.into()), ..named("eve") };
    admin.add_user(nora("n@x.example")).await.unwrap();
    for name in ["N@x.example", "n\u{ff20}x.example"] {
        let taken = admin.add_user(named(name)).await;
        assert!(matches!(taken, Err(AdminFault::Taken(_))), "{name}: {taken:?}");
    }
    admin.add_user(named("bob@x.example")).await.unwrap();
    let taken = admin.change_user(&zoe.id, change(json!({ "email": "Bob@X.example" }))).await;
    assert!(matches!(taken, Err(AdminFault::Taken(_))), "{taken:?}");
    assert_eq!(admin.user_id("\u{ff3a}oe\u{308}").await.unwrap(), zoe.id);
    let claims = change(json!({ "claims": { "nickname": "a\0" } }));
    assert_eq!(refused_paths(admin.change_user(&zoe.id, claims).await), ["claims"]);
}

#[tokio::test]
async fn a_group_is_found_by_any_spelling_and_kept_in_one() {
    let bench = TestProvider::start().await;
    let (admin, id) = (bench.admin(), bench.user("ada").await);
    let group = admin.add_group(AddGroup { name: "Zu\u{308}rich \u{2013} R&D".into() }).await.unwrap();
    assert_eq!(group.name, "Z\u{fc}rich \u{2013} R&D");
    let again = admin.add_group(AddGroup { name: group.name.clone() }).await;
    assert!(matches!(again, Err(AdminFault::Taken(_))));
    admin.add_member("Zu\u{308}rich \u{2013} R&D", &id).await.unwrap();
    assert_eq!(admin.user(&id).await.unwrap().groups, [group.name.as_str()]);
    assert_eq!(refused_paths(admin.add_group(AddGroup { name: "st\u{200b}aff".into() }).await), ["name"]);
    admin.remove_member("Zu\u{308}rich \u{2013} R&D", &id).await.unwrap();
    admin.delete_group("Zu\u{308}rich \u{2013} R&D").await.unwrap();
}

#[tokio::test]
async fn a_password_that_is_set_has_characters_that_can_be_typed() {
    let bench = TestProvider::start().await;
    let (admin, id) = (bench.admin(), bench.user("ada").await);
    for text in ["wolken kratzen\0", "wolken\u{200b} kratzen", "wolken\nkratzen"] {
        let set =
            SetPassword { password: Some(Secret::new(text.to_owned())), generate: false, temporary: false };
        assert_eq!(refused_paths(admin.set_password(&id, set).await), ["password"], "{text:?}");
    }
}

#[tokio::test]
async fn what_may_not_be_is_refused_with_every_fault() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let bad = json!({ "name": " ada", "email": "no address", "claims": { "sub": "x" } });
    let faults = refused_paths(admin.add_user(serde_json::from_value(bad).unwrap()).await);
    assert_eq!(faults, ["name", "email", "claims"]);
    for (password, generate) in [
        (Some("short"), false),
        (Some("password123"), false),
        (Some("my lovelace password"), false),
        (Some(PASSWORD), true),
    ] {
        let add = json!({ "name": "lovelace", "password": password, "generate_password": generate });
        assert_eq!(
            refused_paths(admin.add_user(serde_json::from_value(add).unwrap()).await),
            ["password"],
            "{password:?}"
        );
    }
    let add = AddUser { name: "ada".into(), email_verified: true, ..AddUser::default() };
    assert_eq!(refused_paths(admin.add_user(add).await), ["email_verified"]);
    let unlimited = ListUsers { limit: Some(501), ..ListUsers::default() };
    assert_eq!(refused_paths(admin.users(&unlimited).await), ["limit"]);
    let id = bench.user("ada").await;
    assert_eq!(refused_paths(admin.set_password(&id, SetPassword::default()).await), ["password"]);
    assert_eq!(refused_paths(admin.change_user(&id, change(json!({ "name": "" }))).await), ["name"]);
    assert_eq!(bench.audit_entries().await, [format!("user.add user:{id}")], "nothing else was done");
}

#[tokio::test]
async fn a_generated_password_is_answered_once_and_told_nowhere() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let add = AddUser { name: "ada".into(), generate_password: true, ..AddUser::default() };
    let made = admin.add_user(add).await.unwrap();
    let password = made.password.unwrap();
    assert_eq!(bench.log_in("desk", "ada", password.expose()).await.status, 200);
    let set = SetPassword { generate: true, ..SetPassword::default() };
    let other = admin.set_password(&made.user.id, set).await.unwrap().password.unwrap();
    assert_eq!(bench.log_in("desk", "ada", password.expose()).await.status, 400);
    assert_eq!(bench.log_in("desk", "ada", other.expose()).await.status, 200);
    assert_eq!(format!("{other:?}"), "Secret(..)");
    for recorded in bench.provider.store().audit_log(0).await.unwrap() {
        for secret in [&password, &other] {
            assert!(!format!("{recorded:?}").contains(secret.expose()));
        }
    }
}

#[tokio::test]
async fn what_ends_an_account_ends_its_tokens() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let id = bench.user("ada").await;
    let given = SetPassword {
        password: Some(Secret::new("umbrella violet orbit".to_owned())),
        generate: false,
        temporary: false,
    };
    for (format, action) in
        [("desk", "disable"), ("safe", "disable"), ("desk", "end"), ("safe", "end"), ("desk", "password")]
    {
        bench.advance(Duration::from_secs(2));
        let answer = bench.log_in(format, "ada", PASSWORD).await;
        let (access, refresh) = (answer.text("access_token"), answer.text("refresh_token"));
        assert!(bench.is_active(&access).await, "{format} {action}");
        match action {
            "disable" => {
                assert!(admin.disable_user(&id).await.unwrap().disabled_at.is_some());
                assert_eq!(bench.log_in(format, "ada", PASSWORD).await.status, 400);
                assert_eq!(admin.enable_user(&id).await.unwrap().disabled_at, None);
            }
            "end" => drop(admin.end_user(&id).await.unwrap()),
            _ => drop(admin.set_password(&id, given.clone()).await.unwrap()),
        }
        assert!(!bench.is_active(&access).await, "{format} {action}: nothing comes back");
        let again = format!("grant_type=refresh_token&refresh_token={refresh}");
        assert_eq!(
            bench.form("/token", format, super::SECRET, &again).await.status,
            400,
            "{format} {action}"
        );
    }
    let access = bench.log_in("safe", "ada", "umbrella violet orbit").await.text("access_token");
    admin.delete_user(&id).await.unwrap();
    assert!(!bench.is_active(&access).await);
    assert!(matches!(admin.disable_user("nobody").await, Err(AdminFault::NotFound { .. })));
    assert!(matches!(admin.enable_user("nobody").await, Err(AdminFault::NotFound { .. })));
}

#[tokio::test]
async fn an_account_that_ends_as_soon_as_it_is_made_takes_its_tokens_with_it() {
    let bench = TestProvider::start().await;
    let id = bench.user("ada").await;
    let more = format!("grant_type=password&username=ada&password={}", PASSWORD.replace(' ', "+"));
    let access = bench.form("/token", "bare", super::SECRET, &more).await.text("access_token");
    assert!(bench.is_active(&access).await);
    bench.advance(Duration::from_millis(1));
    bench.admin().end_user(&id).await.unwrap();
    assert!(!bench.is_active(&access).await, "a JWT without a family, of the same second");
}

#[tokio::test]
async fn a_locked_account_is_unlocked() {
    let bench = TestProvider::start().await;
    let id = bench.user("ada").await;
    for _ in 0..5 {
        assert_eq!(bench.log_in("desk", "ada", "wrong").await.status, 400);
    }
    let details = bench.admin().user(&id).await.unwrap();
    assert!(details.failed_logins == 5 && details.locked_until.is_some(), "{details:?}");
    assert_eq!(bench.log_in("desk", "ada", PASSWORD).await.status, 429);
    bench.admin().unlock_user(&id).await.unwrap();
    assert_eq!(bench.log_in("desk", "ada", PASSWORD).await.status, 200);
    assert_eq!(bench.admin().user(&id).await.unwrap().failed_logins, 0);
}

#[tokio::test]
async fn users_come_in_pages() {
    let bench = TestProvider::start().await;
    for name in ["cleo", "Ada", "bob"] {
        bench.admin().add_user(AddUser { name: name.into(), ..AddUser::default() }).await.unwrap();
    }
    let mut list = ListUsers { limit: Some(2), ..ListUsers::default() };
    let first = bench.admin().users(&list).await.unwrap();
    assert_eq!(first.items.iter().map(|user| &*user.name).collect::<Vec<_>>(), ["Ada", "bob"]);
    list.after = first.next;
    let rest = bench.admin().users(&list).await.unwrap();
    assert_eq!((&*rest.items[0].name, rest.items.len(), rest.next), ("cleo", 1, None));
    let named = ListUsers { name: Some("BOB".into()), ..ListUsers::default() };
    assert_eq!(bench.admin().users(&named).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn who_leaves_a_group_leaves_with_void_tokens() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let (ada, bob) = (bench.user("ada").await, bench.user("bob").await);
    for name in ["staff", "admins"] {
        admin.add_group(AddGroup { name: name.into() }).await.unwrap();
    }
    assert!(matches!(admin.add_group(AddGroup { name: "staff".into() }).await, Err(AdminFault::Taken(_))));
    assert_eq!(refused_paths(admin.add_group(AddGroup { name: String::new() }).await), ["name"]);
    for (group, user) in [("staff", &ada), ("staff", &bob), ("admins", &ada), ("admins", &ada)] {
        admin.add_member(group, user).await.unwrap();
    }
    assert!(matches!(admin.add_member("none", &ada).await, Err(AdminFault::NotFound { kind: "group", .. })));
    assert!(matches!(admin.add_member("staff", "no").await, Err(AdminFault::NotFound { kind: "user", .. })));
    assert_eq!(admin.user(&ada).await.unwrap().groups, ["admins", "staff"]);
    assert_eq!(admin.groups(&ListNames::default()).await.unwrap().items.len(), 2);
    assert_eq!(admin.members("staff", &ListNames::default()).await.unwrap().items.len(), 2);

    let [of_ada, of_bob] =
        [bench.log_in("desk", "ada", PASSWORD).await, bench.log_in("safe", "bob", PASSWORD).await]
            .map(|answer| answer.text("access_token"));
    bench.advance(Duration::from_secs(1));
    admin.remove_member("admins", &ada).await.unwrap();
    assert!(!bench.is_active(&of_ada).await && bench.is_active(&of_bob).await);
    let again = admin.remove_member("admins", &ada).await;
    assert!(matches!(again, Err(AdminFault::NotFound { kind: "member", .. })));
    admin.delete_group("staff").await.unwrap();
    assert!(!bench.is_active(&of_bob).await);
    assert!(matches!(admin.delete_group("staff").await, Err(AdminFault::NotFound { kind: "group", .. })));
    assert!(matches!(admin.members("staff", &ListNames::default()).await, Err(AdminFault::NotFound { .. })));
    let entries = bench.audit_entries().await;
    assert_eq!(
        entries.iter().filter(|entry| entry.starts_with("group.add_member")).count(),
        3,
        "{entries:?}"
    );
}

#[tokio::test]
async fn a_session_is_ended_by_name() {
    use store::sessions::{BeginSession, SessionRow};
    let bench = TestProvider::start().await;
    let (admin, now) = (bench.admin(), bench.provider.now());
    let id = bench.user("ada").await;
    let session = SessionRow {
        digest: bench.provider.secrets().digest("cookie"),
        sid: "s1".into(),
        user_id: id.clone(),
        authenticated_at: now,
        methods: "pwd".into(),
        acr: None,
        user_agent: "curl".into(),
        address: "192.0.2.1".into(),
        created_at: now,
        last_used_at: now,
        expires_at: now.plus(Duration::from_hours(1)),
        ended_at: None,
        read_at: bench.provider.store().log_time().await.unwrap(),
    };
    let begin = BeginSession { session, replaces: None, revocation: None, deliver_until: None };
    bench.provider.store().write(begin).await.unwrap().unwrap();
    let of_ada = ListSessions { user: Some(id), ..ListSessions::default() };
    assert_eq!(admin.sessions(&of_ada).await.unwrap().items[0].agent, "curl");
    admin.end_session("s1").await.unwrap();
    admin.end_session("s1").await.unwrap();
    assert!(admin.session("s1").await.unwrap().ended_at.is_some());
    assert!(admin.sessions(&of_ada).await.unwrap().items.is_empty());
    assert!(matches!(admin.end_session("s2").await, Err(AdminFault::NotFound { kind: "session", .. })));
    assert_eq!(bench.audit_entries().await.last().unwrap(), "session.end session:s1");
    assert_eq!(bench.audit_entries().await.len(), 2, "what was over is not told again");
}
