//! Entries: what a history keeps of one report.
//!
//! Owns: the key figures of a report, the conditions under which they were measured, and which of
//! them are no evidence.
//! Does not own: which entries belong together ([`super::series`]).
//!
//! A folder can have hundreds of records of many MiB each. An entry has a few hundred numbers, so
//! each record is read, reduced and dropped.

use std::fmt;

use crate::diagnose;
use crate::formatting;
use crate::offline::gate::OPTIMIZATION;
use crate::offline::targets::judge;
use crate::record::{Doubt, Finding, LoadShape, Machine, Origin, Record, Variant};
use crate::statistics::{Figure, Interval, StreamFigure, display, figures, interval, median};

/// A report of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    /// Path of the file, as the history names it.
    pub path: String,
    /// Start of the run, seconds since 1970.
    pub(super) started_unix_s: Option<f64>,
    pub(super) commit: Option<String>,
    /// Whether the run was stopped early.
    pub(super) partial: bool,
    pub(super) conditions: Conditions,
    /// Facts that may explain a change, by name: versions of programs, the kernel, the compiler.
    pub(super) environment: Vec<(String, String)>,
    pub(super) variants: Vec<VariantReading>,
    pub(super) targets: Vec<TargetReading>,
}

/// What has to be the same for figures to be in one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conditions {
    /// Name of the scenario, or the title of a run without one.
    pub(super) scenario: String,
    /// The tool that measured.
    pub(super) tool: String,
    pub(super) quick: bool,
    /// Level of optimization of the measured program; absent when unknown. One level needs several
    /// times the instructions of another.
    pub(super) optimization: Option<String>,
    /// Machines with their roles; empty when unknown.
    pub(super) machines: String,
}

/// Key figures of a variant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VariantReading {
    pub(super) name: String,
    pub(super) path: Vec<String>,
    pub(super) load: LoadShape,
    pub(super) readings: Vec<Reading>,
}

/// A figure that is followed over reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyFigure {
    /// A figure with a value in each round.
    Figure(Figure),
    /// A count per request, which repeats.
    Count(String),
}

/// A key figure of one report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) figure: KeyFigure,
    /// Median over the rounds.
    pub(super) value: f64,
    /// Interval of the median; absent with too few rounds.
    pub(super) interval: Option<Interval>,
    /// Why the value is no evidence; empty when it is one.
    pub(super) doubts: Vec<String>,
}

/// Verdict on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetReading {
    pub(super) name: String,
    pub(super) met: bool,
    pub(super) result: String,
    pub(super) requirement: String,
}

impl Conditions {
    /// Form of the run: `full`, or `short, optimization 0`.
    pub(super) fn form(&self) -> String {
        let length = if self.quick { "short" } else { "full" };
        match &self.optimization {
            Some(level) => format!("{length}, {OPTIMIZATION} {level}"),
            None => length.to_owned(),
        }
    }
}

impl HistoryEntry {
    /// Reduces a record to its key figures. `path` is its name in the history.
    pub fn new(path: &str, record: &Record) -> Self {
        let run = &record.run;
        let findings = diagnose::findings(record);
        let invalid: Vec<&Finding> =
            findings.iter().filter(|finding| finding.doubt == Doubt::Invalid).collect();
        Self {
            path: path.to_owned(),
            started_unix_s: run.started_unix_s,
            commit: run.commit.clone(),
            partial: run.partial,
            conditions: Conditions {
                scenario: run.scenario.clone().unwrap_or_else(|| run.title.clone()),
                tool: tool(&run.origin),
                quick: run.quick,
                optimization: optimization(record),
                machines: run.machines.iter().map(machine).collect::<Vec<_>>().join("; "),
            },
            environment: environment(record),
            variants: record.variants.iter().map(|variant| reading(variant, &invalid)).collect(),
            targets: judge(record)
                .into_iter()
                .map(|judged| TargetReading {
                    name: format!("{}\n{}", judged.target.says, judged.target),
                    met: judged.is_met(),
                    result: judged.result,
                    requirement: judged.requirement,
                })
                .collect(),
        }
    }

    /// Whether both are the same run, in two files.
    pub(super) fn is_copy_of(&self, other: &Self) -> bool {
        self.started_unix_s == other.started_unix_s
            && self.commit == other.commit
            && self.conditions == other.conditions
            && self.variants == other.variants
    }

    /// Short name of the report: its commit and date, or its path.
    pub(super) fn label(&self) -> String {
        let commit = self.commit.as_deref().map(short_commit);
        let date = self.started_unix_s.map(formatting::date);
        match (commit, date) {
            (Some(commit), Some(date)) => format!("{date} {commit}"),
            (Some(commit), None) => commit,
            (None, Some(date)) => format!("{date} {}", self.path),
            (None, None) => self.path.clone(),
        }
    }

    /// What stands below the end of an axis: the date, or else the commit or the path.
    pub(super) fn tick(&self) -> String {
        let date = self.started_unix_s.map(formatting::date);
        date.or_else(|| self.commit.as_deref().map(short_commit)).unwrap_or_else(|| self.path.clone())
    }
}

