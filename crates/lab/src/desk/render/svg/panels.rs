//! Lines in panels that share the axis along the bottom.

use std::fmt::Write as _;

use super::scale::{Scale, Unit};
use super::{COLOURS, WIDTH, legend, open};
use crate::desk::render::html::escape;

const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const GAP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// More points than this are not seen on this width.
const MOST_POINTS: usize = 500;

/// Lines over one vertical axis.
#[derive(Debug)]
pub(crate) struct Panel {
    /// What is shown.
    pub(crate) name: String,
    /// Its unit.
    pub(crate) unit: Unit,
    /// Height, 150 is usual.
    pub(crate) height: f64,
    /// The lines.
    pub(crate) lines: Vec<Line>,
    /// A place along the bottom to mark, with a word.
    pub(crate) mark: Option<(f64, String)>,
}

/// A line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Its name.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) colour: usize,
    /// Broken: a limit, or what does not count.
    pub(crate) dashed: bool,
    /// Constant from each point to the next.
    pub(crate) steps: bool,
    /// A dot at each point: points are few and stand for themselves.
    pub(crate) dots: bool,
    /// Along the bottom, and up.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Line {
    /// A line through points.
    pub(crate) fn new(name: impl Into<String>, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour, dashed: false, steps: false, dots: false, points }
    }
}

pub(super) fn draw(panels: &[Panel], across: Unit, title: &str) -> String {
    let all = panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let bottom = Scale::of(across, all.map(|point| point.0));
    let names = names(panels);
    let (legend, legend_height) = legend(&names, LEFT, 10.0);
    let height = legend_height + panels.iter().map(|panel| panel.height + GAP).sum::<f64>() + BOTTOM;
    let mut svg = open(height, title);
    svg.push_str(&legend);
    let mut top = legend_height;
    for (number, panel) in panels.iter().enumerate() {
        top += GAP;
        let last = number + 1 == panels.len();
        draw_panel(&mut svg, panel, &bottom, (top, last));
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

/// Each name once, whatever the number of panels it is in.
fn names(panels: &[Panel]) -> Vec<(String, usize, bool)> {
    let mut names: Vec<(String, usize, bool)> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        let entry = (line.name.clone(), line.colour, line.dashed);
        if !names.contains(&entry) {
            names.push(entry);
        }
    }
    names
}

fn draw_panel(svg: &mut String, panel: &Panel, bottom: &Scale, (top, last): (f64, bool)) {
    let floor = top + panel.height;
    let side = Scale::of(panel.unit, panel.lines.iter().flat_map(|line| &line.points).map(|point| point.1));
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
        top - 10.0,
        escape(&panel.name)
    );
    for (value, text) in side.ticks() {
        let y = side.at(value, floor, top);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    for (value, text) in bottom.ticks() {
        let x = bottom.at(value, LEFT, WIDTH - RIGHT);
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{x:.1} {floor:.1}v4\"/>");
        if last {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                floor + 18.0
            );
        }
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {floor:.1}H{:.1}\"/>", WIDTH - RIGHT);
    if let Some((at, word)) = &panel.mark {
        let x = bottom.at(*at, LEFT, WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<path class=\"mark\" d=\"M{x:.1} {top:.1}V{floor:.1}\"/><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 6.0,
            top + 12.0,
            escape(word)
        );
    }
    for line in &panel.lines {
        draw_line(svg, line, |point| (bottom.at(point.0, LEFT, WIDTH - RIGHT), side.at(point.1, floor, top)));
    }
}

fn draw_line(svg: &mut String, line: &Line, place: impl Fn((f64, f64)) -> (f64, f64)) {
    let colour = line.colour % COLOURS;
    let every = line.points.len().div_ceil(MOST_POINTS).max(1);
    let last = line.points.len().saturating_sub(1);
    let seen = line.points.iter().enumerate().filter(|(at, _)| at.is_multiple_of(every) || *at == last);
    let mut path = String::new();
    for (number, (_, &point)) in seen.enumerate() {
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
