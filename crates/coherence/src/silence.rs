//! Silence: whether an authority answers at all.
//!
//! Owns: since when no query of this node was answered, over any transport, and what follows from
//! that ([`Responsiveness`]). Does not own: the queries, and what happens to requests that need
//! one.
//!
//! An authority is *silent* when both are true:
//!
//! - the lease has expired;
//! - the first query after its last answer has waited for a lease, less the time between two
//!   probes.
//!
//! Requests that need a query would then wait in vain: they are refused at once. Only probes
//! continue, until one is answered. A slow authority is not silent, since its answers arrive.
//!
//! A probe is sent each `often`, so the last answer came at most that long before the first
//! unanswered query. If the time were counted from the answer, silence could begin up to half a
//! second after the end of the lease: as long as a query of another kind was answered after the
//! last probe. All requests would wait during that time.
//!
//! Only an answer to a query of this node counts. Events do not: anyone can replay them, and they
//! do not show whether queries arrive.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::mutation::{self, Mutation};
use crate::time::Boot;

/// How well an authority responds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Responsiveness {
    /// It answers, or no query has been open for long.
    #[default]
    Responsive,
    /// Nothing was answered for half a lease: it is queried over every available transport.
    Suspect,
    /// Nothing was answered for a lease, less the time between two probes, and the lease has
    /// expired.
    Silent,
}

/// Record of queries to one authority and its answers.
#[derive(Debug, Default)]
pub struct Silence {
    state: Mutex<State>,
    published: watch::Sender<Responsiveness>,
}

#[derive(Debug, Default)]
struct State {
    /// From when on the time without an answer counts; `None` if everything was answered, or
    /// nothing was queried.
    unanswered_since: Option<Boot>,
    /// When [`Silence::update`] was last called.
    last_update: Option<Boot>,
    /// When the state changes next, if nothing is answered by then.
    next_change_at: Option<Boot>,
}

impl Silence {
    /// Notes that something was queried, as is done each `often`.
    pub(crate) fn query_sent(&self, now: Boot, often: Duration) {
        self.state.lock().unanswered_since.get_or_insert(now.minus(often));
    }

    /// Notes that something was answered.
    pub fn answer_received(&self) {
        if mutation::is_active(Mutation::EndlessSilence) {
            return;
        }
        let mut state = self.state.lock();
        state.unanswered_since = None;
        self.publish(Responsiveness::Responsive);
    }

    /// Updates the state at `now`, by this node's clock, where a lease lasts for `lease` and the
    /// present one ends at `ends`. The caller looks and queries each `often`, or more often. If it
    /// did not, the node was suspended, and an answer may have arrived that was not read: the wait
    /// begins again.
    pub(crate) fn update(&self, now: Boot, often: Duration, lease: Duration, ends: Boot) {
        let mut state = self.state.lock();
        let stood_still = state.last_update.replace(now).is_some_and(|last| now.since(last) > 2 * often);
        if stood_still && *self.published.borrow() != Responsiveness::Silent {
            state.unanswered_since = state.unanswered_since.map(|_| now);
        }
        let (lease, ends) =
            if mutation::is_active(Mutation::EarlySilence) { (lease / 10, Boot(0)) } else { (lease, ends) };
        let doubtful = state.unanswered_since.map(|since| since.plus(lease / 2));
        let silent = state.unanswered_since.map(|since| since.plus(lease).max(ends));
        let is_over = |at: Option<Boot>| at.is_some_and(|at| now >= at);
        let (hearing, turns_at) = if is_over(silent) {
            (Responsiveness::Silent, None)
        } else if is_over(doubtful) {
            (Responsiveness::Suspect, silent)
        } else {
            (Responsiveness::Responsive, doubtful)
        };
        state.next_change_at = turns_at;
        self.publish(hearing);
    }

    /// Latest time at which [`Silence::update`] must be called.
    pub(crate) fn next_change_at(&self) -> Option<Boot> {
        self.state.lock().next_change_at
    }

    /// The current state of the authority.
    pub fn current(&self) -> Responsiveness {
        *self.published.borrow()
    }

    /// The current state, and each change of it.
    pub fn watch(&self) -> watch::Receiver<Responsiveness> {
        self.published.subscribe()
    }

    /// Whether a query would be in vain.
    pub fn is_silent(&self) -> bool {
        self.current() == Responsiveness::Silent
    }

