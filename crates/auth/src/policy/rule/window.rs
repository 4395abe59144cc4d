//! Time window of a rule: days of the week, and a part of the day.
//!
//! Owns: whether an instant is in the window, and when that changes next. Does not own: a clock.
//!
//! A window has a fixed offset from UTC and knows no daylight saving time: the same rule has the
//! same meaning on every machine, whatever time zone database it has.

use std::fmt;

use crate::policy::PolicyProblem;
use crate::time::Timestamp;

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;
/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;
/// The largest offset from UTC that is in use somewhere, in minutes.
const MAX_OFFSET: u16 = 14 * 60;

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weekday {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

impl Weekday {
    /// All days, from Monday.
    pub const ALL: [Self; 7] = [Self::Mon, Self::Tue, Self::Wed, Self::Thu, Self::Fri, Self::Sat, Self::Sun];

    /// The name in lower case, as the configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Tue => "tue",
            Self::Wed => "wed",
            Self::Thu => "thu",
            Self::Fri => "fri",
            Self::Sat => "sat",
            Self::Sun => "sun",
        }
    }
}

/// A time window as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowSpec {
    /// Days on which the window begins; empty: every day.
    pub days: Vec<Weekday>,
    /// First minute of the window, in minutes after midnight. `None`: midnight.
    pub from: Option<u16>,
    /// Minute in which the window has ended, in minutes after midnight, at most 1440. `None`: the
    /// end of the day. Smaller than `from`: the window ends on the next day.
    pub to: Option<u16>,
    /// Local time less UTC, in minutes.
    pub offset: i16,
}

/// A part of some days of the week, in local time with a fixed offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// One bit for each day on which the window begins; bit 0 is Monday.
    days: u8,
    /// Minutes after midnight, less than a day.
    from: u16,
    /// Minutes after midnight, at most a day, never equal to `from`.
    to: u16,
    /// Local time less UTC, in minutes.
    offset: i16,
}

impl TimeWindow {
    /// Checks a window.
    ///
    /// # Errors
    /// [`PolicyProblem`] when it contains no time or every time, or a value is out of range.
    pub fn build(spec: &WindowSpec) -> Result<Self, PolicyProblem> {
        let all = Weekday::ALL.iter().fold(0, |days, day| days | bit(*day as usize));
        let days = match &*spec.days {
            [] => all,
            days => days.iter().fold(0, |days, day| days | bit(*day as usize)),
        };
        let (from, to) = (spec.from.unwrap_or(0), spec.to.unwrap_or(DAY_MINUTES));
        if from >= DAY_MINUTES || to > DAY_MINUTES || spec.offset.unsigned_abs() > MAX_OFFSET {
            return Err(PolicyProblem::TimeOutOfRange);
        }
        // From 00:00 to 00:00 is the empty window too: midnight as an end is 24:00.
        if from == to || to == 0 && from == 0 {
            return Err(PolicyProblem::TimeEmpty);
        }
        if days == all && from == 0 && to == DAY_MINUTES {
            return Err(PolicyProblem::TimeAlways);
        }
        // An end at 00:00 is the end of the day on which the window began.
        let to = if to == 0 { DAY_MINUTES } else { to };
        Ok(Self { days, from, to, offset: spec.offset })
    }

