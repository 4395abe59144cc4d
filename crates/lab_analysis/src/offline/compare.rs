//! Comparison: shows two runs, or two variants of one run, side by side, with a verdict per figure
//! (`lab compare`).
//!
//! Owns: which variants are compared, what makes them not comparable, and the verdicts.
//! Does not own: the statistics, and how a sheet looks.
//!
//! Iterations are paired by number. Within one record they ran next to each other, which removes
//! the machine's drift from the difference. Between records they did not: what differs may be the
//! machine of another day, of which rounds say nothing. So two records are compared by the ranges of
//! their rounds, without an interval or a probability.

use super::profile_difference;
use super::render::{Block, Case, Section, Sheet, Table, Warning, Weight};
use super::report::{LATENCIES, load, machine, of_run};
use super::warnings::warnings;
use crate::diagnose;
use crate::formatting;
use crate::record::{Finding, Record, Variant};
use crate::statistics::{
    CpuUse, Equivalence, Figure, Interval, SignTest, StreamFigure, compare_paired, display, figures,
    interval, median, paired, paired_difference, paired_ratio,
};
use crate::units;

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Name of the side in the sheet.
    pub name: &'a str,
    /// File of the run, as errors name it.
    pub file: &'a str,
    /// Record of the run.
    pub record: &'a Record,
    /// Only this variant; `None` compares every variant that the other side has under the same
    /// name.
    pub variant: Option<&'a str>,
}

/// Terms of the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// What counts as the same, as a share of the first side's figure.
    pub margin: f64,
}

/// Whether the iterations of both sides ran next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    One,
    Separate,
}

impl Runs {
    fn of(a: Side<'_>, b: Side<'_>) -> Self {
        if std::ptr::eq(a.record, b.record) { Self::One } else { Self::Separate }
    }
}

/// Why two runs cannot be compared.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CompareError {
    /// A requested variant does not exist.
    #[error("`{file}` has no variant `{variant}`; it has {known}")]
    NoVariant {
        /// The file without the variant.
        file: String,
        /// Name of the variant.
        variant: String,
        /// Names of the variants that exist.
        known: String,
    },
    /// No variant is in both files.
    #[error("`{a}` ({in_a}) and `{b}` ({in_b}) have no variant in common: name one of each")]
    NothingInCommon {
        /// The first file.
        a: String,
        /// Variants of the first file.
        in_a: String,
        /// The second file.
        b: String,
        /// Variants of the second file.
        in_b: String,
    },
}

/// One figure of two variants.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The figure compared.
    pub figure: Figure,
    /// Median of the first side.
    pub a: f64,
    /// Median of the second side.
    pub b: f64,
    /// Interval of the median of `b − a` over pairs.
    pub difference: Option<Interval>,
    /// Interval of the median of `b ÷ a` over pairs.
    pub ratio: Option<Interval>,
    /// Verdict on the difference.
    pub verdict: Equivalence,
    /// Figures of the rounds that both sides have.
    pub rounds: Vec<(f64, f64)>,
}

impl Compared {
    /// On which side of A the rounds of B are, by how much, and how often chance alone shows that.
    /// `None` where the verdict says it, and where no round differs.
    fn sides(&self) -> Option<String> {
        if matches!(
            self.verdict,
            Equivalence::Equivalent { .. }
                | Equivalence::DifferentEachRound { .. }
                | Equivalence::DifferentInMostRounds { .. }
        ) {
            return None;
        }
        let signs = SignTest::of(self.rounds.iter().map(|(a, b)| units::difference(*b, *a)));
        let (side, count) =
            if signs.above >= signs.below { ("above", signs.above) } else { ("below", signs.below) };
        let chance = formatting::percent(signs.chance);
        match (self.rounds.len(), count) {
            (_, 0) => None,
            (1, _) => Some(format!("B is {side} A in the only round{}", self.sizes())),
            (all, count) if all == count => Some(format!(
                "B is {side} A in each of {all} rounds{}; by chance alone: {chance}",
                self.sizes()
            )),
            (all, count) => {
                Some(format!("B is {side} A in {count} of {all} rounds; by chance alone: {chance}"))
            }
        }
    }

