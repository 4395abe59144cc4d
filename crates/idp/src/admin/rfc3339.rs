//! Times as RFC 3339 writes them, and spans of time before now.

use std::{fmt, time::Duration};

use auth::time::Timestamp;
use serde::{Serialize, Serializer};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Time in UTC as RFC 3339 writes it, to the millisecond: `2027-01-15T08:00:00.250Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct UtcTime(pub Timestamp);

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format(self.0))
    }
}

impl Serialize for UtcTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The last millisecond that RFC 3339 can write: its years have four digits.
const LAST: Timestamp = Timestamp::from_millis(253_402_300_799_999);

/// Formats a time in UTC, to the millisecond: `2027-01-15T08:00:00.250Z`. A later time than RFC 3339
/// can write is the last of the year 9999.
fn format(at: Timestamp) -> String {
    let at = at.min(LAST);
    let seconds = at.to_string().replace(' ', "T");
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), at.as_millis() % 1000)
}

/// Parses a time, or a span before `now` such as `90s`, `15m`, `2h` or `7d`. `None`: it is neither.
pub(super) fn parse(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) {
        let millis = u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()?;
        return Some(Timestamp::from_millis(millis));
    }
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let number = &text[..text.len() - 1];
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(unit)?;
    Some(now.minus(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_250);

    #[test]
    fn times_go_there_and_back() {
        assert_eq!(format(NOW), "2027-01-15T08:00:00.250Z");
        assert_eq!(format(Timestamp::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(parse(&format(NOW), NOW), Some(NOW));
        assert_eq!(parse("2027-01-15T10:00:00.25+02:00", Timestamp::from_secs(0)), Some(NOW));
        assert_eq!(parse("2027-01-15t08:00:00z", NOW), Some(NOW.minus(Duration::from_millis(250))));
    }

    #[test]
    fn spans_count_back_from_now() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800)] {
            assert_eq!(parse(text, NOW), Some(NOW.minus(Duration::from_secs(seconds))), "{text}");
        }
        for bad in [
            "",
            "s",
            "1",
            "+1s",
            "-1s",
            "1.5h",
            "1w",
            "9999999999999999999d",
            "yesterday",
            "2027-01-15",
            "1 h",
            "ä",
        ] {
            assert_eq!(parse(bad, NOW), None, "{bad}");
        }
    }
}
