//! Timestamps, which are arguments: no function of this crate reads a clock.

use std::time::Duration;

/// Milliseconds since the Unix epoch, UTC, without leap seconds (RFC 7519 `NumericDate`, finer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The largest timestamp, for what never expires.
    pub const MAX: Self = Self(u64::MAX);

    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// From whole seconds since the Unix epoch; saturates.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// This instant plus `d`, saturating at [`Timestamp::MAX`].
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }

    /// This instant minus `d`, saturating at the epoch.
    #[must_use]
    pub fn minus(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to this instant; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::MAX.plus(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Timestamp::from_secs(1).minus(Duration::from_secs(2)), Timestamp::from_millis(0));
        assert_eq!(Timestamp::from_secs(1).since(Timestamp::from_secs(2)), Duration::ZERO);
        assert_eq!(Timestamp::from_secs(u64::MAX), Timestamp::MAX);
    }
}
