//! Page: the sheet of a history.
//!
//! Owns: its sections and their order: changes, what is kept apart, then each group with its latest
//! report, its targets, and its figures over time.
//! Does not own: the series ([`super::series`]), and how a sheet looks.

use super::HistoryTerms;
use super::entry::{Conditions, HistoryEntry, KeyFigure, Reading};
use super::series::{Change, FigureSeries, Group, LeftOut, VariantSeries, other_changes};
use crate::formatting;
use crate::offline::render::svg::{Level, Trend, TrendPoint, Unit};
use crate::offline::render::{Chart, Section, Sheet, Table};
use crate::offline::report::load;
use crate::statistics::{
    Figure, MAX_CHANGE_VALUES, MIN_CHANGE_VALUES, MIN_SIDE, SIGNIFICANCE, StreamFigure, display, median,
};

/// Most figures of a group that are shown without unfolding their table.
const MAX_SHOWN: usize = 60;

/// A change with the series that it is in.
pub(super) struct NamedChange<'a> {
    group: &'a Group<'a>,
    variant: &'a VariantSeries<'a>,
    figure: &'a KeyFigure,
    change: Change,
}

/// All changes, the latest first.
pub(super) fn changes<'a>(groups: &'a [Group<'a>]) -> Vec<NamedChange<'a>> {
    let mut all = Vec::new();
    for group in groups {
        for variant in &group.variants {
            for series in &variant.figures {
                let figure = series.figure;
                let named = series.changes.iter().map(|change| NamedChange {
                    group,
                    variant,
                    figure,
                    change: *change,
                });
                all.extend(named);
            }
        }
    }
    let start = |one: &NamedChange<'_>| one.after().started_unix_s.unwrap_or(f64::NEG_INFINITY);
    all.sort_by(|a, b| start(b).total_cmp(&start(a)));
    all
}

impl NamedChange<'_> {
    fn before(&self) -> &HistoryEntry {
        self.group.reports[self.change.from]
    }

    fn after(&self) -> &HistoryEntry {
        self.group.reports[self.change.to]
    }

    /// The direction and the size: `worse: × 1.200 (× 1.180 … × 1.220)`.
    fn size(&self) -> String {
        let found = &self.change.found;
        let better = (found.after > found.before) == self.figure.more_is_better();
        let word = if better { "better" } else { "worse" };
        match &found.ratio {
            Some(ratio) => format!(
                "{word}: {} ({} … {})",
                formatting::factor(ratio.point),
                formatting::factor(ratio.low),
                formatting::factor(ratio.high)
            ),
            None if found.before > 0.0 => {
                format!("{word}: {}", formatting::factor(found.after / found.before))
            }
            None => word.to_owned(),
        }
    }

    /// One line for the terminal.
    pub(super) fn line(&self) -> String {
        let (before, after) =
            (self.figure.write(self.change.found.before), self.figure.write(self.change.found.after));
        format!(
            "{} of `{}`: {}, {before} → {after}, between {} and {}",
            self.figure,
            self.variant.latest.name,
            self.size(),
            self.before().label(),
            self.after().label()
        )
    }
}

/// Creates the page.
pub(super) fn sheet(
    groups: &[Group<'_>],
    changes: &[NamedChange<'_>],
    left_out: &[LeftOut],
    terms: &HistoryTerms,
) -> Sheet {
    let reports: usize = groups.iter().map(|group| group.reports.len()).sum();
    let mut lead = vec![many(reports)];
    lead.extend((groups.len() > 1).then(|| format!("{} groups that are kept apart", groups.len())));
    lead.extend(period(groups.iter().flat_map(|group| group.reports.iter().copied())));
    let mut sheet = Sheet { title: terms.title.clone(), lead: lead.join(" · "), ..Sheet::default() };
    sheet.section(changes_section(groups, changes, terms));
    sheet.section(apart(groups, left_out));
    for group in groups {
        sheet.section(group_section(group, groups));
    }
    sheet.section(reading_guide(terms));
    sheet
}

fn many(reports: usize) -> String {
    if reports == 1 { "1 report".to_owned() } else { format!("{reports} reports") }
}

/// First and last date of reports; `None` without any.
fn period<'a>(reports: impl Iterator<Item = &'a HistoryEntry>) -> Option<String> {
    let starts: Vec<f64> = reports.filter_map(|report| report.started_unix_s).collect();
    let first = starts.iter().copied().reduce(f64::min)?;
    let last = starts.iter().copied().reduce(f64::max)?;
    let (first, last) = (formatting::date(first), formatting::date(last));
    Some(if first == last { first } else { format!("{first} to {last}") })
}

/// Title of a group: its scenario, with what distinguishes it from the other groups.
fn title(group: &Group<'_>, groups: &[Group<'_>]) -> String {
    let own = group.conditions;
    let mut title = own.scenario.clone();
    let others: Vec<&Conditions> =
        groups.iter().map(|other| other.conditions).filter(|other| other.scenario == own.scenario).collect();
    if others.iter().any(|other| other.form() != own.form()) {
        title = format!("{title}, {}", own.form());
    }
    if others.iter().any(|other| other.tool != own.tool) {
        title = format!("{title}, {}", own.tool);
    }
    if others.iter().any(|other| other.machines != own.machines) {
        title = format!("{title}, {}", machines(group));
    }
    title
}

