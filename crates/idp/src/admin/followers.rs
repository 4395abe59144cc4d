//! Who follows what is revoked, and when a revocation is in force at all of them.
//!
//! Whoever may believe a token that was revoked stands in the list of followers, before it was ever answered
//! (`coherence::consumers`). So a revocation is in force everywhere once everybody in that list has applied it, or once the longest lease
//! in it is over, whichever comes first.

use std::time::Duration;

use coherence::LogHead;
use coherence::consumers::{all_applied, has_applied};
use serde::Serialize;
use store::{PATIENCE, StoreError, followers::Listed};
use tokio::time::{Instant, sleep};

use super::{Admin, AdminFault};
use crate::{access_token::Presented, provider::Provider};

/// The share of a time by which the rate of a clock may be wrong: one in so many.
const DRIFT: u32 = 1000;
/// How far the clocks of two nodes may be apart when the age of an event is told.
const CLOCKS: Duration = Duration::from_secs(5);
/// Between two looks at the list.
const LOOK: Duration = Duration::from_millis(20);

/// Somebody who follows.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct FollowerView {
    /// What it is, its `telemetry.service`, where its first listener is, its machine and its process.
    pub name: String,
    /// Events that it has not applied; absent: it knows nothing yet, and believes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Seconds for which it believes what it was told, counted from when it asked.
    pub lease: f64,
    /// Seconds since its entry was last written: every five seconds while it asks, and whenever it has applied something.
    pub heard: f64,
}

/// Everybody who follows.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct FollowerList {
    /// Number of the last event of the log.
    pub head: u64,
    /// By name. Whoever ends stays in the list for up to two minutes.
    pub items: Vec<FollowerView>,
}

/// How it is known that everybody refuses what was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    /// All followers said that they have applied it.
    Applied,
    /// Whoever has not said so has believed nothing for a moment since: its lease ended.
    Lapsed,
}

/// What was revoked until it was asked is refused everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct InForce {
    /// How that is known.
    pub proof: Proof,
    /// How many follow.
    pub followers: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Whether a token that was revoked is refused everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Refusal {
    /// Everybody who follows has applied it, or believes nothing any more: the lease is over.
    pub everywhere: bool,
    /// Those who have not said that they have applied it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_yet: Vec<String>,
    /// Seconds after which it is refused there as well, at most, with or without a word; absent: it is refused everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
}

impl Admin<'_> {
    /// Who follows, and how far each has got.
    pub async fn followers(&self) -> Result<FollowerList, AdminFault> {
        let store = self.provider.store();
        let (listed, head) = (store.followers().await?, store.head().await?);
        Ok(FollowerList { head: head.seq, items: listed.iter().map(|listed| view(listed, head)).collect() })
    }

    /// Waits until everything that is revoked by now is refused everywhere: at most a lease.
    pub async fn in_force(&self) -> Result<InForce, AdminFault> {
        Ok(in_force(self.provider, Instant::now()).await?)
    }

    /// Whether a token that was revoked is refused everywhere by now.
    pub(super) async fn refusal(&self, token: &Presented) -> Result<Refusal, AdminFault> {
        let store = self.provider.store();
        let (head, denied) = store.confirm(token.tags(self.provider.secrets())).await?;
        let against = denied.iter().filter(|d| d.not_before.is_none_or(|then| token.read_at < then));
        // The first of them is enough; what denies it without an event is as old as the rest, at the latest.
        let seq = against.map(|denied| denied.seq).min().unwrap_or(head.seq);
        let head = LogHead { epoch: head.epoch, seq };
        let (_, listed) = store.prove_followers().await?;
        let late: Vec<_> = listed
            .iter()
            .map(|listed| &listed.follower)
            .filter(|follower| !has_applied(follower, head))
            .collect();
        let lease = late.iter().map(|follower| follower.lease).max();
        let (now, events) = store.prove_events(head.seq.saturating_sub(1), 1).await?;
        let event = events.into_iter().find(|event| event.seq == head.seq);
        let age = match event {
            // Of this number there is another one meanwhile.
            _ if now.epoch != head.epoch => Duration::ZERO,
            Some(event) => self.provider.now().since(event.at),
            // What is not in the log any more is older than any lease.
            None => Duration::MAX,
        };
        let left = lease.map_or(Duration::ZERO, |lease| left_of(lease, age));
        let within = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let not_yet = late.iter().map(|follower| follower.called.to_string()).collect();
        Ok(Refusal { everywhere: within == 0, not_yet, within: (within > 0).then_some(within) })
    }
}

/// For how long somebody with this lease may still believe what an event of this age ended. Its time was taken before it was durable, and until
/// then whoever asked was not told of it.
fn left_of(lease: Duration, age: Duration) -> Duration {
    (lease + lease / DRIFT + PATIENCE + CLOCKS).saturating_sub(age)
}

/// Waits until everything is refused everywhere that was durable at `since`.
pub(crate) async fn in_force(provider: &Provider, since: Instant) -> Result<InForce, StoreError> {
    let store = provider.store();
    // Read after it was durable: the head counts that, and whoever may believe anything else stands in the list. Who comes into it later was
    // answered later, and was told. Proven, both by one reading: a database that another has taken over from must not say that all is done.
    let (head, mut listed) = store.prove_followers().await?;
    let longest = listed.iter().map(|listed| listed.follower.lease).max().unwrap_or_default();
    loop {
        let proof = if applied(&listed, head) {
            Some(Proof::Applied)
        } else if since.elapsed() >= longest + longest / DRIFT {
            Some(Proof::Lapsed)
        } else {
            None
        };
        if let Some(proof) = proof {
            let followers = listed.len() as u64;
            return Ok(InForce { proof, followers, seconds: since.elapsed().as_secs_f64() });
        }
        sleep(LOOK).await;
        // A look costs little. What it shows counts when it is proven.
        if store.followers().await.is_ok_and(|seen| applied(&seen, head))
            && let Ok((_, proven)) = store.prove_followers().await
        {
            listed = proven;
        }
    }
}

fn applied(listed: &[Listed], head: LogHead) -> bool {
    all_applied(listed.iter().map(|listed| &listed.follower), head)
}

fn view(listed: &Listed, head: LogHead) -> FollowerView {
    let follower = &listed.follower;
    let applied = follower.applied.filter(|applied| applied.epoch == head.epoch);
    FollowerView {
        name: follower.called.to_string(),
        behind: applied.map(|applied| head.seq.saturating_sub(applied.seq)),
        lease: follower.lease.as_secs_f64(),
        heard: listed.since.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_for_its_commit_is_not_in_force_too_early() {
        let (second, lease) = (Duration::from_secs(1), Duration::from_secs(5));
        // It was durable only when the writer's patience was over, and somebody asked just before that, by a clock that goes slow.
        let ends = PATIENCE + lease + lease / DRIFT + CLOCKS;
        assert!(left_of(lease, ends.saturating_sub(second)) >= second && left_of(lease, ends).is_zero());
        assert!(left_of(lease, Duration::MAX).is_zero() && left_of(lease, Duration::ZERO) == ends);
    }
}
