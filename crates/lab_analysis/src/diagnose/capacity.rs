//! Capacity: finds servers that receive more load than they can serve.
//!
//! Owns: what a sweep shows from its first load on, what an offered rate shows that is not served,
//! and the lock convoy. In a convoy a server is saturated while its cores are idle, because its
//! threads wake each other up in vain.

use super::Subject;
use super::thresholds::CORE_WAIT;
use super::view::{self, component_windows, ended_per_s, machine_cores, median_figure, median_of, slices};
use crate::formatting;
use crate::record::{Arrivals, Doubt, Finding, Iteration, Record, Sweep, Variant};
use crate::statistics::{Figure, SweepPoint, find_knee};

/// Share of an offered rate below which the target does not keep up. The ends of a short run cost
/// some per cent.
const MIN_SERVED_SHARE: f64 = 0.9;
/// Factor from which there is a queue: median latency over median time in flight, or latency of the
/// last slices over that of the first.
const QUEUE_FACTOR: f64 = 2.0;
/// Growth factor of the context switches per request over a sweep with flat throughput, from which
/// threads wake up in vain.
const CONVOY_FACTOR: f64 = 1.5;
/// Throughput is flat when it grows by less than this share of the load's growth.
const FLAT: f64 = 0.25;
/// Fewest points of a sweep that show a trend.
const MIN_POINTS: usize = 3;
/// Share of the cores that a convoy leaves unused.
const IDLE_SHARE: f64 = 0.3;

/// Points of a sweep: load, throughput, and median latency, or mean latency where no median is
/// known.
pub(crate) fn points(record: &Record, sweep: &Sweep) -> Vec<SweepPoint> {
    let of = |name: &String| {
        let variant = record.variant(name)?;
        Some(SweepPoint {
            offered: variant.load.rate_per_s.or_else(|| workers(variant))?,
            per_s: median_figure(variant, &Figure::PerSecond).unwrap_or(0.0),
            latency: median_figure(variant, &Figure::P50)
                .or_else(|| median_figure(variant, &Figure::Mean))
                .unwrap_or(0.0),
        })
    };
    sweep.variants.iter().filter_map(of).collect()
}

fn workers(variant: &Variant) -> Option<f64> {
    variant.load.concurrency.map(f64::from).filter(|_| variant.load.arrivals == Arrivals::Closed)
}

