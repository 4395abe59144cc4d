//! Findings about manifests: what is wrong, where, and what to do.

use std::fmt;

use controller::names::ObjectKey;
use serde::Serialize;

use crate::terminal::{BOLD, DIM, ERROR, HINT, WARNING};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Importance {
    /// The cluster would be told that the object does not do what it says.
    Error,
    /// The object does what it says, which may not be what its author means.
    Warning,
    /// Something that the files do not say.
    Note,
}

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Place {
    pub(super) file: String,
    /// Counted from 1.
    pub(super) line: u64,
    /// Position of the YAML document in the file, counted from 1.
    pub(super) document: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}, document {}", self.file, self.line, self.document)
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Importance,
    /// Kind, namespace and name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<String>,
    /// Path of the field in the object, such as `spec.defaults.allow[0]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) field: Option<String>,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<Place>,
}

impl Finding {
    pub(super) fn new(severity: Importance, message: impl Into<String>) -> Self {
        Self { severity, object: None, field: None, message: message.into(), help: None, place: None }
    }

    pub(super) fn error(message: impl Into<String>) -> Self {
        Self::new(Importance::Error, message)
    }

    pub(super) fn note(message: impl Into<String>) -> Self {
        Self::new(Importance::Note, message)
    }

    pub(super) fn of(self, object: &ObjectKey) -> Self {
        Self { object: Some(object.to_string()), ..self }
    }

    pub(super) fn at(self, place: Option<&Place>) -> Self {
        Self { place: place.cloned(), ..self }
    }

    pub(super) fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// A few lines for a terminal.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (style, word) = match self.severity {
            Importance::Error => (ERROR, "error"),
            Importance::Warning => (WARNING, "warning"),
            Importance::Note => (HINT, "note"),
        };
        write!(f, "{style}{word}{style:#}{BOLD}: ")?;
        for part in [&self.object, &self.field].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        writeln!(f, "{}{BOLD:#}", self.message)?;
        if let Some(place) = &self.place {
            writeln!(f, " {DIM}-->{DIM:#} {place}")?;
        }
        if let Some(help) = &self.help {
            writeln!(f, "  {DIM}={DIM:#} {HINT}help{HINT:#}: {help}")?;
        }
        Ok(())
    }
}
