//! Figures of a connection, for metrics.
//!
//! Owns: counts and durations that are only ever added to. Does not own: how they are shown.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of durations.
const BOUNDS: [Duration; 13] = [
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(10),
    Duration::from_mins(1),
];

/// Durations by upper bound.
#[derive(Default)]
pub(super) struct DurationCounts {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    nanos: AtomicU64,
}

impl DurationCounts {
    pub(super) fn record(&self, duration: Duration) {
        if let Some(at) = BOUNDS.iter().position(|bound| duration <= *bound) {
            self.buckets[at].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn totals(&self) -> DurationTotals {
        let mut below = 0;
        let buckets = BOUNDS.iter().zip(&self.buckets).map(|(bound, bucket)| {
            below += bucket.load(Relaxed);
            (*bound, below)
        });
        let buckets: Vec<_> = buckets.collect();
        // Read last, and never less than a bucket, although other threads record meanwhile.
        let count = self.count.load(Relaxed).max(below);
        DurationTotals { buckets, count, sum: Duration::from_nanos(self.nanos.load(Relaxed)) }
    }
}

/// Durations, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DurationTotals {
    /// Upper bounds, each with the number of durations up to it.
    pub buckets: Vec<(Duration, u64)>,
    /// Number of all durations.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let counts = DurationCounts::default();
        for millis in [1, 3, 40, 90_000] {
            counts.record(Duration::from_millis(millis));
        }
        let totals = counts.totals();
        let up_to = |millis| {
            let bound = Duration::from_millis(millis);
            totals.buckets.iter().find(|(known, _)| *known == bound).map(|(_, count)| *count)
        };
        assert_eq!((up_to(1), up_to(5), up_to(50), up_to(10_000)), (Some(1), Some(2), Some(3), Some(3)));
        assert_eq!((totals.count, totals.sum), (4, Duration::from_millis(90_044)));
    }
}
