//! Decision cache: stores what was proven about a credential, so that it is not proven again for
//! each request.
//!
//! Owns: keyed digests as names, the byte bound, lifetimes, denials, the coalescing of misses, and
//! the gate that every hit passes. Does not own: what a fact is (it is generic), or who verifies.
//! Above all it caches only facts, no rule results: rules are evaluated on every hit.
//!
//! Flow: `CacheScope::key → DecisionCache::peek → Fact | Denied`, else
//! `lookup → Pending(Flight) | Miss(Ticket)`, and `Ticket::fill | deny | fail` after the
//! authoritative answer.
//!
//! # Invalidation: the generation and the entry basis
//!
//! A [`Generation`] is a counter that only grows. [`Generation::advance`] voids, in O(1), every
//! fact of every cache that holds it. Exactly three places read it, and they are the whole
//! protocol:
//!
//! 1. **Departure.** [`DecisionCache::lookup`] notes the current generation in the [`Ticket`]
//!    *before* the authoritative call can begin. A request that finds a flight of an older
//!    generation does not join it but takes a new ticket: an answer requested before the flush may
//!    predate the reason for the flush.
//! 2. **Fill.** [`Ticket::fill`] stores nothing and returns [`FlightVoided`] unless the generation
//!    is still the ticket's. The caller retries once or twice, then answers "unavailable". A fact
//!    is stored under the *ticket's* generation, so an advance between the comparison and the
//!    insertion voids it.
//! 3. **Hit.** `Slot::admissible` compares the fact's generation with the current one, in the same
//!    expression as its deadline and its expiry. Waiters of a flight compare it once more when they
//!    wake.
//!
//! A fact may also have an [`EntryBasis`] that reports when it becomes invalid: watched names, or
//! the log of a followed authority. Then steps 2 and 3 check that too. A fact that an event
//! concerns is void. A fact of an authority without a live lease is kept but not used. A joined
//! flight needs no further comparison: its fill is voided, and its waiters look up again.
//!
//! A lookup whose answer has no such basis is closed to others before it is sent
//! ([`Ticket::close`]): a revocation may have been announced everywhere before they came.
//!
//! Denials need none of this: they are short-lived, and using one is never unsafe.
//!
//! A denial is applied like an event: it drops the fact stored under its key. Errors are never
//! stored: a [`Ticket::fail`] answers only the requests that already wait.

mod denials;
mod entry_basis;
mod facts;
mod key;
mod single_flight;
mod watch_versions;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use http_engine::clock::Now;
use parking_lot::RwLock;

use self::denials::Denials;
use self::facts::{Facts, Slot};
pub use self::key::{CacheKey, CacheScope, CacheSecret, KeyParts};
pub use crate::cache::entry_basis::{CacheEntryBasis, EntryBasis};
use crate::cache::single_flight::FlightEntry;
pub use crate::cache::single_flight::{Flight, FlightResult, FlightVoided, Ticket};
pub use crate::cache::watch_versions::{NameCell, NameKind, WatchBasis, WatchVersions};
use crate::config::CacheLimits;

/// Bytes per shard: few enough for a sweep of the hand under the lock to take microseconds.
const SHARD_BYTES: usize = 256 * 1024;
/// Maximum number of shards: more than any machine has cores that miss at once.
const MAX_SHARDS: usize = 64;

/// Counts flushes. Clones share the count; the module documentation lists its readers.
#[derive(Debug, Clone, Default)]
pub struct Generation(Arc<AtomicU64>);

