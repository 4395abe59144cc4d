//! What a reader must know before believing a figure, each with its evidence and a remedy.
//!
//! Owns: the rules and their thresholds. A rule looks at the report only, so that the same rules can be applied to a
//! stored one.

use serde::Serialize;

use super::load::LoadReport;
use crate::load::RequestFault;

/// From this share of a core on, the generator's one thread is taken to be saturated.
const SATURATED: f64 = 0.9;
/// Where it had to share its core: from this share of the time on, running or ready to run, it never rested.
const RESTLESS: f64 = 0.97;
/// Lag below this is within what timing costs, µs.
pub(crate) const LAG_US: f64 = 1000.0;
/// Lag matters when it is this share of the latency it is part of.
pub(crate) const LAG_SHARE: f64 = 0.2;
/// A closed loop should keep this share of its connections busy, for as long as it has requests to send.
const BUSY: f64 = 0.9;
/// From this share on, waiting for a core is worth a word.
pub(crate) const CORE_WAIT: f64 = 0.2;
/// From this share of the latency on, waiting for a connection is worth a word.
const CONNECTION_WAIT: f64 = 0.5;

/// One thing to know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name.
    pub name: &'static str,
    /// The figures it rests on.
    pub evidence: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// It says that the generator, not the target, limits or distorts the figures.
    pub limits_generator: bool,
}

/// The findings about a load run, those about the generator first.
pub(super) fn of_load(report: &LoadReport) -> Vec<Finding> {
    let rules = [saturated, late, idle_workers, starved, connection_bound, unsent, closed_loop];
    rules.iter().filter_map(|rule| rule(report)).collect()
}

/// A thread that ran for the one share of the time and waited for a core for the other did nothing else. Ready to run is no rest
/// either, whoever had the core.
pub(crate) fn never_rests(running: f64, waiting: f64) -> bool {
    running >= SATURATED || running + waiting >= RESTLESS
}

fn saturated(report: &LoadReport) -> Option<Finding> {
    let (running, waiting) = (report.generator.cpu_share?, report.generator.core_wait_share.unwrap_or(0.0));
    never_rests(running, waiting).then(|| Finding {
        name: "generator-bound",
        evidence: format!(
            "the generator's thread used {:.0} % of a core and waited for one {:.0} % of the time",
            running * 100.0,
            waiting * 100.0
        ),
        remedy: "the target may be faster than shown: lower the rate or run several generators",
        limits_generator: true,
    })
}

fn late(report: &LoadReport) -> Option<Finding> {
    let (lag, latency) = (report.generator.lag_us.p99, report.all_us.p99);
    (lag >= LAG_US && lag >= latency * LAG_SHARE).then(|| Finding {
        name: "generator-late",
        evidence: format!(
            "p99 of the generator's own lag is {} of a p99 latency of {}",
            ms(lag),
            ms(latency)
        ),
        remedy: "give the generator a core of its own or lower the rate",
        limits_generator: true,
    })
}

fn idle_workers(report: &LoadReport) -> Option<Finding> {
    let slots = (report.plan.connections * report.plan.streams) as f64;
    let connecting =
        report.faults.iter().any(|fault| matches!(fault.class, RequestFault::Connect | RequestFault::Tls));
    let busy = report.totals.mean_in_flight_while_due / slots;
    (report.plan.arrivals == "closed" && busy < BUSY && !connecting && report.plan.keep_alive).then(|| {
        Finding {
            name: "generator-bound",
            evidence: format!(
                "{:.1} requests were in flight while {slots} workers should have been busy",
                report.totals.mean_in_flight_while_due
            ),
            remedy: "the target may be faster than shown: fewer workers keep it as busy",
            limits_generator: true,
        }
    })
}

fn starved(report: &LoadReport) -> Option<Finding> {
    let share = report.generator.core_wait_share.filter(|share| *share >= CORE_WAIT)?;
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

fn connection_bound(report: &LoadReport) -> Option<Finding> {
    let (whole, wait) = (report.all_us.p99, report.connection_wait_us.p99);
    (report.plan.arrivals != "closed" && wait >= LAG_US && wait >= whole * CONNECTION_WAIT).then(|| Finding {
        name: "connections-exhausted",
        evidence: format!(
            "p99 of the wait for a free connection is {} of a p99 latency of {}",
            ms(wait),
            ms(whole)
        ),
        remedy: "the target is slower than the offered rate, or more connections are needed",
        limits_generator: false,
    })
}

fn unsent(report: &LoadReport) -> Option<Finding> {
    let count = report.faults.iter().find(|fault| fault.class == RequestFault::Unsent)?.count;
    Some(Finding {
        name: "requests-unsent",
        evidence: format!("{count} of {} requests were due but never sent", report.totals.planned),
        remedy: "the target is slower than the offered rate, or more connections are needed",
        limits_generator: false,
    })
}

fn closed_loop(report: &LoadReport) -> Option<Finding> {
    (report.plan.arrivals == "closed").then(|| Finding {
        name: "closed-loop",
        evidence: format!("{} workers wait for each answer", report.plan.connections * report.plan.streams),
        remedy: "throughput is concurrency ÷ latency and stalls are under-counted: use --rate for latencies",
        limits_generator: false,
    })
}

/// Microseconds in words.
pub(super) fn ms(micros: f64) -> String {
    match micros {
        micros if micros >= 1e6 => format!("{:.2} s", micros / 1e6),
        micros if micros >= 1e3 => format!("{:.2} ms", micros / 1e3),
        micros => format!("{micros:.0} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::never_rests;

    #[test]
    fn a_thread_that_waits_for_its_core_does_not_rest() {
        assert!(never_rests(0.95, 0.0) && never_rests(0.3, 0.69));
        assert!(!never_rests(0.5, 0.42) && !never_rests(0.0, 0.9));
    }
}
