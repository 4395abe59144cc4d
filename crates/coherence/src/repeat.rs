//! Queries over ways that lose messages.
//!
//! Owns: cutting what is asked about into queries whose answers fit into messages, repeating those that have no answer ([`RepeatedMessage`], a
//! machine without I/O), carrying them over a way for messages ([`ByMessage`]), and asking over every way there is, of which the first
//! answer counts ([`EveryTransport`]). Does not own: the form of a query, and what makes an answer belong to it ([`crate::query`]).
//!
//! A query that is repeated stays the same query. Whichever copy is answered, the answer was read after the first of them was sent, which is all
//! that is asked of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::denylist::DenylistEntry;
use crate::log_types::{ConsumerName, LogHead, Nonce, Tag};
use crate::message_channel::MessageChannel;
use crate::mutation::{self, Mutation};
use crate::query::{LogAnswer, LogQuery, LogQuestion};
use crate::revocation_query::RevocationQuery;
use crate::time::Boot;
use crate::transport::Topic;
use crate::wire::{self, Body, Keys};

/// Tags of one query: with what may be said of each, the answer fits into a message.
const TAGS: usize = 480;
/// Between two copies of a query, if few are open. Most messages may be lost; a request waits for two seconds.
const AGAIN: Duration = Duration::from_millis(25);
/// Queries of which each copy goes with the same beat; with more of them the beat is slower.
const FEW: u32 = 4;
/// Answers that wait to be looked at.
const ANSWERS: usize = 256;
/// Before the other ways are asked as well, when the nearest answered last time.
const NEAREST_ALONE: Duration = Duration::from_millis(50);
/// Before the nearest is asked a second time, beside the first: it may have been swallowed.
const NEAREST_AGAIN: Duration = Duration::from_millis(500);
/// The same for an empty question, which nobody waits for.
const NEAREST_AGAIN_FOR_NOBODY: Duration = Duration::from_secs(10);

/// What is asked about, until all of it is answered.
#[derive(Debug)]
pub struct RepeatedMessage {
    queries: Vec<(LogQuery, Option<LogAnswer>)>,
    next_at: Option<Boot>,
}

impl RepeatedMessage {
    /// About these tags, of the log of this authority; `None` where no nonce can be drawn. Each is random, as [`Query::new`] needs it.
    pub fn new(
        authority: &ConsumerName,
        tags: &[Tag],
        nonce: &mut dyn FnMut() -> Option<Nonce>,
    ) -> Option<Self> {
        let mut query = |tags: &[Tag]| {
            Some((LogQuery::new(authority, nonce()?, LogQuestion::Confirm(tags.to_vec())), None))
        };
        // Also who asks about nothing wants to know how far the log has got.
        let queries = if tags.is_empty() {
            vec![query(&[])?]
        } else {
            tags.chunks(TAGS).map(query).collect::<Option<_>>()?
        };
        Some(Self { queries, next_at: None })
    }

    /// When [`RepeatedMessage::tick`] has something to do; at once before the first time.
    pub fn wakes_at(&self) -> Boot {
        self.next_at.unwrap_or_default()
    }

    /// Says what has no answer yet, when that is due.
    pub fn tick(&mut self, now: Boot, bodies: &mut Vec<Body>) {
        if now < self.wakes_at() || mutation::is(Mutation::AskedOnce) && self.next_at.is_some() {
            return;
        }
        let open = self.queries.iter().filter(|(_, answer)| answer.is_none());
        let before = bodies.len();
        bodies.extend(open.map(|(query, _)| Body::Query(query.bytes().to_vec())));
        let open = u32::try_from(bodies.len() - before).unwrap_or(u32::MAX);
        self.next_at = Some(now.plus(AGAIN * open.div_ceil(FEW).max(1)));
    }

    /// Takes an answer, if it is one to this.
    pub fn message(&mut self, body: &Body, keys: &Keys) {
        let Body::Answer { nonce, sealed } = body else { return };
        let Some((query, answer)) = self.queries.iter_mut().find(|(query, _)| query.nonce() == *nonce) else {
            return;
        };
        let Ok(opened) = query.open(sealed, keys) else { return };
        let epoch = opened.head.epoch;
        *answer = Some(opened);
        // Those of another history are worth nothing beside it, and asked for again.
        for (_, answer) in &mut self.queries {
            answer.take_if(|answer| answer.head.epoch != epoch);
        }
    }

