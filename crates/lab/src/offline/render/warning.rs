//! Something to know before the figures are read.
//!
//! Owns: what of a warning is said at once, and what is listed for those who ask. Does not own: what is found ([`crate::diagnose`]) and how
//! it is drawn ([`super::sheet`], [`super::html`]). A run of many variants has much to say about each: a reader needs what it is, how often
//! and what to do in a line, and all of it within reach.

use std::collections::BTreeSet;

/// More names than this are counted, and listed for those who ask.
const NAMES: usize = 4;

/// Something to know before the figures.
#[derive(Debug)]
pub struct Warning {
    /// How much it says against the figures.
    pub weight: Weight,
    /// Stable name.
    pub name: String,
    /// Where it was seen, one at least.
    pub cases: Vec<Case>,
    /// What to do.
    pub remedy: String,
}

/// Where a warning was seen.
#[derive(Debug)]
pub struct Case {
    /// In which of several records; empty where there is one.
    pub of: String,
    /// What it is about; none when about all.
    pub about: Vec<String>,
    /// The figures it rests on.
    pub evidence: String,
}

/// How much a warning says against the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Do not use the figures.
    Grave,
    /// Keep it in mind.
    Careful,
    /// It explains them.
    Explains,
}

impl Weight {
    /// What stands before it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Grave => "Not to be used",
            Self::Careful => "Careful",
            Self::Explains => "Explained",
        }
    }
}

/// A list for those who ask.
pub(super) struct List {
    /// What is in it.
    pub(super) title: String,
    /// Its lines.
    pub(super) lines: Vec<String>,
}

impl Case {
    fn about(&self) -> String {
        let many = self.about.len();
        self.within(if many > NAMES { format!("{many} variants") } else { self.names().join(", ") })
    }

    fn within(&self, about: String) -> String {
        match (self.of.is_empty(), about.is_empty()) {
            (true, _) => about,
            (false, true) => self.of.clone(),
            (false, false) => format!("{}: {about}", self.of),
        }
    }

    fn names(&self) -> Vec<String> {
        self.about.iter().map(|name| format!("`{name}`")).collect()
    }
}

impl Warning {
    /// What it is about, in few words; empty when about all.
    pub fn about(&self) -> String {
        match &self.cases[..] {
            [] => String::new(),
            [case] => case.about(),
            cases => {
                let names: BTreeSet<&String> = cases.iter().flat_map(|case| &case.about).collect();
                cases[0].within(match names.len() {
                    1 => cases[0].names().concat(),
                    many => format!("{many} variants"),
                })
            }
        }
    }

    /// The figures it rests on; of several cases, those of the first.
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

    /// What is not said at once.
    pub(super) fn rest(&self) -> Option<List> {
        match &self.cases[..] {
            [case] if case.about.len() > NAMES => Some(List { title: case.about(), lines: case.names() }),
            [] | [_] => None,
            cases => {
                let whole = |case: &Case| format!("{}: {}", case.names().join(", "), case.evidence);
                Some(List { title: format!("all {}", cases.len()), lines: cases.iter().map(whole).collect() })
            }
        }
    }
}
