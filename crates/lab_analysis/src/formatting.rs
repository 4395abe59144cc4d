//! Words: formats numbers with significant digits and a unit, and lists events.
//!
//! These hold for every number: a value that rounds to 0 is `0` without a sign, an infinite one is
//! `infinite`, and NaN is [`NONE`].

use std::time::Duration;

use crate::record::Event;

/// Placeholder for a figure that is absent.
pub(crate) const NONE: &str = "–";
/// Smallest value that is shown: a smaller one has no significant digit. Of a time in µs this is 5
/// ps.
const MIN_SHOWN: f64 = 5e-6;

/// Formats a time in µs: `845 µs`, `12.3 ms`, `2.98 s`.
pub fn time(us: f64) -> String {
    let size = us.abs();
    if !us.is_finite() {
        digits(us)
    } else if size >= 999_500.0 {
        format!("{} s", digits(us / 1e6))
    } else if size >= 999.5 {
        format!("{} ms", digits(us / 1e3))
    } else {
        format!("{} µs", digits(us))
    }
}

/// Formats a staleness in µs, the time for which a revoked credential was still accepted: `0`,
/// `12.3 ms`, or `to the end` of the observation where it is infinite.
pub(crate) fn staleness(us: f64) -> String {
    match us {
        f64::INFINITY => "never refused".to_owned(),
        us if us < MIN_SHOWN => "0".to_owned(),
        us => time(us),
    }
}

/// Formats a point in time, seconds since 1970, as its date in UTC: `2026-11-28`. Years outside of 1
/// to 9999 are [`NONE`].
pub(crate) fn date(unix_s: f64) -> String {
    // The method is that of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms". A period
    // of 400 years has 146 097 days. Years begin in March, so that a leap day is their last one.
    let days = (unix_s / 86_400.0).floor() + 719_468.0;
    if !(306.0..3_652_365.0).contains(&days) {
        return NONE.to_owned();
    }
    let days = crate::units::truncated(days);
    let (period, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", period * 400 + year + next)
}

/// Formats an expected duration as the end of a line: `; takes at least 1 h 46 min`. Empty when it
/// is under a second, as an unknown one is.
pub fn expected_duration(time: Duration) -> String {
    let minutes = (time.as_secs() + 30) / 60;
    match (time.as_secs(), minutes / 60, minutes % 60) {
        (0, ..) => String::new(),
        (seconds @ ..100, ..) => format!("; takes at least {seconds} s"),
        (_, 0, minutes) => format!("; takes at least {minutes} min"),
        (_, hours, 0) => format!("; takes at least {hours} h"),
        (_, hours, minutes) => format!("; takes at least {hours} h {minutes} min"),
    }
}

/// Formats a number with three significant digits: `0.0123`, `1.23`, `12.3`, `1234`, `12 345`.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() || size >= 999.5 {
        return grouped(value);
    }
    if size < MIN_SHOWN {
        return "0".to_owned();
    }
    // A value that rounds up to the next power of ten shows one decimal less.
    let edges = [99.95, 9.995, 0.999_5, 0.099_95, 0.009_995, 0.000_999_5, 0.000_099_95];
    let decimals = edges.iter().filter(|edge| size < **edge).count();
    signed(value, &format!("{size:.decimals$}"))
}

/// Puts the sign of `value` before `text`. The sign is a minus, not a hyphen, and 0 has none.
fn signed(value: f64, text: &str) -> String {
    if value < 0.0 && !is_zero(text) { format!("−{text}") } else { text.to_owned() }
}

/// Whether `text` has digits and all of them are 0.
pub(crate) fn is_zero(text: &str) -> bool {
    let mut digits = text.chars().filter(char::is_ascii_digit).peekable();
    digits.peek().is_some() && digits.all(|digit| digit == '0')
}

/// Formats a change with its sign and a given number of decimals: `+1.5`, `−1.5`, `0.0`.
pub(crate) fn signed_change(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return digits(value);
    }
    let text = format!("{:.decimals$}", value.abs());
    let plus = if value > 0.0 && !is_zero(&text) { "+" } else { "" };
    format!("{plus}{}", signed(value, &text))
}

