//! Retention of the audit log: old entries expire, the chain still verifies, and nothing else can be
//! deleted unnoticed.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, Connection as _, Executor as _};
use store::Store;
use store::audit::{AuditEntry, BrokenChain, VerifiedLog};
use store::audit_receivers::{RegisterAuditReceiver, ReleaseAuditReceiver, TakeAuditReceiver};
use store::audit_retention::{AuditExpiry, AuditRetention, ExpiredEntries};
use store::security_events::{ReleaseReceiver, TakeReceiver};

use crate::copies::{export, import};
use crate::databases::{Database, NOW, on_both};

const HOUR: Duration = Duration::from_hours(1);

fn day(number: u64) -> Timestamp {
    NOW.plus(Duration::from_hours(24) * u32::try_from(number).unwrap())
}

/// Writes entries of one time.
async fn write(store: &Store, count: usize, at: Timestamp) {
    let entry =
        AuditEntry { detail: "{}".into(), ..AuditEntry::new("operator:root", "group.add", "group:a", at) };
    store.write(vec![entry; count]).await.unwrap();
}

/// Lets entries expire that are older than this number of days.
async fn expire(store: &Store, days: u64, receivers: &[&str], now: Timestamp) -> AuditExpiry {
    let keep = day(days).since(NOW);
    let receivers = receivers.iter().map(|&name| name.to_owned()).collect();
    store.expire_audit_entries(&AuditRetention { keep, receivers }, now).await.unwrap()
}

fn expired(count: u64, last: u64) -> AuditExpiry {
    AuditExpiry::Expired(ExpiredEntries { count, last, undelivered: Vec::new() })
}

/// Numbers of the last expired and of the last entry of an unbroken log.
async fn verified(store: &Store) -> Result<(u64, u64), BrokenChain> {
    let verified = store.verify_audit_log().await.unwrap();
    verified.map(|VerifiedLog { expired, last, .. }| (expired, last))
}

async fn first(store: &Store) -> u64 {
    store.audit_log(0).await.unwrap()[0].seq
}

