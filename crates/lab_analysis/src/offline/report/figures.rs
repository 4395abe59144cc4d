//! Figures: report sections with latency, throughput and endings, over all iterations and per
//! iteration.

use std::collections::BTreeSet;

use super::LATENCIES;
use super::published::Sources;
use crate::formatting;
use crate::offline::render::svg::{COLOURS, Line, Panel, Unit};
use crate::offline::render::{Chart, Section, Table};
use crate::record::{Outcome, Record, Variant};
use crate::statistics::{Figure, display, figures, interval, median, pooled};

/// Most iterations that are shown one by one without unfolding the table.
const MAX_SHOWN: usize = 12;

/// A cell with a median over iterations, and its interval below it.
fn cell(variant: &Variant, figure: &Figure) -> String {
    let values = figures(variant, figure);
    if values.is_empty() {
        return "–".to_owned();
    }
    let of = interval(&values);
    let below = of.map_or(String::new(), |of| display::interval(figure, &of));
    format!("{}\n{below}", display::figure(figure, median(&values)))
}

/// Section with one line per variant.
pub(super) fn summary(record: &Record) -> Section {
    let mut section = Section::new("Summary");
    let caption = "Medians over iterations, with the interval of the true median below";
    let mut table = Table::new(caption, ["variant", "P50", "P95", "P99", "throughput", "success"]);
    let sources = Sources::of(&record.reference);
    for variant in &record.variants {
        let mut row = vec![variant.name.clone()];
        row.extend(LATENCIES.iter().chain([&Figure::PerSecond]).map(|figure| cell(variant, figure)));
        let all =
            |outcome| variant.iterations.iter().map(|iteration| iteration.count(outcome)).sum::<u64>() as f64;
        // Requests that were due but never sent count as unsuccessful.
        let unsent = variant.iterations.iter().map(|iteration| iteration.unsent).sum::<u64>() as f64;
        let total = all(Outcome::Ok) + all(Outcome::Refused) + all(Outcome::Failed) + unsent;
        row.push(if total > 0.0 { formatting::percent(all(Outcome::Ok) / total) } else { "–".to_owned() });
        table.row(row);
        let beside = record.reference.iter().filter(|row| row.beside.as_ref() == Some(&variant.name));
        beside.for_each(|row| reference(&mut table, row, &sources));
    }
    let alone = record.reference.iter().filter(|row| row.beside.is_none());
    alone.for_each(|row| reference(&mut table, row, &sources));
    sources.note(&mut table);
    section.table(table);
    counters(&mut section, record);
    section
}

fn reference(table: &mut Table, row: &crate::record::Reference, sources: &Sources<'_>) {
    let time = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), formatting::time);
    let rate = row.per_s.map_or_else(|| "–".to_owned(), |rate| display::figure(&Figure::PerSecond, rate));
    table.row_apart(vec![sources.label(row), time(row.p50_us), time(row.p95_us), time(row.p99_us), rate]);
}

fn counters(section: &mut Section, record: &Record) {
    let mut table = Table::new("Counts per request", ["variant", "count", "value"]);
    for variant in &record.variants {
        for (name, value) in &variant.counters {
            table.row(vec![variant.name.clone(), name.clone(), formatting::digits(*value)]);
        }
    }
    section.table(table);
}

/// Section with percentiles per iteration, and the whole distribution.
pub(super) fn latency(record: &Record) -> Section {
    let mut section = Section::new("Latency");
    for (name, variants) in groups(record) {
        let more = if name.is_empty() { String::new() } else { format!(", {name}") };
        distribution(&mut section, &variants, &more);
        per_iteration(&mut section, &variants, &more);
    }
    section
}

/// Groups of variants that share a chart: those of each sweep, and never more than there are
/// colours.
fn groups(record: &Record) -> Vec<(String, Vec<&Variant>)> {
    let swept = |name: &String| record.sweeps.iter().any(|sweep| sweep.variants.contains(name));
    let others: Vec<&Variant> = record.variants.iter().filter(|variant| !swept(&variant.name)).collect();
    let mut wholes = vec![(String::new(), others)];
    wholes.extend(record.sweeps.iter().map(|sweep| {
        (sweep.name.clone(), sweep.variants.iter().filter_map(|name| record.variant(name)).collect())
    }));
    let mut groups = Vec::new();
    for (name, variants) in wholes {
        let parts = variants.len().div_ceil(COLOURS);
        for (number, part) in variants.chunks(COLOURS).enumerate() {
            let name = if parts > 1 { format!("{name} ({} of {parts})", number + 1) } else { name.clone() };
            groups.push((name.trim().to_owned(), part.to_vec()));
        }
    }
    groups
}

/// Latency of good answers of a variant by percentile: shares and µs. Empty where an iteration has
/// no histogram.
pub(super) fn percentiles(variant: &Variant) -> Vec<(f64, f64)> {
    let Some(all) = pooled(variant, Outcome::Ok).filter(|all| !all.is_empty()) else { return Vec::new() };
    let mut points = vec![(0.0, all.min() as f64 / 1e3)];
    points.extend(all.curve().map(|(share, nanos)| (share, nanos as f64 / 1e3)));
    thinned(points)
}

fn distribution(section: &mut Section, variants: &[&Variant], more: &str) {
    let lines = variants.iter().enumerate();
    let lines = lines.map(|(colour, variant)| Line::new(&variant.name, colour, percentiles(variant)));
    let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
    if !lines.is_empty() {
        let panel = Panel {
            name: "latency of good answers".to_owned(),
            unit: Unit::TimeLog,
            height: 300.0,
            lines,
            mark: None,
        };
        section.chart(Chart::panels(
            format!("Latency by percentile, all iterations{more}"),
            vec![panel],
            Unit::Tail,
        ));
    }
}

