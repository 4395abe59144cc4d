//! Tables of published results, as an audit reads them.
//!
//! Owns: the JSON shape `postern-lab-tables/1`, what makes it unreadable, and telling it from the other forms ([`super::results`],
//! [`super::page`]). Does not own: the rules. Figures that were printed with
//! so many digits stand in quotes (`"7.24"`), because how far a figure may be off depends on how it was rounded.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::results::{MARKS, Results};
use super::{AuditError, page};
use crate::offline::render::words;
use crate::record::{Arrivals, Reference, read_bounded};

/// The figures that were published about paths and identity servers of the kind Postern replaces.
const SHIPPED: &str = include_str!("../../../reference/published.json");

/// Name and version of the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Format {
    /// The first version.
    #[serde(rename = "postern-lab-tables/1")]
    V1,
}

/// Published tables and what was claimed with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Name and version of this shape.
    pub format: Format,
    /// A line for people.
    pub title: String,
    /// Where the figures come from, on what.
    pub provenance: String,
    /// Runs at one load.
    #[serde(default)]
    pub runs: Vec<RunTable>,
    /// Runs at several loads.
    #[serde(default)]
    pub sweeps: Vec<SweepTable>,
    /// What was said about them.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// A run at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunTable {
    /// How claims call it.
    pub id: String,
    /// A line for people.
    pub title: String,
    /// How requests arrived.
    pub arrivals: Arrivals,
    /// Workers of a closed loop.
    pub concurrency: Option<u32>,
    /// Requests of the run.
    pub requests: Option<u64>,
    /// Requests that did not end well.
    pub failed: Option<u64>,
    /// One entry per iteration, in order.
    #[serde(default)]
    pub iterations: Vec<Row>,
    /// Means over iterations as published, where the iterations were not.
    pub mean: Option<Row>,
    /// Cores in use under load, by program.
    #[serde(default)]
    pub cpu_cores: BTreeMap<String, f64>,
    /// Limits on cores, by program.
    #[serde(default)]
    pub cpu_limit_cores: BTreeMap<String, f64>,
}

/// Figures of an iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Mean latency, s.
    pub mean_s: Option<f64>,
    /// Median, s.
    pub p50_s: Option<f64>,
    /// 95th percentile, s.
    pub p95_s: Option<f64>,
    /// 99th percentile, s.
    pub p99_s: Option<f64>,
    /// Answers per second.
    pub per_s: Option<f64>,
}

/// A figure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// Mean latency.
    MeanS,
    /// Median.
    P50S,
    /// 95th percentile.
    P95S,
    /// 99th percentile.
    P99S,
    /// Throughput.
    PerS,
}

/// A server under growing load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepTable {
    /// How claims call it.
    pub id: String,
    /// A line for people.
    pub title: String,
    /// Length of each run, s.
    pub run_s: Option<f64>,
    /// By growing load.
    pub rows: Vec<SweepRow>,
}

/// One load of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepRow {
    /// Workers of the closed loop.
    pub concurrency: u32,
    /// Transactions of the run.
    pub samples: Option<u64>,
    /// Transactions per second.
    pub per_s: f64,
    /// Mean latency, ms.
    pub mean_ms: f64,
    /// Transactions that did not end well, per cent.
    pub error_pct: Option<f64>,
    /// Throughput of each repetition, where the run was repeated.
    #[serde(default)]
    pub repeats_per_s: Vec<f64>,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// In a line.
    pub says: String,
    /// What would have to be so.
    pub that: That,
}

