//! History: shows the key figures of many reports over time, and names where a figure changed
//! (`lab history`).
//!
//! Owns: what is kept of a report ([`HistoryEntry`]), which reports belong together, and the page.
//! Does not own: finding and reading the files, the statistics of a change
//! ([`crate::statistics::change_points`]), and how a sheet looks.
//!
//! The unit of evidence is the report: its rounds share the state of the machine on that day. So
//! the rounds give the interval of a report's own value, and a change needs several reports on both
//! sides.
//!
//! Flow: record → [`HistoryEntry`] → groups and series → sheet.

mod entry;
mod page;
mod series;

pub use entry::HistoryEntry;
pub use series::LeftOut;

use super::render::Sheet;

/// Terms of a history.
#[derive(Debug, Clone)]
pub struct HistoryTerms {
    /// Title of the page.
    pub title: String,
    /// Smallest change of a level that is named, as a share of the level before it.
    pub margin: f64,
    /// Names of the variants that are shown; empty for all.
    pub variants: Vec<String>,
}

/// Why there is no history.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HistoryError {
    /// No report can be used.
    #[error("no report of the lab to show{why}: give a folder whose subfolders have report.json files")]
    NoReports {
        /// Why the first file is left out, as the end of a phrase; empty without a file.
        why: String,
    },
    /// A requested variant does not exist.
    #[error("no report has a variant `{variant}`; the latest have {known}")]
    NoVariant {
        /// Name of the variant.
        variant: String,
        /// Names of the variants of the latest reports.
        known: String,
    },
}

/// A history with what the terminal shows of it.
#[derive(Debug)]
pub struct History {
    /// The page.
    pub sheet: Sheet,
    /// One line for each change, the latest first.
    pub changes: Vec<String>,
    /// Files that are in no series.
    pub left_out: Vec<LeftOut>,
}

/// Creates the history of reports. `unreadable` are the files that could not be read.
pub fn history(
    entries: &[HistoryEntry],
    unreadable: Vec<LeftOut>,
    terms: &HistoryTerms,
) -> Result<History, HistoryError> {
    let (groups, more) = series::groups(entries, &terms.variants, terms.margin);
    let left_out = [unreadable, more].concat();
    if groups.is_empty() {
        let why = left_out.first().map(|file| format!("; `{}`: {}", file.path, file.reason));
        return Err(HistoryError::NoReports { why: why.unwrap_or_default() });
    }
    for variant in &terms.variants {
        let has = |entry: &HistoryEntry| entry.variants.iter().any(|known| known.name == *variant);
        if !entries.iter().any(has) {
            return Err(HistoryError::NoVariant { variant: variant.clone(), known: known(&groups) });
        }
    }
    let changes = page::changes(&groups);
    let lines = changes.iter().map(page::NamedChange::line).collect();
    let sheet = page::sheet(&groups, &changes, &left_out, terms);
    Ok(History { sheet, changes: lines, left_out })
}

/// Names of the variants of the latest report of each group.
fn known(groups: &[series::Group<'_>]) -> String {
    let latest = groups.iter().filter_map(|group| group.reports.last());
    let mut names: Vec<String> = Vec::new();
    for variant in latest.flat_map(|report| &report.variants) {
        let name = format!("`{}`", variant.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}
