//! Report of a run: builds a [`Sheet`] from a [`Record`].
//!
//! Owns: the content of a report and its order.
//! Does not own: how it looks ([`super::render`]), the statistics ([`crate::statistics`]), and
//! files.
//!
//! What makes figures doubtful comes first: the findings of [`crate::diagnose`]. Published figures
//! have rows of their own and are never used as divisors.

mod changes;
mod costs;
mod events;
mod facts;
mod figures;
mod held_connections;
mod over_time;
mod stages;
mod targets;

pub(super) use self::facts::{load, machine, of_run};
use crate::diagnose;
use crate::offline::render::Sheet;
use crate::record::Record;
use crate::statistics::Figure;

/// Columns of every latency table.
pub(super) const LATENCIES: [Figure; 3] = [Figure::P50, Figure::P95, Figure::P99];

/// Builds the report of a record.
pub fn sheet(record: &Record) -> Sheet {
    let findings = diagnose::findings(record);
    let mut sheet = Sheet { title: record.run.title.clone(), lead: facts::lead(record), ..Sheet::default() };
    sheet.section(facts::warnings_section(&findings));
    sheet.section(targets::targets(record));
    sheet.section(figures::summary(record));
    sheet.section(targets::comparisons(record));
    sheet.section(costs::ladders(record));
    sheet.section(figures::latency(record));
    sheet.section(figures::reliability(record));
    sheet.section(over_time::throughput(record));
    sheet.section(stages::stages(record));
    sheet.section(over_time::components(record));
    sheet.section(costs::sweeps(record));
    sheet.section(costs::phases(record));
    sheet.section(costs::staleness(record));
    sheet.section(changes::changes(record));
    sheet.section(held_connections::held(record));
    sheet.section(events::meanwhile(record));
    sheet.section(facts::facts(record));
    sheet.section(facts::reading_guide());
    sheet
}
