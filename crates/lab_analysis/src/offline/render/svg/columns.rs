//! Chart of counts in equal bins: one row of columns per name, over a common axis.

use std::fmt::Write as _;

use super::scale::{Scale, Unit};
use super::{COLOURS, WIDTH, open};
use crate::offline::render::escape::escape;

const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const ROW: f64 = 92.0;
const GAP: f64 = 30.0;

pub(super) fn draw(names: &[String], counts: &[Vec<u64>], (until, unit): (f64, Unit), title: &str) -> String {
    let rows = names.len().min(counts.len());
    let floor = (ROW + GAP) * rows as f64;
    let across = Scale::of(unit, [0.0, until].into_iter());
    let x = |value: f64| across.coordinate(value, LEFT, WIDTH - RIGHT);
    let mut svg = open((WIDTH, floor + 44.0), title);
    for (number, (name, bins)) in names.iter().zip(counts).enumerate() {
        let base = (ROW + GAP) * (number as f64 + 1.0);
        let most = bins.iter().copied().max().unwrap_or(0).max(1);
        let side = Scale::of(Unit::Number, [0.0, most as f64].into_iter());
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
            base - ROW - 8.0,
            escape(name)
        );
        for (value, text) in
            side.ticks().into_iter().filter(|tick| (tick.0 - tick.0.round()).abs() < 1e-9).step_by(2)
        {
            let y = side.coordinate(value, base, base - ROW);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0
            );
        }
        let width = until / bins.len().max(1) as f64;
        for (bin, &count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (from, to) = (x(width * bin as f64), x(width * (bin as f64 + 1.0)));
            // A count of one among many stays visible.
            let top = side.coordinate(count as f64, base, base - ROW).min(base - 1.5);
            let _ = writeln!(
                svg,
                "<rect class=\"f{}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                number % COLOURS,
                from + 0.5,
                (to - from - 1.0).max(1.0),
                base - top
            );
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {base:.1}H{:.1}\"/>", WIDTH - RIGHT);
    }
    for (value, text) in across.ticks() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            x(value),
            floor + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">time; the height is a number of revocations</text>\n</svg>",
        WIDTH - RIGHT,
        floor + 36.0
    );
    svg
}
