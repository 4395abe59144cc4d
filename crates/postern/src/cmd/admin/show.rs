//! Output: tables, lists and times.

use comfy_table::presets::UTF8_FULL;
use comfy_table::{Attribute, Cell, ContentArrangement, Table};

/// Largest number of characters of a detail in a table.
const MAX_DETAIL: usize = 200;

/// Formats a table with its heading, or `none` when it has no rows.
pub(super) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL).enforce_styling();
    // Output that is not a terminal gets every identifier whole.
    if table.is_tty() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(heading.map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
    for row in rows {
        table.add_row(row.map(|text| without_control_characters(&text)));
    }
    if table.is_empty() { "none\n".into() } else { format!("{table}\n") }
}

/// Formats names and values, one per line.
pub(super) fn list(lines: &[(&str, String)]) -> String {
    let shown = lines.iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<String> =
        shown.map(|(name, value)| format!("{name:<16} {}\n", without_control_characters(value))).collect();
    lines.concat()
}

/// Cuts a text that is too long for a table.
pub(super) fn cut(text: String) -> String {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Replaces control characters in an external text, because a terminal would obey them.
fn without_control_characters(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Formats an instant in UTC, to the second.
pub(super) fn time(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// Formats an instant, if there is one.
pub(super) fn optional_time(seconds: Option<u64>) -> String {
    seconds.map(time).unwrap_or_default()
}

/// Year, month and day for a count of days since 1970-01-01 in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Count from 0000-03-01: then the leap day is the last day of its year, and eras have 146 097
    // days.
    let days = days.saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    (era * 400 + year_of_era + u64::from(month >= 10), (month + 2) % 12 + 1, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_800_000_000, "2027-01-15 08:00:00Z"),
            (4_102_444_799, "2099-12-31 23:59:59Z"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_its_characters() {
        assert_eq!(cut("ä".repeat(200)), "ä".repeat(200));
        assert_eq!(cut("ä".repeat(201)), format!("{}…", "ä".repeat(200)));
    }

    #[test]
    fn a_terminal_is_told_nothing_by_a_name() {
        let shown = table(["name"], [["a\u{1b}[2Jb".to_owned()]]);
        assert!(!shown.contains("\u{1b}[2J") && shown.contains("a\u{fffd}[2Jb"), "{shown}");
        assert_eq!(table(["name"], []), "none\n");
    }
}