on_both! {
    async fn old_entries_expire_and_the_rest_verifies(database: Database) {
        let store = database.open().await;
        assert_eq!(expire(&store, 1, &[], day(9)).await, AuditExpiry::NotDue, "an empty log");
        write(&store, 1_500, day(0)).await;
        write(&store, 700, day(10)).await;
        assert_eq!(expire(&store, 31, &[], day(30)).await, AuditExpiry::NotDue, "everything is kept");
        assert_eq!(expire(&store, 25, &[], day(30)).await, expired(1_500, 1_500));
        assert_eq!(verified(&store).await, Ok((1_500, 2_201)), "before the rows are deleted");
        let swept = store.delete_expired(day(30), HOUR).await.unwrap();
        assert_eq!((swept.audit_entries, first(&store).await), (1_500, 1_501));
        assert_eq!(verified(&store).await, Ok((1_500, 2_201)), "and after");
        let record = store.audit_log(2_200).await.unwrap().pop().unwrap().entry;
        assert_eq!((&*record.actor, &*record.action, record.at), ("system", "audit.expire", day(30)));
        assert!(record.detail.contains(r#""last":1500"#) && record.detail.contains(r#""entries":1500"#), "{record:?}");

        assert_eq!(expire(&store, 20, &[], day(30).plus(23 * HOUR)).await, AuditExpiry::NotDue, "once a day");
        assert_eq!(expire(&store, 20, &[], day(31)).await, expired(700, 2_200));
        assert_eq!(store.delete_expired(day(31), HOUR).await.unwrap().audit_entries, 700);
        assert_eq!((first(&store).await, verified(&store).await), (2_201, Ok((2_200, 2_202))));
        // Nothing was written since: even the records of expiry expire, but for the last one.
        assert_eq!(expire(&store, 20, &[], day(99)).await, expired(2, 2_202));
        store.delete_expired(day(99), HOUR).await.unwrap();
        assert_eq!((first(&store).await, verified(&store).await), (2_203, Ok((2_202, 2_203))));
        write(&store, 1, day(99)).await;
        assert_eq!(verified(&store).await, Ok((2_202, 2_204)));
    }

    async fn what_was_deleted_by_other_means_is_noticed(database: Database) {
        let store = database.open().await;
        write(&store, 5, day(0)).await;
        write(&store, 5, day(10)).await;
        assert_eq!(expire(&store, 5, &[], day(10)).await, expired(5, 5));
        store.delete_expired(day(10), HOUR).await.unwrap();
        assert_eq!(verified(&store).await, Ok((5, 11)));
        let mut thief = AnyConnection::connect(&database.url).await.unwrap();
        for copy in ["CREATE TABLE log_before AS SELECT * FROM audit_log", "CREATE TABLE tail_before AS SELECT * FROM audit_tail"] {
            thief.execute(copy).await.unwrap();
        }
        for (tampers, broken) in [
            (&["DELETE FROM audit_log WHERE seq = 6"][..], 6),
            (&["DELETE FROM audit_log WHERE seq = 8"], 8),
            (&["DELETE FROM audit_log WHERE seq = 11"], 11),
            // The beginning is moved, and the log does not say so.
            (
                &[
                    "UPDATE audit_tail SET seq = 7, digest = (SELECT digest FROM audit_log WHERE seq = 7)",
                    "DELETE FROM audit_log WHERE seq <= 7",
                ],
                8,
            ),
            (
                &[
                    "UPDATE audit_tail SET seq = 11, digest = (SELECT digest FROM audit_log WHERE seq = 11)",
                    "DELETE FROM audit_log",
                ],
                12,
            ),
            (&["UPDATE audit_tail SET seq = 0, digest = NULL"], 1),
            (&["UPDATE audit_tail SET digest = (SELECT digest FROM audit_log WHERE seq = 6)"], 6),
            // Another beginning is recorded, but the chain covers the record.
            (&["UPDATE audit_log SET detail = '{}' WHERE seq = 11"], 11),
        ] {
            for tamper in tampers {
                thief.execute(*tamper).await.unwrap();
            }
            assert_eq!(verified(&store).await, Err(BrokenChain(broken)), "{tampers:?}");
            for mend in [
                "DELETE FROM audit_log",
                "INSERT INTO audit_log SELECT * FROM log_before",
                "DELETE FROM audit_tail",
                "INSERT INTO audit_tail SELECT * FROM tail_before",
            ] {
                thief.execute(mend).await.unwrap();
            }
            assert_eq!(verified(&store).await, Ok((5, 11)));
        }
        // An operator's entry of that name is no record.
        let seventh = store.audit_log(6).await.unwrap()[0].digest.0;
        let seventh = seventh.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        let detail = format!(r#"{{"last":7,"digest":"{seventh}"}}"#);
        let record = AuditEntry { detail, ..AuditEntry::new("system", "audit.expire", "audit", day(10)) };
        thief.execute("UPDATE audit_tail SET seq = 7, digest = (SELECT digest FROM audit_log WHERE seq = 7)").await.unwrap();
        store.write(AuditEntry { actor: "operator:eve".into(), ..record.clone() }).await.unwrap();
        assert_eq!(verified(&store).await, Err(BrokenChain(8)));
        store.write(record).await.unwrap();
        assert_eq!(verified(&store).await, Ok((7, 13)), "whoever may write entries is believed, and seen");
    }

    async fn entries_of_a_broken_chain_are_kept(database: Database) {
        let store = database.open().await;
        write(&store, 9, day(0)).await;
        let mut thief = AnyConnection::connect(&database.url).await.unwrap();
        thief.execute("UPDATE audit_log SET actor = 'operator:nobody' WHERE seq = 3").await.unwrap();
        assert_eq!(expire(&store, 5, &[], day(9)).await, AuditExpiry::Broken(BrokenChain(3)));
        assert_eq!(store.delete_expired(day(9), HOUR).await.unwrap().audit_entries, 0);
        thief.execute("UPDATE audit_log SET actor = 'operator:root' WHERE seq = 3").await.unwrap();
        thief.execute("DELETE FROM audit_log WHERE seq > 7").await.unwrap();
        assert_eq!(expire(&store, 5, &[], day(9)).await, expired(7, 7), "what is there is unbroken");
        assert_eq!(verified(&store).await, Err(BrokenChain(8)), "what is missing stays noticed");
    }

    async fn entries_wait_for_their_receivers_but_not_for_ever(database: Database) {
        let store = database.open().await;
        for receiver in ["siem", "gone"] {
            store.write(RegisterAuditReceiver { receiver: receiver.into(), now: NOW }).await.unwrap();
        }
        write(&store, 10, day(0)).await;
        let take = TakeReceiver { receiver: "siem".into(), lease: HOUR, now: NOW };
        store.write(TakeAuditReceiver(take)).await.unwrap().unwrap();
        let release = ReleaseReceiver { receiver: "siem".into(), from: 0, to: 4, failures: 0, due_at: NOW };
        assert!(store.write(ReleaseAuditReceiver(release)).await.unwrap());
        // Nobody waits for a receiver that is not in the configuration any more, or not yet.
        let receivers = ["siem", "unregistered"];
        assert_eq!(expire(&store, 30, &receivers, day(40)).await, expired(4, 4));
        assert_eq!(expire(&store, 30, &receivers, day(59)).await, AuditExpiry::NotDue);
        let undelivered = vec![("siem".to_owned(), 6)];
        let late = AuditExpiry::Expired(ExpiredEntries { count: 6, last: 10, undelivered });
        assert_eq!(expire(&store, 30, &receivers, day(61)).await, late, "twice as long");
        let record = store.audit_log(11).await.unwrap().pop().unwrap().entry.detail;
        assert!(record.contains(r#""undelivered":{"siem":6}"#), "{record}");
        assert_eq!(verified(&store).await, Ok((10, 12)));
    }

    async fn one_node_lets_entries_expire(database: Database) {
        let stores = database.open_all().await;
        write(&stores[0], 50, day(0)).await;
        let last = stores.last().unwrap();
        let (one, other) = tokio::join!(expire(&stores[0], 5, &[], day(9)), expire(last, 5, &[], day(9)));
        let both = [one, other];
        assert!(both.contains(&expired(50, 50)) && both.contains(&AuditExpiry::NotDue), "{both:?}");
        assert_eq!(verified(last).await, Ok((50, 51)));
        let (one, other) = tokio::join!(stores[0].delete_expired(day(9), HOUR), last.delete_expired(day(9), HOUR));
        assert_eq!(one.unwrap().audit_entries + other.unwrap().audit_entries, 50);
        assert_eq!(verified(last).await, Ok((50, 51)));
    }

    async fn a_copy_has_the_beginning_of_the_log(database: Database) {
        let origin = Database::sqlite();
        let source = origin.open().await;
        write(&source, 8, day(0)).await;
        write(&source, 8, day(10)).await;
        assert_eq!(expire(&source, 5, &[], day(10)).await, expired(8, 8));
        let copy = export(&source).await;
        let store = database.open().await;
        import(&store, &copy).await.unwrap();
        assert_eq!(verified(&store).await, Ok((8, 17)));
        assert_eq!(store.delete_expired(day(10), HOUR).await.unwrap().audit_entries, 8);
        assert_eq!(verified(&store).await, Ok((8, 17)));
        write(&store, 1, day(11)).await;
        assert_eq!(expire(&store, 5, &[], day(30)).await, expired(10, 18));
        assert_eq!(verified(&store).await, Ok((18, 19)));
    }
}
