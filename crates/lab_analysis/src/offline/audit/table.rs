//! Tables: published results in the form that an audit reads.
//!
//! Owns: the JSON shape `postern-lab-tables/1`, and what makes tables contradict themselves.
//! Does not own: the other forms that tables are read from ([`super::read`]), and the rules.
//!
//! Printed figures are strings with their digits (`"7.24"`), because their possible error depends
//! on how they were rounded.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::formatting;
use crate::record::{Arrivals, Reference};

/// Name and version of the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Format {
    /// Version 1 of the shape.
    #[serde(rename = "postern-lab-tables/1")]
    V1,
}

/// Published tables and the claims about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Name and version of this shape.
    pub format: Format,
    /// Title of the tables, one line.
    pub title: String,
    /// Source of the figures, and the hardware.
    pub provenance: String,
    /// Runs at one load.
    #[serde(default)]
    pub runs: Vec<RunTable>,
    /// Runs at several loads.
    #[serde(default)]
    pub sweeps: Vec<SweepTable>,
    /// Claims about the tables.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// A run at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunTable {
    /// Name of the run in claims.
    pub id: String,
    /// Title of the run, one line.
    pub title: String,
    /// How requests arrived.
    pub arrivals: Arrivals,
    /// Workers of a closed loop.
    pub concurrency: Option<u32>,
    /// Number of requests of the run.
    pub requests: Option<u64>,
    /// Number of requests that did not end well.
    pub failed: Option<u64>,
    /// Figures of each iteration, in order.
    #[serde(default)]
    pub iterations: Vec<Row>,
    /// Means over iterations as published, where the iterations were not published.
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
    /// Median latency, s.
    pub p50_s: Option<f64>,
    /// 95th percentile of the latency, s.
    pub p95_s: Option<f64>,
    /// 99th percentile of the latency, s.
    pub p99_s: Option<f64>,
    /// Responses per second.
    pub per_s: Option<f64>,
}

/// A figure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// Mean latency, s.
    MeanS,
    /// Median latency, s.
    P50S,
    /// 95th percentile of the latency, s.
    P95S,
    /// 99th percentile of the latency, s.
    P99S,
    /// Responses per second.
    PerS,
}

/// A server under growing load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepTable {
    /// Name of the sweep in claims.
    pub id: String,
    /// Title of the sweep, one line.
    pub title: String,
    /// Length of each run, s.
    pub run_s: Option<f64>,
    /// Rows by increasing load.
    pub rows: Vec<SweepRow>,
}

/// One load of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepRow {
    /// Workers of the closed loop.
    pub concurrency: u32,
    /// Number of transactions of the run.
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

/// A claim about the tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim in one line.
    pub says: String,
    /// What has to hold for the claim to follow.
    pub that: ClaimKind,
}

/// What a claim has to follow from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ClaimKind {
    /// A mean over iterations.
    Mean {
        /// Id of the run.
        run: String,
        /// Column of the figure.
        column: Column,
        /// Iterations that are left out, from 1.
        #[serde(default)]
        without: Vec<usize>,
        /// Printed value, in the unit of the column.
        printed: PrintedFigure,
    },
    /// A coefficient of variation over iterations: standard deviation ÷ mean.
    Variation {
        /// Id of the run.
        run: String,
        /// Column of the figure.
        column: Column,
        /// Iterations that are left out, from 1.
        #[serde(default)]
        without: Vec<usize>,
        /// Printed value, per cent.
        printed: PrintedFigure,
    },
    /// A variance or standard deviation over iterations.
    Spread {
        /// Id of the run.
        run: String,
        /// Column of the figure.
        column: Column,
        /// Iterations that are left out, from 1.
        #[serde(default)]
        without: Vec<usize>,
        /// Printed value, in the unit of the column.
        printed: PrintedFigure,
    },
    /// A change in per cent.
    Change {
        /// Value before, as printed.
        from: PrintedFigure,
        /// Value after, as printed.
        to: PrintedFigure,
        /// Printed change, with its sign.
        printed: PrintedFigure,
    },
    /// One run needs a multiple of the machines of another.
    Replicas {
        /// Id of the run that needs more.
        run: String,
        /// Id of the run that it is compared with.
        than: String,
        /// Printed multiple.
        printed: PrintedFigure,
    },
    /// A difference between two runs is the sum of these parts.
    Parts {
        /// Id of the run without the parts.
        from: String,
        /// Id of the run with the parts.
        to: String,
        /// Column of the figure.
        column: Column,
        /// Lower and upper estimate of each part, s.
        parts: BTreeMap<String, (f64, f64)>,
    },
    /// Two sweeps show the same throughput.
    NoImpact {
        /// Id of the sweep without the change that is judged.
        from: String,
        /// Id of the sweep with it.
        to: String,
        /// Difference in throughput that does not matter, per cent; absent when none was stated.
        margin_pct: Option<f64>,
    },
}

