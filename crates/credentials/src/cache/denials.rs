//! Cached denials of one shard: bounded by count, oldest out first.
//!
//! They are separate from the facts because any client can cause denials: a flood of them may only
//! evict other denials.

use std::time::Instant;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use http_engine::clock::Now;

use super::key::CacheKey;

struct Denial<D> {
    key: CacheKey,
    why: D,
    deadline: Instant,
}

pub(super) struct Denials<D> {
    index: HashTable<u32>,
    ring: Vec<Option<Denial<D>>>,
    next: usize,
    capacity: usize,
}

impl<D: Clone> Denials<D> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { index: HashTable::new(), ring: Vec::new(), next: 0, capacity }
    }

    /// Why the credential was denied, if the denial is still cached.
    pub(super) fn get(&self, key: CacheKey, now: Now) -> Option<D> {
        let at = *self.index.find(key.hash(), |&at| self.key_at(at) == Some(key))?;
        let denial = self.ring.get(at as usize)?.as_ref()?;
        (now.monotonic < denial.deadline).then(|| denial.why.clone())
    }

    pub(super) fn insert(&mut self, key: CacheKey, why: D, deadline: Instant) {
        self.remove(key);
        if self.capacity == 0 {
            return;
        }
        let denial = Some(Denial { key, why, deadline });
        let at = if self.ring.len() < self.capacity {
            self.ring.push(denial);
            self.ring.len() - 1
        } else {
            let at = self.next;
            self.next = (self.next + 1) % self.capacity;
            if let Some(oldest) = self.key_at(u32::try_from(at).unwrap_or(u32::MAX)) {
                self.remove(oldest);
            }
            self.ring[at] = denial;
            at
        };
        // The capacity is clamped below `u32::MAX` where the shard is created.
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let ring = &self.ring;
        self.index
            .insert_unique(key.hash(), at, |&at| ring[at as usize].as_ref().map_or(0, |d| d.key.hash()));
    }

    pub(super) fn remove(&mut self, key: CacheKey) {
        let ring = &self.ring;
        let same = |&at: &u32| ring[at as usize].as_ref().is_some_and(|d| d.key == key);
        let rehash = |&at: &u32| ring[at as usize].as_ref().map_or(0, |d| d.key.hash());
        if let Entry::Occupied(found) = self.index.entry(key.hash(), same, rehash) {
            let (at, _) = found.remove();
            self.ring[at as usize] = None;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    fn key_at(&self, at: u32) -> Option<CacheKey> {
        self.ring.get(at as usize)?.as_ref().map(|d| d.key)
    }
}
