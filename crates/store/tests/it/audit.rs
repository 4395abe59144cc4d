//! Audit log: appending entries and detecting modifications.

use sqlx::{AnyConnection, Connection as _, Executor as _};
use store::StoreError;
use store::audit::{AuditEntry, Audited, BrokenChain};
use store::groups::AddGroup;

use crate::databases::{NOW, on_both};

fn entry(target: &str) -> AuditEntry {
    AuditEntry {
        actor: "operator:root".into(),
        action: "group.add".into(),
        target: format!("group:{target}"),
        detail: "{}".into(),
        at: NOW,
    }
}

fn audited(name: &str) -> Audited<AddGroup> {
    Audited { change: AddGroup { id: name.into(), name: name.into(), now: NOW }, entry: entry(name) }
}

on_both! {
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
        assert_eq!(store.verify_audit_log().await.unwrap(), Ok((2, log[1].digest)));
    }

    async fn entries_of_all_nodes_make_one_chain(database: Database) {
        let stores = database.open_all().await;
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..1_200 {
            let store = stores[n % stores.len()].clone();
            writes.spawn(async move { store.write(entry(&n.to_string())).await.unwrap() });
        }
        writes.join_all().await;
        assert!(matches!(stores[0].verify_audit_log().await.unwrap(), Ok((1_200, _))), "over several pages");
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
