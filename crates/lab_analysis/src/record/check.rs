//! Record check: finds figures in a record that contradict each other.
//!
//! Owns: the rules over a whole record, each with the place in the record that it reports.
//! Does not own: the shape, which deserialization checks.
//!
//! A record that passes can be computed with: every number is finite, every name that is referred
//! to exists, every count has its values.

use std::collections::BTreeSet;
use std::fmt;

use super::parts::{
    Class, Component, HeldConnections, Iteration, Revocations, Sample, Slice, StatedFigures,
    StatedPercentile, Variant,
};
use super::{MAX_ITERATIONS, MAX_VARIANTS, Record, Target};

/// Largest count, and longest time in ms, that a record may have; sums of some thousands of them
/// still fit.
const MAX_COUNT: u64 = 1 << 50;

/// Two figures that cannot both be right, or one figure that is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Contradiction {
    /// Place in the record: `variants[fused].iterations[2]`.
    pub place: String,
    /// Description of what is wrong.
    pub reason: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

type CheckResult = Result<(), Contradiction>;

fn contradiction(place: &str, reason: impl Into<String>) -> CheckResult {
    Err(Contradiction { place: place.to_owned(), reason: reason.into() })
}

impl Record {
    /// Checks the whole record. Returns the first contradiction.
    pub fn check(&self) -> Result<(), Contradiction> {
        if self.variants.len() > MAX_VARIANTS {
            return contradiction(
                "variants",
                format!("{} variants are more than the maximum of {MAX_VARIANTS}", self.variants.len()),
            );
        }
        let mut names = BTreeSet::new();
        for variant in &self.variants {
            if variant.name.trim().is_empty() {
                return contradiction("variants", "a variant has no name");
            }
            if !names.insert(variant.name.as_str()) {
                return contradiction("variants", format!("two variants are named `{}`", variant.name));
            }
            check_variant(variant)?;
        }
        let known = |place: String, name: &str| {
            if names.contains(name) {
                Ok(())
            } else {
                contradiction(&place, format!("there is no variant `{name}`"))
            }
        };
        for ladder in &self.ladders {
            let place = format!("ladders[{}]", ladder.name);
            ladder.rungs.iter().try_for_each(|rung| known(place.clone(), &rung.variant))?;
            if ladder.rungs.len() < 2 {
                return contradiction(&place, "a ladder needs at least two rungs");
            }
        }
        for sweep in &self.sweeps {
            let place = format!("sweeps[{}]", sweep.name);
            sweep.variants.iter().try_for_each(|name| known(place.clone(), name))?;
            if sweep.variants.len() < 3 {
                return contradiction(&place, "a sweep needs at least three variants");
            }
        }
        for comparison in &self.comparisons {
            let place = format!("comparisons[{}]", comparison.baseline);
            known(place.clone(), &comparison.baseline)?;
            comparison.variants.iter().try_for_each(|name| known(place.clone(), name))?;
        }
        // A target may name a variant that could not be measured: it is then not met.
        self.targets.iter().try_for_each(check_target)?;
        for reference in &self.reference {
            let place = format!("reference[{}]", reference.label);
            let figures = [reference.p50_us, reference.p95_us, reference.p99_us, reference.per_s];
            let cores = reference.cpu_cores.values().copied();
            figures
                .into_iter()
                .flatten()
                .chain(cores)
                .try_for_each(|figure| check_finite(&place, "a figure", figure))?;
            reference.beside.iter().try_for_each(|name| known(place.clone(), name))?;
        }
        Ok(())
    }
}

fn check_target(target: &Target) -> CheckResult {
    let place = format!("targets[{}]", target.says);
    if target.minus.is_some() && target.over.is_some() {
        return contradiction(&place, "has both `minus` and `over`: use one of them");
    }
    if target.at_most.is_none() && target.at_least.is_none() {
        return contradiction(&place, "has neither `at_most` nor `at_least`: set at least one");
    }
    if [target.at_most, target.at_least].into_iter().flatten().any(|bound| !bound.is_finite()) {
        return contradiction(&place, "a bound is not a number");
    }
    let one = target.figure.holds_each_round() || target.figure.is_of_all_rounds();
    if target.surely && one {
        return contradiction(
            &place,
            "has `surely`, but its figure has no interval: it is judged in every round, or once over all rounds",
        );
    }
    Ok(())
}

