//! Event loops: run the state machines. Messages from a transport and the time go in, and the loops
//! carry out the actions that come out.
//!
//! Owns: the two loops, [`run_consumer`] for a consumer and [`QueryAnswers::run`] for a node of an
//! authority. Does not own: the protocol (the state machines do), how messages are read and written
//! ([`MessageChannel`]), the log ([`Log`] reads it), or what a node does about a revocation
//! ([`AuthorityNotice`]).
//!
//! Each loop is one future that never ends by itself; the caller stops it by dropping it. The
//! machine is moved into the loop, so no other code can change its state.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::authority::{self, LogAuthority};
use crate::consumer::{self, Consumer, FlushCause};
use crate::consumers::{ConsumerRecord, Consumers};
use crate::denylist::Denylist;
use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead, Nonce};
use crate::message_channel::MessageChannel;
use crate::query::{LogAnswer, LogQuery, LogQuestion};
use crate::relay::Relay;
use crate::revocation_query::RevocationQuery;
use crate::time::Boot;
use crate::transport::Topic;
use crate::wire::Body;

/// Most messages that are processed before the clock is read again.
const MAX_BATCH: usize = 64;
/// How long a progress report waits for those of other consumers, so that they are recorded
/// together.
const RECORD_DELAY: Duration = Duration::from_millis(10);
/// Most messages that answer one question.
const MAX_ANSWERS: usize = 500;
/// How long to wait until consumers are recorded. A database that accepts no writes may report that
/// late.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);
/// Most epochs in which consumers are recorded for one read of the head: one failover, and the first
/// read of a process.
const MAX_EPOCHS: u32 = 3;

/// What a consumer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityNotice {
    /// This event was applied now.
    Revoked(LogEvent),
    /// The consumer flushed, for this cause.
    Flushed(FlushCause),
}

/// The log of an authority, in its database.
pub trait Log: Clone + Send + Sync + 'static {
    /// The head, read linearizably after this call; `None` when it cannot be read. Works even while
    /// nothing can be appended to the log.
    fn head(&self) -> impl Future<Output = Option<LogHead>> + Send;

    /// The head, read in the same way, and those of `followers` that the same read finds in the
    /// list of consumers without a mark. For a log that accepts no writes. `None` also where this
    /// cannot be read.
    fn head_and_listed(
        &self,
        followers: &[ConsumerId],
    ) -> impl Future<Output = Option<(LogHead, Vec<ConsumerId>)>> + Send {
        let _ = followers;
        async { None }
    }

    /// Records consumers where every node of the authority finds them. Returns whether that is
    /// durable. An entry never goes back to less progress in the same epoch.
    fn record_consumers(&self, followers: &[ConsumerRecord]) -> impl Future<Output = bool> + Send;

    /// At most `limit` events after `after`, the oldest first, with their epoch; `None` when they
    /// cannot be read.
    fn range(&self, after: u64, limit: usize) -> impl Future<Output = Option<(Epoch, Vec<LogEvent>)>> + Send;
}

/// The whole denylist of an authority, for consumers that verify its credentials without a query.
pub trait DenylistSource: Clone + Send + Sync + 'static {
    /// Reads the head, then adds everything that is denied. Returns the head; `None` when not
    /// everything could be read.
    fn load(&self, denials: &Denylist) -> impl Future<Output = Option<LogHead>> + Send;
}

/// For consumers that query every credential.
impl DenylistSource for () {
    async fn load(&self, _: &Denylist) -> Option<LogHead> {
        None
    }
}

/// Follows a log, and reports what happens to `notify`. `nonce` draws values that cannot be guessed
/// and are never used twice.
pub async fn run_consumer(
    end: MessageChannel,
    mut consumer: Consumer,
    copies: impl DenylistSource,
    mut nonce: impl FnMut() -> Nonce,
    mut notify: impl FnMut(AuthorityNotice),
) {
    let questions = Topic::Questions(end.authority.clone());
    let mut events = end.transport.subscribe(Topic::Events(end.authority.clone()));
    let (mut actions, mut loads) = (Vec::new(), JoinSet::new());
    loop {
        consumer.tick(end.clock.now(), &mut nonce, &mut actions);
        for action in actions.drain(..) {
            match action {
                consumer::ConsumerAction::Send(body) => end.publish(&questions, body),
                consumer::ConsumerAction::LoadDenylist { ticket } => {
                    let (copies, view) = (copies.clone(), consumer.view().clone());
                    loads.spawn(async move {
                        let head = match view.denylist() {
                            Some(denials) => copies.load(denials).await,
                            None => None,
                        };
                        (ticket, head)
                    });
                }
                consumer::ConsumerAction::Revoked(event) => notify(AuthorityNotice::Revoked(event)),
                consumer::ConsumerAction::Flushed(cause) => notify(AuthorityNotice::Flushed(cause)),
            }
        }
        let sleep = consumer.next_tick_at().since(end.clock.now());
        let mut next = tokio::select! {
            // When the transport is gone, no message arrives any more, and the lease expires.
            Some(message) = events.recv() => Some(message),
            Some(Ok((ticket, head))) = loads.join_next() => {
                consumer.denylist_loaded(end.clock.now(), ticket, head);
                None
            }
            () = tokio::time::sleep(sleep) => None,
        };
        for _ in 0..MAX_BATCH {
            let Some(bytes) = next else { break };
            if let Some(body) = end.read(&bytes) {
                consumer.on_message(end.clock.now(), &body, &mut nonce, &mut actions);
            }
            next = events.try_recv().ok();
        }
    }
}

