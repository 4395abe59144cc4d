//! Whether an authority answers at all.
//!
//! Owns: since when nothing that it was asked was answered, over whatever way, and what follows from that ([`Hearing`]). Does not own:
//! the questions, and what becomes of those who would have to ask.
//!
//! An authority is *silent* when the lease is over and what was asked first after its last answer has waited for a lease, less the time
//! between two probes. Whoever would have to ask could only wait in vain: they are refused at once, and only probes go on, until one thing is
//! answered. An authority that is slow is not silent, since its answers come.
//!
//! A probe goes out each `often`, so the last answer came no more than that before what was asked first after it. Counted from the answer
//! itself, silence would begin as much after the end of the lease as a question of another kind was answered after the last probe: up to half
//! a second, in which everybody waits.
//!
//! What counts is an answer to a question of this node. Events do not: they may be repeated by anybody, and say nothing of whether
//! questions arrive.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::mutation::{self, Mutation};
use crate::time::Boot;

/// How an authority is heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hearing {
    /// It answers, or was not asked for long.
    #[default]
    Answers,
    /// Nothing was answered for half a lease: it is asked over every way there is.
    Doubtful,
    /// Nothing was answered for a lease, less the time between two probes, and none is left.
    Silent,
}

/// What is noted of questions and answers to one authority.
#[derive(Debug, Default)]
pub struct Silence {
    state: Mutex<State>,
    hearing: watch::Sender<Hearing>,
}

#[derive(Debug, Default)]
struct State {
    /// From when on it counts that nothing is answered; `None` where everything is answered, or nothing was asked.
    unanswered: Option<Boot>,
    /// When it was last looked.
    looked: Option<Boot>,
    /// When there is something new to see, if nothing is answered by then.
    turns_at: Option<Boot>,
}

impl Silence {
    /// Something is asked, as is done each `often`.
    pub(crate) fn asked(&self, now: Boot, often: Duration) {
        self.state.lock().unanswered.get_or_insert(now.minus(often));
    }

    /// Something was answered.
    pub fn heard(&self) {
        if mutation::is(Mutation::EndlessSilence) {
            return;
        }
        let mut state = self.state.lock();
        state.unanswered = None;
        self.turn(Hearing::Answers);
    }

    /// Has time pass, by the clock of this node; leases take so long, and the present one ends at `ends`. Whoever looks does so each `often`,
    /// or more often, and asks as often: if they have not, the node stood still, and an answer may be there that nobody has read. Then it is
    /// waited for anew.
    pub(crate) fn look(&self, now: Boot, often: Duration, lease: Duration, ends: Boot) {
        let mut state = self.state.lock();
        let stood_still = state.looked.replace(now).is_some_and(|last| now.since(last) > 2 * often);
        if stood_still && *self.hearing.borrow() != Hearing::Silent {
            state.unanswered = state.unanswered.map(|_| now);
        }
        let (lease, ends) =
            if mutation::is(Mutation::HastySilence) { (lease / 10, Boot(0)) } else { (lease, ends) };
        let doubtful = state.unanswered.map(|since| since.plus(lease / 2));
        let silent = state.unanswered.map(|since| since.plus(lease).max(ends));
        let is_over = |at: Option<Boot>| at.is_some_and(|at| now >= at);
        let (hearing, turns_at) = if is_over(silent) {
            (Hearing::Silent, None)
        } else if is_over(doubtful) {
            (Hearing::Doubtful, silent)
        } else {
            (Hearing::Answers, doubtful)
        };
        state.turns_at = turns_at;
        self.turn(hearing);
    }

    /// When it is to be looked at the latest.
    pub(crate) fn turns_at(&self) -> Option<Boot> {
        self.state.lock().turns_at
    }

    /// How it is heard.
    pub fn hearing(&self) -> Hearing {
        *self.hearing.borrow()
    }

    /// The same, and each change of it.
    pub fn watch(&self) -> watch::Receiver<Hearing> {
        self.hearing.subscribe()
    }

    /// Whether nobody needs to ask.
    pub fn is_silent(&self) -> bool {
        self.hearing() == Hearing::Silent
    }