fn changes_section(groups: &[Group<'_>], changes: &[NamedChange<'_>], terms: &HistoryTerms) -> Section {
    let mut section = Section::new("Changes");
    let all: Vec<&FigureSeries<'_>> = groups.iter().flat_map(Group::all_series).collect();
    let long = all.iter().filter(|series| series.is_long_enough()).count();
    let all = all.len();
    if long == 0 {
        section.text(format!(
            "Nothing is claimed: none of the {all} series has the {MIN_CHANGE_VALUES} usable reports that a statement needs. `postern lab compare` judges two runs."
        ));
        return section;
    }
    let margin = formatting::short_percent(terms.margin);
    let by_chance = formatting::digits(long as f64 * SIGNIFICANCE);
    section.text(format!(
        "{long} of {all} series have the {MIN_CHANGE_VALUES} usable reports that a statement needs. {} Without any change, about {by_chance} of them would show one by chance.",
        match changes.len() {
            0 => format!("None of them changed its level by {margin} or more."),
            1 => format!("One change of a level by {margin} or more was found."),
            many => format!("{many} changes of a level by {margin} or more were found, the latest first."),
        }
    ));
    let mut table = Table::new("", ["figure", "change", "before", "after", "first report with it"]);
    for one in changes {
        let found = &one.change.found;
        let mut about = vec![format!("{} of `{}`", one.figure, one.variant.latest.name)];
        about.extend((groups.len() > 1).then(|| title(one.group, groups)));
        let mut reports = vec![one.after().label(), format!("after {}", one.before().label())];
        reports.extend(other_changes(one.before(), one.after()));
        table.row(vec![
            about.join("\n"),
            format!("{}\nby chance {}", one.size(), formatting::percent(found.chance)),
            one.figure.write(found.before),
            one.figure.write(found.after),
            reports.join("\n"),
        ]);
    }
    section.table(table);
    section
}

/// Section with the groups, with variants whose load or components changed, and with the files that
/// are in no group.
fn apart(groups: &[Group<'_>], left_out: &[LeftOut]) -> Section {
    let mut section = Section::new("Kept apart");
    if groups.len() > 1 {
        section.text(
            "Reports of another scenario, another form or build, another tool or another machine are not compared with each other.",
        );
        let mut table =
            Table::new("Groups", ["scenario", "form", "measured by", "machines", "reports", "period"]);
        for group in groups {
            let conditions = group.conditions;
            table.row(vec![
                conditions.scenario.clone(),
                conditions.form(),
                conditions.tool.clone(),
                machines(group),
                group.reports.len().to_string(),
                period(group.reports.iter().copied()).unwrap_or_else(|| formatting::NONE.to_owned()),
            ]);
        }
        section.table(table);
    }
    let mut table = Table::new(
        "Variants with another load or other components",
        ["variant", "load", "components", "reports"],
    );
    for group in groups {
        for variant in &group.variants {
            let latest = variant.latest;
            if group.variants.iter().filter(|other| other.latest.name == latest.name).count() > 1 {
                let most = variant.figures.iter().map(|series| series.points.len()).max().unwrap_or(0);
                table.row(vec![
                    latest.name.clone(),
                    load(&latest.load),
                    latest.path.join(" → "),
                    most.to_string(),
                ]);
            }
        }
    }
    section.table(table);
    let mut table = Table::new("Files that are left out", ["file", "reason"]);
    for file in left_out {
        table.row(vec![file.path.clone(), file.reason.clone()]);
    }
    section.table(table);
    section
}

fn machines(group: &Group<'_>) -> String {
    let known = Some(group.conditions.machines.clone()).filter(|machines| !machines.is_empty());
    known.unwrap_or_else(|| "not known".to_owned())
}

fn group_section(group: &Group<'_>, groups: &[Group<'_>]) -> Section {
    let mut section = Section::new(&title(group, groups));
    let order = if group.is_dated {
        "by the start of the run"
    } else {
        "by path, because none says when the run started"
    };
    section.text(format!(
        "{}, ordered {order}. Form: {}. Measured by {}. Machines: {}.",
        many(group.reports.len()),
        group.conditions.form(),
        group.conditions.tool,
        machines(group)
    ));
    section.table(latest(group));
    targets(&mut section, group);
    for variant in &group.variants {
        let title = format!("`{}` over reports: {}", variant.latest.name, load(&variant.latest.load));
        section.chart(Chart::trends(title.replace('`', ""), charts(group, variant)));
        section.table(values(group, variant, &title));
    }
    section
}

