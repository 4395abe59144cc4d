//! Lossy network: a simulation in which one transport works and loses most messages. A consumer
//! must keep its lease all the same, and have its queries answered.
//!
//! Owns: a consumer, a node of the authority, the transport between them, and events that may be
//! lost like other messages. The denylist cannot be copied: HTTP is down. Time advances in ticks of
//! 5 ms, since messages are repeated after tens of milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Random, epoch, tag};
use crate::authority::{self, LogAuthority};
use crate::consumer::{self, Consumer};
use crate::log_types::{LogEvent, LogHead, Nonce, PeerName};
use crate::mutation::{self, Mutation};
use crate::query::{LogAnswer, LogQuery};
use crate::repeat::RepeatedQuery;
use crate::time::Boot;
use crate::wire::{Body, Keys};

const TICK: u64 = 5_000_000;
/// Ticks of a run: one minute.
const STEPS: u64 = 12_000;
/// Ticks for which there may be no lease: in the beginning, and after a flush. Queries are answered
/// meanwhile.
const FLUSHED: u64 = 1000;
/// Ticks that a request waits for the answer to its query.
const PATIENCE: u64 = 400;
/// Lost messages of a thousand, in each direction.
const MOST_LOSS: u64 = 600;

/// The promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// There was no lease for too long.
    Lease,
    /// A query was not answered in time.
    Question,
}

enum Packet {
    ToNode(Body),
    ToConsumer(Body),
    Head,
    Range(Nonce, LogHead),
    Answer(Vec<u8>),
}

struct World {
    random: Random,
    loss: u64,
    tick: u64,
    /// The last tick in which there was a lease.
    leased: u64,
    next: u64,
    packets: BTreeMap<(u64, u64), Packet>,
    node: LogAuthority,
    consumer: Consumer,
    /// The open query, and the tick at which it began.
    query: Option<(RepeatedQuery, u64)>,
    log: Vec<LogEvent>,
    name: PeerName,
    keys: Keys,
}

impl World {
    fn new(seed: u64, loss: u64) -> Self {
        Self {
            random: Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
            loss,
            tick: 0,
            leased: 0,
            next: 0,
            packets: BTreeMap::new(),
            node: LogAuthority::new(),
            consumer: super::consumer(1, 1000),
            query: None,
            log: Vec::new(),
            name: PeerName::new("main").expect("a name"),
            keys: Keys::single(1, &[1; 32]),
        }
    }

    fn now(&self) -> Boot {
        Boot(self.tick * TICK)
    }

    fn head(&self) -> LogHead {
        LogHead { epoch: epoch(1), seq: self.log.len() as u64 }
    }

    fn at(&mut self, tick: u64, packet: Packet) {
        self.next += 1;
        self.packets.insert((tick, self.next), packet);
    }

    fn send(&mut self, packet: Packet) {
        if !self.random.chance(self.loss) {
            let after = self.random.between(1, 2);
            self.at(self.tick + after, packet);
        }
    }

    fn node(&mut self, act: impl FnOnce(&mut LogAuthority, &mut Vec<authority::AuthorityAction>)) {
        let mut actions = Vec::new();
        act(&mut self.node, &mut actions);
        for action in actions {
            match action {
                authority::AuthorityAction::Send(body) => self.send(Packet::ToConsumer(body)),
                // The database answers in the next tick.
                authority::AuthorityAction::ReadHead(_) => self.at(self.tick + 1, Packet::Head),
                authority::AuthorityAction::ReadRange { nonce, after, .. } => {
                    self.at(self.tick + 1, Packet::Range(nonce, after));
                }
                authority::AuthorityAction::Answer(query) => self.at(self.tick + 1, Packet::Answer(query)),
            }
        }
    }

    fn consumer(
        &mut self,
        act: impl FnOnce(&mut Consumer, Boot, &mut dyn FnMut() -> Nonce, &mut Vec<consumer::ConsumerAction>),
    ) {
        let (now, mut actions, mut drawn) = (self.now(), Vec::new(), self.next);
        let mut nonce = || {
            drawn += 1;
            Nonce(tag(3, drawn).0)
        };
        act(&mut self.consumer, now, &mut nonce, &mut actions);
        self.next = drawn;
        for action in actions {
            if let consumer::ConsumerAction::Send(body) = action {
                self.send(Packet::ToNode(body));
            }
        }
    }