/// Node of an authority: answers for its log. Clones share the known consumers.
#[derive(Clone)]
pub struct QueryAnswers<L> {
    /// Channel on which questions arrive.
    pub channel: MessageChannel,
    /// The log that it answers for.
    pub log: L,
    /// The consumers of the log.
    pub consumers: Arc<Consumers>,
    /// Relay to consumers that have a connection of their own.
    pub relay: Relay,
    /// Consumers may have progress to record.
    progressed: Arc<Notify>,
}

/// A head that was read, and the consumers that must not get it.
#[derive(Default)]
struct ReadOutcome {
    head: Option<LogHead>,
    unlisted: Vec<ConsumerId>,
}

enum TaskResult {
    Head(ReadOutcome),
    Range(Nonce, LogHead, Option<(Epoch, Vec<LogEvent>)>),
    Answer(Vec<u8>, Option<(Nonce, Vec<u8>)>),
    Recorded,
}

impl<L: Log + RevocationQuery> QueryAnswers<L> {
    /// Creates a node on this channel, for this log, without known consumers.
    pub fn new(end: MessageChannel, log: L) -> Self {
        let (consumers, progressed) = (Arc::default(), Arc::default());
        Self { channel: end, log, consumers, relay: Relay::default(), progressed }
    }

    /// The body of a message, if it is to be answered. Progress that it reports is recorded by
    /// [`QueryAnswers::run`].
    fn accept_message(&self, question: &[u8]) -> Option<Body> {
        let body = self.channel.read(question)?;
        let accepted = self.consumers.on_message(self.channel.clock.now(), &body);
        if matches!(body, Body::Applied { .. } | Body::Probe { .. }) {
            self.progressed.notify_one();
        }
        accepted.then_some(body)
    }

    /// Reads the head for the `querying` consumers, once all of them are recorded in its epoch. Reads
    /// none while epochs change faster than consumers can be recorded.
    async fn head(&self, querying: &[ConsumerId]) -> ReadOutcome {
        for _ in 0..MAX_EPOCHS {
            let read = self.recorded_head(querying).await;
            let now = self.channel.clock.now();
            if !read.head.is_some_and(|head| self.consumers.enter_epoch(head.epoch, now)) {
                return read;
            }
        }
        ReadOutcome::default()
    }

    /// Records the `querying` consumers, then reads the head: every consumer with an answer is in the
    /// list. While nothing can be written, only consumers that are in the list already get the head.
    async fn recorded_head(&self, querying: &[ConsumerId]) -> ReadOutcome {
        let now = self.channel.clock.now();
        let noting = self.record(now, self.consumers.to_record(now, querying));
        let noted = matches!(tokio::time::timeout(RECORD_TIMEOUT, noting).await, Ok(true));
        let mut unlisted = self.consumers.not_recently_recorded(now, querying);
        if noted || unlisted.is_empty() {
            return ReadOutcome { head: self.log.head().await, unlisted };
        }
        let Some((head, listed)) = self.log.head_and_listed(&unlisted).await else {
            return ReadOutcome::default();
        };
        unlisted.retain(|id| !listed.contains(id));
        ReadOutcome { head: Some(head), unlisted }
    }

    /// The sealed answer to a query that came as a message, and its nonce. Only queries about
    /// single tags are answered this way: a copy of the denylist is requested over HTTP.
    async fn answer(&self, query: &[u8]) -> Option<(Nonce, Vec<u8>)> {
        let query = LogQuery::read(&self.channel.authority, query).ok()?;
        let LogQuestion::Tags(tags) = query.question() else { return None };
        let (head, denied) = self.log.query_denied(tags.clone()).await?;
        Some((query.nonce(), query.seal(&LogAnswer { head, denied, more: false }, &self.channel.keys)))
    }

    /// Records how far consumers have applied the log, for revokers that wait for it.
    async fn record_progress(&self) {
        self.record(self.channel.clock.now(), self.consumers.with_unrecorded_progress()).await;
    }

    async fn record(&self, now: Boot, followers: Vec<ConsumerRecord>) -> bool {
        if followers.is_empty() {
            return true;
        }
        let noted = self.log.record_consumers(&followers).await;
        if noted {
            self.consumers.mark_recorded(now, &followers);
        }
        noted
    }

