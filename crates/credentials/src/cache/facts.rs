//! The stored facts of one shard: bounded by weight, evicted by CLOCK.
//!
//! CLOCK (second chance) because a hit then only sets a bit, under a read lock: no list to relink. A fact
//! that was never hit goes at the hand's first pass, so a flood of one-time tokens passes through without
//! pushing out those in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use auth::time::Timestamp;
use coherence::view::EntryState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use http_engine::clock::Now;

use super::key::CacheKey;
use crate::cache::entry_basis::{CacheEntryBasis, EntryBasis};

/// Slots that are looked through for one to be audited.
const NEAR: usize = 64;

/// A fact and what bounds its use.
pub(super) struct Slot<T> {
    pub key: CacheKey,
    pub value: Arc<T>,
    /// The credential's own end.
    pub expires: Timestamp,
    /// End of the time a fact may be used without verifying again.
    pub deadline: Instant,
    /// The generation current when the fill began, not when it ended.
    pub generation: u64,
    /// What may end it before.
    pub hold: Option<EntryBasis>,
    /// Bytes charged.
    pub weight: usize,
    /// Hit since the hand last passed.
    pub used: AtomicBool,
}

impl<T> Slot<T> {
    /// THE gate: every fact that leaves the cache passes here, on every hit.
    fn admissible(&self, now: Now, generation: u64) -> bool {
        self.is_current(now, generation)
            && self.hold.as_ref().is_none_or(|hold| hold.standing() == EntryState::Good)
    }

    /// Whether it may be admissible now or later: what only lacks a lease is good again when there is one.
    fn is_alive(&self, now: Now, generation: u64) -> bool {
        self.is_current(now, generation) && !self.hold.as_ref().is_some_and(EntryBasis::is_void)
    }

    fn is_current(&self, now: Now, generation: u64) -> bool {
        self.generation == generation && now.monotonic < self.deadline && now.wall < self.expires
    }
}

/// Bytes an entry costs beside its value: its slot and index entry, both with the slack of a doubling table.
pub(super) const fn overhead<T>() -> usize {
    2 * size_of::<Option<Slot<T>>>() + 2 * (size_of::<u32>() + 1)
}

pub(super) struct Facts<T> {
    index: HashTable<u32>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<u32>,
    hand: usize,
    broom: usize,
    bytes: usize,
    capacity: usize,
    evicted: u64,
}

impl<T> Facts<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            broom: 0,
            bytes: 0,
            capacity,
            evicted: 0,
        }
    }

    /// A hit, or nothing: absent, expired and of another generation are the same to a reader.
    pub(super) fn get(&self, key: CacheKey, now: Now, generation: u64) -> Option<Arc<T>> {
        let at = *self.index.find(key.hash(), |&at| self.key_at(at) == Some(key))?;
        let slot = self.slots.get(at as usize)?.as_ref()?;
        if !slot.admissible(now, generation) {
            return None;
        }
        // Written only when clear: hot entries stay shared between the cores' caches.
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(slot.value.clone())
    }

    /// Until when the fact may be used that a reader would get.
    pub(super) fn until(&self, key: CacheKey, now: Now, generation: u64) -> Option<(Instant, Timestamp)> {
        let at = *self.index.find(key.hash(), |&at| self.key_at(at) == Some(key))?;
        let slot = self.slots.get(at as usize)?.as_ref()?;
        slot.admissible(now, generation).then_some((slot.deadline, slot.expires))
    }

    /// Stores a fact in place of an older one with its key. Returns false when it is heavier than the whole
    /// shard may be: then nothing is stored, and the older one is gone too.
    pub(super) fn insert(&mut self, slot: Slot<T>, now: Now, generation: u64) -> bool {
        self.remove(slot.key);
        self.sweep(now, generation);
        if slot.weight > self.capacity {
            return false;
        }
        while self.bytes + slot.weight > self.capacity {
            self.evict_one(now, generation);
        }
        let (key, weight) = (slot.key, slot.weight);
        let at = if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(slot);
            at
        } else {
            // 2^32 slots of more than 64 bytes each are beyond any capacity.
            let Ok(at) = u32::try_from(self.slots.len()) else { return false };
            self.slots.push(Some(slot));
            at
        };
        let slots = &self.slots;
        self.index
            .insert_unique(key.hash(), at, |&at| slots[at as usize].as_ref().map_or(0, |s| s.key.hash()));
        self.bytes += weight;
        true
    }

    /// Forgets a fact.
    pub(super) fn remove(&mut self, key: CacheKey) {
        let slots = &self.slots;
        let same = |&at: &u32| slots[at as usize].as_ref().is_some_and(|s| s.key == key);
        let rehash = |&at: &u32| slots[at as usize].as_ref().map_or(0, |s| s.key.hash());
        if let Entry::Occupied(found) = self.index.entry(key.hash(), same, rehash) {
            let (at, _) = found.remove();
            self.vacate(at);
        }
    }

    /// A fact in use that rests on an authority that is followed: the first from some place on, if there is one near.
    pub(super) fn any_held(&self, random: usize) -> Option<Arc<CacheEntryBasis>> {
        let from = random % self.slots.len().max(1);
        self.slots.iter().skip(from).take(NEAR).flatten().find_map(|slot| match &slot.hold {
            Some(EntryBasis::Followed(held)) if slot.used.load(Ordering::Relaxed) => Some(held.clone()),
            _ => None,
        })
    }

    /// Entries stored, admissible or not.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Bytes charged.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entries pushed out by the byte bound while they could still have been used.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn key_at(&self, at: u32) -> Option<CacheKey> {
        self.slots.get(at as usize)?.as_ref().map(|s| s.key)
    }

    /// Frees a slot that the index no longer names.
    fn vacate(&mut self, at: u32) {
        if let Some(slot) = self.slots[at as usize].take() {
            self.bytes -= slot.weight;
            self.free.push(at);
        }
    }

    /// Each fill looks at two slots and drops what can never be used again, so that garbage stays
    /// proportional to what is stored and a flush stays O(1).
    fn sweep(&mut self, now: Now, generation: u64) {
        for _ in 0..2.min(self.slots.len()) {
            self.broom = (self.broom + 1) % self.slots.len();
            let dead = self.slots[self.broom].as_ref().filter(|slot| !slot.is_alive(now, generation));
            if let Some(key) = dead.map(|slot| slot.key) {
                self.remove(key);
            }
        }
    }

    /// Moves the hand to a victim and drops it. Only called while something is stored; ends within two
    /// rounds because the first clears every bit it passes.
    fn evict_one(&mut self, now: Now, generation: u64) {
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[self.hand] else { continue };
            let alive = slot.is_alive(now, generation);
            if alive && std::mem::take(slot.used.get_mut()) {
                continue;
            }
            let key = slot.key;
            self.evicted += u64::from(alive);
            return self.remove(key);
        }
    }
}