/// What a claim would have to follow from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum That {
    /// A mean over iterations.
    Mean {
        /// Of which run.
        run: String,
        /// Of which figure.
        column: Column,
        /// Iterations left out, from 1.
        #[serde(default)]
        without: Vec<usize>,
        /// As printed, in the unit of the column.
        printed: Figure,
    },
    /// A coefficient of variation over iterations: standard deviation ÷ mean.
    Variation {
        /// Of which run.
        run: String,
        /// Of which figure.
        column: Column,
        /// Iterations left out, from 1.
        #[serde(default)]
        without: Vec<usize>,
        /// As printed, per cent.
        printed: Figure,
    },
    /// A variance or standard deviation over iterations.
    Spread {
        /// Of which run.
        run: String,
        /// Of which figure.
        column: Column,
        /// Iterations left out, from 1.
        #[serde(default)]
        without: Vec<usize>,
        /// As printed, in the unit of the column.
        printed: Figure,
    },
    /// A change in per cent.
    Change {
        /// Before, as printed.
        from: Figure,
        /// After, as printed.
        to: Figure,
        /// As printed, with its sign.
        printed: Figure,
    },
    /// One run needs so many times the machines of another.
    Replicas {
        /// The one that needs more.
        run: String,
        /// Than this.
        than: String,
        /// As printed.
        printed: Figure,
    },
    /// A difference between two runs is made of these parts.
    Parts {
        /// Without the parts.
        from: String,
        /// With them.
        to: String,
        /// Of which figure.
        column: Column,
        /// From and to, s, of each part.
        parts: BTreeMap<String, (f64, f64)>,
    },
    /// Two sweeps show the same.
    NoImpact {
        /// Without what is judged.
        from: String,
        /// With it.
        to: String,
        /// Difference in throughput that does not matter, per cent; absent when none was stated.
        margin_pct: Option<f64>,
    },
}

/// A number as it was printed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct Figure {
    #[schemars(regex(pattern = r"^[+-]?[0-9]+(\.[0-9]+)?$"))]
    text: String,
    #[serde(skip)]
    #[schemars(skip)]
    value: f64,
}

impl Figure {
    /// From digits, `7.24`.
    pub fn new(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite())?;
        (plain(whole) && plain(part)).then(|| Self { text: text.to_owned(), value })
    }

    /// Its value.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Digits after the point.
    pub(super) fn decimals(&self) -> usize {
        self.text.split_once('.').map_or(0, |(_, part)| part.len())
    }

    /// By how much the number that was rounded may differ: half of the last digit.
    pub fn rounding(&self) -> f64 {
        0.5 * 10.0_f64.powi(-i32::try_from(self.decimals()).unwrap_or(i32::MAX))
    }

    /// The value may have been rounded to this.
    pub fn may_be(&self, value: f64) -> bool {
        (value - self.value).abs() <= self.rounding() * (1.0 + 1e-9)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "`{text}` is not a figure: write digits as they were printed, such as \"7.24\""
            ))
        })
    }
}

impl Row {
    pub(super) fn get(&self, column: Column) -> Option<f64> {
        match column {
            Column::MeanS => self.mean_s,
            Column::P50S => self.p50_s,
            Column::P95S => self.p95_s,
            Column::P99S => self.p99_s,
            Column::PerS => self.per_s,
        }
    }
}

impl Row {
    pub(super) fn set(&mut self, column: Column, value: f64) {
        let place = match column {
            Column::MeanS => &mut self.mean_s,
            Column::P50S => &mut self.p50_s,
            Column::P95S => &mut self.p95_s,
            Column::P99S => &mut self.p99_s,
            Column::PerS => &mut self.per_s,
        };
        *place = Some(value);
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MeanS => "mean latency",
            Self::P50S => "P50",
            Self::P95S => "P95",
            Self::P99S => "P99",
            Self::PerS => "throughput",
        })
    }
}

impl Column {
    pub(super) fn unit(self) -> &'static str {
        if self == Self::PerS { "req/s" } else { "s" }
    }
}

impl RunTable {
    /// A figure of each iteration that has it, but for those left out.
    pub(super) fn column(&self, column: Column, without: &[usize]) -> Vec<f64> {
        let kept = self.iterations.iter().enumerate().filter(|(index, _)| !without.contains(&(index + 1)));
        kept.filter_map(|(_, row)| row.get(column)).collect()
    }

    /// The mean of a figure: over iterations where they are known, else as published.
    pub(super) fn mean_of(&self, column: Column) -> Option<f64> {
        let values = self.column(column, &[]);
        if values.is_empty() {
            return self.mean.as_ref()?.get(column);
        }
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }
}