impl Generation {
    /// The generation that a fact must carry to be used now.
    pub fn current(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Voids every stored fact and every fill that has begun, at once.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Bytes of a value: its own and those behind its pointers.
pub trait Weigh {
    /// Approximate bytes; must not change while the value is shared, or must be an upper bound.
    fn weight(&self) -> usize;
}

/// How long a fact may be used, besides the cache's own time to live.
#[derive(Debug, Clone)]
pub struct Lifetime {
    /// The credential expires when the wall clock reaches this time.
    pub expires: Timestamp,
    /// Until when the proof is valid, for example because of the age of a key set.
    pub until: Option<Instant>,
    /// What may invalidate the fact at any time.
    pub basis: Option<EntryBasis>,
}

/// A cached result.
pub enum KnownFacts<T, D> {
    /// A fact that may be used now.
    Fact(Arc<T>),
    /// The credential was denied a short time ago.
    Denied(D),
}

/// The result of a lookup, with what the caller must do without a cached result.
pub enum CacheLookup<T, D> {
    /// A fact that may be used now.
    Hit(Arc<T>),
    /// The credential was denied a short time ago.
    Denied(D),
    /// Another request is already verifying; wait for its flight.
    Pending(Flight<T, D>),
    /// Not cached: the holder of the ticket must verify.
    Miss(Ticket<T, D>),
}

impl<T, D> From<KnownFacts<T, D>> for CacheLookup<T, D> {
    fn from(known: KnownFacts<T, D>) -> Self {
        match known {
            KnownFacts::Fact(fact) => Self::Hit(fact),
            KnownFacts::Denied(why) => Self::Denied(why),
        }
    }
}

/// Cache usage, for metrics. The shards are not read at the same instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Facts stored, including unusable ones that are not yet swept.
    pub facts: usize,
    /// Bytes charged for the facts; never above the configured bound.
    pub bytes: usize,
    /// Denials stored.
    pub denials: usize,
    /// Misses being answered now.
    pub flights: usize,
    /// Usable facts evicted by the byte bound since the start.
    pub evicted: u64,
    /// Flushes since the process started.
    pub generation: u64,
}

/// The cache, shared by all workers. Clones are handles on the same store.
///
/// `T` is a fact, `D` the reason of a denial (kept small: the count of denials is bounded, not
/// their bytes).
pub struct DecisionCache<T, D> {
    shared: Arc<CacheState<T, D>>,
}

impl<T, D> Clone for DecisionCache<T, D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

struct CacheState<T, D> {
    shards: Box<[Shard<T, D>]>,
    generation: Generation,
    ttl: Duration,
    deny_ttl: Duration,
}

/// Two cache lines apart (the prefetcher pairs them), so that neighbours' locks do not disturb each
/// other.
#[repr(align(128))]
struct Shard<T, D>(RwLock<FactStore<T, D>>);

struct FactStore<T, D> {
    facts: Facts<T>,
    denials: Denials<D>,
    flights: BTreeMap<CacheKey, FlightEntry<T, D>>,
    last_flight_id: u64,
}

impl<T: Weigh, D: Clone> DecisionCache<T, D> {
    /// Creates an empty cache. `limits.bytes` is split evenly over the shards, so one fact may
    /// weigh at most a share (the whole bound when it is small, 1 MiB at the default). The count of
    /// denials is rounded up to a multiple of the number of shards.
    pub fn new(limits: &CacheLimits, generation: Generation) -> Self {
        let shard_count = (limits.bytes / SHARD_BYTES).clamp(1, MAX_SHARDS);
        let count = 1 << shard_count.ilog2();
        let denials = limits.deny_entries.div_ceil(count).min(u32::MAX as usize - 1);
        let shards = (0..count)
            .map(|_| {
                Shard(RwLock::new(FactStore {
                    facts: Facts::new(limits.bytes / count),
                    denials: Denials::new(denials),
                    flights: BTreeMap::new(),
                    last_flight_id: 0,
                }))
            })
            .collect();
        Self {
            shared: Arc::new(CacheState { shards, generation, ttl: limits.ttl, deny_ttl: limits.deny_ttl }),
        }
    }

    /// The cached result for a key; starts nothing on a miss: the hot path. Takes one read lock and
    /// allocates nothing.
    pub fn peek(&self, key: CacheKey, now: Now) -> Option<KnownFacts<T, D>> {
        self.shared.shard(key).0.read().cached(key, now, &self.shared.generation)
    }

    /// Until when the fact under `key` may be used, and when its credential expires, if there is a
    /// usable fact.
    pub fn valid_until(&self, key: CacheKey, now: Now) -> Option<(Instant, Timestamp)> {
        self.shared.shard(key).0.read().facts.valid_until(key, now, self.shared.generation.current())
    }

    /// The cached result, or a ticket to verify, or a flight to wait for.
    pub fn lookup(&self, key: CacheKey, now: Now) -> CacheLookup<T, D> {
        match self.peek(key, now) {
            Some(known) => known.into(),
            None => self.join_or_start(key, now),
        }
    }

    /// Voids every fact and every fill that has begun, by one addition. All caches that share the
    /// generation are flushed.
    pub fn flush(&self) {
        self.shared.generation.advance();
    }

    /// The counter that [`DecisionCache::flush`] advances.
    pub fn generation(&self) -> &Generation {
        &self.shared.generation
    }

    /// Sums over all shards, each read under its lock in turn.
    pub fn usage(&self) -> Usage {
        let start = Usage { generation: self.shared.generation.current(), ..Usage::default() };
        self.shared.shards.iter().fold(start, |sum, shard| {
            let store = shard.0.read();
            Usage {
                facts: sum.facts + store.facts.len(),
                bytes: sum.bytes + store.facts.bytes(),
                denials: sum.denials + store.denials.len(),
                flights: sum.flights + store.flights.len(),
                evicted: sum.evicted + store.facts.evicted(),
                generation: sum.generation,
            }
        })
    }

