//! Buckets of durations: what histograms share, whatever their bounds are.
//!
//! Owns: the buckets per worker, their sum, and adding up those of several workers. Does not own: the
//! bounds ([`super::histogram`], [`super::exponential`]).

use std::marker::PhantomData;

use super::local::LocalCounter;

/// Upper bounds of buckets.
pub(super) trait Bounds {
    /// The bucket of a duration: the first whose bound is at least as large.
    fn index(nanos: u64) -> usize;
}

/// Buckets of one worker, and the sum of the recorded values.
#[derive(Debug)]
pub(super) struct Buckets<B, const N: usize> {
    counts: [LocalCounter; N],
    sum: LocalCounter,
    bounds: PhantomData<B>,
}

impl<B, const N: usize> Default for Buckets<B, N> {
    fn default() -> Self {
        let counts = std::array::from_fn(|_| LocalCounter::default());
        Self { counts, sum: LocalCounter::default(), bounds: PhantomData }
    }
}

impl<B: Bounds, const N: usize> Buckets<B, N> {
    #[inline]
    pub(super) fn record(&self, nanos: u64) {
        self.counts[B::index(nanos)].add(1);
        self.sum.add(nanos);
    }
}

/// The sum of several workers' buckets.
#[derive(Debug, Clone)]
pub(super) struct BucketTotal<B, const N: usize> {
    counts: [u64; N],
    sum_nanos: u64,
    bounds: PhantomData<B>,
}

impl<B, const N: usize> Default for BucketTotal<B, N> {
    fn default() -> Self {
        Self { counts: [0; N], sum_nanos: 0, bounds: PhantomData }
    }
}

impl<B, const N: usize> BucketTotal<B, N> {
    pub(super) fn add(&mut self, buckets: &Buckets<B, N>) {
        for (sum, count) in self.counts.iter_mut().zip(&buckets.counts) {
            *sum += count.get();
        }
        self.sum_nanos = self.sum_nanos.wrapping_add(buckets.sum.get());
    }

    pub(super) fn sum_of<'a>(all: impl Iterator<Item = &'a Buckets<B, N>>) -> Self
    where
        B: 'a,
    {
        let mut total = Self::default();
        all.for_each(|buckets| total.add(buckets));
        total
    }

    /// Number of durations in each bucket.
    pub(super) fn counts(&self) -> &[u64; N] {
        &self.counts
    }

    /// Number of durations up to the bound of each bucket; the last element counts all.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }

    /// Total number of durations. Always equal to the last cumulative count.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum_nanos as f64 / 1e9
    }
}
