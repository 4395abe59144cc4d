//! Warnings: facts to know before reading the figures.
//!
//! Owns: which part of a warning is shown, and which part is listed on demand.
//! Does not own: the findings ([`crate::diagnose`]), and how a warning is drawn ([`super::sheet`],
//! [`super::html`]).
//!
//! A run of many variants has findings about each. A reader needs the name, the number of cases and
//! the remedy in one line, and all details on demand.

use std::collections::BTreeSet;

/// Most names that are shown; more are counted and listed on demand.
const MAX_NAMES: usize = 4;

/// A fact to know before reading the figures.
#[derive(Debug)]
pub struct Warning {
    /// How much it affects the figures.
    pub weight: Weight,
    /// Stable name of the warning.
    pub name: String,
    /// Cases in which it was found, at least one.
    pub cases: Vec<Case>,
    /// What to do about it.
    pub remedy: String,
}

/// One case of a warning.
#[derive(Debug)]
pub struct Case {
    /// Name of the record, among several; empty when there is only one.
    pub record_name: String,
    /// Names of the variants that it is about; empty when it is about all.
    pub about: Vec<String>,
    /// Figures that support the warning.
    pub evidence: String,
}

/// How much a warning affects the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The figures must not be used.
    Invalid,
    /// The figures have to be read with the warning in mind.
    Careful,
    /// The warning explains the figures.
    Explains,
}

impl Weight {
    /// Label of the weight in a report.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Invalid => "Do not use",
            Self::Careful => "Careful",
            Self::Explains => "Explained",
        }
    }
}

/// A list that is shown on demand.
pub(super) struct List {
    /// Title of the list.
    pub(super) title: String,
    /// Lines of the list.
    pub(super) lines: Vec<String>,
}

impl Case {
    fn about(&self) -> String {
        let many = self.about.len();
        self.prefixed(if many > MAX_NAMES { format!("{many} variants") } else { self.names().join(", ") })
    }

    fn prefixed(&self, about: String) -> String {
        match (self.record_name.is_empty(), about.is_empty()) {
            (true, _) => about,
            (false, true) => self.record_name.clone(),
            (false, false) => format!("{}: {about}", self.record_name),
        }
    }

    fn names(&self) -> Vec<String> {
        self.about.iter().map(|name| format!("`{name}`")).collect()
    }
}

impl Warning {
    /// What the warning is about, in few words; empty when it is about all.
    pub fn about(&self) -> String {
        match &self.cases[..] {
            [] => String::new(),
            [case] => case.about(),
            cases => {
                let names: BTreeSet<&String> = cases.iter().flat_map(|case| &case.about).collect();
                cases[0].prefixed(match names.len() {
                    1 => cases[0].names().concat(),
                    many => format!("{many} variants"),
                })
            }
        }
    }

    /// Figures that support the warning; of several cases, those of the first.
    pub fn evidence(&self) -> String {
        match &self.cases[..] {
            [] => String::new(),
            [case] => case.evidence.clone(),
            [first, ..] => {
                let names = first.names();
                let others = names.len().saturating_sub(1);
                let more = if others > 0 { format!(" and {others} more") } else { String::new() };
                format!("in {}{more} {}", names.first().map_or("", String::as_str), first.evidence)
            }
        }
    }

    /// Details that are shown on demand; `None` when there are none.
    pub(super) fn details(&self) -> Option<List> {
        match &self.cases[..] {
            [case] if case.about.len() > MAX_NAMES => Some(List { title: case.about(), lines: case.names() }),
            [] | [_] => None,
            cases => {
                let whole = |case: &Case| format!("{}: {}", case.names().join(", "), case.evidence);
                Some(List { title: format!("all {}", cases.len()), lines: cases.iter().map(whole).collect() })
            }
        }
    }
}