    /// The basis of some fact in use, if it is a followed authority; `random` selects which.
    pub fn any_entry_basis(&self, random: u64) -> Option<Arc<CacheEntryBasis>> {
        let shards = &self.shared.shards;
        // The low bits select the shard, the rest a slot in it.
        let (random, count) = (usize::try_from(random).unwrap_or(usize::MAX), shards.len());
        shards[random % count].0.read().facts.any_entry_basis(random / count)
    }

    /// The slow half of a lookup: join a flight or start one.
    fn join_or_start(&self, key: CacheKey, now: Now) -> CacheLookup<T, D> {
        let mut store = self.shared.shard(key).0.write();
        // Another worker may have answered between the two locks.
        if let Some(known) = store.cached(key, now, &self.shared.generation) {
            return known.into();
        }
        store.last_flight_id += 1;
        let id = store.last_flight_id;
        let generation = self.shared.generation.current();
        if let Some(flying) = store.flights.get(&key)
            && flying.generation() == generation
        {
            return CacheLookup::Pending(flying.join());
        }
        let (departure, answer) = single_flight::start_flight(id, generation, self.shared.generation.clone());
        store.flights.insert(key, departure);
        CacheLookup::Miss(Ticket::new(self.shared.clone(), key, id, generation, answer))
    }
}

impl<T, D> CacheState<T, D> {
    fn shard(&self, key: CacheKey) -> &Shard<T, D> {
        &self.shards[key.shard(self.shards.len() - 1)]
    }

    /// Deadline of a fact: its time to live is shortened by up to a tenth, so that facts stored in
    /// one burst are not verified again in one burst.
    fn deadline(&self, key: CacheKey, now: Now, until: Option<Instant>) -> Instant {
        let cut = self.ttl.as_nanos() * u128::from(key.jitter()) / (10 * 65_536);
        let cut = Duration::from_nanos(u64::try_from(cut).unwrap_or(u64::MAX));
        let deadline = now.monotonic + self.ttl.saturating_sub(cut);
        until.map_or(deadline, |until| until.min(deadline))
    }
}

impl<T, D: Clone> FactStore<T, D> {
    /// The cached result: the reader's half of a lookup, under either lock.
    fn cached(&self, key: CacheKey, now: Now, generation: &Generation) -> Option<KnownFacts<T, D>> {
        if let Some(fact) = self.facts.get(key, now, generation.current()) {
            return Some(KnownFacts::Fact(fact));
        }
        self.denials.get(key, now).map(KnownFacts::Denied)
    }
}

impl<T, D> FactStore<T, D> {
    /// Removes a flight from the table, if it is still the current one for its key.
    fn remove_flight(&mut self, key: CacheKey, id: u64) {
        if let Entry::Occupied(flying) = self.flights.entry(key)
            && flying.get().id() == id
        {
            flying.remove();
        }
    }
}

impl<T: Weigh, D: Clone> CacheState<T, D> {
    /// The fill's half of the invalidation protocol; see the module documentation.
    fn store(
        &self,
        ticket: (CacheKey, u64, u64),
        value: &Arc<T>,
        life: Lifetime,
        now: Now,
    ) -> Result<(), FlightVoided> {
        let (key, id, generation) = ticket;
        let mut store = self.shard(key).0.write();
        store.remove_flight(key, id);
        if self.generation.current() != generation || life.basis.as_ref().is_some_and(EntryBasis::is_void) {
            return Err(FlightVoided);
        }
        let slot = Slot {
            key,
            value: value.clone(),
            expires: life.expires,
            deadline: self.deadline(key, now, life.until),
            generation,
            basis: life.basis,
            weight: value.weight() + facts::overhead::<T>(),
            used: false.into(),
        };
        store.denials.remove(key);
        store.facts.insert(slot, now, generation);
        Ok(())
    }

    fn refuse(&self, key: CacheKey, id: u64, why: D, now: Now) {
        let deadline = now.monotonic + self.deny_ttl;
        let mut store = self.shard(key).0.write();
        store.remove_flight(key, id);
        store.facts.remove(key);
        store.denials.insert(key, why, deadline);
    }
}

impl<T, D> CacheState<T, D> {
    fn abandon(&self, key: CacheKey, id: u64) {
        self.shard(key).0.write().remove_flight(key, id);
    }
}
