//! SVG charts, in few forms, each with units on its axes.
//!
//! Owns: panels of lines and steps over a common axis, horizontal bars with intervals, columns, and
//! two narrow charts with one row per name, which phones show without scrolling, small charts of
//! figures over reports, and flame graphs.
//! Does not own: colours. The style of the page assigns them to the classes `l0` … `l7` (lines) and
//! `f0` … `f7` (fills). So one chart serves light and dark.

mod bars;
mod columns;
mod flame;
mod narrow;
mod panels;
mod scale;
mod trend;

pub(crate) use bars::Bar;
pub(crate) use flame::{FlameCall, MIN_SHARE};
pub(crate) use narrow::{Range, Stack};
pub(crate) use panels::{Line, Panel};
pub(crate) use scale::Unit;
pub(crate) use trend::{Level, Trend, TrendPoint};

/// Width of a chart, in its own coordinates.
const WIDTH: f64 = 1000.0;
/// Width of a narrow chart: a phone shows it in nearly its own size.
const NARROW: f64 = 480.0;
/// Number of colours that are easy to distinguish.
pub(crate) const COLOURS: usize = 8;

/// A chart with a title.
#[derive(Debug)]
pub struct Chart {
    /// What the chart shows.
    pub title: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Panels { panels: Vec<Panel>, across: Unit },
    Bars { bars: Vec<Bar>, unit: Unit },
    Columns { names: Vec<String>, counts: Vec<Vec<u64>>, until: f64, unit: Unit },
    Ranges { marks: Vec<String>, rows: Vec<Range>, unit: Unit },
    Stacks { parts: Vec<String>, rows: Vec<Stack>, unit: Unit },
    Trends(Vec<Trend>),
    Flame(Vec<FlameCall>),
}

impl Chart {
    /// Creates panels below each other over one horizontal axis.
    pub(crate) fn panels(title: impl Into<String>, panels: Vec<Panel>, across: Unit) -> Self {
        Self { title: title.into(), kind: Kind::Panels { panels, across } }
    }

    /// Creates horizontal bars with intervals.
    pub(crate) fn bars(title: impl Into<String>, bars: Vec<Bar>, unit: Unit) -> Self {
        Self { title: title.into(), kind: Kind::Bars { bars, unit } }
    }

    /// Creates columns of counts in equal bins from 0 to `until`, with the same bins for each name.
    pub(crate) fn columns(
        title: impl Into<String>,
        names: Vec<String>,
        counts: Vec<Vec<u64>>,
        (until, unit): (f64, Unit),
    ) -> Self {
        Self { title: title.into(), kind: Kind::Columns { names, counts, until, unit } }
    }

    /// Creates a narrow chart of several values per row, which `marks` names.
    pub(crate) fn ranges(title: impl Into<String>, marks: Vec<String>, rows: Vec<Range>, unit: Unit) -> Self {
        Self { title: title.into(), kind: Kind::Ranges { marks, rows, unit } }
    }

    /// Creates a narrow chart of bars that consist of `parts`.
    pub(crate) fn stacks(title: impl Into<String>, parts: Vec<String>, rows: Vec<Stack>, unit: Unit) -> Self {
        Self { title: title.into(), kind: Kind::Stacks { parts, rows, unit } }
    }

    /// Creates small charts beside each other, each of one figure over the same reports.
    pub(crate) fn trends(title: impl Into<String>, trends: Vec<Trend>) -> Self {
        Self { title: title.into(), kind: Kind::Trends(trends) }
    }

    /// Creates a flame graph: calls below each other, each as wide as its share.
    pub(crate) fn flame(title: impl Into<String>, calls: Vec<FlameCall>) -> Self {
        Self { title: title.into(), kind: Kind::Flame(calls) }
    }

    /// Renders the chart as an SVG element; several small ones are in one `div`.
    pub fn svg(&self) -> String {
        match &self.kind {
            Kind::Panels { panels, across } => panels::draw(panels, *across, &self.title),
            Kind::Bars { bars, unit } => bars::draw(bars, *unit, &self.title),
            Kind::Columns { names, counts, until, unit } => {
                columns::draw(names, counts, (*until, *unit), &self.title)
            }
            Kind::Ranges { marks, rows, unit } => narrow::ranges(marks, rows, *unit, &self.title),
            Kind::Stacks { parts, rows, unit } => narrow::stacks(parts, rows, *unit, &self.title),
            Kind::Trends(trends) => trend::draw(trends),
            Kind::Flame(calls) => flame::draw(calls, &self.title),
        }
    }
}

/// Opening tag of an SVG element of this width and height.
fn open((width, height): (f64, f64), title: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{}\">\n",
        super::escape::escape(title)
    )
}

/// Legend: names of series with their colours, in lines from `left` to `right`. Returns the SVG
/// text and its height.
fn legend(names: &[(String, usize, bool)], (left, right): (f64, f64), top: f64) -> (String, f64) {
    use std::fmt::Write as _;
    let (mut text, mut x, mut y) = (String::new(), left, top);
    for (name, colour, dashed) in names {
        // A letter is about 7 wide at this font size.
        let width = 34.0 + 7.0 * name.chars().count() as f64;
        if x + width > right && x > left {
            (x, y) = (left, y + 18.0);
        }
        let dash = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let _ = writeln!(
            text,
            "<line class=\"plot l{}\" x1=\"{x:.0}\" y1=\"{y:.0}\" x2=\"{:.0}\" y2=\"{y:.0}\"{dash}/><text class=\"name\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            colour % COLOURS,
            x + 18.0,
            x + 24.0,
            y + 4.0,
            super::escape::escape(name)
        );
        x += width;
    }
    (text, y - top + 18.0)
}
