//! Findings of the load driver: facts that a reader needs before using a figure, each with evidence
//! and remedy.
//!
//! Owns: the rules, and those of their thresholds that only they have. A rule reads only the
//! report, so the same rules apply to a stored report.

use lab_analysis::diagnose::{LAG_SHARE, LAG_US};

use super::finding::{self, Finding, ms};
use super::load::LoadReport;
use crate::load::{LoadOutcome, Plan, RequestFault};

/// Share of its connections that a closed loop has to keep busy while it has requests to send.
const MIN_BUSY: f64 = 0.9;
/// Share of the latency from which waiting for a connection is reported.
const CONNECTION_WAIT: f64 = 0.5;

impl LoadReport {
    /// Creates the report of a run, with its findings: those about the generator first. Of several
    /// plans `plan` is the first.
    pub fn new(plan: &Plan, outcome: &LoadOutcome) -> Self {
        let rules = [
            generator_bound,
            generator_late,
            idle_workers,
            machine_shared,
            connections_exhausted,
            unsent,
            closed_loop,
        ];
        let mut report = Self::without_findings(plan, outcome);
        report.findings = rules.iter().filter_map(|rule| rule(&report)).collect();
        report.generator.limited = report.findings.iter().any(|finding| finding.limits_generator);
        report
    }
}

fn generator_bound(report: &LoadReport) -> Option<Finding> {
    finding::generator_bound(
        report.generator.cpu_share,
        report.generator.core_wait_share,
        "the target may be faster than shown: lower the rate or run several generators",
    )
}

fn generator_late(report: &LoadReport) -> Option<Finding> {
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
    (report.plan.arrivals == "closed" && busy < MIN_BUSY && !connecting && report.plan.keep_alive).then(
        || Finding {
            name: "generator-bound",
            evidence: format!(
                "{:.1} requests were in flight while {slots} workers should have been busy",
                report.totals.mean_in_flight_while_due
            ),
            remedy: "the target may be faster than shown: fewer workers keep it as busy",
            limits_generator: true,
        },
    )
}

fn machine_shared(report: &LoadReport) -> Option<Finding> {
    finding::machine_shared(report.generator.core_wait_share)
}

fn connections_exhausted(report: &LoadReport) -> Option<Finding> {
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
