//! Proven reads, while the database accepts changes and while it does not.

use std::process::Command;
use std::time::Duration;

use coherence::consumers::ConsumerRecord;
use coherence::denylist::Denylist;
use coherence::event_loops::{DenylistSource as _, Log as _};
use coherence::{ConsumerId, PeerName};
use sqlx::{AnyConnection, Connection as _, Executor as _};
use store::access_tokens::AppendRevocation;
use store::followers::MarkFollower;
use store::{LogHead, Store, Tag};

use crate::databases::{Database, EPOCH, NOW, on_both, revocation, tag, told};

/// Set for the process that proves reads without disk space: the database's URL.
const CRAMPED: &str = "POSTERN_TEST_STORE_PROVES";

fn follower(number: u8) -> ConsumerRecord {
    ConsumerRecord {
        id: ConsumerId([number; 16]),
        name: PeerName::new(&format!("gateway-{number}")).unwrap(),
        lease: Duration::from_secs(5),
        applied: None,
    }
}

fn ids(numbers: &[u8]) -> Vec<ConsumerId> {
    numbers.iter().map(|number| ConsumerId([*number; 16])).collect()
}

async fn revoke(store: &Store, name: &str) -> bool {
    store.write(AppendRevocation { revocation: revocation(name), now: NOW }).await.is_ok()
}

/// The sequence number of the head, and those of the tags that are on the denylist.
async fn confirmed(store: &Store, names: &[&str]) -> (u64, Vec<Tag>) {
    let (head, denied) = store.prove_tags(names.iter().map(|name| tag(name)).collect()).await.unwrap();
    (head.seq, denied.into_iter().map(|denied| denied.tag).collect())
}