    /// What is denied of all that was asked about, when all is answered; the head is the oldest.
    pub fn answer(&self) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let answers: Vec<_> =
            self.queries.iter().map(|(_, answer)| answer.as_ref()).collect::<Option<_>>()?;
        let head = answers.iter().map(|answer| answer.head).min_by_key(|head| head.seq)?;
        Some((head, answers.into_iter().flat_map(|answer| answer.denied.iter().copied()).collect()))
    }
}

type Draw = Box<dyn FnMut() -> Option<Nonce> + Send>;

/// Asks by messages. Clones are one, and one question is under way at a time.
#[derive(Clone)]
pub struct ByMessage(Arc<RepeatTransport>);

struct RepeatTransport {
    end: MessageChannel,
    nonce: Mutex<Draw>,
    answers: tokio::sync::Mutex<mpsc::Receiver<Body>>,
}

impl ByMessage {
    /// Over the way of this end, and what has to run for answers to be heard. `nonce` draws at random, as [`Query::new`] needs it.
    pub fn new(
        end: MessageChannel,
        nonce: impl FnMut() -> Option<Nonce> + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (to, answers) = mpsc::channel(ANSWERS);
        let mut heard = end.transport.subscribe(Topic::Events(end.authority.clone()));
        let reader = end.clone();
        let hear = async move {
            while let Some(bytes) = heard.recv().await {
                // The rest is for whoever follows. What finds no room is asked for again.
                if wire::is_answer(&bytes)
                    && let Some(body) = reader.read(&bytes)
                {
                    let _ = to.try_send(body);
                }
            }
        };
        let (nonce, answers) = (Mutex::new(Box::new(nonce) as Draw), tokio::sync::Mutex::new(answers));
        (Self(Arc::new(RepeatTransport { end, nonce, answers })), hear)
    }
}

impl RevocationQuery for ByMessage {
    /// Asks until there is an answer: whoever has no more time drops it.
    async fn denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let RepeatTransport { end, nonce, answers } = &*self.0;
        let topic = Topic::Questions(end.authority.clone());
        let mut answers = answers.lock().await;
        let mut asked = RepeatedMessage::new(&end.authority, &tags, &mut *nonce.lock())?;
        let mut bodies = Vec::new();
        loop {
            asked.tick(end.clock.now(), &mut bodies);
            bodies.drain(..).for_each(|body| end.send(&topic, body));
            let pause = asked.wakes_at().since(end.clock.now());
            tokio::select! {
                body = answers.recv() => asked.message(&body?, &end.keys),
                () = sleep(pause) => {}
            }
            if let Some(answer) = asked.answer() {
                return Some(answer);
            }
        }
    }
}

/// Asks the nearest way, and another one as well when that does not answer soon, or did not the last time.
pub struct EveryTransport<A> {
    nearest: A,
    other: Option<ByMessage>,
    nearest_fails: AtomicBool,
}

impl<A: RevocationQuery> EveryTransport<A> {
    /// Of these.
    pub fn new(nearest: A, other: Option<ByMessage>) -> Self {
        Self { nearest, other, nearest_fails: AtomicBool::new(false) }
    }

    /// Asks until there is an answer: whoever has no more time drops it.
    pub async fn ask(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let other = async {
            let Some(other) = &self.other else { return std::future::pending().await };
            if !self.nearest_fails.load(Ordering::Relaxed) {
                sleep(NEAREST_ALONE).await;
            }
            other.denied(tags.clone()).await
        };
        let again = if tags.is_empty() { NEAREST_AGAIN_FOR_NOBODY } else { NEAREST_AGAIN };
        tokio::select! {
            answer = until_answered(again, || self.nearest.denied(tags.clone())) => {
                self.nearest_fails.store(false, Ordering::Relaxed);
                Some(answer)
            }
            answer = other => {
                self.nearest_fails.store(true, Ordering::Relaxed);
                answer
            }
        }
    }
}

/// Asks until there is an answer. The first attempt may take its time; beside it there is another one, begun anew `again` and again.
async fn until_answered<T, F>(again: Duration, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let answer = async || match ask().await {
        Some(answer) => answer,
        None => std::future::pending().await,
    };
    let mut first = std::pin::pin!(answer());
    tokio::select! {
        answer = &mut first => return answer,
        () = sleep(again) => {}
    }
    loop {
        tokio::select! {
            answer = &mut first => return answer,
            answer = answer() => return answer,
            () = sleep(again) => {}
        }
    }
}
