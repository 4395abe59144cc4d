//! Revocation in this process: follows the logs of the issuers whose tokens it accepts.
//!
//! Owns: combining the parts of the protocol for one issuer ([`FollowedLog`]): the transport of its
//! messages, the loops that consume and query, and their counters. Does not own: the protocol
//! (`coherence`), the log (`store`), what happens to a token (`gateway`).
//!
//! Flow: `a provider's log → answer → transport → consumer → View → FollowedIssuer → the gateway's
//! cache`. The provider is in this process, or in another one ([`remote`]).

pub mod asked;
pub mod remote;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use coherence::consumer::{self, Consumer, FlushCause};
use coherence::consumers::{Consumers, GONE, MARK};
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops;
use coherence::event_loops::{AuthorityNotice, DenylistCopy, QueryAnswers};
use coherence::message_channel::{ChannelCounts, MessageChannel};
use coherence::repeat::{ByMessage, EveryTransport};
use coherence::revocation_query::{QueryDesk, RevocationQuery};
use coherence::silence::Hearing;
use coherence::tags::TagKey;
use coherence::time::{Boot, BootClock};
use coherence::transport::amqp::{self, Amqp};
use coherence::transport::memory::Memory;
use coherence::transport::nats;
use coherence::transport::postgres;
use coherence::transport::several::Several;
use coherence::transport::{Transport, TransportState};
use coherence::view::View;
use coherence::wire::Keys;
use coherence::{ConsumerId, ConsumerName, LogHead, Nonce, Tag};
use config::{Broker, FollowConfig};
use credentials::revocation;
use credentials::revocation::RevocationSample;
use credentials::revocation::{FollowedIssuer, FollowerSuccessor, IssuerClockSkew};
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::config::ListenAddress;
use outage::{CALM, Outage};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::Store;
use store::followers::{Canary, ForgetFollower, Listed, MarkFollower};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, mpsc};
use tokio::task::AbortHandle;

use self::asked::AskedLog;
use self::remote::Remote;
use crate::exit::Failure;

/// Largest number of tombstones for one issuer, about 100 bytes each.
const TOMBSTONES: usize = 200_000;
/// Largest number of denied tags for one issuer, about 50 bytes each. Beyond that, each new token
/// is queried.
const DENIALS: usize = 1_000_000;
/// Largest number of events that wait between the database and the transport.
const APPENDED: usize = 1024;
/// After this time without an event, a heartbeat event is appended to the log.
const QUIET: Duration = Duration::from_mins(1);
/// Time between two checks of the list of consumers.
const LOOK: Duration = Duration::from_secs(10);
/// Time between two probes of an issuer from which nothing arrives.
const TRY: Duration = Duration::from_secs(1);
/// Time between two searches for expired entries of the denylist.
const EXPIRE: Duration = Duration::from_mins(1);

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
    pub facts: S,
    /// Name of this process for the issuer.
    pub called: ConsumerName,
    /// Counters of its messages.
    pub counts: Arc<ChannelCounts>,
    /// Local state of the issuer's revocations, empty at first.
    pub view: Arc<View>,
    /// Log messages for the time in which the issuer is silent.
    pub outage: Outage,
}

/// Creates the local state of an issuer's revocations.
pub fn view() -> Arc<View> {
    Arc::new(View::new(TOMBSTONES).with_denials(DENIALS))
}

/// A followed log. Its background tasks end when this value is dropped.
pub struct FollowedLog {
    /// The followed issuer in the form that the gateway uses.
    pub followed: Arc<FollowedIssuer>,
    /// Issuers whose tokens other issuers report in this log.
    told_of: Vec<Box<str>>,
    end: MessageChannel,
    told: Arc<HeardState>,
    /// Consumers of the log, if this process answers for it.
    roster: Option<Arc<Consumers>>,
    tasks: Vec<AbortHandle>,
}

