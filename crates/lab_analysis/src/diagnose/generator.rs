//! Generator: decides whether the figures describe the target or the load generator.
//!
//! Owns: what the generator's own use says against the figures. The thresholds are those of the
//! generator's report.

use super::Subject;
use super::thresholds::{CORE_WAIT, LAG_SHARE, LAG_US, is_saturated};
use crate::formatting;
use crate::record::{Doubt, Finding, GeneratorUse, Iteration, Record, Variant};
use crate::statistics::Figure;

/// Share of CPU time that the host gave to other virtual machines, from which the figures are those
/// of the host.
const MIN_STOLEN: f64 = 0.1;

/// Finds a generator that was the limit: its thread never rested.
pub(super) fn generator_bound(subject: &Subject<'_>) -> Vec<Finding> {
    let evidence = worst(subject, |own, iteration| {
        let (running, waiting) = thread_shares(own);
        if is_saturated(running, waiting) {
            let shares = (formatting::percent(running), formatting::percent(waiting));
            let text =
                format!("its thread used {} of a core and waited for one {} of the time", shares.0, shares.1);
            return Some((running + waiting, text));
        }
        // When a generator's report calls it limited, lag is the only other reason that a record
        // contains.
        (own.limited && late_by(own, iteration).is_none())
            .then(|| (0.0, "according to its own report".to_owned()))
    });
    evidence.map(|evidence| {
        subject.finding(
            Doubt::Invalid,
            "generator-bound",
            format!("the load generator was the limit in {evidence}"),
            "the target may be faster than shown: lower the rate, give the generator a core of its own, or use several generators",
        )
    })
    .into_iter()
    .collect()
}

/// Finds a generator that sent due requests so late that the latency is not the target's alone.
pub(super) fn generator_late(subject: &Subject<'_>) -> Vec<Finding> {
    let evidence = worst(subject, |own, iteration| {
        let (lag, latency) =
            late_by(own, iteration).filter(|_| !is_saturated(thread_shares(own).0, thread_shares(own).1))?;
        let times = (formatting::time(lag), formatting::time(latency));
        Some((lag, format!("P99 of its own lag is {} of a P99 latency of {}", times.0, times.1)))
    });
    evidence.map(|evidence| {
        subject.finding(
            Doubt::Invalid,
            "generator-late",
            format!("the load generator was late in {evidence}"),
            "a large part of the latency is the generator's own, other figures are not affected: give it a core of its own or lower the rate",
        )
    })
    .into_iter()
    .collect()
}

/// Describes the worst iteration to which `describe` applies, and to how many it applies.
/// `describe` returns a severity and a description.
fn worst(
    subject: &Subject<'_>,
    describe: impl Fn(&GeneratorUse, &Iteration) -> Option<(f64, String)>,
) -> Option<String> {
    let iterations = &subject.variant.iterations;
    let of = |iteration: &Iteration| {
        let (how_bad, text) = describe(iteration.generator.as_ref()?, iteration)?;
        Some((iteration.number, how_bad, text))
    };
    let descriptions: Vec<(u32, f64, String)> = iterations.iter().filter_map(of).collect();
    let (number, _, text) = descriptions.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(match descriptions.len() {
        1 => format!("iteration {number}: {text}"),
        many => format!("{many} of {} iterations, most in iteration {number}: {text}", iterations.len()),
    })
}

/// Shares of the time in which the thread ran, and in which it waited for a core.
fn thread_shares(own: &GeneratorUse) -> (f64, f64) {
    (own.cpu_share.unwrap_or(0.0), own.core_wait_share.unwrap_or(0.0))
}

/// Lag and latency, when the lag is a large part of the latency.
fn late_by(own: &GeneratorUse, iteration: &Iteration) -> Option<(f64, f64)> {
    let late = own.lag_p99_us.zip(Figure::P99.value(iteration));
    late.filter(|(lag, latency)| *lag >= LAG_US && *lag >= LAG_SHARE * latency)
}

/// Finds a generator that had to wait for a core, so that latencies include that wait. The machine
/// causes this, so there is one finding for all variants. Variants whose generator was the limit
/// are left out.
pub(super) fn machine_shared(record: &Record) -> Option<Finding> {
    let limited = |variant: &Variant| !generator_bound(&Subject { record, variant }).is_empty();
    let (variants, share) = variants_above(record, CORE_WAIT, |own| own.core_wait_share, limited)?;
    Some(Finding {
        name: "machine-shared".to_owned(),
        variants,
        doubt: Doubt::Careful,
        evidence: format!("the generator was ready to run and waited for a core {share}"),
        remedy: "latencies include this wait: compare only runs on the same machine, or pin the generator to a core"
            .to_owned(),
    })
}

/// Finds a machine that did not have all of its cores, because its host gave their time to other
/// virtual machines.
pub(super) fn time_stolen(record: &Record) -> Option<Finding> {
    let (variants, share) = variants_above(record, MIN_STOLEN, |own| own.stolen_share, |_| false)?;
    Some(Finding {
        name: "time-stolen".to_owned(),
        variants,
        doubt: Doubt::Careful,
        evidence: format!("the host gave the cores of this machine to other virtual machines {share}"),
        remedy: "throughput and latency vary with it: use only ratios within a round, over many rounds; absolute figures need a \
                 dedicated machine"
            .to_owned(),
    })
}

/// Variants whose highest share over iterations is at least `least`, and a description of that
/// share. An empty list stands for all variants. Variants for which `not` returns true are left
/// out.
fn variants_above(
    record: &Record,
    least: f64,
    share: fn(&GeneratorUse) -> Option<f64>,
    not: impl Fn(&Variant) -> bool,
) -> Option<(Vec<String>, String)> {
    let of = |variant: &Variant| {
        let shares = variant.iterations.iter().filter_map(|iteration| share(iteration.generator.as_ref()?));
        shares.reduce(f64::max)
    };
    let found: Vec<(&str, f64)> = record
        .variants
        .iter()
        .filter_map(|variant| Some((variant, of(variant)?)))
        .filter(|(variant, share)| *share >= least && !not(variant))
        .map(|(variant, share)| (variant.name.as_str(), share))
        .collect();
    let worst = found.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let beside = if found.len() > 1 {
        let (all, least) = (record.variants.len(), formatting::percent(least));
        format!(" in `{}`, and {least} or more in {} of {all} variants", worst.0, found.len())
    } else {
        String::new()
    };
    let all = found.len() > 1 && found.len() == record.variants.len();
    let names = if all { Vec::new() } else { found.iter().map(|(name, _)| (*name).to_owned()).collect() };
    Some((names, format!("{} of the time{beside}", formatting::percent(worst.1))))
}
