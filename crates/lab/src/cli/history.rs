//! Command `lab history`: shows the key figures of all reports below a folder over time.
//!
//! Owns: its arguments, and the output of the terminal. Does not own: finding and reading the
//! reports ([`crate::files`]), and the page ([`lab_analysis::offline::history`]).

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use lab_analysis::offline::history::{HistoryEntry, HistoryTerms, LeftOut, history};

use super::{CliError, CommandOutcome, percent};
use crate::files::{read_record, reports_below, write_sheet};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Reads every report.json below the folder. Reports of another scenario, form, machine or tool are
kept apart, and so are variants under another load. A change is named where thirteen or more
reports show it; the page says how. Files that cannot be used are listed with the reason.

Examples:
  postern lab history reports                     Markdown
  postern lab history reports --out trend         history.md and history.html
  postern lab history reports --margin 2          name changes from 2 % on

Exit codes: 0 success, 3 no report can be used.")]
pub(super) struct History {
    /// Folder with reports, at any depth
    folder: PathBuf,
    /// Only this variant; can be repeated
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// Smallest change that is named, in percent of the level before it
    #[arg(long, default_value_t = 5.0, value_parser = percent)]
    margin: f64,
    /// Title of the page
    #[arg(long, default_value = "History of measurements")]
    title: String,
    /// Folder for history.md and history.html; without it, Markdown is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &History, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    for path in reports_below(&arguments.folder)? {
        let name = name_below(&path, &arguments.folder);
        match read_record(&path) {
            // The record is dropped here: a folder can have more of them than memory.
            Ok(record) => entries.push(HistoryEntry::new(&name, &record)),
            Err(error) => unreadable.push(LeftOut { path: name, reason: error.to_string() }),
        }
    }
    let terms = HistoryTerms {
        title: arguments.title.clone(),
        margin: arguments.margin / 100.0,
        variants: arguments.variant.clone(),
    };
    let history = history(&entries, unreadable, &terms)?;
    let Some(folder) = &arguments.out else {
        out.write_all(history.sheet.markdown().as_bytes())?;
        return Ok(CommandOutcome::Success);
    };
    for file in &history.left_out {
        writeln!(out, "! left out: {}: {}", file.path, file.reason)?;
    }
    for change in &history.changes {
        writeln!(out, "{change}")?;
    }
    if history.changes.is_empty() {
        writeln!(out, "no change is named")?;
    }
    for path in write_sheet(&history.sheet, folder, "history")? {
        writeln!(out, "{}", path.display())?;
    }
    Ok(CommandOutcome::Success)
}

/// Path of a report within the folder.
fn name_below(path: &Path, folder: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}