/// Status of a followed issuer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowerRow {
    /// Issuer identifier (`iss`).
    pub issuer: String,
    /// How tokens are checked now.
    pub mode: Mode,
    /// Seconds until the lease ends if nothing more arrives. Absent: there is no lease.
    pub lease_left: Option<f64>,
    /// Number of the last event that is applied together with all events before it.
    pub applied: u64,
    /// Number of known events that are not applied yet.
    pub lag: u64,
    /// Number of denied tags.
    pub denials: u64,
    /// State of the transport: `up`, `starting`, or `down` with its cause.
    pub way: String,
}

/// How a token is checked for revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing has arrived yet.
    Starting,
    /// By local state, while the lease lasts.
    Leased,
    /// By a query to the issuer for each token.
    Asking,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Leased => "leased",
            Self::Asking => "asking",
        })
    }
}

/// Counters and flags of what arrived from the issuer.
#[derive(Default)]
struct HeardState {
    revoked: std::sync::atomic::AtomicU64,
    flushed: Mutex<BTreeMap<&'static str, u64>>,
    /// Something was revoked, or all state must be loaded again.
    news: Notify,
    /// Whether there has been a lease, or an answer in its place.
    begun: AtomicBool,
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
        S: DenylistCopy + RevocationQuery,
    {
        let LogSource { issuer, tags, keys, transport, lease, facts, called, view, counts, outage } = source;
        let name = name_of(&issuer);
        let clock = Arc::new(BootClock);
        let end = MessageChannel { authority: name.clone(), transport, keys, clock: clock.clone(), counts };
        let (id, nonce) = ((ConsumerId(random()?), called), nonces()?);
        let settings = consumer::ConsumerSettings { lease, ..consumer::ConsumerSettings::default() };
        let consumer = Consumer::new(id, settings, view.clone());
        let (desk, attended) = QueryDesk::new(facts.clone(), view.silence().clone());
        let told = Arc::<HeardState>::default();
        let followed = Arc::new(FollowedIssuer {
            issuer,
            name,
            view: view.clone(),
            tags,
            clock,
            desk,
            lease,
            counts: Arc::<revocation::RevocationCounts>::default(),
            longest: None,
            successor: FollowerSuccessor::default(),
            ahead: IssuerClockSkew::default(),
        });
        let heard = told.clone();
        let following =
            event_loops::follow(end.clone(), consumer, facts, nonce, move |told| heard.note(&told));
        let tasks = vec![
            on.spawn(attended).abort_handle(),
            on.spawn(following).abort_handle(),
            on.spawn(expire(view.clone())).abort_handle(),
            on.spawn(tell_silence(view, outage)).abort_handle(),
            on.spawn(try_out(followed.clone(), told.clone())).abort_handle(),
        ];
        Ok(Self { followed, told_of: Vec::new(), end, told, roster: None, tasks })
    }

    /// Also answers for the log, whose database this process reaches, on this runtime. Returns what
    /// answers queries over HTTP.
    pub fn answer(&mut self, store: &Store, on: &Handle) -> QueryAnswers<Store> {
        let answers = QueryAnswers::new(self.end.clone(), store.clone());
        self.roster = Some(answers.roster.clone());
        let (tell, appended) = mpsc::channel(APPENDED);
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
        self.tasks.push(on.spawn(answers.relay.clone().run(self.end.clone())).abort_handle());
        self.tasks.push(on.spawn(forget_gone(store.clone())).abort_handle());
        self.tasks.push(on.spawn(sing(store.clone())).abort_handle());
        answers
    }

