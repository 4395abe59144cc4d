//! Consumers of the revocation log, and when a revocation is in force at all of them.
//!
//! Every consumer that may accept a revoked token is in the list before its first query is answered
//! (`coherence::consumers`). So a revocation is in force everywhere when all listed consumers have
//! applied it, or when the longest listed lease has ended, whichever comes first.

use std::borrow::Cow;
use std::time::Duration;

use coherence::LogHead;
use coherence::consumers::{all_applied, has_applied};
use serde::{Deserialize, Serialize};
use store::{StoreError, WRITE_TIMEOUT, followers::FollowerRow};
use tokio::time::{Instant, sleep};

use super::paging::{Listed, Part};
use super::{Admin, AdminFault, Page};
use crate::{access_token::Presented, provider::Provider};

/// Largest assumed error of a clock's rate: one part in this many.
const CLOCK_DRIFT: u32 = 1000;
/// Largest assumed difference between the clocks of two nodes, for the age of an event.
const CLOCK_SKEW: Duration = Duration::from_secs(5);
/// Time between two reads of the list.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Consumer of the revocation log.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct FollowerView {
    /// Name of the consumer: its `telemetry.service`, the address of its first listener, its host
    /// and its process.
    pub name: String,
    /// Number of events that it has not applied; absent if it has no position yet and accepts no
    /// token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Lease in seconds: how long an answer stays valid, counted from the query.
    pub lease: f64,
    /// Seconds since its entry was last written: at least every five seconds while it sends
    /// queries, and after each applied event.
    pub heard: f64,
}

impl Listed for FollowerView {
    fn position(&self) -> String {
        self.name.clone()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        vec![(&self.name).into()]
    }
}

/// Query parameters of the list of consumers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListFollowers {
    /// Only consumers after the one with this name.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only consumers with this text, in any case, in the name.
    pub search: Option<String>,
}

/// List of the consumers of the revocation log.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct FollowerList {
    /// Sequence number of the last event in the log.
    pub head: u64,
    /// Consumers by name. A stopped consumer stays in the list for up to two minutes.
    pub items: Vec<FollowerView>,
    /// Value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How it is established that all consumers refuse what was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    /// All consumers confirmed that they have applied it.
    Applied,
    /// The leases of consumers without confirmation have ended, so they accept no cached token.
    Lapsed,
}

/// Result of a wait: everything revoked before the request is refused everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct InForce {
    /// How this was established.
    pub proof: Proof,
    /// Number of consumers in the list.
    pub followers: u64,
    /// Duration of the wait in seconds.
    pub seconds: f64,
}

/// Whether a revoked token is refused everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Refusal {
    /// Whether every consumer has applied the revocation or has no valid lease.
    pub everywhere: bool,
    /// Names of the consumers that have not confirmed the revocation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_yet: Vec<String>,
    /// Upper bound in seconds until they refuse it too, even without confirmation; absent if it is
    /// refused everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
}

