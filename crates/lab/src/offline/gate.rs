//! `lab gate`: holds a run to a committed baseline.
//!
//! Owns: the baseline file `postern-lab-baseline/1`, what a breach is, and how a baseline is written anew. Does not own: figures. What is gated are
//! counts that repeat (instructions, allocations, errors) and ratios within one run (this path over the bare service): absolute times
//! depend on the machine. Each check states its tolerance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::{Measure, Record, RecordError, Variant, read_bounded};
use crate::statistics::{Beside, by_round, median};

/// Tolerance of a count in a baseline that is made from nothing.
const COUNT_TOLERANCE: f64 = 0.01;
/// Tolerance of a ratio in a baseline that is made from nothing.
const RATIO_TOLERANCE: f64 = 0.25;

/// Name and version of the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Format {
    /// The first version.
    #[serde(rename = "postern-lab-baseline/1")]
    V1,
}

/// What a run is held to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// Name and version of this shape.
    pub format: Format,
    /// Commit of the run whose figures these are; absent when nobody says.
    pub commit: Option<String>,
    /// What its counts depend on beside the code, such as the compiler.
    #[serde(default)]
    pub counting: BTreeMap<String, String>,
    /// What is checked.
    pub checks: Vec<Check>,
}

/// A figure and how far it may move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The variant.
    pub variant: String,
    /// Which figure of it.
    pub figure: Measure,
    /// Divided by the same figure of this variant; absent for the figure itself.
    pub over: Option<String>,
    /// What it was.
    pub value: f64,
    /// By what share of it it may move.
    pub tolerance: f64,
    /// In which direction it may not move further.
    pub may: May,
}

/// Where a figure may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum May {
    /// Anywhere below the value and its tolerance.
    Fall,
    /// Anywhere above.
    Rise,
    /// Not beyond the tolerance in either direction.
    Stay,
}

/// Why a baseline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] RecordError),
    /// It is not JSON of the shape.
    #[error("`{path}` is not a baseline (postern-lab-baseline/1): {error}; write one with --update")]
    Shape {
        /// Which file.
        path: String,
        /// What does not fit, with line and column.
        error: serde_json::Error,
    },
    /// A check that cannot hold anything.
    #[error("`{path}`: {what}")]
    Senseless {
        /// Which file.
        path: String,
        /// What.
        what: String,
    },
    /// There is nothing that repeats in the run.
    #[error("the run has no counts, and no two variants to take ratios of: there is nothing to hold it to")]
    NothingToHold,
    /// The run is not whole: what it lacks would not be held from then on.
    #[error("no baseline is made of a run that {0}: measure it in full")]
    NotWhole(String),
    /// The run does not have a figure of the baseline, or none that anything can be held to.
    #[error("the baseline stays as it is: {0}; take the check out of it, or measure the figure")]
    NotRenewed(String),
}

impl Check {
    /// The figure in a run: the median over its rounds, and the worst of them where a bound holds in each
    /// ([`Measure::holds_each_round`]). The sentence says why there is none.
    fn measured(&self, record: &Record) -> Result<f64, String> {
        let beside = self.over.as_deref().map_or(Beside::Nothing, Beside::Over);
        let values =
            by_round(record, &self.figure, &self.variant, beside).map_err(|why| format!("{self}: {why}"))?;
        if !self.figure.holds_each_round() {
            return Ok(median(&values));
        }
        // How bad a value is.
        let badness = |value: f64| match self.may {
            May::Fall => value,
            May::Rise => -value,
            May::Stay => (value - self.value).abs(),
        };
        let worst = values.into_iter().max_by(|a, b| badness(*a).total_cmp(&badness(*b)));
        worst.ok_or_else(|| format!("{self}: there is no round"))
    }

