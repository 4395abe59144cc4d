//! Whether the figures are the target's or the load generator's.
//!
//! Owns: what the generator's own use says against the figures. The thresholds are those of the generator's report.

use super::Subject;
use crate::analyse::Figure;
use crate::record::{Doubt, Finding, GeneratorUse, Iteration};
use crate::report::{CORE_WAIT, LAG_SHARE, LAG_US, never_rests};
use crate::words;

/// The generator was the limit: its thread never rested.
pub(super) fn bound(subject: &Subject<'_>) -> Vec<Finding> {
    let told = each(subject, |own, iteration| {
        let (running, waiting) = shares(own);
        if never_rests(running, waiting) {
            let (running, waiting) = (words::percent(running), words::percent(waiting));
            return Some(format!(
                "its thread used {running} of a core and waited for one {waiting} of the time"
            ));
        }
        // Of a run that its own report calls limited, being late is the only other reason that a record has.
        (own.limited && late_by(own, iteration).is_none()).then(|| "as its own report says".to_owned())
    });
    told.map(|told| {
        subject.finding(
            Doubt::Invalid,
            "generator-bound",
            format!("the load generator was the limit in {told}"),
            "the target may be faster than shown: lower the rate, give the generator a core of its own, or use several generators",
        )
    })
    .into_iter()
    .collect()
}

/// The generator sent what was due too late to blame the target for the latency.
pub(super) fn late(subject: &Subject<'_>) -> Vec<Finding> {
    let told = each(subject, |own, iteration| {
        let (lag, latency) =
            late_by(own, iteration).filter(|_| !never_rests(shares(own).0, shares(own).1))?;
        Some(format!(
            "P99 of its own lag is {} of a P99 latency of {}",
            words::time(lag),
            words::time(latency)
        ))
    });
    told.map(|told| {
        subject.finding(
            Doubt::Invalid,
            "generator-late",
            format!("the load generator was late in {told}"),
            "a good part of the latency is the generator's own: give it a core of its own or lower the rate",
        )
    })
    .into_iter()
    .collect()
}

/// What is said about each iteration, in a line.
fn each(subject: &Subject<'_>, said: impl Fn(&GeneratorUse, &Iteration) -> Option<String>) -> Option<String> {
    let of = |iteration: &Iteration| {
        Some(format!("iteration {}: {}", iteration.number, said(iteration.generator.as_ref()?, iteration)?))
    };
    let told: Vec<String> = subject.variant.iterations.iter().filter_map(of).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Shares of the time in which the thread ran, and in which it waited for a core.
fn shares(own: &GeneratorUse) -> (f64, f64) {
    (own.cpu_share.unwrap_or(0.0), own.core_wait_share.unwrap_or(0.0))
}

/// Lag and latency where the one is a good part of the other.
fn late_by(own: &GeneratorUse, iteration: &Iteration) -> Option<(f64, f64)> {
    let late = own.lag_p99_us.zip(Figure::P99.of(iteration));
    late.filter(|(lag, latency)| *lag >= LAG_US && *lag >= LAG_SHARE * latency)
}

/// The generator had to wait for a core: latencies include that wait.
pub(super) fn shared(subject: &Subject<'_>) -> Vec<Finding> {
    let waits = subject
        .variant
        .iterations
        .iter()
        .filter_map(|iteration| iteration.generator.as_ref()?.core_wait_share);
    let worst = waits.fold(0.0, f64::max);
    if worst < CORE_WAIT {
        return Vec::new();
    }
    vec![subject.finding(
        Doubt::Careful,
        "machine-shared",
        format!("the generator was ready to run and waited for a core {} of the time", words::percent(worst)),
        "latencies include this wait: compare only runs on the same machine, or pin the generator to a core",
    )]
}
