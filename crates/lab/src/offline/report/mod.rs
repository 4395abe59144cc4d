//! Report of a run: builds a [`Sheet`] from a [`Record`].
//!
//! Owns: the content of a report and its order.
//! Does not own: how it looks ([`super::render`]), and the statistics ([`crate::statistics`]).
//!
//! What makes figures doubtful comes first: the findings of [`crate::diagnose`]. Published figures
//! have rows of their own and are never used as divisors.

mod costs;
mod facts;
mod figures;
mod held;
mod meanwhile;
mod over_time;
mod stages;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

pub(super) use self::facts::{load, machine, of_run};
use crate::diagnose;
use crate::offline::render::{Sheet, html};
use crate::record::{Record, RecordError};
use crate::statistics::Figure;

/// Columns of every latency table.
pub(super) const LATENCIES: [Figure; 3] = [Figure::P50, Figure::P95, Figure::P99];

/// Builds the report of a record.
pub fn sheet(record: &Record) -> Sheet {
    let findings = diagnose::findings(record);
    let mut sheet = Sheet { title: record.run.title.clone(), lead: facts::lead(record), ..Sheet::default() };
    sheet.section(facts::before(&findings));
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
    sheet.section(held::held(record));
    sheet.section(meanwhile::meanwhile(record));
    sheet.section(facts::facts(record));
    sheet.section(facts::reading());
    sheet
}

/// Checks that a report can be written into a folder, and creates the folder when it is missing. A
/// long run calls this before it starts.
pub fn try_out(folder: &Path) -> Result<(), RecordError> {
    let failed =
        |error| RecordError::File { action: "write into", path: folder.display().to_string(), error };
    fs::create_dir_all(folder).map_err(failed)?;
    tempfile::Builder::new().prefix(".report-").tempfile_in(folder).map(drop).map_err(failed)
}

/// Writes `report.json`, `report.md` and `report.html` into a folder, which is created when it is
/// missing. When the record cannot be written, the former file remains.
pub fn write(record: &Record, folder: &Path) -> Result<[PathBuf; 3], RecordError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error| RecordError::File { action: "write", path, error }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let paths = ["report.json", "report.md", "report.html"].map(|name| folder.join(name));
    record.write(&paths[0])?;
    let sheet = sheet(record);
    fs::write(&paths[1], sheet.markdown()).map_err(failed(&paths[1]))?;
    fs::write(&paths[2], html(&sheet)).map_err(failed(&paths[2]))?;
    Ok(paths)
}