    /// Smallest and largest `b ÷ a` of a round; empty where a round has none.
    fn sizes(&self) -> String {
        if self.rounds.iter().any(|(a, b)| *a <= 0.0 || *b <= 0.0) {
            return String::new();
        }
        let ratios = || self.rounds.iter().map(|(a, b)| b / a);
        let least = formatting::factor(ratios().fold(f64::INFINITY, f64::min));
        let most = formatting::factor(ratios().fold(0.0, f64::max));
        if least == most { format!(", {least}") } else { format!(", {least} … {most}") }
    }
}

/// Compares one figure of two variants; `None` where one of them does not have it.
pub fn compare_figure(a: &Variant, b: &Variant, figure: &Figure, terms: Terms) -> Option<Compared> {
    let (of_a, of_b) = (figures(a, figure), figures(b, figure));
    if of_a.is_empty() || of_b.is_empty() {
        return None;
    }
    let pairs = paired(a, b, figure);
    let usual = median(&of_a);
    Some(Compared {
        figure: figure.clone(),
        a: usual,
        b: median(&of_b),
        difference: paired_difference(&pairs),
        ratio: paired_ratio(&pairs),
        verdict: compare_paired(&pairs, terms.margin),
        rounds: pairs,
    })
}

/// Creates the sheet of a comparison.
pub fn compare(a: Side<'_>, b: Side<'_>, terms: Terms) -> Result<Sheet, CompareError> {
    let pairs = variants(a, b)?;
    let runs = Runs::of(a, b);
    let mut count = 0;
    let mut sheet = Sheet {
        title: format!("{} and {}", a.name, b.name),
        lead: format!(
            "A: {} · B: {} · equivalent means within {} of A",
            a.record.run.title,
            b.record.run.title,
            formatting::percent(terms.margin)
        ),
        ..Sheet::default()
    };
    sheet.section(caveats(a, b, &pairs));
    for (left, right) in &pairs {
        let title = if left.name == right.name {
            left.name.clone()
        } else {
            format!("{} and {}", left.name, right.name)
        };
        let mut section = Section::new(&title);
        let overview = overview(left, right, terms, runs);
        count += overview.rows.len();
        section.table(overview);
        for figure in LATENCIES.iter().chain([&Figure::PerSecond]) {
            section.table(by_iteration(left, right, figure));
        }
        let wrong = [left, right]
            .iter()
            .any(|side| figures(side, &Figure::BadShare).iter().any(|share| *share > 0.0));
        if wrong {
            section.table(by_iteration(left, right, &Figure::BadShare));
        }
        profile_difference::add(&mut section, left, right);
        sheet.section(section);
    }
    sheet.section(match runs {
        Runs::One => reading(terms, count),
        Runs::Separate => reading_of_runs(terms),
    });
    sheet.section(what_ran(a, b));
    Ok(sheet)
}

/// Section that explains the verdicts about two runs.
fn reading_of_runs(terms: Terms) -> Section {
    let mut section = Section::new("How to read the verdicts");
    section.text(format!(
        "A and B are separate runs. Rounds show how much a figure varies within a run, and nothing of what changed between the runs: another day, other \
         neighbours, another temperature. So no verdict here has a probability. The same: the medians are within {} of each other. Differ: no round of one run \
         reaches a round of the other. To be certain, run both as variants of one run.",
        formatting::percent(terms.margin)
    ));
    section
}

