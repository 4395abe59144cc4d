//! Amounts: parses durations, CPU limits and memory sizes as configuration files write them.
//!
//! Owns: the accepted forms and the error texts. CPU and memory use the notation of Kubernetes.

use std::time::Duration;

/// Parses a duration: `3us`, `250ms`, `30s`, `2m`, `1h`. Returns an error text for any other form.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration; write 250ms, 30s, 2m or 1h");
    let at = text.find(|letter: char| letter.is_alphabetic()).ok_or_else(wrong)?;
    let number: f64 = text[..at].parse().map_err(|_| wrong())?;
    let unit = match &text[at..] {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())
}

/// Parses a CPU limit into millicores: `50m` is 50, `0.5` is 500. Returns an error text for any
/// other form and for a limit outside of the range.
pub fn millicores(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a CPU limit; write millicores as 50m, or cores as 0.5 (up to 32)");
    let millis = match text.strip_suffix('m') {
        Some(millis) => millis.parse::<f64>().map_err(|_| wrong())?,
        None => text.parse::<f64>().map_err(|_| wrong())? * 1000.0,
    };
    // A limit above 32 cores has to be written in millicores: `50` far more often means `50m`.
    let sensible = (1.0..=1_024_000.0).contains(&millis) && (text.ends_with('m') || millis <= 32_000.0);
    if sensible { Ok(crate::units::truncated(millis.round())) } else { Err(wrong()) }
}

/// Parses an amount of memory into bytes: `64MiB`, `64Mi`, `1GiB`, `512KiB`, `1000000`. Returns an
/// error text for any other form, for 0 and from 2^50 bytes on.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not an amount of memory; write 64MiB, 1GiB or a number of bytes");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let shift = match &text[digits.len()..] {
        "" => 0,
        "Ki" | "KiB" => 10,
        "Mi" | "MiB" => 20,
        "Gi" | "GiB" => 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0 && *bytes < 1 << 50).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_as_people_write_them() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!((duration("3us"), duration("3µs")), (duration("0.003ms"), duration("0.003ms")));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
        assert_eq!((millicores("50m"), millicores("0.5"), millicores("2")), (Ok(50), Ok(500), Ok(2000)));
        assert_eq!((bytes("64MiB"), bytes("1Gi"), bytes("77")), (Ok(64 << 20), Ok(1 << 30), Ok(77)));
    }

    #[test]
    fn what_is_none_says_how_to_write_one() {
        for text in ["", "5", "s", "-1s", "1d", "NaNs", "1e400s"] {
            assert!(duration(text).unwrap_err().contains("30s"), "{text}");
        }
        for text in ["", "50", "0", "0m", "-1", "NaN", "x", "0.0001", "2000000m"] {
            assert!(millicores(text).unwrap_err().contains("50m"), "{text}");
        }
        for text in ["", "0", "-1", "64MB", "1.5GiB", "99999999999GiB", "x"] {
            assert!(bytes(text).unwrap_err().contains("64MiB"), "{text}");
        }
    }
}
