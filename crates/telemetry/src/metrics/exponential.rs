//! Exponential histograms of durations: the bounds of the buckets are powers of the square root of
//! two.
//!
//! Owns: the index of a bucket, and the few bounds that text formats show. Does not own: the buckets
//! ([`super::buckets`]), how a histogram is written ([`super::encode`]).
//!
//! A bucket is as narrow as those of [`super::histogram`]. The bounds are those of Prometheus' native
//! histograms of schema 1, so that a scraper that reads them gets every bucket in a few bytes. Text
//! has a line for each bucket, so it shows only powers of four, which are bounds as well.

use super::buckets::{Bounds, BucketTotal, Buckets};

/// Resolution as native histograms state it: a bucket's bound is the one before it times
/// 2^(2^-schema).
pub(super) const SCHEMA: i32 = 1;
/// Index of the bound at and below which durations are counted together: 2^-17 s, 7.6 µs.
pub(super) const FIRST: i32 = -34;
/// Index of the last bucket, which longer durations count in too. Its bound is 2^13 s, 2.3 h.
const LAST: i32 = 26;
/// Number of buckets.
pub(super) const BUCKETS: usize = (LAST - FIRST + 1) as usize;
/// Indices of the bounds in text: 2^-8 s (3.9 ms) to 2^2 s (4 s).
const TEXT_BOUNDS: [i32; 6] = [-16, -12, -8, -4, 0, 4];

/// Bits of the fraction of a 64-bit floating-point number.
const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
/// The fraction of the square root of two.
const SQRT_2: u64 = std::f64::consts::SQRT_2.to_bits() & FRACTION;

/// The bucket of a duration: the first whose bound is at least as large.
///
/// The exponent of the seconds gives the octave, and the fraction the half of it.
#[inline]
fn bucket_index(nanos: u64) -> usize {
    let bits = (nanos as f64 / 1e9).to_bits();
    let fraction = bits & FRACTION;
    // Of a number that is not negative, the bits above the fraction are the exponent.
    let octave = i32::try_from(bits >> FRACTION_BITS).unwrap_or(0) - (f64::MAX_EXP - 1);
    let index = 2 * octave + i32::from(fraction > 0) + i32::from(fraction > SQRT_2);
    usize::try_from(index.clamp(FIRST, LAST) - FIRST).unwrap_or(0)
}

/// The upper bound with an index, in seconds.
fn bound_seconds(index: i32) -> f64 {
    let octave = 2f64.powi(index.div_euclid(2));
    if index.rem_euclid(2) == 0 { octave } else { octave * std::f64::consts::SQRT_2 }
}

/// Bounds at powers of the square root of two.
#[derive(Debug, Clone)]
pub(super) struct ExponentialBounds;

impl Bounds for ExponentialBounds {
    #[inline]
    fn index(nanos: u64) -> usize {
        bucket_index(nanos)
    }
}

/// A histogram of one worker.
pub(super) type ExponentialHistogram = Buckets<ExponentialBounds, BUCKETS>;
/// The sum of several histograms. The first bucket has the durations up to the bound with the index
/// [`FIRST`], the one at `n` those up to the bound with the index `FIRST + n`.
pub(super) type ExponentialTotal = BucketTotal<ExponentialBounds, BUCKETS>;

impl ExponentialTotal {
    /// The bounds that text shows, in seconds, with the number of durations up to each.
    pub(super) fn text_buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut below = 0;
        let mut next = 0;
        TEXT_BOUNDS.into_iter().map(move |bound| {
            let end = usize::try_from(bound - FIRST + 1).unwrap_or(0);
            below += self.counts()[next..end].iter().sum::<u64>();
            next = end;
            (bound_seconds(bound), below)
        })
    }
}

/// Durations at and below this many seconds are counted together.
pub(super) fn zero_threshold() -> f64 {
    bound_seconds(FIRST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow_index(nanos: u64) -> usize {
        let seconds = nanos as f64 / 1e9;
        (FIRST..LAST).position(|index| seconds <= bound_seconds(index)).unwrap_or(BUCKETS - 1)
    }

    #[test]
    fn bounds_are_inclusive() {
        for (index, nanos) in [(0, 1_000_000_000), (2, 2_000_000_000), (-4, 250_000_000), (-16, 3_906_250)] {
            let at = usize::try_from(index - FIRST).unwrap();
            assert_eq!([nanos - 1, nanos, nanos + 1].map(bucket_index), [at, at, at + 1], "{nanos}");
        }
        assert_eq!(bucket_index(0), 0);
        assert_eq!(bucket_index(7_629), 0);
        assert_eq!(bucket_index(7_630), 1);
        assert_eq!(bucket_index(u64::MAX), BUCKETS - 1);
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
        let (a, b) = (ExponentialHistogram::default(), ExponentialHistogram::default());
        a.record(1_000_000);
        a.record(250_000_000);
        b.record(250_000_001);
        b.record(20_000_000_000);
        let mut total = ExponentialTotal::default();
        total.add(&a);
        total.add(&b);
        let text: Vec<_> = total.text_buckets().collect();
        let bounds = [0.003_906_25, 0.015_625, 0.062_5, 0.25, 1.0, 4.0];
        assert_eq!(text, bounds.into_iter().zip([1, 1, 1, 2, 3, 3]).collect::<Vec<_>>());
        assert_eq!(total.count(), 4);
        assert!((total.sum_seconds() - 20.501_000_001).abs() < 1e-9);
        assert_eq!(total.counts().iter().filter(|count| **count > 0).count(), 4);
    }
}
