//! Account links: one per user, used once.

use std::time::Duration;

use auth::time::Timestamp;
use store::account_links::{IssueAccountLink, LinkKind, UseAccountLink};
use store::users::{DeleteUser, EnableUser, RevokeUser, UserRevocation};
use store::{Store, StoredDigest};

use crate::databases::{NOW, add_user, digest, on_both, password, revocation};

const HOUR: Duration = Duration::from_hours(1);

async fn read_at(store: &Store) -> Timestamp {
    store.user("id-ada").await.unwrap().unwrap().read_at
}

/// Issues a link of Ada; whether it is stored.
pub(crate) async fn issue(store: &Store, name: &str) -> bool {
    let change = IssueAccountLink {
        user_id: "id-ada".into(),
        read_at: read_at(store).await,
        digest: digest(name),
        kind: LinkKind::Reset,
        now: NOW,
        expires_at: NOW.plus(HOUR),
    };
    store.write(change).await.unwrap()
}

async fn works(store: &Store, link: &StoredDigest, at: Timestamp) -> bool {
    store.account_link(link, at).await.unwrap().is_some()
}

fn end(account_change: UserRevocation, now: Timestamp) -> RevokeUser {
    RevokeUser {
        user_id: "id-ada".into(),
        account_change,
        revocation: revocation("ada"),
        deliver_until: None,
        now,
    }
}

fn use_link(name: &str, read_at: Timestamp, now: Timestamp) -> UseAccountLink {
    UseAccountLink { digest: digest(name), read_at, end: end(UserRevocation::Password(password("new")), now) }
}

on_both! {
    async fn a_link_works_once_until_it_expires(database: Database) {
        let store = database.open().await;
        add_user(&store, "ada").await;
        assert!(issue(&store, "a").await);
        let link = store.account_link(&digest("a"), NOW).await.unwrap().unwrap();
        assert_eq!((&*link.user.id, link.kind, link.expires_at), ("id-ada", LinkKind::Reset, NOW.plus(HOUR)));
        assert!(!works(&store, &digest("b"), NOW).await && !works(&store, &digest("a"), NOW.plus(HOUR)).await);

        let read = read_at(&store).await;
        assert!(!store.write(use_link("a", read, NOW.plus(HOUR))).await.unwrap(), "it has expired");
        assert!(!store.write(use_link("b", read, NOW)).await.unwrap(), "another secret");
        assert_eq!(store.user_by_login("ada").await.unwrap().unwrap().1, Some(password("old")));
        assert!(store.write(use_link("a", read, NOW)).await.unwrap());
        assert_eq!(store.user_by_login("ada").await.unwrap().unwrap().1, Some(password("new")));
        assert!(!works(&store, &digest("a"), NOW).await);
        assert!(!store.write(use_link("a", read_at(&store).await, NOW)).await.unwrap());
    }

    async fn only_one_of_many_uses_succeeds(database: Database) {
        let store = database.open().await;
        add_user(&store, "ada").await;
        issue(&store, "a").await;
        let read = read_at(&store).await;
        let tasks = (0..8).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.write(use_link("a", read, NOW)).await.unwrap() })
        });
        let mut used = 0;
        for task in tasks.collect::<Vec<_>>() {
            used += usize::from(task.await.unwrap());
        }
        assert_eq!(used, 1);
    }

    async fn a_newer_link_and_every_revocation_replace_it(database: Database) {
        let store = database.open().await;
        add_user(&store, "ada").await;
        issue(&store, "a").await;
        assert!(issue(&store, "b").await);
        assert!(!works(&store, &digest("a"), NOW).await && works(&store, &digest("b"), NOW).await);
        for (name, change) in [
            ("c", UserRevocation::Password(password("other"))),
            ("d", UserRevocation::Everything),
            ("e", UserRevocation::Disabled),
        ] {
            assert!(issue(&store, name).await);
            assert!(store.write(end(change, NOW)).await.unwrap());
            assert!(!works(&store, &digest(name), NOW).await, "{name}");
        }
        assert!(!issue(&store, "f").await, "the account is disabled");
        assert!(store.write(EnableUser { user_id: "id-ada".into(), now: NOW }).await.unwrap());
        assert!(!works(&store, &digest("e"), NOW).await, "what was revoked stays revoked");
        assert!(issue(&store, "g").await);
        let delete = DeleteUser {
            user_id: "id-ada".into(), revocation: revocation("ada"), deliver_until: None, now: NOW,
        };
        assert!(store.write(delete).await.unwrap());
        assert!(!works(&store, &digest("g"), NOW).await);
    }

    async fn expired_links_are_deleted(database: Database) {
        let store = database.open().await;
        add_user(&store, "ada").await;
        issue(&store, "a").await;
        let swept = store.delete_expired(NOW.plus(HOUR), HOUR).await.unwrap();
        assert_eq!(swept.expired, 1);
    }
}
