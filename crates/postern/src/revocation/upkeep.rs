//! Periodic work: expiry of the denylist, heartbeats, removal of consumers that are gone, and
//! reports of silence.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coherence::consumers::{MARK_AFTER, REMOVE_AFTER};
use coherence::silence::Responsiveness;
use coherence::view::View;
use coherence::{ConsumerId, Tag};
use http_engine::clock::{Clock as _, SystemClock};
use outage::Outage;
use store::Store;
use store::followers::{Canary, DeleteFollower, FollowerRow, MarkFollower};

use crate::revocation::random::random;
use crate::revocation::{CONSUMER_CHECK_INTERVAL, EXPIRY_INTERVAL, HEARTBEAT_AFTER};

/// Removes expired entries from the denylist.
pub(super) async fn expire_denylist(view: Arc<View>) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        if let Some(denials) = view.denylist() {
            denials.expire(i64::try_from(SystemClock.now().wall.as_millis()).unwrap_or(i64::MAX));
        }
    }
}

/// Logs once when no transport delivers an answer, and once when one does again.
pub(super) async fn log_silence(view: Arc<View>, outage: Outage) {
    let (outage, mut hearing) = (outage.with_recovery_period(Duration::ZERO), view.silence().watch());
    loop {
        let responsiveness = *hearing.borrow_and_update();
        match responsiveness {
            Responsiveness::Silent => outage.failed("the lease has ended, and queries get no answer"),
            Responsiveness::Responsive => outage.succeeded(),
            Responsiveness::Suspect => {}
        }
        if hearing.changed().await.is_err() {
            return;
        }
    }
}

/// Appends a heartbeat event that concerns no token while the log is quiet. So the delay of
/// consumers is measured before it matters.
pub(super) async fn append_heartbeats(store: Store) {
    loop {
        tokio::time::sleep(HEARTBEAT_AFTER).await;
        let (Ok(tag), now) = (random(), SystemClock.now().wall) else { continue };
        // Ignore a failure: an unavailable database is reported elsewhere.
        let _ = store.write(Canary { tag: Tag(tag), quiet: HEARTBEAT_AFTER, now }).await;
    }
}

/// Removes consumers that have not written for too long, by this process's clock. It marks them
/// first and checks again.
pub(super) async fn remove_inactive_consumers(store: Store) {
    let mut seen: HashMap<ConsumerId, ((u64, bool), tokio::time::Instant)> = HashMap::new();
    loop {
        tokio::time::sleep(CONSUMER_CHECK_INTERVAL).await;
        // While the database is unavailable, no consumer can write. So none counts as gone.
        let Ok(listed) = store.followers().await else {
            seen.clear();
            continue;
        };
        let now = tokio::time::Instant::now();
        seen.retain(|id, _| listed.iter().any(|listed| listed.follower.id == *id));
        for FollowerRow { follower, beat, marked, .. } in listed {
            let id = follower.id;
            let (last, since) = seen.entry(id).or_insert(((beat, marked), now));
            if *last != (beat, marked) {
                (*last, *since) = ((beat, marked), now);
            }
            // A failed write is retried.
            let _ = match now.duration_since(*since) {
                unchanged if marked && unchanged >= REMOVE_AFTER.saturating_sub(MARK_AFTER) => {
                    store.write(DeleteFollower { id, beat }).await
                }
                unchanged if !marked && unchanged >= MARK_AFTER => {
                    store.write(MarkFollower { id, beat }).await
                }
                _ => Ok(()),
            };
        }
    }
}
