//! Changes that share transactions, and databases that fail.

use store::groups::AddGroup;
use store::{Change, Epoch, Store, StoreError, Tx};

use crate::databases::{Database, EPOCH, NOW, digest, on_both};

fn group(name: &str) -> AddGroup {
    AddGroup { id: format!("id-{name}"), name: name.into(), now: NOW }
}

/// A change that fails after it has done something.
struct Fails(AddGroup);

impl Change for Fails {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        self.0.apply(tx).await?;
        Err(StoreError::MissingReference)
    }
}

/// A change that panics after it has done something.
struct Panics(AddGroup);

impl Change for Panics {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        self.0.apply(tx).await?;
        panic!("as the test wants");
    }
}

on_both! {
    async fn a_change_that_panics_takes_no_lane_with_it(database: Database) {
        let store = database.open().await;
        for n in 0..8 {
            let panicked = store.write(Panics(group(&n.to_string()))).await;
            assert!(matches!(panicked, Err(StoreError::Unavailable(_))), "{panicked:?}");
            store.write(group(&n.to_string())).await.expect("it was not made, and others are");
        }
    }

    async fn a_failed_change_spoils_nothing_for_its_neighbours(database: Database) {
        let store = database.open().await;
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..300 {
            let store = store.clone();
            writes.spawn(async move {
                match n % 3 {
                    0 => (n, store.write(group(&format!("g{n}"))).await.is_ok()),
                    // All but the first find the name taken.
                    1 => (n, store.write(group("same")).await.is_ok()),
                    _ => (n, store.write(Fails(group(&format!("g{n}")))).await.is_ok()),
                }
            });
        }
        let made = writes.join_all().await;
        let made = |kind| made.iter().filter(|(n, made)| n % 3 == kind && *made).count();
        assert_eq!((made(0), made(1), made(2)), (100, 1, 0));
        for n in 0..300 {
            let again = store.write(group(&format!("g{n}"))).await;
            assert_eq!(again.is_err(), n % 3 == 0, "g{n}: exactly what was acknowledged is there");
        }
    }

    async fn nodes_that_start_together_find_one_schema(database: Database) {
        let mut starts = tokio::task::JoinSet::new();
        for node in 0..4 {
            let url = database.url.clone();
            starts.spawn(async move { Store::open(&url, Epoch([node; 16])).await.unwrap().head().await.unwrap() });
        }
        let heads = starts.join_all().await;
        assert!(heads.iter().all(|head| *head == heads[0]), "one epoch for all");
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_unavailable() {
    let url = "postgres://postern@127.0.0.1:1/postern";
    let refused = Store::open(url, EPOCH).await.err().unwrap();
    assert!(refused.to_string().starts_with("database unavailable: "), "{refused}");
    let unknown = Store::open("mysql://x", EPOCH).await.err().unwrap();
    assert!(unknown.to_string().contains("sqlite: or postgres:"), "{unknown}");
}

#[test]
fn a_store_may_be_let_go_of_anywhere() {
    let database = Database::sqlite();
    for ended in [false, true] {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let store = runtime.block_on(database.open());
        runtime.block_on(store.head()).unwrap();
        let runtime = (!ended).then_some(runtime);
        drop(store);
        drop(runtime);
    }
}

#[tokio::test]
async fn a_store_that_is_closed_says_so() {
    let store = Database::sqlite().open().await;
    store.close().await;
    let refused = store.write(group("g")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let refused = store.access_token(&digest("a")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
}