/// Formats a change that is given as a share: `+9.8 %`.
pub(crate) fn percent_change(share: f64) -> String {
    format!("{} %", signed_change(share * 100.0, 1))
}

/// Formats a ratio as a factor: `× 1.098`.
pub(crate) fn factor(ratio: f64) -> String {
    if (0.1..9.999_5).contains(&ratio) { format!("× {ratio:.3}") } else { format!("× {}", digits(ratio)) }
}

/// Formats a number without decimals, its digits in groups of three from five digits on.
pub(crate) fn grouped(value: f64) -> String {
    if value.is_nan() {
        return NONE.to_owned();
    }
    if value.is_infinite() {
        return signed(value, "infinite");
    }
    let plain = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) && plain.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    signed(value, &text)
}

/// Formats a count, its digits in groups of three.
pub fn count(value: u64) -> String {
    grouped(value as f64)
}

/// Lists events, one line for each kind with the time of each or, from two on, of the first and the
/// last. Lines are in the order in which the kinds first occurred.
pub(crate) fn events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<String> {
    let mut all: Vec<(&str, Vec<u64>)> = Vec::new();
    for event in events {
        match all.iter_mut().find(|(description, _)| *description == event.what) {
            Some((_, times)) => times.push(event.at_ms),
            None => all.push((&event.what, vec![event.at_ms])),
        }
    }
    let at = |ms: u64| digits(ms as f64 / 1e3);
    let line = |(description, times): (&str, Vec<u64>)| match times[..] {
        [once] => format!("{description} at {} s", at(once)),
        [first, .., last] => {
            format!("{description}, {} times from {} to {} s", times.len(), at(first), at(last))
        }
        [] => description.to_owned(),
    };
    all.into_iter().map(line).collect()
}

/// Formats a share in per cent. A share that is not 0 or 1 is never rounded to `0 %` or `100 %`.
pub(crate) fn percent(share: f64) -> String {
    if !(share * 100.0).is_finite() {
        return digits(share * 100.0);
    }
    if share < 0.0 {
        let text = percent(-share);
        return match (text.strip_prefix("< "), text.strip_prefix("> ")) {
            (Some(least), _) => format!("> −{least}"),
            (_, Some(most)) => format!("< −{most}"),
            _ => signed(share, &text),
        };
    }
    let rounded = format!("{:.2}", (share * 100.0).abs());
    match rounded.as_str() {
        "100.00" if share < 1.0 => "> 99.99 %".to_owned(),
        "0.00" if share * 100.0 >= MIN_SHOWN => "< 0.01 %".to_owned(),
        "100.00" => "100 %".to_owned(),
        "0.00" => "0 %".to_owned(),
        _ => format!("{rounded} %"),
    }
}

/// Formats a share in per cent like [`percent`], without decimals that are 0: `40 %`.
pub(crate) fn short_percent(share: f64) -> String {
    percent(share).replace(".00 %", " %")
}

/// Formats an amount of memory in bytes as KiB, MiB or GiB.
pub(crate) fn bytes(bytes: f64) -> String {
    const MIB: f64 = 1_048_576.0;
    if !bytes.is_finite() {
        digits(bytes)
    } else if bytes < 0.1 * MIB {
        format!("{} KiB", digits(bytes / 1024.0))
    } else if bytes >= 1024.0 * MIB {
        format!("{} GiB", digits(bytes / 1024.0 / MIB))
    } else {
        format!("{} MiB", digits(bytes / MIB))
    }
}

/// What every text of a value must fulfil, whichever module writes it.
#[cfg(test)]
pub(crate) mod readable {
    use super::is_zero;

    /// Values that must be written as nothing.
    pub(crate) const NOTHING: [f64; 6] = [0.0, -0.0, 1.1e-13, -1.1e-13, f64::MIN_POSITIVE, -4e-9];

    /// Whether the text is a zero without a sign or a bound.
    pub(crate) fn is_plain_nothing(text: &str) -> bool {
        is_zero(text) && !text.contains(['−', '+', '-', '<'])
    }

