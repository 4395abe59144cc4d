//! The result of `postern check` as one JSON object.

use std::path::Path;

use config::{Report, Severity};
use serde::Serialize;

use crate::cmd::check::manifests::Manifests;
use crate::cmd::check::outline::Outline;
use crate::cmd::check::overview::Overview;
use crate::exit::Failure;

/// The whole result.
#[derive(Serialize)]
pub(super) struct CheckResult<'a> {
    file: String,
    /// Whether `postern serve` accepts the file.
    valid: bool,
    /// Faults and warnings, in the order of the file.
    findings: Vec<Finding<'a>>,
    /// What the configuration means. Absent if it is not valid, or if a request is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    overview: Option<&'a Overview>,
    /// What follows from the manifests of `-f`.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifests: Option<&'a Manifests>,
    /// What happens to the request of `--request`.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a Outline>,
}

#[derive(Debug, Serialize)]
struct Finding<'a> {
    severity: &'static str,
    /// Path of the key, such as `route[0].policy`; empty: the file as a whole.
    key: String,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
    /// Counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// In characters, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

impl<'a> CheckResult<'a> {
    pub(super) fn new(file: &Path, report: &'a Report) -> Self {
        let finding = |excerpt: config::Excerpt<'a>| Finding {
            severity: match excerpt.fault.severity {
                Severity::Fault => "error",
                Severity::Warning => "warning",
            },
            key: excerpt.fault.path.to_string(),
            message: &excerpt.fault.message,
            help: excerpt.fault.hint.as_deref(),
            line: excerpt.line.map(|line| line.number),
            column: excerpt.line.map(|line| line.column),
        };
        Self {
            file: file.display().to_string(),
            valid: !report.has_faults(),
            findings: report.excerpts().map(finding).collect(),
            overview: None,
            manifests: None,
            request: None,
        }
    }

    pub(super) fn with_overview(self, overview: &'a Overview) -> Self {
        Self { overview: Some(overview), ..self }
    }

    pub(super) fn with_manifests(self, manifests: Option<&'a Manifests>) -> Self {
        Self { manifests, ..self }
    }

    pub(super) fn with_request(self, request: &'a Outline) -> Self {
        Self { request: Some(request), ..self }
    }

    /// Prints the object on standard output.
    ///
    /// # Errors
    /// Returns a failure if the result has no JSON form.
    pub(super) fn print(&self) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Failure::new(error.to_string()))?;
        anstream::println!("{text}");
        Ok(())
    }
}
