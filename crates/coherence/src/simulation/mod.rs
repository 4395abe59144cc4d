//! Simulation: runs the protocol in the worst permitted environment, from a seed.
//!
//! Owns the environment, and the promises that must hold in it:
//!
//! - two nodes of an authority on one database ([`database`]), three consumers with caches
//!   ([`asking`]);
//! - a network that loses, repeats, delays and reorders, partitions of one direction, pauses,
//!   crashes;
//! - failovers that lose durable events, deposed primaries that do not know it, a database that
//!   accepts no writes, answers of replicas that lag behind;
//! - an attacker on the network who repeats, changes and forges messages and answers
//!   ([`adversary`]).
//!
//! Does not own: any line of the protocol.
//!
//! Time advances in ticks of 100 ms. At the end of each run all faults are removed, and everything
//! has to work again.

mod adversary;
mod consumers;
mod database;
mod lossy;
mod mischief;
mod runs;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::adversary::{About, Adversary};
use self::consumers::{Load, OpenQuery};
use self::database::{Database, DeposedServer};
use crate::authority::{self, LogAuthority};
use crate::consumer::{self, Consumer, ConsumerSettings};
use crate::consumers::Consumers;
use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName, Tag};
use crate::mutation::{self, Mutation};
use crate::time::Boot;
use crate::view::{EntryStamp, View};
use crate::wire::{Body, Keys, Message};

const TICK: u64 = 100_000_000;
/// Largest error of a clock's rate.
const RHO: f64 = 0.001;
const STEPS: u64 = 1500;
/// Ticks of the run after all faults are removed, at least.
const HEALED: u64 = 150;
const CONSUMERS: usize = 3;
const NODES: usize = 2;
/// Requests are for one of the tokens issued last.
const LATEST: u64 = 12;
const SUBJECTS: u64 = 6;

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BrokenPromise {
    /// A request was admitted too long after its token was revoked.
    Bounded,
    /// A request was admitted although it came after one with the same token was refused.
    Monotone,
    /// A request was admitted by a consumer that has applied the token's revocation.
    Applied,
    /// A request was admitted although it came after the revoker was told that the token is refused
    /// everywhere.
    Confirmed,
    /// A request was refused although its token was never revoked.
    Refused,
    /// A token was not admitted from the cache after all faults were removed.
    Stuck,
    /// An authority counted as silent although the consumer had a lease.
    Hasty,
}

/// Numbers that look random: `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with a probability given in thousandths.
    fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }

    fn one_of(&mut self, choices: &[u64]) -> u64 {
        choices[usize::try_from(self.below(choices.len() as u64)).expect("few")]
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("few")
    }
}

fn tag(kind: u8, number: u64) -> Tag {
    let mut tag = [kind; Tag::LENGTH];
    tag[..8].copy_from_slice(&number.to_le_bytes());
    Tag(tag)
}

/// The event that revoked a token.
#[derive(Debug, Clone, Copy)]
struct Revoked {
    /// The epoch in which it was written. A server that knows only an earlier one does not know the
    /// event, whatever its number.
    epoch: u64,
    seq: u64,
    /// The tick in which the revoker was answered.
    replied: u64,
}

#[derive(Debug, Clone, Copy)]
struct Token {
    number: u64,
    subject: u64,
    revoked: Option<Revoked>,
    /// When it was issued, in ticks.
    issued: i64,
    /// Whether it is verified without a query.
    local: bool,
    /// A failover lost its revocation: nothing is promised.
    lost: bool,
    /// The tick in which every consumer had applied its revocation, and the revoker was told so.
    confirmed: Option<u64>,
}

impl Token {
    fn tags(&self) -> [Tag; 2] {
        [tag(1, self.number), tag(2, self.subject)]
    }
}

