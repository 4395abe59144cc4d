//! Cached facts of one shard: bounded by weight, evicted by CLOCK.
//!
//! CLOCK (second chance) is used because a hit only sets a bit, under a read lock: no list to
//! relink. A fact without a hit is evicted at the hand's first pass. So a flood of one-time tokens
//! does not evict the facts in use.

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

/// Maximum slots to search for an entry to audit.
const AUDIT_SEARCH: usize = 64;

/// A fact with the bounds of its use.
pub(super) struct Slot<T> {
    pub key: CacheKey,
    pub value: Arc<T>,
    /// When the credential expires.
    pub expires: Timestamp,
    /// Until when the fact may be used without verifying again.
    pub deadline: Instant,
    /// The generation when the fill began, not when it ended.
    pub generation: u64,
    /// What may invalidate the fact earlier.
    pub basis: Option<EntryBasis>,
    /// Bytes charged for the entry.
    pub weight: usize,
    /// Whether the fact was hit since the hand last passed.
    pub used: AtomicBool,
}

impl<T> Slot<T> {
    /// THE gate: every fact that leaves the cache passes this check, on every hit.
    fn admissible(&self, now: Now, generation: u64) -> bool {
        self.is_current(now, generation)
            && self.basis.as_ref().is_none_or(|hold| hold.state() == EntryState::Valid)
    }

    /// Whether it may be admissible now or later: a fact that only lacks a lease is valid again
    /// with the next lease.
    fn is_alive(&self, now: Now, generation: u64) -> bool {
        self.is_current(now, generation) && !self.basis.as_ref().is_some_and(EntryBasis::is_void)
    }

    fn is_current(&self, now: Now, generation: u64) -> bool {
        self.generation == generation && now.monotonic < self.deadline && now.wall < self.expires
    }
}

/// Bytes of an entry besides its value: its slot and index entry, both with the slack of a doubling
/// table.
pub(super) const fn overhead<T>() -> usize {
    2 * size_of::<Option<Slot<T>>>() + 2 * (size_of::<u32>() + 1)
}

pub(super) struct Facts<T> {
    index: HashTable<u32>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<u32>,
    clock_hand: usize,
    sweep_position: usize,
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
            clock_hand: 0,
            sweep_position: 0,
            bytes: 0,
            capacity,
            evicted: 0,
        }
    }

    /// Returns an admissible fact: absent, expired and of another generation make no difference to
    /// a reader.
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

    /// Until when an admissible fact may be used, and when its credential expires.
    pub(super) fn valid_until(
        &self,
        key: CacheKey,
        now: Now,
        generation: u64,
    ) -> Option<(Instant, Timestamp)> {
        let at = *self.index.find(key.hash(), |&at| self.key_at(at) == Some(key))?;
        let slot = self.slots.get(at as usize)?.as_ref()?;
        slot.admissible(now, generation).then_some((slot.deadline, slot.expires))
    }

    /// Stores a fact in place of an older one with its key. Returns false when it is heavier than
    /// the whole shard: then nothing is stored, and the older one is removed too.
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

    /// Removes a fact.
    pub(super) fn remove(&mut self, key: CacheKey) {
        let slots = &self.slots;
        let same = |&at: &u32| slots[at as usize].as_ref().is_some_and(|s| s.key == key);
        let rehash = |&at: &u32| slots[at as usize].as_ref().map_or(0, |s| s.key.hash());
        if let Entry::Occupied(found) = self.index.entry(key.hash(), same, rehash) {
            let (at, _) = found.remove();
            self.vacate(at);
        }
    }

    /// The basis of a fact in use that depends on a followed authority: the first within
    /// [`AUDIT_SEARCH`] slots from a random one.
    pub(super) fn any_entry_basis(&self, random: usize) -> Option<Arc<CacheEntryBasis>> {
        let from = random % self.slots.len().max(1);
        self.slots.iter().skip(from).take(AUDIT_SEARCH).flatten().find_map(|slot| match &slot.basis {
            Some(EntryBasis::Followed(held)) if slot.used.load(Ordering::Relaxed) => Some(held.clone()),
            _ => None,
        })
    }

    /// Entries stored, admissible or not.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Bytes charged for all entries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entries evicted by the byte bound while they could still have been used.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn key_at(&self, at: u32) -> Option<CacheKey> {
        self.slots.get(at as usize)?.as_ref().map(|s| s.key)
    }

    /// Frees a slot that the index no longer references.
    fn vacate(&mut self, at: u32) {
        if let Some(slot) = self.slots[at as usize].take() {
            self.bytes -= slot.weight;
            self.free.push(at);
        }
    }

    /// Checks two slots at each fill and drops what can never be used again. So the number of dead
    /// entries stays proportional to the live ones, and a flush stays O(1).
    fn sweep(&mut self, now: Now, generation: u64) {
        for _ in 0..2.min(self.slots.len()) {
            self.sweep_position = (self.sweep_position + 1) % self.slots.len();
            let dead =
                self.slots[self.sweep_position].as_ref().filter(|slot| !slot.is_alive(now, generation));
            if let Some(key) = dead.map(|slot| slot.key) {
                self.remove(key);
            }
        }
    }

    /// Moves the hand to a victim and drops it. Only called while something is stored; ends within
    /// two rounds because the first clears every bit it passes.
    fn evict_one(&mut self, now: Now, generation: u64) {
        loop {
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[self.clock_hand] else { continue };
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
