//! Series: which reports belong together, and the figures of each variant over them.
//!
//! Owns: what keeps reports apart, their order, and the changes of each series.
//! Does not own: what a report contains ([`super::entry`]), and the statistics.
//!
//! 1. Runs that were stopped early and copies of a run are left out.
//! 2. The others form groups with the same scenario, form, tool and machines.
//! 3. A group is ordered by the start of the runs.
//! 4. Variants with the same name, components and load form a series for each of their figures.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::entry::{Conditions, HistoryEntry, KeyFigure, Reading, VariantReading};
use crate::record::{LoadShape, Stage};
use crate::statistics::{ChangePoint, MIN_CHANGE_VALUES, change_points};

/// Share by which two rates may differ in loads that count as the same: a rate that is a share of
/// what a variant serves differs a little in each run.
const SAME_RATE: f64 = 0.1;

/// A file that is not part of any series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Path of the file.
    pub path: String,
    /// Why it is left out.
    pub reason: String,
}

/// Reports whose figures can be compared.
pub(super) struct Group<'a> {
    pub(super) conditions: &'a Conditions,
    /// Reports in order.
    pub(super) reports: Vec<&'a HistoryEntry>,
    /// Whether the order is that of the start of the runs; otherwise it is that of their paths.
    pub(super) is_dated: bool,
    /// Variants, those of the latest report first.
    pub(super) variants: Vec<VariantSeries<'a>>,
}

/// A variant over the reports of a group.
pub(super) struct VariantSeries<'a> {
    /// The variant in the latest report that has it.
    pub(super) latest: &'a VariantReading,
    pub(super) figures: Vec<FigureSeries<'a>>,
}

/// A figure of a variant over the reports of a group.
pub(super) struct FigureSeries<'a> {
    pub(super) figure: &'a KeyFigure,
    /// Values in order, each with the index of its report in the group.
    pub(super) points: Vec<(usize, &'a Reading)>,
    pub(super) changes: Vec<Change>,
}

/// A change of a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// Index of the last report before it in the group.
    pub(super) from: usize,
    /// Index of the first report after it in the group.
    pub(super) to: usize,
    pub(super) found: ChangePoint,
}

impl<'a> FigureSeries<'a> {
    /// Values that are evidence, each with the index of its report.
    pub(super) fn evidence(&self) -> impl Iterator<Item = (usize, &'a Reading)> {
        self.points.iter().copied().filter(|(_, reading)| reading.is_evidence())
    }

    /// Whether there are enough values for a statement about changes.
    pub(super) fn is_long_enough(&self) -> bool {
        self.evidence().count() >= MIN_CHANGE_VALUES
    }

    fn find_changes(&mut self, margin: f64) {
        let evidence: Vec<(usize, &Reading)> = self.evidence().collect();
        let values: Vec<f64> = evidence.iter().map(|(_, reading)| reading.value).collect();
        let changes = change_points(&values, margin).into_iter();
        self.changes = changes
            .map(|found| Change { from: evidence[found.index - 1].0, to: evidence[found.index].0, found })
            .collect();
    }
}

impl Group<'_> {
    /// Every series of the group.
    pub(super) fn all_series(&self) -> impl Iterator<Item = &FigureSeries<'_>> {
        self.variants.iter().flat_map(|variant| &variant.figures)
    }
}

/// Forms groups of entries, the largest first, and says which entries are in none.
pub(super) fn groups<'a>(
    entries: &'a [HistoryEntry],
    variants: &[String],
    margin: f64,
) -> (Vec<Group<'a>>, Vec<LeftOut>) {
    let mut sorted: Vec<&HistoryEntry> = entries.iter().collect();
    sorted.sort_by(|a, b| in_order(&a.path, &b.path));
    let (mut kept, mut left_out): (Vec<&HistoryEntry>, Vec<LeftOut>) = (Vec::new(), Vec::new());
    for entry in sorted {
        let copy = kept.iter().find(|other| entry.is_copy_of(other));
        let reason = match copy {
            Some(other) => format!("it is the same run as `{}`", other.path),
            None if entry.partial => "the run was stopped early".to_owned(),
            None => {
                kept.push(entry);
                continue;
            }
        };
        left_out.push(LeftOut { path: entry.path.clone(), reason });
    }
    let mut parts: Vec<(&Conditions, Vec<&HistoryEntry>)> = Vec::new();
    for entry in kept {
        match parts.iter_mut().find(|(conditions, _)| **conditions == entry.conditions) {
            Some((_, reports)) => reports.push(entry),
            None => parts.push((&entry.conditions, vec![entry])),
        }
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (conditions, reports) in parts {
        let (reports, is_dated) = ordered(reports, &mut left_out);
        let mut group = Group { conditions, reports, is_dated, variants: Vec::new() };
        group.variants = variant_series(&group.reports, variants, margin);
        groups.push(group);
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.reports.len()));
    (groups, left_out)
}

/// Compares paths so that their numbers count: `build-9` comes before `build-10`.
fn in_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let number = |text: &str| text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (digits_a, digits_b) = (&a[..number(a)], &b[..number(b)]);
        let (value_a, value_b) = (digits_a.trim_start_matches('0'), digits_b.trim_start_matches('0'));
        // Numbers of the same length are in the order of their digits.
        let numbers = value_a.len().cmp(&value_b.len()).then_with(|| value_a.cmp(value_b));
        let order = if digits_a.is_empty() || digits_b.is_empty() {
            a.chars().next().cmp(&b.chars().next())
        } else {
            numbers.then_with(|| digits_a.len().cmp(&digits_b.len()))
        };
        if order.is_ne() || a.is_empty() {
            return order;
        }
        let rest = |text: &str, digits: &str| {
            let first = text.chars().next().map_or(0, char::len_utf8);
            digits.len().max(first)
        };
        (a, b) = (&a[rest(a, digits_a)..], &b[rest(b, digits_b)..]);
    }
}