on_both! {
    async fn what_is_proved_is_what_is_there(database: Database) {
        let stores = database.open_all().await;
        assert_eq!(stores[0].prove_head().await.unwrap(), LogHead { epoch: EPOCH, seq: 0 });
        for n in 1..=20 {
            let store = &stores[n % stores.len()];
            assert!(revoke(store, &format!("t{n}")).await);
            for store in &stores {
                assert_eq!(store.prove_head().await.unwrap(), LogHead { epoch: EPOCH, seq: n as u64 });
                let name = format!("t{n}");
                assert_eq!(confirmed(store, &[&name, "other"]).await, (n as u64, vec![tag(&name)]));
            }
        }
        let many: Vec<_> = (1..=1000).map(|n| format!("t{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(confirmed(&stores[0], &many).await.1.len(), 20, "however many are asked about");
        assert_eq!(confirmed(&stores[0], &[]).await, (20, Vec::new()));
        let (head, page) = stores[0].prove_denied(None, 12).await.unwrap();
        assert_eq!((head, page.len()), (LogHead { epoch: EPOCH, seq: 20 }, 12));
        let rest = stores[0].prove_denied(page.last().map(|denied| denied.tag), 12).await.unwrap().1;
        assert_eq!(rest.len(), 8);
        let (head, events) = stores[0].prove_events(17, 2).await.unwrap();
        assert_eq!((head.seq, events.iter().map(|event| event.seq).collect::<Vec<_>>()), (20, vec![18, 19]));
    }

    async fn who_stands_in_the_list_is_told_with_the_head(database: Database) {
        let store = database.open().await;
        assert!(store.record_consumers(&[follower(1), follower(2)]).await);
        let listed = async || store.head_and_listed(&ids(&[1, 2, 3])).await.unwrap();
        assert_eq!(listed().await, (LogHead { epoch: EPOCH, seq: 0 }, ids(&[1, 2])));
        let (head, all) = store.prove_followers().await.unwrap();
        assert_eq!((head, all.len()), (LogHead { epoch: EPOCH, seq: 0 }, 2));
        assert_eq!(all[0].follower, follower(1));
        store.write(MarkFollower { id: ConsumerId([1; 16]), beat: 1 }).await.unwrap();
        assert_eq!(listed().await.1, ids(&[2]), "about to be struck off");
        assert!(store.record_consumers(&[follower(1)]).await);
        assert_eq!(listed().await.1, ids(&[1, 2]));
    }
}

/// Terminates the database's connections, and makes new ones read-only or writable.
async fn set_read_only(database: &Database, to: &str) {
    let (server, name) = database.url.rsplit_once('/').unwrap();
    let name = name.trim_end_matches('?');
    let mut admin = AnyConnection::connect(&format!("{server}/postgres")).await.unwrap();
    for statement in [
        format!("ALTER DATABASE {name} SET default_transaction_read_only = {to}"),
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"),
    ] {
        admin.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }
}

/// Waits until reads succeed again: a terminated connection fails at its next use.
async fn settled(store: &Store) {
    soon(async || store.prove_head().await.is_ok() && store.head().await.is_ok()).await;
}

/// Waits until the condition holds.
async fn soon(holds: impl AsyncFn() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), held).await.expect("it holds within a minute");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_changes_proves_what_it_says() {
    let database = Database::postgres().await;
    let store = database.open().await;
    assert!(revoke(&store, "before").await && store.record_consumers(&[follower(1)]).await);
    set_read_only(&database, "on").await;
    settled(&store).await;
    assert!(!revoke(&store, "meanwhile").await && !store.record_consumers(&[follower(1)]).await);
    assert!(store.storage_health().fault().is_some(), "it is known that nothing is kept");
    assert_eq!(store.prove_head().await.unwrap(), LogHead { epoch: EPOCH, seq: 1 });
    assert_eq!(confirmed(&store, &["before", "meanwhile"]).await, (1, vec![tag("before")]));
    let (head, listed) = store.head_and_listed(&ids(&[1, 2])).await.unwrap();
    assert_eq!((head.seq, listed), (1, ids(&[1])));
    let page = store.prove_denied(None, 10).await.unwrap();
    assert_eq!((page.0.seq, page.1.len(), store.prove_followers().await.unwrap().1.len()), (1, 1, 1));
    set_read_only(&database, "off").await;
    soon(async || revoke(&store, "after").await).await;
    assert_eq!(confirmed(&store, &["before", "meanwhile", "after"]).await.1.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_holds_keeps_nobody_from_being_answered() {
    let database = Database::postgres().await;
    let store = database.open().await;
    assert!(revoke(&store, "before").await);
    let mut other = AnyConnection::connect(&database.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    held.execute("UPDATE invalidation_head SET seq = seq").await.unwrap();
    assert_eq!(confirmed(&store, &["before"]).await, (1, vec![tag("before")]));
    held.rollback().await.unwrap();
}

/// The tables are replaced by views that show rows only to transactions that have written
/// something, such as a message. So what is visible was read in the proving transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_followers_go_by_is_read_in_the_transaction_that_proves_it() {
    let database = Database::postgres().await;
    let store = database.open().await;
    assert!(revoke(&store, "before").await && store.record_consumers(&[follower(1)]).await);
    let mut other = AnyConnection::connect(&database.url).await.unwrap();
    for table in ["denials", "followers", "invalidation_log"] {
        for statement in [
            format!("ALTER TABLE {table} RENAME TO hidden_{table}"),
            format!(
                "CREATE VIEW {table} AS SELECT * FROM hidden_{table} WHERE pg_current_xact_id_if_assigned() IS NOT NULL"
            ),
        ] {
            other.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
        }
    }
    assert_eq!(store.followers().await.unwrap(), [], "who only looks sees nothing");
    let denials = Denylist::new(10);
    let head = LogHead { epoch: EPOCH, seq: 1 };
    assert_eq!((store.load(&denials).await, denials.len()), (Some(head), 1));
    let page = store.page(None, 10).await.unwrap();
    assert_eq!((page.head, page.denied.len(), page.more), (head, 1, false));
    let (epoch, events) = store.range(0, 10).await.unwrap();
    assert_eq!((epoch, events.len()), (EPOCH, 1));
    let (at, listed) = store.prove_followers().await.unwrap();
    assert_eq!((at, listed.len()), (head, 1));
    assert_eq!(store.head_and_listed(&ids(&[1])).await, Some((head, ids(&[1]))));
    assert_eq!(confirmed(&store, &["before"]).await, (1, vec![tag("before")]));
}

/// The callers do not get a transaction each, although they arrive while others are being answered.
#[tokio::test]
async fn however_many_ask_for_the_head_few_transactions_read_it() {
    let database = Database::postgres().await;
    let store = database.open().await;
    let mut other = AnyConnection::connect(&database.url).await.unwrap();
    for statement in [
        "CREATE SEQUENCE readings MINVALUE 0 START 0",
        "ALTER TABLE invalidation_head RENAME TO head",
        "CREATE VIEW invalidation_head AS SELECT * FROM head WHERE nextval('readings') >= 0",
    ] {
        other.execute(statement).await.unwrap();
    }
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let store = store.clone();
        asking.spawn(async move { store.prove_head().await.unwrap().seq });
    }
    // Other proven reads have connections of their own.
    for _ in 0..20 {
        let store = store.clone();
        asking.spawn(async move { store.prove_denied(None, 10).await.unwrap().0.seq });
    }
    assert!(asking.join_all().await.into_iter().all(|seq| seq == 0));
    let readings = other.fetch_one("SELECT last_value FROM readings").await.unwrap();
    let readings: i64 = sqlx::Row::get(&readings, 0);
    assert!((20..=70).contains(&readings), "{readings}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_message_may_be_written_a_change_is_the_proof() {
    let database = Database::postgres().await;
    drop(database.open().await);
    let (server, name) = database.url.rsplit_once('/').unwrap();
    let (name, role) = (name.trim_end_matches('?'), format!("plain_{}", name.trim_end_matches('?')));
    let mut admin = AnyConnection::connect(&database.url).await.unwrap();
    for statement in [
        "REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text) FROM PUBLIC".to_owned(),
        format!("CREATE ROLE {role} LOGIN"),
        format!("GRANT ALL ON SCHEMA public TO {role}"),
        format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
        format!("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"),
    ] {
        admin.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }
    let (_, address) = server.rsplit_once('@').unwrap();
    let store = Store::open(&format!("postgres://{role}@{address}/{name}"), EPOCH).await.unwrap();
    assert!(revoke(&store, "before").await && store.record_consumers(&[follower(1)]).await);
    assert_eq!(store.prove_head().await.unwrap().seq, 1);
    assert_eq!(confirmed(&store, &["before"]).await, (1, vec![tag("before")]));
    let page = store.prove_denied(None, 10).await.unwrap();
    assert_eq!((page.0.seq, page.1.len(), store.prove_events(0, 10).await.unwrap().1.len()), (1, 1, 1));
    set_read_only(&database, "on").await;
    soon(async || store.head().await.is_ok()).await;
    assert!(store.prove_denied(None, 10).await.is_err() && store.prove_followers().await.is_err());
    assert!(store.prove_head().await.is_err() && store.prove_tags(vec![tag("before")]).await.is_err());
    assert_eq!(store.head_and_listed(&ids(&[1])).await, None, "without a change nothing is proved");
}

/// The process without disk space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_proves_without_room() {
    let Some(url) = told(CRAMPED) else { return };
    let store = Store::open(&url, EPOCH).await.unwrap();
    assert!(revoke(&store, "before").await && store.record_consumers(&[follower(1)]).await);
    let process = std::process::id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &process, "--fsize=4096:"]).status().unwrap();
    assert!(limited.success());
    assert!(!revoke(&store, "meanwhile").await && !store.record_consumers(&[follower(1)]).await);
    assert_eq!(store.prove_head().await.unwrap(), LogHead { epoch: EPOCH, seq: 1 });
    assert_eq!(confirmed(&store, &["before", "meanwhile"]).await, (1, vec![tag("before")]));
    assert_eq!(store.head_and_listed(&ids(&[1, 2])).await.unwrap().1, ids(&[1]));
    println!("proved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_room_proves_what_it_says() {
    let database = Database::sqlite();
    drop(database.open().await);
    let cramped = Command::new("env")
        .args(["--ignore-signal=XFSZ"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "proof::a_node_that_proves_without_room", "--nocapture"])
        .env(CRAMPED, &database.url)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&cramped.stdout);
    assert!(
        cramped.status.success() && said.contains("proved"),
        "{said}{}",
        String::from_utf8_lossy(&cramped.stderr)
    );
}
