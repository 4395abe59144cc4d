//! Output: tables, lists and times.

use auth::time::Timestamp;
use comfy_table::presets::UTF8_FULL;
use comfy_table::{Attribute, Cell, ContentArrangement, Table};
use idp::admin::UtcTime;

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

/// Formats an instant in UTC (RFC 3339), to the second.
pub(super) fn time(at: UtcTime) -> String {
    UtcTime(Timestamp::from_secs(at.0.as_secs())).to_string().replace(".000Z", "Z")
}

/// Formats an instant, if there is one.
pub(super) fn optional_time(at: Option<UtcTime>) -> String {
    at.map(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_its_characters() {
        assert_eq!(cut("ä".repeat(200)), "ä".repeat(200));
        assert_eq!(cut("ä".repeat(201)), format!("{}…", "ä".repeat(200)));
    }

    #[test]
    fn times_are_those_of_rfc_3339_to_the_second() {
        let at = UtcTime(Timestamp::from_millis(1_800_000_000_250));
        assert_eq!(time(at), "2027-01-15T08:00:00Z");
        assert_eq!(optional_time(None), "");
    }

    #[test]
    fn a_terminal_is_told_nothing_by_a_name() {
        let shown = table(["name"], [["a\u{1b}[2Jb".to_owned()]]);
        assert!(!shown.contains("\u{1b}[2J") && shown.contains("a\u{fffd}[2Jb"), "{shown}");
        assert_eq!(table(["name"], []), "none\n");
    }
}
