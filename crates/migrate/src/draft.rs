//! Draft: a configuration with a comment on each line that says from what it came.

use std::fmt::Write as _;

use toml::Value;

/// A configuration under construction.
#[derive(Debug, Default)]
pub struct Draft {
    tables: Vec<DraftTable>,
}

/// A table of the configuration.
#[derive(Debug)]
pub struct DraftTable {
    header: &'static str,
    lines: Vec<(&'static str, Value, String)>,
}

impl Draft {
    /// Adds a table, such as `[[route]]`. It is written where it has a line.
    pub fn table(&mut self, header: &'static str) -> &mut DraftTable {
        let at = self.tables.len();
        self.tables.push(DraftTable { header, lines: Vec::new() });
        &mut self.tables[at]
    }

    /// Whether there is such a table.
    pub fn has(&self, header: &str) -> bool {
        self.tables.iter().any(|table| table.header == header)
    }

    /// The last table with this header; a new one if there is none.
    pub fn last(&mut self, header: &'static str) -> &mut DraftTable {
        match self.tables.iter().rposition(|table| table.header == header) {
            Some(at) => &mut self.tables[at],
            None => self.table(header),
        }
    }

    /// Removes the tables with this header whose name is none of these. Returns their names.
    pub fn retain(&mut self, header: &str, names: &[String]) -> Vec<String> {
        let is_other = |table: &DraftTable| {
            table.header == header
                && table.text("name").is_some_and(|name| names.iter().all(|kept| kept != name))
        };
        let (removed, kept) = std::mem::take(&mut self.tables).into_iter().partition(is_other);
        self.tables = kept;
        let removed: Vec<DraftTable> = removed;
        removed.iter().filter_map(|table| table.text("name")).map(str::to_owned).collect()
    }

    /// The text, below a comment of these lines.
    pub fn render(&self, head: &[String]) -> String {
        let mut out = String::new();
        for line in head {
            let _ = writeln!(out, "# {line}");
        }
        for table in self.tables.iter().filter(|table| !table.lines.is_empty()) {
            let _ = write!(out, "\n{}\n", table.header);
            for (key, value, from) in &table.lines {
                let _ = match &**from {
                    "" => writeln!(out, "{key} = {value}"),
                    from => writeln!(out, "{key} = {value}  # {from}"),
                };
            }
        }
        out
    }
}

impl DraftTable {
    /// Sets a key. `from` says from what the line came.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>, from: &str) -> &mut Self {
        // A comment ends with its line.
        let from = from.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.lines.push((key, value.into(), from));
        self
    }

    /// The same, if there is a value.
    pub fn set_some(&mut self, key: &'static str, value: Option<impl Into<Value>>, from: &str) -> &mut Self {
        match value {
            Some(value) => self.set(key, value, from),
            None => self,
        }
    }
}

/// A line that several routes have: key, value, and from what it came.
pub type SharedLine = (&'static str, Value, String);

impl DraftTable {
    /// Sets lines that several routes have. A public route knows no caller, so it gets none of the lines
    /// that pass on a token: it would be one that nobody has verified.
    pub fn set_shared(&mut self, lines: &[SharedLine]) -> &mut Self {
        let is_public = self.lines.iter().any(|(key, ..)| *key == "public");
        for (key, value, from) in lines {
            let passes_token = ["forward_access_token", "forward_authorization"].contains(key)
                || value.to_string().contains("{id_token}");
            if !(is_public && passes_token) {
                self.set(key, value.clone(), from);
            }
        }
        self
    }

    /// The text of a key.
    fn text(&self, key: &str) -> Option<&str> {
        self.lines.iter().find(|(own, ..)| *own == key).and_then(|(_, value, _)| value.as_str())
    }
}

/// An inline table.
pub fn inline(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Table(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}