impl Admin<'_> {
    /// Returns all consumers and how far each has applied the log.
    ///
    /// # Errors
    /// [`AdminFault`] when the store fails.
    pub async fn followers(&self) -> Result<FollowerList, AdminFault> {
        let store = self.provider.store();
        let (listed, head) = (store.followers().await?, store.head().await?);
        let items = listed.iter().map(|listed| view(listed, head)).collect();
        Ok(FollowerList { head: head.seq, items, next: None })
    }

    /// Lists some of the consumers.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or the store fails.
    pub async fn list_followers(&self, list: &ListFollowers) -> Result<FollowerList, AdminFault> {
        let FollowerList { head, items, .. } = self.followers().await?;
        let part = Part { search: list.search.as_deref(), limit: list.limit, after: list.after.as_deref() };
        let Page { items, next } = part.of(items)?;
        Ok(FollowerList { head, items, next })
    }

    /// Waits until everything revoked so far is refused everywhere: at most one lease.
    ///
    /// # Errors
    /// [`AdminFault`] when the store fails.
    pub async fn in_force(&self) -> Result<InForce, AdminFault> {
        Ok(wait_in_force(self.provider, Instant::now()).await?)
    }

    /// Whether a revoked token is refused everywhere by now.
    pub(super) async fn refusal(&self, token: &Presented) -> Result<Refusal, AdminFault> {
        let store = self.provider.store();
        let (head, denied) = store.prove_tags(token.tags(self.provider.secrets())).await?;
        let against = denied.iter().filter(|d| d.not_before.is_none_or(|then| token.read_at < then));
        // The first matching event decides. A denial without an event is at most as recent as the
        // others.
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
            // The log has a new epoch: this number means another event.
            _ if now.epoch != head.epoch => Duration::ZERO,
            Some(event) => self.provider.now().since(event.at),
            // An event that was deleted from the log is older than any lease.
            None => Duration::MAX,
        };
        let left = lease.map_or(Duration::ZERO, |lease| remaining_lease(lease, age));
        let within = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let not_yet = late.iter().map(|follower| follower.name.to_string()).collect();
        Ok(Refusal { everywhere: within == 0, not_yet, within: (within > 0).then_some(within) })
    }
}

/// How long a consumer with this lease may still accept what an event of this age revoked. The time
/// of the event was taken before it was durable; until then queries did not return it.
fn remaining_lease(lease: Duration, age: Duration) -> Duration {
    (lease + lease / CLOCK_DRIFT + WRITE_TIMEOUT + CLOCK_SKEW).saturating_sub(age)
}

/// Waits until everything that was durable at `since` is refused everywhere.
pub(crate) async fn wait_in_force(provider: &Provider, since: Instant) -> Result<InForce, StoreError> {
    let store = provider.store();
    // Read after `since`, so the head includes all those events, and the list includes every
    // consumer that may not know them. A consumer that joins later is answered with the events
    // included. Both come from one proven read: a database that was replaced by failover must not
    // confirm anything.
    let (head, mut listed) = store.prove_followers().await?;
    let longest = listed.iter().map(|listed| listed.follower.lease).max().unwrap_or_default();
    loop {
        let proof = if applied(&listed, head) {
            Some(Proof::Applied)
        } else if since.elapsed() >= longest + longest / CLOCK_DRIFT {
            Some(Proof::Lapsed)
        } else {
            None
        };
        if let Some(proof) = proof {
            let followers = listed.len() as u64;
            return Ok(InForce { proof, followers, seconds: since.elapsed().as_secs_f64() });
        }
        sleep(POLL_INTERVAL).await;
        // A plain read is cheap. Its result counts only if a proven read confirms it.
        if store.followers().await.is_ok_and(|seen| applied(&seen, head))
            && let Ok((_, proven)) = store.prove_followers().await
        {
            listed = proven;
        }
    }
}

fn applied(listed: &[FollowerRow], head: LogHead) -> bool {
    all_applied(listed.iter().map(|listed| &listed.follower), head)
}

fn view(listed: &FollowerRow, head: LogHead) -> FollowerView {
    let follower = &listed.follower;
    let applied = follower.applied.filter(|applied| applied.epoch == head.epoch);
    FollowerView {
        name: follower.name.to_string(),
        behind: applied.map(|applied| head.seq.saturating_sub(applied.seq)),
        lease: follower.lease.as_secs_f64(),
        heard: listed.age.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_for_its_commit_is_not_in_force_too_early() {
        let (second, lease) = (Duration::from_secs(1), Duration::from_secs(5));
        // The event became durable at the end of the writer's patience. A consumer with a slow
        // clock sent its query just before.
        let ends = WRITE_TIMEOUT + lease + lease / CLOCK_DRIFT + CLOCK_SKEW;
        assert!(
            remaining_lease(lease, ends.saturating_sub(second)) >= second
                && remaining_lease(lease, ends).is_zero()
        );
        assert!(
            remaining_lease(lease, Duration::MAX).is_zero() && remaining_lease(lease, Duration::ZERO) == ends
        );
    }
}
