//! Findings: what a run says about its own figures.
//!
//! Owns: the shape. Does not own: the rules that lead to a finding ([`crate::diagnose`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much a finding affects the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// The figures say nothing about the target.
    Invalid,
    /// The figures have to be read with the finding in mind.
    Careful,
    /// The finding explains the figures.
    Explains,
}

/// A finding about the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Stable name, such as `throttled`.
    pub name: String,
    /// The variants, or the sweep, that it is about; empty when it is about the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// How it affects the figures.
    pub doubt: Doubt,
    /// Figures that support the finding.
    pub evidence: String,
    /// What to do about it.
    pub remedy: String,
}
