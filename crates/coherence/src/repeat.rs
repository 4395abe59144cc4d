//! Repetition: queries over transports that lose messages.
//!
//! Owns:
//! - splitting tags into queries whose answers fit into messages;
//! - repeating queries without an answer ([`RepeatedQuery`], a state machine without I/O);
//! - sending them over a transport for messages ([`MessageQueryClient`]);
//! - querying over every available transport, where the first answer counts ([`FastestTransport`]).
//!
//! Does not own: the form of a query, and what binds an answer to it ([`crate::query`]).
//!
//! A query that is repeated stays the same query. Whichever copy is answered, the answer was read
//! after the first copy was sent, which is all that is required of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::denylist::DenylistEntry;
use crate::log_types::{LogHead, Nonce, PeerName, Tag};
use crate::message_channel::MessageChannel;
use crate::mutation::{self, Mutation};
use crate::query::{LogAnswer, LogQuery, LogQuestion};
use crate::revocation_query::RevocationQuery;
use crate::time::Boot;
use crate::transport::Topic;
use crate::wire::{self, Body, Keys};

/// Tags in one query: even if all of them are denied, the answer fits into a message.
const MAX_TAGS_PER_QUERY: usize = 480;
/// Pause between two copies of a query, if few are open. Most messages may be lost; a request waits
/// for two seconds.
const REPEAT_INTERVAL: Duration = Duration::from_millis(25);
/// Number of queries that are repeated without a longer pause; with more of them the pause grows.
const QUERIES_PER_INTERVAL: u32 = 4;
/// Most answers that wait to be read.
const ANSWERS: usize = 256;
/// Delay before the other transports are queried as well, if the nearest one answered last time.
const OTHER_DELAY: Duration = Duration::from_millis(50);
/// Delay before the nearest transport is queried a second time beside the first: the first query
/// may be lost.
const NEAREST_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The same for an empty query, for which no request waits.
const EMPTY_QUERY_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Queries about some tags, until all are answered.
#[derive(Debug)]
pub struct RepeatedQuery {
    queries: Vec<(LogQuery, Option<LogAnswer>)>,
    next_at: Option<Boot>,
}

impl RepeatedQuery {
    /// Queries about these tags of this authority's log; `None` where no nonce can be drawn. Each
    /// nonce is random, as [`LogQuery::new`] requires.
    pub fn new(authority: &PeerName, tags: &[Tag], nonce: &mut dyn FnMut() -> Option<Nonce>) -> Option<Self> {
        let mut query =
            |tags: &[Tag]| Some((LogQuery::new(authority, nonce()?, LogQuestion::Tags(tags.to_vec())), None));
        // An empty query still asks for the head of the log.
        let queries = if tags.is_empty() {
            vec![query(&[])?]
        } else {
            tags.chunks(MAX_TAGS_PER_QUERY).map(query).collect::<Option<_>>()?
        };
        Some(Self { queries, next_at: None })
    }

    /// When [`RepeatedQuery::tick`] has something to do; at once before the first time.
    pub fn next_tick_at(&self) -> Boot {
        self.next_at.unwrap_or_default()
    }

    /// Adds the queries without an answer to `bodies`, when they are due.
    pub fn tick(&mut self, now: Boot, bodies: &mut Vec<Body>) {
        if now < self.next_tick_at()
            || mutation::is_active(Mutation::QueryNotRepeated) && self.next_at.is_some()
        {
            return;
        }
        let open = self.queries.iter().filter(|(_, answer)| answer.is_none());
        let before = bodies.len();
        bodies.extend(open.map(|(query, _)| Body::Query(query.bytes().to_vec())));
        let open = u32::try_from(bodies.len() - before).unwrap_or(u32::MAX);
        self.next_at = Some(now.plus(REPEAT_INTERVAL * open.div_ceil(QUERIES_PER_INTERVAL).max(1)));
    }

    /// Applies an answer, if it belongs to one of the queries.
    pub fn on_message(&mut self, body: &Body, keys: &Keys) {
        let Body::Answer { nonce, sealed } = body else { return };
        let Some((query, answer)) = self.queries.iter_mut().find(|(query, _)| query.nonce() == *nonce) else {
            return;
        };
        let Ok(opened) = query.open(sealed, keys) else { return };
        let epoch = opened.head.epoch;
        *answer = Some(opened);
        // Answers of another epoch cannot be combined with this one, and are requested again.
        for (_, answer) in &mut self.queries {
            answer.take_if(|answer| answer.head.epoch != epoch);
        }
    }

