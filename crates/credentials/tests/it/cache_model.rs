//! The decision cache against a model that stores everything forever and computes admissibility
//! naively.
//!
//! The cache may drop entries (that is what bounds are for), so the model gives what a lookup *may*
//! return. With enough capacity the cache must return exactly what the model does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use credentials::cache::{CacheLookup, CacheSecret, DecisionCache, Generation, Lifetime, Ticket, Weigh};
use credentials::config::CacheLimits;
use http_engine::clock::{Clock, ManualClock, Now};
use proptest::prelude::*;

const TTL: Duration = Duration::from_mins(1);
const DENY_TTL: Duration = Duration::from_secs(2);

struct Fact {
    serial: u64,
    weight: usize,
}

impl Weigh for Fact {
    fn weight(&self) -> usize {
        self.weight
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Look a name up; a miss keeps its ticket.
    Lookup(u8),
    /// Fill the oldest ticket of the name with a fact of this weight that expires so many seconds
    /// later.
    Fill(u8, u16, u8),
    Deny(u8),
    Fail(u8),
    Drop(u8),
    Advance(u16),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12_u8).prop_map(Step::Lookup),
        4 => (0..12_u8, 0..3_000_u16, 0..200_u8).prop_map(|(name, weight, life)| Step::Fill(name, weight, life)),
        1 => (0..12_u8).prop_map(Step::Deny),
        1 => (0..12_u8).prop_map(Step::Fail),
        1 => (0..12_u8).prop_map(Step::Drop),
        2 => (0..20_000_u16).prop_map(Step::Advance),
        1 => Just(Step::Flush),
    ]
}

/// A fact as the model stores it. The deadline is a range because of the jitter.
struct Stored {
    serial: u64,
    generation: u64,
    surely_until: Instant,
    maybe_until: Instant,
    expires: Timestamp,
}

#[derive(Default)]
struct Model {
    facts: HashMap<u8, Stored>,
    denials: HashMap<u8, Instant>,
    flying: HashMap<u8, u64>,
    generation: u64,
}

impl Model {
    fn fact(&self, name: u8, now: Now) -> (bool, bool) {
        let Some(fact) = self.facts.get(&name) else { return (false, false) };
        let alive = fact.generation == self.generation && now.wall < fact.expires;
        (alive && now.monotonic < fact.surely_until, alive && now.monotonic < fact.maybe_until)
    }
}

/// A ticket and the generation it was taken in.
type Taken = (u64, Ticket<Fact, &'static str>);

struct Run {
    cache: DecisionCache<Fact, &'static str>,
    clock: ManualClock,
    secret: CacheSecret,
    model: Model,
    /// Open tickets by name, oldest first.
    tickets: HashMap<u8, Vec<Taken>>,
    serial: u64,
    bytes: usize,
    roomy: bool,
}

impl Run {
    fn new(roomy: bool) -> Self {
        let bytes = if roomy { 1 << 20 } else { 6_000 };
        let deny_entries = if roomy { 100 } else { 3 };
        let limits = CacheLimits { bytes, ttl: TTL, deny_ttl: DENY_TTL, deny_entries };
        Self {
            cache: DecisionCache::new(&limits, Generation::default()),
            clock: ManualClock::new(Timestamp::from_secs(1_000)),
            secret: CacheSecret::new([3; 16]),
            model: Model::default(),
            tickets: HashMap::new(),
            serial: 0,
            bytes,
            roomy,
        }
    }

    fn take(&mut self, name: u8) -> Option<Taken> {
        let open = self.tickets.get_mut(&name)?;
        let (generation, ticket) = if open.is_empty() { return None } else { open.remove(0) };
        if self.model.flying.get(&name) == Some(&generation) {
            self.model.flying.remove(&name);
        }
        Some((generation, ticket))
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now = self.clock.now();
        match *step {
            Step::Lookup(name) => self.lookup(name, now)?,
            Step::Fill(name, weight, life) => self.fill(name, weight, life, now)?,
            Step::Deny(name) => {
                if let Some((_, ticket)) = self.take(name) {
                    ticket.deny("denied", now);
                    self.model.facts.remove(&name);
                    self.model.denials.insert(name, now.monotonic + DENY_TTL);
                }
            }
            Step::Fail(name) => {
                if let Some((_, ticket)) = self.take(name) {
                    ticket.fail("failed");
                }
            }
            Step::Drop(name) => drop(self.take(name)),
            Step::Advance(millis) => self.clock.advance(Duration::from_millis(millis.into())),
            Step::Flush => {
                self.cache.flush();
                self.model.generation += 1;
            }
        }
        prop_assert!(self.cache.usage().bytes <= self.bytes);
        Ok(())
    }

    fn lookup(&mut self, name: u8, now: Now) -> Result<(), TestCaseError> {
        let (surely, maybe) = self.model.fact(name, now);
        let denied = self.model.denials.get(&name).is_some_and(|&until| now.monotonic < until);
        let flying = self.model.flying.get(&name) == Some(&self.model.generation);
        match self.cache.lookup(self.secret.scope(1, 1).key(&[name]), now) {
            CacheLookup::Hit(fact) => {
                prop_assert!(maybe, "a hit on what is expired, flushed or never was");
                prop_assert_eq!(fact.serial, self.model.facts[&name].serial);
            }
            CacheLookup::Denied(why) => {
                prop_assert_eq!(why, "denied");
                prop_assert!(denied);
            }
            CacheLookup::Pending(_) => prop_assert!(flying && !(self.roomy && (surely || denied))),
            CacheLookup::Miss(ticket) => {
                prop_assert!(!flying, "two tickets for one flight");
                prop_assert!(!(self.roomy && (surely || denied)), "forgotten although there is room");
                self.model.flying.insert(name, self.model.generation);
                self.tickets.entry(name).or_default().push((self.model.generation, ticket));
            }
        }
        Ok(())
    }

    fn fill(&mut self, name: u8, weight: u16, life: u8, now: Now) -> Result<(), TestCaseError> {
        let Some((generation, ticket)) = self.take(name) else { return Ok(()) };
        self.serial += 1;
        let expires = now.wall.plus(Duration::from_secs(life.into()));
        let fact = Fact { serial: self.serial, weight: weight.into() };
        let filled = ticket.fill(fact, Lifetime { expires, until: None, basis: None }, now);
        prop_assert_eq!(filled.is_ok(), generation == self.model.generation);
        if filled.is_ok() {
            self.model.denials.remove(&name);
            let stored = Stored {
                serial: self.serial,
                generation,
                surely_until: now.monotonic + TTL * 9 / 10,
                maybe_until: now.monotonic + TTL,
                expires,
            };
            self.model.facts.insert(name, stored);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_room_the_cache_is_the_model(steps in proptest::collection::vec(step(), 1..120)) {
        let mut run = Run::new(true);
        for step in &steps {
            run.step(step)?;
        }
    }

    #[test]
    fn without_room_the_cache_never_says_what_the_model_does_not(steps in proptest::collection::vec(step(), 1..120)) {
        let mut run = Run::new(false);
        for step in &steps {
            run.step(step)?;
        }
    }
}
