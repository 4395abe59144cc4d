//! The promises of the protocol, checked over each real server. Meanwhile messages are lost,
//! repeated, late and out of order, either direction of the network stops, connections break, and
//! the server is killed.
//!
//! Two caches and a node of the authority run, each with a connection of its own through a bad
//! network. Tokens are issued and revoked all the time, and used at both caches. The lease is a
//! second, so that each fault outlasts it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use coherence::consumer::{Consumer, ConsumerSettings};
use coherence::consumers::ConsumerRecord;
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops::{DenylistSource, Log, QueryAnswers, run_consumer};
use coherence::message_channel::MessageChannel;
use coherence::revocation_query::RevocationQuery;
use coherence::time::{BootClock, BootTime as _};
use coherence::transport::{QUEUE, Subscription, Topic, Transport, TransportState};
use coherence::view::{CredentialCheck, EntryState, View};
use coherence::wire::Keys;
use coherence::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName, Tag};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::brokers::Kind;
use super::servers::{NetworkState, Proxy};
use super::{amqp, nats, postgres};

const LEASE: Duration = Duration::from_secs(1);
/// Longest time after its revocation at which a token may be admitted.
const BOUND: Duration = Duration::from_millis(1001);
/// How long each fault lasts.
const FAULT_TIME: Duration = Duration::from_millis(1500);
/// Time limit for the recovery from a fault.
const RECOVERY_TIME: Duration = Duration::from_secs(30);
/// Number of the latest tokens that are used.
const LATEST: usize = 40;
const EPOCH: Epoch = Epoch([1; 16]);

/// A server that can be killed.
pub(crate) trait Server {
    /// Where it listens.
    fn port(&self) -> u16;
    /// Kills the server with `kill -9`.
    fn kill(&mut self);
    /// Runs it again, at the same port.
    async fn run(&mut self);
}

/// What happens to messages, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
struct MessageFaults {
    lost: u64,
    repeated: u64,
    /// Each message is late by up to this much, and so out of order.
    late: Duration,
    /// No message sent from here arrives anywhere.
    mute: bool,
    /// No message of others arrives here.
    deaf: bool,
}

/// A transport with faults.
struct FaultyTransport {
    way: Arc<dyn Transport>,
    mishaps: watch::Receiver<MessageFaults>,
    random: Arc<AtomicU64>,
}

/// `SplitMix64`: pseudo-random numbers.
fn draw(random: &AtomicU64) -> u64 {
    let mut z = random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl MessageFaults {
    /// When a message arrives, once for each copy of it.
    fn arrivals(self, random: &AtomicU64) -> Vec<Duration> {
        let copies = 1 + usize::from(draw(random) % 1000 < self.repeated);
        let arrives = (0..copies).filter(|_| draw(random) % 1000 >= self.lost);
        arrives.map(|_| self.late * u32::try_from(draw(random) % 100).unwrap() / 100).collect()
    }
}

impl Transport for FaultyTransport {
    fn send(&self, topic: &Topic, message: Bytes) {
        let mishaps = *self.mishaps.borrow();
        if mishaps.mute {
            return;
        }
        for after in mishaps.arrivals(&self.random) {
            let (way, topic, message) = (self.way.clone(), topic.clone(), message.clone());
            if after.is_zero() {
                way.send(&topic, message);
            } else {
                tokio::spawn(async move {
                    sleep(after).await;
                    way.send(&topic, message);
                });
            }
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let (mut from, (to, subscription)) = (self.way.subscribe(topic), mpsc::channel(QUEUE));
        let mishaps = self.mishaps.clone();
        tokio::spawn(async move {
            while let Some(message) = from.recv().await {
                // A message that finds no room is lost, as in every transport.
                if !mishaps.borrow().deaf
                    && matches!(to.try_send(message), Err(mpsc::error::TrySendError::Closed(_)))
                {
                    return;
                }
            }
        });
        subscription
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.way.state()
    }
}

/// The log of the authority.
#[derive(Clone, Default)]
struct FakeStore(Arc<Mutex<Vec<LogEvent>>>);

impl FakeStore {
    /// The head, and whether this tag is denied as of it.
    fn denies(&self, tag: Tag) -> (u64, bool) {
        let log = self.0.lock();
        (log.len() as u64, log.iter().rev().any(|event| event.tags.contains(&tag)))
    }
}

impl Log for FakeStore {
    async fn head(&self) -> Option<LogHead> {
        Some(LogHead { epoch: EPOCH, seq: self.0.lock().len() as u64 })
    }

    async fn record_consumers(&self, _: &[ConsumerRecord]) -> bool {
        true
    }

    async fn range(&self, after: u64, limit: usize) -> Option<(Epoch, Vec<LogEvent>)> {
        let after = usize::try_from(after).unwrap();
        Some((EPOCH, self.0.lock().iter().skip(after).take(limit).cloned().collect()))
    }
}

impl RevocationQuery for FakeStore {
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let denial = DenylistEntry { not_before: None, until: i64::MAX };
        let (head, log) = (Log::head(self).await?, self.0.lock());
        let is_denied = |tag: &Tag| log.iter().any(|event| event.tags.contains(tag));
        Some((head, tags.into_iter().filter(is_denied).map(|tag| (tag, denial)).collect()))
    }
}

impl DenylistSource for FakeStore {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        let head = Log::head(self).await;
        for event in self.0.lock().iter() {
            for tag in &event.tags {
                denials.add(*tag, DenylistEntry { not_before: None, until: event.until });
            }
        }
        head
    }
}

