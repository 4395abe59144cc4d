//! The log of revocations.

use std::collections::BTreeSet;
use std::time::Duration;

use store::access_tokens::Revoke;
use store::{Epoch, Event, Head, Revocation, Store};

use crate::databases::{EPOCH, NOW, on_both, revocation, tag};

on_both! {
    async fn the_epoch_is_drawn_once(database: Database) {
        let head = database.open().await.head().await.unwrap();
        assert_eq!(head, Head { epoch: EPOCH, seq: 0 });
        let again = Store::open(&database.url, Epoch([8; 16])).await.unwrap();
        assert_eq!(again.head().await.unwrap(), head, "what is there stays");
    }

    async fn the_sequence_has_no_holes_whoever_writes(database: Database) {
        let stores = database.open_all().await;
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..400 {
            let store = stores[n % stores.len()].clone();
            let revoke = Revoke { revocation: revocation(&format!("t{n}")), now: NOW };
            writes.spawn(async move { store.write(revoke).await.unwrap() });
        }
        let given: BTreeSet<u64> = writes.join_all().await.into_iter().collect();
        assert_eq!(given, (1..=400).collect());
        let events = stores[0].events(0, 1000).await.unwrap();
        assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), (1..=400).collect::<Vec<_>>());
        assert_eq!(stores[0].head().await.unwrap().seq, 400);
        assert_eq!(events.iter().map(|e| e.tags[0]).collect::<BTreeSet<_>>().len(), 400);
    }

    async fn whoever_sees_an_event_sees_those_before_it(database: Database) {
        let stores = database.open_all().await;
        let last = stores.len() - 1;
        let reader = stores[last].clone();
        let reading = tokio::spawn(async move {
            let mut seen = 0;
            while seen < 300 {
                let events = reader.events(seen, 1000).await.unwrap();
                let expected: Vec<u64> = (seen + 1..=seen + events.len() as u64).collect();
                assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), expected);
                seen += events.len() as u64;
            }
        });
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..300 {
            let store = stores[n % stores.len()].clone();
            writes.spawn(async move {
                store.write(Revoke { revocation: revocation("t"), now: NOW }).await.unwrap();
            });
        }
        writes.join_all().await;
        reading.await.unwrap();
    }

    async fn events_come_as_they_were_written(database: Database) {
        let store = database.open().await;
        let told = Revocation { tags: vec![tag("a"), tag("b")], ..revocation("a") };
        store.write(Revoke { revocation: told, now: NOW }).await.unwrap();
        store.write(Revoke { revocation: revocation("c"), now: NOW.plus(Duration::from_millis(1)) }).await.unwrap();
        let reason = "a test says so".to_owned();
        let first = Event { seq: 1, tags: vec![tag("a"), tag("b")], reason: reason.clone(), at: NOW };
        let second = Event { seq: 2, tags: vec![tag("c")], reason, at: NOW.plus(Duration::from_millis(1)) };
        assert_eq!(store.events(0, 10).await.unwrap(), [first.clone(), second.clone()]);
        assert_eq!(store.events(1, 10).await.unwrap(), [second]);
        assert_eq!(store.events(0, 1).await.unwrap(), [first]);
        assert_eq!(store.events(2, 10).await.unwrap(), []);
    }
}
