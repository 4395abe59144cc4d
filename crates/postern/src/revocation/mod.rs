//! Revocation in this process: follows the logs of the issuers whose tokens it accepts.
//!
//! Owns: combining the parts of the protocol for one issuer ([`FollowedLog`]): the transport of its
//! messages, the loops that consume and query, and their counters. Does not own: the protocol
//! (`coherence`), the log (`store`), what happens to a token (`gateway`).
//!
//! Flow: `a provider's log → answer → transport → consumer → View → FollowedIssuer → the gateway's
//! cache`. The provider is in this process, or in another one ([`remote`]).

pub mod http_transport;
pub mod names;
mod random;
pub mod remote;
mod status;
pub mod transports;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coherence::consumer::{self, Consumer, FlushCause};
use coherence::consumers::Consumers;
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops;
use coherence::event_loops::{AuthorityNotice, DenylistSource, QueryAnswers};
use coherence::message_channel::{ChannelCounts, MessageChannel};
use coherence::repeat::{FastestTransport, MessageQueryClient};
use coherence::revocation_query::{QueryHandle, RevocationQuery};
use coherence::tags::TagKey;
use coherence::time::{Boot, BootClock};
use coherence::transport::{Transport, TransportState};
use coherence::view::View;
use coherence::wire::Keys;
use coherence::{ConsumerId, LogHead, PeerName, Tag};
use config::FollowedIssuerConfig;
use credentials::revocation;
use credentials::revocation::RevocationSample;
use credentials::revocation::{FollowedIssuer, FollowerSuccessor, IssuerClockSkew};
use outage::{Outage, RECOVERY_PERIOD};
use parking_lot::Mutex;
use store::Store;
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, mpsc};
use tokio::task::AbortHandle;

use self::http_transport::HttpTransport;
use self::remote::Remote;
pub use self::status::{FollowedIssuerStatus, Mode};
use crate::exit::Failure;
use crate::revocation::names::issuer_name;
use crate::revocation::random::{nonces, random, random_nonce};
use crate::revocation::transports::{LogTransports, combine_transports};
use crate::revocation::upkeep::{append_heartbeats, expire_denylist, log_silence, remove_inactive_consumers};

/// Largest number of tombstones for one issuer, about 100 bytes each.
const MAX_TOMBSTONES: usize = 200_000;
/// Largest number of denied tags for one issuer, about 50 bytes each. Beyond that, each new token
/// is queried.
const MAX_DENIED_TAGS: usize = 1_000_000;
/// Largest number of events that wait between the database and the transport.
const EVENT_QUEUE: usize = 1024;
/// After this time without an event, a heartbeat event is appended to the log.
const HEARTBEAT_AFTER: Duration = Duration::from_mins(1);
/// Time between two checks of the list of consumers.
const CONSUMER_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two probes of an issuer from which nothing arrives.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two searches for expired entries of the denylist.
const EXPIRY_INTERVAL: Duration = Duration::from_mins(1);

/// Which issuer to follow, and by what means.
pub struct LogSource<S> {
    /// Issuer identifier (`iss`).
    pub issuer: Box<str>,
    /// Key that makes the tags of its tokens.
    pub tags: TagKey,
    /// Keys that verify the messages of its nodes.
    pub keys: Keys,
    /// Transport of its messages.
    pub transport: Arc<dyn Transport>,
    /// Lease: how long an entry stays valid after the probe that renewed it was sent.
    pub lease: Duration,
    /// Source of its whole denylist, and of answers about single tags.
    pub denylist_source: S,
    /// Name of this process for the issuer.
    pub consumer_name: PeerName,
    /// Counters of its messages.
    pub counts: Arc<ChannelCounts>,
    /// Local state of the issuer's revocations, empty at first.
    pub view: Arc<View>,
    /// Log messages for the time in which the issuer is silent.
    pub outage: Outage,
}

/// Creates the local state of an issuer's revocations.
pub fn new_view() -> Arc<View> {
    Arc::new(View::new(MAX_TOMBSTONES).with_denylist(MAX_DENIED_TAGS))
}