    /// Whether the text writes its number as people do: no name of a float, no exponent, no hyphen
    /// as a sign, no sign before a zero.
    pub(crate) fn is_plain(text: &str) -> bool {
        let words = text.replace("infinite", "");
        let signed_nothing = text.starts_with(['−', '+']) && is_zero(text);
        !signed_nothing && !["-", "NaN", "inf", "e1"].iter().any(|unwanted| words.contains(unwanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_in_minutes() {
        for (seconds, words) in
            [(99, "99 s"), (100, "2 min"), (3569, "59 min"), (3570, "1 h"), (6360, "1 h 46 min")]
        {
            assert_eq!(expected_duration(Duration::from_secs(seconds)), format!("; takes at least {words}"));
        }
        assert_eq!(expected_duration(Duration::from_millis(900)), "");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0.0, "1970-01-01"),
            (951_782_400.0, "2000-02-29"),
            (951_868_799.9, "2000-02-29"),
            (951_868_800.0, "2000-03-01"),
            (1_795_878_719.0, "2026-11-28"),
            (4_107_542_399.0, "2100-02-28"),
            (4_107_542_400.0, "2100-03-01"),
            (-1.0, "1969-12-31"),
            (-62_135_596_800.0, "0001-01-01"),
            (253_402_300_799.0, "9999-12-31"),
        ] {
            assert_eq!(date(unix_s), text, "{unix_s}");
        }
        for unix_s in [f64::NAN, f64::INFINITY, -62_135_596_801.0, 253_402_300_800.0] {
            assert_eq!(date(unix_s), NONE, "{unix_s}");
        }
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (us, text) in [
            (0.0, "0 µs"),
            (12.34, "12.3 µs"),
            (999.7, "1.00 ms"),
            (23_900.0, "23.9 ms"),
            (999_600.0, "1.00 s"),
            (2_978_400.0, "2.98 s"),
            (99.96, "100 µs"),
            (-43.0, "−43.0 µs"),
        ] {
            assert_eq!(time(us), text, "{us}");
        }
    }

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(digits(1032.0), "1032");
        assert_eq!(digits(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!(digits(0.0334), "0.0334");
        assert_eq!(count(50_000), "50\u{202f}000");
    }

    #[test]
    fn what_happens_again_and_again_is_told_once() {
        let event = |at_ms, description: &str| Event { at_ms, what: description.to_owned() };
        let all = [event(1000, "a"), event(1300, "b"), event(1600, "a"), event(61_000, "a")];
        assert_eq!(events(&all), ["a, 3 times from 1.00 to 61.0 s", "b at 1.30 s"]);
    }

    #[test]
    fn a_share_is_not_rounded_to_all_or_nothing() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.999_999), "> 99.99 %");
        assert_eq!(percent(0.000_001), "< 0.01 %");
        assert_eq!(percent(0.9977), "99.77 %");
        let short = [0.4, 0.125, 0.999_999].map(short_percent);
        assert_eq!(short, ["40 %", "12.50 %", "> 99.99 %"]);
    }

    /// Formats a value in each way that this module offers.
    fn written(value: f64) -> Vec<String> {
        vec![
            time(value),
            digits(value),
            grouped(value),
            percent(value),
            short_percent(value),
            bytes(value),
            percent_change(value),
            signed_change(value, 0),
            factor(value),
            staleness(value),
        ]
    }

    #[test]
    fn what_is_nothing_has_no_sign_and_what_is_no_number_is_not_printed() {
        for value in readable::NOTHING {
            for text in written(value) {
                assert!(readable::is_plain_nothing(&text), "{value:e}: {text}");
            }
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for text in written(value) {
                assert!(readable::is_plain(&text), "{value}: {text}");
            }
        }
        assert_eq!(time(-1.1e-13), "0 µs");
        assert_eq!(
            (percent_change(-0.0004), percent_change(-0.04), percent_change(0.04)),
            ("0.0 %".into(), "−4.0 %".into(), "+4.0 %".into())
        );
        assert_eq!(
            (percent(-0.5), grouped(-0.2), bytes(f64::NAN)),
            ("−50.00 %".into(), "0".into(), "–".into())
        );
        assert_eq!(percent(-0.000_001), "> −0.01 %");
    }

    proptest::proptest! {
        #[test]
        fn no_figure_is_written_as_programs_write_them(value in proptest::num::f64::ANY) {
            for text in written(value) {
                proptest::prop_assert!(readable::is_plain(&text), "{:e}: {}", value, text);
            }
        }
    }
}
