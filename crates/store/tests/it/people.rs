//! Users, groups, clients, sessions, consents.

use std::time::Duration;

use store::access_tokens::{AccessToken, IssueAccessToken};
use store::clients::{AddClient, ChangeClient};
use store::consents::{Consent, GiveConsent, WithdrawConsent};
use store::groups::{AddGroup, AddMember, RemoveMember};
use store::login_attempts::{Attempts, DeleteAttempts, RecordAttempt};
use store::sessions::{BeginSession, EndSession, SessionRow, TouchSession};
use store::users::{
    AddUser, EnableUser, RequirePasswordChange, RevokeUser, UpgradePassword, UserRevocation, UserRow,
};
use store::{Store, StoreError, StoredDigest};

use crate::databases::{
    NOW, ORIGINS, add_user, alive_families, begin_family, digest, family, on_both, password, revocation, user,
};

const LATER: Duration = Duration::from_mins(1);

pub(crate) fn begin(session: SessionRow, replaces: Option<&str>) -> BeginSession {
    BeginSession { session, replaces: replaces.map(digest), revocation: None, deliver_until: None }
}

pub(crate) fn token(name: &str, user: &UserRow) -> AccessToken {
    AccessToken {
        digest: digest(name),
        jti: format!("jti-{name}"),
        client_id: "notebook".into(),
        user_id: Some(user.id.clone()),
        scopes: "openid".into(),
        audiences: "notebook".into(),
        details: "{}".into(),
        issued_at: NOW,
        expires_at: NOW.plus(Duration::from_mins(5)),
        read_at: user.read_at,
        origins: ORIGINS,
    }
}

pub(crate) fn session(name: &str, user: &UserRow) -> SessionRow {
    SessionRow {
        digest: digest(name),
        sid: format!("sid-{name}"),
        user_id: user.id.clone(),
        authenticated_at: NOW,
        methods: "pwd".into(),
        acr: None,
        user_agent: "Firefox".into(),
        address: "192.0.2.7".into(),
        created_at: NOW,
        last_used_at: NOW,
        expires_at: NOW.plus(Duration::from_hours(8)),
        ended_at: None,
        read_at: user.read_at,
    }
}

async fn is_active(store: &Store, digest: &StoredDigest) -> bool {
    store.access_token(digest).await.unwrap().unwrap().is_active(NOW.plus(LATER))
}