/// Orders the reports of a group by their start. If none has one, their paths are the order. If
/// only some have one, the others have no place in it.
fn ordered<'a>(
    mut reports: Vec<&'a HistoryEntry>,
    left_out: &mut Vec<LeftOut>,
) -> (Vec<&'a HistoryEntry>, bool) {
    if reports.iter().all(|report| report.started_unix_s.is_none()) {
        return (reports, false);
    }
    reports.retain(|report| {
        if report.started_unix_s.is_none() {
            let reason = "it does not say when the run started, and others do".to_owned();
            left_out.push(LeftOut { path: report.path.clone(), reason });
        }
        report.started_unix_s.is_some()
    });
    let start = |report: &HistoryEntry| report.started_unix_s.unwrap_or_default();
    reports.sort_by(|a, b| start(a).total_cmp(&start(b)));
    (reports, true)
}

fn variant_series<'a>(
    reports: &[&'a HistoryEntry],
    wanted: &[String],
    margin: f64,
) -> Vec<VariantSeries<'a>> {
    let mut all: Vec<(&'a VariantReading, Vec<(usize, &'a VariantReading)>)> = Vec::new();
    // From the latest report on, whose load is the one that others are compared with.
    for (number, report) in reports.iter().enumerate().rev() {
        for variant in &report.variants {
            if !wanted.is_empty() && !wanted.contains(&variant.name) {
                continue;
            }
            // A report has a name only once, so no series gets two values of one report.
            match all.iter_mut().find(|(latest, _)| is_same(latest, variant)) {
                Some((_, members)) => members.push((number, variant)),
                None => all.push((variant, vec![(number, variant)])),
            }
        }
    }
    let series = all.into_iter().map(|(latest, mut members)| {
        members.reverse();
        VariantSeries { latest, figures: figure_series(latest, &members, margin) }
    });
    series.collect()
}

/// Series of the figures of a variant, in the order of the latest report that has it.
fn figure_series<'a>(
    latest: &'a VariantReading,
    members: &[(usize, &'a VariantReading)],
    margin: f64,
) -> Vec<FigureSeries<'a>> {
    let mut figures: Vec<&KeyFigure> = latest.readings.iter().map(|reading| &reading.figure).collect();
    for (_, variant) in members {
        let more = variant.readings.iter().map(|reading| &reading.figure);
        for figure in more {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
    }
    let of = |figure: &'a KeyFigure| {
        let points = members.iter().filter_map(|(number, variant)| {
            let reading = variant.readings.iter().find(|reading| reading.figure == *figure)?;
            Some((*number, reading))
        });
        let mut series = FigureSeries { figure, points: points.collect(), changes: Vec::new() };
        series.find_changes(margin);
        series
    };
    figures.into_iter().map(of).collect()
}

fn is_same(a: &VariantReading, b: &VariantReading) -> bool {
    a.name == b.name && a.path == b.path && is_same_load(&a.load, &b.load)
}

/// Whether two loads are the same, but for a small difference of their rates.
fn is_same_load(a: &LoadShape, b: &LoadShape) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= SAME_RATE * a.max(b);
    let rates = match (a.rate_per_s, b.rate_per_s) {
        (Some(a), Some(b)) => near(a, b),
        (a, b) => a.is_none() == b.is_none(),
    };
    let stage = |(a, b): (&Stage, &Stage)| {
        near(a.from_per_s, b.from_per_s)
            && near(a.to_per_s, b.to_per_s)
            && a.seconds.total_cmp(&b.seconds).is_eq()
    };
    let stages = a.stages.len() == b.stages.len() && a.stages.iter().zip(&b.stages).all(stage);
    let rest = |load: &LoadShape| LoadShape { rate_per_s: None, stages: Vec::new(), ..load.clone() };
    rates && stages && rest(a) == rest(b)
}

/// Facts that differ between two reports, as `name: before → after`.
pub(super) fn other_changes(before: &HistoryEntry, after: &HistoryEntry) -> Vec<String> {
    let of = |entry: &HistoryEntry| entry.environment.iter().cloned().collect::<BTreeMap<_, _>>();
    let (old, new) = (of(before), of(after));
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    let none = || "–".to_owned();
    let change = |name: &String| {
        let (old, new) = (old.get(name), new.get(name));
        (old != new).then(|| {
            let shown = |value: Option<&String>| value.cloned().unwrap_or_else(none);
            format!("{name}: {} → {}", shown(old), shown(new))
        })
    };
    names.filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_paths_count() {
        let mut paths =
            ["b/10.json", "b/9.json", "b/010.json", "a/2", "b/9a.json", "b/9", "b", "ä/1", "b/100.json"];
        paths.sort_by(|a, b| in_order(a, b));
        let expected =
            ["a/2", "b", "b/9", "b/9.json", "b/9a.json", "b/10.json", "b/010.json", "b/100.json", "ä/1"];
        assert_eq!(paths, expected);
    }
}
