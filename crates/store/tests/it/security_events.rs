//! Security events: delivery to receivers, and events received from other issuers.

use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use store::access_tokens::AppendRevocation;
use store::security_events::{
    Acknowledge, AppendRevocations, Occurrence, RegisterReceiver, ReleaseReceiver, StoreSharedSecret,
    TakeReceiver, TakenReceiver,
};
use store::{Revocation, Store};

use crate::databases::{NOW, on_both, revocation, tag};

const MINUTE: Duration = Duration::from_mins(1);

async fn happen(store: &Store, user: &str, now: Timestamp) -> u64 {
    let occurrence =
        Occurrence { user_id: Some(user.into()), ..Occurrence::new(EventKind::CredentialChange) };
    let revocation = Revocation { occurrence: Some(occurrence), ..revocation(user) };
    store.write(AppendRevocation { revocation, now }).await.unwrap();
    store.head().await.unwrap().seq
}

async fn register(store: &Store, name: &str) {
    store.write(RegisterReceiver { receiver: name.into(), now: NOW }).await.unwrap();
}

fn take(name: &str, now: Timestamp) -> TakeReceiver {
    TakeReceiver { receiver: name.into(), lease: MINUTE, now }
}

async fn unheard(store: &Store, name: &str) -> Vec<u64> {
    store.unacknowledged(name, 100).await.unwrap().iter().map(|event| event.seq).collect()
}

async fn acknowledge(store: &Store, name: &str, heard: &[u64], before: Timestamp) -> u64 {
    store.write(Acknowledge { receiver: name.into(), acknowledged: heard.to_vec(), before }).await.unwrap()
}

