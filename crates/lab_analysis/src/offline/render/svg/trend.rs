//! Small charts of one figure over reports, with intervals, levels and the places of changes.

use std::fmt::Write as _;

use super::scale::{Scale, Unit};
use crate::offline::render::escape::escape;

/// Size of a chart, in its own coordinates: about the width of a column of the page.
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 28.0;
const FLOOR: f64 = HEIGHT - 22.0;

/// A figure over reports.
#[derive(Debug, Clone)]
pub(crate) struct Trend {
    /// Name of the figure.
    pub(crate) name: String,
    /// Unit of the vertical axis.
    pub(crate) unit: Unit,
    /// Number of reports on the horizontal axis; a figure need not have a value in each.
    pub(crate) reports: usize,
    /// Values in order.
    pub(crate) points: Vec<TrendPoint>,
    /// Levels between the changes; empty without a change.
    pub(crate) levels: Vec<Level>,
    /// Texts below both ends of the horizontal axis.
    pub(crate) ends: [String; 2],
}

/// A value of a figure in one report.
#[derive(Debug, Clone)]
pub(crate) struct TrendPoint {
    /// Index of the report.
    pub(crate) report: usize,
    /// Value of the figure.
    pub(crate) value: f64,
    /// Lower and upper end of the interval of the value.
    pub(crate) interval: Option<(f64, f64)>,
    /// Whether the value is evidence; other values are hollow and outside of the line.
    pub(crate) evidence: bool,
    /// Text that describes the value, which the browser shows at the point.
    pub(crate) text: String,
}

/// A level of a figure from one report to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    /// Index of the first report.
    pub(crate) from: usize,
    /// Index of the last report.
    pub(crate) until: usize,
    /// Median of the figure.
    pub(crate) value: f64,
}

/// Draws the charts in one element.
pub(super) fn draw(trends: &[Trend]) -> String {
    let mut text = "<div class=\"trends\">\n".to_owned();
    for trend in trends {
        draw_trend(&mut text, trend);
    }
    text.push_str("</div>\n");
    text
}

fn draw_trend(svg: &mut String, trend: &Trend) {
    let ends = |point: &TrendPoint| {
        let (low, high) = point.interval.unwrap_or((point.value, point.value));
        [low, high, point.value]
    };
    let side = Scale::of(trend.unit, trend.points.iter().flat_map(ends));
    let latest = trend.points.last().map_or("", |point| point.text.as_str());
    let _ = writeln!(
        svg,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}, latest {}\">\n\
         <text class=\"name\" x=\"4\" y=\"14\">{}</text>",
        escape(&trend.name),
        escape(latest),
        escape(&trend.name)
    );
    let y = |value: f64| side.coordinate(value, FLOOR, TOP);
    let ticks = side.ticks();
    // At most four labels fit below each other.
    for (value, text) in ticks.iter().step_by(ticks.len().div_ceil(4).max(1)) {
        let at = y(*value);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {FLOOR}H{:.1}\"/>", WIDTH - RIGHT);
    draw_ends(svg, trend);
    draw_levels(svg, trend, y);
    draw_points(svg, trend, y);
    svg.push_str("</svg>\n");
}

/// Horizontal position of a report; a single report is in the middle.
fn x(trend: &Trend, report: f64) -> f64 {
    let share = if trend.reports > 1 { report / (trend.reports - 1) as f64 } else { 0.5 };
    LEFT + 6.0 + share * (WIDTH - RIGHT - LEFT - 12.0)
}

fn draw_ends(svg: &mut String, trend: &Trend) {
    let [first, last] = &trend.ends;
    let texts = [(first, LEFT, "start"), (last, WIDTH - RIGHT, "end")];
    let shown = if trend.reports > 1 { &texts[..] } else { &texts[1..] };
    for (text, at, anchor) in shown {
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            FLOOR + 16.0,
            escape(text)
        );
    }
}

fn draw_levels(svg: &mut String, trend: &Trend, y: impl Fn(f64) -> f64) {
    for pair in trend.levels.windows(2) {
        let at = x(trend, f64::midpoint(pair[0].until as f64, pair[1].from as f64));
        let _ = writeln!(svg, "<path class=\"mark\" d=\"M{at:.1} {:.1}V{FLOOR}\"/>", TOP - 6.0);
    }
    for level in &trend.levels {
        let _ = writeln!(
            svg,
            "<path class=\"level\" d=\"M{:.1} {:.1}H{:.1}\"/>",
            x(trend, level.from as f64) - 4.0,
            y(level.value),
            x(trend, level.until as f64) + 4.0
        );
    }
}

fn draw_points(svg: &mut String, trend: &Trend, y: impl Fn(f64) -> f64) {
    let mut path = String::new();
    for point in trend.points.iter().filter(|point| point.evidence) {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x(trend, point.report as f64), y(point.value));
    }
    if !path.is_empty() {
        let _ = writeln!(svg, "<path class=\"trend l0\" d=\"{path}\"/>");
    }
    for point in &trend.points {
        let at = x(trend, point.report as f64);
        if let Some((low, high)) = point.interval {
            let _ = writeln!(svg, "<path class=\"trend l7\" d=\"M{at:.1} {:.1}V{:.1}\"/>", y(low), y(high));
        }
        let class = if point.evidence { "f0" } else { "doubted" };
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}</title></circle>",
            y(point.value),
            escape(&point.text)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(values: &[f64]) -> Trend {
        let point = |(report, value): (usize, &f64)| TrendPoint {
            report,
            value: *value,
            interval: Some((value * 0.9, value * 1.1)),
            evidence: report != 1,
            text: format!("<{value}>"),
        };
        Trend {
            name: "P50 & more".to_owned(),
            unit: Unit::Time,
            reports: values.len(),
            points: values.iter().enumerate().map(point).collect(),
            levels: Vec::new(),
            ends: ["2026-11-01".to_owned(), "2026-11-28".to_owned()],
        }
    }

    #[test]
    fn what_is_no_evidence_is_hollow_and_outside_of_the_line() {
        let text = draw(&[trend(&[100.0, 900.0, 110.0])]);
        assert_eq!((text.matches("class=\"f0\"").count(), text.matches("class=\"doubted\"").count()), (2, 1));
        let line = text.lines().find(|line| line.contains("trend l0")).unwrap();
        assert_eq!(line.matches('L').count(), 1, "{line}");
        assert!(text.contains("P50 &amp; more") && text.contains("<title>&lt;110&gt;</title>"), "{text}");
        assert!(text.contains(">2026-11-01<") && text.contains(">2026-11-28<"));
    }

    #[test]
    fn a_change_has_a_mark_between_its_reports_and_a_level_on_either_side() {
        let levels = [(0, 1, 100.0), (2, 3, 200.0)].map(|(from, until, value)| Level { from, until, value });
        let with = Trend { levels: levels.to_vec(), ..trend(&[100.0, 100.0, 200.0, 200.0]) };
        let text = draw(&[with]);
        assert_eq!((text.matches("class=\"level\"").count(), text.matches("class=\"mark\"").count()), (2, 1));
    }

    #[test]
    fn one_report_and_none_are_drawn_too() {
        for values in [&[][..], &[5.0]] {
            let text = draw(&[trend(values)]);
            assert!(
                !text.contains("NaN") && !text.contains("inf") && text.ends_with("</svg>\n</div>\n"),
                "{text}"
            );
        }
    }
}