    /// A sentence when the run is beyond the tolerance.
    fn breach(&self, record: &Record) -> Option<String> {
        let is = match self.measured(record) {
            Ok(is) => is,
            Err(why) => return Some(why),
        };
        let room = self.value.abs() * self.tolerance;
        let (low, high) = (self.value - room, self.value + room);
        // What was written and read again may differ in the last bit. What is no number is neither.
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
            format!("{self}: {} was {}, may be {limit}{percent}", number(is), number(self.value))
        })
    }
}

fn number(value: f64) -> String {
    if value.is_infinite() {
        return "endless".to_owned();
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

/// What became of a baseline's checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Checks that the run keeps.
    pub kept: usize,
    /// A sentence for each that it does not keep, and for what else closes the gate: it is open when there is none.
    pub breaches: Vec<String>,
}

/// Holds a run to a baseline.
pub fn gate(record: &Record, baseline: &Baseline) -> Held {
    let broken: Vec<String> = baseline.checks.iter().filter_map(|check| check.breach(record)).collect();
    let kept = baseline.checks.len() - broken.len();
    let partial = "the run was ended before it was whole: what it would have shown is not known".to_owned();
    Held { kept, breaches: record.run.partial.then_some(partial).into_iter().chain(broken).collect() }
}

/// Refuses a run that lacks something: a baseline that is made of it would lack it as well, and be kept by whoever breaks it.
fn whole(record: &Record) -> Result<(), GateError> {
    if record.run.partial {
        return Err(GateError::NotWhole("was ended before its end".to_owned()));
    }
    let lacking = record.variants.iter().find_map(|variant| Some((&variant.name, variant.missing.first()?)));
    lacking
        .map_or(Ok(()), |(name, round)| Err(GateError::NotWhole(format!("lacks round {round} of `{name}`"))))
}

/// What counts depend on, and what is not as it was when the baseline was written: a breach may be due to it.
pub fn changed_since(record: &Record, baseline: &Baseline) -> Vec<String> {
    let (was, is) = (&baseline.counting, &record.run.counting);
    let told = |side: &BTreeMap<String, String>, name: &String| {
        side.get(name).map_or_else(|| "not known".to_owned(), |what| format!("`{what}`"))
    };
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let changed = names.into_iter().filter(|name| was.get(*name) != is.get(*name));
    changed.map(|name| format!("{name}: {} was {}", told(is, name), told(was, name))).collect()
}

impl Baseline {
    /// Reads a baseline from a file.
    pub fn read(path: &Path) -> Result<Self, GateError> {
        let name = path.display().to_string();
        let baseline: Self = serde_json::from_slice(&read_bounded(path)?)
            .map_err(|error| GateError::Shape { path: name.clone(), error })?;
        let senseless = |what: String| Err(GateError::Senseless { path: name.clone(), what });
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

    /// The same checks with the figures of another run. A check whose figure the run does not have stops it, and so does a run that is not whole.
    pub fn renewed(&self, record: &Record) -> Result<Self, GateError> {
        whole(record)?;
        let checks = self.checks.iter().map(|check| match check.measured(record)? {
            value if value.is_finite() => Ok(Check { value, ..check.clone() }),
            _ => Err(format!("{check}: it is endless, which nothing can be held to")),
        });
        Ok(Self {
            format: Format::V1,
            commit: record.run.commit.clone(),
            counting: record.run.counting.clone(),
            checks: checks.collect::<Result<_, String>>().map_err(GateError::NotRenewed)?,
        })
    }

    /// A first baseline: every count of every variant, its errors, and the cost of each variant over the first one. Of a run that is not whole there
    /// is none.
    pub fn first(record: &Record) -> Result<Self, GateError> {
        whole(record)?;
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
            // Of counts alone nobody knows how requests ended.
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
            return Err(GateError::NothingToHold);
        }
        let (commit, counting) = (record.run.commit.clone(), record.run.counting.clone());
        Ok(Self { format: Format::V1, commit, counting, checks })
    }

    /// The baseline as it is written to a file.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }
}
