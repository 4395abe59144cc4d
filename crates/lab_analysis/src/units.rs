//! Units: converts between measured integers and reported numbers.
//!
//! All conversions are in one place, so that each rounding is decided once.

use std::time::Duration;

/// Nanoseconds of a duration; saturates after 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds of a number of seconds. A negative number or NaN gives 0; a number that is too large
/// saturates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, as documented")]
pub fn nanos_of_seconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// A number as a count, its fraction cut off. A negative number or NaN gives 0; a number that is
/// too large saturates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, as documented")]
pub fn truncated(value: f64) -> u64 {
    value as u64
}

/// A number as an index into memory, cut off and saturated like [`truncated`].
pub fn index(value: f64) -> usize {
    usize::try_from(truncated(value)).unwrap_or(usize::MAX)
}

/// Nanoseconds as microseconds, rounded to a tenth: the histograms keep three digits.
pub fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

/// Nanoseconds as seconds.
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Rounding error, as a share of the terms: a smaller difference counts as 0. No figure has more
/// than nine digits.
const ROUNDING: f64 = 1e-12;

/// `a − b`; 0 where the difference is within the rounding error of its terms.
pub(crate) fn difference(a: f64, b: f64) -> f64 {
    zero_if_rounding(a - b, a.abs() + b.abs())
}

/// What `parts` leave of `truncated`; 0 where the rest is within the rounding error of the terms.
pub(crate) fn remainder(whole: f64, parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    zero_if_rounding(whole - sum, whole.abs() + parts.iter().map(|part| part.abs()).sum::<f64>())
}

fn zero_if_rounding(value: f64, of: f64) -> f64 {
    if value.is_finite() && value.abs() <= ROUNDING * of { 0.0 } else { value }
}

/// A ratio rounded to four decimals; 0 when `truncated` is not above 0.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole * 1e4).round() / 1e4 } else { 0.0 }
}

/// A number of items in memory, as a `u64`.
pub fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_what_is_reported() {
        assert!((micros(1_234_567) - 1234.6).abs() < 1e-9);
        assert!((ratio(1.0, 3.0) - 0.3333).abs() < 1e-9);
        assert!(ratio(1.0, 0.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_difference_that_is_rounding_is_none() {
        assert_eq!(difference(0.1 + 0.2, 0.3).to_bits(), 0.0_f64.to_bits());
        assert_eq!(remainder(0.6, &[0.1, 0.2, 0.3]).to_bits(), 0.0_f64.to_bits());
        assert!(
            (difference(1e-9, 0.0) - 1e-9).abs() < 1e-20 && (difference(1.0, 1.000_001) + 1e-6).abs() < 1e-12
        );
        assert!(
            difference(f64::INFINITY, 1.0).is_infinite() && difference(f64::INFINITY, f64::INFINITY).is_nan()
        );
    }

    #[test]
    fn saturates_instead_of_wrapping() {
        assert_eq!(nanos_of_seconds(-1.0), 0);
        assert_eq!(nanos_of_seconds(f64::NAN), 0);
        assert_eq!(nanos_of_seconds(1e30), u64::MAX);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
        assert_eq!(nanos_of_seconds(1.5), 1_500_000_000);
        assert_eq!((truncated(2.9), truncated(-2.9), truncated(1e30)), (2, 0, u64::MAX));
        assert_eq!((index(2.9), index(f64::NAN)), (2, 0));
    }
}
