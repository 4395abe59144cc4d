//! Concurrent changes of several nodes, in any order: none of them deadlock. A database would
//! detect a deadlock after a second and abort one transaction.

use std::time::Duration;

use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};
use store::families::Family;
use store::redeem::{Redeem, RedeemResult};
use store::sessions::{EndSession, TouchSession};
use store::users::{AddUser, ChangeUser, RevokeUser, UserRevocation, UserRow};
use store::{Change, Store, StoreError, Tx};

use crate::databases::{Database, NOW, add_user, begin_family, digest, family, on_both, revocation, user};
use crate::grants::{access, redeem_refresh, refresh};
use crate::people::{begin, session};

const LATER: Duration = Duration::from_mins(1);
const MANY: usize = 40;

/// Number of deadlocks, known once all connections are closed.
async fn deadlocks(database: &Database) -> i64 {
    if database.url.starts_with("sqlite") {
        return 0;
    }
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    let ask = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    connection.fetch_one(ask).await.unwrap().get(0)
}

/// Adds a session with a family for each of two clients, and their refresh tokens.
async fn two_clients(store: &Store, n: usize) {
    let ada = add_user(store, &format!("u{n}")).await;
    store.write(begin(session(&format!("s{n}"), &ada), None)).await.unwrap();
    for app in ["a", "b"] {
        let name = format!("{app}{n}");
        let bound = Family { sid: Some(format!("sid-s{n}")), ..family(&name, &ada) };
        let family = begin_family(bound, Some(refresh(&name)), access(&format!("x{name}"), Some(&ada)));
        assert!(store.write(family).await.unwrap());
    }
}

/// Ends users, then adds one.
struct EndAndAdd(Vec<RevokeUser>, AddUser);

impl Change for EndAndAdd {
    type Output = ();

    fn assigns_names(&self) -> bool {
        self.1.assigns_names()
    }

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        for end in &self.0 {
            end.apply(tx).await?;
        }
        self.1.apply(tx).await
    }
}

fn rename(from: &UserRow) -> ChangeUser {
    ChangeUser {
        from: from.clone(),
        name: format!("{}-new", from.name),
        email: None,
        email_verified_at: None,
        claims: "{}".into(),
        revocation: revocation("renamed"),
        now: NOW.plus(LATER),
    }
}

on_both! {
    async fn refreshes_of_one_session_wait_in_no_circle(database: Database) {
        let stores = database.open_all().await;
        for n in 0..MANY {
            two_clients(&stores[0], n).await;
        }
        for round in 0..4 {
            // Two clients of each session refresh at two nodes, one of them in the opposite order.
            let redeem = |app: &str, n: usize| {
                let (old, new) = (format!("{app}{n}{}", ".".repeat(round)), format!("{app}{n}{}", ".".repeat(round + 1)));
                redeem_refresh(&old, &new, NOW.plus(LATER * u32::try_from(round + 1).unwrap()))
            };
            let forth: Vec<Redeem> = (0..MANY).map(|n| redeem("a", n)).collect();
            let back: Vec<Redeem> = (0..MANY).rev().map(|n| redeem("b", n)).collect();
            let seen = TouchSession { digest: digest("s3"), now: NOW.plus(LATER * 9) };
            let last = stores.last().unwrap();
            let (forth, back, seen) = tokio::join!(stores[0].write(forth), last.write(back), last.write(seen));
            for redeemed in [forth.unwrap(), back.unwrap()] {
                assert!(redeemed.iter().all(|redeemed| *redeemed == RedeemResult::Redeemed), "{redeemed:?}");
            }
            seen.unwrap();
        }
        for n in 0..MANY {
            let seen = stores[0].session_by_sid(&format!("sid-s{n}")).await.unwrap().unwrap().last_used_at;
            assert!(seen >= NOW.plus(LATER * 4), "session {n} was used last at {seen:?}");
        }
        for store in &stores {
            store.close().await;
        }
        assert_eq!(deadlocks(&database).await, 0);
    }

    async fn a_session_that_ends_while_it_is_used_has_ended(database: Database) {
        let stores = database.open_all().await;
        for n in 0..MANY {
            two_clients(&stores[0], n).await;
            let (a, b) = (format!("a{n}"), format!("b{n}"));
            let now = NOW.plus(LATER);
            let end = EndSession {
                sid: format!("sid-s{n}"),
                user_id: format!("id-u{n}"),
                revocation: revocation("session"),
                deliver_until: None,
                now,
            };
            let last = stores.last().unwrap();
            let (one, ended, other) = tokio::join!(
                stores[0].write(redeem_refresh(&a, &format!("{a}."), now)),
                last.write(end),
                last.write(redeem_refresh(&b, &format!("{b}."), now)),
            );
            assert!(ended.unwrap());
            for redeemed in [one.unwrap(), other.unwrap()] {
                assert!(matches!(redeemed, RedeemResult::Redeemed | RedeemResult::Invalid), "{redeemed:?}");
            }
            let session = stores[0].session_by_sid(&format!("sid-s{n}")).await.unwrap().unwrap();
            assert_eq!(session.ended_at, Some(now));
            for family in [&a, &b] {
                let family = stores[0].family(family).await.unwrap().unwrap();
                assert!(family.revoked_at.is_some(), "{family:?}");
            }
        }
    }

    async fn a_refresh_does_not_wait_for_whoever_has_its_session(database: Database) {
        let store = database.open().await;
        two_clients(&store, 0).await;
        // SQLite's single writer cannot deadlock.
        if database.nodes > 1 {
            let mut other = AnyConnection::connect(&database.url).await.unwrap();
            let mut held = other.begin().await.unwrap();
            held.execute("SELECT 1 FROM sessions WHERE sid = 'sid-s0' FOR UPDATE").await.unwrap();
            let refreshed = store.write(redeem_refresh("a0", "a0.", NOW.plus(LATER)));
            let refreshed = tokio::time::timeout(Duration::from_secs(4), refreshed).await.expect("it waits");
            assert_eq!(refreshed.unwrap(), RedeemResult::Redeemed);
            held.rollback().await.unwrap();
        }
        assert_eq!(store.write(redeem_refresh("b0", "b0.", NOW.plus(LATER))).await.unwrap(), RedeemResult::Redeemed);
        assert_eq!(store.session_by_sid("sid-s0").await.unwrap().unwrap().last_used_at, NOW.plus(LATER));
    }

    async fn who_gives_names_waits_in_no_circle(database: Database) {
        let stores = database.open_all().await;
        for round in 0..4 {
            let mut users = Vec::new();
            for n in 0..MANY {
                users.push(add_user(&stores[0], &format!("{round}-{n}")).await);
            }
            let end = |user: &UserRow| RevokeUser {
                user_id: user.id.clone(),
                account_change: UserRevocation::Everything,
                revocation: revocation("user"),
                deliver_until: None,
                now: NOW.plus(LATER),
            };
            let add = AddUser { user: user(&format!("{round}-another")), password: None };
            let ended = EndAndAdd(users.iter().map(end).collect(), add);
            // The opposite order of rows would be another deadlock.
            let renamed: Vec<_> = users.iter().map(rename).collect();
            let last = stores.last().unwrap();
            let (ended, renamed) = tokio::join!(stores[0].write(ended), last.write(renamed));
            ended.unwrap();
            assert!(renamed.unwrap().into_iter().all(|renamed| renamed));
        }
        for store in &stores {
            store.close().await;
        }
        assert_eq!(deadlocks(&database).await, 0);
    }
}