/// Table of the latest value of each figure beside the ones before it.
fn latest(group: &Group<'_>) -> Table {
    let caption = "The latest report that has the figure, and the reports before it since the last change";
    let mut table = Table::new(caption, ["figure", "latest", "median before", "latest ÷ before", "reports"]);
    for variant in &group.variants {
        for series in &variant.figures {
            let Some((number, reading)) = series.points.last() else { continue };
            let before = level_before(series, *number);
            let usual = median(&before);
            let (mut shown, mut ratio) = (formatting::NONE.to_owned(), formatting::NONE.to_owned());
            if !before.is_empty() {
                let least = before.iter().copied().fold(f64::INFINITY, f64::min);
                let most = before.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let write = |value| series.figure.write(value);
                shown = format!("{}\n{} … {}", write(usual), write(least), write(most));
                if usual > 0.0 {
                    ratio = formatting::factor(reading.value / usual);
                }
            }
            table.row(vec![
                format!("{}\n`{}`", series.figure, variant.latest.name),
                with_interval(series.figure, reading),
                shown,
                ratio,
                before.len().to_string(),
            ]);
        }
    }
    table.folded = table.rows.len() > MAX_SHOWN;
    table
}

/// Usable values since the last change and before a report.
fn level_before(series: &FigureSeries<'_>, report: usize) -> Vec<f64> {
    let since = series.changes.last().map_or(0, |change| change.to);
    let inside = series.evidence().filter(|(number, _)| (since..report).contains(number));
    inside.map(|(_, reading)| reading.value).collect()
}

/// A cell with a value, and below it its interval, or why it is no evidence.
fn with_interval(figure: &KeyFigure, reading: &Reading) -> String {
    let mut below: Vec<String> = Vec::new();
    below.extend(interval_text(figure, reading));
    below.extend((!reading.is_evidence()).then(|| format!("not used: {}", reading.doubts.join(", "))));
    format!("{}\n{}", figure.write(reading.value), below.join("\n"))
}

fn interval_text(figure: &KeyFigure, reading: &Reading) -> Option<String> {
    let of = reading.interval.as_ref()?;
    match figure {
        KeyFigure::Figure(figure) => Some(display::interval(figure, of)),
        KeyFigure::Count(_) => None,
    }
}

/// Chart of how many targets are met, and a table of the targets of the latest report.
fn targets(section: &mut Section, group: &Group<'_>) {
    let with = group.reports.iter().enumerate().filter(|(_, report)| !report.targets.is_empty());
    let points: Vec<TrendPoint> = with
        .map(|(number, report)| {
            let met = report.targets.iter().filter(|target| target.met).count();
            let text = format!("{}: {met} of {} targets met", report.label(), report.targets.len());
            TrendPoint { report: number, value: met as f64, interval: None, evidence: true, text }
        })
        .collect();
    let Some(last) = points.last().map(|point| point.report) else { return };
    let mut table = Table::new(
        &format!("Targets of the latest report, {}", group.reports[last].label()),
        ["target", "required", "latest", "verdict", "met in", "since"],
    );
    for target in &group.reports[last].targets {
        let seen = group.reports.iter().filter_map(|report| {
            Some((*report, report.targets.iter().find(|other| other.name == target.name)?))
        });
        let seen: Vec<_> = seen.collect();
        let met = seen.iter().filter(|(_, other)| other.met).count();
        let same = seen.iter().rev().take_while(|(_, other)| other.met == target.met).last();
        table.row(vec![
            target.name.clone(),
            target.requirement.clone(),
            target.result.clone(),
            if target.met { "met" } else { "missed" }.to_owned(),
            format!("{met} of {}", seen.len()),
            same.map_or_else(String::new, |(report, _)| report.label()),
        ]);
    }
    section.table(table);
    let trend = Trend {
        name: "targets met".to_owned(),
        unit: Unit::Number,
        reports: group.reports.len(),
        points,
        levels: Vec::new(),
        ends: ends(group),
    };
    section.chart(Chart::trends("Targets met over reports", vec![trend]));
}

fn ends(group: &Group<'_>) -> [String; 2] {
    let tick = |report: Option<&&HistoryEntry>| report.map_or_else(String::new, |report| report.tick());
    [tick(group.reports.first()), tick(group.reports.last())]
}