on_both! {
    async fn what_happened_stands_beside_the_log(database: Database) {
        let store = database.open().await;
        let mut all = Occurrence::new(EventKind::SessionRevoked);
        all.user_id = Some("u".into());
        all.sid = Some("s".into());
        all.jti = Some("j".into());
        all.client_id = Some("c".into());
        all.granted_by = Some("g".into());
        let told = Revocation { occurrence: Some(all.clone()), ..revocation("x") };
        store.write(AppendRevocation { revocation: revocation("silent"), now: NOW }).await.unwrap();
        store.write(AppendRevocation { revocation: told, now: NOW }).await.unwrap();
        let occurred = store.occurred(0, 10).await.unwrap();
        assert_eq!(occurred.len(), 1);
        assert_eq!((occurred[0].seq, occurred[0].at, &occurred[0].occurrence), (2, NOW, &all));
        assert_eq!(store.occurred(2, 10).await.unwrap(), []);
        for kind in EventKind::ALL {
            let told = Revocation { occurrence: Some(Occurrence::new(kind)), ..revocation("x") };
            store.write(AppendRevocation { revocation: told, now: NOW }).await.unwrap();
            let seq = store.head().await.unwrap().seq;
            assert_eq!(store.occurred(seq - 1, 1).await.unwrap()[0].occurrence.kind, kind);
        }
        // Occurrences are deleted when they are no longer delivered.
        let later = NOW.plus(MINUTE * 60 * 24 * 9);
        store.delete_expired(later, MINUTE).await.unwrap();
        assert_eq!(store.occurred(0, 10).await.unwrap(), []);
    }

    async fn a_receiver_hears_what_happens_after_it_was_made_known(database: Database) {
        let store = database.open().await;
        happen(&store, "before", NOW).await;
        register(&store, "r").await;
        assert!(!store.is_delivery_due("r", NOW).await.unwrap());
        let seq = happen(&store, "after", NOW).await;
        register(&store, "r").await;
        assert!(store.is_delivery_due("r", NOW).await.unwrap(), "known is known");
        assert_eq!(unheard(&store, "r").await, [seq]);
        assert_eq!(unheard(&store, "nobody").await, [0; 0]);
    }

    async fn one_at_a_time_tells_a_receiver(database: Database) {
        let stores = database.open_all().await;
        register(&stores[0], "r").await;
        for user in ["a", "b", "c"] {
            happen(&stores[0], user, NOW).await;
        }
        let mut taking = tokio::task::JoinSet::new();
        for n in 0..40 {
            let store = stores[n % stores.len()].clone();
            taking.spawn(async move { store.write(take("r", NOW)).await.unwrap() });
        }
        let taken: Vec<TakenReceiver> = taking.join_all().await.into_iter().flatten().collect();
        assert_eq!(taken, [TakenReceiver { seq: 0, failures: 0 }]);
        let store = &stores[0];
        assert!(!store.is_delivery_due("r", NOW).await.unwrap(), "somebody has it");
        // The node that took the receiver has died.
        let later = NOW.plus(MINUTE);
        assert_eq!(store.write(take("r", later)).await.unwrap(), Some(TakenReceiver { seq: 0, failures: 0 }));
        let back = |from, to, failures| {
            ReleaseReceiver { receiver: "r".into(), from, to, failures, due_at: later }
        };
        assert!(store.write(back(0, 2, 0)).await.unwrap());
        assert!(!store.write(back(0, 1, 0)).await.unwrap(), "the one before comes back too late");
        assert_eq!(store.write(take("r", later)).await.unwrap(), Some(TakenReceiver { seq: 2, failures: 0 }));
        assert!(store.write(back(2, 2, 3)).await.unwrap());
        assert_eq!(store.write(take("r", later)).await.unwrap(), Some(TakenReceiver { seq: 2, failures: 3 }));
        assert_eq!(store.write(take("nobody", later)).await.unwrap(), None);
    }

    async fn whoever_fetches_acknowledges_in_any_order(database: Database) {
        let store = database.open().await;
        register(&store, "r").await;
        register(&store, "other").await;
        let mut seqs = Vec::new();
        for user in ["a", "b", "c", "d"] {
            seqs.push(happen(&store, user, NOW).await);
            // An event without an occurrence is not a gap.
            store.write(AppendRevocation { revocation: revocation("silent"), now: NOW }).await.unwrap();
        }
        let [a, b, c, d] = seqs.clone().try_into().unwrap();
        let never = Timestamp::from_secs(0);
        assert_eq!(unheard(&store, "r").await, seqs);
        assert_eq!(acknowledge(&store, "r", &[c, 99, 0], never).await, 0);
        assert_eq!(unheard(&store, "r").await, [a, b, d]);
        assert_eq!(acknowledge(&store, "r", &[b, b], never).await, 0);
        assert_eq!(unheard(&store, "r").await, [a, d]);
        assert_eq!(acknowledge(&store, "r", &[a], never).await, 0);
        assert_eq!(unheard(&store, "r").await, [d]);
        assert_eq!(acknowledge(&store, "r", &[a, b, c], never).await, 0, "once more");
        assert_eq!(unheard(&store, "r").await, [d]);
        assert_eq!(unheard(&store, "other").await, seqs, "another hears for itself");
        // An event that is too old is given up, and counted once.
        assert_eq!(acknowledge(&store, "r", &[], NOW.plus(MINUTE)).await, 1);
        assert_eq!(acknowledge(&store, "r", &[], NOW.plus(MINUTE)).await, 0);
        assert_eq!(unheard(&store, "r").await, [0; 0]);
        let next = happen(&store, "next", NOW).await;
        assert_eq!(unheard(&store, "r").await, [next]);
    }

    async fn what_others_told_is_appended_at_once_or_not_at_all(database: Database) {
        let store = database.open().await;
        let revocations = vec![revocation("a"), revocation("b")];
        store.write(AppendRevocations { revocations, now: NOW }).await.unwrap();
        let events = store.events(0, 10).await.unwrap();
        assert_eq!((events.len(), &*events[0].tags), (1, &[tag("a"), tag("b")][..]));
    }

    async fn a_secret_is_drawn_once(database: Database) {
        let stores = database.open_all().await;
        let mut drawing = tokio::task::JoinSet::new();
        for n in 0..8_u8 {
            let store = stores[usize::from(n) % stores.len()].clone();
            drawing.spawn(async move { store.write(StoreSharedSecret([n; 64])).await.unwrap() });
        }
        let drawn = drawing.join_all().await;
        assert!(drawn.iter().all(|secret| *secret == drawn[0]));
    }
}