/// A token of the test.
#[derive(Clone, Copy)]
struct Token {
    number: u64,
    /// From now on it may be refused.
    revoking: bool,
    /// When the revoker knew that the revocation is durable.
    revoked: Option<Instant>,
}

fn tag(number: u64) -> Tag {
    let mut tag = [7; Tag::LENGTH];
    tag[..8].copy_from_slice(&number.to_le_bytes());
    Tag(tag)
}

/// State that all tasks share.
#[derive(Clone)]
struct World {
    facts: FakeStore,
    tokens: Arc<Mutex<Vec<Token>>>,
    append: mpsc::Sender<(Epoch, LogEvent)>,
    random: Arc<AtomicU64>,
    views: Arc<Vec<Arc<View>>>,
    broken: Arc<Mutex<Vec<String>>>,
    /// Tokens admitted by local state, and by a query.
    admitted_by_lease: Arc<AtomicU64>,
    admitted_by_query: Arc<AtomicU64>,
    /// Server that the transports use.
    of: &'static str,
}

impl World {
    fn issue(&self) {
        let mut tokens = self.tokens.lock();
        let number = tokens.len() as u64;
        tokens.push(Token { number, revoking: false, revoked: None });
    }

    fn any(&self) -> Token {
        let tokens = self.tokens.lock();
        let back = usize::try_from(draw(&self.random)).unwrap_or(0) % LATEST.min(tokens.len());
        tokens[tokens.len() - 1 - back]
    }

    fn revoke(&self, token: Token) {
        let at = usize::try_from(token.number).unwrap();
        if std::mem::replace(&mut self.tokens.lock()[at].revoking, true) {
            return;
        }
        let mut log = self.facts.0.lock();
        let seq = log.len() as u64 + 1;
        let event = LogEvent { seq, tags: vec![tag(token.number)], not_before: None, until: i64::MAX };
        log.push(event.clone());
        drop(log);
        self.tokens.lock()[at].revoked = Some(Instant::now());
        // A consumer that does not get the event asks for it.
        let _ = self.append.try_send((EPOCH, event));
        self.issue();
    }

    /// A request with some token at a cache; `refused` has the tokens that the cache has refused
    /// before.
    fn request(&self, at: usize, refused: &mut HashSet<u64>) {
        let (view, token, began) = (&self.views[at], self.any(), Instant::now());
        let tags = [tag(token.number)];
        let admitted = match view.check_credential(&tags, 0) {
            CredentialCheck::Denied => false,
            CredentialCheck::NotRevoked(stamp)
                if view.entry_state(&stamp, &tags, BootClock.now()) == EntryState::Valid =>
            {
                self.admitted_by_lease.fetch_add(1, Ordering::Relaxed);
                true
            }
            // The issuer is queried, and is available.
            CredentialCheck::NotRevoked(_) | CredentialCheck::Unknown => {
                self.admitted_by_query.fetch_add(1, Ordering::Relaxed);
                let (head, denied) = self.facts.denies(tags[0]);
                if denied {
                    view.apply_denial((EPOCH, head), tags[0]);
                }
                !denied
            }
        };
        let number = token.number;
        if !admitted {
            let now = self.tokens.lock()[usize::try_from(number).unwrap()];
            if !now.revoking {
                self.broken.lock().push(format!("{number} was refused at {at}, and nobody revoked it"));
            }
            refused.insert(number);
            return;
        }
        let late = token.revoked.map(|revoked| began.saturating_duration_since(revoked));
        if let Some(late) = late.filter(|late| *late > BOUND) {
            self.broken.lock().push(format!("{number} was admitted at {at} {late:?} after it was revoked"));
        }
        if refused.contains(&number) {
            self.broken.lock().push(format!("{number} was admitted at {at} after it was refused there"));
        }
    }

