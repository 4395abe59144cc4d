//! Limits: finds programs that got fewer resources than they needed: throttled, out of memory,
//! ended, or without a core.
//!
//! Owns: what samples of control groups and of the kernel's accounting prove.

use super::Subject;
use super::view::{
    self, ComponentWindow, component_windows, machine_cores, majority, median_figure, median_of,
};
use crate::formatting;
use crate::record::{Doubt, Finding, Outcome, Variant};
use crate::statistics::Figure;

/// Share of throttled periods from which a component counts as throttled. One period in twenty is a
/// stall of up to 100 ms that the 95th percentile shows.
const THROTTLED: f64 = 0.05;
/// Factor in throughput and in latency by which the same program has to be better with more CPU, to
/// prove throttling without periods.
const RELIEF_FACTOR: f64 = 3.0;
/// Least average use of its limit by a throttled program: pauses and the ends of a run lower the
/// average.
const MIN_USED_SHARE: f64 = 0.5;
/// Share of all cores from which they count as busy.
const BUSY_SHARE: f64 = 0.9;
/// Involuntary context switches per second of CPU from which programs compete for cores. The
/// kernel's shortest time slice is a few ms, so a program that is alone on its core has far fewer.
const MIN_INVOLUNTARY_SWITCHES: f64 = 50.0;
/// Smallest growth of swap that counts, as a share of the resident memory; a smaller one may be
/// left over.
const MIN_SWAP_GROWTH: f64 = 0.01;
/// Share of its memory limit from which a program that ended is taken to have ended because of it.
const FULL_SHARE: f64 = 0.9;

const RAISE_LIMIT_REMEDY: &str = "raise or remove the CPU limit; average CPU use does not show throttling";

/// Finds components that were throttled by their CPU limit.
pub(super) fn throttled(subject: &Subject<'_>) -> Vec<Finding> {
    let names = subject.variant.component_names();
    let evidence_of = |name| by_periods(subject, name).or_else(|| by_ablation(subject, name));
    names
        .into_iter()
        .filter_map(evidence_of)
        .map(|evidence| subject.explanation("throttled", evidence, RAISE_LIMIT_REMEDY))
        .collect()
}

fn by_periods(subject: &Subject<'_>, name: &str) -> Option<String> {
    let mut sums = (0.0, 0.0, 0.0);
    let mut limit = None;
    for look in component_windows(subject.variant, name) {
        limit = limit.or(look.component.cpu_limit_cores);
        sums.0 += look.growth(|sample| sample.periods)?;
        sums.1 += look.growth(|sample| sample.throttled_periods)?;
        sums.2 += look.growth(|sample| sample.throttled_ms)?;
    }
    let (limit, (periods, throttled_periods, ms)) = (limit?, sums);
    (periods > 0.0 && throttled_periods / periods >= THROTTLED).then(|| {
        format!(
            "`{name}` used up its {limit} cores in {} of {} periods and was throttled for {} s{}",
            formatting::grouped(throttled_periods),
            formatting::grouped(periods),
            formatting::digits(ms / 1e3),
            implied_rate(subject.variant, name, limit)
        )
    })
}

/// Note about the rate of successful responses that the limit allows, beside the measured one.
/// Refused and failed requests use CPU as well, so their cost is added to that of successful
/// responses.
fn implied_rate(variant: &Variant, name: &str, limit: f64) -> String {
    let (mut costs, mut rates) = (Vec::new(), Vec::new());
    for look in component_windows(variant, name) {
        let ended: u64 = look.iteration.classes.iter().map(|class| class.count).sum();
        let share = look.iteration.count(Outcome::Ok) as f64 / ended.max(1) as f64;
        rates.push(view::ended_per_s(look.iteration) * share);
        let cost = look.cpu_per_request().map(|us| us / share);
        costs.extend(cost.filter(|cost| *cost > 0.0 && cost.is_finite()));
    }
    let Some(cost) = median_of(&costs) else { return String::new() };
    format!(
        "; {limit} cores ÷ {} of CPU per successful response allow {} requests/s, measured {}",
        formatting::time(cost),
        formatting::digits(limit / cost * 1e6),
        formatting::digits(median_of(&rates).unwrap_or(0.0))
    )
}

/// Finds throttling where no periods were sampled: the same program under a higher limit is the
/// evidence.
fn by_ablation(subject: &Subject<'_>, name: &str) -> Option<String> {
    let variant = subject.variant;
    let looks = component_windows(variant, name);
    if looks.iter().any(|look| look.last.periods.is_some()) {
        return None;
    }
    let limit = looks.iter().find_map(|look| look.component.cpu_limit_cores)?;
    let cores = median_of(&looks.iter().filter_map(ComponentWindow::cores).collect::<Vec<_>>())?;
    let (rate, latency) =
        (median_figure(variant, &Figure::PerSecond)?, median_figure(variant, &Figure::P50)?);
    if cores < MIN_USED_SHARE * limit {
        return None;
    }
    let freed = |other: &&Variant| {
        let more = component_windows(other, name);
        let allowed = more.iter().find_map(|look| look.component.cpu_limit_cores).unwrap_or(f64::MAX);
        let same_load = other.load.arrivals == variant.load.arrivals
            && other.load.concurrency == variant.load.concurrency;
        let figures = median_figure(other, &Figure::PerSecond).zip(median_figure(other, &Figure::P50));
        !more.is_empty()
            && same_load
            && allowed >= 2.0 * limit
            && figures.is_some_and(|(faster, quicker)| {
                faster >= RELIEF_FACTOR * rate && quicker * RELIEF_FACTOR <= latency
            })
    };
    let other = subject.record.variants.iter().find(freed)?;
    Some(format!(
        "`{name}` used {} of its {limit} cores on average, and with more of them (`{}`) {} requests/s are answered instead of {}{}; \
         its throttled periods were not sampled",
        formatting::digits(cores),
        other.name,
        formatting::digits(median_figure(other, &Figure::PerSecond).unwrap_or(0.0)),
        formatting::digits(rate),
        implied_rate(variant, name, limit)
    ))
}