fn check_variant(variant: &Variant) -> CheckResult {
    let place = format!("variants[{}]", variant.name);
    if variant.iterations.len() > MAX_ITERATIONS {
        return contradiction(
            &place,
            format!("{} iterations are more than {MAX_ITERATIONS}", variant.iterations.len()),
        );
    }
    for stage in &variant.load.stages {
        [stage.from_per_s, stage.to_per_s, stage.seconds]
            .into_iter()
            .try_for_each(|figure| check_finite(&place, "a figure of a stage", figure))?;
    }
    let mut numbers = BTreeSet::new();
    for (name, value) in &variant.counters {
        check_finite(&place, name, *value)?;
    }
    for iteration in &variant.iterations {
        let place = format!("{place}.iterations[{}]", iteration.number);
        if !numbers.insert(iteration.number) {
            return contradiction(&place, "two iterations have this number");
        }
        check_iteration(&place, iteration)?;
    }
    if let Some(fault) = variant.profile.as_ref().and_then(super::ProfileRound::fault) {
        return contradiction(&format!("{place}.profile"), fault);
    }
    if let Some(number) = variant.missing.iter().find(|number| numbers.contains(*number)) {
        return contradiction(&place, format!("round {number} is both present and listed in `missing`"));
    }
    Ok(())
}

fn check_iteration(place: &str, iteration: &Iteration) -> CheckResult {
    check_finite(place, "warmup_s", iteration.warmup_s)?;
    check_finite(place, "seconds", iteration.seconds)?;
    if iteration.seconds <= 0.0 {
        return contradiction(place, "`seconds` has to be greater than 0");
    }
    let never = iteration.staleness.iter().map(|seen| seen.never);
    never.chain([iteration.start_ms, iteration.unsent]).try_for_each(|whole| check_count(place, whole))?;
    iteration.mean_in_flight.iter().try_for_each(|value| check_finite(place, "mean_in_flight", *value))?;
    iteration.classes.iter().try_for_each(|class| check_class(place, class))?;
    let watched = iteration.components.iter().chain(&iteration.sender);
    watched.into_iter().try_for_each(|component| check_component(place, component))?;
    iteration.events.iter().try_for_each(|event| check_count(place, event.at_ms))?;
    iteration.held.iter().try_for_each(|held| check_held(place, held))?;
    iteration.stated.iter().try_for_each(|stated| check_stated(place, stated))?;
    iteration.revocations.iter().try_for_each(|seen| check_revocations(place, seen))?;
    iteration.changes.iter().try_for_each(|seen| {
        check_finite(place, "a figure of changes", seen.rate_per_s)?;
        check_finite(place, "a figure of changes", seen.patience_s)?;
        [seen.made, seen.failed, seen.never].into_iter().try_for_each(|whole| check_count(place, whole))
    })?;
    let scrapes = iteration.scrapes.iter().flat_map(|seen| [seen.failed, seen.largest_bytes]);
    scrapes.into_iter().try_for_each(|whole| check_count(place, whole))?;
    iteration.streams.iter().try_for_each(|streams| check_streams(place, streams))?;
    check_timeline(place, &iteration.timeline)
}

fn check_streams(place: &str, streams: &super::Streams) -> CheckResult {
    check_finite(place, "the threshold of a stall", streams.stall_us)?;
    streams.counts().try_for_each(|whole| check_count(place, whole))?;
    streams.contradiction().map_or(Ok(()), |reason| contradiction(place, reason))
}

fn check_held(place: &str, held: &HeldConnections) -> CheckResult {
    let lives = [held.lifetime_p50_us, held.lifetime_max_us, held.open_longest_us].into_iter().flatten();
    lives.into_iter().try_for_each(|life| check_finite(place, "a lifetime of a held connection", life))?;
    if held.open_at_end + held.closed_by_server > held.opened {
        return contradiction(place, "more held connections are open or closed than were opened");
    }
    let counts = [held.asked, held.opened, held.open_at_end, held.closed_by_server];
    let rest = held.statuses.values().chain(held.memory_before.values()).copied();
    counts.into_iter().chain(rest).try_for_each(|whole| check_count(place, whole))
}

fn check_revocations(place: &str, revocations: &Revocations) -> CheckResult {
    [revocations.revoked, revocations.failed, revocations.asked]
        .into_iter()
        .try_for_each(|whole| check_count(place, whole))?;
    let flood = revocations.flood.as_ref();
    flood
        .map_or([0; 5], |flood| [flood.revoked, flood.failed, flood.refused, flood.admitted, flood.unclear])
        .into_iter()
        .try_for_each(|whole| check_count(place, whole))?;
    let [within_s, took_s] = [flood.map(|flood| flood.within_s), flood.map(|flood| flood.took_s)];
    let figures =
        [Some(revocations.patience_s), revocations.bound_s, revocations.cpu_share, within_s, took_s];
    figures
        .into_iter()
        .flatten()
        .try_for_each(|figure| check_finite(place, "a figure of revocations", figure))
}

