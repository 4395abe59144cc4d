//! Settings: what was given to a program, and the outcome of each.

use std::collections::BTreeMap;

use crate::input_fault::InputFault;
use crate::report::{MigrationReport, Translation};

/// A value that was given to a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The value.
    pub value: String,
    /// Where it stands: a flag as it was written, or a key of a file.
    pub origin: String,
}

impl Given {
    /// A value from this place.
    pub fn new(value: impl Into<String>, origin: impl Into<String>) -> Self {
        Self { value: value.into(), origin: origin.into() }
    }

    /// As the report and the comments name it.
    pub fn shown(&self) -> String {
        if self.value.is_empty() || self.value == "true" {
            self.origin.clone()
        } else {
            format!("{} {}", self.origin, self.value)
        }
    }

    /// A fault of the value.
    pub fn fault(&self, expected: &'static str) -> InputFault {
        InputFault::Value { origin: self.origin.clone(), value: self.value.clone(), expected }
    }
}

/// The settings of a program by name. Each is taken once, and its outcome reported.
#[derive(Debug, Default)]
pub struct ProgramSettings {
    given: BTreeMap<&'static str, Vec<Given>>,
    /// The outcomes so far.
    pub report: MigrationReport,
}

impl ProgramSettings {
    /// Collects what was given, in order.
    pub fn new(given: impl IntoIterator<Item = (&'static str, Given)>) -> Self {
        let mut settings = Self::default();
        for (name, given) in given {
            settings.given.entry(name).or_default().push(given);
        }
        settings
    }

    /// The same of several sources. Where a later one gives a setting, it replaces the earlier one's.
    pub fn layered(sources: impl IntoIterator<Item = Vec<(&'static str, Given)>>) -> Self {
        let mut whole = Self::default();
        for source in sources {
            whole.given.append(&mut Self::new(source).given);
        }
        whole
    }

    /// Whether a setting was given and not taken yet.
    pub fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Takes a text: the last one counts. An empty one is none.
    pub fn text(&mut self, name: &str) -> Option<Given> {
        let last = self.given.remove(name)?.pop()?;
        if last.value.is_empty() {
            self.translated(&last);
            return None;
        }
        Some(last)
    }

    /// Takes a switch; `Some` if it is on.
    ///
    /// # Errors
    /// A value that is neither true nor false.
    pub fn switch(&mut self, name: &str) -> Result<Option<Given>, InputFault> {
        let Some(last) = self.given.remove(name).and_then(|mut given| given.pop()) else { return Ok(None) };
        // As Go's `strconv.ParseBool`.
        match &*last.value {
            "true" | "TRUE" | "True" | "t" | "T" | "1" => Ok(Some(Given { value: "true".into(), ..last })),
            "false" | "FALSE" | "False" | "f" | "F" | "0" => {
                self.translated(&last);
                Ok(None)
            }
            _ => Err(last.fault("true or false")),
        }
    }

    /// Takes a switch that is on by default; `Some` if it was set off.
    ///
    /// # Errors
    /// A value that is neither true nor false.
    pub fn off(&mut self, name: &str) -> Result<Option<Given>, InputFault> {
        let Some(last) = self.given.get(name).and_then(|given| given.last()).cloned() else {
            return Ok(None);
        };
        match self.switch(name)? {
            Some(on) => {
                self.translated(&on);
                Ok(None)
            }
            None => {
                // It was reported as one that is off, which here is not the default.
                self.report.entries.pop();
                Ok(Some(last))
            }
        }
    }

    /// Takes a list.
    pub fn list(&mut self, name: &str) -> Vec<Given> {
        self.given.remove(name).unwrap_or_default()
    }

    /// Reports that a setting was translated.
    pub fn translated(&mut self, given: &Given) {
        self.report.add(given.shown(), Translation::Translated);
    }

    /// Reports how the translation of a setting differs.
    pub fn different(&mut self, given: &Given, difference: impl Into<String>) {
        self.report.add(given.shown(), Translation::Different(difference.into()));
    }

    /// Reports that a setting has no equal, and what to do.
    pub fn no_equal(&mut self, given: &Given, remedy: impl Into<String>) {
        self.report.add(given.shown(), Translation::NoEqual(remedy.into()));
    }

    /// Reports the same of each setting with one of these names.
    pub fn none_equal(&mut self, names: &[&str], remedy: &str) {
        for name in names {
            for given in self.list(name) {
                self.no_equal(&masked(name, given), remedy);
            }
        }
    }

    /// Ends the translation. What nobody has taken has no equal.
    pub fn finish(mut self) -> MigrationReport {
        for (name, all) in std::mem::take(&mut self.given) {
            for given in all {
                let remedy = "it is not read here; compare the program's documentation";
                self.no_equal(&masked(name, given), remedy);
            }
        }
        self.report
    }
}

/// A value as it may be shown: not if it is, or may hold, a secret.
fn masked(name: &str, given: Given) -> Given {
    let is_secret = ["secret", "password", "-key", "-token", "connection-url", "connection-urls"]
        .iter()
        .any(|end| name.ends_with(end));
    if is_secret { Given::new("…", given.origin) } else { given }
}