/// A followed log. Its background tasks end when this value is dropped.
pub struct FollowedLog {
    /// The followed issuer in the form that the gateway uses.
    pub followed: Arc<FollowedIssuer>,
    /// Issuers whose tokens other issuers report in this log.
    reported_issuers: Vec<Box<str>>,
    channel: MessageChannel,
    state: Arc<ConsumerState>,
    /// Consumers of the log, if this process answers for it.
    consumers: Option<Arc<Consumers>>,
    tasks: Vec<AbortHandle>,
}

/// Counters and flags of what arrived from the issuer.
#[derive(Default)]
struct ConsumerState {
    revoked: std::sync::atomic::AtomicU64,
    flushed: Mutex<BTreeMap<&'static str, u64>>,
    /// Something was revoked, or all state must be loaded again.
    changed: Notify,
    /// Whether there has been a lease, or an answer in its place.
    started: AtomicBool,
    /// A lease after the last message or answer of the issuer: a [`Boot`].
    answers_until: std::sync::atomic::AtomicU64,
}

impl FollowedLog {
    /// Starts to follow, on this runtime.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn start<S>(source: LogSource<S>, on: &Handle) -> Result<Self, Failure>
    where
        S: DenylistSource + RevocationQuery,
    {
        let LogSource {
            issuer,
            tags,
            keys,
            transport,
            lease,
            denylist_source: facts,
            consumer_name: called,
            view,
            counts,
            outage,
        } = source;
        let name = issuer_name(&issuer);
        let clock = Arc::new(BootClock);
        let end = MessageChannel { authority: name.clone(), transport, keys, clock: clock.clone(), counts };
        let (id, nonce) = ((ConsumerId(random()?), called), nonces()?);
        let settings = consumer::ConsumerSettings { lease, ..consumer::ConsumerSettings::default() };
        let consumer = Consumer::new(id, settings, view.clone());
        let (desk, attended) = QueryHandle::new(facts.clone(), view.silence().clone());
        let state = Arc::<ConsumerState>::default();
        let followed = Arc::new(FollowedIssuer {
            issuer,
            name,
            view: view.clone(),
            tags,
            clock,
            query_desk: desk,
            lease,
            counts: Arc::<revocation::RevocationCounts>::default(),
            max_token_age: None,
            successor: FollowerSuccessor::default(),
            clock_skew: IssuerClockSkew::default(),
        });
        let consumer_state = state.clone();
        let following = event_loops::run_consumer(end.clone(), consumer, facts, nonce, move |notice| {
            consumer_state.note(&notice);
        });
        let tasks = vec![
            on.spawn(attended).abort_handle(),
            on.spawn(following).abort_handle(),
            on.spawn(expire_denylist(view.clone())).abort_handle(),
            on.spawn(log_silence(view, outage)).abort_handle(),
            on.spawn(probe_issuer(followed.clone(), state.clone())).abort_handle(),
        ];
        Ok(Self { followed, reported_issuers: Vec::new(), channel: end, state, consumers: None, tasks })
    }

    /// Also answers for the log, whose database this process reaches, on this runtime. Returns what
    /// answers queries over HTTP.
    pub fn answer(&mut self, store: &Store, on: &Handle) -> QueryAnswers<Store> {
        let answers = QueryAnswers::new(self.channel.clone(), store.clone());
        self.consumers = Some(answers.consumers.clone());
        let (tell, appended) = mpsc::channel(EVENT_QUEUE);
        let mut made = store.appended();
        self.tasks.push(
            on.spawn(async move {
                loop {
                    match made.recv().await {
                        // The consumer queries what it missed.
                        Err(broadcast::error::RecvError::Lagged(_)) => {}
                        Err(broadcast::error::RecvError::Closed) => return,
                        Ok(event) => {
                            if tell.send(event).await.is_err() {
                                return;
                            }
                        }
                    }
                }
            })
            .abort_handle(),
        );
        self.tasks.push(on.spawn(answers.clone().run(appended)).abort_handle());
        self.tasks.push(on.spawn(answers.relay.clone().run(self.channel.clone())).abort_handle());
        self.tasks.push(on.spawn(remove_inactive_consumers(store.clone())).abort_handle());
        self.tasks.push(on.spawn(append_heartbeats(store.clone())).abort_handle());
        answers
    }

