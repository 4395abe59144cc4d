//! Capacity: finds servers that receive more load than they can serve.
//!
//! Owns: what a sweep shows from its first load on, what an offered rate shows that is not served,
//! and the lock convoy. In a convoy a server is saturated while its cores are idle, because its
//! threads wake each other up in vain.

use super::Subject;
use super::thresholds::CORE_WAIT;
use super::view::{self, machine_cores, middle, seen, served, slices, typical};
use crate::record::{Arrivals, Doubt, Finding, Iteration, Record, Sweep, Variant};
use crate::statistics::{Figure, Load, find_knee};
use crate::words;

/// Share of an offered rate below which the target does not keep up. The ends of a short run cost
/// some per cent.
const ANSWERED: f64 = 0.9;
/// Factor from which there is a queue: median latency over median time in flight, or latency of the
/// last slices over that of the first.
const QUEUED: f64 = 2.0;
/// Growth factor of the context switches per request over a sweep with flat throughput, from which
/// threads wake up in vain.
const CONVOY: f64 = 1.5;
/// Throughput is flat when it grows by less than this share of the load's growth.
const FLAT: f64 = 0.25;
/// Fewest points of a sweep that show a trend.
const POINTS: usize = 3;
/// Share of the cores that a convoy leaves unused.
const IDLE: f64 = 0.3;

/// Points of a sweep: load, throughput, and median latency, or mean latency where no median is
/// known.
pub(crate) fn points(record: &Record, sweep: &Sweep) -> Vec<Load> {
    let of = |name: &String| {
        let variant = record.variant(name)?;
        Some(Load {
            offered: variant.load.rate_per_s.or_else(|| workers(variant))?,
            per_s: typical(variant, &Figure::PerSecond).unwrap_or(0.0),
            latency: typical(variant, &Figure::P50)
                .or_else(|| typical(variant, &Figure::Mean))
                .unwrap_or(0.0),
        })
    };
    sweep.variants.iter().filter_map(of).collect()
}

fn workers(variant: &Variant) -> Option<f64> {
    variant.load.concurrency.map(f64::from).filter(|_| variant.load.arrivals == Arrivals::Closed)
}

/// Finds a sweep that is saturated from its first load on.
pub(super) fn full(record: &Record, sweep: &Sweep) -> Option<Finding> {
    let knee = find_knee(&points(record, sweep)).filter(|knee| knee.at_first)?;
    Some(Finding {
        name: "saturated".to_owned(),
        variants: vec![sweep.name.clone()],
        doubt: Doubt::Invalid,
        evidence: format!(
            "from the first load on, throughput changes by × {:.2} while latency grows × {:.1}",
            knee.per_s_factor, knee.latency_factor
        ),
        remedy:
            "the server is saturated at every load: latency is only load ÷ capacity; measure below the knee"
                .to_owned(),
    })
}

/// Finds an offered rate that the target does not keep up with. Variants of a sweep are left out: a
/// sweep is meant to show this beyond its knee.
pub(super) fn overloaded(subject: &Subject<'_>) -> Vec<Finding> {
    if subject.is_staged() {
        return Vec::new();
    }
    let variant = subject.variant;
    let swept = subject.record.sweeps.iter().any(|sweep| sweep.variants.contains(&variant.name));
    let offered = variant.load.rate_per_s.filter(|_| variant.load.arrivals == Arrivals::Open && !swept);
    let Some(offered) = offered else { return Vec::new() };
    let rates: Vec<f64> = variant
        .iterations
        .iter()
        .filter(|iteration| served(iteration) < ANSWERED * offered && queued(iteration))
        .map(served)
        .collect();
    if rates.is_empty() || rates.len() < view::most(variant.iterations.len()) {
        return Vec::new();
    }
    vec![subject.finding(
        Doubt::Invalid,
        "saturated",
        format!(
            "{} requests/s were offered and {} answered while the queue grew{}{}",
            words::digits(offered),
            words::digits(middle(&rates).unwrap_or(0.0)),
            busiest(subject),
            shared(variant)
        ),
        "latency is the length of a queue that grows during the whole run: offer a lower rate",
    )]
}

