//! Clock: reads points in time as tools write them.
//!
//! Owns: the forms, and their conversion to seconds since 1970.
//! Does not own: what happened at that time.
//!
//! A form without a zone is in the local time of the machine that wrote it. It is taken for UTC.
//! Differences between two such times are right unless the clock was changed between them.

/// Seconds since 1970 of `2026-11-23T00:16:10.298663684Z`, or of a time with an offset; `None` for
/// other forms.
pub(super) fn rfc3339(text: &str) -> Option<f64> {
    let (date, time) = text.split_once('T')?;
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    Some(days(date, '-')? * 86_400.0 + of_day(clock)? - offset(zone)?)
}

/// A point in time from a `JMeter` file: milliseconds since 1970, one of the date forms that
/// `JMeter` itself recognises, or ISO 8601.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    /// Seconds since 1970.
    pub(super) seconds: f64,
    /// Whether it has no fraction of a second.
    pub(super) coarse: bool,
}

/// Parses `1795393319114`, `2026/11/23 00:16:10.298`, `2026-11-23 00:16:10`, `11/23/26 00:16:10` or
/// `2026-11-23T00:16:10.298Z`; `None` for other forms.
pub(super) fn jmeter(text: &str) -> Option<Moment> {
    if let Ok(millis) = text.parse::<u64>() {
        return Some(Moment { seconds: millis as f64 / 1e3, coarse: false });
    }
    let text = text.trim();
    let coarse = !text.contains(['.', ',']);
    if text.contains('T') {
        let zoned = if text.ends_with('Z') || text.rfind(['+', '-']) > text.find('T') {
            rfc3339(&text.replace(',', "."))
        } else {
            rfc3339(&format!("{}Z", text.replace(',', ".")))
        };
        return zoned.map(|seconds| Moment { seconds, coarse });
    }
    let (date, clock) = text.split_once(' ')?;
    let separator = if date.contains('/') { '/' } else { '-' };
    let days = days(date, separator)?;
    Some(Moment { seconds: days * 86_400.0 + of_day(&clock.trim().replace(',', "."))?, coarse })
}

/// Offset of a zone from UTC in seconds, positive east of it: `Z`, `+02:00`, `+0200`.
fn offset(zone: &str) -> Option<f64> {
    let Some(digits) = zone.strip_prefix(['+', '-']) else { return (zone == "Z").then_some(0.0) };
    let (hours, minutes) = digits.split_once(':').or_else(|| digits.split_at_checked(2))?;
    let seconds =
        f64::from(hours.parse::<u8>().ok()?) * 3600.0 + f64::from(minutes.parse::<u8>().ok()?) * 60.0;
    Some(if zone.starts_with('-') { -seconds } else { seconds })
}

/// Seconds since midnight of `00:16:10.298`.
fn of_day(clock: &str) -> Option<f64> {
    let mut parts = clock.split(':');
    let (hour, minute): (u8, u8) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let second: f64 = parts.next()?.parse().ok()?;
    let sound = hour < 24 && minute < 60 && (0.0..61.0).contains(&second) && parts.next().is_none();
    sound.then(|| f64::from(hour) * 3600.0 + f64::from(minute) * 60.0 + second)
}

/// Days since 1970 of `2026-11-23`, or of `11/23/26` where the separator is a slash and the year is
/// last.
fn days(date: &str, separator: char) -> Option<f64> {
    let parts: Vec<&str> = date.split(separator).collect();
    let [first, second, third] = parts.as_slice() else { return None };
    let number = |text: &str| text.parse::<u16>().ok().map(i64::from);
    let (year, month, day) = if separator == '/' && first.len() <= 2 {
        (2000 + number(third)? % 100, number(first)?, number(second)?)
    } else {
        (number(first)?, number(second)?, number(third)?)
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The computation uses a calendar that begins in March, so that the leap day is the last of the
    // year.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = years.div_euclid(400);
    let of_era = years.rem_euclid(400);
    let days =
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * months + 2) / 5 + day - 1 - 719_468;
    Some(days as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_rfc_3339_writes_them() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2000-02-29T12:00:00.5Z", 951_825_600.5),
            ("2026-11-23T02:16:10+02:00", 1_795_392_970.0),
            ("2026-11-22T19:16:10-05:00", 1_795_392_970.0),
        ] {
            assert!((rfc3339(text).unwrap() - seconds).abs() < 1e-6, "{text}: {:?}", rfc3339(text));
        }
        for text in ["", "2026-11-23", "2026-13-01T00:00:00Z", "2026-11-23T25:00:00Z", "2026-11-23T00:00:00"]
        {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn jmeters_moments_are_milliseconds_or_dates() {
        for (text, millis, coarse) in [
            ("1795392970298", 298, false),
            ("2026/11/23 00:16:10.298", 298, false),
            ("2026/11/23 00:16:10", 0, true),
            ("2026-11-23 00:16:10.298", 298, false),
            ("2026-11-23 00:16:10,298", 298, false),
            ("2026-11-23 00:16:10", 0, true),
            ("11/23/26 00:16:10", 0, true),
            ("2026-11-23T00:16:10.298Z", 298, false),
            ("2026-11-23T00:16:10.298", 298, false),
            ("2026-11-23T02:16:10.298+0200", 298, false),
        ] {
            let moment = jmeter(text).unwrap_or_else(|| panic!("{text} is a moment"));
            let expected = 1_795_392_970.0 + f64::from(millis) / 1e3;
            assert!(
                (moment.seconds - expected).abs() < 1e-6 && moment.coarse == coarse,
                "{text}: {moment:?}"
            );
        }
        for text in
            ["", "now", "23.11.2026 00:16:10", "2026-11-23", "2026-11-23 24:00:00", "-5", "99/99/99 00:00:00"]
        {
            assert_eq!(jmeter(text), None, "{text}");
        }
    }
}
