//! Reading: tables from the bytes of a file, in any of the forms that an audit reads.
//!
//! Owns: telling the forms apart (JSON of the shape of [`Tables`], [`super::results`],
//! [`super::page`]), and the tables that ship with the lab.
//! Does not own: the forms.

use super::results::{MARKS, Results};
use super::table::Tables;
use super::{AuditError, page};

/// Published figures of paths and identity servers of the kind that Postern replaces.
const SHIPPED: &str = include_str!("../../../reference/published.json");

impl Tables {
    /// The tables that ship with the lab.
    pub fn shipped() -> Result<Self, AuditError> {
        Self::parse(SHIPPED.as_bytes(), "the published reports")
    }

    /// Reads tables from JSON of this shape or of published results, or from a page in Markdown;
    /// errors name it `path`.
    pub fn parse(content: &[u8], path: &str) -> Result<Self, AuditError> {
        let shape = |error| AuditError::Shape { path: path.to_owned(), error };
        let text = String::from_utf8_lossy(content);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let tables: Self = if text.starts_with('{') {
            let json: serde_json::Value = serde_json::from_str(text).map_err(shape)?;
            let is_results =
                json.get("format").is_none() && MARKS.iter().any(|mark| json.get(mark).is_some());
            if is_results {
                let results: Results = serde_json::from_str(text).map_err(shape)?;
                results.tables(path)
            } else {
                serde_json::from_str(text).map_err(shape)?
            }
        } else {
            page::tables(text, path).ok_or_else(|| AuditError::NoTable { path: path.to_owned() })?
        };
        match tables.inconsistency() {
            None => Ok(tables),
            Some(reason) => Err(AuditError::Contradiction { path: path.to_owned(), reason }),
        }
    }
}