enum Packet {
    ToNode(usize, Bytes),
    ToConsumer(usize, Bytes),
    /// What a node had read, with its start: the node does not get the answer after a restart.
    HeadRead(Process, Option<LogHead>, Vec<ConsumerId>),
    RangeRead(Process, Nonce, LogHead, Option<(Epoch, Vec<LogEvent>)>),
    /// To any server: a plain read of a token.
    Read {
        from: usize,
        flight: u64,
        token: u64,
    },
    Answer {
        to: usize,
        flight: u64,
        good: bool,
        as_of: (Epoch, u64),
    },
    /// To a node, from a life of a consumer, with the number of what it is for.
    Query {
        node: usize,
        about: About,
        from: (usize, u64, u64),
        bytes: Bytes,
    },
    /// The answer to that, or a forged one.
    Sealed {
        to: usize,
        life: u64,
        number: u64,
        bytes: Bytes,
    },
    Commit(LogEvent, Vec<u64>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Process {
    node: usize,
    started: u64,
}

struct Cache {
    machine: Consumer,
    life: u64,
    entries: HashMap<u64, EntryStamp>,
    flights: BTreeMap<u64, OpenQuery>,
    load: Option<Load>,
    denied: HashMap<u64, Boot>,
    /// Since which tick; kept over restarts of this node.
    refused: HashMap<u64, u64>,
    rate: f64,
    paused_until: u64,
}

impl Cache {
    fn now(&self, tick: u64) -> Boot {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes in nanoseconds")]
        Boot((tick as f64 * TICK as f64 * self.rate) as u64)
    }
}

struct World {
    random: Random,
    tick: u64,
    healed: bool,
    next: u64,
    packets: BTreeMap<(u64, u64), Packet>,
    nodes: Vec<LogAuthority>,
    rosters: Vec<Consumers>,
    database: Database,
    /// For each node that did not notice a failover: what it still reads.
    old: Vec<Option<DeposedServer>>,
    /// Heads that revokers wait for until they are applied everywhere, and the tokens that are
    /// concerned.
    awaited: Vec<(LogHead, Vec<u64>)>,
    started: Vec<u64>,
    down_until: Vec<u64>,
    caches: Vec<Cache>,
    tokens: BTreeMap<u64, Token>,
    issued: u64,
    /// Until when nothing gets through: by consumer, and whether it is the direction to the
    /// consumer.
    partitioned_until: HashMap<(usize, bool), u64>,
    loss: u64,
    repeat: u64,
    delay: u64,
    pause: u64,
    crash: u64,
    forget: u64,
    lag: u64,
    /// How often the database begins to accept no writes, in ten thousandths.
    full: u64,
    limit: usize,
    /// How long a denial is remembered.
    denial: Duration,
    broken: Vec<(BrokenPromise, u64, u64)>,
    adversary: Adversary,
    keys: Keys,
}

fn name() -> PeerName {
    PeerName::new("main").expect("a name")
}

fn epoch(number: u64) -> Epoch {
    Epoch(tag(9, number).0)
}

/// Number of an epoch: later ones have higher numbers.
fn number(epoch: Epoch) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&epoch.0[..8]);
    u64::from_le_bytes(number)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let limit = usize::try_from(random.one_of(&[3, 10, 1000])).expect("few");
        let rates: Vec<_> =
            (0..CONSUMERS).map(|_| 1.0 + (random.below(2001) as f64 - 1000.0) / 1000.0 * RHO).collect();
        let caches = rates.into_iter().zip(0..).map(|(rate, number)| Cache {
            machine: consumer(number, limit),
            life: 0,
            entries: HashMap::new(),
            flights: BTreeMap::new(),
            load: None,
            denied: HashMap::new(),
            refused: HashMap::new(),
            rate,
            paused_until: 0,
        });
        let mut world = Self {
            tick: 0,
            healed: false,
            next: 0,
            packets: BTreeMap::new(),
            nodes: (0..NODES).map(|_| LogAuthority::new()).collect(),
            rosters: (0..NODES).map(|_| Consumers::default()).collect(),
            database: Database::default(),
            old: (0..NODES).map(|_| None).collect(),
            awaited: Vec::new(),
            started: vec![0; NODES],
            down_until: vec![0; NODES],
            caches: caches.collect(),
            tokens: BTreeMap::new(),
            issued: 0,
            partitioned_until: HashMap::new(),
            loss: random.one_of(&[0, 50, 300, 600]),
            repeat: random.one_of(&[0, 100, 500]),
            delay: random.one_of(&[1, 5, 60, 400, 36_000]),
            pause: random.one_of(&[0, 2, 10]),
            crash: random.one_of(&[0, 0, 2]),
            forget: random.one_of(&[0, 10, 50]),
            lag: random.one_of(&[0, 20, 200]),
            full: random.one_of(&[0, 10, 100]),
            limit,
            // Denials are in a table of bounded size: they may be evicted at once.
            denial: Duration::from_secs(random.one_of(&[0, 2])),
            broken: Vec::new(),
            adversary: Adversary::new(random.one_of(&[0, 100, 500])),
            keys: Keys::single(1, &[1; 32]),
            random,
        };
        (0..LATEST).for_each(|_| world.issue());
        // No consumer is in the list yet.
        let full_at_first = world.random.one_of(&[0, 0, 100]);
        world.fill_up_for(full_at_first);
        world
    }

    fn issue(&mut self) {
        let (subject, local) = (self.random.below(SUBJECTS), self.random.chance(500));
        self.issue_to(subject, local);
    }

    fn issue_to(&mut self, subject: u64, local: bool) -> u64 {
        let (number, issued) = (self.issued, i64::try_from(self.tick).expect("few"));
        self.issued += 1;
        self.tokens.insert(
            number,
            Token { number, subject, revoked: None, issued, local, lost: false, confirmed: None },
        );
        number
    }

    fn at(&mut self, tick: u64, packet: Packet) {
        self.next += 1;
        self.packets.insert((tick, self.next), packet);
    }

    /// Sends over the network, between a consumer and any other side.
    fn send(&mut self, consumer: usize, inbound: bool, packet: impl Fn() -> Packet) {
        if self.healed {
            return self.at(self.tick + 1, packet());
        }
        if self.partitioned_until.get(&(consumer, inbound)).is_some_and(|until| *until > self.tick) {
            return;
        }
        for _ in 0..=u64::from(self.random.chance(self.repeat)) {
            if !self.random.chance(self.loss) {
                let after = self.random.between(1, self.delay);
                self.at(self.tick + after, packet());
            }
        }
    }

    fn nonce(&mut self) -> Nonce {
        self.next += 1;
        Nonce(tag(3, self.next).0)
    }

    fn write(&self, body: Body) -> Bytes {
        self.keys.write(&Message { authority: name(), body }).expect("few tags").into()
    }

    // The nodes of the authority.

    fn node(&mut self, at: usize, act: impl FnOnce(&mut LogAuthority, &mut Vec<authority::AuthorityAction>)) {
        let mut actions = Vec::new();
        act(&mut self.nodes[at], &mut actions);
        let process = Process { node: at, started: self.started[at] };
        for action in actions {
            match action {
                authority::AuthorityAction::Send(body) => self.publish(body),
                authority::AuthorityAction::ReadHead(querying) => {
                    // Read at once, and delivered late: the oldest head that may be sent.
                    let (read, unlisted) = self.read_head(at, &querying);
                    let read = read.filter(|_| self.healed || !self.random.chance(20));
                    let after = if self.healed { 0 } else { self.random.between(0, 3) };
                    self.at(self.tick + after, Packet::HeadRead(process, read, unlisted));
                }
                authority::AuthorityAction::ReadRange { nonce, after, limit } => {
                    let read = Some(self.range(at, after.seq, limit));
                    self.at(self.tick + 1, Packet::RangeRead(process, nonce, after, read));
                }
                // Queries are sent directly here, not as messages.
                authority::AuthorityAction::Answer(_) => {}
            }
        }
    }

    // The consumers.

    fn consumer(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut Consumer, Boot, &mut dyn FnMut() -> Nonce, &mut Vec<consumer::ConsumerAction>),
    ) {
        let mut actions = Vec::new();
        let mut fresh = [self.nonce(), self.nonce(), self.nonce()].into_iter();
        let now = self.caches[at].now(self.tick);
        let mut nonce = || fresh.next().expect("no machine needs more at once");
        act(&mut self.caches[at].machine, now, &mut nonce, &mut actions);
        for action in actions {
            match action {
                consumer::ConsumerAction::Send(body) => {
                    let bytes = self.write(body.clone());
                    self.overhears_consumer(at, &body, &bytes);
                    for node in 0..NODES {
                        self.send(at, false, || Packet::ToNode(node, bytes.clone()));
                    }
                }
                consumer::ConsumerAction::LoadDenylist { ticket } => self.load(at, ticket),
                consumer::ConsumerAction::Revoked(_) | consumer::ConsumerAction::Flushed(_) => {}
            }
        }
    }

    fn deliver(&mut self, packet: Packet) {
        match packet {
            Packet::ToNode(at, bytes) => {
                if self.down_until[at] <= self.tick
                    && let Ok(Message { body, .. }) = self.keys.read(&bytes)
                {
                    let (now, roster) = (Boot(self.tick * TICK), &self.rosters[at]);
                    if !roster.on_message(now, &body) {
                        return;
                    }
                    let progressed = roster.with_unrecorded_progress();
                    if self.is_writable(at) {
                        self.rosters[at].mark_recorded(now, &progressed);
                        self.note(&progressed);
                    }
                    self.node(at, |node, actions| node.on_message(&body, actions));
                }
            }
            Packet::HeadRead(reader, ..) | Packet::RangeRead(reader, ..)
                if self.started[reader.node] != reader.started => {}
            Packet::HeadRead(reader, read, unlisted) => {
                self.node(reader.node, |node, actions| node.head_read(read, &unlisted, actions));
            }
            Packet::RangeRead(reader, nonce, after, read) => {
                self.node(reader.node, |node, actions| node.range_read(nonce, after, read, actions));
            }
            Packet::Commit(event, concerned) => self.commit(event, &concerned),
            Packet::Read { from, flight, token } => {
                let (good, as_of) = self.answer(token);
                let (good, as_of) = self.recalls(token, good, as_of);
                self.send(from, true, || Packet::Answer { to: from, flight, good, as_of });
            }
            Packet::Query { node, about, from, bytes } => self.deliver_query(node, about, &bytes, from),
            Packet::ToConsumer(at, _) | Packet::Answer { to: at, .. } | Packet::Sealed { to: at, .. }
                if self.caches[at].paused_until > self.tick =>
            {
                let wakes = self.caches[at].paused_until;
                self.at(wakes, packet);
            }
            Packet::ToConsumer(at, _) if self.is_deaf(at) => {}
            Packet::ToConsumer(at, bytes) => {
                if let Ok(Message { body, .. }) = self.keys.read(&bytes) {
                    self.consumer(at, |machine, now, nonce, actions| {
                        machine.on_message(now, &body, nonce, actions);
                    });
                }
            }
            Packet::Answer { to, flight, good, as_of } => self.deliver_read_answer(to, flight, good, as_of),
            Packet::Sealed { to, life, number, bytes } => {
                self.deliver_sealed_answer(to, life, number, &bytes);
            }
        }
    }

    fn step(&mut self) {
        self.remember_head();
        if !self.healed {
            self.inject_faults();
        }
        while let Some(entry) = self.packets.first_entry() {
            if entry.key().0 > self.tick {
                break;
            }
            let packet = entry.remove();
            self.deliver(packet);
        }
        for at in 0..CONSUMERS {
            if self.caches[at].paused_until > self.tick {
                continue;
            }
            let now = self.caches[at].now(self.tick);
            if now >= self.caches[at].machine.next_tick_at() {
                self.consumer(at, |machine, now, nonce, actions| machine.tick(now, nonce, actions));
            }
            let view = self.caches[at].machine.view();
            if view.silence().is_silent() && now < view.lease() {
                self.broken.push((BrokenPromise::Hasty, self.tick, 0));
            }
            self.page_again(at);
            for _ in 0..2 {
                let number = self.random.between(self.issued.saturating_sub(LATEST), self.issued - 1);
                self.request(at, number);
            }
            let tick = self.tick;
            let gone: Vec<_> = self.caches[at]
                .flights
                .iter()
                .filter(|(_, f)| tick - f.began > 100)
                .map(|(id, f)| (*id, f.token))
                .collect();
            for (flight, token) in gone {
                self.caches[at].flights.remove(&flight);
                if mutation::is_active(Mutation::ErrorsCached) {
                    self.caches[at].denied.insert(token, now.plus(self.denial));
                }
            }
        }
        self.confirm_applied();
        self.tick += 1;
    }

    /// Checks that every cache admits these tokens.
    fn all_are_admitted(&mut self, numbers: &[u64]) {
        for (at, number) in (0..CONSUMERS).flat_map(|at| numbers.iter().map(move |number| (at, *number))) {
            let hit = (0..20).any(|_| {
                let hit = self.request(at, number);
                self.step();
                hit
            });
            if !hit {
                self.broken.push((BrokenPromise::Stuck, self.tick, number));
            }
        }
    }

    fn run(seed: u64) -> Vec<(BrokenPromise, u64, u64)> {
        let mut world = Self::new(seed);
        while world.tick < STEPS && world.broken.is_empty() {
            world.step();
        }
        if world.broken.is_empty() {
            world.remove_faults();
        }
        world.broken
    }
}

fn consumer(number: u64, limit: usize) -> Consumer {
    Consumer::new(
        (ConsumerId(tag(4, number).0), PeerName::new("gateway").expect("a name")),
        ConsumerSettings::default(),
        Arc::new(View::new(limit).with_denylist(limit * 100)),
    )
}
