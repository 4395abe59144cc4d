//! Asking an authority whether something was taken back, when what is known here does not say.
//!
//! Owns: the questions that wait, and putting them together; that nobody waits for an authority that is silent. Does not own: how the
//! authority is reached ([`RevocationQuery`]), when it is silent ([`Silence`]).
//!
//! That is how a node goes on while it has no lease, or has no room for all that is denied: each credential is asked about. One
//! question is under way at a time; whatever comes meanwhile goes with the next one. So the load on an authority does not
//! grow with that on the node, and nobody waits for longer than two answers take.
//!
//! Where nothing was answered for half a lease an empty question is asked now and then: it may take the only way that is open. It goes on
//! while the authority is silent, as the one question that may take its time; nobody else's is asked then.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::denylist::DenylistEntry;
use crate::log_types::{LogHead, Tag};
use crate::silence::{Hearing, Silence};

/// Credentials that are asked about in one question: with all that can take them back some 200 KB, over HTTP.
const TOGETHER: usize = 1000;
/// Credentials that wait in line; whoever finds it full waits for room.
const WAITING: usize = 4096;
/// Whoever has no answer by then gets none.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// An empty question may take longer: nobody waits for it.
const LONG: Duration = Duration::from_secs(5);
/// Between two of them.
const AGAIN: Duration = Duration::from_secs(1);

/// How an authority is asked.
pub trait RevocationQuery: Send + Sync + 'static {
    /// Those of `tags` that are denied, and the head of the log, all as of after this was called; the head may be older than the
    /// denials. `None` when the authority cannot be reached, or is not certain to be the one that is in force.
    fn denied(
        &self,
        tags: Vec<Tag>,
    ) -> impl Future<Output = Option<(LogHead, Vec<(Tag, DenylistEntry)>)>> + Send;
}

/// What an authority says of one credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevocationAnswer {
    /// What the answer knew of.
    pub as_of: LogHead,
    /// The tag that it was taken back by, if it was.
    pub denied: Option<Tag>,
}

struct Question {
    tags: Box<[Tag]>,
    issued_at: i64,
    answer: oneshot::Sender<RevocationAnswer>,
}

/// Where questions are handed in. Clones are one.
#[derive(Debug, Clone)]
pub struct QueryDesk {
    questions: mpsc::Sender<Question>,
    silence: Arc<Silence>,
}

impl QueryDesk {
    /// A desk, and what has to run for it to answer. `silence` is where it is noted whether the authority answers.
    pub fn new(
        authority: impl RevocationQuery,
        silence: Arc<Silence>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (questions, waiting) = mpsc::channel(WAITING);
        (Self { questions, silence: silence.clone() }, attend(authority, waiting, silence))
    }

    /// Whether the authority answers nothing, so that whoever asks is told so at once.
    pub fn is_silent(&self) -> bool {
        self.silence.is_silent()
    }

    /// Waits until it answers nothing; at once if it does not.
    pub async fn silent(&self) {
        self.silence.until(Hearing::Silent).await;
    }

    /// Whether a credential is denied that carries these tags and was issued then, in milliseconds since 1970. `None`: nobody
    /// knows now.
    pub async fn ask(&self, tags: &[Tag], issued_at: i64) -> Option<RevocationAnswer> {
        let (answer, answered) = oneshot::channel();
        let question = Question { tags: tags.into(), issued_at, answer };
        // Room is waited for like the answer: when a lease is lost everything that is open asks at once, and nobody is to be turned away
        // who can be answered in time.
        let told = async {
            self.questions.send(question).await.ok()?;
            answered.await.ok()
        };
        tokio::select! {
            biased;
            () = self.silent() => None,
            told = timeout(PATIENCE, told) => told.ok()?,
        }
    }
}

async fn attend(
    authority: impl RevocationQuery,
    mut waiting: mpsc::Receiver<Question>,
    silence: Arc<Silence>,
) {
    let mut questions = Vec::with_capacity(TOGETHER);
    loop {
        tokio::select! {
            biased;
            taken = waiting.recv_many(&mut questions, TOGETHER) => if taken == 0 { return },
            // Dropped where somebody asks, whose answer shows as much.
            never = knock(&authority, &silence) => match never {},
        }
        // Who asked first may have gone meanwhile.
        questions.retain(|question| !question.answer.is_closed());
        let mut tags: Vec<Tag> = questions.iter().flat_map(|question| &question.tags).copied().collect();
        tags.sort_unstable();
        tags.dedup();
        let denied = tokio::select! {
            biased;
            () = silence.until(Hearing::Silent) => None,
            answered = timeout(PATIENCE, authority.denied(tags)) => answered.ok().flatten(),
        };
        if denied.is_some() {
            silence.heard();
        }
        for question in questions.drain(..) {
            let Some((as_of, denied)) = &denied else { continue };
            let concerns = |(tag, denial): &&(Tag, DenylistEntry)| {
                question.tags.contains(tag) && denial.not_before.is_none_or(|then| question.issued_at < then)
            };
            let denied = denied.iter().find(concerns).map(|(tag, _)| *tag);
            // Nobody may be waiting any more.
            let _ = question.answer.send(RevocationAnswer { as_of: *as_of, denied });
        }
    }
}

