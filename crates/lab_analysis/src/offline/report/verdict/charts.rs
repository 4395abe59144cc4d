//! Charts: the two of a verdict, latency by variant and CPU by component.
//!
//! Owns: which variants and components they show. Does not own: how they are drawn.

use super::paths::Paths;
use crate::formatting;
use crate::offline::render::Chart;
use crate::offline::render::svg::{COLOURS, Range, Stack, Unit};
use crate::offline::report::LATENCIES;
use crate::record::Variant;
use crate::statistics::{Figure, figures, median};

/// Most rows of a chart.
const MAX_ROWS: usize = 12;

/// Charts of the compared variants; those without figures are left out.
pub(super) fn charts(paths: &Paths<'_>) -> Vec<Chart> {
    [latency(paths), cpu(paths)].into_iter().flatten().collect()
}

/// Median over iterations; `None` where no iteration has the figure.
fn usual(variant: &Variant, figure: &Figure) -> Option<f64> {
    let values = figures(variant, figure);
    (!values.is_empty()).then(|| median(&values))
}

/// Name of a row. Invalid figures are drawn, because they may show why, but never without the mark.
fn row_name(paths: &Paths<'_>, variant: &Variant, is_latency: bool) -> String {
    let mark = if paths.is_invalid(variant, is_latency) { " (invalid)" } else { "" };
    format!("{}{mark}", variant.name)
}

/// Title of a chart, with the number of rows that it leaves out.
fn title(about: &str, rows: usize) -> String {
    match rows.saturating_sub(MAX_ROWS) {
        0 => about.to_owned(),
        more => format!("{about} ({more} more variants in the tables)"),
    }
}

fn latency(paths: &Paths<'_>) -> Option<Chart> {
    let row = |variant: &&Variant| {
        let values: Vec<Option<f64>> =
            paths.wait.percentiles.iter().map(|figure| usual(variant, figure)).collect();
        let known: Vec<String> = values.iter().flatten().map(|value| formatting::time(*value)).collect();
        (!known.is_empty()).then(|| Range {
            name: row_name(paths, variant, true),
            values,
            text: known.join(" · "),
        })
    };
    let mut rows: Vec<Range> = paths.variants.iter().filter_map(row).collect();
    let about = match paths.wait.name {
        None => "Latency by variant: medians over iterations".to_owned(),
        Some(name) => format!("The {name}, by variant: medians over iterations"),
    };
    let title = title(&about, rows.len());
    rows.truncate(MAX_ROWS);
    let marks = LATENCIES.iter().map(ToString::to_string).collect();
    (!rows.is_empty()).then(|| Chart::ranges(title, marks, rows, Unit::TimeLog))
}

/// CPU per request of each observed component, or cores in use where CPU per request is not known.
fn cpu(paths: &Paths<'_>) -> Option<Chart> {
    let per_request = |name: &str| Figure::CpuPerRequest(name.to_owned());
    let cores = |name: &str| Figure::Cores(name.to_owned());
    let of_request = ("CPU per request by component: medians over iterations", Unit::CpuTime);
    let in_use = ("Cores in use by component: medians over iterations", Unit::Cores);
    stacks(paths, per_request, of_request).or_else(|| stacks(paths, cores, in_use))
}

fn stacks(paths: &Paths<'_>, figure: impl Fn(&str) -> Figure, (about, unit): (&str, Unit)) -> Option<Chart> {
    let of = |variant: &&Variant| -> Vec<(String, f64)> {
        let names = variant.component_names().into_iter();
        names.filter_map(|name| Some((name.to_owned(), usual(variant, &figure(name))?))).collect()
    };
    let mut all: Vec<(&Variant, Vec<(String, f64)>)> =
        paths.variants.iter().map(|variant| (*variant, of(variant))).collect();
    all.retain(|(_, parts)| !parts.is_empty());
    let title = title(about, all.len());
    all.truncate(MAX_ROWS);
    let names = components(&all);
    let row = |(variant, parts): &(&Variant, Vec<(String, f64)>)| {
        let mut lengths = vec![0.0; names.len()];
        for (name, value) in parts {
            // What is not among the names is counted as the last of them, the others.
            let at = names.iter().position(|known| known == name).unwrap_or(names.len() - 1);
            lengths[at] += value;
        }
        let whole: f64 = lengths.iter().sum();
        let text = if unit == Unit::CpuTime { formatting::time(whole) } else { formatting::digits(whole) };
        Stack { name: row_name(paths, variant, false), parts: lengths, text }
    };
    let rows: Vec<Stack> = all.iter().map(row).collect();
    (!rows.is_empty()).then(|| Chart::stacks(title, names, rows, unit))
}

/// Names of the components in the order of their first appearance. Where there are more than
/// colours, the smallest are the others.
fn components(all: &[(&Variant, Vec<(String, f64)>)]) -> Vec<String> {
    let mut sums: Vec<(String, f64)> = Vec::new();
    for (name, value) in all.iter().flat_map(|(_, parts)| parts) {
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += value,
            None => sums.push((name.clone(), *value)),
        }
    }
    let mut names: Vec<String> = sums.iter().map(|(name, _)| name.clone()).collect();
    if names.len() > COLOURS {
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums.truncate(COLOURS - 1);
        names.retain(|name| sums.iter().any(|(kept, _)| kept == name));
        names.push("others".to_owned());
    }
    names
}
