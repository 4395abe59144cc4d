//! Followers: the list of consumers of the log.

use std::time::Duration;

use coherence::consumers::ConsumerRecord;
use coherence::event_loops::Log as _;
use coherence::{ConsumerId, PeerName};
use store::access_tokens::AppendRevocation;
use store::followers::{Canary, DeleteFollower, MarkFollower};
use store::{Epoch, LogHead};

use crate::databases::{EPOCH, NOW, on_both, revocation, tag};

fn follower(number: u8, applied: Option<(Epoch, u64)>) -> ConsumerRecord {
    ConsumerRecord {
        id: ConsumerId([number; 16]),
        name: PeerName::new(&format!("gateway-{number}")).unwrap(),
        lease: Duration::from_secs(5),
        applied: applied.map(|(epoch, seq)| LogHead { epoch, seq }),
    }
}

on_both! {
    async fn followers_are_one_list_for_all_nodes(database: Database) {
        let stores = database.open_all().await;
        let all = [follower(2, Some((EPOCH, 7))), follower(1, None)];
        assert!(stores[0].record_consumers(&all).await);
        let listed = stores[stores.len() - 1].followers().await.unwrap();
        let followers: Vec<_> = listed.iter().map(|listed| listed.follower.clone()).collect();
        assert_eq!(followers, [follower(1, None), follower(2, Some((EPOCH, 7)))], "by name");
        assert!(listed.iter().all(|listed| listed.beat == 1 && listed.age < Duration::from_secs(20)));
    }

    async fn nobody_is_set_back(database: Database) {
        let store = database.open().await;
        let other = Epoch([9; 16]);
        let applied = async |said| {
            assert!(store.record_consumers(&[follower(1, said)]).await);
            let listed = store.followers().await.unwrap();
            listed[0].follower.applied.map(|head| (head.epoch, head.seq))
        };
        assert_eq!(applied(None).await, None);
        assert_eq!(applied(Some((EPOCH, 5))).await, Some((EPOCH, 5)));
        assert_eq!(applied(Some((EPOCH, 4))).await, Some((EPOCH, 5)), "another node knew more");
        assert_eq!(applied(None).await, Some((EPOCH, 5)), "what was applied once stays applied");
        assert_eq!(applied(Some((other, 1))).await, Some((other, 1)), "numbers of another history are others");
        assert_eq!(store.followers().await.unwrap()[0].beat, 5);
    }

    async fn only_who_said_nothing_meanwhile_is_forgotten(database: Database) {
        let store = database.open().await;
        let id = ConsumerId([1; 16]);
        let forget = |beat| DeleteFollower { id, beat };
        let entry = async || {
            let listed = store.followers().await.unwrap();
            listed.first().map(|listed| (listed.beat, listed.marked))
        };
        store.record_consumers(&[follower(1, None)]).await;
        store.record_consumers(&[follower(1, None)]).await;
        store.write(MarkFollower { id, beat: 1 }).await.unwrap();
        store.write(forget(2)).await.unwrap();
        assert_eq!(entry().await, Some((2, false)), "not before it is marked");
        store.write(MarkFollower { id, beat: 2 }).await.unwrap();
        assert_eq!(entry().await, Some((2, true)));
        store.record_consumers(&[follower(1, None)]).await;
        store.write(forget(2)).await.unwrap();
        assert_eq!(entry().await, Some((3, false)), "it was heard of");
        store.write(MarkFollower { id, beat: 3 }).await.unwrap();
        store.write(forget(3)).await.unwrap();
        assert_eq!(entry().await, None);
    }

    async fn a_quiet_log_gets_a_canary(database: Database) {
        let store = database.open().await;
        let minute = Duration::from_mins(1);
        let canary = |now| Canary { tag: tag("canary"), quiet: minute, now };
        assert!(store.write(canary(NOW)).await.unwrap(), "nothing was ever appended");
        assert!(!store.write(canary(NOW)).await.unwrap());
        store.write(AppendRevocation { revocation: revocation("t"), now: NOW.plus(minute / 2) }).await.unwrap();
        assert!(!store.write(canary(NOW.plus(minute))).await.unwrap(), "something was");
        assert!(store.write(canary(NOW.plus(2 * minute))).await.unwrap());
        let events = store.events(0, 10).await.unwrap();

        assert_eq!([0, 2].map(|at| &*events[at].reason), ["canary"; 2]);
        assert_eq!(events[0].until, NOW, "nobody needs to remember it");
    }

    async fn nodes_that_write_the_same_do_not_block_each_other(database: Database) {
        let stores = database.open_all().await;
        let mut writes = tokio::task::JoinSet::new();
        for turn in 0..100_usize {
            let store = stores[turn % stores.len()].clone();
            let mut all: Vec<_> = (0..20).map(|number| follower(number, Some((EPOCH, turn as u64)))).collect();
            if turn % 2 == 1 {
                all.reverse();
            }
            writes.spawn(async move { store.record_consumers(&all).await });
        }
        assert!(writes.join_all().await.into_iter().all(|noted| noted));
        let listed = stores[0].followers().await.unwrap();
        assert!(listed.iter().all(|listed| listed.follower.applied == Some(LogHead { epoch: EPOCH, seq: 99 })));
    }
}