    /// Follows an issuer in another process. It is queried over HTTP, and sends messages over a
    /// broker if there is one.
    ///
    /// # Errors
    /// Like [`FollowedLog::start`].
    pub fn remote(follow: &FollowedIssuerConfig, ways: &LogTransports, on: &Handle) -> Result<Self, Failure> {
        let _runtime = on.enter();
        let (counts, view) = (Arc::<ChannelCounts>::default(), new_view());
        let remote = Remote::new(follow, counts.clone(), on);
        let outage = Outage::new(format!("issuer {}", follow.issuer))
            .with_recovery_period(RECOVERY_PERIOD)
            .with_effect(
                "its revocations do not arrive; answering 503 to requests with its tokens after one lease",
            );
        let http = HttpTransport::new(remote.clone(), view.silence().clone(), outage.another_way(), on);
        let mut transports: Vec<Arc<dyn Transport>> = vec![Arc::new(http)];
        transports.extend(ways.broker.clone());
        let broker_client = ways.broker.clone().map(|broker| {
            let end = MessageChannel {
                authority: issuer_name(&follow.issuer),
                transport: broker,
                keys: follow.secret.message_keys(),
                clock: Arc::new(BootClock),
                counts: counts.clone(),
            };
            MessageQueryClient::new(end, random_nonce)
        });
        let (by_message, hearing) = broker_client.unzip();
        let source = LogSource {
            issuer: follow.issuer.clone(),
            tags: follow.secret.tag_key(),
            keys: follow.secret.message_keys(),
            transport: combine_transports(transports),
            lease: ways.lease,
            denylist_source: RemoteIssuer {
                remote: remote.clone(),
                questions: Arc::new(FastestTransport::new(remote, by_message)),
            },
            consumer_name: ways.called.clone(),
            view,
            counts,
            outage,
        };
        let mut following = Self::start(source, on)?;
        following.tasks.extend(hearing.map(|hearing| on.spawn(hearing).abort_handle()));
        Ok(following)
    }

    /// Waits until this process receives a revocation after the last call. Only one task may wait.
    pub async fn changed(&self) {
        self.state.changed.notified().await;
    }

    /// Whether something that carries one of these tags was revoked, or may have been: the denylist is
    /// not complete.
    pub fn may_deny(&self, tags: &[Tag]) -> bool {
        let denials = self.followed.view.denylist();
        denials.is_none_or(|denials| !denials.is_complete() || denials.denies(tags, i64::MIN))
    }