/// A number as it was printed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct PrintedFigure {
    #[schemars(regex(pattern = r"^[+-]?[0-9]+(\.[0-9]+)?$"))]
    text: String,
    #[serde(skip)]
    #[schemars(skip)]
    value: f64,
}

impl PrintedFigure {
    /// Parses digits such as `7.24`; `None` for anything else.
    pub fn new(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite())?;
        (plain(whole) && plain(part)).then(|| Self { text: text.to_owned(), value })
    }

    /// Value of the number.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Number of digits after the decimal point.
    pub(super) fn decimals(&self) -> usize {
        self.text.split_once('.').map_or(0, |(_, part)| part.len())
    }

    /// Largest error by rounding: half of the last digit.
    pub fn rounding(&self) -> f64 {
        0.5 * 10.0_f64.powi(-i32::try_from(self.decimals()).unwrap_or(i32::MAX))
    }

    /// Whether `value` may have been rounded to this figure.
    pub fn may_round_from(&self, value: f64) -> bool {
        (value - self.value).abs() <= self.rounding() * (1.0 + 1e-9)
    }
}

impl fmt::Display for PrintedFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PrintedFigure {
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
    /// The figure of each iteration that has it, without the iterations left out.
    pub(super) fn column(&self, column: Column, without: &[usize]) -> Vec<f64> {
        let kept = self.iterations.iter().enumerate().filter(|(index, _)| !without.contains(&(index + 1)));
        kept.filter_map(|(_, row)| row.get(column)).collect()
    }

    /// Mean of a figure: over the iterations where they are known, otherwise as published.
    pub(super) fn mean_of(&self, column: Column) -> Option<f64> {
        let values = self.column(column, &[]);
        if values.is_empty() {
            return self.mean.as_ref()?.get(column);
        }
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }
}

impl Tables {
    /// Rows that a report shows beside the measured variant `beside`.
    ///
    /// A run gives one row of means over its iterations. A sweep gives a row per load, and
    /// `@concurrency@` in `beside` stands for its workers. The result is empty when neither has
    /// this id.
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
                .map_or_else(String::new, |share| format!(", {} failed", formatting::percent(share / 100.0)));
            let mean = formatting::time(row.mean_ms * 1e3);
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

    /// The run with this id.
    pub(super) fn run(&self, id: &str) -> Option<&RunTable> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// The sweep with this id.
    pub(super) fn sweep(&self, id: &str) -> Option<&SweepTable> {
        self.sweeps.iter().find(|sweep| sweep.id == id)
    }

    /// Description of the first contradiction: an id that occurs twice, or a claim that names an
    /// unknown one.
    pub(super) fn inconsistency(&self) -> Option<String> {
        let ids: Vec<&str> =
            self.runs.iter().map(|run| &*run.id).chain(self.sweeps.iter().map(|sweep| &*sweep.id)).collect();
        if let Some(id) = ids.iter().enumerate().find_map(|(at, id)| ids[..at].contains(id).then_some(id)) {
            return Some(format!("two tables have the id `{id}`"));
        }
        self.claims.iter().find_map(|claim| {
            let (runs, sweeps): (Vec<&String>, Vec<&String>) = match &claim.that {
                ClaimKind::Mean { run, .. }
                | ClaimKind::Variation { run, .. }
                | ClaimKind::Spread { run, .. } => (vec![run], vec![]),
                ClaimKind::Replicas { run, than, .. } => (vec![run, than], vec![]),
                ClaimKind::Parts { from, to, .. } => (vec![from, to], vec![]),
                ClaimKind::NoImpact { from, to, .. } => (vec![], vec![from, to]),
                ClaimKind::Change { .. } => (vec![], vec![]),
            };
            let run = runs.into_iter().find(|id| self.run(id).is_none());
            let missing = run.or_else(|| sweeps.into_iter().find(|id| self.sweep(id).is_none()))?;
            Some(format!("the claim `{}` names `{missing}`, but no run or sweep has this id", claim.says))
        })
    }
}
