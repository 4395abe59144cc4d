//! Revocation log: appending, reading and expiry of events.

use std::collections::BTreeSet;
use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use sqlx::{AnyConnection, Connection as _, Executor as _};
use store::access_tokens::AppendRevocation;
use store::security_events::{AppendRevocations, Occurrence};
use store::{
    DenylistRow, Dialect, Epoch, LogHead, ProveHead, Revocation, RevocationEvent, RevocationReach, Store,
};

use crate::databases::{EPOCH, NOW, on_both, revocation, tag};

const HOUR: Duration = Duration::from_hours(1);

on_both! {
    async fn the_epoch_is_drawn_once(database: Database) {
        let head = database.open().await.head().await.unwrap();
        assert_eq!(head, LogHead { epoch: EPOCH, seq: 0 });
        let again = Store::open(&database.url, Epoch([8; 16])).await.unwrap();
        assert_eq!(again.head().await.unwrap(), head, "what is there stays");
    }

    async fn a_denial_that_is_renewed_while_it_is_swept_stays(database: Database) {
        let store = database.open().await;
        store.write(AppendRevocation { revocation: revocation("t"), now: NOW }).await.unwrap();
        let over = store.prove_denied(None, 10).await.unwrap().1[0].until.plus(coherence::denylist::RETENTION);
        if store.dialect() == Dialect::Sqlite {
            // SQLite has no concurrent writer.
            assert_eq!(store.delete_expired(over, HOUR).await.unwrap().expired, 1);
            return;
        }
        let mut other = AnyConnection::connect(&database.url).await.unwrap();
        other.execute("BEGIN").await.unwrap();
        other.execute("UPDATE denials SET expires_at = 9000000000000").await.unwrap();
        let swept = tokio::spawn({
            let store = store.clone();
            async move { store.delete_expired(over, HOUR).await.unwrap().expired }
        });
        // Long enough for a transaction that waits for the row to be waiting.
        tokio::time::sleep(Duration::from_millis(200)).await;
        other.execute("COMMIT").await.unwrap();
        assert_eq!(swept.await.unwrap(), 0);
        assert_eq!(store.prove_denied(None, 10).await.unwrap().1.len(), 1);
        let last = Timestamp::from_millis(9_000_000_000_000).plus(coherence::denylist::RETENTION);
        assert_eq!(store.delete_expired(last, HOUR).await.unwrap().expired, 1, "and goes in its time");
    }

    async fn the_sequence_has_no_holes_whoever_writes(database: Database) {
        let stores = database.open_all().await;
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..400 {
            let store = stores[n % stores.len()].clone();
            let revoke = AppendRevocation { revocation: revocation(&format!("t{n}")), now: NOW };
            writes.spawn(async move { store.write(revoke).await.unwrap() });
        }
        writes.join_all().await;
        let events = stores[0].events(0, 1000).await.unwrap();
        let last = stores[0].head().await.unwrap().seq;
        assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
        let tags: Vec<_> = events.into_iter().flat_map(|event| event.tags).collect();
        assert_eq!((tags.len(), tags.into_iter().collect::<BTreeSet<_>>().len()), (400, 400), "each once");
    }

    async fn whoever_sees_an_event_sees_those_before_it(database: Database) {
        let stores = database.open_all().await;
        let last = stores.len() - 1;
        let reader = stores[last].clone();
        let reading = tokio::spawn(async move {
            let (mut seen, mut tags) = (0, 0);
            while tags < 300 {
                let events = reader.events(seen, 1000).await.unwrap();
                let expected: Vec<u64> = (seen + 1..=seen + events.len() as u64).collect();
                assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), expected);
                seen += events.len() as u64;
                tags += events.iter().map(|event| event.tags.len()).sum::<usize>();
            }
        });
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..300 {
            let store = stores[n % stores.len()].clone();
            writes.spawn(async move {
                store.write(AppendRevocation { revocation: revocation("t"), now: NOW }).await.unwrap();
            });
        }
        writes.join_all().await;
        reading.await.unwrap();
    }

    async fn what_is_appended_is_told_once_it_is_durable(database: Database) {
        let store = database.open().await;
        let mut told = store.appended();
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..100 {
            let (store, reader) = (store.clone(), store.clone());
            writes.spawn(async move {
                let revocation = Revocation { reach: RevocationReach::IssuedBefore(NOW), ..revocation(&format!("t{n}")) };
                store.write(AppendRevocation { revocation, now: NOW }).await.unwrap();
                assert!(reader.head().await.unwrap().seq > 0);
            });
        }
        let (mut seen, mut tags) = (Vec::new(), 0);
        while tags < 100 {
            let (epoch, event) = told.recv().await.unwrap();
            assert_eq!(epoch, EPOCH);
            assert!(store.head().await.unwrap().seq >= event.seq, "durable before it is told");
            tags += event.tags.len();
            seen.push(event);
        }
        writes.join_all().await;
        seen.sort_by_key(|event| event.seq);
        let log = store.events(0, 1000).await.unwrap();
        assert_eq!(seen, log.into_iter().map(coherence::LogEvent::from).collect::<Vec<_>>());
        assert!(told.try_recv().is_err(), "each once");
    }

    async fn what_concerns_many_is_told_in_several_events(database: Database) {
        let store = database.open().await;
        let tags: Vec<_> = (0..150).map(|n| tag(&format!("t{n}"))).collect();
        let revocation = Revocation { tags: tags.clone(), ..revocation("x") };
        store.write(AppendRevocation { revocation, now: NOW }).await.unwrap();
        assert_eq!(store.head().await.unwrap().seq, 3);
        let events = store.events(0, 10).await.unwrap();
        assert!(events.iter().all(|event| event.tags.len() <= coherence::wire::MAX_TAGS));
        assert_eq!(events.into_iter().flat_map(|event| event.tags).collect::<Vec<_>>(), tags);
        assert_eq!(store.prove_denied(None, 1000).await.unwrap().1.len(), 150);
    }

    async fn what_is_revoked_twice_in_one_transaction_is_denied_for_both_reasons(database: Database) {
        let store = database.open().await;
        let (minute, a) = (Duration::from_mins(1), revocation("a"));
        let later = Some(NOW.plus(minute));
        let both = vec![tag("a"), tag("b")];
        let revocations = vec![
            Revocation { reach: RevocationReach::IssuedBefore(NOW), ..a.clone() },
            Revocation { tags: vec![tag("b")], reach: RevocationReach::IssuedBefore(NOW.plus(minute)), ..a.clone() },
            Revocation { tags: both, reach: RevocationReach::IssuedBefore(NOW), until: a.until.plus(minute), ..a.clone() },
            a.clone(),
        ];
        store.write(AppendRevocations { revocations, now: NOW }).await.unwrap();
        let mut denied = store.prove_denied(None, 10).await.unwrap().1;
        denied.sort_by_key(|denied| denied.seq);
        let until = a.until.plus(minute);
        let b = DenylistRow { tag: tag("b"), seq: 3, not_before: later, until };
        assert_eq!(denied, [b, DenylistRow { tag: tag("a"), seq: 4, not_before: None, until }]);
    }

    async fn what_is_revoked_together_is_told_in_few_events(database: Database) {
        let store = database.open().await;
        let revoke = |n: u32| AppendRevocation { revocation: revocation(&format!("t{n}")), now: NOW };
        let all: Vec<_> = (0..150).map(revoke).collect();
        assert_eq!(store.write(all).await.unwrap().len(), 150);
        let events = store.events(0, 10).await.unwrap();
        assert_eq!(events.iter().map(|event| event.tags.len()).collect::<Vec<_>>(), [64, 64, 22]);
        let tags: Vec<_> = events.into_iter().flat_map(|event| event.tags).collect();
        assert_eq!(tags, (0..150).map(|n| tag(&format!("t{n}"))).collect::<Vec<_>>());
        // Events that differ in more than their tags are not merged.
        let revocations = vec![
            revocation("a"),
            Revocation { reach: RevocationReach::IssuedBefore(NOW), ..revocation("b") },
            Revocation { reason: "another", ..revocation("c") },
            Revocation { occurrence: Some(Occurrence::new(EventKind::SessionRevoked)), ..revocation("d") },
            revocation("e"),
            Revocation { until: NOW, ..revocation("f") },
        ];
        store.write(AppendRevocations { revocations, now: NOW }).await.unwrap();
        let events = store.events(3, 10).await.unwrap();
        let names: [&[&str]; 5] = [&["a"], &["b"], &["c"], &["d"], &["e", "f"]];
        let tags = names.map(|names| names.iter().map(|name| tag(name)).collect::<Vec<_>>());
        assert_eq!(events.iter().map(|event| event.tags.clone()).collect::<Vec<_>>(), tags);
        assert_eq!(events[4].until, revocation("e").until, "the longer time");
        assert_eq!(store.occurred(0, 10).await.unwrap().iter().map(|what| what.seq).collect::<Vec<_>>(), [7]);
    }

    async fn whoever_asks_for_the_head_does_not_get_in_the_way_of_those_who_move_it(database: Database) {
        let stores = database.open_all().await;
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..200 {
            let store = stores[n % stores.len()].clone();
            writes.spawn(async move {
                let before = store.write(ProveHead).await.unwrap();
                store.write(AppendRevocation { revocation: revocation(&format!("t{n}")), now: NOW }).await.unwrap();
                let (after, denied) = store.prove_tags(vec![tag(&format!("t{n}"))]).await.unwrap();
                assert!(before.seq < after.seq && denied.len() == 1);
            });
        }
        writes.join_all().await;
        assert!(stores[0].write(ProveHead).await.unwrap().seq <= 200);
    }

    async fn caches_ask_the_log(database: Database) {
        use coherence::event_loops::Log;
        let store = database.open().await;
        assert_eq!(Log::head(&store).await, Some(LogHead { epoch: EPOCH, seq: 0 }));
        for n in 0..5 {
            let revocation = revocation(&format!("t{n}"));
            store.write(AppendRevocation { revocation, now: NOW }).await.unwrap();
        }
        assert_eq!(Log::head(&store).await, Some(LogHead { epoch: EPOCH, seq: 5 }));
        let (epoch, events) = store.range(2, 2).await.unwrap();
        assert_eq!((epoch, events.iter().map(|e| e.seq).collect::<Vec<_>>()), (EPOCH, vec![3, 4]));
        assert_eq!(store.range(5, 10).await, Some((EPOCH, vec![])));
        assert_eq!(store.range(0, 100_000).await.unwrap().1.len(), 5);
    }

    async fn what_is_denied_is_told_page_by_page(database: Database) {
        let store = database.open().await;
        let names: Vec<_> = (0..7).map(|n| format!("t{n}")).collect();
        for name in &names {
            let revocation = Revocation { reach: RevocationReach::IssuedBefore(NOW), ..revocation(name) };
            store.write(AppendRevocation { revocation, now: NOW }).await.unwrap();
        }
        let (mut told, mut after) = (Vec::new(), None);
        loop {
            let (head, page) = store.prove_denied(after, 3).await.unwrap();
            assert_eq!(head.seq, 7);
            assert!(page.len() <= 3 && page.is_sorted_by_key(|denied| denied.tag));
            let Some(last) = page.last() else { break };
            after = Some(last.tag);
            told.extend(page);
        }
        let tags: BTreeSet<_> = told.iter().map(|denied| denied.tag).collect();
        assert_eq!(tags, names.iter().map(|name| tag(name)).collect());
        assert!(told.iter().all(|d| d.not_before == Some(NOW) && d.until == revocation("x").until));
    }

    async fn what_is_denied_is_copied_whole(database: Database) {
        use coherence::denylist::Denylist;
        use coherence::event_loops::DenylistSource;
        let store = database.open().await;
        let names: Vec<_> = (0..30).map(|n| format!("t{n}")).collect();
        for name in &names {
            let revocation = Revocation { reach: RevocationReach::IssuedBefore(NOW), ..revocation(name) };
            store.write(AppendRevocation { revocation, now: NOW }).await.unwrap();
        }
        let denials = Denylist::new(100);
        assert_eq!(store.load(&denials).await, Some(LogHead { epoch: EPOCH, seq: 30 }));
        assert_eq!(denials.len(), 30);
        let now = i64::try_from(NOW.as_millis()).unwrap();
        assert!(names.iter().all(|name| denials.denies(&[tag(name)], now - 1)));
        assert!(names.iter().all(|name| !denials.denies(&[tag(name)], now)));
    }

    async fn events_come_as_they_were_written(database: Database) {
        let store = database.open().await;
        let not_before = Some(NOW);
        let told = Revocation { tags: vec![tag("a"), tag("b")], reach: RevocationReach::IssuedBefore(NOW), ..revocation("a") };
        store.write(AppendRevocation { revocation: told, now: NOW }).await.unwrap();
        store.write(AppendRevocation { revocation: revocation("c"), now: NOW.plus(Duration::from_millis(1)) }).await.unwrap();
        let reason = "a test says so".to_owned();
        let until = revocation("c").until;
        let tags = vec![tag("a"), tag("b")];
        let first = RevocationEvent { seq: 1, tags, not_before, until, reason: reason.clone(), at: NOW };
        let later = NOW.plus(Duration::from_millis(1));
        let second = RevocationEvent { seq: 2, tags: vec![tag("c")], not_before: None, until, reason, at: later };
        assert_eq!(store.events(0, 10).await.unwrap(), [first.clone(), second.clone()]);
        assert_eq!(store.events(1, 10).await.unwrap(), [second]);
        assert_eq!(store.events(0, 1).await.unwrap(), [first]);
        assert_eq!(store.events(2, 10).await.unwrap(), []);
    }
}
