//! `lab audit`: recomputes published tables and lists what does not follow.
//!
//! Owns: the shape of tables ([`table`]) and the other forms in which they are read ([`results`], [`page`]), the rules over what was measured ([`measured`]) and over what was claimed ([`claimed`]). Does not
//! own: any particular report; those that ship with the lab are data like any other. Each rule looks at figures only and is silent on a
//! table that is consistent.

mod claimed;
mod measured;
mod page;
mod quantity;
mod results;
mod table;

use std::fmt::Write as _;

use serde::Serialize;
pub use table::{Claim, Column, Figure, Format, Row, RunTable, SweepRow, SweepTable, Tables, That};

use crate::record::{Doubt, RecordError};

/// Why a table cannot be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] RecordError),
    /// It is not JSON of the shape.
    #[error(
        "`{path}` is not a table of published results (postern-lab-tables/1, a list of results with `gateway` or `identity_server`, or a page in Markdown; \
         see docs/lab.md): {error}"
    )]
    Shape {
        /// Which file.
        path: String,
        /// What does not fit, with line and column.
        error: serde_json::Error,
    },
    /// It is no JSON, and has no table whose columns are understood.
    #[error(
        "`{path}` has no table of results in Markdown: a table needs columns for iterations, for names with P50 and throughput, for concurrency with \
         throughput and response time, or two columns beside a change in per cent; `postern lab audit --example` prints the form in JSON"
    )]
    NoTable {
        /// Which file.
        path: String,
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
    /// How sure it is: [`Doubt::Invalid`] is proven by the figures, [`Doubt::Careful`] holds only as far as its evidence says.
    pub doubt: Doubt,
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
    // What is proven first; otherwise in the order of the rules.
    remarks.sort_by_key(|remark| remark.doubt);
    remarks
}

/// Remarks as Markdown.
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
            0 => "nothing in them was found that does not follow".to_owned(),
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