    /// Whether both caches hold a lease and have applied all but the last 200 events of the log.
    fn is_well(&self) -> bool {
        let head = self.facts.0.lock().len() as u64;
        let (now, head) = (BootClock.now(), head.saturating_sub(200));
        self.views.iter().all(|view| now < view.lease() && view.applied_up_to() >= head)
    }

    async fn wait_recovered(&self, after: &str) {
        let began = Instant::now();
        while !self.is_well() {
            let standing: Vec<_> = self.views.iter().map(|view| (view.applied_up_to(), view.lag())).collect();
            assert!(
                began.elapsed() < RECOVERY_TIME,
                "{}: not believed again after {after}: {standing:?}",
                self.of
            );
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(*self.broken.lock(), Vec::<String>::new(), "{}: broken by {after}", self.of);
    }
}

fn channel(way: &FaultyTransport) -> MessageChannel {
    MessageChannel {
        authority: PeerName::new("main").unwrap(),
        transport: Arc::new(FaultyTransport {
            way: way.way.clone(),
            mishaps: way.mishaps.clone(),
            random: way.random.clone(),
        }),
        keys: Keys::single(1, &[5; 32]),
        clock: Arc::new(BootClock),
        counts: Arc::default(),
    }
}

/// The bad networks: the authority's, and those of two caches.
type Networks = Vec<(Proxy, watch::Sender<MessageFaults>)>;

/// An authority and two caches, each with a transport of its own, in use.
fn start_world(of: &'static str, ways: &[FaultyTransport], tasks: &mut JoinSet<()>) -> World {
    let (append, appended) = mpsc::channel(100);
    let facts = FakeStore::default();
    let views = (0..2).map(|_| Arc::new(View::new(1000).with_denylist(1_000_000))).collect();
    let world = World {
        facts: facts.clone(),
        tokens: Arc::default(),
        append,
        random: ways[0].random.clone(),
        views: Arc::new(views),
        broken: Arc::default(),
        admitted_by_lease: Arc::default(),
        admitted_by_query: Arc::default(),
        of,
    };
    (0..LATEST).for_each(|_| world.issue());
    tasks.spawn(QueryAnswers::new(channel(&ways[0]), facts.clone()).run(appended));
    for (at, view) in world.views.iter().enumerate() {
        let number = u8::try_from(at).unwrap() + 1;
        let (period, patience) = (Duration::from_millis(100), Duration::from_millis(300));
        let called = PeerName::new(&format!("cache-{number}")).unwrap();
        let settings = ConsumerSettings { lease: LEASE, probe_period: period, gap_patience: patience };
        let consumer = Consumer::new((ConsumerId([number; 16]), called), settings, view.clone());
        let mut drawn = u128::from(number) << 64;
        let nonce = move || {
            drawn += 1;
            Nonce(drawn.to_le_bytes())
        };
        tasks.spawn(run_consumer(channel(&ways[at + 1]), consumer, facts.clone(), nonce, |_| {}));
        let world = world.clone();
        tasks.spawn(async move {
            let mut refused = HashSet::new();
            loop {
                (0..5).for_each(|_| world.request(at, &mut refused));
                sleep(Duration::from_millis(1)).await;
            }
        });
    }
    world
}

/// Faults that messages may have.
async fn lose_messages(world: &World, networks: &Networks) {
    let fair = MessageFaults::default();
    let to_all = |mishaps: MessageFaults| {
        for (_, tell) in networks {
            tell.send_replace(mishaps);
        }
    };
    let mishaps = [
        ("losses", MessageFaults { lost: 400, ..fair }),
        ("repetitions", MessageFaults { repeated: 900, ..fair }),
        ("disorder", MessageFaults { late: Duration::from_millis(300), ..fair }),
        ("delays of more than a lease", MessageFaults { late: Duration::from_secs(3), ..fair }),
        ("all of it", MessageFaults { lost: 300, repeated: 300, late: Duration::from_millis(800), ..fair }),
    ];
    for (name, mishaps) in mishaps {
        to_all(mishaps);
        sleep(FAULT_TIME).await;
        to_all(fair);
        world.wait_recovered(name).await;
    }
    let of_one = [
        ("a cache nobody hears", MessageFaults { mute: true, ..fair }),
        ("a deaf cache", MessageFaults { deaf: true, ..fair }),
    ];
    for (name, mishaps) in of_one {
        networks[1].1.send_replace(mishaps);
        sleep(FAULT_TIME).await;
        networks[1].1.send_replace(fair);
        world.wait_recovered(name).await;
    }
}

/// Faults that connections may have.
async fn break_connections(world: &World, networks: &Networks) {
    for weather in
        [NetworkState::Deaf, NetworkState::Mute, NetworkState::Silent, NetworkState::Slow, NetworkState::Cut]
    {
        for whose in [0, 1] {
            networks[whose].0.set(weather);
            sleep(FAULT_TIME).await;
            networks[whose].0.set(NetworkState::Fair);
            world.wait_recovered(&format!("{weather:?} network of {whose}")).await;
        }
    }
    // More than any queue holds, while one of the caches receives nothing.
    networks[2].0.set(NetworkState::Mute);
    for _ in 0..20_000 {
        world.issue();
        let last = *world.tokens.lock().last().unwrap();
        world.revoke(last);
    }
    networks[2].0.set(NetworkState::Fair);
    world.wait_recovered("a full queue").await;
}

/// Checks the promises against a server, over connections that `connect` makes to a port.
pub(crate) async fn check_promises(
    of: &'static str,
    mut server: impl Server,
    connect: impl Fn(u16) -> Arc<dyn Transport>,
) {
    let random = Arc::new(AtomicU64::new(0x1234_5678));
    let (mut networks, mut ways, mut tasks) = (Networks::new(), Vec::new(), JoinSet::new());
    for _ in 0..3 {
        let network = Proxy::start(server.port()).await;
        let (tell, mishaps) = watch::channel(MessageFaults::default());
        ways.push(FaultyTransport { way: connect(network.port), mishaps, random: random.clone() });
        networks.push((network, tell));
    }
    let world = start_world(of, &ways, &mut tasks);
    world.wait_recovered("the start").await;
    let revoker = world.clone();
    tasks.spawn(async move {
        loop {
            revoker.revoke(revoker.any());
            sleep(Duration::from_millis(7)).await;
        }
    });
    lose_messages(&world, &networks).await;
    break_connections(&world, &networks).await;
    server.kill();
    sleep(FAULT_TIME).await;
    server.run().await;
    world.wait_recovered("a kill").await;
    let counted =
        || (world.admitted_by_lease.load(Ordering::Relaxed), world.admitted_by_query.load(Ordering::Relaxed));
    // Right after a restart, or on a busy machine, a lease may expire once more.
    let mut samples = Vec::new();
    let mut is_good = false;
    while !is_good && samples.len() < 10 {
        let before = counted();
        sleep(LEASE).await;
        let after = counted();
        let (known, asked) = (after.0 - before.0, after.1 - before.1);
        is_good = known > 10 * asked;
        samples.push((known, asked));
    }
    assert!(is_good, "{of}: {samples:?} by what was known and by asking, although all is well");
    tasks.shutdown().await;
}

/// All servers at the same time, since each test mostly waits.
#[tokio::test(flavor = "multi_thread")]
async fn hold_over_every_server() {
    tokio::join!(
        nats::promises_hold(),
        postgres::promises_hold(),
        amqp::promises_hold(Kind::Artemis),
        amqp::promises_hold(Kind::Classic),
        amqp::promises_hold(Kind::Rabbit),
    );
}
