//! Counts with one writer.
//!
//! Owns: the cheapest counter a scrape can read while a worker writes. Does not own: who the one writer is;
//! [`super::Worker`] makes sure of that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A 64-bit count that one thread writes and any thread reads.
///
/// A plain load, add and store, each relaxed: about a third of a nanosecond, where an atomic add costs a
/// locked instruction. With a second writer counts would be lost (nothing worse); all writing methods are
/// therefore only reachable through a [`super::Worker`], which is neither `Sync` nor handed out twice.
#[derive(Debug, Default)]
pub(super) struct Local(AtomicU64);

impl Local {
    #[inline]
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[inline]
    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Things begun and ended on the same worker. Two counts that only grow, so that a scrape between the two
/// stores of an end and a begin sees at most one too many, never a wrapped difference.
#[derive(Debug, Default)]
pub(super) struct LocalGauge {
    begun: Local,
    ended: Local,
}

impl LocalGauge {
    #[inline]
    pub(super) fn begin(&self) {
        self.begun.add(1);
    }

    #[inline]
    pub(super) fn end(&self) {
        self.ended.add(1);
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.get()
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended.get()
    }

    /// What is under way. `ended` is read first: what ends in between is still counted, not subtracted early.
    pub(super) fn open(&self) -> u64 {
        let ended = self.ended.get();
        self.begun.get().saturating_sub(ended)
    }
}

/// One value per worker, each on cache lines of its own (128 bytes: adjacent lines are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shard<T>(pub(super) T);

/// `n` empty shards.
pub(super) fn shards<T: Default>(n: usize) -> Box<[Shard<T>]> {
    (0..n).map(|_| Shard::default()).collect()
}

/// Adds up what `read` finds in every shard.
pub(super) fn sum<T>(shards: &[Shard<T>], read: impl Fn(&T) -> u64) -> u64 {
    shards.iter().map(|shard| read(&shard.0)).fold(0, u64::wrapping_add)
}
