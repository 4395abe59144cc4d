//! Whether an authority answers at all.
//!
//! Owns: since when nothing that it was asked was answered, over whatever way, and what follows from that ([`Hearing`]). Does not own:
//! the questions, and what becomes of those who would have to ask.
//!
//! An authority is *silent* when it was asked and has answered nothing for a whole lease. Then no lease is left either: each began when a
//! question went out that was answered since. Whoever would have to ask could only wait in vain: they are refused at once, and only probes go
//! on, until one thing is answered. An authority that is slow is not silent, since its answers come.
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
    /// Nothing was answered for a lease.
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
    /// When the oldest question went out that nothing was answered since.
    asked: Option<Boot>,
    /// When something was last answered, as far as was looked.
    heard: Option<Boot>,
    /// Something was answered since it was last looked.
    answered: bool,
    /// When it was last looked.
    looked: Option<Boot>,
    /// When there is something new to see, if nothing is answered by then.
    turns_at: Option<Boot>,
}

impl Silence {
    /// Something is asked.
    pub(crate) fn asked(&self, now: Boot) {
        self.state.lock().asked.get_or_insert(now);
    }

    /// Something was answered.
    pub fn heard(&self) {
        if mutation::is(Mutation::EndlessSilence) {
            return;
        }
        let mut state = self.state.lock();
        (state.asked, state.answered) = (None, true);
        self.turn(Hearing::Answers);
    }

    /// Has time pass, by the clock of this node. Whoever looks does so each `often`, or more often, and asks as often: if they have not, the
    /// node stood still, and an answer may be there that nobody has read. Then it is waited for anew.
    pub(crate) fn look(&self, now: Boot, often: Duration, lease: Duration) {
        let mut state = self.state.lock();
        let stood_still = state.looked.replace(now).is_some_and(|last| now.since(last) > 2 * often);
        if std::mem::take(&mut state.answered) || stood_still && *self.hearing.borrow() != Hearing::Silent {
            state.heard = Some(now);
        }
        let lease = if mutation::is(Mutation::HastySilence) { lease / 10 } else { lease };
        let since = state.asked.map(|asked| state.heard.map_or(asked, |heard| heard.max(asked.minus(often))));
        let of = |share: Duration| since.map(|since| since.plus(share));
        let is_over = |share| of(share).is_some_and(|over| now >= over);
        let (hearing, turns_at) = if is_over(lease) {
            (Hearing::Silent, None)
        } else if is_over(lease / 2) {
            (Hearing::Doubtful, of(lease))
        } else {
            (Hearing::Answers, of(lease / 2))
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

    /// Looks twice a second.
    fn pass(silence: &Silence, millis: std::ops::Range<u64>) -> Hearing {
        millis.step_by(500).for_each(|now| silence.look(at(now), OFTEN, LEASE));
        silence.hearing()
    }

    #[test]
    fn silence_begins_a_lease_after_the_first_question_that_nothing_answers() {
        let silence = Silence::default();
        assert_eq!(pass(&silence, 0..60_000), Hearing::Answers, "nothing was asked");
        silence.asked(at(60_000));
        assert_eq!(pass(&silence, 60_000..62_500), Hearing::Answers);
        silence.asked(at(62_400));
        assert_eq!(pass(&silence, 62_500..65_000), Hearing::Doubtful);
        assert_eq!(pass(&silence, 65_000..90_000), Hearing::Silent);
        silence.heard();
        assert_eq!(silence.hearing(), Hearing::Answers, "at once");
        assert_eq!(pass(&silence, 90_000..99_000), Hearing::Answers, "and nothing is asked");
    }

    #[test]
    fn it_begins_when_the_lease_ends_that_the_last_answer_gave() {
        let silence = Silence::default();
        silence.asked(at(0));
        silence.look(at(0), OFTEN, LEASE);
        silence.heard();
        // The answer came after a hundredth of a second.
        silence.look(at(10), OFTEN, LEASE);
        silence.asked(at(500));
        assert_eq!(pass(&silence, 500..5_000), Hearing::Doubtful);
        assert_eq!(silence.turns_at(), Some(at(5_010)));
        silence.look(at(5_009), OFTEN, LEASE);
        assert_eq!(silence.hearing(), Hearing::Doubtful);
        silence.look(at(5_010), OFTEN, LEASE);
        assert!(silence.is_silent());
    }

    #[test]
    fn an_answer_within_each_lease_is_enough() {
        let silence = Silence::default();
        for second in (0..60_000).step_by(4_500) {
            silence.asked(at(second));
            assert_ne!(pass(&silence, second..second + 4_500), Hearing::Silent);
            silence.heard();
        }
    }

    #[test]
    fn a_node_that_stood_still_waits_for_answers_anew() {
        let silence = Silence::default();
        silence.look(at(0), OFTEN, LEASE);
        silence.asked(at(0));
        assert_eq!(pass(&silence, 60_000..64_500), Hearing::Doubtful);
        assert_eq!(pass(&silence, 65_000..66_000), Hearing::Silent);
        silence.look(at(100_000), OFTEN, LEASE);
        assert!(silence.is_silent(), "who was silent before is so after");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_it_is_told() {
        let silence = std::sync::Arc::new(Silence::default());
        let waits = tokio::spawn({
            let silence = silence.clone();
            async move { silence.until(Hearing::Silent).await }
        });
        silence.asked(at(0));
        pass(&silence, 0..4_500);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        pass(&silence, 4_500..5_500);
        waits.await.expect("told");
    }
}
