//! Narrow charts with one row per name: several marks on a line, and bars that consist of parts.
//!
//! The name and the figures of a row are above it, so that long names need no column of their own.

use std::fmt::Write as _;

use super::scale::{Scale, Unit};
use super::{COLOURS, NARROW, legend, open};
use crate::offline::render::escape::escape;
use crate::units::index;

const LEFT: f64 = 6.0;
const RIGHT: f64 = NARROW - 6.0;
const ROW: f64 = 42.0;
const BOTTOM: f64 = 42.0;
/// About the width of a letter.
const LETTER: f64 = 7.0;

/// Several values of one name.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    /// Name of the row.
    pub(crate) name: String,
    /// Values, one per mark; `None` where a value is not known.
    pub(crate) values: Vec<Option<f64>>,
    /// Text of the values.
    pub(crate) text: String,
}

/// A bar of one name.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    /// Name of the row.
    pub(crate) name: String,
    /// Lengths of its parts; 0 where it has none of a kind.
    pub(crate) parts: Vec<f64>,
    /// Text of the whole.
    pub(crate) text: String,
}

/// Draws rows of marks. The marks differ in shape as well as in colour.
pub(super) fn ranges(marks: &[String], rows: &[Range], unit: Unit, title: &str) -> String {
    let head = 24.0;
    let scale = Scale::of(unit, rows.iter().flat_map(|row| row.values.iter().copied().flatten()));
    let floor = head + ROW * rows.len() as f64;
    let x = |value: f64| scale.coordinate(value, LEFT, RIGHT);
    let mut svg = open((NARROW, floor + BOTTOM), title);
    let mut at = LEFT + 5.0;
    for (number, name) in marks.iter().enumerate() {
        mark(&mut svg, number, at, 10.0);
        let _ = writeln!(svg, "<text class=\"name\" x=\"{:.1}\" y=\"14\">{}</text>", at + 11.0, escape(name));
        at += 36.0 + LETTER * name.chars().count() as f64;
    }
    axis(&mut svg, &scale, unit, (head, floor));
    for (number, row) in rows.iter().enumerate() {
        let top = head + ROW * number as f64;
        names(&mut svg, &row.name, &row.text, top + 15.0);
        let known = || row.values.iter().copied().flatten();
        let (least, most) = known().fold((f64::MAX, f64::MIN), |(l, m), value| (l.min(value), m.max(value)));
        if least <= most {
            let (from, to, y) = (x(least), x(most), top + 29.0);
            let _ = writeln!(svg, "<path class=\"whisker\" d=\"M{from:.1} {y:.1}H{to:.1}\"/>");
        }
        for (number, value) in row.values.iter().enumerate() {
            if let Some(value) = value {
                mark(&mut svg, number, x(*value), top + 29.0);
            }
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Draws rows of bars that consist of parts.
pub(super) fn stacks(parts: &[String], rows: &[Stack], unit: Unit, title: &str) -> String {
    let entries: Vec<(String, usize, bool)> =
        parts.iter().enumerate().map(|(colour, name)| (name.clone(), colour, false)).collect();
    let (key, height) = legend(&entries, (LEFT, RIGHT), 10.0);
    let head = height + 6.0;
    let whole = |row: &Stack| row.parts.iter().sum::<f64>();
    let scale = Scale::of(unit, rows.iter().map(whole));
    let floor = head + ROW * rows.len() as f64;
    let mut svg = open((NARROW, floor + BOTTOM), title);
    svg.push_str(&key);
    axis(&mut svg, &scale, unit, (head, floor));
    for (number, row) in rows.iter().enumerate() {
        let top = head + ROW * number as f64;
        names(&mut svg, &row.name, &row.text, top + 15.0);
        let mut from = 0.0;
        for (colour, part) in row.parts.iter().enumerate().filter(|(_, part)| **part > 0.0) {
            let (start, end) =
                (scale.coordinate(from, LEFT, RIGHT), scale.coordinate(from + part, LEFT, RIGHT));
            let _ = writeln!(
                svg,
                "<rect class=\"f{}\" x=\"{start:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\"/>",
                colour % COLOURS,
                top + 22.0,
                // A small part stays visible.
                (end - start).max(0.8)
            );
            from += part;
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Writes the name and the text of a row. A name that would reach its text is cut.
fn names(svg: &mut String, name: &str, text: &str, y: f64) {
    let room = (RIGHT - LEFT) / LETTER - text.chars().count() as f64 - 2.0;
    let room = index(room.max(8.0));
    let short: String = if name.chars().count() > room {
        name.chars().take(room - 1).chain(['…']).collect()
    } else {
        name.to_owned()
    };
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{LEFT}\" y=\"{y:.1}\">{}<title>{}</title></text><text x=\"{RIGHT}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
        escape(&short),
        escape(name),
        escape(text)
    );
}

/// Draws the grid, the axis below it, and the numbers that have room.
fn axis(svg: &mut String, scale: &Scale, unit: Unit, (head, floor): (f64, f64)) {
    let mut used = f64::MIN;
    for (value, text) in scale.ticks() {
        let x = scale.coordinate(value, LEFT, RIGHT);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {head:.1}V{floor:.1}\"/>");
        let half = LETTER * text.chars().count() as f64 / 2.0;
        // Centred text at the ends of the axis would exceed the chart.
        let (anchor, at, start) = if x - half < 0.0 {
            ("start", 0.0, 0.0)
        } else if x + half > RIGHT {
            ("end", RIGHT, RIGHT - 2.0 * half)
        } else {
            ("middle", x, x - half)
        };
        if start > used {
            let y = floor + 16.0;
            let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
            used = start + 2.0 * half + LETTER;
        }
    }
    let y = floor + 34.0;
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M{LEFT} {floor:.1}H{RIGHT}\"/><text x=\"{RIGHT}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
        unit.label()
    );
}

/// Draws one of three marks: a disc, a diamond, a bar.
fn mark(svg: &mut String, number: usize, x: f64, y: f64) {
    let _ = match number % 3 {
        0 => writeln!(svg, "<circle class=\"f0\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>"),
        1 => {
            let top = y - 6.0;
            writeln!(svg, "<path class=\"f2\" d=\"M{x:.1} {top:.1}l6 6l-6 6l-6 -6z\"/>")
        }
        _ => {
            let (left, top) = (x - 2.0, y - 8.0);
            writeln!(svg, "<rect class=\"f1\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"4\" height=\"16\"/>")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_known_has_no_mark() {
        let row = |values: [Option<f64>; 3]| Range {
            name: "direct".to_owned(),
            values: values.to_vec(),
            text: "1 ms".to_owned(),
        };
        let marks = ["P50", "P95", "P99"].map(str::to_owned);
        let svg = ranges(&marks, &[row([Some(100.0), None, Some(9000.0)])], Unit::TimeLog, "t");
        // One of each in the legend.
        let count = |class: &str| svg.matches(&format!("class=\"{class}\"")).count();
        assert_eq!([count("f0"), count("f2"), count("f1")], [2, 1, 2], "{svg}");
        let none = ranges(&marks, &[row([None; 3])], Unit::TimeLog, "t");
        assert!(!none.contains("whisker"), "{none}");
    }

    #[test]
    fn parts_follow_each_other_and_a_long_name_is_cut() {
        let name = "n".repeat(80);
        let row = Stack { name: name.clone(), parts: vec![30.0, 0.0, 10.0], text: "40.0 µs".to_owned() };
        let parts = ["a", "b", "c"].map(str::to_owned);
        let svg = stacks(&parts, &[row], Unit::CpuTime, "t");
        assert!(svg.contains("x=\"6.0\" y=\"46.0\" width=\"351.0\""), "three quarters of the axis: {svg}");
        assert!(svg.contains("x=\"357.0\" y=\"46.0\" width=\"117.0\""), "the last quarter: {svg}");
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        assert!(svg.contains(&format!("<title>{name}</title>")) && svg.contains("n…<title>"), "{svg}");
    }
}