fn check_class(place: &str, class: &Class) -> CheckResult {
    check_count(place, class.count)?;
    let counted = class.latency.as_ref().map_or(class.count, super::Distribution::count);
    if counted != class.count {
        return contradiction(
            place,
            format!("a class counts {} requests and {counted} latencies", class.count),
        );
    }
    match (class.outcome, class.status, &class.fault) {
        (super::Outcome::Ok, Some(400..), _) => contradiction(place, "outcome `ok` with a status from 400"),
        (super::Outcome::Refused, Some(..400), _) => {
            contradiction(place, "outcome `refused` with a status below 400")
        }
        (super::Outcome::Failed, Some(_), _) => contradiction(place, "outcome `failed` with a status"),
        (super::Outcome::Ok, _, Some(_)) => contradiction(place, "outcome `ok` with a fault"),
        _ => Ok(()),
    }
}

fn check_component(place: &str, component: &Component) -> CheckResult {
    let place = format!("{place}.components[{}]", component.name);
    component.cpu_limit_cores.iter().try_for_each(|limit| check_finite(&place, "cpu_limit_cores", *limit))?;
    component
        .counters
        .values()
        .chain(&component.cpu_error_us)
        .try_for_each(|grown| check_count(&place, *grown))?;
    for sample in &component.samples {
        let plain = [sample.at_ms, sample.user_ms, sample.system_ms, sample.rss_bytes, sample.threads];
        let switches = [sample.voluntary_switches, sample.involuntary_switches];
        let rest = counters(sample).into_iter().chain([sample.swap_bytes]);
        let all = plain.into_iter().chain(switches).chain(rest.flatten());
        all.into_iter().try_for_each(|whole| check_count(&place, whole))?;
    }
    for pair in component.samples.windows(2) {
        let (earlier, later) = (&pair[0], &pair[1]);
        let shrunk = later.at_ms < earlier.at_ms
            || later.user_ms < earlier.user_ms
            || later.system_ms < earlier.system_ms
            || counters(later).iter().zip(counters(earlier)).any(|(later, earlier)| *later < earlier)
            || later.voluntary_switches < earlier.voluntary_switches
            || later.involuntary_switches < earlier.involuntary_switches;
        if shrunk {
            return contradiction(
                &place,
                format!(
                    "the sample at {} ms has a lower time or counter than the one before it",
                    later.at_ms
                ),
            );
        }
    }
    Ok(())
}

/// Counters of a sample that are optional and never decrease.
fn counters(sample: &Sample) -> [Option<u64>; 9] {
    [
        sample.cpu_us,
        sample.core_wait_us,
        sample.connections_opened,
        sample.calls_received,
        sample.tls_handshakes,
        sample.oom_kills,
        sample.periods,
        sample.throttled_periods,
        sample.throttled_ms,
    ]
}

fn check_timeline(place: &str, timeline: &[Slice]) -> CheckResult {
    for slice in timeline {
        for value in [slice.p50_us, slice.p99_us, slice.max_us].into_iter().flatten() {
            check_finite(place, "a latency of the timeline", value)?;
        }
        [slice.at_ms, slice.ms, slice.ok, slice.bad]
            .into_iter()
            .try_for_each(|whole| check_count(place, whole))?;
        if slice.ms == 0 {
            return contradiction(place, format!("the slice at {} ms has no length", slice.at_ms));
        }
    }
    let overlap = timeline.windows(2).find(|pair| pair[1].at_ms < pair[0].at_ms + pair[0].ms);
    overlap.map_or(Ok(()), |pair| {
        contradiction(place, format!("the slice at {} ms overlaps the one before it", pair[1].at_ms))
    })
}

fn check_stated(place: &str, stated: &StatedFigures) -> CheckResult {
    let figures = [stated.mean_us, stated.min_us, stated.max_us, stated.per_s];
    figures.into_iter().flatten().try_for_each(|figure| check_finite(place, "a stated figure", figure))?;
    for printed in stated.percentiles.iter().chain(&stated.sent_percentiles) {
        check_finite(place, "a stated percentile", printed.us)?;
        if !(0.0..=1.0).contains(&printed.share) {
            return contradiction(place, format!("{} is not a share between 0 and 1", printed.share));
        }
    }
    let falls = |all: &[StatedPercentile]| {
        all.windows(2).any(|pair| pair[1].share <= pair[0].share || pair[1].us < pair[0].us)
    };
    if falls(&stated.percentiles) || falls(&stated.sent_percentiles) {
        return contradiction(place, "stated percentiles have to increase");
    }
    Ok(())
}

fn check_count(place: &str, whole: u64) -> CheckResult {
    if whole <= MAX_COUNT {
        Ok(())
    } else {
        contradiction(place, format!("{whole} is above the largest valid count"))
    }
}

fn check_finite(place: &str, name: &str, value: f64) -> CheckResult {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        contradiction(place, format!("{name} is {value}, not a number from 0"))
    }
}
