//! `lab audit`: recomputes published tables and lists what does not follow.
//!
//! Owns: the shape of tables ([`table`]), the rules over what was measured ([`measured`]) and over what was claimed ([`claimed`]). Does not
//! own: any particular report; those that ship with the lab are data like any other. Each rule looks at figures only and is silent on a
//! table that is consistent.

mod claimed;
mod measured;
mod table;

use std::fmt::Write as _;

use serde::Serialize;

use crate::record::RecordError;

pub use table::{Claim, Column, Figure, Format, Row, RunTable, SweepRow, SweepTable, Tables, That};

/// Why a table cannot be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] RecordError),
    /// It is not JSON of the shape.
    #[error("`{path}` is not a table of published results (postern-lab-tables/1, see docs/lab.md): {error}")]
    Shape {
        /// Which file.
        path: String,
        /// What does not fit, with line and column.
        error: serde_json::Error,
    },
    /// Its parts do not refer to each other.
    #[error("`{path}`: {what}")]
    Contradiction {
        /// Which file.
        path: String,
        /// What.
        what: String,
    },
}

/// Something that does not follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// Name of the rule.
    pub rule: &'static str,
    /// What was said, or which tables it is about.
    pub about: String,
    /// What the figures say.
    pub evidence: String,
    /// What may be said instead, or what to measure.
    pub instead: String,
}

/// Everything in the tables that does not follow from their own figures: what was measured first, then what was claimed.
pub fn audit(tables: &Tables) -> Vec<Remark> {
    let mut remarks = measured::remarks(tables);
    remarks.extend(tables.claims.iter().filter_map(|claim| claimed::remark(tables, claim)));
    remarks
}

/// Remarks as Markdown.
pub fn markdown(tables: &Tables, remarks: &[Remark]) -> String {
    let mut text = format!("# Audit: {}\n\n{}\n\n", tables.title, tables.provenance);
    let _ = writeln!(
        text,
        "{} runs, {} sweeps and {} claims were recomputed; {} do not follow.",
        tables.runs.len(),
        tables.sweeps.len(),
        tables.claims.len(),
        if remarks.is_empty() {
            "none of their statements".to_owned()
        } else {
            format!("{} statements", remarks.len())
        }
    );
    for (number, remark) in remarks.iter().enumerate() {
        let _ = write!(
            text,
            "\n## {}. {}\n\n**{}**\n\n{}\n\n_Instead:_ {}\n",
            number + 1,
            remark.rule,
            remark.about,
            remark.evidence,
            remark.instead
        );
    }
    text
}
