//! Conversions between the integers that are measured and the numbers that are reported, in one place so that each
//! rounding is decided once.

use std::time::Duration;

/// Nanoseconds of a duration; saturates after 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds of a number of seconds; negative and not-a-number count as 0, too large saturates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, as documented")]
pub(crate) fn nanos_of_seconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// A number as a count: its fraction is cut off; negative and not-a-number count as 0, too large saturates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, as documented")]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

/// A number as a place among things held in memory, cut and saturated as [`whole`].
pub(crate) fn place(value: f64) -> usize {
    usize::try_from(whole(value)).unwrap_or(usize::MAX)
}

/// Nanoseconds as microseconds, kept to a tenth: the histograms hold three digits.
pub(crate) fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A ratio kept to four digits after the point; 0 when there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole * 1e4).round() / 1e4 } else { 0.0 }
}

/// A count of things held in memory as a `u64`.
pub(crate) fn count(items: usize) -> u64 {
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
    fn saturates_instead_of_wrapping() {
        assert_eq!(nanos_of_seconds(-1.0), 0);
        assert_eq!(nanos_of_seconds(f64::NAN), 0);
        assert_eq!(nanos_of_seconds(1e30), u64::MAX);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
        assert_eq!(nanos_of_seconds(1.5), 1_500_000_000);
        assert_eq!((whole(2.9), whole(-2.9), whole(1e30)), (2, 0, u64::MAX));
        assert_eq!((place(2.9), place(f64::NAN)), (2, 0));
    }
}
