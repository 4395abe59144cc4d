//! Audit log: appending entries and detecting modifications.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, Connection as _, Executor as _};
use store::audit::{AuditEntry, AuditFilter, Audited, AuditedBy, BrokenChain, VerifiedLog};
use store::audit_receivers::{RegisterAuditReceiver, ReleaseAuditReceiver, TakeAuditReceiver};
use store::groups::AddGroup;
use store::login_attempts::DeleteAttempts;
use store::security_events::{ReleaseReceiver, TakeReceiver, TakenReceiver};
use store::{Store, StoreError};

use crate::databases::{Database, NOW, on_both, plan};

const MINUTE: Duration = Duration::from_mins(1);
/// Entries of the log in which filters search.
const MANY: i64 = 100_000;

fn entry(target: &str) -> AuditEntry {
    AuditEntry {
        actor: "operator:root".into(),
        action: "group.add".into(),
        target: format!("group:{target}"),
        detail: "{}".into(),
        at: NOW,
        user_id: None,
        client_id: None,
    }
}

fn audited(name: &str) -> Audited<AddGroup> {
    Audited { change: AddGroup { id: name.into(), name: name.into(), now: NOW }, entry: entry(name) }
}

/// Fills the log with entries of a thousand users and five hundred clients, two each second, without digests.
async fn fill(database: &Database) -> AnyConnection {
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    let fill = format!(
        "INSERT INTO audit_log (seq, at, actor, action, target, detail, user_id, client_id, digest) \
         WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < {MANY}) \
         SELECT seq, {} + seq * 500, 'user:u' || (seq % 1000), \
         CASE WHEN seq % 5000 = 7 THEN 'user.password' ELSE 'login.success' END, 'session:' || seq, '', \
         'u' || (seq % 1000), 'c' || (seq % 500), {} FROM n",
        NOW.as_millis(),
        "(SELECT digest FROM audit_head)"
    );
    connection.execute(sqlx::AssertSqlSafe(fill)).await.unwrap();
    connection.execute("ANALYZE").await.unwrap();
    connection
}

/// How the database finds the entries of a filter, in its own words.
async fn plan_of(database: &Database, filter: &AuditFilter<'_>) -> String {
    let texts = [filter.user_id, filter.client_id, filter.actor, filter.action];
    let texts = texts.into_iter().flatten().map(|text| format!("'{text}'"));
    let numbers = ["0", "9000000000000000000", "100", "0", "9000000000000000000"].map(str::to_owned);
    plan(database, &filter.statement(), &numbers.into_iter().chain(texts).collect::<Vec<_>>()).await
}

async fn numbers(store: &Store, filter: AuditFilter<'_>, after: u64, limit: u32) -> Vec<u64> {
    store.audit_entries(&filter, after, limit).await.unwrap().iter().map(|found| found.seq).collect()
}

fn take(name: &str, now: Timestamp) -> TakeAuditReceiver {
    TakeAuditReceiver(TakeReceiver { receiver: name.into(), lease: MINUTE, now })
}

fn release(name: &str, from: u64, to: u64, due_at: Timestamp) -> ReleaseAuditReceiver {
    ReleaseAuditReceiver(ReleaseReceiver { receiver: name.into(), from, to, failures: 0, due_at })
}