    /// Whether the window contains `now`: from its first instant to just before its end.
    pub fn contains(self, now: Timestamp) -> bool {
        let (day, minute) = self.local(now);
        let begins = |day: usize| self.days & bit(day) != 0;
        if self.from < self.to {
            begins(day) && (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from && begins(day) || minute < self.to && begins((day + 6) % 7)
        }
    }

    /// The next instant after `now` at which [`TimeWindow::contains`] changes.
    pub fn next_change(self, now: Timestamp) -> Timestamp {
        let inside = self.contains(now);
        let shift = i64::from(self.offset) * MINUTE;
        let local = millis(now).saturating_add(shift);
        let midnight = local - local.rem_euclid(DAY);
        // Each day has at most two changes, and after a week everything has occurred.
        let ends = [self.from, self.to % DAY_MINUTES].map(|minute| i64::from(minute) * MINUTE);
        let mut next = Timestamp::MAX;
        for day in 0..=8_i64 {
            for end in ends {
                let at = midnight.saturating_add(day * DAY + end).saturating_sub(shift);
                let at = Timestamp::from_millis(u64::try_from(at).unwrap_or(0));
                if at > now && at < next && self.contains(at) != inside {
                    next = at;
                }
            }
        }
        next
    }

    /// Day of the week, 0 is Monday, and minutes after midnight, in local time.
    fn local(self, now: Timestamp) -> (usize, u16) {
        let local = millis(now).saturating_add(i64::from(self.offset) * MINUTE);
        // 1970-01-01 was a Thursday.
        let day = (local.div_euclid(DAY) + 3).rem_euclid(7);
        let minute = local.rem_euclid(DAY) / MINUTE;
        (usize::try_from(day).unwrap_or(0), u16::try_from(minute).unwrap_or(0))
    }

    /// `now` in local time, for an explanation: `fri 22:05 +01:00`.
    pub(super) fn local_text(self, now: Timestamp) -> String {
        let (day, minute) = self.local(now);
        let day = Weekday::ALL.get(day).map_or("", |day| day.as_str());
        format!("{day} {} {}", ClockTime(minute), Zone(self.offset))
    }
}

fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

const fn bit(day: usize) -> u8 {
    1 << day
}

/// Minutes after midnight as `08:00`.
struct ClockTime(u16);

impl fmt::Display for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Offset from UTC in minutes as `UTC` or `+01:00`.
struct Zone(i16);

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("UTC"),
            offset => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(f, "{sign}{}", ClockTime(offset.unsigned_abs()))
            }
        }
    }
}

