//! Finding of a load generator about its own run.
//!
//! Owns: the shape of a finding, how its evidence writes times, and the rules that all generators
//! share.
//! Does not own: the other rules ([`super::findings`], [`super::provider`]).

use lab_analysis::diagnose::{CORE_WAIT, is_saturated};
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

/// The finding about a generator that used all of the core it was given. The arguments are shares
/// of the window, from 0 to 1: in which its thread ran, and in which it waited for a core.
pub(super) fn generator_bound(
    cpu_share: Option<f64>,
    core_wait_share: Option<f64>,
    remedy: &'static str,
) -> Option<Finding> {
    let (running, waiting) = (cpu_share?, core_wait_share.unwrap_or(0.0));
    is_saturated(running, waiting).then(|| Finding {
        name: "generator-bound",
        evidence: format!(
            "the generator's thread used {:.0} % of a core and waited for one {:.0} % of the time",
            running * 100.0,
            waiting * 100.0
        ),
        remedy,
        limits_generator: true,
    })
}

/// The finding about a generator that waited for a core for this share of the window, from 0 to 1.
pub(super) fn machine_shared(core_wait_share: Option<f64>) -> Option<Finding> {
    let share = core_wait_share.filter(|share| *share >= CORE_WAIT)?;
    Some(Finding {
        name: "machine-shared",
        evidence: format!(
            "the generator was ready to run and waited for a core {:.0} % of the time",
            share * 100.0
        ),
        remedy: "latencies include this wait: compare only runs on the same machine, or pin the generator to a core",
        limits_generator: false,
    })
}
