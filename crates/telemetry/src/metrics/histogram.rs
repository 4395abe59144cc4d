//! Histograms of durations, with bounds fixed at compile time.
//!
//! Owns: the bounds, the computation of a bucket's index, and writing a sample. Bounds range from
//! 100 ns to 100 s, six per decade (1, 1.5, 2.5, 3.5, 5, 7.5). So common objectives (1 ms, 250 ms,
//! 5 s) are bounds, and no bucket is wider than two thirds of its lower bound.
//! Does not own: the buckets ([`super::buckets`]).

use super::buckets::{Bounds, BucketTotal, Buckets};
use super::encode::Family;

/// Steps within a decade, in hundredths of the decade's first bound.
const STEPS: [u64; 6] = [100, 150, 250, 350, 500, 750];
/// Number of decades: from 100 ns up to, but not including, 100 s.
const DECADES: usize = 9;
/// Number of finite bounds: the steps of each decade, and 100 s.
pub(super) const BOUNDS: usize = STEPS.len() * DECADES + 1;
/// Number of buckets: one per bound, and one for larger values.
const BUCKETS: usize = BOUNDS + 1;

/// Upper bounds in nanoseconds, inclusive, ascending. Three unreachable bounds follow, so that the
/// index computation needs no range check.
const BOUNDS_NANOS: [u64; BOUNDS + 3] = {
    let mut bounds = [u64::MAX; BOUNDS + 3];
    let mut scale = 1;
    let mut i = 0;
    while i < BOUNDS {
        bounds[i] = STEPS[i % STEPS.len()] * scale;
        i += 1;
        if i.is_multiple_of(STEPS.len()) {
            scale *= 10;
        }
    }
    bounds
};

/// For each power of two, the index of the first bound that is at least as large.
#[expect(clippy::cast_possible_truncation, reason = "BOUNDS is 55")]
const FIRST_BOUND: [u8; 64] = {
    let mut first = [0; 64];
    let mut e = 0;
    while e < 64 {
        let mut i = 0;
        while i < BOUNDS && BOUNDS_NANOS[i] < 1 << e {
            i += 1;
        }
        first[e] = i as u8;
        e += 1;
    }
    first
};

/// The bucket of a duration: the first whose bound is at least as large.
///
/// The highest set bit gives the first bound of the octave. At most three bounds lie within a
/// factor of two, so three comparisons complete the search without a branch.
#[inline]
pub(super) fn bucket_index(nanos: u64) -> usize {
    let first = FIRST_BOUND[63 - (nanos | 1).leading_zeros() as usize] as usize;
    first
        + usize::from(nanos > BOUNDS_NANOS[first])
        + usize::from(nanos > BOUNDS_NANOS[first + 1])
        + usize::from(nanos > BOUNDS_NANOS[first + 2])
}

/// The upper bound of bucket `i` in seconds.
pub(super) fn bound_seconds(i: usize) -> f64 {
    BOUNDS_NANOS[i] as f64 / 1e9
}

/// Bounds at six steps of each decade.
#[derive(Debug, Clone)]
pub(super) struct DecadeBounds;

impl Bounds for DecadeBounds {
    #[inline]
    fn index(nanos: u64) -> usize {
        bucket_index(nanos)
    }
}

/// A histogram of one worker.
pub(super) type Histogram = Buckets<DecadeBounds, BUCKETS>;
/// The sum of several workers' histograms.
pub(super) type Total = BucketTotal<DecadeBounds, BUCKETS>;

/// Index of the first exposed bound of request durations (10 µs): no request is faster.
pub(super) const FIRST_REQUEST_BOUND: usize = 12;

impl Total {
    /// Writes a sample of the family, starting at bound `first`.
    pub(super) fn write(&self, family: &mut Family<'_>, label: (&str, &str), first: usize) {
        let buckets = self.cumulative().take(BOUNDS).enumerate().skip(first);
        let buckets = buckets.map(|(i, below)| (bound_seconds(i), below));
        family.histogram(&[label], buckets, self.count(), self.sum_seconds());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow_index(nanos: u64) -> usize {
        BOUNDS_NANOS[..BOUNDS].iter().position(|bound| nanos <= *bound).unwrap_or(BOUNDS)
    }

    #[test]
    fn bounds_ascend_and_hold_the_usual_objectives() {
        assert!(BOUNDS_NANOS[..BOUNDS].is_sorted_by(|a, b| a < b));
        assert_eq!((BOUNDS_NANOS[0], BOUNDS_NANOS[BOUNDS - 1]), (100, 100_000_000_000));
        for millis in [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000] {
            assert!(BOUNDS_NANOS.contains(&(millis * 1_000_000)), "{millis} ms");
        }
    }

    #[test]
    fn every_bound_and_its_neighbours() {
        for bound in BOUNDS_NANOS[..BOUNDS].iter().copied() {
            for nanos in [bound - 1, bound, bound + 1] {
                assert_eq!(bucket_index(nanos), slow_index(nanos), "{nanos}");
            }
        }
        assert_eq!((bucket_index(0), bucket_index(u64::MAX)), (0, BOUNDS));
    }

    proptest! {
        #[test]
        fn quick_index_is_the_slow_one(shift in 0u32..64, bits: u64) {
            let nanos = bits >> shift;
            prop_assert_eq!(bucket_index(nanos), slow_index(nanos));
        }
    }

    #[test]
    fn totals_add_up() {
        let (a, b) = (Histogram::default(), Histogram::default());
        a.record(100);
        a.record(101);
        b.record(200_000_000_000);
        let total = Total::sum_of([&a, &b].into_iter());
        assert_eq!(total.count(), 3);
        assert_eq!(total.cumulative().take(3).collect::<Vec<_>>(), [1, 2, 2]);
        assert_eq!(total.cumulative().last(), Some(3));
        assert!((total.sum_seconds() - 200.000_000_201).abs() < 1e-9);
    }
}
