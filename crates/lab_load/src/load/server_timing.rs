//! Server timing: parses the phases of a request that servers report in `Server-Timing` (W3C Server
//! Timing §3).
//!
//! A metric without a duration, or with a duration that is not a number, is skipped.
//!
//! Owns: names and durations from untrusted bytes. Does not own: how they are used.

use lab_analysis::units::nanos_of_seconds;

/// Values of all `server-timing` fields in the head of an HTTP/1.1 response.
pub(crate) fn fields(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(b"server-timing").then(|| &line[colon + 1..])
    })
}

/// Names and durations (in nanoseconds) of the metrics in one field value.
pub(crate) fn durations(value: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    std::str::from_utf8(value).into_iter().flat_map(metrics)
}

fn metrics(value: &str) -> impl Iterator<Item = (&str, u64)> {
    unquoted(value, ',').filter_map(|metric| {
        let mut parts = unquoted(metric, ';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let duration = parts.find_map(|part| {
            let (key, value) = part.split_once('=')?;
            key.trim().eq_ignore_ascii_case("dur").then(|| value.trim().trim_matches('"'))
        })?;
        let millis: f64 =
            duration.parse().ok().filter(|millis: &f64| millis.is_finite() && *millis >= 0.0)?;
        Some((name, nanos_of_seconds(millis / 1e3)))
    })
}

/// Splits at separators outside quoted strings (RFC 9110 §5.6.4).
fn unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |letter: char| {
        let was_escaped = std::mem::replace(&mut escaped, false);
        match letter {
            '\\' if quoted && !was_escaped => escaped = true,
            '"' if !was_escaped => quoted = !quoted,
            _ => return letter == separator && !quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_read_whatever_stands_beside_them() {
        let value = br#" parse;dur=0.012, cache;desc="hit, \" or; miss", Authenticate ; desc=x; dur=1.5,upstream;dur="2""#;
        let expected = [("parse", 12_000), ("Authenticate", 1_500_000), ("upstream", 2_000_000)];
        assert_eq!(durations(value).collect::<Vec<_>>(), expected);
        for nothing in ["", ",,", "a", "a;dur=", "a;dur=-1", "a;dur=NaN", "a;dur=inf", ";dur=1", "a;dur"] {
            assert_eq!(durations(nothing.as_bytes()).count(), 0, "{nothing}");
        }
        assert_eq!(durations(b"a;dur=1\xff").count(), 0);
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_server_says_is_read_or_passed_over(text in r#"[a-c;=,"\\ dur0-9.-]{0,40}.{0,10}"#) {
            for (name, _) in durations(text.as_bytes()) {
                proptest::prop_assert!(!name.is_empty());
            }
        }
    }

    #[test]
    fn fields_are_found_in_a_head() {
        let head = b"HTTP/1.1 200 OK\r\nServer-Timing: a;dur=1\r\nx: y\r\nserver-timing: b;dur=2\r\n\r\n";
        let found: Vec<_> = fields(head).flat_map(durations).collect();
        assert_eq!(found, [("a", 1_000_000), ("b", 2_000_000)]);
    }
}