    /// Waits until the state is `hearing` or worse; returns at once if it is.
    pub async fn wait_until(&self, hearing: Responsiveness) {
        // Cannot fail: the sender is in `self`.
        let _ = self.published.subscribe().wait_for(|now| *now >= hearing).await;
    }

    /// Publishes a state. Called under the lock of `state`, which it follows from.
    fn publish(&self, hearing: Responsiveness) {
        self.published.send_if_modified(|before| std::mem::replace(before, hearing) != hearing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);
    const OFTEN: Duration = Duration::from_millis(500);

    fn at(millis: u64) -> Boot {
        Boot(1_000_000_000_000).plus(Duration::from_millis(millis))
    }

    /// Looks twice a second, with a lease that ends at `ends`.
    fn pass(silence: &Silence, millis: std::ops::Range<u64>, ends: u64) -> Responsiveness {
        millis.step_by(500).for_each(|now| silence.update(at(now), OFTEN, LEASE, at(ends)));
        silence.current()
    }

    #[test]
    fn silence_begins_a_lease_after_the_last_answer_at_the_latest() {
        let silence = Silence::default();
        assert_eq!(pass(&silence, 0..60_000, 0), Responsiveness::Responsive, "nothing was asked");
        silence.query_sent(at(60_000), OFTEN);
        assert_eq!(pass(&silence, 60_000..62_000, 0), Responsiveness::Responsive);
        silence.query_sent(at(61_900), OFTEN);
        assert_eq!(pass(&silence, 62_000..64_500, 0), Responsiveness::Suspect);
        assert_eq!(pass(&silence, 64_500..90_000, 0), Responsiveness::Silent);
        silence.answer_received();
        assert_eq!(silence.current(), Responsiveness::Responsive, "at once");
        assert_eq!(pass(&silence, 90_000..99_000, 0), Responsiveness::Responsive, "and nothing is asked");
    }

    #[test]
    fn it_begins_when_the_lease_ends_whatever_was_answered_after_the_last_probe() {
        for answered in [10, 400, 499] {
            let silence = Silence::default();
            // A probe and its echo, and the answer to another query some time later.
            silence.query_sent(at(0), OFTEN);
            silence.update(at(0), OFTEN, LEASE, at(0));
            silence.answer_received();
            silence.update(at(10), OFTEN, LEASE, at(5_000));
            silence.query_sent(at(answered - 5), OFTEN);
            silence.answer_received();
            silence.query_sent(at(500), OFTEN);
            assert_eq!(pass(&silence, 500..5_000, 5_000), Responsiveness::Suspect);
            assert_eq!(silence.next_change_at(), Some(at(5_000)));
            silence.update(at(4_999), OFTEN, LEASE, at(5_000));
            assert_eq!(silence.current(), Responsiveness::Suspect);
            silence.update(at(5_000), OFTEN, LEASE, at(5_000));
            assert!(silence.is_silent(), "answered at {answered}");
        }
    }

    #[test]
    fn it_does_not_begin_before_the_lease_ends() {
        let silence = Silence::default();
        silence.query_sent(at(10), OFTEN);
        assert_eq!(pass(&silence, 0..7_500, 7_500), Responsiveness::Suspect);
        assert_eq!(pass(&silence, 7_500..8_000, 7_500), Responsiveness::Silent);
    }

    #[test]
    fn an_answer_within_each_lease_is_enough() {
        let silence = Silence::default();
        for second in (0..60_000).step_by(4_500) {
            silence.query_sent(at(second), OFTEN);
            assert_ne!(pass(&silence, second..second + 4_500, 0), Responsiveness::Silent);
            silence.answer_received();
        }
    }

    #[test]
    fn a_node_that_stood_still_waits_for_answers_anew() {
        let silence = Silence::default();
        silence.update(at(0), OFTEN, LEASE, at(0));
        silence.query_sent(at(0), OFTEN);
        assert_eq!(pass(&silence, 60_000..64_500, 0), Responsiveness::Suspect);
        assert_eq!(pass(&silence, 65_000..66_000, 0), Responsiveness::Silent);
        silence.update(at(100_000), OFTEN, LEASE, at(0));
        assert!(silence.is_silent(), "who was silent before is so after");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_it_is_told() {
        let silence = std::sync::Arc::new(Silence::default());
        let waits = tokio::spawn({
            let silence = silence.clone();
            async move { silence.wait_until(Responsiveness::Silent).await }
        });
        silence.query_sent(at(0), OFTEN);
        pass(&silence, 0..4_500, 0);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        pass(&silence, 4_500..5_500, 0);
        waits.await.expect("told");
    }
}