/// Thins a distribution to the points that are visibly apart on the stretched axis.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let stretched = |share: f64| -(1.0 - share.min(0.99999)).log10();
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let last = points.len().saturating_sub(1);
    for (at, point) in points.into_iter().enumerate() {
        let apart = kept.last().is_none_or(|before| stretched(point.0) - stretched(before.0) > 0.01);
        if apart || at == last {
            kept.push(point);
        }
    }
    kept
}

fn per_iteration(section: &mut Section, variants: &[&Variant], more: &str) {
    // Iterations are ordered by number: those with one number ran next to each other, and a missing
    // one leaves a gap.
    let numbers: BTreeSet<u32> =
        variants.iter().flat_map(|variant| &variant.iterations).map(|iteration| iteration.number).collect();
    let mut panels = Vec::new();
    for figure in LATENCIES.iter().chain([&Figure::PerSecond]) {
        let mut table = Table {
            caption: format!("{figure} by iteration{more}"),
            folded: numbers.len() > MAX_SHOWN,
            ..Table::default()
        };
        table.head =
            std::iter::once("iteration".to_owned()).chain(variants.iter().map(|v| v.name.clone())).collect();
        let of = |variant: &&Variant| -> Vec<(u32, Option<f64>)> {
            let find = |number: &u32| variant.iterations.iter().find(|iteration| iteration.number == *number);
            numbers
                .iter()
                .map(|number| (*number, find(number).and_then(|found| figure.value(found))))
                .collect()
        };
        let values: Vec<Vec<(u32, Option<f64>)>> = variants.iter().map(of).collect();
        if values.iter().flatten().all(|(_, value)| value.is_none()) {
            continue;
        }
        let show =
            |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| display::figure(figure, value));
        for (at, number) in numbers.iter().enumerate() {
            let row = values.iter().map(|column| show(column.get(at).and_then(|(_, value)| *value)));
            table.row(std::iter::once(number.to_string()).chain(row).collect());
        }
        let row = values.iter().map(|column| {
            let known: Vec<f64> = column.iter().filter_map(|(_, value)| *value).collect();
            show((!known.is_empty()).then(|| median(&known)))
        });
        table.row(std::iter::once("median".to_owned()).chain(row).collect());
        section.table(table);
        let lines = variants.iter().zip(&values).enumerate().map(|(colour, (variant, column))| {
            let known = column.iter().filter_map(|(number, value)| Some((f64::from(*number), (*value)?)));
            Line { dots: true, ..Line::new(&variant.name, colour, known.collect()) }
        });
        let unit = if figure.is_latency() { Unit::TimeLog } else { Unit::Rate };
        panels.push(Panel {
            name: figure.to_string(),
            unit,
            height: 120.0,
            lines: lines.collect(),
            mark: None,
        });
    }
    if numbers.len() > 1 && !panels.is_empty() {
        section.chart(Chart::panels(format!("By iteration{more}"), panels, Unit::Iteration));
    }
}

/// Section with the endings of requests, each with its latency.
pub(super) fn reliability(record: &Record) -> Section {
    let mut section = Section::new("Endings");
    let mut table = Table::new("", ["variant", "ending", "count", "share", "P50", "P99", "example"]);
    for variant in &record.variants {
        let mut endings: Vec<(String, Outcome, u64, Option<crate::record::Distribution>, String)> =
            Vec::new();
        let unsent: u64 = variant.iterations.iter().map(|iteration| iteration.unsent).sum();
        let ended: u64 = variant.iterations.iter().flat_map(|i| &i.classes).map(|class| class.count).sum();
        let total = ended + unsent;
        for class in
            variant.iterations.iter().flat_map(|iteration| &iteration.classes).filter(|class| class.count > 0)
        {
            let name = match (class.status, &class.fault) {
                (Some(status), None) => status.to_string(),
                (Some(status), Some(fault)) => format!("{status}, {fault}"),
                (None, Some(fault)) => fault.clone(),
                (None, None) => format!("{}, status not known", class.outcome.name()),
            };
            match endings.iter_mut().find(|ending| (&ending.0, ending.1) == (&name, class.outcome)) {
                Some(ending) => {
                    ending.2 += class.count;
                    match (&mut ending.3, &class.latency) {
                        (Some(all), Some(latency)) => all.add(latency),
                        (all, _) => *all = None,
                    }
                }
                None => endings.push((
                    name,
                    class.outcome,
                    class.count,
                    class.latency.clone(),
                    class.example.clone().unwrap_or_default(),
                )),
            }
        }
        endings.sort_by_key(|ending| (ending.1, std::cmp::Reverse(ending.2)));
        for (name, _, count, latency, example) in endings {
            let at = |share| {
                latency
                    .as_ref()
                    .map_or_else(|| "–".to_owned(), |latency| formatting::time(latency.micros(share)))
            };
            let share = formatting::percent(count as f64 / total.max(1) as f64);
            table.row(vec![
                variant.name.clone(),
                name,
                formatting::count(count),
                share,
                at(0.5),
                at(0.99),
                example,
            ]);
        }
        if unsent > 0 {
            let share = formatting::percent(unsent as f64 / total as f64);
            let dash = || "–".to_owned();
            let why = "due, but no connection was free in time".to_owned();
            table.row(vec![
                variant.name.clone(),
                "never sent".to_owned(),
                formatting::count(unsent),
                share,
                dash(),
                dash(),
                why,
            ]);
        }
    }
    section.table(table);
    section
}