/// Finds a sweep that is saturated from its first load on, so that the figures of all its variants
/// are those of a queue. If the knee is at a later load, those below it are valid, and there is no
/// finding.
pub(super) fn saturated_sweep(record: &Record, sweep: &Sweep) -> Option<Finding> {
    let knee = find_knee(&points(record, sweep)).filter(|knee| knee.at_first)?;
    Some(Finding {
        name: "saturated".to_owned(),
        variants: sweep.variants.clone(),
        doubt: Doubt::Invalid,
        evidence: format!(
            "from the first load of `{}` on, throughput changes by × {:.2} while latency grows × {:.1}",
            sweep.name, knee.per_s_factor, knee.latency_factor
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
    if subject.has_streams() {
        return waiting_streams(subject, offered).into_iter().collect();
    }
    let rates: Vec<f64> = variant
        .iterations
        .iter()
        .filter(|iteration| ended_per_s(iteration) < MIN_SERVED_SHARE * offered && has_queue(iteration))
        .map(ended_per_s)
        .collect();
    if rates.is_empty() || rates.len() < view::majority(variant.iterations.len()) {
        return Vec::new();
    }
    vec![subject.finding(
        Doubt::Invalid,
        "saturated",
        format!(
            "{} requests/s were offered and {} answered while the queue grew{}{}",
            formatting::digits(offered),
            formatting::digits(median_of(&rates).unwrap_or(0.0)),
            busiest_note(subject),
            core_wait_note(variant)
        ),
        "latency is the length of a queue that grows during the whole run: offer a lower rate",
    )]
}

/// Finds streams or WebSockets many of which were never sent, or waited as long as they last before
/// they were.
///
/// How many end per second and how long they take is no evidence, because their length is that of
/// the load. Of streams of different lengths the short ones end first, and the window continues
/// until the last long one has ended.
fn waiting_streams(subject: &Subject<'_>, offered: f64) -> Option<Finding> {
    let iterations = &subject.variant.iterations;
    let is_behind = |iteration: &&Iteration| {
        unsent_share(iteration) > 1.0 - MIN_SERVED_SHARE || long_wait(iteration).is_some()
    };
    let behind: Vec<&Iteration> = iterations.iter().filter(is_behind).collect();
    if behind.is_empty() || behind.len() < view::majority(iterations.len()) {
        return None;
    }
    let shares: Vec<f64> = behind.iter().map(|iteration| unsent_share(iteration)).collect();
    let unsent = match median_of(&shares) {
        Some(share) if share > 0.0 => format!(", {} of them were never sent", formatting::percent(share)),
        _ => String::new(),
    };
    let waits: Vec<f64> = behind.iter().filter_map(|iteration| long_wait(iteration)).collect();
    let wait = match median_of(&waits) {
        Some(wait) => format!(", the usual one waited {} before it was sent", formatting::time(wait)),
        None => String::new(),
    };
    Some(subject.finding(
        Doubt::Invalid,
        "saturated",
        format!(
            "{} {}/s were offered{unsent}{wait}{}{}",
            formatting::digits(offered),
            if subject.has_websockets() { "WebSockets" } else { "streams" },
            busiest_note(subject),
            core_wait_note(subject.variant)
        ),
        "latency is the length of a queue that grows during the whole run: offer a lower rate, or allow more at a time \
         (`connections`)",
    ))
}

/// Share of the requests that were due and never sent.
fn unsent_share(iteration: &Iteration) -> f64 {
    let ended = iteration.classes.iter().map(|class| class.count).sum::<u64>();
    iteration.unsent as f64 / (ended + iteration.unsent).max(1) as f64
}

/// How long the usual request waited to be sent, µs, where that is as long as it was in flight.
fn long_wait(iteration: &Iteration) -> Option<f64> {
    let flight = iteration.service.as_ref()?.micros(0.5);
    let whole = Figure::P50.value(iteration)?;
    (flight > 0.0 && whole >= QUEUE_FACTOR * flight).then_some(whole - flight)
}

/// Whether requests waited to be sent in a growing queue.
fn has_queue(iteration: &Iteration) -> bool {
    if iteration.unsent > 0 || long_wait(iteration).is_some() {
        return true;
    }
    let medians: Vec<f64> = slices(iteration).iter().filter_map(|slice| slice.p50_us).collect();
    let third = medians.len() / 3;
    let ends = median_of(&medians[..third]).zip(median_of(&medians[medians.len() - third..]));
    third > 0 && ends.is_some_and(|(first, last)| last >= QUEUE_FACTOR * first)
}

/// Note for a generator that had to wait for a core: the machine itself may be saturated. Empty
/// otherwise.
fn core_wait_note(variant: &Variant) -> String {
    let waits =
        variant.iterations.iter().filter_map(|iteration| iteration.generator.as_ref()?.core_wait_share);
    let worst = waits.fold(0.0, f64::max);
    if worst < CORE_WAIT {
        return String::new();
    }
    format!(
        "; the generator waited for a core {} of the time: the machine itself may be saturated",
        formatting::percent(worst)
    )
}

/// Note about the component that used the most CPU.
fn busiest_note(subject: &Subject<'_>) -> String {
    let cores = |name| Some((name, median_figure(subject.variant, &Figure::Cores(str::to_owned(name)))?));
    let names = subject.variant.component_names();
    let most = names.into_iter().filter_map(cores).max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or_else(String::new, |(name, cores)| {
        format!("; `{name}`, the busiest watched program, used {} cores", formatting::digits(cores))
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
            let each: Vec<f64> = component_windows(variant, name)
                .iter()
                .filter_map(|look| look.per_request(view::switches))
                .collect();
            median_of(&each).filter(|switches| *switches > 0.0)
        };
        let (before, after) = (switches(first)?, switches(last)?);
        let limit = component_windows(last, name)
            .iter()
            .find_map(|look| look.component.cpu_limit_cores)
            .unwrap_or(machine);
        let cores = median_figure(last, &Figure::Cores(name.to_owned()))?;
        let idle = cores <= (1.0 - IDLE_SHARE) * limit
            && cores_in_use(last, together) <= (1.0 - IDLE_SHARE) * machine;
        (idle && after >= CONVOY_FACTOR * before).then(|| Finding {
            name: "lock-convoy".to_owned(),
            variants: vec![sweep.name.clone()],
            doubt: Doubt::Explains,
            evidence: format!(
                "from load {} to {} throughput changes by × {:.2} while context switches per request of `{name}` grow from {} to {}, and \
                 it uses {} of {} cores",
                formatting::digits(all[from].offered),
                formatting::digits(all[all.len() - 1].offered),
                all[all.len() - 1].per_s / all[from].per_s,
                formatting::digits(before),
                formatting::digits(after),
                formatting::digits(cores),
                formatting::digits(limit)
            ),
            remedy: "its threads wait for each other: look for a lock that is held across a wait, or that wakes all waiters"
                .to_owned(),
        })
    };
    first.component_names().into_iter().filter_map(convoy).collect()
}

/// Index of the first point from which throughput stays flat although the load at least doubles.
/// Latency is not used: an unfair lock keeps the median low.
fn flat_from(points: &[SweepPoint]) -> Option<usize> {
    let last = points.last().filter(|_| points.len() >= MIN_POINTS)?;
    points.iter().position(|point| {
        let (load, rate) = (last.offered / point.offered, last.per_s / point.per_s);
        load >= 2.0 && rate > 0.0 && rate.ln() < FLAT * load.ln()
    })
}

/// Cores that all observed components used, plus those of the generator where it shares the
/// machine.
fn cores_in_use(variant: &Variant, together: bool) -> f64 {
    let servers: f64 = variant
        .component_names()
        .into_iter()
        .filter_map(|name| median_figure(variant, &Figure::Cores(name.to_owned())))
        .sum();
    let own: Vec<f64> = variant
        .iterations
        .iter()
        .filter_map(|iteration| iteration.generator.as_ref()?.cpu_share)
        .filter(|_| together)
        .collect();
    servers + median_of(&own).unwrap_or(0.0)
}