impl KeyFigure {
    /// Formats a value with its unit.
    pub(super) fn write(&self, value: f64) -> String {
        match self {
            Self::Figure(figure) => display::figure(figure, value),
            Self::Count(_) => formatting::digits(value),
        }
    }

    /// Whether a larger value is better.
    pub(super) fn more_is_better(&self) -> bool {
        matches!(self, Self::Figure(figure) if figure.more_is_better())
    }
}

impl fmt::Display for KeyFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Figure(figure) => write!(f, "{figure}"),
            Self::Count(name) => write!(f, "{name} per request"),
        }
    }
}

impl Reading {
    /// Whether the value is evidence of a change.
    pub(super) fn is_evidence(&self) -> bool {
        self.doubts.is_empty()
    }
}

/// The first twelve characters of a commit's name, and whether there were local changes.
fn short_commit(commit: &str) -> String {
    let (name, more) = commit.split_once(' ').unwrap_or((commit, ""));
    let name: String = name.chars().take(12).collect();
    if more.is_empty() { name } else { format!("{name} + changes") }
}

fn tool(origin: &Origin) -> String {
    match origin {
        Origin::Lab { generators: 0 | 1, .. } => "the lab".to_owned(),
        Origin::Lab { generators, .. } => format!("the lab, {generators} generators"),
        Origin::Import { tool, .. } => tool.clone(),
    }
}

/// A machine without its kernel, which changes during the life of a machine.
fn machine(machine: &Machine) -> String {
    let processor = machine.processor.as_deref().unwrap_or("processor not known");
    let memory = installed_memory(machine.memory_bytes);
    let mut text = format!("{}: {} × {processor}, {memory}", machine.role, machine.cores);
    if let Some(group) = &machine.cgroup {
        let cpu = group.cpu_limit_cores.map(|cores| format!("{cores} cores"));
        let memory = group.memory_limit_bytes.map(|bytes| formatting::bytes(bytes as f64));
        let limits: Vec<String> = [cpu, memory].into_iter().flatten().collect();
        if !limits.is_empty() {
            text = format!("{text}, limited to {}", limits.join(", "));
        }
    }
    text
}

/// The memory that a machine was sold with: a kernel takes some of it, and each another amount.
fn installed_memory(visible_bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    let step = if visible_bytes < 4 * GIB { GIB / 4 } else { GIB };
    formatting::bytes((visible_bytes.div_ceil(step) * step) as f64)
}

/// Level of optimization of the counted program, or else of the programs that took part.
fn optimization(record: &Record) -> Option<String> {
    let run = &record.run;
    let levels = || run.peers.iter().find_map(|peer| peer.optimization.clone());
    run.counting.get(OPTIMIZATION).cloned().or_else(levels)
}

fn environment(record: &Record) -> Vec<(String, String)> {
    let run = &record.run;
    let mut facts = Vec::new();
    if let Origin::Lab { version, .. } = &run.origin {
        facts.push(("lab".to_owned(), version.clone()));
    }
    facts.extend(run.configuration.clone().map(|digest| ("configuration digest".to_owned(), digest)));
    facts.extend(
        run.machines
            .iter()
            .map(|machine| (format!("kernel of the {}", machine.role), machine.kernel.clone())),
    );
    facts.extend(run.peers.iter().map(|peer| (peer.name.clone(), peer.version.clone())));
    facts.extend(run.counting.iter().map(|(name, value)| (name.clone(), value.clone())));
    facts
}

fn reading(variant: &Variant, invalid: &[&Finding]) -> VariantReading {
    let concerns =
        |finding: &&&Finding| finding.variants.is_empty() || finding.variants.contains(&variant.name);
    let doubts: Vec<String> = invalid.iter().filter(concerns).map(|finding| finding.name.clone()).collect();
    let mut readings: Vec<Reading> =
        followed(variant).into_iter().filter_map(|figure| figure_reading(variant, figure, &doubts)).collect();
    readings.extend(variant.counters.iter().map(|(name, value)| Reading {
        figure: KeyFigure::Count(name.clone()),
        value: *value,
        interval: None,
        doubts: Vec::new(),
    }));
    VariantReading {
        name: variant.name.clone(),
        path: variant.path.clone(),
        load: variant.load.clone(),
        readings,
    }
}

/// Figures that a history follows.
fn followed(variant: &Variant) -> Vec<Figure> {
    let cost = variant.cost_components();
    let mut all = vec![Figure::P50, Figure::P99, Figure::PerSecond];
    all.extend(StreamFigure::KEY.map(Figure::Stream));
    all.extend((!cost.is_empty()).then(|| Figure::CpuPerRequestSum(cost.clone())));
    all.extend(cost.into_iter().map(Figure::Memory));
    all
}

/// A figure of a variant; `None` when no round has it, or when it is infinite.
fn figure_reading(variant: &Variant, figure: Figure, doubts: &[String]) -> Option<Reading> {
    let values = figures(variant, &figure);
    let value = median(&values);
    if values.is_empty() || !value.is_finite() {
        return None;
    }
    let mut doubts = doubts.to_vec();
    if values.len() < variant.iterations.len() || !variant.missing.is_empty() {
        doubts.push("not in every round".to_owned());
    }
    Some(Reading { interval: interval(&values), figure: KeyFigure::Figure(figure), value, doubts })
}
