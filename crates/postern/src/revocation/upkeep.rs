//! Periodic work: expiry of the denylist, heartbeats, removal of consumers that are gone, and reports of silence.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coherence::consumers::{GONE, MARK};
use coherence::silence::Hearing;
use coherence::view::View;
use coherence::{ConsumerId, Tag};
use http_engine::clock::{Clock as _, SystemClock};
use outage::Outage;
use store::Store;
use store::followers::{Canary, ForgetFollower, Listed, MarkFollower};

use crate::revocation::random::random;
use crate::revocation::{EXPIRE, LOOK, QUIET};

/// Removes expired entries from the denylist.
pub(super) async fn expire(view: Arc<View>) {
    loop {
        tokio::time::sleep(EXPIRE).await;
        if let Some(denials) = view.denials() {
            denials.expire(i64::try_from(SystemClock.now().wall.as_millis()).unwrap_or(i64::MAX));
        }
    }
}

/// Logs once when no transport delivers an answer, and once when one does again.
pub(super) async fn tell_silence(view: Arc<View>, outage: Outage) {
    let (outage, mut hearing) = (outage.with_calm(Duration::ZERO), view.silence().watch());
    loop {
        let heard = *hearing.borrow_and_update();
        match heard {
            Hearing::Silent => outage.failed("the lease has ended, and queries get no answer"),
            Hearing::Answers => outage.succeeded(),
            Hearing::Doubtful => {}
        }
        if hearing.changed().await.is_err() {
            return;
        }
    }
}

/// Appends a heartbeat event that concerns no token while the log is quiet. So the delay of
/// consumers is measured before it matters.
pub(super) async fn sing(store: Store) {
    loop {
        tokio::time::sleep(QUIET).await;
        let (Ok(tag), now) = (random(), SystemClock.now().wall) else { continue };
        // Ignore a failure: an unavailable database is reported elsewhere.
        let _ = store.write(Canary { tag: Tag(tag), quiet: QUIET, now }).await;
    }
}

/// Removes consumers that have not written for too long, by this process's clock. It marks them
/// first and checks again.
pub(super) async fn forget_gone(store: Store) {
    let mut seen: HashMap<ConsumerId, ((u64, bool), tokio::time::Instant)> = HashMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        // While the database is unavailable, no consumer can write. So none counts as gone.
        let Ok(listed) = store.followers().await else {
            seen.clear();
            continue;
        };
        let now = tokio::time::Instant::now();
        seen.retain(|id, _| listed.iter().any(|listed| listed.follower.id == *id));
        for Listed { follower, beat, marked, .. } in listed {
            let id = follower.id;
            let (last, since) = seen.entry(id).or_insert(((beat, marked), now));
            if *last != (beat, marked) {
                (*last, *since) = ((beat, marked), now);
            }
            // A failed write is retried.
            let _ = match now.duration_since(*since) {
                unchanged if marked && unchanged >= GONE.saturating_sub(MARK) => {
                    store.write(ForgetFollower { id, beat }).await
                }
                unchanged if !marked && unchanged >= MARK => store.write(MarkFollower { id, beat }).await,
                _ => Ok(()),
            };
        }
    }
}