    /// Waits until the first state has arrived, up to `patience`. Blocks the thread.
    pub fn wait_until_started(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.unready().is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// View of the same log for another issuer. `tags` makes its tags, and `longest` is the longest
    /// lifetime of its tokens.
    pub fn for_issuer(&self, issuer: &str, tags: TagKey, longest: Duration) -> Arc<FollowedIssuer> {
        let FollowedIssuer { name, view, clock, query_desk: desk, lease, counts, .. } = &*self.followed;
        Arc::new(FollowedIssuer {
            issuer: issuer.into(),
            name: name.clone(),
            view: view.clone(),
            tags,
            clock: clock.clone(),
            query_desk: desk.clone(),
            lease: *lease,
            counts: counts.clone(),
            max_token_age: Some(longest),
            successor: FollowerSuccessor::default(),
            clock_skew: IssuerClockSkew::default(),
        })
    }

    /// Channel that sends and receives the log's messages.
    pub fn channel(&self) -> &MessageChannel {
        &self.channel
    }

    /// Why requests should not be sent here: nothing has arrived from the issuer yet, and it has
    /// not answered a query.
    pub fn unready(&self) -> Option<String> {
        if self.state.started.load(Ordering::Relaxed) || self.lease_left().is_some() || self.answers() {
            self.state.started.store(true, Ordering::Relaxed);
            return None;
        }
        Some(format!("issuer {} has not sent its revocations yet", self.followed.issuer))
    }

    /// Whether this log concerns an issuer's tokens: it is the issuer's own log, or one with the
    /// reports of other issuers about it.
    pub fn concerns(&self, issuer: &str) -> bool {
        *self.followed.issuer == *issuer || self.reported_issuers.iter().any(|one| **one == *issuer)
    }

    /// Adds issuers whose tokens other issuers report in this log.
    pub fn add_reported_issuers(&mut self, issuers: impl Iterator<Item = Box<str>>) {
        self.reported_issuers.extend(issuers);
    }

    /// Why no token of the issuer is accepted: it was reachable, but sends no messages any more and
    /// has not answered for a lease.
    pub fn unreachable(&self) -> Option<String> {
        let gone = self.lease_left().is_none() && !self.answers() && self.unready().is_none();
        gone.then(|| {
            format!(
                "issuer {} sends nothing and does not answer: requests with its tokens are refused with 503",
                self.followed.issuer
            )
        })
    }

    /// Whether the issuer sent a message or an answer within the last lease, as far as this process
    /// has checked.
    fn answers(&self) -> bool {
        self.channel.clock.now() < Boot(self.state.answers_until.load(Ordering::Relaxed))
    }

    /// One line for each problem, although requests are answered.
    pub fn notes(&self) -> Vec<String> {
        let issuer = &self.followed.issuer;
        let mut notes: Vec<String> = describe_reachability(
            issuer,
            self.lease_known(),
            self.followed.lease,
            &self.channel.transport.state().borrow(),
        )
        .into_iter()
        .collect();
        if self.followed.view.denylist().is_some_and(Denylist::has_overflowed) {
            notes.push(format!(
                "issuer {issuer} has revoked more than {MAX_DENIED_TAGS} tokens and sessions: each new token is queried"
            ));
        }
        notes
    }

    fn is_silent(&self) -> bool {
        self.followed.query_desk.is_silent()
    }

    fn lease_known(&self) -> Lease {
        match self.lease_left() {
            Some(left) => Lease::Left(left),
            None if self.is_silent() => Lease::Silent,
            None => Lease::Ended,
        }
    }

    fn lease_left(&self) -> Option<Duration> {
        let (now, lease) = (self.channel.clock.now(), self.followed.view.lease());
        (now < lease).then(|| lease.since(now))
    }

    /// Status of the issuer for operators.
    pub fn status(&self) -> FollowedIssuerStatus {
        let view = &self.followed.view;
        let lease = self.lease_left();
        let mode = match lease {
            Some(_) => Mode::Leased,
            None if self.unready().is_some() => Mode::Starting,
            None => Mode::Querying,
        };
        FollowedIssuerStatus {
            issuer: self.followed.issuer.to_string(),
            mode,
            lease_left: lease.map(|left| left.as_secs_f64()),
            applied: view.applied_up_to(),
            lag: view.lag(),
            denials: view.denylist().map_or(0, |denials| denials.len() as u64),
            transport: match &*self.channel.transport.state().borrow() {
                TransportState::Up => "up".into(),
                TransportState::Starting => "starting".into(),
                TransportState::Down(why) => format!("down: {why}"),
            },
        }
    }

    /// Status of the issuer for metrics.
    pub fn sample(&self) -> RevocationSample {
        let (view, counts, query_counts) = (&self.followed.view, &self.channel.counts, &self.followed.counts);
        let denials = view.denylist();
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        RevocationSample {
            issuer: self.followed.issuer.clone(),
            lease: self.lease_left(),
            silent: self.is_silent(),
            up: *self.channel.transport.state().borrow() == TransportState::Up,
            contiguous: view.applied_up_to(),
            lag: view.lag(),
            tombstones: view.tombstones(),
            denials: denials.map_or(0, Denylist::len),
            denylist_complete: denials.is_some_and(Denylist::is_complete),
            revoked: read(&self.state.revoked),
            flushes: self.state.flushed.lock().iter().map(|(cause, count)| (*cause, *count)).collect(),
            sent: read(&counts.sent),
            received: read(&counts.received),
            refused: read(&counts.refused),
            queries_good: read(&query_counts.good),
            queries_revoked: read(&query_counts.denied),
            queries_unanswered: read(&query_counts.silent),
            audited: read(&query_counts.audited),
            stale: read(&query_counts.stale),
            arrivals: self.consumers.as_ref().map(|roster| roster.apply_times()),
        }
    }
}

/// What is left of the lease of an issuer.
#[derive(Debug, Clone, Copy)]
enum Lease {
    Left(Duration),
    /// Nothing: each token is queried.
    Ended,
    /// Nothing, and the issuer does not answer queries either.
    Silent,
}

/// Describes an issuer whose messages do not arrive normally. `known` is what is left of its
/// `lease`, which is renewed twice a second while messages arrive over any transport.
fn describe_reachability(
    issuer: &str,
    known: Lease,
    lease: Duration,
    way: &TransportState,
) -> Option<String> {
    let way = match way {
        TransportState::Down(why) => format!("the transport is down: {why}"),
        TransportState::Starting => "the transport is starting".into(),
        TransportState::Up => String::new(),
    };
    let and = if way.is_empty() { "" } else { "; " };
    match known {
        Lease::Left(left) if left < lease / 2 => Some(format!(
            "issuer {issuer} sends nothing: its lease ends in {:.1} s{and}{way}",
            left.as_secs_f64()
        )),
        Lease::Left(_) if way.is_empty() => None,
        Lease::Left(_) => {
            Some(format!("issuer {issuer} is reachable, but not over every transport{and}{way}"))
        }
        Lease::Ended => Some(format!("issuer {issuer} sends nothing: each token is queried{and}{way}")),
        Lease::Silent => Some(format!(
            "issuer {issuer} sends nothing and does not answer: requests with its tokens are refused with 503 until it does{and}{way}"
        )),
    }
}

/// Remote provider: its denylist is loaded over HTTP, and queries use every transport.
#[derive(Clone)]
struct RemoteIssuer {
    remote: Remote,
    questions: Arc<FastestTransport<Remote>>,
}

impl DenylistSource for RemoteIssuer {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        self.remote.load(denials).await
    }
}