/// Section that explains the verdicts about `count` figures of one run.
fn reading(terms: Terms, count: usize) -> Section {
    let mut section = Section::new("How to read the verdicts");
    let margin = formatting::percent(terms.margin);
    section.text(format!(
        "Rounds are compared in pairs, B ÷ A: × 1.100 is 10 % more. Equivalent: two one-sided t tests at 5 % refuse a difference of {margin} or more. \
         Different: the 95 % interval of the mean ratio, in parentheses, leaves out × 1. Both need three rounds, and assume that ratios of rounds scatter \
         evenly around the true one."
    ));
    section.text(format!(
        "Different in each round: every round differs by more than {margin} to the same side. Besides, no round of A reaches a round of B, or every round \
         differs at least twofold, or there are so many rounds that chance is ruled out (four, six where they overlap). Different in most rounds: the 95 % interval of the median ratio lies \
         beyond {margin}. Both assume nothing about how rounds scatter."
    ));
    section.text(
        "Below a verdict: on which side of A the rounds of B are, the smallest and the largest ratio of a round, and how often chance alone would put \
         so many rounds on one side (sign test). Inconclusive: a difference and none are both possible.",
    );
    // Verdicts of figures without a difference at 5 % each.
    let by_chance = count as f64 * 0.05;
    section.text(format!(
        "Each verdict is for itself: of {count} figures without any difference, chance alone calls about {} different.",
        formatting::digits(by_chance)
    ));
    section
}

/// Section with the facts of both runs and their machines.
fn what_ran(a: Side<'_>, b: Side<'_>) -> Section {
    let mut section = Section::new("What ran");
    let mut table = Table::new("", ["fact", "A", "B"]);
    let [left, right] = [a, b].map(|side| facts(side.record));
    let names = left.iter().chain(&right).map(|(name, _)| name);
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let of = |side: &[(String, String)]| {
            let found = side.iter().find(|(known, _)| known == name);
            found.map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
        };
        table.row(vec![name.clone(), of(&left), of(&right)]);
    }
    section.table(table);
    section
}

/// Facts of a run and of its machines.
fn facts(record: &Record) -> Vec<(String, String)> {
    let mut facts = of_run(record);
    facts.extend(record.run.machines.iter().map(|one| (format!("machine: {}", one.role), machine(one))));
    facts
}

fn names(record: &Record) -> String {
    record.variants.iter().map(|variant| format!("`{}`", variant.name)).collect::<Vec<_>>().join(", ")
}

fn variants<'a>(a: Side<'a>, b: Side<'a>) -> Result<Vec<(&'a Variant, &'a Variant)>, CompareError> {
    let find = |side: Side<'a>, name: &str| {
        side.record.variant(name).ok_or_else(|| CompareError::NoVariant {
            file: side.file.to_owned(),
            variant: name.to_owned(),
            known: names(side.record),
        })
    };
    match (a.variant, b.variant) {
        (Some(left), Some(right)) => return Ok(vec![(find(a, left)?, find(b, right)?)]),
        (Some(both), None) | (None, Some(both)) => return Ok(vec![(find(a, both)?, find(b, both)?)]),
        (None, None) => {}
    }
    if let ([left], [right]) = (&*a.record.variants, &*b.record.variants) {
        return Ok(vec![(left, right)]);
    }
    let common = a.record.variants.iter().filter_map(|left| Some((left, b.record.variant(&left.name)?)));
    let common: Vec<_> = common.collect();
    if common.is_empty() {
        return Err(CompareError::NothingInCommon {
            a: a.file.to_owned(),
            in_a: names(a.record),
            b: b.file.to_owned(),
            in_b: names(b.record),
        });
    }
    Ok(common)
}

/// Section with other differences between the sides, and the findings of each side's record.
fn caveats(a: Side<'_>, b: Side<'_>, pairs: &[(&Variant, &Variant)]) -> Section {
    let runs = Runs::of(a, b);
    let mut all = differences(a, b, pairs, runs);
    let judged: Vec<&String> = pairs.iter().flat_map(|(left, right)| [&left.name, &right.name]).collect();
    let concerns = |finding: &Finding| {
        finding.variants.is_empty() || finding.variants.iter().any(|name| judged.contains(&name))
    };
    let sides = match runs {
        Runs::One => vec![("A and B", a)],
        Runs::Separate => vec![("A", a), ("B", b)],
    };
    for (name, side) in sides {
        let mut findings = diagnose::findings(side.record);
        findings.retain(concerns);
        all.extend(warnings(&findings, name));
    }
    all.sort_by_key(|warning| warning.weight);
    let mut section = Section::new("Before you read the figures");
    if all.is_empty() {
        section.text("Nothing was found that makes the comparison doubtful.");
    }
    section.blocks.extend(all.into_iter().map(Block::Warning));
    section
}

