//! Changes and listings for operators, and the key ring.

use std::time::Duration;

use store::access_tokens::IssueAccessToken;
use store::audit::{AuditEntry, Audited};
use store::clients::{AddClient, DeleteClient};
use store::codes::{IssueCode, Issued};
use store::consents::{Consent, GiveConsent};
use store::deliveries::TakeDueDeliveries;
use store::families::{BATCH_SIZE, Family, FamilyFilter, RevokeFamilyBatch, RevokeGrants};
use store::groups::{AddGroup, AddMember, DeleteGroup, Deleted};
use store::key_ring::{KeyRingRow, ReplaceKeyRing};
use store::users::{ChangeUser, DeleteUser, UserRow};
use store::{Revocation, StoreError};

use crate::databases::{NOW, ORIGINS, add_user, at, begin_family, digest, family, on_both, revocation};
use crate::grants::{access, code, is_active};
use crate::people::{begin, session};

const LATER: Duration = Duration::from_mins(1);

fn ring(from: Option<u64>, content: &str, revocation: Option<Revocation>) -> ReplaceKeyRing {
    ReplaceKeyRing { from, content: content.into(), revocation, now: NOW }
}

fn change(user: &UserRow, name: &str, email: &str) -> ChangeUser {
    ChangeUser {
        from: user.clone(),
        name: name.into(),
        email: Some(email.into()),
        email_verified_at: Some(NOW),
        claims: "{\"a\":1}".into(),
        revocation: revocation("user"),
        now: NOW.plus(LATER),
    }
}

