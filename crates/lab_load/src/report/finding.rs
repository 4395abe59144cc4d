//! Finding of a load generator about its own run.
//!
//! Owns: the shape of a finding, and how its evidence writes times.
//! Does not own: the rules ([`super::findings`], [`super::provider`]).

use serde::Serialize;

/// One fact to know before using the figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name of the finding.
    pub name: &'static str,
    /// Figures that support the finding.
    pub evidence: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// Whether the generator, not the target, limits or distorts the figures.
    pub limits_generator: bool,
}

/// Formats microseconds as text.
pub(super) fn ms(micros: f64) -> String {
    match micros {
        micros if micros >= 1e6 => format!("{:.2} s", micros / 1e6),
        micros if micros >= 1e3 => format!("{:.2} ms", micros / 1e3),
        micros => format!("{micros:.0} µs"),
    }
}
