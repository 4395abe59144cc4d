//! Gate: checks a run against a committed baseline (`lab gate`).
//!
//! Owns: the baseline file `postern-lab-baseline/1`, what a breach is, and how a baseline is
//! renewed.
//! Does not own: the figures.
//!
//! A baseline holds counts that repeat (instructions, allocations, errors) and ratios within one
//! run (a path over the service alone). It holds no absolute times, which depend on the machine.
//! Each check states its tolerance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::{Measure, Record, Variant};
use crate::statistics::{ComparedTo, median, values_by_round};

/// Fact of the counting environment: the level of optimization of the counted program.
pub const OPTIMIZATION: &str = "optimization";
/// Tolerance of a count in a first baseline.
const COUNT_TOLERANCE: f64 = 0.01;
/// Tolerance of a ratio in a first baseline.
const RATIO_TOLERANCE: f64 = 0.25;

/// Name and version of the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Format {
    /// Version 1 of the shape.
    #[serde(rename = "postern-lab-baseline/1")]
    V1,
}

/// Figures that a run is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// Name and version of this shape.
    pub format: Format,
    /// Commit of the run that the figures come from; absent when unknown.
    pub commit: Option<String>,
    /// What the counts depend on besides the code, such as the compiler.
    #[serde(default)]
    pub counting: BTreeMap<String, String>,
    /// Checks of the baseline.
    pub checks: Vec<Check>,
}

/// A figure and how far it may deviate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Name of the variant.
    pub variant: String,
    /// The figure of the variant.
    pub figure: Measure,
    /// Variant by whose same figure it is divided; absent for the figure itself.
    pub over: Option<String>,
    /// Value of the figure in the baseline.
    pub value: f64,
    /// Allowed deviation, as a share of the value.
    pub tolerance: f64,
    /// Direction in which the figure may move freely.
    pub may: May,
}

/// How a figure may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum May {
    /// It may fall without limit, and rise within the tolerance.
    Fall,
    /// It may rise without limit, and fall within the tolerance.
    Rise,
    /// It has to stay within the tolerance in both directions.
    Stay,
}

/// Why a baseline cannot be used or written.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The file is not JSON of this shape.
    #[error("`{path}` is not a baseline (postern-lab-baseline/1): {error}; write one with --update")]
    Shape {
        /// Path of the file.
        path: String,
        /// The mismatch, with line and column.
        error: serde_json::Error,
    },
    /// The baseline has no checks, or a meaningless one: its numbers are invalid, or it divides a
    /// figure by itself.
    #[error("`{path}`: {reason}")]
    InvalidCheck {
        /// Path of the file.
        path: String,
        /// Description of the problem.
        reason: String,
    },
    /// The run has nothing that repeats.
    #[error("the run has no counts and no two variants for a ratio: the baseline would be empty")]
    NothingRepeatable,
    /// The run is incomplete: a baseline made of it would not check what it lacks.
    #[error("cannot make a baseline of a run that {0}: measure it in full")]
    Incomplete(String),
    /// The run lacks a figure of the baseline, or has an infinite one.
    #[error("baseline not updated: {0}; remove the check, or measure the figure")]
    NotRenewed(String),
}

impl Check {
    /// The figure in a run: the median over its rounds, or the worst round where a bound applies to
    /// each ([`Measure::holds_each_round`]). The error is a sentence that says why there is none.
    fn measured(&self, record: &Record) -> Result<f64, String> {
        let beside = self.over.as_deref().map_or(ComparedTo::Nothing, ComparedTo::Over);
        let values = values_by_round(record, &self.figure, &self.variant, beside)
            .map_err(|why| format!("{self}: {why}"))?;
        if !self.figure.holds_each_round() {
            return Ok(median(&values));
        }
        // Severity of a value: the worst round has the highest.
        let badness = |value: f64| match self.may {
            May::Fall => value,
            May::Rise => -value,
            May::Stay => (value - self.value).abs(),
        };
        let worst = values.into_iter().max_by(|a, b| badness(*a).total_cmp(&badness(*b)));
        worst.ok_or_else(|| format!("{self}: there is no round"))
    }

    /// Describes the breach when the run exceeds the tolerance or lacks the figure; `None` when it
    /// does neither.
    fn breach(&self, record: &Record) -> Option<String> {
        let is = match self.measured(record) {
            Ok(is) => is,
            Err(why) => return Some(why),
        };
        let room = self.value.abs() * self.tolerance;
        let (low, high) = (self.value - room, self.value + room);
        // A value that was written and read again may differ in the last bit. NaN meets neither
        // condition.
        let (low_enough, high_enough) = (is <= high + high.abs() * 1e-12, is >= low - low.abs() * 1e-12);
        let kept = match self.may {
            May::Fall => low_enough,
            May::Rise => high_enough,
            May::Stay => low_enough && high_enough,
        };
        (!kept).then(|| {
            let limit = if low_enough {
                format!("at least {}", number(low))
            } else {
                format!("at most {}", number(high))
            };
            let percent = if self.value == 0.0 || is.is_infinite() {
                String::new()
            } else {
                format!(" ({:+.1} %)", (is / self.value - 1.0) * 100.0)
            };
            format!("{self}: is {}, was {}, allowed {limit}{percent}", number(is), number(self.value))
        })
    }
}

fn number(value: f64) -> String {
    if value.is_infinite() {
        return "infinite".to_owned();
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", self.figure, self.variant)?;
        self.over.as_ref().map_or(Ok(()), |over| write!(f, " over `{over}`"))
    }
}

/// Result of checking a run against a baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateResult {
    /// Number of checks that the run meets.
    pub passed: usize,
    /// A sentence for each check that the run does not meet, and for a run that was stopped early.
    /// The gate passes when it is empty.
    pub breaches: Vec<String>,
}