impl Tables {
    /// A run of these tables as a row that stands beside the measured variant `beside`, means over iterations; or a sweep, a row for each
    /// load, where `@concurrency@` in `beside` stands for its workers. None when there is neither of this id.
    pub fn references(&self, id: &str, beside: Option<&str>) -> Vec<Reference> {
        if let Some(run) = self.run(id) {
            let us = |column| run.mean_of(column).map(|seconds| seconds * 1e6);
            return vec![Reference {
                beside: beside.map(str::to_owned),
                label: run.title.clone(),
                provenance: self.provenance.clone(),
                p50_us: us(Column::P50S),
                p95_us: us(Column::P95S),
                p99_us: us(Column::P99S),
                per_s: run.mean_of(Column::PerS),
                cpu_cores: run.cpu_cores.clone(),
            }];
        }
        let Some(sweep) = self.sweep(id) else { return Vec::new() };
        let row = |row: &SweepRow| {
            let workers = row.concurrency.to_string();
            let failed = row.error_pct.filter(|share| *share > 0.0);
            let failed = failed
                .map_or_else(String::new, |share| format!(", {} failed", words::percent(share / 100.0)));
            let mean = words::time(row.mean_ms * 1e3);
            Reference {
                beside: beside.map(|name| name.replace("@concurrency@", &workers)),
                label: format!("{}, {workers} users: mean {mean}{failed}", sweep.title),
                provenance: self.provenance.clone(),
                p50_us: None,
                p95_us: None,
                p99_us: None,
                per_s: Some(row.per_s),
                cpu_cores: BTreeMap::new(),
            }
        };
        sweep.rows.iter().map(row).collect()
    }

    /// The tables that ship with the lab.
    pub fn shipped() -> Result<Self, AuditError> {
        Self::parse(SHIPPED.as_bytes(), "the published reports")
    }

    /// Reads tables from a file.
    pub fn read(path: &Path) -> Result<Self, AuditError> {
        Self::parse(&read_bounded(path)?, &path.display().to_string())
    }

    /// Reads tables from JSON of this shape or of published results, or from a page in Markdown; `path` is what errors call it.
    pub fn parse(content: &[u8], path: &str) -> Result<Self, AuditError> {
        let shape = |error| AuditError::Shape { path: path.to_owned(), error };
        let text = String::from_utf8_lossy(content);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let tables: Self = if text.starts_with('{') {
            let json: serde_json::Value = serde_json::from_str(text).map_err(shape)?;
            let is_results =
                json.get("format").is_none() && MARKS.iter().any(|mark| json.get(mark).is_some());
            if is_results {
                let results: Results = serde_json::from_str(text).map_err(shape)?;
                results.tables(path)
            } else {
                serde_json::from_str(text).map_err(shape)?
            }
        } else {
            page::tables(text, path).ok_or_else(|| AuditError::NoTable { path: path.to_owned() })?
        };
        match tables.fault() {
            None => Ok(tables),
            Some(what) => Err(AuditError::Contradiction { path: path.to_owned(), what }),
        }
    }

    /// The run of this id.
    pub(super) fn run(&self, id: &str) -> Option<&RunTable> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// The sweep of this id.
    pub(super) fn sweep(&self, id: &str) -> Option<&SweepTable> {
        self.sweeps.iter().find(|sweep| sweep.id == id)
    }

    fn fault(&self) -> Option<String> {
        let ids: Vec<&str> =
            self.runs.iter().map(|run| &*run.id).chain(self.sweeps.iter().map(|sweep| &*sweep.id)).collect();
        if let Some(id) = ids.iter().enumerate().find_map(|(at, id)| ids[..at].contains(id).then_some(id)) {
            return Some(format!("two tables have the id `{id}`"));
        }
        self.claims.iter().find_map(|claim| {
            let (runs, sweeps): (Vec<&String>, Vec<&String>) = match &claim.that {
                That::Mean { run, .. } | That::Variation { run, .. } | That::Spread { run, .. } => {
                    (vec![run], vec![])
                }
                That::Replicas { run, than, .. } => (vec![run, than], vec![]),
                That::Parts { from, to, .. } => (vec![from, to], vec![]),
                That::NoImpact { from, to, .. } => (vec![], vec![from, to]),
                That::Change { .. } => (vec![], vec![]),
            };
            let run = runs.into_iter().find(|id| self.run(id).is_none());
            let missing = run.or_else(|| sweeps.into_iter().find(|id| self.sweep(id).is_none()))?;
            Some(format!(
                "the claim `{}` speaks of `{missing}`, which is no id of a run or sweep here",
                claim.says
            ))
        })
    }
}
