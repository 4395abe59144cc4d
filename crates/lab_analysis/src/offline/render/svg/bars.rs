//! Chart of horizontal bars, each with the interval of the true value.

use std::fmt::Write as _;

use super::scale::{Scale, Unit};
use super::{COLOURS, WIDTH, open};
use crate::offline::render::escape::escape;

const LEFT: f64 = 190.0;
const RIGHT: f64 = 150.0;
const ROW: f64 = 34.0;

/// A horizontal bar.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    /// Name of the bar.
    pub(crate) name: String,
    /// Start of the bar: each part of a whole starts where the former part ends.
    pub(crate) from: f64,
    /// Length of the bar; may be negative.
    pub(crate) length: f64,
    /// Lower and upper end of the interval of its length.
    pub(crate) interval: Option<(f64, f64)>,
    /// Number of its colour.
    pub(crate) colour: usize,
    /// Text beside the bar.
    pub(crate) text: String,
}

pub(super) fn draw(bars: &[Bar], unit: Unit, title: &str) -> String {
    let ends = bars.iter().flat_map(|bar| {
        let (low, high) = bar.interval.unwrap_or((bar.length, bar.length));
        [bar.from, bar.from + bar.length, bar.from + low, bar.from + high]
    });
    let scale = Scale::of(unit, ends);
    let floor = 10.0 + ROW * bars.len() as f64;
    let x = |value: f64| scale.coordinate(value, LEFT, WIDTH - RIGHT);
    let mut svg = open((WIDTH, floor + 44.0), title);
    for (value, text) in scale.ticks() {
        let at = x(value);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} 10V{floor:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            floor + 18.0
        );
    }
    for (number, bar) in bars.iter().enumerate() {
        let middle = 10.0 + ROW * (number as f64 + 0.5);
        let (from, until) = (x(bar.from.min(bar.from + bar.length)), x(bar.from.max(bar.from + bar.length)));
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"f{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"18\" rx=\"2\"/>",
            LEFT - 10.0,
            middle + 4.0,
            escape(&bar.name),
            bar.colour % COLOURS,
            middle - 9.0,
            (until - from).max(1.0)
        );
        let mut right = until;
        if let Some((low, high)) = bar.interval {
            let (low, high) = (x(bar.from + low), x(bar.from + high));
            right = right.max(high);
            let (up, down) = (middle - 5.0, middle + 5.0);
            let _ = writeln!(
                svg,
                "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {up:.1}V{down:.1}M{high:.1} {up:.1}V{down:.1}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            right + 8.0,
            middle + 4.0,
            escape(&bar.text)
        );
    }
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M{LEFT} {floor:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n</svg>",
        WIDTH - RIGHT,
        WIDTH - RIGHT,
        floor + 36.0,
        unit.label()
    );
    svg
}
