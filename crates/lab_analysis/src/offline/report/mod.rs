//! Report of a run: builds a [`Sheet`] from a [`Record`], and the files of data beside it.
//!
//! Owns: the content of a report and its order.
//! Does not own: how it looks ([`super::render`]), the statistics ([`crate::statistics`]), and
//! writing files.
//!
//! 1. The verdict comes first: what the run answers, and the most important findings of
//!    [`crate::diagnose`] that make figures doubtful.
//! 2. Everything else follows, folded.
//!
//! Published figures have rows of their own and are never used as divisors.

mod changes;
mod core_waits;
mod costs;
mod data;
mod events;
mod facts;
mod figures;
mod held_connections;
mod over_time;
mod profiles;
mod published;
mod stages;
mod streams;
mod targets;
mod verdict;

pub use self::data::{DataFile, data};
pub(super) use self::facts::{load, machine, of_run};
use crate::diagnose;
use crate::offline::render::{DataLink, Sheet};
use crate::record::Record;
use crate::statistics::Figure;

/// Columns of every latency table.
pub(super) const LATENCIES: [Figure; 3] = [Figure::P50, Figure::P95, Figure::P99];

/// Name of the file with the figures of each iteration.
const FIGURES: &str = "report.figures.csv";
/// Name of the file with latencies by percentile.
const PERCENTILES: &str = "report.percentiles.csv";
/// Name of the file with the course of each iteration.
const SERIES: &str = "report.series.csv";

/// Name of the file with the stacks of profiles.
const STACKS: &str = "report.stacks.folded";

/// Files beside a report.
const DATA: [DataLink; 4] = [
    DataLink { file: "report.json", about: "the record" },
    DataLink { file: FIGURES, about: "figures of each iteration" },
    DataLink { file: PERCENTILES, about: "latency by percentile" },
    DataLink { file: SERIES, about: "each iteration over time" },
];

/// Builds the report of a record.
pub fn sheet(record: &Record) -> Sheet {
    let findings = diagnose::findings(record);
    let (caveats, rest) = verdict::caveats(&findings);
    let mut sheet = Sheet {
        title: record.run.title.clone(),
        lead: facts::lead(record),
        data: DATA.to_vec(),
        ..Sheet::default()
    };
    if record.variants.iter().any(|variant| variant.profile.is_some()) {
        sheet.data.push(DataLink { file: STACKS, about: "call stacks of profiles, folded" });
    }
    sheet.section(verdict::verdict(record, &findings, caveats));
    for section in [
        facts::more_findings(rest),
        targets::targets(record),
        figures::summary(record),
        targets::comparisons(record),
        costs::ladders(record),
        figures::latency(record),
        figures::reliability(record),
        over_time::throughput(record),
        stages::stages(record),
        streams::streams(record),
        over_time::components(record),
        core_waits::core_waits(record),
        profiles::profiles(record),
        costs::sweeps(record),
        costs::phases(record),
        costs::staleness(record),
        changes::changes(record),
        held_connections::held(record),
        events::meanwhile(record),
        facts::facts(record),
        facts::reading_guide(),
    ] {
        sheet.folded_section(section);
    }
    sheet
}
