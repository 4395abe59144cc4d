//! Chart of lines in panels that share the horizontal axis.
//!
//! A chart over time can be zoomed: its lines are in an inner drawing for each panel, of which the
//! script of the page shows a part. `data-zoom` has the ends of the axis and their coordinates.

use std::fmt::Write as _;

use super::scale::{Scale, Unit};
use super::{COLOURS, WIDTH, legend, open};
use crate::offline::render::escape::escape;
use crate::record::MAX_POINTS;

const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const GAP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// Most points that are kept of each stretch of a line.
const POINTS_PER_STRETCH: usize = 4;
/// How far the marks of a panel reach above it.
const ABOVE: f64 = 6.0;

/// Lines over one vertical axis.
#[derive(Debug)]
pub(crate) struct Panel {
    /// Title of the panel.
    pub(crate) name: String,
    /// Unit of the vertical axis.
    pub(crate) unit: Unit,
    /// Height of the panel; 150 is usual.
    pub(crate) height: f64,
    /// Lines of the panel.
    pub(crate) lines: Vec<Line>,
    /// A marked position on the horizontal axis, with a label.
    pub(crate) mark: Option<(f64, String)>,
}

/// A line of a panel.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Name of the series.
    pub(crate) name: String,
    /// Number of its colour.
    pub(crate) colour: usize,
    /// Whether the line is dashed, as for a limit or the offered rate.
    pub(crate) dashed: bool,
    /// Whether the value is constant from each point to the next.
    pub(crate) steps: bool,
    /// Whether each point has a dot: for few points that count individually.
    pub(crate) dots: bool,
    /// Points: horizontal and vertical value.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Line {
    /// Creates a solid line through points.
    pub(crate) fn new(name: impl Into<String>, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour, dashed: false, steps: false, dots: false, points }
    }
}

pub(super) fn draw(panels: &[Panel], across: Unit, title: &str) -> String {
    let all = panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let bottom = Scale::of(across, all.map(|point| point.0));
    // One legend for all panels when they show the same lines; otherwise each panel has its own
    // beside its title.
    let common = panels.windows(2).all(|pair| names(&pair[0]) == names(&pair[1]));
    let shared = panels.first().filter(|_| common).map(names).unwrap_or_default();
    let (key, key_height) =
        if shared.is_empty() { (String::new(), 0.0) } else { legend(&shared, (LEFT, WIDTH), 10.0) };
    let height = key_height + panels.iter().map(|panel| panel.height + GAP).sum::<f64>() + BOTTOM;
    let mut svg = open((WIDTH, height), title);
    let zooms = across == Unit::Clock;
    if zooms {
        let (from, until) = bottom.ends();
        let zoom = format!("<svg data-zoom=\"{from} {until} {LEFT} {}\" ", WIDTH - RIGHT);
        svg = svg.replacen("<svg ", &zoom, 1);
    }
    svg.push_str(&key);
    let mut top = key_height;
    for (number, panel) in panels.iter().enumerate() {
        top += GAP;
        let last = number + 1 == panels.len();
        if !common {
            // A letter is about 7 wide.
            let beside = LEFT + 24.0 + 7.0 * panel.name.chars().count() as f64;
            svg.push_str(&legend(&names(panel), (beside, WIDTH), top - 14.0).0);
        }
        draw_panel(&mut svg, panel, &bottom, &Place { top, first: number == 0, last, zooms });
        top += panel.height;
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\n</svg>",
        WIDTH - RIGHT,
        top + 36.0,
        across.label()
    );
    svg
}

/// Legend entries of a panel: name, colour, dashed.
fn names(panel: &Panel) -> Vec<(String, usize, bool)> {
    panel.lines.iter().map(|line| (line.name.clone(), line.colour, line.dashed)).collect()
}

/// Where a panel is among the others.
struct Place {
    top: f64,
    first: bool,
    last: bool,
    /// Whether the chart can be zoomed.
    zooms: bool,
}