/// Finds components that the kernel killed for lack of memory, or swapped out.
pub(super) fn memory(subject: &Subject<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in subject.variant.component_names() {
        let looks = component_windows(subject.variant, name);
        let kills: f64 = looks.iter().filter_map(|look| look.growth(|sample| sample.oom_kills)).sum();
        let full = looks.iter().find(|look| {
            let most = look.samples().map(|sample| sample.rss_bytes).max().unwrap_or(0) as f64;
            look.component.ended
                && look.component.memory_limit_bytes.is_some_and(|limit| most >= FULL_SHARE * limit as f64)
        });
        if kills > 0.0 || full.is_some() {
            let evidence = full.map_or_else(
                || format!("the kernel killed a program of `{name}` {kills} times for lack of memory"),
                |look| {
                    let limit = look.component.memory_limit_bytes.unwrap_or(0);
                    format!("`{name}` ended with its limit of {} in use", formatting::bytes(limit as f64))
                },
            );
            let remedy = "raise its memory limit, or find what uses the memory: the figures are of a server that was killed";
            findings.push(subject.finding(Doubt::Invalid, "out-of-memory", evidence, remedy));
        }
        let put_aside = looks.iter().find_map(|look| {
            let grown = look.last.swap_bytes?.saturating_sub(look.first.swap_bytes?) as f64;
            (grown >= MIN_SWAP_GROWTH * look.last.rss_bytes as f64 && grown > 0.0).then_some(grown)
        });
        if let Some(bytes) = put_aside {
            let evidence =
                format!("{} of `{name}` went to swap while it was measured", formatting::bytes(bytes));
            let remedy = "latencies include disk access: add memory to the machine, or turn swap off";
            findings.push(subject.finding(Doubt::Invalid, "swapping", evidence, remedy));
        }
    }
    findings
}

/// Finds components that ended before the run did.
pub(super) fn component_ended(subject: &Subject<'_>) -> Vec<Finding> {
    let mut evidence = Vec::new();
    for iteration in &subject.variant.iterations {
        for component in iteration.components.iter().filter(|component| component.ended) {
            let at = component.samples.last().map_or(0.0, |sample| sample.at_ms as f64 / 1e3);
            evidence.push(format!(
                "`{}` in iteration {} after {} s",
                component.name,
                iteration.number,
                formatting::digits(at)
            ));
        }
    }
    if evidence.is_empty() {
        return Vec::new();
    }
    vec![subject.finding(
        Doubt::Invalid,
        "component-ended",
        format!("an observed program ended during the measurement: {}", evidence.join("; ")),
        "the figures are of a topology without it: read the end of its log",
    )]
}

/// Finds programs that took cores from each other while all cores were busy.
pub(super) fn core_starved(subject: &Subject<'_>) -> Vec<Finding> {
    let Some(cores) = machine_cores(subject.record) else { return Vec::new() };
    let together = subject.record.run.machines.len() == 1;
    let names = subject.variant.component_names();
    let mut loads = Vec::new();
    for iteration in &subject.variant.iterations {
        let looks: Vec<ComponentWindow<'_>> = names
            .iter()
            .flat_map(|name| component_windows(subject.variant, name))
            .filter(|look| look.iteration.number == iteration.number)
            .collect();
        let own = iteration.generator.as_ref().filter(|_| together);
        let Some(servers) = looks.iter().map(ComponentWindow::cores).sum::<Option<f64>>() else { continue };
        let used = servers + own.and_then(|own| own.cpu_share).unwrap_or(0.0);
        let taken: f64 = looks
            .iter()
            .filter_map(|look| {
                Some(look.growth(|sample| Some(sample.involuntary_switches))? / look.seconds())
            })
            .sum();
        if !looks.is_empty() && used >= BUSY_SHARE * cores && taken >= MIN_INVOLUNTARY_SWITCHES * servers {
            loads.push((used, taken));
        }
    }
    if loads.is_empty() || loads.len() < majority(subject.variant.iterations.len()) {
        return Vec::new();
    }
    let (used, taken): (Vec<f64>, Vec<f64>) = loads.into_iter().unzip();
    vec![subject.finding(
        Doubt::Careful,
        "core-starved",
        format!(
            "{} of {cores} cores were in use, and programs were preempted {} times a second",
            formatting::digits(median_of(&used).unwrap_or(0.0)),
            formatting::digits(median_of(&taken).unwrap_or(0.0))
        ),
        "latency is mostly waiting for a core: lower the load, or give generator and servers cores of their own",
    )]
}
