//! Revocation query: asks an authority whether a credential was revoked, when local state cannot
//! tell.
//!
//! Owns: the questions that wait, and putting them into one query; that no request waits for a
//! silent authority. Does not own: how the authority is reached ([`RevocationQuery`]), when it is
//! silent ([`Silence`]).
//!
//! A node queries while it has no lease, or while its denylist is incomplete: then it asks about
//! each credential. One query is in flight at a time; questions that arrive meanwhile go into the
//! next one. So the load on an authority does not grow with the load on the node, and no request
//! waits for longer than two answers take.
//!
//! When nothing was answered for half a lease, an empty query is sent now and then: it may take the
//! only transport that works. It continues while the authority is silent, and is the one query that
//! may take long; no other query is sent then.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::denylist::DenylistEntry;
use crate::log_types::{LogHead, Tag};
use crate::silence::{Responsiveness, Silence};

/// Most credentials in one query: with all their tags some 200 KB, over HTTP.
const MAX_BATCH: usize = 1000;
/// Most credentials in the queue; when it is full, callers wait for room.
const QUEUE: usize = 4096;
/// Time limit for an answer; after it the caller gets none.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of an empty query: it may take longer, since no request waits for it.
const EMPTY_QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two empty queries.
const EMPTY_QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// Queries the authority.
pub trait RevocationQuery: Send + Sync + 'static {
    /// Those of `tags` that are denied, and the head of the log, all read after this call; the head
    /// may be older than the denials. `None` when the authority cannot be reached, or its server is
    /// not certain to be the primary.
    fn query_denied(
        &self,
        tags: Vec<Tag>,
    ) -> impl Future<Output = Option<(LogHead, Vec<(Tag, DenylistEntry)>)>> + Send;
}

/// Answer of an authority about one credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevocationAnswer {
    /// Head of the log that the answer includes.
    pub as_of: LogHead,
    /// Tag by which the credential was revoked, if it was.
    pub denied: Option<Tag>,
}

struct Question {
    tags: Box<[Tag]>,
    issued_at: i64,
    answer: oneshot::Sender<RevocationAnswer>,
}

/// Handle to which questions are submitted. Clones share one queue.
#[derive(Debug, Clone)]
pub struct QueryHandle {
    questions: mpsc::Sender<Question>,
    silence: Arc<Silence>,
}

impl QueryHandle {
    /// Creates a handle, and the future that must run for it to answer. `silence` records whether
    /// the authority answers.
    pub fn new(
        authority: impl RevocationQuery,
        silence: Arc<Silence>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (questions, waiting) = mpsc::channel(QUEUE);
        (Self { questions, silence: silence.clone() }, run_queries(authority, waiting, silence))
    }

    /// Whether the authority is silent, so that callers get no answer at once.
    pub fn is_silent(&self) -> bool {
        self.silence.is_silent()
    }

    /// Waits until the authority is silent; returns at once if it is.
    pub async fn wait_silent(&self) {
        self.silence.wait_until(Responsiveness::Silent).await;
    }

    /// Whether a credential that carries these tags and was issued at `issued_at`, in milliseconds
    /// since 1970, is revoked. `None`: it is unknown now.
    pub async fn query(&self, tags: &[Tag], issued_at: i64) -> Option<RevocationAnswer> {
        let (answer, answer_receiver) = oneshot::channel();
        let question = Question { tags: tags.into(), issued_at, answer };
        // The wait for room counts like the wait for the answer. When a lease is lost, every open
        // exchange asks at once; none may be refused that can be answered in time.
        let exchange = async {
            self.questions.send(question).await.ok()?;
            answer_receiver.await.ok()
        };
        tokio::select! {
            biased;
            () = self.wait_silent() => None,
            answer = timeout(ANSWER_TIMEOUT, exchange) => answer.ok()?,
        }
    }
}

async fn run_queries(
    authority: impl RevocationQuery,
    mut waiting: mpsc::Receiver<Question>,
    silence: Arc<Silence>,
) {
    let mut questions = Vec::with_capacity(MAX_BATCH);
    loop {
        tokio::select! {
            biased;
            taken = waiting.recv_many(&mut questions, MAX_BATCH) => if taken == 0 { return },
            // Dropped when a question arrives: its answer shows as much.
            never = send_empty_queries(&authority, &silence) => match never {},
        }
        // The first callers may have left meanwhile.
        questions.retain(|question| !question.answer.is_closed());
        let mut tags: Vec<Tag> = questions.iter().flat_map(|question| &question.tags).copied().collect();
        tags.sort_unstable();
        tags.dedup();
        let denied = tokio::select! {
            biased;
            () = silence.wait_until(Responsiveness::Silent) => None,
            answered = timeout(ANSWER_TIMEOUT, authority.query_denied(tags)) => answered.ok().flatten(),
        };
        if denied.is_some() {
            silence.answer_received();
        }
        for question in questions.drain(..) {
            let Some((as_of, denied)) = &denied else { continue };
            let concerns = |(tag, denial): &&(Tag, DenylistEntry)| {
                question.tags.contains(tag) && denial.not_before.is_none_or(|then| question.issued_at < then)
            };
            let denied = denied.iter().find(concerns).map(|(tag, _)| *tag);
            // The caller may have left.
            let _ = question.answer.send(RevocationAnswer { as_of: *as_of, denied });
        }
    }
}