fn draw_panel(svg: &mut String, panel: &Panel, bottom: &Scale, place: &Place) {
    let top = place.top;
    let floor = top + panel.height;
    let side = Scale::of(panel.unit, panel.lines.iter().flat_map(|line| &line.points).map(|point| point.1));
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
        top - 10.0,
        escape(&panel.name)
    );
    for (value, text) in side.ticks() {
        let y = side.coordinate(value, floor, top);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    let texts = if place.last { " data-texts=\"\"" } else { "" };
    let _ = writeln!(svg, "<g data-floor=\"{floor:.1}\"{texts}>");
    for (value, text) in bottom.ticks() {
        let x = bottom.coordinate(value, LEFT, WIDTH - RIGHT);
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{x:.1} {floor:.1}v4\"/>");
        if place.last {
            // Centred text at the end of the axis would exceed the chart.
            let anchor = if x > WIDTH - RIGHT - 20.0 { "end" } else { "middle" };
            let at = if anchor == "end" { WIDTH - RIGHT } else { x };
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
                floor + 18.0
            );
        }
    }
    let _ = writeln!(svg, "</g>\n<path class=\"axis\" d=\"M{LEFT} {floor:.1}H{:.1}\"/>", WIDTH - RIGHT);
    if place.zooms {
        let (y, width, height) = (top - ABOVE, WIDTH - RIGHT - LEFT, panel.height + ABOVE + 1.0);
        let _ = writeln!(
            svg,
            "<svg x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\" viewBox=\"{LEFT} {y:.1} {width} {height:.1}\" preserveAspectRatio=\"none\">"
        );
    }
    if let Some((at, _)) = &panel.mark {
        let x = bottom.coordinate(*at, LEFT, WIDTH - RIGHT);
        let _ = writeln!(svg, "<path class=\"mark\" d=\"M{x:.1} {:.1}V{floor:.1}\"/>", top - ABOVE);
    }
    for line in &panel.lines {
        draw_line(svg, line, |point| {
            (bottom.coordinate(point.0, LEFT, WIDTH - RIGHT), side.coordinate(point.1, floor, top))
        });
    }
    if place.zooms {
        svg.push_str("</svg>\n");
    }
    if let Some((at, word)) = panel.mark.as_ref().filter(|_| place.first) {
        label(svg, bottom, (*at, floor - 8.0), word);
    }
}

/// Label of a marked position: the horizontal value, and the vertical coordinate.
fn label(svg: &mut String, bottom: &Scale, (at, y): (f64, f64), word: &str) {
    let x = bottom.coordinate(at, LEFT, WIDTH - RIGHT);
    let (anchor, beside) = if x > WIDTH / 2.0 { ("end", -6.0) } else { ("start", 6.0) };
    let _ = writeln!(
        svg,
        "<text class=\"halo\" data-at=\"{at}\" data-dx=\"{beside}\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        x + beside,
        escape(word)
    );
}

/// Reduces a line with too many points: each stretch keeps its first, lowest, highest and last
/// point, so that no peak is lost.
fn reduced(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let mut seen = Vec::new();
    for stretch in points.chunks((points.len() * POINTS_PER_STRETCH).div_ceil(MAX_POINTS)) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [
            stretch.first(),
            stretch.iter().min_by(by_value),
            stretch.iter().max_by(by_value),
            stretch.last(),
        ];
        let mut kept: Vec<(f64, f64)> = ends.into_iter().flatten().copied().collect();
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept.dedup();
        seen.extend(kept);
    }
    seen
}

fn draw_line(svg: &mut String, line: &Line, place: impl Fn((f64, f64)) -> (f64, f64)) {
    let colour = line.colour % COLOURS;
    let mut path = String::new();
    for (number, point) in reduced(&line.points).into_iter().enumerate() {
        let (x, y) = place(point);
        let _ = match (number, line.steps) {
            (0, _) => write!(path, "M{x:.1} {y:.1}"),
            (_, true) => write!(path, "H{x:.1}V{y:.1}"),
            (_, false) => write!(path, "L{x:.1} {y:.1}"),
        };
        if line.dots {
            let _ = writeln!(svg, "<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
        }
    }
    let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
    let _ = writeln!(svg, "<path class=\"plot l{colour}\" d=\"{path}\"{dash}/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_among_thousands_of_points_is_seen() {
        let mut points: Vec<(f64, f64)> = (0..4000).map(|at| (f64::from(at), 1.0)).collect();
        points[1237].1 = 50.0;
        points[2411].1 = 0.0;
        let seen = reduced(&points);
        assert!(seen.len() <= MAX_POINTS + POINTS_PER_STRETCH, "{}", seen.len());
        assert!(seen.contains(&(1237.0, 50.0)) && seen.contains(&(2411.0, 0.0)));
        assert_eq!((seen[0], seen[seen.len() - 1]), ((0.0, 1.0), (3999.0, 1.0)));
        assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn only_a_chart_over_time_zooms_and_its_lines_are_in_inner_drawings() {
        let line = Line::new("a", 0, vec![(2.0, 5.0), (12.5, 7.0)]);
        let panel = |name: &str| Panel {
            name: name.to_owned(),
            unit: Unit::Rate,
            height: 100.0,
            lines: vec![line.clone()],
            mark: Some((4.0, "from here".to_owned())),
        };
        let panels = [panel("one"), panel("two")];
        let over_time = draw(&panels, Unit::Clock, "t");
        assert!(over_time.starts_with("<svg data-zoom=\"2 12.5 74 986\" viewBox=\"0 0 1000 "), "{over_time}");
        assert_eq!(over_time.matches("<svg x=\"74\"").count(), 2, "{over_time}");
        assert_eq!(over_time.matches("</svg>").count(), 3, "{over_time}");
        assert_eq!(over_time.matches("data-texts").count(), 1, "one row of numbers, at the bottom");
        assert_eq!(over_time.matches("data-at=\"4\"").count(), 1, "one label, at the top");
        let by_iteration = draw(&panels, Unit::Iteration, "t");
        assert!(!by_iteration.contains("data-zoom"), "{by_iteration}");
        assert_eq!(by_iteration.matches("<svg").count(), 1);
    }
}