    fn deliver(&mut self, packet: Packet) {
        match packet {
            Packet::ToNode(body) => self.node(|node, actions| node.on_message(&body, actions)),
            Packet::ToConsumer(body) => {
                if let Some((query, _)) = &mut self.query {
                    query.on_message(&body, &self.keys);
                }
                self.consumer(|consumer, now, nonce, actions| {
                    consumer.on_message(now, &body, nonce, actions);
                });
            }
            Packet::Head => {
                let head = self.head();
                self.node(|node, actions| node.head_read(Some(head), &[], actions));
            }
            Packet::Range(nonce, after) => {
                let events = self.log.iter().filter(|event| event.seq > after.seq).cloned().collect();
                let read = Some((epoch(1), events));
                self.node(|node, actions| node.range_read(nonce, after, read, actions));
            }
            Packet::Answer(bytes) => {
                let query = LogQuery::read(&self.name, &bytes).expect("it was made here");
                let answer = LogAnswer { head: self.head(), denied: Vec::new(), more: false };
                let sealed = query.seal(&answer, &self.keys);
                self.node(|node, actions| {
                    node.query_answered(&bytes, Some((query.nonce(), sealed)), actions);
                });
            }
        }
    }

    fn revoke(&mut self) {
        let seq = self.log.len() as u64 + 1;
        let event = LogEvent { seq, tags: vec![tag(1, seq)], not_before: None, until: i64::MAX };
        self.log.push(event.clone());
        self.node(|_, actions| LogAuthority::publish(epoch(1), event, actions));
    }

    fn ask(&mut self) -> Result<(), Broken> {
        if self.query.is_none() && self.random.chance(50) {
            let tags: Vec<_> = (0..self.random.one_of(&[1, 7, 700])).map(|number| tag(1, number)).collect();
            let (mut drawn, tick) = (self.next, self.tick);
            let mut nonce = || {
                drawn += 1;
                Some(Nonce(tag_of(drawn)))
            };
            self.query = RepeatedQuery::new(&self.name, &tags, &mut nonce).map(|query| (query, tick));
            self.next = drawn;
        }
        let (now, mut bodies) = (self.now(), Vec::new());
        let Some((query, began)) = &mut self.query else { return Ok(()) };
        if query.answer().is_some() {
            self.query = None;
            return Ok(());
        }
        if self.tick - *began >= PATIENCE {
            return Err(Broken::Question);
        }
        query.tick(now, &mut bodies);
        for body in bodies {
            self.send(Packet::ToNode(body));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Broken> {
        while let Some(entry) = self.packets.first_entry() {
            if entry.key().0 > self.tick {
                break;
            }
            let packet = entry.remove();
            self.deliver(packet);
        }
        if self.random.chance(5) {
            self.revoke();
        }
        if self.now() >= self.consumer.next_tick_at() {
            self.consumer(|consumer, now, nonce, actions| consumer.tick(now, nonce, actions));
        }
        self.ask()?;
        if self.now() < self.consumer.view().lease() {
            self.leased = self.tick;
        }
        self.tick += 1;
        if self.tick - self.leased < FLUSHED { Ok(()) } else { Err(Broken::Lease) }
    }

    fn run(seed: u64, loss: u64) -> Option<(Broken, Duration)> {
        let mut world = Self::new(seed, loss);
        let broken = (0..STEPS).find_map(|_| world.step().err());
        broken.map(|broken| (broken, Duration::from_nanos(world.now().0)))
    }
}

fn tag_of(number: u64) -> [u8; 16] {
    tag(5, number).0
}

/// The first seed that breaks something.
fn first_broken(seeds: std::ops::Range<u64>, loss: u64) -> Option<(u64, (Broken, Duration))> {
    seeds.into_iter().find_map(|seed| World::run(seed, loss).map(|broken| (seed, broken)))
}

#[test]
fn whoever_can_be_reached_in_some_way_is() {
    for loss in [0, 300, MOST_LOSS] {
        assert_eq!(first_broken(0..100, loss), None, "with a loss of {loss} in a thousand");
    }
}

#[test]
fn what_is_not_repeated_is_noticed() {
    for (mutation, broken) in
        [(Mutation::NoRetry, Broken::Lease), (Mutation::QueryNotRepeated, Broken::Question)]
    {
        mutation::set_active(Some(mutation));
        let found = first_broken(0..20, MOST_LOSS);
        mutation::set_active(None);
        assert_eq!(found.map(|(_, (violation, _))| violation), Some(broken), "{mutation:?}");
    }
}