    /// Follows an issuer in another process. It is queried over HTTP, and sends messages over a
    /// broker if there is one.
    ///
    /// # Errors
    /// Like [`FollowedLog::start`].
    pub fn remote(follow: &FollowConfig, ways: &LogTransports, on: &Handle) -> Result<Self, Failure> {
        let _runtime = on.enter();
        let (counts, view) = (Arc::<ChannelCounts>::default(), view());
        let remote = Remote::new(follow, counts.clone(), on);
        let outage = Outage::of(format!("issuer {}", follow.issuer))
            .with_calm(CALM)
            .with_effect("what it revokes is not heard of: after a lease its tokens are answered 503");
        let asked = AskedLog::new(remote.clone(), view.silence().clone(), outage.way(), on);
        let mut transports: Vec<Arc<dyn Transport>> = vec![Arc::new(asked)];
        transports.extend(ways.broker.clone());
        let asking = ways.broker.clone().map(|broker| {
            let end = MessageChannel {
                authority: name_of(&follow.issuer),
                transport: broker,
                keys: follow.secret.message_keys(),
                clock: Arc::new(BootClock),
                counts: counts.clone(),
            };
            ByMessage::new(end, drawn)
        });
        let (by_message, hearing) = asking.unzip();
        let source = LogSource {
            issuer: follow.issuer.clone(),
            tags: follow.secret.tag_key(),
            keys: follow.secret.message_keys(),
            transport: together(transports),
            lease: ways.lease,
            facts: RemoteIssuer {
                remote: remote.clone(),
                questions: Arc::new(EveryTransport::new(remote, by_message)),
            },
            called: ways.called.clone(),
            view,
            counts,
            outage,
        };
        let mut following = Self::start(source, on)?;
        following.tasks.extend(hearing.map(|hearing| on.spawn(hearing).abort_handle()));
        Ok(following)
    }

    /// Waits until this process receives a revocation after the last call. Only one task may wait.
    pub async fn news(&self) {
        self.told.news.notified().await;
    }

