//! Paths: decides where latency arises, in the backend or on the way there and back.
//!
//! Owns: what the backend alone (the first rung of a ladder, or the variant `direct`), the servers'
//! own phases and CPU prove. Only latencies that matter are explained: below [`MIN_LATENCY_US`] the
//! latency of every path is mostly the round trip.

use std::collections::BTreeMap;

use super::Subject;
use super::view::median_figure;
use crate::formatting;
use crate::record::{Arrivals, Distribution, Finding, Outcome, Variant};
use crate::statistics::Figure;

/// Smallest median latency that is explained, µs.
const MIN_LATENCY_US: f64 = 2000.0;
/// Share of the latency from which the backend causes it.
const MIN_BACKEND_SHARE: f64 = 0.8;
/// Cores from which a backend is busy enough for a queue, while no other component is busy: one
/// core is 1.
const MIN_BUSY_CORES: f64 = 0.6;
/// CPU of all other components, as a share of the backend's, up to which they are idle.
const MAX_OTHERS_SHARE: f64 = 0.2;
/// Quickest response divided by that of the backend alone, up to which the hops between cost
/// nothing significant.
const MAX_FLOOR_FACTOR: f64 = 1.25;
/// Median divided by the quickest response, up to which most responses take only the round trip.
const MAX_MEDIAN_FACTOR: f64 = 2.0;
/// Name of the variant that is the backend alone. The next constant is the name of the label for
/// the backend, and of its phase.
const DIRECT: &str = "direct";
const BACKEND: &str = "backend";
/// Phase in which a server waits for its upstream.
const UPSTREAM: &str = "upstream";

/// Finds latency that the backend causes.
pub(super) fn backend_bound(subject: &Subject<'_>) -> Vec<Finding> {
    if subject.has_streams() {
        return Vec::new();
    }
    let Some(latency) =
        median_figure(subject.variant, &Figure::P50).filter(|latency| *latency >= MIN_LATENCY_US)
    else {
        return Vec::new();
    };
    let rules = [by_phases, by_ablation, by_cpu];
    let evidence: Vec<String> = rules.iter().filter_map(|rule| rule(subject, latency)).collect();
    if evidence.is_empty() {
        return Vec::new();
    }
    vec![subject.explanation(
        "backend-bound",
        evidence.join("; "),
        "the hops before the backend are invisible in this latency: measure them with a faster backend, or read the \
         added latency only",
    )]
}

/// Evidence from phases: a server reports how long it waited for the backend.
fn by_phases(subject: &Subject<'_>, latency: f64) -> Option<String> {
    let waited = longest_phase(subject.variant, |name| name == UPSTREAM || name == BACKEND)?;
    let (component, name, us) = waited;
    (us >= MIN_BACKEND_SHARE * latency).then(|| {
        format!(
            "`{component}` reports that it waited {} of {} for its upstream (phase {name})",
            formatting::time(us),
            formatting::time(latency)
        )
    })
}

/// Longest phase with a wanted name: the component that reports it, its name, its median in µs.
fn longest_phase(variant: &Variant, wanted: fn(&str) -> bool) -> Option<(&str, &str, f64)> {
    let mut all: Vec<(&str, &str, Distribution)> = Vec::new();
    for phase in
        variant.iterations.iter().flat_map(|iteration| &iteration.phases).filter(|phase| wanted(&phase.name))
    {
        match all.iter_mut().find(|(component, name, _)| *component == phase.component && *name == phase.name)
        {
            Some((.., whole)) => whole.add(&phase.duration),
            None => all.push((&phase.component, &phase.name, phase.duration.clone())),
        }
    }
    let medians = all.into_iter().map(|(component, name, whole)| (component, name, whole.micros(0.5)));
    medians.max_by(|a, b| a.2.total_cmp(&b.2))
}

/// Time that a request spent in a server by the server's report: the component and the µs. Without
/// a total, the phases are summed up, provided that they include the wait for the upstream.
fn time_in_server(variant: &Variant) -> Option<(&str, f64)> {
    if let Some((component, _, whole)) = longest_phase(variant, |name| name == "total") {
        return Some((component, whole));
    }
    let (component, ..) = longest_phase(variant, |name| name == UPSTREAM)?;
    let mut all: BTreeMap<&str, Distribution> = BTreeMap::new();
    let phases = variant.iterations.iter().flat_map(|iteration| &iteration.phases);
    for phase in phases.filter(|phase| phase.component == component) {
        all.entry(&phase.name).or_insert_with(|| Distribution::of([], 3)).add(&phase.duration);
    }
    Some((component, all.values().map(|duration| duration.micros(0.5)).sum()))
}