on_both! {
    async fn names_differ_by_more_than_case(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "Ada").await;
        let again = store.write(AddUser { user: UserRow { id: "2".into(), ..user("aDA") }, password: None }).await;
        assert!(matches!(again, Err(StoreError::Taken("the user's name or address"))), "{again:?}");
        assert_eq!(store.user("id-Ada").await.unwrap(), Some(ada.clone()));
        assert_eq!(store.user_by_login("ADA").await.unwrap(), Some((ada, Some(password("old")))));
        assert_eq!(store.user_by_login("adam").await.unwrap(), None);
        assert_eq!(store.user("2").await.unwrap(), None);
    }

    async fn an_address_logs_in_once_it_is_verified(database: Database) {
        let store = database.open().await;
        let with = |name: &str, verified| UserRow {
            email: Some(format!("{name}@Example.com")),
            email_verified_at: verified,
            ..user(name)
        };
        for user in [with("ada", Some(NOW)), with("eve", None)] {
            store.write(AddUser { user, password: None }).await.unwrap();
        }
        assert_eq!(store.user_by_login("ADA@example.com").await.unwrap().unwrap().0.name, "ada");
        assert_eq!(store.user_by_login("eve@example.com").await.unwrap(), None);
    }

    async fn users_are_listed_page_by_page(database: Database) {
        let store = database.open().await;
        for name in ["cleo", "Ada", "bob", "dan"] {
            add_user(&store, name).await;
        }
        let page = store.users("", 3).await.unwrap();
        assert_eq!(page.iter().map(|u| &*u.name).collect::<Vec<_>>(), ["Ada", "bob", "cleo"]);
        let rest = store.users("cleo", 3).await.unwrap();
        assert_eq!(rest.iter().map(|u| &*u.name).collect::<Vec<_>>(), ["dan"]);
    }

    async fn a_stronger_hash_replaces_only_the_one_that_was_verified(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let upgrade = |from: &str| UpgradePassword {
            user_id: ada.id.clone(), from: password(from), to_phc: "stronger".into(),
        };
        assert!(!store.write(upgrade("another")).await.unwrap());
        assert!(store.write(upgrade("old")).await.unwrap());
        assert_eq!(store.user_by_login("ada").await.unwrap().unwrap().1, Some(password("stronger")));
    }

    async fn a_temporary_password_must_be_changed_until_its_user_sets_another(database: Database) {
        let store = database.open().await;
        let since = async || store.user("id-eve").await.unwrap().unwrap().must_change_password_at;
        let eve = UserRow { must_change_password_at: Some(NOW), ..user("eve") };
        store.write(AddUser { user: eve, password: Some(password("first")) }).await.unwrap();
        assert_eq!(since().await, Some(NOW));
        assert_eq!(store.user_by_login("eve").await.unwrap().unwrap().0.must_change_password_at, Some(NOW));

        let now = NOW.plus(LATER);
        let end = |account_change| RevokeUser {
            user_id: "id-eve".into(), account_change, revocation: revocation("eve"), deliver_until: None, now,
        };
        let upgrade = UpgradePassword { user_id: "id-eve".into(), from: password("first"), to_phc: "hash".into() };
        assert!(store.write(upgrade).await.unwrap());
        assert!(store.write(end(UserRevocation::Everything)).await.unwrap());
        assert_eq!(since().await, Some(NOW), "a stronger hash is no new password, and a revocation neither");
        assert!(store.write(end(UserRevocation::Password(password("own")))).await.unwrap());
        assert_eq!(since().await, None);
        assert!(store.write(end(UserRevocation::TemporaryPassword(password("again")))).await.unwrap());
        assert_eq!(since().await, Some(now));

        let require = |user_id: &str, required| RequirePasswordChange { user_id: user_id.into(), required, now };
        assert!(store.write(require("id-eve", false)).await.unwrap());
        assert_eq!(since().await, None);
        assert!(store.write(require("id-eve", true)).await.unwrap());
        assert_eq!(since().await, Some(now));
        assert!(!store.write(require("nobody", true)).await.unwrap());
    }

    async fn another_password_ends_everything(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(begin(session("s", &ada), None)).await.unwrap();
        let issue = begin_family(family("f", &ada), None, token("t", &ada));
        store.write(issue).await.unwrap();
        store.write(IssueAccessToken(token("alone", &ada))).await.unwrap();
        assert!(is_active(&store, &digest("t")).await && is_active(&store, &digest("alone")).await);

        let end = |account_change| RevokeUser {
            user_id: ada.id.clone(), account_change, revocation: revocation("ada"), deliver_until: None, now: NOW.plus(LATER),
        };
        assert!(store.write(end(UserRevocation::Password(password("new")))).await.unwrap());
        assert!(!is_active(&store, &digest("t")).await && !is_active(&store, &digest("alone")).await);
        assert_eq!(store.session(&digest("s"), NOW.plus(LATER)).await.unwrap(), None);
        assert_eq!(alive_families(&store, &ada, NOW.plus(LATER)).await, []);
        assert_eq!(store.user_by_login("ada").await.unwrap().unwrap().1, Some(password("new")));
        let events = store.events(0, 10).await.unwrap();
        assert_eq!((events.len(), &events[0].tags), (1, &revocation("ada").tags));

        let fresh = AccessToken { read_at: store.log_time().await.unwrap(), ..token("fresh", &ada) };
        store.write(IssueAccessToken(fresh)).await.unwrap();
        assert!(is_active(&store, &digest("fresh")).await, "what is issued afterwards counts");
        assert!(!store.write(RevokeUser { user_id: "nobody".into(), ..end(UserRevocation::Everything) }).await.unwrap());
    }

    async fn a_closed_account_has_neither_session_nor_token(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(begin(session("s", &ada), None)).await.unwrap();
        store.write(IssueAccessToken(token("t", &ada))).await.unwrap();
        let close = RevokeUser {
            user_id: ada.id.clone(), account_change: UserRevocation::Disabled, revocation: revocation("ada"),
            deliver_until: None, now: NOW.plus(LATER),
        };
        assert!(store.write(close).await.unwrap());
        assert_eq!(store.user(&ada.id).await.unwrap().unwrap().disabled_at, Some(NOW.plus(LATER)));
        assert!(!is_active(&store, &digest("t")).await);
        let open = EnableUser { user_id: ada.id.clone(), now: NOW.plus(2 * LATER) };
        assert!(store.write(open.clone()).await.unwrap());
        assert!(!store.write(open).await.unwrap(), "it is open");
        assert!(!is_active(&store, &digest("t")).await, "nothing comes back");
        assert_eq!(store.session(&digest("s"), NOW).await.unwrap(), None);
    }

    async fn leaving_a_group_voids_tokens(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        for name in ["staff", "admins"] {
            store.write(AddGroup { id: name.into(), name: name.into(), now: NOW }).await.unwrap();
            let add = AddMember { group: name.into(), user_id: ada.id.clone() };
            assert!(store.write(add.clone()).await.unwrap());
            assert!(!store.write(add).await.unwrap());
        }
        let twice = store.write(AddGroup { id: "x".into(), name: "staff".into(), now: NOW }).await;
        assert!(matches!(twice, Err(StoreError::Taken("the group's name"))), "{twice:?}");
        for (group, user_id) in [("nobody", &*ada.id), ("staff", "nobody")] {
            let add = AddMember { group: group.into(), user_id: user_id.into() };
            assert!(matches!(store.write(add).await, Err(StoreError::MissingReference)), "{group} {user_id}");
        }
        assert_eq!(store.groups_of(&ada.id).await.unwrap(), ["admins", "staff"]);

        store.write(IssueAccessToken(token("t", &ada))).await.unwrap();
        let leave = RemoveMember {
            group: "admins".into(), user_id: ada.id.clone(), revocation: revocation("ada"), now: NOW.plus(LATER),
        };
        assert!(store.write(leave.clone()).await.unwrap());
        assert!(!store.write(leave).await.unwrap());
        assert_eq!(store.groups_of(&ada.id).await.unwrap(), ["staff"]);
        assert!(!is_active(&store, &digest("t")).await);
        assert_eq!(store.head().await.unwrap().seq, 1, "told once");
    }

    async fn a_client_is_changed_from_the_version_that_was_read(database: Database) {
        let store = database.open().await;
        let add = AddClient { id: "notebook".into(), settings: "{}".into(), now: NOW };
        store.write(add.clone()).await.unwrap();
        assert!(matches!(store.write(add).await, Err(StoreError::Taken("the client's id"))));
        let change = |version, settings: &str, disabled_at| ChangeClient {
            id: "notebook".into(), version, settings: settings.into(), disabled_at,
            revocation: revocation("notebook"), now: NOW,
        };
        assert!(store.write(change(1, "first", None)).await.unwrap());
        assert!(!store.write(change(1, "late", None)).await.unwrap());
        let client = store.client("notebook").await.unwrap().unwrap();
        assert_eq!((client.version, &*client.settings), (2, "first"));

        let ada = add_user(&store, "ada").await;
        store.write(IssueAccessToken(token("t", &ada))).await.unwrap();
        assert!(is_active(&store, &digest("t")).await);
        assert!(store.write(change(2, "first", Some(NOW))).await.unwrap());
        assert!(!is_active(&store, &digest("t")).await, "a closed client's tokens are worth nothing");
        assert_eq!(store.clients("", 5).await.unwrap().len(), 1);
        assert_eq!(store.clients("notebook", 5).await.unwrap().len(), 0);
    }

    async fn a_session_ends_with_what_was_granted_in_it(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        assert_eq!(store.write(begin(session("b", &ada), None)).await.unwrap().as_deref(), Some("sid-b"));
        store.write(TouchSession { digest: digest("b"), now: NOW.plus(LATER) }).await.unwrap();
        let seen = store.session(&digest("b"), NOW).await.unwrap().unwrap();
        assert_eq!(seen, SessionRow { last_used_at: NOW.plus(LATER), ..session("b", &ada) });
        assert_eq!(store.session(&digest("b"), seen.expires_at).await.unwrap(), None, "expired is now >= exp");
        assert_eq!(store.sessions_of(&ada.id, NOW).await.unwrap(), [seen]);

        let bound = |id: &str| store::families::Family { sid: Some("sid-b".into()), ..family(id, &ada) };
        let lasting = store::families::Family { outlives_session: true, ..bound("offline") };
        for (name, family) in [("online", bound("online")), ("offline", lasting)] {
            let issue = begin_family(family, None, token(name, &ada));
            store.write(issue).await.unwrap();
        }
        let end = |user: &str| EndSession {
            sid: "sid-b".into(), user_id: user.into(), revocation: revocation("b"), deliver_until: None,
            now: NOW.plus(LATER),
        };
        assert!(!store.write(end("somebody else")).await.unwrap());
        assert!(store.write(end(&ada.id)).await.unwrap());
        assert!(!store.write(end(&ada.id)).await.unwrap());
        assert_eq!(store.sessions_of(&ada.id, NOW).await.unwrap(), []);
        assert!(!is_active(&store, &digest("online")).await);
        assert!(is_active(&store, &digest("offline")).await);
        assert_eq!(store.head().await.unwrap().seq, 1);
    }

    async fn failures_of_all_nodes_are_counted(database: Database) {
        let stores = database.open_all().await;
        let mut failures = tokio::task::JoinSet::new();
        for n in 0..40 {
            let store = stores[n % stores.len()].clone();
            failures.spawn(async move {
                loop {
                    let from = store.attempts("user:ada").await.unwrap();
                    let failures = from.map_or(0, |from| from.failures) + 1;
                    let to = Attempts {
                        failures,
                        first_at: NOW,
                        last_at: NOW.plus(Duration::from_secs(n as u64)),
                        locked_until: NOW,
                        expires_at: NOW.plus(LATER),
                    };
                    let record = RecordAttempt { subject: "user:ada".into(), previous: from, next: to };
                    if store.write(record).await.unwrap() {
                        return;
                    }
                }
            });
        }
        failures.join_all().await;
        let store = &stores[0];
        assert_eq!(store.attempts("user:ada").await.unwrap().unwrap().failures, 40);
        assert_eq!(store.delete_expired(NOW, LATER).await.unwrap().expired, 0);
        store.write(DeleteAttempts { subject: "user:ada".into() }).await.unwrap();
        assert_eq!(store.attempts("user:ada").await.unwrap(), None);
    }

    async fn consent_is_remembered_until_withdrawn(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        assert_eq!(store.consent(&ada.id, "notebook").await.unwrap(), None);
        let consent = |scopes: &str| Consent {
            user_id: ada.id.clone(), client_id: "notebook".into(), scopes: scopes.into(), given_at: NOW,
        };
        let give = |before: Option<&str>, scopes: &str| GiveConsent { consent: consent(scopes), previous_scopes: before.map(str::to_owned) };
        assert!(!store.write(give(Some("openid"), "openid mail")).await.unwrap(), "there is none any more");
        assert!(store.write(give(None, "openid")).await.unwrap());
        assert!(!store.write(give(None, "mail")).await.unwrap(), "there is one meanwhile");
        assert!(store.write(give(Some("openid"), "openid profile")).await.unwrap());
        assert!(!store.write(give(Some("openid"), "openid mail")).await.unwrap(), "another one meanwhile");
        assert_eq!(store.consents_of(&ada.id).await.unwrap(), [consent("openid profile")]);
        assert_eq!(store.consent(&ada.id, "notebook").await.unwrap(), Some(consent("openid profile")));
        assert_eq!(store.consent(&ada.id, "another").await.unwrap(), None);
        let issue = begin_family(family("f", &ada), None, token("t", &ada));
        store.write(issue).await.unwrap();
        let withdraw = WithdrawConsent {
            user_id: ada.id.clone(), client_id: "notebook".into(), revocation: revocation("f"), now: NOW,
        };
        assert!(store.write(withdraw.clone()).await.unwrap());
        assert!(!store.write(withdraw).await.unwrap());
        assert_eq!(store.consent(&ada.id, "notebook").await.unwrap(), None);
        assert!(!is_active(&store, &digest("t")).await);
    }
}
