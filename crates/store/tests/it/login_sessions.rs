//! Login sessions: who may refresh one, and what ends them.

use std::collections::BTreeSet;
use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, Connection as _};
use store::ended_logins::LoginEndings;
use store::login_sessions::{
    BeginLoginSession, ClaimLoginSession, EndLoginSession, EndLoginSessions, LoginSessionRow,
    LoginSessionsOf, ReleaseLoginSession, ReplaceLoginSession,
};
use store::sessions::SessionRow;
use store::{Change, Epoch, Store, StoredDigest};
use tokio::task::JoinSet;

use crate::databases::{Database, EPOCH, NOW, add_user, digest, on_both};
use crate::people::{begin, session};

const INSTANT: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

pub(crate) fn login_session(name: &str) -> LoginSessionRow {
    LoginSessionRow {
        id: digest(name),
        subject: digest("ada"),
        sid: None,
        began_at: NOW,
        expires_at: NOW.plus(HOUR),
        version: 0,
        content: (0..=255).collect(),
    }
}

async fn keep(store: &Store, session: &LoginSessionRow) {
    store.write(BeginLoginSession(session.clone())).await.unwrap();
}

fn claim(name: &str, version: u64, now: Timestamp) -> ClaimLoginSession {
    ClaimLoginSession { id: digest(name), version, now, until: now.plus(MINUTE) }
}

fn replace(name: &str, version: u64, content: &str) -> ReplaceLoginSession {
    ReplaceLoginSession { id: digest(name), version, content: content.into() }
}

fn release(name: &str, version: u64) -> ReleaseLoginSession {
    ReleaseLoginSession { id: digest(name), version }
}

/// Makes all changes at once, each at another node than the one before. Returns their outputs.
async fn at_once<C: Change>(stores: &[Store], changes: impl IntoIterator<Item = C>) -> Vec<C::Output> {
    let mut writes = JoinSet::new();
    for (n, change) in changes.into_iter().enumerate() {
        let store = stores[n % stores.len()].clone();
        writes.spawn(async move { store.write(change).await.unwrap() });
    }
    writes.join_all().await
}

/// The names of those sessions that exist.
async fn alive<'n>(store: &Store, names: &[&'n str]) -> Vec<&'n str> {
    let mut alive = Vec::new();
    for name in names {
        if store.login_session(&digest(name), NOW).await.unwrap().is_some() {
            alive.push(*name);
        }
    }
    alive
}

fn sorted(mut ids: Vec<StoredDigest>) -> Vec<[u8; 32]> {
    ids.sort_by_key(|id| id.0);
    ids.into_iter().map(|id| id.0).collect()
}