    /// Waits until the first state has arrived, up to `patience`. Blocks the thread.
    pub fn begin(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.unready().is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// View of the same log for another issuer. `tags` makes its tags, and `longest` is the longest
    /// lifetime of its tokens.
    pub fn of(&self, issuer: &str, tags: TagKey, longest: Duration) -> Arc<FollowedIssuer> {
        let FollowedIssuer { name, view, clock, desk, lease, counts, .. } = &*self.followed;
        Arc::new(FollowedIssuer {
            issuer: issuer.into(),
            name: name.clone(),
            view: view.clone(),
            tags,
            clock: clock.clone(),
            desk: desk.clone(),
            lease: *lease,
            counts: counts.clone(),
            longest: Some(longest),
            successor: FollowerSuccessor::default(),
            ahead: IssuerClockSkew::default(),
        })
    }

    /// Channel that sends and receives the log's messages.
    pub fn end(&self) -> &MessageChannel {
        &self.end
    }

    /// Why requests should not be sent here: nothing has arrived from the issuer yet, and it has
    /// not answered a query.
    pub fn unready(&self) -> Option<String> {
        if self.told.begun.load(Ordering::Relaxed) || self.lease_left().is_some() || self.answers() {
            self.told.begun.store(true, Ordering::Relaxed);
            return None;
        }
        Some(format!("issuer {} has not said yet what is revoked", self.followed.issuer))
    }

    /// Whether this log concerns an issuer's tokens: it is the issuer's own log, or one with the
    /// reports of other issuers about it.
    pub fn is_about(&self, issuer: &str) -> bool {
        *self.followed.issuer == *issuer || self.told_of.iter().any(|one| **one == *issuer)
    }

    /// Adds issuers whose tokens other issuers report in this log.
    pub fn tells_of(&mut self, issuers: impl Iterator<Item = Box<str>>) {
        self.told_of.extend(issuers);
    }

    /// Why no token of the issuer is accepted: it was reachable, but sends no messages any more and
    /// has not answered for a lease.
    pub fn gone(&self) -> Option<String> {
        let gone = self.lease_left().is_none() && !self.answers() && self.unready().is_none();
        gone.then(|| {
            format!(
                "issuer {} is not heard of and does not answer: each of its tokens is answered 503",
                self.followed.issuer
            )
        })
    }

    /// Whether the issuer sent a message or an answer within the last lease, as far as this process
    /// has checked.
    fn answers(&self) -> bool {
        self.end.clock.now() < Boot(self.told.answers_until.load(Ordering::Relaxed))
    }

    /// One line for each problem, although requests are answered.
    pub fn notes(&self) -> Vec<String> {
        let issuer = &self.followed.issuer;
        let mut notes: Vec<String> =
            heard(issuer, self.lease_known(), self.followed.lease, &self.end.transport.state().borrow())
                .into_iter()
                .collect();
        if self.followed.view.denials().is_some_and(Denylist::is_full) {
            notes.push(format!(
                "issuer {issuer} has revoked more than the {DENIALS} tokens and sessions that there is room for: it is asked about each new token"
            ));
        }
        notes
    }

    fn is_silent(&self) -> bool {
        self.followed.desk.is_silent()
    }

    fn lease_known(&self) -> Lease {
        match self.lease_left() {
            Some(left) => Lease::Left(left),
            None if self.is_silent() => Lease::Silent,
            None => Lease::Over,
        }
    }

    fn lease_left(&self) -> Option<Duration> {
        let (now, lease) = (self.end.clock.now(), self.followed.view.lease());
        (now < lease).then(|| lease.since(now))
    }

    /// Status of the issuer for operators.
    pub fn standing(&self) -> FollowerRow {
        let view = &self.followed.view;
        let lease = self.lease_left();
        let mode = match lease {
            Some(_) => Mode::Leased,
            None if self.unready().is_some() => Mode::Starting,
            None => Mode::Asking,
        };
        FollowerRow {
            issuer: self.followed.issuer.to_string(),
            mode,
            lease_left: lease.map(|left| left.as_secs_f64()),
            applied: view.contiguous(),
            lag: view.lag(),
            denials: view.denials().map_or(0, |denials| denials.len() as u64),
            way: match &*self.end.transport.state().borrow() {
                TransportState::Up => "up".into(),
                TransportState::Starting => "starting".into(),
                TransportState::Down(why) => format!("down: {why}"),
            },
        }
    }

    /// Status of the issuer for metrics.
    pub fn sample(&self) -> RevocationSample {
        let (view, counts, asked) = (&self.followed.view, &self.end.counts, &self.followed.counts);
        let denials = view.denials();
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        RevocationSample {
            issuer: self.followed.issuer.clone(),
            lease: self.lease_left(),
            silent: self.is_silent(),
            up: *self.end.transport.state().borrow() == TransportState::Up,
            contiguous: view.contiguous(),
            lag: view.lag(),
            tombstones: view.tombstones(),
            denials: denials.map_or(0, Denylist::len),
            whole: denials.is_some_and(Denylist::is_whole),
            revoked: read(&self.told.revoked),
            flushes: self.told.flushed.lock().iter().map(|(cause, count)| (*cause, *count)).collect(),
            sent: read(&counts.sent),
            received: read(&counts.received),
            refused: read(&counts.refused),
            good: read(&asked.good),
            denied: read(&asked.denied),
            unanswered: read(&asked.silent),
            audited: read(&asked.audited),
            stale: read(&asked.stale),
            arrivals: self.roster.as_ref().map(|roster| roster.arrivals()),
        }
    }
}

/// What is left of the lease of an issuer.
#[derive(Debug, Clone, Copy)]
enum Lease {
    Left(Duration),
    /// Nothing: each token is queried.
    Over,
    /// Nothing, and the issuer does not answer queries either.
    Silent,
}

/// Describes an issuer whose messages do not arrive normally. `known` is what is left of its
/// `lease`, which is renewed twice a second while messages arrive over any transport.
fn heard(issuer: &str, known: Lease, lease: Duration, way: &TransportState) -> Option<String> {
    let way = match way {
        TransportState::Down(why) => format!("the way for messages is down: {why}"),
        TransportState::Starting => "the way for messages is not up yet".into(),
        TransportState::Up => String::new(),
    };
    let and = if way.is_empty() { "" } else { "; " };
    match known {
        Lease::Left(left) if left < lease / 2 => Some(format!(
            "issuer {issuer} is not heard of: what is known of it is believed for {:.1} s more{and}{way}",
            left.as_secs_f64()
        )),
        Lease::Left(_) if way.is_empty() => None,
        Lease::Left(_) => Some(format!("issuer {issuer} is heard, though not in every way{and}{way}")),
        Lease::Over => {
            Some(format!("issuer {issuer} is not heard of: it is asked about each token{and}{way}"))
        }
        Lease::Silent => Some(format!(
            "issuer {issuer} is not heard of, and answers nothing: its tokens are answered 503 until it does{and}{way}"
        )),
    }
}

/// Remote provider: its denylist is loaded over HTTP, and queries use every transport.
#[derive(Clone)]
struct RemoteIssuer {
    remote: Remote,
    questions: Arc<EveryTransport<Remote>>,
}

impl DenylistCopy for RemoteIssuer {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        self.remote.load(denials).await
    }
}

