//! Times as the API server writes them.
//!
//! Owns: RFC 3339 with seconds, to and from a number.
//! Does not own: a clock.
//! Flow: text ↔ [`Seconds`].

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds since 1970-01-01T00:00:00Z.
pub type Seconds = i64;

/// The time that `text` says, or `None` if it is not one of RFC 3339. Fractions are cut off.
pub fn parse_time(text: &str) -> Option<Seconds> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

/// `seconds` as the API server writes it, such as `2026-11-28T22:21:30Z`. A time outside the years
/// that RFC 3339 can express becomes the start of 1970.
pub fn time_text(seconds: Seconds) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_else(|_| "1970-01-01T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        assert_eq!(parse_time("1970-01-01T00:01:00Z"), Some(60));
        assert_eq!(parse_time("1970-01-01T01:01:00.999+01:00"), Some(60));
        assert_eq!(parse_time("yesterday"), None);
        assert_eq!(time_text(1_795_904_490), "2026-11-28T22:21:30Z");
        assert_eq!(time_text(i64::MAX), "1970-01-01T00:00:00Z");
    }
}
