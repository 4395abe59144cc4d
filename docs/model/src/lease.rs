//! Lease, flush and fill of the coherence protocol (`crates/coherence`), small enough to check
//! every state.
//!
//! There is one authority, one node and two credentials, and no network. A message that was sent
//! may arrive at any time, in any order, any number of times, or never. So an arrival is an action
//! that is possible from then on. An echo reports any head that existed since its probe. An answer
//! about a credential includes the log up to any event, as lagging replicas give it. The node may
//! flush, forget its oldest tombstone, and restart.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::Checked;

/// Last point of time; the first is 0.
const END: u8 = 4;
/// Length of a lease, from its probe.
const LEASE: u8 = 2;
const KEYS: usize = 2;
const PROBES: u8 = 2;
const QUESTIONS: u8 = 2;
const FLUSHES: u8 = 1;
const STARTS: u8 = 1;

/// A line of the protocol that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The lease counts from the arrival of the echo.
    LeaseAtReceive,
    /// The authority answers with a head that it remembers.
    HeadFromMemory,
    /// Neither generation nor floor is compared.
    NoGenerationNoFloor,
    /// A tombstone is forgotten, and the floor stays.
    ForgetFirst,
    /// Answers are cached regardless of known revocations.
    NoFillCheck,
    /// A denial changes nothing.
    DenialNotApplied,
}

