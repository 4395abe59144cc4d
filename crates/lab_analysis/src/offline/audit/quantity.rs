//! Quantity: reads figures as reports print them in cells: `2.8040s`, `**1,032 req/s**`, `~7.24s*`,
//! `-1.01s (-38.7%)`.
//!
//! Owns: reading a number with its unit. A range, a bound or text is no quantity.
//! Does not own: which figure it is.

use super::table::PrintedFigure;

/// A number with the unit behind it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quantity {
    /// The number as printed, without thousands separators.
    pub(super) figure: PrintedFigure,
    /// Unit: `s`, `ms`, `%`, `req/s`; empty without one.
    pub(super) unit: String,
}

impl Quantity {
    /// Converts to seconds; `unit` applies when the number has none. `None` for other units.
    pub(super) fn seconds(&self, unit: &str) -> Option<PrintedFigure> {
        let shift = match if self.unit.is_empty() { unit } else { &self.unit } {
            "s" | "sec" | "secs" | "seconds" => 0,
            "ms" => 3,
            "us" | "µs" => 6,
            _ => return None,
        };
        let decimals = self.figure.decimals() + shift;
        let value = self.figure.value() / 10.0_f64.powi(i32::try_from(shift).unwrap_or(0));
        PrintedFigure::new(&format!("{value:.decimals$}"))
    }
}

/// The text of a cell without the marks for bold and code.
pub(super) fn plain(cell: &str) -> String {
    cell.replace(['*', '`', '\\'], "").trim().to_owned()
}

/// All numbers of a cell, in order; none when one of them is a range, a bound, or part of a word.
pub(super) fn quantities(cell: &str) -> Vec<Quantity> {
    let cell = plain(cell).replace('\u{2212}', "-");
    let mut quantities = Vec::new();
    let mut rest = cell.trim_start_matches('~').trim_start();
    while !rest.is_empty() {
        let Some((quantity, after)) = leading(rest) else { return quantities };
        quantities.push(quantity);
        let after = after.trim_start();
        // A second quantity may follow in parentheses; anything else is a comment on the first.
        let Some(inner) = after.strip_prefix('(') else {
            return if after.starts_with(['-', '–', '/', '<', '>']) { Vec::new() } else { quantities };
        };
        rest = inner.split(')').next().unwrap_or_default();
    }
    quantities
}

/// The number at the start of a text, and the remaining text.
fn leading(text: &str) -> Option<(Quantity, &str)> {
    let sign = usize::from(text.starts_with(['+', '-']));
    let number = |letter: char| letter.is_ascii_digit() || letter == ',' || letter == '.';
    let end = sign + text[sign..].find(|letter| !number(letter)).unwrap_or(text.len() - sign);
    let digits = text[..end].replace(',', "");
    let figure = PrintedFigure::new(digits.trim_end_matches('.'))?;
    let after = text[end..].trim_start();
    // A unit has no digit: `10000/10000` is no rate.
    let is_unit = |letter: char| letter.is_alphabetic() || letter == '%' || letter == '/';
    let unit_end = after.find(|letter| !is_unit(letter)).unwrap_or(after.len());
    let (unit, after) = if after.starts_with('/') { ("", after) } else { after.split_at(unit_end) };
    Some((Quantity { figure, unit: unit.to_owned() }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cell: &str) -> Vec<(f64, String)> {
        quantities(cell).into_iter().map(|found| (found.figure.value(), found.unit)).collect()
    }

    #[test]
    fn figures_are_read_as_reports_print_them() {
        let one = |value: f64, unit: &str| vec![(value, unit.to_owned())];
        for (cell, expected) in [
            ("2.8040s", one(2.804, "s")),
            ("**1,032 req/s**", one(1032.0, "req/s")),
            ("~7.24s*", one(7.24, "s")),
            ("+57.6% up", one(57.6, "%")),
            ("\u{2212}3.5 %", one(-3.5, "%")),
            ("-1.01s (-38.7%)", vec![(-1.01, "s".to_owned()), (-38.7, "%".to_owned())]),
            ("16.66 req/s (degraded)", one(16.66, "req/s")),
            ("451.27", one(451.27, "")),
            ("~47-50 MB", vec![]),
            ("10000/10000", vec![]),
            ("None", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(read(cell), expected, "{cell}");
        }
    }

    #[test]
    fn times_are_seconds_with_as_many_digits_as_were_printed() {
        let seconds = |cell: &str| quantities(cell)[0].seconds("s").map(|figure| figure.to_string());
        assert_eq!(seconds("46ms").as_deref(), Some("0.046"));
        assert_eq!(seconds("2.80s").as_deref(), Some("2.80"));
        assert_eq!(seconds("2.80").as_deref(), Some("2.80"));
        assert_eq!(seconds("18.4 req/s"), None);
    }
}