impl RevocationQuery for RemoteIssuer {
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        self.questions.query(tags).await
    }
}

/// Issuers in other processes that are followed now.
#[derive(Default)]
pub struct RemoteIssuers(Vec<(FollowedIssuerConfig, Arc<FollowedLog>)>);

impl RemoteIssuers {
    /// Follows the issuers of a configuration. An issuer that was followed before with the same
    /// settings keeps its state.
    ///
    /// # Errors
    /// Like [`FollowedLog::start`].
    pub fn from_config(
        follows: &[FollowedIssuerConfig],
        before: &Self,
        ways: &LogTransports,
        on: &Handle,
    ) -> Result<Self, Failure> {
        let one = |follow: &FollowedIssuerConfig| {
            let same = before.0.iter().find(|(old, _)| old.is_equivalent(follow));
            let following = match same {
                Some((_, following)) => following.clone(),
                None => Arc::new(FollowedLog::remote(follow, ways, on)?),
            };
            Ok((follow.clone(), following))
        };
        follows.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// All followed logs.
    pub fn all(&self) -> impl Iterator<Item = &Arc<FollowedLog>> {
        self.0.iter().map(|(_, following)| following)
    }
}

impl Drop for FollowedLog {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl ConsumerState {
    fn note(&self, notice: &AuthorityNotice) {
        self.changed.notify_one();
        match notice {
            AuthorityNotice::Revoked(_) => {
                self.revoked.fetch_add(1, Ordering::Relaxed);
            }
            AuthorityNotice::Flushed(cause) => {
                *self.flushed.lock().entry(cause_label(*cause)).or_default() += 1;
            }
        }
    }
}

fn cause_label(cause: FlushCause) -> &'static str {
    match cause {
        FlushCause::Epoch => "epoch",
        FlushCause::LogRewound => "went_back",
        FlushCause::Gap => "gap",
        FlushCause::EventsUnavailable => "gone",
        FlushCause::Overflow => "overflow",
    }
}

/// Probes the issuer periodically with an empty query while there is no lease. So it is known
/// whether queries work before the first token needs one. After a start, the first messages usually
/// arrive sooner and contain more, so probes wait for a lease.
async fn probe_issuer(followed: Arc<FollowedIssuer>, state: Arc<ConsumerState>) {
    let begun = followed.clock.now();
    loop {
        let now = followed.clock.now();
        let leased = now < followed.view.lease();
        let is_due = now.since(begun) >= followed.lease;
        if leased || is_due && followed.query_desk.query(&[], 0).await.is_some() {
            state.answers_until.fetch_max(now.plus(followed.lease).0, Ordering::Relaxed);
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests;