fn charts(group: &Group<'_>, variant: &VariantSeries<'_>) -> Vec<Trend> {
    let of = |series: &FigureSeries<'_>| Trend {
        name: series.figure.to_string(),
        unit: unit(series.figure),
        reports: group.reports.len(),
        points: series
            .points
            .iter()
            .map(|(number, reading)| point(group, series, *number, reading))
            .collect(),
        levels: levels(series),
        ends: ends(group),
    };
    variant.figures.iter().map(of).collect()
}

fn point(group: &Group<'_>, series: &FigureSeries<'_>, number: usize, reading: &Reading) -> TrendPoint {
    let mut text = format!("{}: {}", group.reports[number].label(), series.figure.write(reading.value));
    if let Some(between) = interval_text(series.figure, reading) {
        text = format!("{text} ({between})");
    }
    if !reading.is_evidence() {
        text = format!("{text}, not used: {}", reading.doubts.join(", "));
    }
    TrendPoint {
        report: number,
        value: reading.value,
        interval: reading.interval.map(|of| (of.low, of.high)),
        evidence: reading.is_evidence(),
        text,
    }
}

/// Levels between the changes of a series; none without a change.
fn levels(series: &FigureSeries<'_>) -> Vec<Level> {
    let numbers: Vec<usize> = series.evidence().map(|(number, _)| number).collect();
    let searched = &numbers[numbers.len().saturating_sub(MAX_CHANGE_VALUES)..];
    let (Some(first), Some(last)) = (searched.first(), searched.last()) else { return Vec::new() };
    let (Some(opening), Some(closing)) = (series.changes.first(), series.changes.last()) else {
        return Vec::new();
    };
    let mut levels = vec![Level { from: *first, until: opening.from, value: opening.found.before }];
    let between = series.changes.windows(2);
    levels.extend(between.map(|pair| Level {
        from: pair[0].to,
        until: pair[1].from,
        value: pair[0].found.after,
    }));
    levels.push(Level { from: closing.to, until: *last, value: closing.found.after });
    levels
}

fn unit(figure: &KeyFigure) -> Unit {
    match figure {
        KeyFigure::Figure(Figure::PerSecond) => Unit::Rate,
        KeyFigure::Figure(Figure::Memory(_)) => Unit::Bytes,
        KeyFigure::Figure(Figure::CpuPerRequestSum(_)) => Unit::CpuTime,
        KeyFigure::Figure(Figure::Stream(StreamFigure::CutShare)) => Unit::Share,
        KeyFigure::Figure(Figure::Stream(StreamFigure::Stalls)) | KeyFigure::Count(_) => Unit::Number,
        KeyFigure::Figure(_) => Unit::Time,
    }
}

/// Table of all values of a variant, one row for each report.
fn values(group: &Group<'_>, variant: &VariantSeries<'_>, title: &str) -> Table {
    let mut table = Table { caption: title.to_owned(), folded: true, ..Table::default() };
    let names = variant.figures.iter().map(|series| series.figure.to_string());
    table.head = std::iter::once("report".to_owned()).chain(names).collect();
    for (number, report) in group.reports.iter().enumerate() {
        let of = |series: &FigureSeries<'_>| {
            let found = series.points.iter().find(|(other, _)| *other == number);
            found.map(|(_, reading)| with_interval(series.figure, reading))
        };
        let cells: Vec<Option<String>> = variant.figures.iter().map(of).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| formatting::NONE.to_owned()));
        let name = format!("{}\n{}", report.label(), report.path);
        table.row(std::iter::once(name).chain(cells).collect());
    }
    table
}

fn reading_guide(terms: &HistoryTerms) -> Section {
    let mut section = Section::new("How changes are found");
    let (bound, margin) = (formatting::short_percent(SIGNIFICANCE), formatting::short_percent(terms.margin));
    section.text(
        "One report is one observation, because its rounds share the state of the machine on that day. The bar at a point is the interval of the median over its rounds, where there are five or more. A hollow point is no evidence: a finding says that the figures must not be used, or a round lacks the figure.",
    );
    section.text(format!(
        "Every split of a series with {MIN_SIDE} reports or more on both sides is tested with the exact rank-sum test (Wilcoxon, Mann and Whitney), which assumes nothing about how values scatter. The smallest probability times the number of splits has to be below {bound}; then the change is placed where the absolute deviations from the medians of both sides are smallest, and both sides are searched again. Fewer than {MIN_CHANGE_VALUES} reports cannot reach this bound. The latest {MAX_CHANGE_VALUES} are searched. Changes below {margin} are not named."
    ));
    section.text(
        "The factor is after ÷ before, with its 95 % interval (Hodges and Lehmann). It is a little too narrow, because the same reports have shown where the change is. The place can be wrong by a report or two. A level that soon returned to its former value can be missed. The cause can be anything that changed in between, also what no report records, such as a neighbour on the same host: run both commits as variants of one run to be sure.",
    );
    section
}