/// Warnings about differences besides those that are compared.
fn differences(a: Side<'_>, b: Side<'_>, pairs: &[(&Variant, &Variant)], runs: Runs) -> Vec<Warning> {
    let warning = |weight, name: &str, cases: Vec<Case>, remedy: &str| Warning {
        weight,
        name: name.to_owned(),
        cases,
        remedy: remedy.to_owned(),
    };
    let case = |evidence: &str| Case {
        record_name: String::new(),
        about: Vec::new(),
        evidence: evidence.to_owned(),
    };
    let mut warnings = Vec::new();
    if runs == Runs::Separate
        && (a.record.run.machines != b.record.run.machines || a.record.run.machines.is_empty())
    {
        warnings.push(warning(
            Weight::Invalid,
            "other-machine",
            vec![case("the runs were on different or unknown machines")],
            "compare shapes only; run both on one machine, interleaved",
        ));
    }
    let other = pairs.iter().filter(|(left, right)| left.load != right.load);
    let loads: Vec<Case> = other
        .map(|(left, right)| {
            let mut about = vec![left.name.clone(), right.name.clone()];
            about.dedup();
            Case {
                record_name: String::new(),
                about,
                evidence: format!("the loads differ: {}; {}", load(&left.load), load(&right.load)),
            }
        })
        .collect();
    if !loads.is_empty() {
        let remedy = "the load may cause the difference: compare runs under the same load";
        warnings.push(warning(Weight::Invalid, "other-load", loads, remedy));
    }
    if runs == Runs::Separate {
        warnings.push(warning(
            Weight::Careful,
            "not-interleaved",
            vec![case("the iterations of A and B did not run next to each other")],
            "what changed on the machine in between counts as a difference: run both as variants of one run",
        ));
    }
    warnings
}

/// Every figure that both variants have.
fn shared_figures(a: &Variant, b: &Variant) -> Vec<Figure> {
    let mut all: Vec<Figure> = LATENCIES.to_vec();
    all.extend([Figure::Mean, Figure::PerSecond, Figure::BadShare]);
    // Of figures that a load does not have, none is shown.
    all.extend(StreamFigure::KEY.map(Figure::Stream));
    let in_b = b.observed_names();
    all.extend(
        a.observed_names()
            .into_iter()
            .filter(|name| in_b.contains(name))
            .map(|name| Figure::CpuPerRequest(name.to_owned())),
    );
    all
}

fn overview(a: &Variant, b: &Variant, terms: Terms, runs: Runs) -> Table {
    let mut table = Table::new("Medians over iterations", ["figure", "A", "B", "B − A", "B ÷ A", "verdict"]);
    for figure in shared_figures(a, b) {
        let Some(comparison) = compare_figure(a, b, &figure, terms) else {
            table.rows.extend(unmeasured_row(a, b, &figure));
            continue;
        };
        let with = |value: f64, of: Option<Interval>| {
            format!(
                "{}\n{}",
                display::figure(&figure, value),
                of.map_or(String::new(), |of| display::interval(&figure, &of))
            )
        };
        let own = |variant: &Variant| interval(&figures(variant, &figure));
        let (of_difference, of_ratio) =
            if runs == Runs::One { (comparison.difference, comparison.ratio) } else { (None, None) };
        let difference = of_difference.map_or(String::new(), |of| {
            format!("{} … {}", display::difference(&figure, of.low), display::difference(&figure, of.high))
        });
        let ratio = if comparison.a > 0.0 {
            formatting::factor(comparison.b / comparison.a)
        } else {
            "–".to_owned()
        };
        let ratio_between = of_ratio.map_or(String::new(), |of| {
            format!("{} … {}", formatting::factor(of.low), formatting::factor(of.high))
        });
        table.row(vec![
            figure.to_string(),
            with(comparison.a, own(a)),
            with(comparison.b, own(b)),
            format!(
                "{}\n{difference}",
                display::difference(&figure, units::difference(comparison.b, comparison.a))
            ),
            format!("{ratio}\n{ratio_between}"),
            verdict(&comparison, [a, b], terms, runs),
        ]);
    }
    table
}