const FAULTS: [Fault; 6] = [
    Fault::LeaseAtReceive,
    Fault::HeadFromMemory,
    Fault::NoGenerationNoFloor,
    Fault::ForgetFirst,
    Fault::NoFillCheck,
    Fault::DenialNotApplied,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    contiguous: u8,
    beyond: BTreeSet<u8>,
    floor: u8,
    generation: u8,
    flushing: bool,
    lease: u8,
    tombstones: [u8; KEYS],
    /// Version and generation of the cached entries.
    entries: [Option<(u8, u8)>; KEYS],
    /// Probes in flight.
    probes: BTreeSet<Probe>,
    /// Queries in flight: the credential and the generation.
    questions: BTreeSet<(usize, u8)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Probe {
    /// When it was sent.
    at: u8,
    generation: u8,
    /// Head of the log at that time.
    head: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// Revoked credentials and when each revocation became durable; the first is event 1.
    log: Vec<(usize, u8)>,
    node: Node,
    /// Whether each credential was ever refused, also before a restart.
    refused: [bool; KEYS],
    probed: u8,
    asked: u8,
    flushed: u8,
    started: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Tick,
    Revoke(usize),
    Probe,
    /// An event arrives.
    Event(u8),
    /// An echo arrives, with a head.
    Echo(Probe, u8),
    Ask(usize),
    /// An answer arrives that includes the log up to this event.
    Answer((usize, u8), u8),
    Forget,
    Flush,
    Start,
}

struct Protocol(Option<Fault>);

impl Node {
    /// A node that knows nothing of the log, unless it follows it from the beginning.
    fn new(generation: u8, flushing: bool) -> Self {
        Self {
            contiguous: 0,
            beyond: BTreeSet::new(),
            floor: 0,
            generation,
            flushing,
            lease: 0,
            tombstones: [0; KEYS],
            entries: [None; KEYS],
            probes: BTreeSet::new(),
            questions: BTreeSet::new(),
        }
    }

    fn advance(&mut self) {
        while self.beyond.remove(&(self.contiguous + 1)) {
            self.contiguous += 1;
        }
        let contiguous = self.contiguous;
        self.beyond.retain(|seq| *seq > contiguous);
    }
}

impl State {
    fn head(&self) -> u8 {
        u8::try_from(self.log.len()).expect("few")
    }

    /// Number and time of the event that revoked the credential.
    fn revoked(&self, key: usize) -> Option<(u8, u8)> {
        let at = self.log.iter().position(|(revoked, _)| *revoked == key)?;
        Some((u8::try_from(at + 1).expect("few"), self.log[at].1))
    }
}

impl Protocol {
    fn is(&self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }

    /// Whether the node would admit the credential now, without a query.
    fn believes(&self, state: &State, key: usize) -> bool {
        let node = &state.node;
        let Some((version, generation)) = node.entries[key] else { return false };
        let current = generation == node.generation && version >= node.floor && !node.flushing;
        state.now < node.lease
            && (current || self.is(Fault::NoGenerationNoFloor))
            && node.tombstones[key] <= version
    }

    fn event(&self, state: &mut State, seq: u8) {
        let key = state.log[usize::from(seq) - 1].0;
        let node = &mut state.node;
        if seq <= node.contiguous || !node.beyond.insert(seq) {
            return;
        }
        node.tombstones[key] = node.tombstones[key].max(seq);
        node.advance();
        state.refused[key] = true;
    }

    fn echo(&self, state: &mut State, probe: Probe, head: u8) {
        let now = state.now;
        let node = &mut state.node;
        node.probes.remove(&probe);
        if probe.generation != node.generation {
            return;
        }
        if node.flushing {
            node.flushing = false;
            (node.floor, node.contiguous) = (node.floor.max(head), head);
            node.advance();
            let floor = node.floor;
            node.tombstones.iter_mut().filter(|seq| **seq <= floor).for_each(|seq| *seq = 0);
        }
        if node.contiguous >= head {
            let from = if self.is(Fault::LeaseAtReceive) { now } else { probe.at };
            node.lease = node.lease.max(from + LEASE);
        }
    }

    fn answered(&self, state: &mut State, (key, generation): (usize, u8), as_of: u8) {
        let revoked = state.revoked(key).is_some_and(|(seq, _)| seq <= as_of);
        let node = &mut state.node;
        node.questions.remove(&(key, generation));
        if revoked {
            state.refused[key] = true;
            if !self.is(Fault::DenialNotApplied) {
                node.entries[key] = None;
                node.tombstones[key] = node.tombstones[key].max(as_of);
            }
            return;
        }
        let fresh = generation == node.generation && as_of >= node.floor && !node.flushing;
        let fits = node.tombstones[key] <= as_of && (fresh || self.is(Fault::NoGenerationNoFloor));
        if fits {
            node.entries[key] = Some((as_of, generation));
        } else if self.is(Fault::NoFillCheck) {
            node.entries[key] = Some((node.contiguous, node.generation));
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            log: Vec::new(),
            node: Node::new(1, false),
            refused: [false; KEYS],
            probed: 0,
            asked: 0,
            flushed: 0,
            started: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }
        // The order of the credentials makes no difference.
        if state.log.len() < KEYS {
            actions.push(Action::Revoke(state.log.len()));
        }
        if state.probed < PROBES {
            actions.push(Action::Probe);
        }
        if state.asked < QUESTIONS {
            actions.extend((0..KEYS).map(Action::Ask));
        }
        actions.extend((1..=state.head()).map(Action::Event));
        for probe in &state.node.probes {
            let oldest = if self.is(Fault::HeadFromMemory) { 0 } else { probe.head };
            actions.extend((oldest..=state.head()).map(|head| Action::Echo(*probe, head)));
        }
        for question in &state.node.questions {
            actions.extend((0..=state.head()).map(|as_of| Action::Answer(*question, as_of)));
        }
        if state.node.tombstones.iter().any(|seq| *seq > 0) {
            actions.push(Action::Forget);
        }
        if state.flushed < FLUSHES {
            actions.push(Action::Flush);
        }
        if state.started < STARTS {
            actions.push(Action::Start);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Revoke(key) => state.log.push((key, state.now)),
            Action::Probe => {
                let probe = Probe { at: state.now, generation: state.node.generation, head: state.head() };
                state.node.probes.insert(probe);
                state.probed += 1;
            }
            Action::Event(seq) => self.event(&mut state, seq),
            Action::Echo(probe, head) => self.echo(&mut state, probe, head),
            Action::Ask(key) => {
                state.node.questions.insert((key, state.node.generation));
                state.asked += 1;
            }
            Action::Answer(question, as_of) => self.answered(&mut state, question, as_of),
            Action::Forget => {
                let node = &mut state.node;
                let oldest = node.tombstones.iter_mut().filter(|seq| **seq > 0).min()?;
                let seq = std::mem::take(oldest);
                if !self.is(Fault::ForgetFirst) {
                    node.floor = node.floor.max(seq);
                }
            }
            Action::Flush => {
                state.node.generation += 1;
                state.node.flushing = true;
                state.flushed += 1;
            }
            Action::Start => {
                state.node = Node::new(state.node.generation, true);
                state.started += 1;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no credential is admitted for longer than a lease after its revocation",
                |model, state: &State| {
                    (0..KEYS).all(|key| {
                        let late = state.revoked(key).is_some_and(|(_, at)| state.now >= at + LEASE);
                        !(late && model.believes(state, key))
                    })
                },
            ),
            Property::always("a refused credential is not admitted again", |model, state: &State| {
                (0..KEYS).all(|key| !(state.refused[key] && model.believes(state, key)))
            }),
            Property::sometimes("reachable: a credential is admitted", |model, state: &State| {
                (0..KEYS).any(|key| model.believes(state, key))
            }),
            Property::sometimes(
                "reachable: a credential is admitted after a flush that followed a revocation",
                |model, state: &State| {
                    state.flushed > 0
                        && state.node.floor > 0
                        && (0..KEYS).any(|key| model.believes(state, key))
                },
            ),
        ]
    }
}

/// Checks all states, and each fault.
pub fn check(threads: usize) -> Checked {
    crate::check("the lease", threads, Protocol, &FAULTS)
}