    /// Everything that is denied of all tags, once all queries are answered; the head is the
    /// oldest.
    pub fn answer(&self) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let answers: Vec<_> =
            self.queries.iter().map(|(_, answer)| answer.as_ref()).collect::<Option<_>>()?;
        let head = answers.iter().map(|answer| answer.head).min_by_key(|head| head.seq)?;
        Some((head, answers.into_iter().flat_map(|answer| answer.denied.iter().copied()).collect()))
    }
}

type NonceSource = Box<dyn FnMut() -> Option<Nonce> + Send>;

/// Queries by messages. Clones share one channel, and one call is in progress at a time.
#[derive(Clone)]
pub struct MessageQueryClient(Arc<MessageQueryState>);

struct MessageQueryState {
    channel: MessageChannel,
    nonce: Mutex<NonceSource>,
    answers: tokio::sync::Mutex<mpsc::Receiver<Body>>,
}

impl MessageQueryClient {
    /// Creates a client on this channel, and the future that must run for answers to arrive.
    /// `nonce` draws at random, as [`LogQuery::new`] requires.
    pub fn new(
        end: MessageChannel,
        nonce: impl FnMut() -> Option<Nonce> + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (to, answers) = mpsc::channel(ANSWERS);
        let mut events = end.transport.subscribe(Topic::Events(end.authority.clone()));
        let reader = end.clone();
        let hear = async move {
            while let Some(bytes) = events.recv().await {
                // Other messages are for the consumer. An answer that finds no room is requested
                // again.
                if wire::is_answer(&bytes)
                    && let Some(body) = reader.read(&bytes)
                {
                    let _ = to.try_send(body);
                }
            }
        };
        let (nonce, answers) = (Mutex::new(Box::new(nonce) as NonceSource), tokio::sync::Mutex::new(answers));
        (Self(Arc::new(MessageQueryState { channel: end, nonce, answers })), hear)
    }
}

impl RevocationQuery for MessageQueryClient {
    /// Queries until there is an answer: a caller that has no more time drops the future.
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let MessageQueryState { channel: end, nonce, answers } = &*self.0;
        let topic = Topic::Questions(end.authority.clone());
        let mut answers = answers.lock().await;
        let mut query = RepeatedQuery::new(&end.authority, &tags, &mut *nonce.lock())?;
        let mut bodies = Vec::new();
        loop {
            query.tick(end.clock.now(), &mut bodies);
            bodies.drain(..).for_each(|body| end.publish(&topic, body));
            let pause = query.next_tick_at().since(end.clock.now());
            tokio::select! {
                body = answers.recv() => query.on_message(&body?, &end.keys),
                () = sleep(pause) => {}
            }
            if let Some(answer) = query.answer() {
                return Some(answer);
            }
        }
    }
}

/// Queries the nearest transport, and another one as well when the nearest does not answer soon, or
/// did not answer last time.
pub struct FastestTransport<A> {
    nearest: A,
    other: Option<MessageQueryClient>,
    nearest_fails: AtomicBool,
}

impl<A: RevocationQuery> FastestTransport<A> {
    /// Combines the nearest transport with another one.
    pub fn new(nearest: A, other: Option<MessageQueryClient>) -> Self {
        Self { nearest, other, nearest_fails: AtomicBool::new(false) }
    }

    /// Queries until there is an answer: a caller that has no more time drops the future.
    pub async fn query(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let other = async {
            let Some(other) = &self.other else { return std::future::pending().await };
            if !self.nearest_fails.load(Ordering::Relaxed) {
                sleep(OTHER_DELAY).await;
            }
            other.query_denied(tags.clone()).await
        };
        let again = if tags.is_empty() { EMPTY_QUERY_RETRY_DELAY } else { NEAREST_RETRY_DELAY };
        tokio::select! {
            answer = until_answered(again, || self.nearest.query_denied(tags.clone())) => {
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

/// Queries until there is an answer. The first attempt may take long; beside it runs another one,
/// started anew after each `again`.
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
