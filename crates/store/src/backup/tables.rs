//! Tables of a copy, with their columns, parsed from the schema text: a table that is added to the
//! schema is copied.
//!
//! The schema text has a simple form: one column per line, and each table after those that it
//! references. A test compares the result with the catalogue of a real database.

use crate::migrations;

/// Tables that are not copied. Followers and readers of login endings belong to this database only,
/// and the lock row exists in every database.
const NOT_COPIED: [&str; 4] = ["followers", "names_given", "login_endings", "login_endings_head"];

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Bytes,
}

/// A table of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: Vec<(&'static str, Kind)>,
    /// Columns of its primary key.
    pub(super) key: Vec<&'static str>,
}

/// All copied tables; referenced tables come first.
pub(super) fn copied_tables() -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for line in migrations::schemas().flat_map(str::lines) {
        if let Some(name) = line.strip_prefix("CREATE TABLE ").and_then(|rest| rest.strip_suffix(" (")) {
            tables.push(Table { name, columns: Vec::new(), key: Vec::new() });
        } else if let Some((name, column)) =
            line.strip_prefix("ALTER TABLE ").and_then(|rest| rest.split_once(" ADD COLUMN "))
        {
            if let Some(table) = tables.iter_mut().find(|table| table.name == name) {
                table.add(column);
            }
        } else if let (Some(column), Some(table)) = (line.strip_prefix("    "), tables.last_mut()) {
            table.add(column);
        }
    }
    tables.retain(|table| !NOT_COPIED.contains(&table.name));
    tables
}

impl Table {
    /// Adds the column or key that this line of the definition describes.
    fn add(&mut self, line: &'static str) {
        if let Some(key) = line.strip_prefix("PRIMARY KEY (").and_then(|rest| rest.split(')').next()) {
            self.key = key.split(", ").collect();
            return;
        }
        let mut words = line.split([' ', ',', ';']);
        let (Some(name), Some(kind)) = (words.next(), words.next()) else { return };
        let kind = match kind {
            "TEXT" => Kind::Text,
            "BIGINT" => Kind::Integer,
            "BLOB" => Kind::Bytes,
            _ => return,
        };
        self.columns.push((name, kind));
        if line.contains(" PRIMARY KEY") {
            self.key = vec![name];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_there_is() {
        let tables = copied_tables();
        assert!(tables.iter().all(|table| !table.columns.is_empty() && !table.key.is_empty()));
        let consents = tables.iter().find(|table| table.name == "consents").unwrap();
        let columns = [
            ("user_id", Kind::Text),
            ("client_id", Kind::Text),
            ("scopes", Kind::Text),
            ("given_at", Kind::Integer),
        ];
        assert_eq!(consents.columns, columns);
        assert_eq!(consents.key, ["user_id", "client_id"]);
        let ring = tables.iter().find(|table| table.name == "key_ring").unwrap();
        assert_eq!(
            ring.columns,
            [("id", Kind::Integer), ("version", Kind::Integer), ("content", Kind::Bytes)]
        );
        assert_eq!(ring.key, ["id"]);
    }
}