/// Variant that is the backend alone, under the same load; `None` when there is none.
fn backend_alone<'a>(subject: &Subject<'a>) -> Option<&'a Variant> {
    let name = &subject.variant.name;
    let ladder = subject
        .record
        .ladders
        .iter()
        .find(|ladder| ladder.rungs.iter().skip(1).any(|rung| rung.variant == *name));
    let first = ladder.and_then(|ladder| ladder.rungs.first()).map_or(DIRECT, |rung| &rung.variant);
    let bare = subject.record.variant(first).filter(|bare| bare.name != *name)?;
    let same = bare.load.arrivals == subject.variant.load.arrivals
        && bare.load.rate_per_s == subject.variant.load.rate_per_s
        && bare.load.concurrency == subject.variant.load.concurrency;
    same.then_some(bare)
}

/// Evidence from ablation: the backend alone takes as long. A closed loop is left out, because the
/// round trip may take as long too.
fn by_ablation(subject: &Subject<'_>, latency: f64) -> Option<String> {
    let bare = backend_alone(subject).filter(|_| subject.variant.load.arrivals == Arrivals::Open)?;
    let alone = median_figure(bare, &Figure::P50)?;
    (alone >= MIN_BACKEND_SHARE * latency && alone >= MIN_LATENCY_US).then(|| {
        format!(
            "P50 is {}, and {} for the backend alone (`{}`)",
            formatting::time(latency),
            formatting::time(alone),
            bare.name
        )
    })
}

/// Evidence from CPU: the backend is busy, and no other component is.
fn by_cpu(subject: &Subject<'_>, _: f64) -> Option<String> {
    let variant = subject.variant;
    let names = variant.component_names();
    let known = variant.labels.get(BACKEND).map(String::as_str).or_else(|| {
        let alone = backend_alone(subject)?.component_names();
        alone.first().copied().filter(|_| alone.len() == 1)
    })?;
    let cores = |name: &str| median_figure(variant, &Figure::Cores(name.to_owned()));
    let (own, others) = (cores(known)?, names.iter().filter(|name| **name != known));
    let rest: f64 = others.clone().map(|name| cores(name)).sum::<Option<f64>>()?;
    (others.count() > 0 && own >= MIN_BUSY_CORES && rest <= MAX_OTHERS_SHARE * own).then(|| {
        format!(
            "`{known}` used {} cores, and all other programs together {}",
            formatting::digits(own),
            formatting::digits(rest)
        )
    })
}

/// Finds a closed loop whose responses take as long as the round trip to the backend alone.
pub(super) fn round_trip_bound(subject: &Subject<'_>) -> Vec<Finding> {
    if subject.has_streams() {
        return Vec::new();
    }
    let variant = subject.variant;
    let workers = variant.load.concurrency.filter(|_| variant.load.arrivals == Arrivals::Closed);
    let Some((workers, latency)) = workers.zip(median_figure(variant, &Figure::P50)) else {
        return Vec::new();
    };
    let Some(floor) =
        quickest(variant).filter(|floor| *floor >= MIN_LATENCY_US && latency <= MAX_MEDIAN_FACTOR * floor)
    else {
        return Vec::new();
    };
    let beside = backend_alone(subject).and_then(|bare| Some((bare, quickest(bare)?)));
    let evidence = match beside {
        Some((bare, alone)) if floor <= MAX_FLOOR_FACTOR * alone => {
            format!(
                "the fastest response takes {}, and {} from the backend alone (`{}`)",
                formatting::time(floor),
                formatting::time(alone),
                bare.name
            )
        }
        _ => match time_in_server(variant) {
            Some((component, inside)) if inside <= (1.0 - MIN_BACKEND_SHARE) * floor => format!(
                "the fastest response takes {}, of which `{component}` reports {} as its own",
                formatting::time(floor),
                formatting::time(inside)
            ),
            _ => return Vec::new(),
        },
    };
    vec![subject.explanation(
        "round-trip-bound",
        format!("{evidence}; {workers} workers ÷ {} are the {} requests/s that were measured", formatting::time(latency), formatting::digits(f64::from(workers) / latency * 1e6)),
        "throughput is workers ÷ round trip, not a capacity: offer a rate, and compare with the latency of the backend alone",
    )]
}

/// First percentile of the latency of successful responses, median over iterations, µs.
fn quickest(variant: &Variant) -> Option<f64> {
    let each: Option<Vec<f64>> = variant
        .iterations
        .iter()
        .map(|iteration| Some(iteration.latency(Outcome::Ok)?.micros(0.01)))
        .collect();
    super::view::median_of(&each?)
}
