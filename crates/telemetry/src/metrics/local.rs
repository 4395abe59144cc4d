//! Local counters: counters with a single writer.
//!
//! Owns: the cheapest counter that a scrape can read while a worker writes it. Does not own: the
//! guarantee of a single writer, which [`super::WorkerMetrics`] gives.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::WorkerMetrics;

/// A 64-bit counter that one thread writes and any thread reads.
///
/// An increment is a relaxed load, an add and a relaxed store, and takes about a third of a
/// nanosecond. An atomic add would need a locked instruction. A second writer would lose counts,
/// and nothing worse. So all writing methods require a [`super::WorkerMetrics`], which is not
/// `Sync` and exists once per shard.
#[derive(Debug, Default)]
pub(super) struct LocalCounter(AtomicU64);

impl LocalCounter {
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

/// Number of operations in progress, started and ended on the same worker. It consists of two
/// counters that only increase. So a scrape between two stores is off by at most one, and never
/// sees a negative difference.
#[derive(Debug, Default)]
pub(super) struct LocalGauge {
    begun: LocalCounter,
    ended: LocalCounter,
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

    pub(super) fn finished(&self) -> u64 {
        self.ended.get()
    }

    /// Number of operations in progress. Reads `ended` first: an operation that ends in between
    /// still counts as open.
    pub(super) fn open(&self) -> u64 {
        let ended = self.ended.get();
        self.begun.get().saturating_sub(ended)
    }
}

/// The value of one worker, on cache lines of its own (128 bytes, because adjacent lines are
/// fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shard<T>(pub(super) T);

/// `n` shards with default values.
pub(super) fn shards<T: Default>(n: usize) -> Box<[Shard<T>]> {
    (0..n).map(|_| Shard::default()).collect()
}

/// Sum of the values that `read` returns for each shard.
pub(super) fn sum<T>(shards: &[Shard<T>], read: impl Fn(&T) -> u64) -> u64 {
    shards.iter().map(|shard| read(&shard.0)).fold(0, u64::wrapping_add)
}

/// Shards that are created by the first write. What is never used costs nothing.
#[derive(Debug)]
pub(super) struct LazyShards<T>(OnceLock<Box<[Shard<T>]>>);

impl<T> Default for LazyShards<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T: Default> LazyShards<T> {
    /// The shard of a worker.
    #[inline]
    pub(super) fn of(&self, worker: &WorkerMetrics) -> &T {
        let all = self.0.get_or_init(|| shards(worker.metrics().workers()));
        &all[worker.index()].0
    }
}

impl<T> LazyShards<T> {
    /// All shards; none before the first write.
    pub(super) fn all(&self) -> &[Shard<T>] {
        self.0.get().map_or(&[], |all| all)
    }
}