impl RevocationQuery for RemoteIssuer {
    async fn denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        self.questions.ask(tags).await
    }
}

/// What a process uses to exchange messages beyond a provider's own nodes.
#[derive(Clone)]
pub struct LogTransports {
    /// Connection to a message broker. `None`: no broker is configured.
    pub broker: Option<Arc<dyn Transport>>,
    /// Lease: how long an entry stays valid after the probe that renewed it was sent.
    pub lease: Duration,
    /// Name of this process for the issuers that it follows.
    pub called: ConsumerName,
}

impl LogTransports {
    /// Opens the configured transports. Connections run on this runtime.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn open(config: &config::Coherence, called: ConsumerName, on: &Handle) -> Result<Self, Failure> {
        let _runtime = on.enter();
        let broker: Option<Arc<dyn Transport>> = match &config.broker {
            None => None,
            Some(Broker::Nats(config)) => Some(Arc::new(nats::connect(config.clone()))),
            Some(Broker::Amqp(settings)) => {
                let seed = u64::from_le_bytes(random()?);
                Some(Arc::new(Amqp::start(amqp::AmqpSettings { seed, ..settings.clone() })))
            }
        };
        Ok(Self { broker, lease: config.lease, called })
    }
}

/// Transports between processes that share a database: within one process, and over the database if
/// it can carry messages. Call it within the runtime of the connections.
pub fn beside(database: &config::DatabaseSettings, outage: &Outage) -> Vec<Arc<dyn Transport>> {
    let mut transports: Vec<Arc<dyn Transport>> = vec![Arc::new(Memory::default())];
    if let Some(messages) = &database.messages {
        transports.push(Arc::new(postgres::connect(messages.clone(), outage.way())));
    }
    transports
}

/// Combines several transports into one.
pub fn together(mut ways: Vec<Arc<dyn Transport>>) -> Arc<dyn Transport> {
    match ways.pop() {
        Some(only) if ways.is_empty() => only,
        last => {
            ways.extend(last);
            Arc::new(Several::new(ways))
        }
    }
}

/// Issuers in other processes that are followed now.
#[derive(Default)]
pub struct Remotes(Vec<(FollowConfig, Arc<FollowedLog>)>);

