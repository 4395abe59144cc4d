//! Audit: recomputes published tables and lists what does not follow (`lab audit`).
//!
//! Owns: the shape of tables ([`table`]), the other forms that they are read from ([`read`],
//! [`results`], [`page`]), and the rules over measurements ([`measured`]) and claims ([`claimed`]).
//! Does not own: any particular report. Those that ship with the lab are data like others.
//!
//! Each rule reads figures only, and reports nothing about a consistent table.

mod claimed;
mod measured;
mod page;
mod quantity;
mod read;
mod results;
mod table;

use std::fmt::Write as _;

use serde::Serialize;
pub use table::{
    Claim, ClaimKind, Column, Format, PrintedFigure, Row, RunTable, SweepRow, SweepTable, Tables,
};

use crate::record::Doubt;

/// Why a table cannot be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file is JSON, but not of a known shape.
    #[error(
        "`{path}` is not a table of published results (postern-lab-tables/1, a list of results with `gateway` or `identity_server`, or a page in Markdown; \
         see docs/reference/lab.md): {error}"
    )]
    Shape {
        /// Path of the file.
        path: String,
        /// The mismatch, with line and column.
        error: serde_json::Error,
    },
    /// The file is not JSON, and has no Markdown table with known columns.
    #[error(
        "`{path}` has no table of results in Markdown: a table needs columns for iterations, for names with P50 and throughput, for concurrency with \
         throughput and response time, or two columns beside a change in per cent; `postern lab audit --example` prints the form in JSON"
    )]
    NoTable {
        /// Path of the file.
        path: String,
    },
    /// The parts of the tables do not fit together: an id occurs twice, or a claim names an unknown
    /// one.
    #[error("`{path}`: {reason}")]
    Contradiction {
        /// Path of the file.
        path: String,
        /// Description of the contradiction.
        reason: String,
    },
}

/// A statement that does not follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// How certain the remark is: the figures prove [`Doubt::Invalid`], while [`Doubt::Careful`]
    /// holds only as far as its evidence says.
    pub doubt: Doubt,
    /// The claim, or the tables, that it is about.
    pub about: String,
    /// Figures that support the remark.
    pub evidence: String,
    /// What can be claimed instead, or what to measure.
    pub instead: String,
}

/// Everything in the tables that does not follow from their own figures. Proven remarks come first,
/// and within a weight measurements before claims.
pub fn audit(tables: &Tables) -> Vec<Remark> {
    let mut remarks = measured::remarks(tables);
    remarks.extend(tables.claims.iter().filter_map(|claim| claimed::remark(tables, claim)));
    // Proven remarks first; otherwise in the order of the rules.
    remarks.sort_by_key(|remark| remark.doubt);
    remarks
}

/// Formats remarks as Markdown.
pub fn markdown(tables: &Tables, remarks: &[Remark]) -> String {
    let mut text = format!("# Audit: {}\n\n{}\n\n", tables.title, tables.provenance);
    let wrong = remarks.iter().filter(|remark| remark.doubt == Doubt::Invalid).count();
    let careful = remarks.len() - wrong;
    let _ = write!(
        text,
        "{} runs, {} sweeps and {} claims were recomputed; {}.",
        tables.runs.len(),
        tables.sweeps.len(),
        tables.claims.len(),
        match wrong {
            0 => "everything in them follows".to_owned(),
            1 => "1 statement does not follow".to_owned(),
            many => format!("{many} statements do not follow"),
        }
    );
    let _ = match careful {
        0 => writeln!(text),
        1 => writeln!(text, " 1 more is to be read with care."),
        many => writeln!(text, " {many} more are to be read with care."),
    };
    for (number, remark) in remarks.iter().enumerate() {
        let _ = write!(
            text,
            "\n## {}. {}{}\n\n**{}**\n\n{}\n\n_Instead:_ {}\n",
            number + 1,
            remark.rule,
            if remark.doubt == Doubt::Careful { " (careful)" } else { "" },
            remark.about,
            remark.evidence,
            remark.instead
        );
    }
    text
}