/// Sends empty queries as long as nothing is answered.
async fn send_empty_queries(authority: &impl RevocationQuery, silence: &Silence) -> Infallible {
    loop {
        silence.wait_until(Responsiveness::Suspect).await;
        if matches!(timeout(EMPTY_QUERY_TIMEOUT, authority.query_denied(Vec::new())).await, Ok(Some(_))) {
            silence.answer_received();
        } else {
            sleep(EMPTY_QUERY_INTERVAL).await;
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

    /// Denies tag 1 to credentials issued before 100, and answers after a while, or never.
    struct Slow {
        query_count: Arc<AtomicUsize>,
        takes: Duration,
    }

    impl RevocationQuery for Slow {
        async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
            self.query_count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.takes).await;
            let denial = DenylistEntry { not_before: Some(100), until: 1000 };
            Some((HEAD, tags.into_iter().filter(|one| *one == tag(1)).map(|one| (one, denial)).collect()))
        }
    }

    fn desk(takes: Duration) -> (QueryHandle, Arc<AtomicUsize>) {
        let query_count = Arc::<AtomicUsize>::default();
        let (desk, attended) =
            QueryHandle::new(Slow { query_count: query_count.clone(), takes }, Arc::default());
        tokio::spawn(attended);
        (desk, query_count)
    }

    /// Leaves everything unanswered for this long.
    fn unanswered(silence: &Silence, time: Duration) {
        silence.answer_received();
        silence.update(Boot(0), time, LEASE, Boot(0));
        silence.query_sent(Boot(0), Duration::ZERO);
        silence.update(Boot(0).plus(time), time, LEASE, Boot(0));
    }

    const LEASE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn each_hears_of_its_own_and_all_are_asked_about_together() {
        let (desk, query_count) = desk(Duration::from_millis(10));
        let mut askers = tokio::task::JoinSet::new();
        for number in 0..100 {
            let desk = desk.clone();
            // Two credentials carry the denied tag; one of them was issued after the revocation.
            let issued_at = if number == 51 { 200 } else { 50 };
            let tags = [tag(if number == 50 || number == 51 { 1 } else { 2 }), tag(3)];
            askers.spawn(async move { (number, desk.query(&tags, issued_at).await) });
        }
        while let Some(answered) = askers.join_next().await {
            let (number, confirmed) = answered.expect("no panic");
            let denied = (number == 50).then(|| tag(1));
            assert_eq!(confirmed, Some(RevocationAnswer { as_of: HEAD, denied }), "{number}");
        }
        assert!(query_count.load(Ordering::Relaxed) <= 2, "{query_count:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_line_is_no_answer_to_anybody() {
        let (desk, query_count) = desk(Duration::from_millis(100));
        let mut askers = tokio::task::JoinSet::new();
        for _ in 0..3 * QUEUE {
            let desk = desk.clone();
            askers.spawn(async move { desk.query(&[tag(2)], 0).await });
        }
        while let Some(answered) = askers.join_next().await {
            assert_eq!(answered.expect("no panic"), Some(RevocationAnswer { as_of: HEAD, denied: None }));
        }
        assert!(
            query_count.load(Ordering::Relaxed) <= 1 + (3 * QUEUE).div_ceil(MAX_BATCH),
            "{query_count:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_answer_in_time_gets_none() {
        let (desk, _) = desk(Duration::from_mins(1));
        let began = tokio::time::Instant::now();
        assert_eq!(desk.query(&[tag(1)], 0).await, None);
        assert_eq!(began.elapsed(), ANSWER_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_who_is_silent() {
        let (desk, query_count) = desk(Duration::from_mins(1));
        let waits = tokio::spawn({
            let desk = desk.clone();
            async move { desk.query(&[tag(1)], 0).await }
        });
        sleep(Duration::from_millis(500)).await;
        unanswered(&desk.silence, LEASE);
        let began = tokio::time::Instant::now();
        assert_eq!(waits.await.expect("no panic"), None);
        for _ in 0..1000 {
            assert_eq!(desk.query(&[tag(1)], 0).await, None);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        let before = query_count.load(Ordering::Relaxed);
        sleep(Duration::from_mins(1)).await;
        // One empty query at a time, and a pause after it.
        let most = 60 / (EMPTY_QUERY_TIMEOUT + EMPTY_QUERY_INTERVAL).as_secs() + 1;
        let empty = query_count.load(Ordering::Relaxed) - before;
        assert!(empty > 1 && empty as u64 <= most, "{empty} questions");
    }

    #[tokio::test(start_paused = true)]
    async fn any_answer_ends_the_silence() {
        for time in [LEASE / 2, LEASE] {
            let (desk, query_count) = desk(Duration::from_millis(100));
            unanswered(&desk.silence, time);
            assert_eq!(query_count.load(Ordering::Relaxed), 0);
            sleep(Duration::from_millis(200)).await;
            assert_eq!(query_count.load(Ordering::Relaxed), 1, "asked although nobody asks");
            assert_eq!(desk.silence.current(), Responsiveness::Responsive);
            assert!(desk.query(&[tag(2)], 0).await.is_some());
        }
    }
}