/// `mon, tue 08:00-18:00 UTC`; the days are left out where the window begins on every day.
impl fmt::Display for TimeWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = Weekday::ALL.iter().filter(|day| self.days & bit(**day as usize) != 0);
        let days: Vec<&str> = days.map(|day| day.as_str()).collect();
        if days.len() < Weekday::ALL.len() {
            write!(f, "{} ", days.join(", "))?;
        }
        write!(f, "{}-{} {}", ClockTime(self.from), ClockTime(self.to), Zone(self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u16 = 60;

    fn window(days: &[Weekday], from: u16, to: u16, offset: i16) -> TimeWindow {
        let spec = WindowSpec { days: days.to_vec(), from: Some(from), to: Some(to), offset };
        TimeWindow::build(&spec).unwrap()
    }

    /// 2027-01-15 was a Friday.
    fn friday(hour: u64, minute: u64) -> Timestamp {
        Timestamp::from_secs(1_799_971_200 + hour * 3600 + minute * 60)
    }

    #[test]
    fn the_reference_day_is_a_friday() {
        assert_eq!(friday(0, 0).to_string(), "2027-01-15 00:00:00Z");
        assert_eq!(window(&[], 0, 1, 0).local_text(friday(9, 5)), "fri 09:05 UTC");
        assert_eq!(window(&[], 0, 1, 330).local_text(friday(20, 0)), "sat 01:30 +05:30");
        assert_eq!(window(&[], 0, 1, -60).local_text(Timestamp::from_millis(0)), "wed 23:00 -01:00");
    }

    #[test]
    fn a_window_contains_its_first_instant_and_not_its_end() {
        let office = window(&[Weekday::Fri], 8 * HOUR, 18 * HOUR, 0);
        let before = |time: Timestamp| Timestamp::from_millis(time.as_millis() - 1);
        assert!(!office.contains(before(friday(8, 0))));
        assert!(office.contains(friday(8, 0)));
        assert!(office.contains(before(friday(18, 0))));
        assert!(!office.contains(friday(18, 0)));
        for other in [24 + 9, 48 + 9, 6 * 24 + 9] {
            assert!(!office.contains(friday(other, 0)), "{other}");
        }
        assert!(office.contains(friday(7 * 24 + 9, 0)), "a week later");
    }

    #[test]
    fn an_offset_moves_the_window_and_its_days() {
        let early = window(&[Weekday::Sat], 0, HOUR, 60);
        assert!(early.contains(friday(23, 0)) && early.contains(friday(23, 59)));
        assert!(!early.contains(friday(22, 59)) && !early.contains(friday(24, 0)));
        let west = window(&[Weekday::Thu], 23 * HOUR, 24 * HOUR, -5 * 60);
        assert!(west.contains(friday(4, 0)) && !west.contains(friday(5, 0)) && !west.contains(friday(3, 59)));
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let night = window(&[Weekday::Fri], 22 * HOUR, 6 * HOUR, 0);
        for (hour, inside) in [(0, false), (5, false), (21, false), (22, true), (24, true), (29, true)] {
            assert_eq!(night.contains(friday(hour, 0)), inside, "{hour}");
        }
        assert!(!night.contains(friday(30, 0)) && !night.contains(friday(46, 0)));
        let sunday = window(&[Weekday::Sun], 22 * HOUR, 6 * HOUR, 0);
        assert!(sunday.contains(friday(3 * 24 + 5, 0)), "monday morning");
        let to_midnight = window(&[Weekday::Fri], 22 * HOUR, 0, 0);
        assert!(to_midnight.contains(friday(23, 59)) && !to_midnight.contains(friday(24, 0)));
    }

    #[test]
    fn the_next_change_is_the_first_instant_with_another_result() {
        let windows = [
            window(&[Weekday::Fri], 8 * HOUR, 18 * HOUR, 0),
            window(&[], 8 * HOUR, 18 * HOUR, 60),
            window(&[Weekday::Fri, Weekday::Sat], 22 * HOUR, 6 * HOUR, -90),
            window(&[Weekday::Mon, Weekday::Tue], 0, 24 * HOUR, 14 * 60),
            window(&[Weekday::Sun], 23 * HOUR, 0, -14 * 60),
        ];
        for window in windows {
            for half_hour in 0..14 * 24 {
                let now = friday(0, half_hour * 30 + 7);
                let next = window.next_change(now);
                assert!(next > now && next.since(now).as_secs() <= 8 * 86_400, "{window} {now}");
                assert_ne!(window.contains(next), window.contains(now), "{window} {now}");
                let mut minute = now;
                while minute < next {
                    assert_eq!(window.contains(minute), window.contains(now), "{window} {now} {minute}");
                    minute = minute.plus(std::time::Duration::from_secs(601));
                }
                let last = Timestamp::from_millis(next.as_millis() - 1);
                assert_eq!(window.contains(last), window.contains(now), "{window} {now}");
            }
        }
    }

    #[test]
    fn windows_without_a_meaning_are_refused() {
        let build = |days: &[Weekday], from, to, offset| {
            TimeWindow::build(&WindowSpec { days: days.to_vec(), from, to, offset }).unwrap_err()
        };
        assert_eq!(build(&[], Some(480), Some(480), 0), PolicyProblem::TimeEmpty);
        assert_eq!(build(&[Weekday::Mon], None, Some(0), 0), PolicyProblem::TimeEmpty);
        assert_eq!(build(&[], None, None, 0), PolicyProblem::TimeAlways);
        assert_eq!(build(&Weekday::ALL, Some(0), Some(1440), 60), PolicyProblem::TimeAlways);
        for (from, to, offset) in [(1440, 1, 0), (0, 1441, 0), (0, 1, 841), (0, 1, -841)] {
            let fault = build(&[], Some(from), Some(to), offset);
            assert_eq!(fault, PolicyProblem::TimeOutOfRange, "{from} {to} {offset}");
        }
    }

    #[test]
    fn time_without_end_is_no_panic() {
        let office = window(&[Weekday::Fri], 8 * HOUR, 18 * HOUR, 14 * 60);
        for now in [Timestamp::MAX, Timestamp::from_millis(0)] {
            let _ = (office.contains(now), office.next_change(now), office.local_text(now));
        }
    }

    #[test]
    fn windows_are_shown_as_they_are_written() {
        assert_eq!(window(&[], 480, 1080, 0).to_string(), "08:00-18:00 UTC");
        let night = window(&[Weekday::Sat, Weekday::Fri], 22 * HOUR, 0, -90);
        assert_eq!(night.to_string(), "fri, sat 22:00-24:00 -01:30");
    }
}
