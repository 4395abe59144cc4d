//! Report: what became of each setting.

use std::fmt::{self, Write as _};

/// What became of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Translation {
    /// The configuration means the same.
    Translated,
    /// The configuration means nearly the same; the difference.
    Different(String),
    /// The configuration has nothing for it; what to do.
    NoEqual(String),
}

/// A setting and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportEntry {
    /// The setting as it was given, without its value if that is a secret.
    pub setting: String,
    /// What became of it.
    pub outcome: Translation,
}

/// The outcomes of all settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationReport {
    /// In the order of the translation.
    pub entries: Vec<ReportEntry>,
    /// Differences that belong to no setting.
    pub notes: Vec<String>,
}

impl MigrationReport {
    /// Adds the outcome of a setting.
    pub fn add(&mut self, setting: impl Into<String>, outcome: Translation) {
        self.entries.push(ReportEntry { setting: setting.into(), outcome });
    }

    /// The settings of one kind, with their texts.
    fn group(&self, text: impl Fn(&Translation) -> Option<&str>) -> Vec<(&str, &str)> {
        self.entries.iter().filter_map(|entry| Some((&*entry.setting, text(&entry.outcome)?))).collect()
    }

    /// The report as a Markdown document.
    pub fn markdown(&self, program: &str) -> String {
        let mut out = format!("# From {program}\n");
        for (title, entries) in self.groups() {
            let _ = write!(out, "\n## {title}\n\n");
            for (setting, text) in entries {
                let _ = match text {
                    "" => writeln!(out, "- `{setting}`"),
                    text => writeln!(out, "- `{setting}`: {text}"),
                };
            }
        }
        if !self.notes.is_empty() {
            out.push_str("\n## Different without a setting\n\n");
            for note in &self.notes {
                let _ = writeln!(out, "- {note}");
            }
        }
        out
    }

    fn groups(&self) -> Vec<(&'static str, Vec<(&str, &str)>)> {
        let groups = [
            (
                "Without an equal",
                self.group(|outcome| match outcome {
                    Translation::NoEqual(text) => Some(&**text),
                    _ => None,
                }),
            ),
            (
                "Translated with a difference",
                self.group(|outcome| match outcome {
                    Translation::Different(text) => Some(&**text),
                    _ => None,
                }),
            ),
            ("Translated", self.group(|outcome| (*outcome == Translation::Translated).then_some(""))),
        ];
        groups.into_iter().filter(|(_, entries)| !entries.is_empty()).collect()
    }
}

impl fmt::Display for MigrationReport {
    /// As lines for a terminal: first what needs attention.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, entries) in self.groups() {
            writeln!(f, "{title}: {}", entries.len())?;
            for (setting, text) in entries {
                if text.is_empty() {
                    writeln!(f, "  {setting}")?;
                } else {
                    writeln!(f, "  {setting}\n      {text}")?;
                }
            }
        }
        if !self.notes.is_empty() {
            writeln!(f, "Different without a setting: {}", self.notes.len())?;
            for note in &self.notes {
                writeln!(f, "  {note}")?;
            }
        }
        Ok(())
    }
}