/// A row with the reason why one side has no exact CPU figure; `None` where CPU was not measured at
/// all.
fn unmeasured_row(a: &Variant, b: &Variant, figure: &Figure) -> Option<Vec<String>> {
    let Figure::CpuPerRequest(name) = figure else { return None };
    let why = |(side, variant): (&str, &Variant)| {
        let first = variant.iterations.iter().find_map(|iteration| CpuUse::in_window(iteration, name))?;
        figures(variant, figure)
            .is_empty()
            .then(|| format!("not measured in {side}: {}", first.why_inexact()))
    };
    let why = [("A", a), ("B", b)].into_iter().find_map(why)?;
    let shown = |variant: &Variant| {
        let known = figures(variant, figure);
        if known.is_empty() { formatting::NONE.to_owned() } else { display::figure(figure, median(&known)) }
    };
    let none = || formatting::NONE.to_owned();
    Some(vec![figure.to_string(), shown(a), shown(b), none(), none(), why])
}

/// Formats a verdict. Without any error on either side, in any iteration, there is no margin for
/// shares of errors.
fn verdict(comparison: &Compared, sides: [&Variant; 2], terms: Terms, runs: Runs) -> String {
    let none =
        || sides.iter().all(|side| figures(side, &comparison.figure).iter().all(|share| *share <= 0.0));
    let counts_what_went_wrong = matches!(
        comparison.figure,
        Figure::BadShare | Figure::Stream(StreamFigure::Stalls | StreamFigure::CutShare)
    );
    if counts_what_went_wrong && none() {
        return "none in either".to_owned();
    }
    if runs == Runs::Separate {
        return verdict_of_runs(comparison, sides, terms);
    }
    let verdict = display::verdict(&comparison.figure, &comparison.verdict);
    match comparison.sides() {
        Some(sides) => format!("{verdict}\n{sides}"),
        None => verdict,
    }
}

/// Says how two separate runs compare, by the ranges of their rounds.
fn verdict_of_runs(comparison: &Compared, sides: [&Variant; 2], terms: Terms) -> String {
    let [(least_a, most_a), (least_b, most_b)] = sides.map(|side| {
        let values = figures(side, &comparison.figure);
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
            (least.min(*value), most.max(*value))
        })
    });
    let (a, b) = (comparison.a, comparison.b);
    let effect = if a > 0.0 {
        formatting::factor(b / a)
    } else {
        display::difference(&comparison.figure, units::difference(b, a))
    };
    if sides.iter().any(|side| figures(side, &comparison.figure).len() < 2) {
        format!("{effect}; one round does not show how much rounds vary")
    } else if (b - a).abs() <= a.abs() * terms.margin {
        format!("the same within {}: {effect}", formatting::percent(terms.margin))
    } else if most_a < least_b || most_b < least_a {
        format!("these runs differ: {effect}; no round of one reaches the other")
    } else {
        format!("inconclusive: {effect}, but rounds of one run reach those of the other")
    }
}

fn by_iteration(a: &Variant, b: &Variant, figure: &Figure) -> Table {
    let head = ["iteration", "A", "B", "difference", "difference, %"];
    let mut table = Table { folded: true, ..Table::new(&format!("{figure} by iteration"), head) };
    let both = a.iterations.iter().filter_map(|left| {
        let right = b.iterations.iter().find(|iteration| iteration.number == left.number)?;
        Some((left.number, figure.value(left)?, figure.value(right)?))
    });
    for (number, left, right) in both {
        let percent =
            if left > 0.0 { formatting::percent_change(right / left - 1.0) } else { "–".to_owned() };
        table.row(vec![
            number.to_string(),
            display::figure(figure, left),
            display::figure(figure, right),
            display::difference(figure, units::difference(right, left)),
            percent,
        ]);
    }
    table
}