impl Remotes {
    /// Follows the issuers of a configuration. An issuer that was followed before with the same
    /// settings keeps its state.
    ///
    /// # Errors
    /// Like [`FollowedLog::start`].
    pub fn of(
        follows: &[FollowConfig],
        before: &Self,
        ways: &LogTransports,
        on: &Handle,
    ) -> Result<Self, Failure> {
        let one = |follow: &FollowConfig| {
            let same = before.0.iter().find(|(old, _)| old.is_like(follow));
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

impl HeardState {
    fn note(&self, told: &AuthorityNotice) {
        self.news.notify_one();
        match told {
            AuthorityNotice::Revoked(_) => {
                self.revoked.fetch_add(1, Ordering::Relaxed);
            }
            AuthorityNotice::Flushed(cause) => *self.flushed.lock().entry(word(*cause)).or_default() += 1,
        }
    }
}

fn word(cause: FlushCause) -> &'static str {
    match cause {
        FlushCause::Epoch => "epoch",
        FlushCause::WentBack => "went_back",
        FlushCause::Gap => "gap",
        FlushCause::Gone => "gone",
        FlushCause::Overflow => "overflow",
    }
}

/// Probes the issuer periodically with an empty query while there is no lease. So it is known
/// whether queries work before the first token needs one. After a start, the first messages usually
/// arrive sooner and contain more, so probes wait for a lease.
async fn try_out(followed: Arc<FollowedIssuer>, told: Arc<HeardState>) {
    let begun = followed.clock.now();
    loop {
        let now = followed.clock.now();
        let leased = now < followed.view.lease();
        let is_due = now.since(begun) >= followed.lease;
        if leased || is_due && followed.desk.ask(&[], 0).await.is_some() {
            told.answers_until.fetch_max(now.plus(followed.lease).0, Ordering::Relaxed);
        }
        tokio::time::sleep(TRY).await;
    }
}

/// Removes expired entries from the denylist.
async fn expire(view: Arc<View>) {
    loop {
        tokio::time::sleep(EXPIRE).await;
        if let Some(denials) = view.denials() {
            denials.expire(i64::try_from(SystemClock.now().wall.as_millis()).unwrap_or(i64::MAX));
        }
    }
}

/// Logs once when no transport delivers an answer, and once when one does again.
async fn tell_silence(view: Arc<View>, outage: Outage) {
    let (outage, mut hearing) = (outage.with_calm(Duration::ZERO), view.silence().watch());
    loop {
        let heard = *hearing.borrow_and_update();
        match heard {
            Hearing::Silent => outage.failed("no lease is left, and it answers nothing"),
            Hearing::Answers => outage.succeeded(),
            Hearing::Doubtful => {}
        }
        if hearing.changed().await.is_err() {
            return;
        }
    }
}

/// Appends a heartbeat event that concerns no token while the log is quiet. So the delay of
/// consumers is measured before it matters.
async fn sing(store: Store) {
    loop {
        tokio::time::sleep(QUIET).await;
        let (Ok(tag), now) = (random(), SystemClock.now().wall) else { continue };
        // Ignore a failure: an unavailable database is reported elsewhere.
        let _ = store.write(Canary { tag: Tag(tag), quiet: QUIET, now }).await;
    }
}

/// Removes consumers that have not written for too long, by this process's clock. It marks them
/// first and checks again.
async fn forget_gone(store: Store) {
    let mut seen: HashMap<ConsumerId, ((u64, bool), tokio::time::Instant)> = HashMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        // While the database is unavailable, no consumer can write. So none counts as gone.
        let Ok(listed) = store.followers().await else {
            seen.clear();
            continue;
        };
        let now = tokio::time::Instant::now();
        seen.retain(|id, _| listed.iter().any(|listed| listed.follower.id == *id));
        for Listed { follower, beat, marked, .. } in listed {
            let id = follower.id;
            let (last, since) = seen.entry(id).or_insert(((beat, marked), now));
            if *last != (beat, marked) {
                (*last, *since) = ((beat, marked), now);
            }
            // A failed write is retried.
            let _ = match now.duration_since(*since) {
                unchanged if marked && unchanged >= GONE.saturating_sub(MARK) => {
                    store.write(ForgetFollower { id, beat }).await
                }
                unchanged if !marked && unchanged >= MARK => store.write(MarkFollower { id, beat }).await,
                _ => Ok(()),
            };
        }
    }
}

/// Length limit, in bytes, of a service name and of an address in the name of a process. Longer
/// ones are cut.
const PART: usize = 20;

/// Name of this process for operators: its kind, `telemetry.service`, the address of its first
/// listener, its host name (on Kubernetes the name of the pod) and its process ID. For example
/// `gateway edge :8443 web-7f/12`.
pub fn called(kind: &str, service: &str, address: Option<&ListenAddress>) -> ConsumerName {
    let address = match address {
        Some(ListenAddress::Ip(address)) if address.port() == 0 => String::new(),
        Some(ListenAddress::Ip(address)) if address.ip().is_unspecified() => format!(":{}", address.port()),
        Some(ListenAddress::Ip(address)) => address.to_string(),
        Some(ListenAddress::Unix(path)) => {
            path.file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        None => String::new(),
    };
    let cut = |text: &str, most: usize| text[..text.floor_char_boundary(most.min(text.len()))].to_owned();
    let parts = [kind.to_owned(), cut(service, PART), cut(&address, PART)];
    let before: String = parts.iter().filter(|part| !part.is_empty()).flat_map(|part| [part, " "]).collect();
    let machine = rustix::system::uname();
    let number = format!("/{}", std::process::id());
    // Keep the process ID whole, because it distinguishes processes of one machine.
    let rest =
        cut(&format!("{before}{}", machine.nodename().to_string_lossy()), ConsumerName::MAX - number.len());
    ConsumerName::new(&format!("{rest}{number}")).expect("a name of one to 64 bytes")
}

/// Name of an issuer in the protocol: its URL without the scheme, cut to the longest permitted
/// name. Two issuers with the same name do not accept each other's messages.
fn name_of(issuer: &str) -> ConsumerName {
    let rest = issuer.split_once("://").map_or(issuer, |(_, rest)| rest);
    let end = rest.floor_char_boundary(ConsumerName::MAX.min(rest.len()));
    // The fallback is for a URL that consists of a scheme only.
    ConsumerName::new(&rest[..end])
        .or_else(|| ConsumerName::new("issuer"))
        .expect("a name of one to 64 bytes")
}

/// Nonce of a query without a MAC: each must be unpredictable, even to an attacker who knows
/// earlier ones ([`coherence::query`]).
fn drawn() -> Option<Nonce> {
    random().ok().map(Nonce)
}

/// Unique, unpredictable nonces for messages with a MAC: half is random and fixed, half is a
/// counter.
fn nonces() -> Result<impl FnMut() -> Nonce + Send + 'static, Failure> {
    let mut nonce = random::<16>()?;
    let mut count = 0_u64;
    Ok(move || {
        count += 1;
        nonce[8..].copy_from_slice(&count.to_be_bytes());
        Nonce(nonce)
    })
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| Failure::new("the system has no randomness to give"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use ::config::{ConfigSource, Disk};
    use auth::time::Timestamp;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn issuers_are_called_by_their_address() {
        assert_eq!(name_of("https://login.example/realm").as_str(), "login.example/realm");
        assert_eq!(name_of(&format!("https://{}", "a".repeat(100))).as_str().len(), ConsumerName::MAX);
        assert_eq!(name_of("https://").as_str(), "issuer");
    }

    #[tokio::test]
    async fn messages_are_as_well_protected_as_facts() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("provider.secret");
        std::fs::write(&secret, "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=\n").unwrap();
        std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        for mode in ["sslmode=require", "sslmode=REQUIRE", "ssl-mode=require", "ssl%6Dode=requ%69re"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let text = format!(
                "[provider]\nissuer = \"http://127.0.0.1:1\"\naddress = \"127.0.0.1:1\"\naudiences = [\"orders\"]\n\
                 database = \"postgres://postern@{address}/postern?{mode}\"\nsecret_file = \"provider.secret\"\n"
            );
            let source =
                ConfigSource { name: "postern.toml", text: &text, base: folder.path(), files: &Disk };
            let loaded = config::load(source, Timestamp::from_secs(1_800_000_000), 1);
            let loaded = loaded.unwrap_or_else(|refused| panic!("{}", refused.report));
            let _ways = beside(&loaded.provider.unwrap().database, &store::outage_of("database"));
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut asked = [0; 8];
            socket.read_exact(&mut asked).await.unwrap();
            assert_eq!(asked, [0, 0, 0, 8, 4, 210, 22, 47], "{mode}: TLS is asked for before anything else");
            socket.write_all(b"N").await.unwrap();
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.unwrap();
            assert!(rest.is_empty(), "{mode}: nothing is said without");
        }
    }

    #[test]
    fn a_process_is_called_as_operators_know_it() {
        let address = |text: &str| ListenAddress::Ip(text.parse().unwrap());
        for (address, shown) in [
            (Some(address("0.0.0.0:8443")), "gateway edge :8443 "),
            (Some(address("127.0.0.1:80")), "gateway edge 127.0.0.1:80 "),
            (Some(ListenAddress::Unix(Path::new("/run/postern.sock").into())), "gateway edge postern.sock "),
            // The port is not known yet.
            (Some(address("127.0.0.1:0")), "gateway edge "),
            (None, "gateway edge "),
        ] {
            let name = called("gateway", "edge", address.as_ref());
            let (machine, number) = name.as_str().strip_prefix(shown).unwrap().rsplit_once('/').unwrap();
            assert!(!machine.is_empty() && !machine.contains(' '), "{name}");
            assert_eq!(number, std::process::id().to_string());
        }
        let long =
            called("gateway and provider", &"ä".repeat(100), Some(&address("[2001:db8::1:2:3:4]:65535")));
        assert!(long.as_str().ends_with(&format!("/{}", std::process::id())), "{long}");
    }

    #[test]
    fn what_is_told_of_an_issuer_is_true() {
        let (lease, down) = (Duration::from_secs(10), TransportState::Down("NATS at b:1: gone".into()));
        let left = |seconds| Lease::Left(Duration::from_secs_f64(seconds));
        assert_eq!(heard("https://a", left(9.8), lease, &TransportState::Up), None);
        for (known, way, text) in [
            // A broker is down, but the lease is renewed over HTTP.
            (
                left(9.8),
                &down,
                "issuer https://a is heard, though not in every way; the way for messages is down: NATS at b:1: gone",
            ),
            (
                left(3.2),
                &down,
                "issuer https://a is not heard of: what is known of it is believed for 3.2 s more; the way for messages is down: NATS at b:1: gone",
            ),
            (
                left(3.2),
                &TransportState::Up,
                "issuer https://a is not heard of: what is known of it is believed for 3.2 s more",
            ),
            (
                Lease::Over,
                &TransportState::Up,
                "issuer https://a is not heard of: it is asked about each token",
            ),
            (
                Lease::Silent,
                &down,
                "issuer https://a is not heard of, and answers nothing: its tokens are answered 503 until it does; the way for messages is down: NATS at b:1: gone",
            ),
        ] {
            assert_eq!(heard("https://a", known, lease, way).as_deref(), Some(text));
        }
    }

    #[test]
    fn no_number_is_used_twice() {
        let mut nonce = nonces().unwrap();
        let (a, b) = (nonce(), nonce());
        assert_ne!(a, b);
        assert_ne!(a, nonces().unwrap()(), "nor by two processes");
        let halves: std::collections::BTreeSet<[u8; 8]> =
            (0..100).flat_map(|_| drawn().unwrap().0.as_chunks::<8>().0.to_vec()).collect();
        assert_eq!(halves.len(), 200, "of a query's no half is known from another");
    }
}