/// Asks nothing in particular, as long as nothing is answered.
async fn knock(authority: &impl RevocationQuery, silence: &Silence) -> Infallible {
    loop {
        silence.until(Hearing::Doubtful).await;
        if matches!(timeout(LONG, authority.denied(Vec::new())).await, Ok(Some(_))) {
            silence.heard();
        } else {
            sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::log_types::Epoch;
    use crate::time::Boot;

    const HEAD: LogHead = LogHead { epoch: Epoch([1; 16]), seq: 7 };

    fn tag(number: u8) -> Tag {
        Tag([number; Tag::LENGTH])
    }

    /// Denies what was issued before 100 and carries tag 1, and answers after a while, or never.
    struct Slow {
        asked: Arc<AtomicUsize>,
        takes: Duration,
    }

    impl RevocationQuery for Slow {
        async fn denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.takes).await;
            let denial = DenylistEntry { not_before: Some(100), until: 1000 };
            Some((HEAD, tags.into_iter().filter(|one| *one == tag(1)).map(|one| (one, denial)).collect()))
        }
    }

    fn desk(takes: Duration) -> (QueryDesk, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let (desk, attended) = QueryDesk::new(Slow { asked: asked.clone(), takes }, Arc::default());
        tokio::spawn(attended);
        (desk, asked)
    }

    /// Has everything be unanswered for so long.
    fn unanswered(silence: &Silence, time: Duration) {
        silence.heard();
        silence.look(Boot(0), time, LEASE, Boot(0));
        silence.asked(Boot(0), Duration::ZERO);
        silence.look(Boot(0).plus(time), time, LEASE, Boot(0));
    }

    const LEASE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn each_hears_of_its_own_and_all_are_asked_about_together() {
        let (desk, asked) = desk(Duration::from_millis(10));
        let mut askers = tokio::task::JoinSet::new();
        for number in 0..100 {
            let desk = desk.clone();
            // Two credentials carry the tag that is denied; one of them is new.
            let issued_at = if number == 51 { 200 } else { 50 };
            let tags = [tag(if number == 50 || number == 51 { 1 } else { 2 }), tag(3)];
            askers.spawn(async move { (number, desk.ask(&tags, issued_at).await) });
        }
        while let Some(answered) = askers.join_next().await {
            let (number, confirmed) = answered.expect("no panic");
            let denied = (number == 50).then(|| tag(1));
            assert_eq!(confirmed, Some(RevocationAnswer { as_of: HEAD, denied }), "{number}");
        }
        assert!(asked.load(Ordering::Relaxed) <= 2, "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_line_is_no_answer_to_anybody() {
        let (desk, asked) = desk(Duration::from_millis(100));
        let mut askers = tokio::task::JoinSet::new();
        for _ in 0..3 * WAITING {
            let desk = desk.clone();
            askers.spawn(async move { desk.ask(&[tag(2)], 0).await });
        }
        while let Some(answered) = askers.join_next().await {
            assert_eq!(answered.expect("no panic"), Some(RevocationAnswer { as_of: HEAD, denied: None }));
        }
        assert!(asked.load(Ordering::Relaxed) <= 1 + (3 * WAITING).div_ceil(TOGETHER), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_answer_in_time_gets_none() {
        let (desk, _) = desk(Duration::from_mins(1));
        let began = tokio::time::Instant::now();
        assert_eq!(desk.ask(&[tag(1)], 0).await, None);
        assert_eq!(began.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_who_is_silent() {
        let (desk, asked) = desk(Duration::from_mins(1));
        let waits = tokio::spawn({
            let desk = desk.clone();
            async move { desk.ask(&[tag(1)], 0).await }
        });
        sleep(Duration::from_millis(500)).await;
        unanswered(&desk.silence, LEASE);
        let began = tokio::time::Instant::now();
        assert_eq!(waits.await.expect("no panic"), None);
        for _ in 0..1000 {
            assert_eq!(desk.ask(&[tag(1)], 0).await, None);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        let before = asked.load(Ordering::Relaxed);
        sleep(Duration::from_mins(1)).await;
        // One empty question at a time, and a pause after it.
        let most = 60 / (LONG + AGAIN).as_secs() + 1;
        let empty = asked.load(Ordering::Relaxed) - before;
        assert!(empty > 1 && empty as u64 <= most, "{empty} questions");
    }

    #[tokio::test(start_paused = true)]
    async fn any_answer_ends_the_silence() {
        for time in [LEASE / 2, LEASE] {
            let (desk, asked) = desk(Duration::from_millis(100));
            unanswered(&desk.silence, time);
            assert_eq!(asked.load(Ordering::Relaxed), 0);
            sleep(Duration::from_millis(200)).await;
            assert_eq!(asked.load(Ordering::Relaxed), 1, "asked although nobody asks");
            assert_eq!(desk.silence.hearing(), Hearing::Answers);
            assert!(desk.ask(&[tag(2)], 0).await.is_some());
        }
    }
}