/// Inserts `count` sessions that ended before [`NOW`], directly into the table.
async fn keep_ended(database: &Database, count: u32) {
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    for first in (0..count).step_by(250) {
        let ids: Vec<[u8; 32]> =
            (first..count.min(first + 250)).map(|n| digest(&format!("ended-{n}")).0).collect();
        let rows: Vec<String> =
            (0..ids.len()).map(|n| format!("(${}, $1, NULL, 0, 1, 0, $1)", n + 2)).collect();
        let statement = format!(
            "INSERT INTO login_sessions (id, subject, sid, began, ends, version, content) VALUES {}",
            rows.join(", ")
        );
        let mut insert = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(&[1; 32][..]);
        for id in &ids {
            insert = insert.bind(&id[..]);
        }
        insert.execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
}

on_both! {
    async fn whoever_shares_a_database_reads_what_ended_in_the_order_in_which_it_did(database: Database) {
        let stores = database.open_all().await;
        let (one, other) = (&stores[0], stores.last().unwrap());
        let within = Duration::from_mins(1);
        let read = async |store: &Store, after| store.login_endings(after, within).await.unwrap();
        assert_eq!(read(other, 0).await, LoginEndings { continue_after: 0, sessions: Vec::new(), more: false });
        for name in ["a", "b", "c"] {
            one.write(BeginLoginSession(login_session(name))).await.unwrap();
        }
        assert!(one.write(EndLoginSession { id: digest("b") }).await.unwrap().is_some());
        assert!(one.write(EndLoginSession { id: digest("b") }).await.unwrap().is_none());
        assert_eq!(read(other, 0).await, LoginEndings { continue_after: 1, sessions: vec![digest("b")], more: false });
        let of = LoginSessionsOf::Subject(login_session("a").subject);
        assert_eq!(other.write(EndLoginSessions { selection: of, began: NOW }).await.unwrap().len(), 2);
        let LoginEndings { continue_after: position, sessions, .. } = read(one, 1).await;
        let told: BTreeSet<_> = sessions.iter().map(|id| id.0).collect();
        assert_eq!((position, told), (3, BTreeSet::from([digest("a").0, digest("c").0])));
        assert_eq!(read(one, 3).await, LoginEndings { continue_after: 3, sessions: Vec::new(), more: false });
        assert_eq!(read(one, 77).await.continue_after, 3, "of another database: from the beginning");
        let over = LoginEndings { continue_after: 3, sessions: Vec::new(), more: false };
        assert_eq!(one.login_endings(0, Duration::ZERO).await.unwrap(), over, "too long ago to matter, and to be looked through again");

        // Endings of several nodes are in one order, without gaps.
        let mut nodes = JoinSet::new();
        for n in 0..40 {
            let store = stores[n % stores.len()].clone();
            nodes.spawn(async move {
                let name = format!("s{n}");
                store.write(BeginLoginSession(login_session(&name))).await.unwrap();
                assert!(store.write(EndLoginSession { id: digest(&name) }).await.unwrap().is_some());
            });
        }
        let (mut after, mut heard) = (3, 0);
        while heard < 40 {
            let LoginEndings { continue_after: position, sessions, .. } = read(one, after).await;
            assert_eq!(position - after, sessions.len() as u64, "nothing is left out");
            (after, heard) = (position, heard + sessions.len());
        }
        nodes.join_all().await;
        assert_eq!(read(other, 43).await.continue_after, 43);
    }

    async fn a_login_session_is_found_until_it_ends(database: Database) {
        let store = database.open().await;
        let one = login_session("one");
        let other = LoginSessionRow {
            id: digest("other"), sid: Some(digest("sid")), content: Vec::new(), expires_at: Timestamp::MAX, ..one.clone()
        };
        keep(&store, &one).await;
        keep(&store, &other).await;
        assert_eq!(store.login_session(&one.id, NOW).await.unwrap(), Some(one.clone()));
        assert_eq!(store.login_session(&other.id, NOW).await.unwrap(), Some(other.clone()));
        assert_eq!(store.login_session(&digest("none"), NOW).await.unwrap(), None);
        let before = Timestamp::from_millis(one.expires_at.as_millis() - 1);
        assert_eq!(store.login_session(&one.id, before).await.unwrap(), Some(one.clone()));
        assert_eq!(store.login_session(&one.id, one.expires_at).await.unwrap(), None, "ended means now >= ends");
        let never = Timestamp::from_millis(i64::MAX.unsigned_abs() - 1);
        assert_eq!(store.login_session(&other.id, never).await.unwrap(), Some(other));

        let again = store.write(BeginLoginSession(LoginSessionRow { version: 7, ..one.clone() })).await;
        assert_eq!(again.unwrap_err().to_string(), "the name of a login session is already in use: choose another");
        assert_eq!(store.login_session(&one.id, NOW).await.unwrap(), Some(one));
    }

    async fn one_of_many_may_refresh(database: Database) {
        let stores = database.open_all().await;
        for round in 0..5 {
            let name = format!("s-{round}");
            keep(&stores[0], &login_session(&name)).await;
            let claimed = at_once(&stores, (0..100).map(|_| claim(&name, 0, NOW))).await;
            assert_eq!(claimed.iter().filter(|claimed| **claimed).count(), 1, "{claimed:?}");
        }
    }

    async fn many_may_refresh_one_each_in_whatever_order(database: Database) {
        let stores = database.open_all().await;
        let names: Vec<String> = (0..40).map(|n| format!("s-{n}")).collect();
        for name in &names {
            keep(&stores[0], &login_session(name)).await;
        }
        // 7 and 33 have no factor in common with 40, so each order contains every name.
        let claims = (0..20).flat_map(|round| {
            let names = &names;
            (0..40).map(move |n| claim(&names[(round * 13 + n * if round % 2 == 0 { 7 } else { 33 }) % 40], 0, NOW))
        });
        let claimed = at_once(&stores, claims).await;
        assert_eq!(claimed.iter().filter(|claimed| **claimed).count(), names.len());
        let again = at_once(&stores, names.iter().map(|name| claim(name, 0, NOW))).await;
        assert!(again.iter().all(|claimed| !claimed), "each has its one already: {again:?}");
    }

    async fn the_right_to_refresh_is_of_one_version_and_passes(database: Database) {
        let store = database.open().await;
        let kept = login_session("s");
        keep(&store, &kept).await;
        for refused in [claim("s", 1, NOW), claim("s", u64::MAX, NOW), claim("none", 0, NOW), claim("s", 0, kept.expires_at)] {
            assert!(!store.write(refused.clone()).await.unwrap(), "{refused:?}");
        }
        assert!(store.write(claim("s", 0, NOW)).await.unwrap());
        let until = NOW.plus(MINUTE);
        assert!(!store.write(claim("s", 0, Timestamp::from_millis(until.as_millis() - 1))).await.unwrap());
        assert!(store.write(claim("s", 0, until)).await.unwrap(), "whoever had it did not come back");
        assert!(!store.write(claim("s", 0, until.plus(INSTANT))).await.unwrap());
        assert_eq!(store.login_session(&kept.id, NOW).await.unwrap(), Some(kept), "a claim changes nothing else");
    }

    async fn the_right_to_refresh_is_given_back(database: Database) {
        let store = database.open().await;
        keep(&store, &login_session("s")).await;
        keep(&store, &login_session("t")).await;
        assert!(!store.write(release("s", 0)).await.unwrap(), "nobody had it");
        for name in ["s", "t"] {
            assert!(store.write(claim(name, 0, NOW)).await.unwrap());
        }
        for other in [release("s", 1), release("none", 0)] {
            assert!(!store.write(other).await.unwrap());
        }
        assert!(!store.write(claim("s", 0, NOW)).await.unwrap());
        assert!(store.write(release("s", 0)).await.unwrap());
        assert!(store.write(claim("s", 0, NOW)).await.unwrap());
        assert!(!store.write(claim("t", 0, NOW)).await.unwrap(), "the other's is its own");
    }

    async fn a_content_is_replaced_from_the_version_that_was_read(database: Database) {
        let stores = database.open_all().await;
        let store = &stores[0];
        let kept = LoginSessionRow { sid: Some(digest("sid")), ..login_session("s") };
        keep(store, &kept).await;
        keep(store, &login_session("t")).await;
        assert!(store.write(claim("s", 0, NOW)).await.unwrap());
        for wrong in [replace("s", 1, "x"), replace("s", u64::MAX, "x"), replace("none", 0, "x")] {
            assert!(!store.write(wrong.clone()).await.unwrap(), "{wrong:?}");
        }
        assert_eq!(store.login_session(&kept.id, NOW).await.unwrap(), Some(kept.clone()));
        assert!(!store.write(claim("s", 0, NOW)).await.unwrap(), "what changed nothing gave nothing back");

        let replaced = at_once(&stores, (0..100).map(|n| replace("s", 0, &format!("content {n}")))).await;
        assert_eq!(replaced.iter().filter(|replaced| **replaced).count(), 1);
        let found = store.login_session(&kept.id, NOW).await.unwrap().unwrap();
        assert!(found.content.starts_with(b"content "));
        assert_eq!(found, LoginSessionRow { version: 1, content: found.content.clone(), ..kept });
        assert!(!store.write(claim("s", 0, NOW)).await.unwrap(), "it is another version");
        assert!(store.write(claim("s", 1, NOW)).await.unwrap(), "the right to refresh was given back");
        assert!(store.write(replace("s", 1, "")).await.unwrap());
        let found = store.login_session(&kept.id, NOW).await.unwrap().unwrap();
        assert_eq!((found.version, found.content), (2, Vec::new()));
        assert_eq!(store.login_session(&digest("t"), NOW).await.unwrap(), Some(login_session("t")));
    }

    async fn what_has_ended_is_not_there_for_anybody(database: Database) {
        let stores = database.open_all().await;
        keep(&stores[0], &login_session("s")).await;
        keep(&stores[0], &login_session("t")).await;
        let ended = at_once(&stores, (0..20).map(|_| EndLoginSession { id: digest("s") })).await;
        let contents: Vec<_> = ended.into_iter().flatten().collect();
        assert_eq!(contents, [login_session("s").content], "it ends once, and is given back as it was last");
        assert!(!stores[0].write(claim("s", 0, NOW)).await.unwrap());
        assert!(!stores[0].write(replace("s", 0, "x")).await.unwrap(), "a refresh does not bring it back");
        assert!(!stores[0].write(release("s", 0)).await.unwrap());
        for store in &stores {
            assert_eq!(alive(store, &["s", "t"]).await, ["t"]);
        }
        assert_eq!(stores[0].head().await.unwrap().seq, 0, "the log of revocations is not told");
    }

    async fn those_of_a_person_or_of_a_providers_session_end(database: Database) {
        let store = database.open().await;
        let (early, late) = (Timestamp::from_millis(NOW.as_millis() - 1), NOW.plus(INSTANT));
        let (x, y) = (Some(digest("x")), Some(digest("y")));
        for (name, subject, sid, began) in [
            ("ada-x-early", "ada", x, early), ("ada-x-now", "ada", x, NOW), ("ada-x-late", "ada", x, late),
            ("ada-y", "ada", y, NOW), ("ada-none", "ada", None, NOW), ("eve-x", "eve", x, NOW),
            ("eve-none", "eve", None, NOW),
            // A provider session and a user with the same digest must not be confused.
            ("x-ada", "x", Some(digest("ada")), NOW),
        ] {
            keep(&store, &LoginSessionRow { subject: digest(subject), sid, began_at: began, ..login_session(name) }).await;
        }
        let ends = |of, began| store.write(EndLoginSessions { selection: of, began });
        let nobody = ends(LoginSessionsOf::Sid(digest("z")), Timestamp::MAX).await.unwrap();
        assert_eq!(nobody, []);
        let ended = ends(LoginSessionsOf::Sid(digest("x")), NOW).await.unwrap();
        assert_eq!(sorted(ended), sorted(vec![digest("ada-x-early"), digest("ada-x-now"), digest("eve-x")]));
        assert_eq!(ends(LoginSessionsOf::Sid(digest("x")), NOW).await.unwrap(), [], "they end once");
        let names = ["ada-x-late", "ada-y", "ada-none", "eve-none", "x-ada"];
        assert_eq!(alive(&store, &names).await, names);
        let ended = ends(LoginSessionsOf::Subject(digest("ada")), NOW).await.unwrap();
        assert_eq!(sorted(ended), sorted(vec![digest("ada-y"), digest("ada-none")]));
        assert_eq!(alive(&store, &names).await, ["ada-x-late", "eve-none", "x-ada"]);
        assert_eq!(ends(LoginSessionsOf::Subject(digest("ada")), Timestamp::MAX).await.unwrap(), [digest("ada-x-late")]);
    }

    async fn each_end_is_told_to_one(database: Database) {
        let stores = database.open_all().await;
        let names: Vec<String> = (0..60).map(|n| format!("s-{n}")).collect();
        for name in &names {
            keep(&stores[0], &LoginSessionRow { sid: Some(digest("sid")), ..login_session(name) }).await;
        }
        let ends = (0..20).map(|n| EndLoginSessions {
            selection: if n % 2 == 0 { LoginSessionsOf::Sid(digest("sid")) } else { LoginSessionsOf::Subject(digest("ada")) },
            began: NOW,
        });
        let told: Vec<StoredDigest> = at_once(&stores, ends).await.concat();
        assert_eq!(told.len(), names.len());
        let told: BTreeSet<[u8; 32]> = told.into_iter().map(|id| id.0).collect();
        assert_eq!(told, names.iter().map(|name| digest(name).0).collect());
    }

    async fn what_has_ended_is_forgotten_however_much_it_is(database: Database) {
        let store = database.open().await;
        let kept = login_session("s");
        keep(&store, &kept).await;
        keep_ended(&database, 20_300).await;
        assert_eq!(store.delete_expired_login_sessions(Timestamp::from_millis(0)).await.unwrap(), 0);
        assert_eq!(store.delete_expired_login_sessions(NOW).await.unwrap(), 20_300);
        assert_eq!(store.delete_expired_login_sessions(NOW).await.unwrap(), 0);
        assert_eq!(store.login_session(&kept.id, NOW).await.unwrap(), Some(kept.clone()));
        keep_ended(&database, 3).await;
        assert_eq!(store.delete_expired(NOW, HOUR).await.unwrap().expired, 3, "the provider's sweep does it too");
        assert_eq!(store.delete_expired_login_sessions(kept.expires_at).await.unwrap(), 1);
    }

    async fn a_gateway_and_a_provider_share_a_database(database: Database) {
        let (provider, gateway) = tokio::join!(
            Store::open(&database.url, EPOCH),
            Store::open(&database.url, Epoch([8; 16]))
        );
        let (provider, gateway) = (provider.unwrap(), gateway.unwrap());
        assert_eq!(provider.head().await.unwrap(), gateway.head().await.unwrap(), "one history for both");
        let ada = add_user(&provider, "ada").await;
        let mut writes = JoinSet::new();
        for n in 0..200 {
            let (provider, gateway) = (provider.clone(), gateway.clone());
            let (name, ada) = (format!("s-{n}"), ada.clone());
            writes.spawn(async move {
                // The names are equal on both sides, but do not refer to each other.
                let own = begin(SessionRow { expires_at: NOW.plus(HOUR), ..session(&name, &ada) }, None);
                let session = BeginLoginSession(login_session(&name));
                let (begun, kept) = tokio::join!(provider.write(own), gateway.write(session));
                (begun.unwrap().is_some(), kept.unwrap()) == (true, ())
                    && gateway.write(claim(&name, 0, NOW)).await.unwrap()
            });
        }
        assert!(writes.join_all().await.into_iter().all(|made| made));
        assert_eq!(provider.sessions(None, "", 500, NOW).await.unwrap().len(), 200);
        let of = LoginSessionsOf::Subject(digest("ada"));
        assert_eq!(gateway.write(EndLoginSessions { selection: of, began: NOW }).await.unwrap().len(), 200);
        assert_eq!(provider.sessions(None, "", 500, NOW).await.unwrap().len(), 200);
    }

    async fn a_database_of_the_version_before_goes_on(database: Database) {
        let before = database.open().await;
        let ada = add_user(&before, "ada").await;
        let mut connection = AnyConnection::connect(&database.url).await.unwrap();
        for statement in ["DROP TABLE login_sessions", "DELETE FROM _sqlx_migrations WHERE version = 2"] {
            sqlx::query(statement).execute(&mut connection).await.unwrap();
        }
        let next = database.open().await;
        keep(&next, &login_session("s")).await;
        assert_eq!(alive(&next, &["s"]).await, ["s"]);
        assert_eq!(next.user(&ada.id).await.unwrap(), Some(ada), "what was there is there");
        add_user(&before, "eve").await;
    }
}