/// Checks a run against a baseline.
pub fn gate(record: &Record, baseline: &Baseline) -> GateResult {
    let broken: Vec<String> = baseline.checks.iter().filter_map(|check| check.breach(record)).collect();
    let kept = baseline.checks.len() - broken.len();
    let partial = "the run was stopped early: the baseline cannot be checked in full".to_owned();
    let unusable = [record.run.partial.then_some(partial), other_build(record, baseline)];
    GateResult { passed: kept, breaches: unusable.into_iter().flatten().chain(broken).collect() }
}

/// Describes the mismatch when the counts of the run and of the baseline come from builds of
/// different optimization: one needs several times the instructions of the other, so a bound of
/// the slower build is no bound for the faster one.
fn other_build(record: &Record, baseline: &Baseline) -> Option<String> {
    let (was, is) = (baseline.counting.get(OPTIMIZATION)?, record.run.counting.get(OPTIMIZATION)?);
    let counted = baseline.checks.iter().any(|check| matches!(check.figure, Measure::Count { .. }));
    (counted && was != is).then(|| {
        format!(
            "the run counted a build of optimization level {is}, the baseline is of level {was}: count \
             the same build, or keep a baseline for each"
        )
    })
}

/// Refuses an incomplete run: a baseline made of it would not check what it lacks.
fn check_complete(record: &Record) -> Result<(), GateError> {
    if record.run.partial {
        return Err(GateError::Incomplete("was stopped early".to_owned()));
    }
    let lacking = record.variants.iter().find_map(|variant| Some((&variant.name, variant.missing.first()?)));
    lacking.map_or(Ok(()), |(name, round)| {
        Err(GateError::Incomplete(format!("lacks round {round} of `{name}`")))
    })
}

/// Facts that counts depend on and that changed since the baseline was written: they may be the
/// cause of a breach.
pub fn changed_since(record: &Record, baseline: &Baseline) -> Vec<String> {
    let (was, is) = (&baseline.counting, &record.run.counting);
    let value_of = |side: &BTreeMap<String, String>, name: &String| {
        side.get(name).map_or_else(|| "not known".to_owned(), |value| format!("`{value}`"))
    };
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let changed = names.into_iter().filter(|name| was.get(*name) != is.get(*name));
    changed.map(|name| format!("{name}: {} was {}", value_of(is, name), value_of(was, name))).collect()
}

impl Baseline {
    /// Reads a baseline from JSON; errors name it `path`.
    pub fn parse(json: &[u8], path: &str) -> Result<Self, GateError> {
        let baseline: Self = serde_json::from_slice(json)
            .map_err(|error| GateError::Shape { path: path.to_owned(), error })?;
        let senseless = |reason: String| Err(GateError::InvalidCheck { path: path.to_owned(), reason });
        if baseline.checks.is_empty() {
            return senseless("it has no checks: any run would pass".to_owned());
        }
        for check in &baseline.checks {
            if !(check.value.is_finite() && check.tolerance.is_finite() && check.tolerance >= 0.0) {
                return senseless(format!(
                    "{check}: value and tolerance have to be numbers, the tolerance from 0"
                ));
            }
            if check.over.as_ref() == Some(&check.variant) {
                return senseless(format!("{check}: a figure over itself is always 1"));
            }
        }
        Ok(baseline)
    }

    /// The same checks with the figures of another run. Fails when the run is incomplete or lacks a
    /// figure of one of the checks.
    pub fn with_figures_of(&self, record: &Record) -> Result<Self, GateError> {
        check_complete(record)?;
        let checks = self.checks.iter().map(|check| match check.measured(record)? {
            value if value.is_finite() => Ok(Check { value, ..check.clone() }),
            _ => Err(format!("{check}: it is infinite, which cannot be checked")),
        });
        Ok(Self {
            format: Format::V1,
            commit: record.run.commit.clone(),
            counting: record.run.counting.clone(),
            checks: checks.collect::<Result<_, String>>().map_err(GateError::NotRenewed)?,
        })
    }

    /// Creates a first baseline: every count of every variant, its errors, and its cost over the
    /// first variant. Fails when the run is incomplete or has nothing that repeats.
    pub fn from_run(record: &Record) -> Result<Self, GateError> {
        check_complete(record)?;
        let mut checks = Vec::new();
        for variant in &record.variants {
            let mut add = |figure: Measure, over: Option<&Variant>, tolerance, may| {
                let check = Check {
                    variant: variant.name.clone(),
                    figure,
                    over: over.map(|over| over.name.clone()),
                    value: 0.0,
                    tolerance,
                    may,
                };
                if let Some(value) = check.measured(record).ok().filter(|value| value.is_finite()) {
                    checks.push(Check { value, ..check });
                }
            };
            for name in variant.counters.keys() {
                add(Measure::Count { name: name.clone() }, None, COUNT_TOLERANCE, May::Fall);
            }
            // Counts alone do not show how requests ended.
            if !variant.iterations.is_empty() {
                add(Measure::Errors, None, 0.0, May::Fall);
            }
            let Some(first) = record.variants.first().filter(|first| first.name != variant.name) else {
                continue;
            };
            add(Measure::P50, Some(first), RATIO_TOLERANCE, May::Fall);
            for component in first.component_names() {
                add(
                    Measure::Cpu { component: component.to_owned() },
                    Some(first),
                    RATIO_TOLERANCE,
                    May::Fall,
                );
            }
        }
        if checks.iter().all(|check| check.figure == Measure::Errors) {
            return Err(GateError::NothingRepeatable);
        }
        let (commit, counting) = (record.run.commit.clone(), record.run.counting.clone());
        Ok(Self { format: Format::V1, commit, counting, checks })
    }

    /// The baseline as the content of a file.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }
}
