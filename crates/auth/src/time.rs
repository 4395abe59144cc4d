//! Timestamps, which are arguments: no function of this crate reads a clock.

use std::fmt;
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

    /// Year, month (1 to 12) and day of the month in UTC, in the Gregorian calendar.
    pub const fn date(self) -> (u64, u64, u64) {
        // Counted from 0000-03-01: the leap day is the last day of its year, five months always have
        // 153 days, and an era of 400 years has 146 097.
        let days = self.0 / (1000 * 86_400) + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        (era * 400 + year_of_era + next, month, day)
    }
}

/// RFC 3339 in UTC, to the second: `2027-01-15 08:00:00Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.as_secs();
        let (year, month, day) = self.date();
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
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

    #[test]
    fn timestamps_are_shown_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_800_000_000, "2027-01-15 08:00:00Z"),
            (4_102_444_799, "2099-12-31 23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_secs(seconds).to_string(), text);
        }
    }

    #[test]
    fn dates_follow_each_other() {
        let mut days_in_year = 0;
        let mut last = (1969, 12, 31);
        for day in 0..366 * 140 {
            let date = Timestamp::from_secs(day * 86_400).date();
            let (year, month, of_month) = date;
            days_in_year += 1;
            let next_month = month == last.1 + 1 || (month == 1 && last.1 == 12 && year == last.0 + 1);
            assert!(
                date == (last.0, last.1, last.2 + 1) || (of_month == 1 && next_month),
                "{last:?} {date:?}"
            );
            if year != last.0 {
                let leap = last.0 % 4 == 0 && (last.0 % 100 != 0 || last.0 % 400 == 0);
                assert!(last.0 == 1969 || days_in_year == if leap { 366 } else { 365 }, "{last:?}");
                days_in_year = 0;
            }
            last = date;
        }
    }
}