    /// Waits until it is heard as badly as that, or worse; at once if it is.
    pub async fn until(&self, hearing: Hearing) {
        // The sender is here.
        let _ = self.hearing.subscribe().wait_for(|now| *now >= hearing).await;
    }

    /// Under the lock of the state, which it follows from.
    fn turn(&self, hearing: Hearing) {
        self.hearing.send_if_modified(|before| std::mem::replace(before, hearing) != hearing);
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

    /// Looks twice a second, where the lease ends then.
    fn pass(silence: &Silence, millis: std::ops::Range<u64>, ends: u64) -> Hearing {
        millis.step_by(500).for_each(|now| silence.look(at(now), OFTEN, LEASE, at(ends)));
        silence.hearing()
    }

    #[test]
    fn silence_begins_a_lease_after_the_last_answer_at_the_latest() {
        let silence = Silence::default();
        assert_eq!(pass(&silence, 0..60_000, 0), Hearing::Answers, "nothing was asked");
        silence.asked(at(60_000), OFTEN);
        assert_eq!(pass(&silence, 60_000..62_000, 0), Hearing::Answers);
        silence.asked(at(61_900), OFTEN);
        assert_eq!(pass(&silence, 62_000..64_500, 0), Hearing::Doubtful);
        assert_eq!(pass(&silence, 64_500..90_000, 0), Hearing::Silent);
        silence.heard();
        assert_eq!(silence.hearing(), Hearing::Answers, "at once");
        assert_eq!(pass(&silence, 90_000..99_000, 0), Hearing::Answers, "and nothing is asked");
    }

    #[test]
    fn it_begins_when_the_lease_ends_whatever_was_answered_after_the_last_probe() {
        for answered in [10, 400, 499] {
            let silence = Silence::default();
            // A probe and its answer, and that to another question some time later.
            silence.asked(at(0), OFTEN);
            silence.look(at(0), OFTEN, LEASE, at(0));
            silence.heard();
            silence.look(at(10), OFTEN, LEASE, at(5_000));
            silence.asked(at(answered - 5), OFTEN);
            silence.heard();
            silence.asked(at(500), OFTEN);
            assert_eq!(pass(&silence, 500..5_000, 5_000), Hearing::Doubtful);
            assert_eq!(silence.turns_at(), Some(at(5_000)));
            silence.look(at(4_999), OFTEN, LEASE, at(5_000));
            assert_eq!(silence.hearing(), Hearing::Doubtful);
            silence.look(at(5_000), OFTEN, LEASE, at(5_000));
            assert!(silence.is_silent(), "answered at {answered}");
        }
    }

    #[test]
    fn it_does_not_begin_before_the_lease_ends() {
        let silence = Silence::default();
        silence.asked(at(10), OFTEN);
        assert_eq!(pass(&silence, 0..7_500, 7_500), Hearing::Doubtful);
        assert_eq!(pass(&silence, 7_500..8_000, 7_500), Hearing::Silent);
    }

    #[test]
    fn an_answer_within_each_lease_is_enough() {
        let silence = Silence::default();
        for second in (0..60_000).step_by(4_500) {
            silence.asked(at(second), OFTEN);
            assert_ne!(pass(&silence, second..second + 4_500, 0), Hearing::Silent);
            silence.heard();
        }
    }

    #[test]
    fn a_node_that_stood_still_waits_for_answers_anew() {
        let silence = Silence::default();
        silence.look(at(0), OFTEN, LEASE, at(0));
        silence.asked(at(0), OFTEN);
        assert_eq!(pass(&silence, 60_000..64_500, 0), Hearing::Doubtful);
        assert_eq!(pass(&silence, 65_000..66_000, 0), Hearing::Silent);
        silence.look(at(100_000), OFTEN, LEASE, at(0));
        assert!(silence.is_silent(), "who was silent before is so after");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_it_is_told() {
        let silence = std::sync::Arc::new(Silence::default());
        let waits = tokio::spawn({
            let silence = silence.clone();
            async move { silence.until(Hearing::Silent).await }
        });
        silence.asked(at(0), OFTEN);
        pass(&silence, 0..4_500, 0);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        pass(&silence, 4_500..5_500, 0);
        waits.await.expect("told");
    }
}