    /// Answers one question, for transports that carry the answer back by themselves. A long range
    /// is sent in part; the consumer requests the rest.
    pub async fn answer_once(&self, question: &[u8]) -> Vec<Bytes> {
        let Some(body) = self.accept_message(question) else { return Vec::new() };
        let (mut authority, mut actions, mut answers) = (LogAuthority::new(), Vec::new(), Vec::new());
        authority.on_message(&body, &mut actions);
        let mut actions = VecDeque::from(actions);
        let mut next = Vec::new();
        while let Some(action) = actions.pop_front() {
            match action {
                authority::AuthorityAction::Send(_) if answers.len() >= MAX_ANSWERS => {}
                authority::AuthorityAction::Send(body) => answers.extend(self.channel.write(body)),
                authority::AuthorityAction::ReadHead(querying) => {
                    let ReadOutcome { head, unlisted } = self.head(&querying).await;
                    authority.head_read(head, &unlisted, &mut next);
                }
                authority::AuthorityAction::Answer(query) => {
                    authority.query_answered(&query, self.answer(&query).await, &mut next);
                }
                authority::AuthorityAction::ReadRange { nonce, after, limit } => {
                    let read = self.log.range(after.seq, limit).await;
                    authority.range_read(nonce, after, read, &mut next);
                }
            }
            actions.extend(next.drain(..));
        }
        answers
    }

    /// Answers questions and publishes what is `appended` to the log, without end. These are the
    /// events that this node has made durable, in any order.
    pub async fn run(self, mut appended: mpsc::Receiver<(Epoch, LogEvent)>) {
        let topic = Topic::Events(self.channel.authority.clone());
        let mut questions =
            self.channel.transport.subscribe(Topic::Questions(self.channel.authority.clone()));
        let mut authority = LogAuthority::new();
        let mut tasks = JoinSet::new();
        let mut noting = false;
        // At most one read of the head is in progress.
        let mut reading = None;
        let mut answering: HashMap<_, Vec<u8>> = HashMap::new();
        let mut actions = Vec::new();
        // The sender of appended events may end first; questions are still answered.
        let mut appends = true;
        loop {
            tokio::select! {
                Some(bytes) = questions.recv() => if let Some(body) = self.accept_message(&bytes) {
                    authority.on_message(&body, &mut actions);
                },
                event = appended.recv(), if appends => match event {
                    Some((epoch, event)) => {
                        self.consumers.note_append(LogHead { epoch, seq: event.seq }, self.channel.clock.now());
                        LogAuthority::publish(epoch, event, &mut actions);
                    }
                    None => appends = false,
                },
                () = self.progressed.notified(), if !noting => {
                    noting = true;
                    let answers = self.clone();
                    tasks.spawn(async move {
                        // Other consumers are about to report the same event.
                        tokio::time::sleep(RECORD_DELAY).await;
                        answers.record_progress().await;
                        TaskResult::Recorded
                    });
                }
                Some(done) = tasks.join_next_with_id() => match done {
                    Ok((_, TaskResult::Head(ReadOutcome { head, unlisted }))) => authority.head_read(head, &unlisted, &mut actions),
                    Ok((_, TaskResult::Range(nonce, after, read))) => authority.range_read(nonce, after, read, &mut actions),
                    Ok((id, TaskResult::Answer(query, answer))) => {
                        answering.remove(&id);
                        authority.query_answered(&query, answer, &mut actions);
                    }
                    Ok((_, TaskResult::Recorded)) => noting = false,
                    // The panic has been logged. The consumer asks again, and the head is read
                    // again. Not while another read is in progress: that one would answer consumers
                    // that asked after it began.
                    Err(failed) => {
                        noting = false;
                        if reading == Some(failed.id()) {
                            authority.head_read(None, &[], &mut actions);
                        }
                        if let Some(query) = answering.remove(&failed.id()) {
                            authority.query_answered(&query, None, &mut actions);
                        }
                    }
                },
                else => return,
            }
            for action in actions.drain(..) {
                let answers = self.clone();
                match action {
                    authority::AuthorityAction::Send(body) => self.channel.publish(&topic, body),
                    authority::AuthorityAction::ReadHead(querying) => {
                        let task =
                            tasks.spawn(async move { TaskResult::Head(answers.head(&querying).await) });
                        reading = Some(task.id());
                    }
                    authority::AuthorityAction::Answer(query) => {
                        let task_query = query.clone();
                        let task = tasks.spawn(async move {
                            let answer = answers.answer(&task_query).await;
                            TaskResult::Answer(task_query, answer)
                        });
                        answering.insert(task.id(), query);
                    }
                    authority::AuthorityAction::ReadRange { nonce, after, limit } => {
                        tasks.spawn(async move {
                            TaskResult::Range(nonce, after, answers.log.range(after.seq, limit).await)
                        });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
