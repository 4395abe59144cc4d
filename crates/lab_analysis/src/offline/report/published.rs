//! Published: rows with figures that were published elsewhere, beside measured ones.
//!
//! Owns: their marks, and the notes below a table that say once where each comes from.

use crate::offline::render::Table;
use crate::record::Reference;

/// Sources of published figures, in the order of their first row.
pub(super) struct Sources<'a>(Vec<&'a str>);

impl<'a> Sources<'a> {
    /// Collects the sources of the published rows of a record.
    pub(super) fn of(rows: &'a [Reference]) -> Self {
        let mut sources: Vec<&str> = Vec::new();
        for row in rows {
            if !sources.contains(&row.provenance.as_str()) {
                sources.push(&row.provenance);
            }
        }
        Self(sources)
    }

    /// Name of a row with the mark of its source.
    pub(super) fn label(&self, row: &Reference) -> String {
        let at = self.0.iter().position(|source| *source == row.provenance).unwrap_or(0);
        format!("{} {}", row.label, self.mark(at))
    }

    /// Adds a note for each source, if the table has rows of another kind.
    pub(super) fn note(&self, table: &mut Table) {
        if !table.apart.is_empty() {
            let notes = self.0.iter().enumerate();
            table.notes.extend(notes.map(|(at, source)| format!("{} {source}", self.mark(at))));
        }
    }

    /// A number is needed only to tell several sources apart.
    fn mark(&self, at: usize) -> String {
        if self.0.len() > 1 { format!("†{}", at + 1) } else { "†".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn row(label: &str, provenance: &str) -> Reference {
        Reference {
            beside: None,
            label: label.to_owned(),
            provenance: provenance.to_owned(),
            p50_us: None,
            p95_us: None,
            p99_us: None,
            per_s: None,
            cpu_cores: BTreeMap::new(),
        }
    }

    #[test]
    fn each_source_is_named_once() {
        let mut rows = vec![row("a", "published, other hardware")];
        let mut table = Table::new("", ["name"]);
        Sources::of(&rows).note(&mut table);
        assert!(table.notes.is_empty(), "no row needs it");
        table.row_apart(Vec::new());
        Sources::of(&rows).note(&mut table);
        assert_eq!(table.notes, ["† published, other hardware"]);
        rows.extend([row("b", "a blog"), row("c", "published, other hardware")]);
        let sources = Sources::of(&rows);
        let labels: Vec<String> = rows.iter().map(|row| sources.label(row)).collect();
        assert_eq!(labels, ["a †1", "b †2", "c †1"]);
    }
}