/// Whether requests waited to be sent in a growing queue.
fn queued(iteration: &Iteration) -> bool {
    if iteration.unsent > 0 {
        return true;
    }
    let whole = Figure::P50.of(iteration);
    let flight = iteration.service.as_ref().map(|service| service.micros(0.5)).filter(|flight| *flight > 0.0);
    if whole.zip(flight).is_some_and(|(whole, flight)| whole >= QUEUED * flight) {
        return true;
    }
    let medians: Vec<f64> = slices(iteration).iter().filter_map(|slice| slice.p50_us).collect();
    let third = medians.len() / 3;
    let ends = middle(&medians[..third]).zip(middle(&medians[medians.len() - third..]));
    third > 0 && ends.is_some_and(|(first, last)| last >= QUEUED * first)
}

/// Note for a generator that had to wait for a core: the machine itself may be saturated. Empty
/// otherwise.
fn shared(variant: &Variant) -> String {
    let waits =
        variant.iterations.iter().filter_map(|iteration| iteration.generator.as_ref()?.core_wait_share);
    let worst = waits.fold(0.0, f64::max);
    if worst < CORE_WAIT {
        return String::new();
    }
    format!(
        "; the generator waited for a core {} of the time: the machine itself may be saturated",
        words::percent(worst)
    )
}

/// Note about the component that used the most CPU.
fn busiest(subject: &Subject<'_>) -> String {
    let cores = |name| Some((name, typical(subject.variant, &Figure::Cores(str::to_owned(name)))?));
    let names = subject.variant.component_names();
    let most = names.into_iter().filter_map(cores).max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or_else(String::new, |(name, cores)| {
        format!("; `{name}`, the busiest watched program, used {} cores", words::digits(cores))
    })
}

/// Finds programs with flat throughput and idle cores, whose context switches per request grow with
/// the load.
pub(super) fn lock_convoy(record: &Record, sweep: &Sweep) -> Vec<Finding> {
    let variants: Vec<&Variant> = sweep.variants.iter().filter_map(|name| record.variant(name)).collect();
    let all = points(record, sweep);
    let Some(from) = flat_from(&all).filter(|_| all.len() == variants.len()) else { return Vec::new() };
    let (first, last) = (variants[from], variants[variants.len() - 1]);
    let Some(machine) = machine_cores(record) else { return Vec::new() };
    let together = record.run.machines.len() == 1;
    let convoy = |name: &str| {
        let switches = |variant: &Variant| {
            let each: Vec<f64> =
                seen(variant, name).iter().filter_map(|look| look.per_request(view::switches)).collect();
            middle(&each).filter(|switches| *switches > 0.0)
        };
        let (before, after) = (switches(first)?, switches(last)?);
        let limit =
            seen(last, name).iter().find_map(|look| look.component.cpu_limit_cores).unwrap_or(machine);
        let cores = typical(last, &Figure::Cores(name.to_owned()))?;
        let idle = cores <= (1.0 - IDLE) * limit && in_use(last, together) <= (1.0 - IDLE) * machine;
        (idle && after >= CONVOY * before).then(|| Finding {
            name: "lock-convoy".to_owned(),
            variants: vec![sweep.name.clone()],
            doubt: Doubt::Explains,
            evidence: format!(
                "from load {} to {} throughput changes by × {:.2} while context switches per request of `{name}` grow from {} to {}, and \
                 it uses {} of {} cores",
                words::digits(all[from].offered),
                words::digits(all[all.len() - 1].offered),
                all[all.len() - 1].per_s / all[from].per_s,
                words::digits(before),
                words::digits(after),
                words::digits(cores),
                words::digits(limit)
            ),
            remedy: "its threads wait for each other: look for a lock that is held across a wait, or that wakes all waiters"
                .to_owned(),
        })
    };
    first.component_names().into_iter().filter_map(convoy).collect()
}

/// Index of the first point from which throughput stays flat although the load at least doubles.
/// Latency is not used: an unfair lock keeps the median low.
fn flat_from(points: &[Load]) -> Option<usize> {
    let last = points.last().filter(|_| points.len() >= POINTS)?;
    points.iter().position(|point| {
        let (load, rate) = (last.offered / point.offered, last.per_s / point.per_s);
        load >= 2.0 && rate > 0.0 && rate.ln() < FLAT * load.ln()
    })
}

/// Cores that all observed components used, plus those of the generator where it shares the
/// machine.
fn in_use(variant: &Variant, together: bool) -> f64 {
    let servers: f64 = variant
        .component_names()
        .into_iter()
        .filter_map(|name| typical(variant, &Figure::Cores(name.to_owned())))
        .sum();
    let own: Vec<f64> = variant
        .iterations
        .iter()
        .filter_map(|iteration| iteration.generator.as_ref()?.cpu_share)
        .filter(|_| together)
        .collect();
    servers + middle(&own).unwrap_or(0.0)
}