on_both! {
    async fn the_key_ring_is_replaced_from_what_was_read(database: Database) {
        let store = database.open().await;
        assert_eq!(store.key_ring().await.unwrap(), None);
        assert!(!store.write(ring(Some(1), "x", None)).await.unwrap());
        assert!(store.write(ring(None, "a", None)).await.unwrap());
        assert!(!store.write(ring(None, "b", None)).await.unwrap());
        assert!(store.write(ring(Some(1), "c", Some(revocation("key")))).await.unwrap());
        assert!(!store.write(ring(Some(1), "d", Some(revocation("key")))).await.unwrap());
        let row = store.key_ring().await.unwrap().unwrap();
        assert_eq!(row, KeyRingRow { version: 2, content: b"c".to_vec() });
        assert_eq!(format!("{row:?}"), "KeyRingRow { version: 2, .. }");
        assert_eq!(store.head().await.unwrap().seq, 1);
    }

    async fn one_of_many_nodes_replaces_the_ring(database: Database) {
        let stores = database.open_all().await;
        let mut nodes = tokio::task::JoinSet::new();
        for n in 0..20 {
            let store = stores[n % stores.len()].clone();
            nodes.spawn(async move { store.write(ring(None, &n.to_string(), None)).await.unwrap() });
        }
        assert_eq!(nodes.join_all().await.into_iter().filter(|made| *made).count(), 1);
    }

    async fn an_account_changes_and_goes(database: Database) {
        let store = database.open().await;
        let (ada, eve) = (add_user(&store, "ada").await, add_user(&store, "eve").await);
        assert!(store.write(change(&eve, "Eve", "eve@example.com")).await.unwrap());
        for (name, email) in [("EVE", "ada@example.com"), ("ada", "Eve@example.com")] {
            let taken = store.write(change(&ada, name, email)).await;
            assert!(matches!(taken, Err(StoreError::Taken("the user's name or address"))), "{taken:?}");
        }
        assert!(store.write(change(&ada, "Countess", "ada@example.com")).await.unwrap());
        let stale = store.write(change(&ada, "Duchess", "ada@example.com")).await.unwrap();
        assert!(!stale, "somebody else changed it since it was read");
        let nobody = UserRow { id: "nobody".into(), ..ada.clone() };
        assert!(!store.write(change(&nobody, "nobody", "n@example.com")).await.unwrap());
        let changed = store.user_by_name("COUNTESS").await.unwrap().unwrap();
        assert_eq!((&*changed.id, &*changed.claims), (&*ada.id, "{\"a\":1}"));
        assert_eq!(store.user_by_name("ada@example.com").await.unwrap(), None);
        assert_eq!(store.user_by_login("ada@example.com").await.unwrap().unwrap().0, changed);
        assert_eq!(store.head().await.unwrap().seq, 2);

        store.write(begin(session("s", &ada), None)).await.unwrap();
        let bound = Family { sid: Some("sid-s".into()), ..family("f", &ada) };
        let issue = begin_family(bound, None, access("a", Some(&ada)));
        assert!(store.write(issue).await.unwrap());
        store.write(IssueAccessToken(access("b", Some(&ada)))).await.unwrap();
        let delete = DeleteUser {
            user_id: ada.id.clone(), revocation: revocation("user"), deliver_until: Some(NOW.plus(LATER)), now: NOW,
        };
        assert!(store.write(delete.clone()).await.unwrap());
        assert!(!store.write(delete).await.unwrap());
        assert_eq!(store.user(&ada.id).await.unwrap(), None);
        for name in ["a", "b"] {
            assert_eq!(store.access_token(&digest(name)).await.unwrap(), None);
        }
        assert_eq!(store.session_by_sid("sid-s").await.unwrap(), None);
        let take = TakeDueDeliveries { limit: 9, except: vec![], retry_after: LATER, now: NOW };
        let due = store.write(take).await.unwrap();
        assert_eq!(due.iter().map(|d| &*d.id).collect::<Vec<_>>(), ["sid-s/notebook"]);
        assert_eq!(store.head().await.unwrap().seq, 3);
    }

    async fn a_group_goes_with_what_its_members_hold(database: Database) {
        let store = database.open().await;
        for name in ["staff", "admins"] {
            store.write(AddGroup { id: format!("id-{name}"), name: name.into(), now: NOW }).await.unwrap();
        }
        for (name, group) in [("cleo", "staff"), ("Ada", "staff"), ("bob", "admins")] {
            let user = add_user(&store, name).await;
            store.write(AddMember { group: group.into(), user_id: user.id.clone() }).await.unwrap();
            store.write(IssueAccessToken(access(name, Some(&user)))).await.unwrap();
        }
        let names = |groups: Vec<store::groups::GroupRow>| groups.into_iter().map(|g| g.name).collect::<Vec<_>>();
        assert_eq!(names(store.groups("", 9).await.unwrap()), ["admins", "staff"]);
        assert_eq!(names(store.groups("admins", 9).await.unwrap()), ["staff"]);
        assert_eq!(store.group("staff").await.unwrap().map(|g| g.id).as_deref(), Some("id-staff"));
        assert_eq!(store.group("Staff").await.unwrap(), None);
        let members = |after| { let store = store.clone(); async move {
            let users = store.members_of("staff", after, 1).await.unwrap();
            users.into_iter().map(|u| u.name).collect::<Vec<_>>()
        } };
        assert_eq!((members("").await, members("id-Ada").await), (vec!["Ada".to_owned()], vec!["cleo".to_owned()]));

        let delete = |members: &[&str]| DeleteGroup {
            name: "staff".into(),
            members: members.iter().map(|&id| id.to_owned()).collect(),
            revocations: vec![revocation("staff")],
            now: NOW.plus(LATER),
        };
        let (some, all) = (delete(&["id-Ada"]), delete(&["id-Ada", "id-cleo", "id-eve"]));
        assert_eq!(store.write(some).await.unwrap(), Deleted::MembersChanged, "cleo would not be told of");
        assert!(is_active(&store, "Ada", NOW.plus(LATER)).await);
        assert_eq!(store.write(all.clone()).await.unwrap(), Deleted::Now);
        assert_eq!(store.write(all).await.unwrap(), Deleted::Unknown);
        assert_eq!(names(store.groups("", 9).await.unwrap()), ["admins"]);
        assert_eq!(store.groups_of("id-Ada").await.unwrap(), Vec::<String>::new());
        for (name, active) in [("Ada", false), ("cleo", false), ("bob", true)] {
            assert_eq!(is_active(&store, name, NOW.plus(LATER)).await, active, "{name}");
        }
        assert_eq!(store.head().await.unwrap().seq, 1, "told once");
    }

    async fn what_a_client_has_goes_without_the_client(database: Database) {
        let store = database.open().await;
        let (ada, eve) = (add_user(&store, "ada").await, add_user(&store, "eve").await);
        for (name, user) in [("a", Some(&ada)), ("e", Some(&eve)), ("own", None)] {
            store.write(IssueAccessToken(access(name, user))).await.unwrap();
        }
        let issue = IssueCode { family: family("f", &ada), origins: ORIGINS, code: code("f"), required_consent: None, pushed_request: None };
        assert_eq!(store.write(issue).await.unwrap(), Issued::Stored);
        let revoke = |client: &str, user: Option<&UserRow>| RevokeGrants {
            client_id: client.into(),
            user_id: user.map(|user| user.id.clone()),
            revocation: revocation("grants"),
            now: NOW,
        };
        assert_eq!(store.write(revoke("another", None)).await.unwrap(), 0);
        assert_eq!(store.write(revoke("notebook", Some(&ada))).await.unwrap(), 2);
        assert!(!store.family("f").await.unwrap().unwrap().is_alive(NOW));
        for (name, active) in [("a", false), ("e", true), ("own", true)] {
            assert_eq!(is_active(&store, name, NOW).await, active, "{name}");
        }
        assert_eq!(store.write(revoke("notebook", None)).await.unwrap(), 2);
        for name in ["e", "own"] {
            assert!(!is_active(&store, name, NOW).await, "{name}");
        }
        assert_eq!(store.head().await.unwrap().seq, 3, "told each time: some tokens are in no row");
    }

    async fn a_client_s_families_are_revoked_some_at_a_time(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        // Not in the order of their ids.
        for n in (0..BATCH_SIZE + 7).rev() {
            let begin = begin_family(family(&format!("f{n:04}"), &ada), None, access(&format!("a{n}"), Some(&ada)));
            assert!(store.write(begin).await.unwrap());
        }
        let some = |client: &str, after: &str| RevokeFamilyBatch { client_id: client.into(), after: after.into(), now: NOW };
        assert_eq!(store.write(some("another", "")).await.unwrap(), (0, None));
        let last = format!("f{:04}", BATCH_SIZE - 1);
        assert_eq!(store.write(some("notebook", "")).await.unwrap(), (BATCH_SIZE, Some(last.clone())));
        assert!(!is_active(&store, "a0", NOW).await && is_active(&store, &format!("a{BATCH_SIZE}"), NOW).await);
        assert_eq!(store.write(some("notebook", &last)).await.unwrap(), (7, None));
        assert_eq!(store.write(some("notebook", "")).await.unwrap(), (0, None));
        assert_eq!(store.head().await.unwrap().seq, 0, "nobody was told yet");
    }

    async fn a_client_goes_with_what_it_holds(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(AddClient { id: "notebook".into(), settings: "{}".into(), now: NOW }).await.unwrap();
        let consent = Consent {
            user_id: ada.id.clone(), client_id: "notebook".into(), scopes: "openid".into(), given_at: NOW,
        };
        assert!(store.write(GiveConsent { consent, previous_scopes: None }).await.unwrap());
        let issue = begin_family(family("f", &ada), None, access("a", Some(&ada)));
        store.write(issue).await.unwrap();
        store.write(IssueAccessToken(access("b", None))).await.unwrap();
        let delete = DeleteClient { id: "notebook".into(), revocation: revocation("notebook"), now: NOW };
        assert!(store.write(delete.clone()).await.unwrap());
        assert!(!store.write(delete).await.unwrap());
        assert_eq!(store.client("notebook").await.unwrap(), None);
        for name in ["a", "b"] {
            assert!(!is_active(&store, name, NOW).await, "{name}");
        }
        assert_eq!(store.consents_of(&ada.id).await.unwrap(), []);
        assert_eq!(store.head().await.unwrap().seq, 1);
    }

    async fn sessions_and_families_are_listed(database: Database) {
        let store = database.open().await;
        let (ada, eve) = (add_user(&store, "ada").await, add_user(&store, "eve").await);
        for (name, user) in [("1", &ada), ("2", &eve), ("3", &ada)] {
            store.write(begin(session(name, user), None)).await.unwrap();
            for client in ["mail", "notes"] {
                let family = Family { client_id: client.into(), ..family(&format!("{client}-{name}"), user) };
                let code = code(&family.id);
                assert_eq!(store.write(IssueCode { family, origins: ORIGINS, code, required_consent: None, pushed_request: None }).await.unwrap(), Issued::Stored);
            }
        }
        for (user, after, limit, expected) in [
            (None, "", 2, &["sid-1", "sid-2"][..]),
            (None, "sid-2", 2, &["sid-3"]),
            (Some(&*ada.id), "", 9, &["sid-1", "sid-3"]),
            (Some("nobody"), "", 9, &[]),
        ] {
            let sessions = store.sessions(user, after, limit, NOW).await.unwrap();
            assert_eq!(sessions.iter().map(|s| &*s.sid).collect::<Vec<_>>(), expected);
        }
        let over = NOW.plus(Duration::from_hours(24));
        assert_eq!(store.sessions(None, "", 9, over).await.unwrap(), []);
        for (user_id, client_id, after, expected) in [
            (None, None, "mail-2", &["mail-3", "notes-1", "notes-2"][..]),
            (Some(&*ada.id), None, "", &["mail-1", "mail-3", "notes-1"]),
            (None, Some("notes"), "", &["notes-1", "notes-2", "notes-3"]),
            (Some(&*eve.id), Some("notes"), "", &["notes-2"]),
        ] {
            let families = store.families(FamilyFilter { user_id, client_id }, after, 3, at(NOW)).await.unwrap();
            assert_eq!(families.iter().map(|f| &*f.id).collect::<Vec<_>>(), expected);
        }
        assert_eq!(store.families(FamilyFilter::default(), "", 9, at(over)).await.unwrap(), []);
    }

    async fn what_did_not_happen_is_not_told(database: Database) {
        let store = database.open().await;
        let entry = AuditEntry {
            actor: "operator:root".into(), action: "key.rotate".into(), target: "system".into(),
            detail: "{}".into(), at: NOW,
            user_id: None,
            client_id: None,
        };
        for (from, told) in [(Some(7), 0), (None, 1), (None, 1), (Some(1), 2)] {
            let audited = Audited { change: ring(from, "x", None), entry: entry.clone() };
            store.write(audited).await.unwrap();
            assert_eq!(store.audit_log(0).await.unwrap().len(), told);
        }
    }
}