on_both! {
    async fn filters_find_their_entries_by_an_index(database: Database) {
        let store = database.open().await;
        let mut connection = fill(&database).await;
        let all = AuditFilter::default();
        let user = AuditFilter { user_id: Some("u7"), ..all };
        let (client, actor) =
            (AuditFilter { client_id: Some("c7"), ..all }, AuditFilter { actor: Some("user:u7"), ..all });
        let action = AuditFilter { action: Some("user.password"), ..all };
        let both = AuditFilter { action: Some("user.password"), ..user };
        for (filter, index) in [
            (user, "audit_log_user"),
            (client, "audit_log_client"),
            (actor, "audit_log_actor"),
            (action, "audit_log_action"),
            (both, "audit_log_user"),
            (AuditFilter { client_id: Some("c7"), ..both }, "audit_log_user"),
        ] {
            let plan = plan_of(&database, &filter).await;
            assert!(plan.contains(index), "{filter:?}: {plan}");
        }
        assert_eq!(numbers(&store, user, 0, 3).await, [7, 1007, 2007]);
        assert_eq!(numbers(&store, user, 1007, 2).await, [2007, 3007], "after the last of a page");
        assert_eq!(numbers(&store, user, 0, 1_000).await.len(), 100);
        assert_eq!(numbers(&store, client, 0, 2).await, [7, 507]);
        assert_eq!(numbers(&store, actor, 0, 2).await, [7, 1007]);
        assert_eq!(numbers(&store, action, 0, 3).await, [7, 5007, 10_007]);
        assert_eq!(numbers(&store, both, 0, 3).await, [7, 5007, 10_007]);
        assert_eq!(numbers(&store, AuditFilter { client_id: Some("c8"), ..user }, 0, 3).await, [0; 0]);
        // Entry n is of the time NOW + n/2 s.
        let at = |seconds| Some(NOW.plus(Duration::from_secs(seconds)));
        assert_eq!(numbers(&store, AuditFilter { since: at(45_000), ..all }, 0, 2).await, [90_000, 90_001]);
        let between = AuditFilter { since: at(45_000), until: at(45_001), ..all };
        assert_eq!(numbers(&store, between, 0, 9).await, [90_000, 90_001]);
        assert_eq!(numbers(&store, AuditFilter { since: at(45_000), ..user }, 0, 2).await, [90_007, 91_007]);
        assert_eq!(numbers(&store, AuditFilter { until: at(1_000), ..user }, 0, 9).await, [7, 1007]);
        assert_eq!(numbers(&store, AuditFilter { since: at(60_000), ..all }, 0, 9).await, [0; 0]);
        assert_eq!(numbers(&store, AuditFilter { until: at(0), ..all }, 0, 9).await, [0; 0]);
        // A node with a clock that is a minute ahead wrote an entry between two others.
        connection.execute("UPDATE audit_log SET at = at + 60000 WHERE seq = 50").await.unwrap();
        let ahead = numbers(&store, AuditFilter { since: at(80), ..all }, 0, 2).await;
        assert_eq!(ahead, [50, 160], "times are compared, whatever their order");
    }

    async fn entries_may_depend_on_what_a_change_finds(database: Database) {
        let store = database.open().await;
        let subject = "account id".to_owned();
        let change = AuditedBy { change: DeleteAttempts { subject }, entries: |(): &()| vec![entry("a"), entry("b")] };
        store.write(change).await.unwrap();
        assert_eq!(store.audit_log(0).await.unwrap().len(), 2);
        assert!(store.verify_audit_log().await.unwrap().is_ok_and(|log| log.last == 2));
    }

    async fn an_entry_concerns_whom_it_names_and_that_is_verified_too(database: Database) {
        let store = database.open().await;
        let named = AuditEntry::new("client:desk", "user.disable", "user:u1", NOW);
        assert_eq!((named.user_id.as_deref(), named.client_id.as_deref()), (Some("u1"), Some("desk")));
        let client = AuditEntry::new("client:desk", "client.disable", "client:shop", NOW);
        assert_eq!((client.user_id.as_deref(), client.client_id.as_deref()), (None, Some("shop")));
        store.write(vec![named.clone(), client]).await.unwrap();
        assert_eq!(numbers(&store, AuditFilter { user_id: Some("u1"), ..AuditFilter::default() }, 0, 9).await, [1]);
        assert_eq!(store.audit_log(0).await.unwrap()[0].entry, named);
        let mut thief = AnyConnection::connect(&database.url).await.unwrap();
        thief.execute("UPDATE audit_log SET user_id = NULL WHERE seq = 1").await.unwrap();
        assert_eq!(store.verify_audit_log().await.unwrap(), Err(BrokenChain(1)));
    }

    async fn receivers_share_their_position(database: Database) {
        let stores = database.open_all().await;
        let (store, other) = (&stores[0], stores.last().unwrap());
        store.write(entry("before")).await.unwrap();
        let register = RegisterAuditReceiver { receiver: "siem".into(), now: NOW };
        store.write(register.clone()).await.unwrap();
        assert_eq!(store.audit_receiver("nobody").await.unwrap(), None);
        store.write(vec![entry("a"), entry("b")]).await.unwrap();
        store.write(register).await.unwrap();
        let state = other.audit_receiver("siem").await.unwrap().unwrap();
        assert_eq!((state.seq, state.head, state.due_at), (1, 3, NOW), "entries from then on");
        assert_eq!(store.write(take("siem", NOW)).await.unwrap(), Some(TakenReceiver { seq: 1, failures: 0 }));
        assert_eq!(other.write(take("siem", NOW)).await.unwrap(), None, "one node at a time");
        // The node that took it dies.
        let later = NOW.plus(MINUTE);
        assert_eq!(other.write(take("siem", later)).await.unwrap(), Some(TakenReceiver { seq: 1, failures: 0 }));
        assert!(other.write(release("siem", 1, 3, later)).await.unwrap());
        assert!(!store.write(release("siem", 1, 2, later)).await.unwrap(), "a position never goes back");
        assert_eq!(store.audit_receiver("siem").await.unwrap().unwrap().seq, 3);
    }

    async fn what_is_done_is_told_and_nothing_else(database: Database) {
        let store = database.open().await;
        store.write(audited("a")).await.unwrap();
        let refused = store.write(audited("a")).await;
        assert!(matches!(refused, Err(StoreError::Taken(_))));
        store.write(entry("alone")).await.unwrap();
        let log = store.audit_log(0).await.unwrap();
        assert_eq!(log.iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(log.iter().map(|r| r.entry.clone()).collect::<Vec<_>>(), [entry("a"), entry("alone")]);
        assert_eq!(store.audit_log(1).await.unwrap(), log[1..]);
        assert_eq!(store.verify_audit_log().await.unwrap(), Ok(VerifiedLog { expired: 0, last: 2, digest: log[1].digest }));
    }

    async fn entries_of_all_nodes_make_one_chain(database: Database) {
        let stores = database.open_all().await;
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..1_200 {
            let store = stores[n % stores.len()].clone();
            writes.spawn(async move { store.write(entry(&n.to_string())).await.unwrap() });
        }
        writes.join_all().await;
        assert!(matches!(stores[0].verify_audit_log().await.unwrap(), Ok(VerifiedLog { last: 1_200, .. })), "over several pages");
    }

    async fn a_changed_log_is_noticed(database: Database) {
        let store = database.open().await;
        for n in 0..5 {
            store.write(entry(&n.to_string())).await.unwrap();
        }
        let mut thief = AnyConnection::connect(&database.url).await.unwrap();
        for (tamper, mend) in [
            ("UPDATE audit_log SET actor = 'nobody' WHERE seq = 3", "UPDATE audit_log SET actor = 'operator:root'"),
            ("UPDATE audit_log SET seq = 9 WHERE seq = 3", "UPDATE audit_log SET seq = 3 WHERE seq = 9"),
            (
                "UPDATE audit_log SET target = 'group:2{', detail = '}' WHERE seq = 3",
                "UPDATE audit_log SET target = 'group:2', detail = '{}' WHERE seq = 3",
            ),
            // The last entries are deleted, as if they had never been written.
            (
                "UPDATE audit_log SET seq = seq + 100 WHERE seq > 2",
                "UPDATE audit_log SET seq = seq - 100 WHERE seq > 100",
            ),
            ("DELETE FROM audit_log WHERE seq > 2", "SELECT 1"),
        ] {
            thief.execute(tamper).await.unwrap();
            assert_eq!(store.verify_audit_log().await.unwrap(), Err(BrokenChain(3)), "{tamper}");
            thief.execute(mend).await.unwrap();
        }
    }
}
