//! Report of a run against an OpenID provider.

use std::fmt::Write as _;
use std::time::Duration;

use lab_analysis::units::{ratio, seconds};
use serde::Serialize;

use super::finding::{self, Finding, ms};
use super::{SCHEMA, table};
use crate::load::Latency;
use crate::observe::Observation;
use crate::provider::{FailureClass, ProviderOutcome, ProviderPlan, Step};

/// What a run of transactions measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProviderReport {
    /// Name and version of the shape: [`SCHEMA`].
    pub schema: &'static str,
    /// Kind of report: `provider`.
    pub kind: &'static str,
    /// What makes the figures doubtful, the generator's own limits first.
    pub findings: Vec<Finding>,
    /// What the generator itself used in the window.
    pub generator: ProviderGenerator,
    /// The plan of the run.
    pub plan: ProviderFacts,
    /// Counts of the window.
    pub totals: ProviderTotals,
    /// Latency of successful transactions that ended in the window, µs, from their first request to
    /// their last response.
    pub latency_us: Latency,
    /// Answered requests that ended in the window, by kind.
    pub requests: Vec<RequestCount>,
    /// Failed transactions of the whole run, by the step that failed and the class of the failure.
    pub faults: Vec<TransactionFaultCount>,
    /// Successful transactions in each second of the window.
    pub per_second: Vec<u64>,
    /// Observed processes, over the window; `cpu_us_per_request` is per completed transaction.
    pub watched: Vec<Observation>,
}

/// What the generator used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProviderGenerator {
    /// Version of this crate.
    pub version: &'static str,
    /// Share of one core that its thread used; absent where the kernel does not report it.
    pub cpu_share: Option<f64>,
    /// CPU microseconds per completed transaction.
    pub cpu_us_per_transaction: Option<f64>,
    /// Share of the time in which its thread was ready to run and waited for a core.
    pub core_wait_share: Option<f64>,
    /// Share of CPU time that the host gave to other virtual machines (steal); absent where the
    /// kernel does not report it.
    pub stolen_share: Option<f64>,
    /// Whether the generator, not the provider, limits the figures.
    pub limited: bool,
}

/// The plan of a run against a provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProviderFacts {
    /// Name of the provider in its description.
    pub provider: String,
    /// Origin of the provider.
    pub origin: String,
    /// The kind of transaction.
    pub scenario: &'static str,
    /// Number of virtual users.
    pub concurrency: usize,
    /// Least warm-up, seconds.
    pub warmup_s: f64,
    /// Length of the window, seconds.
    pub duration_s: f64,
    /// Timeout of a request, seconds.
    pub timeout_s: f64,
    /// Number of users that sign in.
    pub users: u64,
    /// Number of clients that they sign in to.
    pub clients: usize,
    /// Seed of the random choices.
    pub seed: u64,
}

/// Counts of the window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProviderTotals {
    /// Successful transactions that ended in the window.
    pub ok: u64,
    /// Failed transactions that ended in the window.
    pub failed: u64,
    /// Length of the window, seconds.
    pub seconds: f64,
    /// Successful transactions per second.
    pub ok_per_s: f64,
    /// Answered requests per successful transaction.
    pub requests_per_transaction: f64,
    /// Actual length of the warm-up, seconds.
    pub warmup_s: f64,
    /// Whether every virtual user completed a transaction during the warm-up.
    pub everyone_warm: bool,
    /// Failed transactions before the window.
    pub failed_before: u64,
    /// Transactions that were in progress when the window closed.
    pub ended_after: u64,
    /// Of these, the failed ones.
    pub failed_after: u64,
    /// Time to obtain the tokens that transactions start from, seconds.
    pub preparation_s: f64,
    /// How often a virtual user had to obtain tokens again after a failure.
    pub prepared_again: u64,
    /// Connections opened during the whole run.
    pub connections_opened: u64,
    /// Bytes received during the whole run.
    pub bytes_received: u64,
}

/// Requests of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestCount {
    /// The kind of request.
    pub step: Step,
    /// Requests without a response.
    pub failed: u64,
    /// Latency of the responses, µs.
    pub latency_us: Latency,
}

/// Transactions that failed in the same way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransactionFaultCount {
    /// The step that failed.
    pub step: Step,
    /// Class of the failure.
    pub class: FailureClass,
    /// The unexpected status; absent where the failure was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Number of transactions.
    pub count: u64,
    /// Description of the first of them.
    pub example: String,
}

impl ProviderReport {
    /// Creates the report of a run of this plan, with its findings.
    pub fn new(plan: &ProviderPlan, outcome: &ProviderOutcome) -> Self {
        let totals = totals(outcome);
        let ended = (totals.ok + totals.failed) as f64;
        let tally = &outcome.tally;
        let wall = outcome.self_usage.wall as f64;
        let share = |part: Option<u64>| part.map(|part| ratio(part as f64, wall));
        let spent = outcome.self_usage.running.filter(|_| ended > 0.0);
        let generator = ProviderGenerator {
            version: env!("CARGO_PKG_VERSION"),
            cpu_share: share(outcome.self_usage.running),
            cpu_us_per_transaction: spent.map(|running| ratio(running as f64 / 1e3, ended)),
            core_wait_share: share(outcome.self_usage.waiting),
            stolen_share: outcome.self_usage.stolen_share(),
            limited: false,
        };
        let (from, until) = (Duration::from_nanos(tally.window.0), Duration::from_nanos(tally.window.1));
        let rate = ratio(ended, totals.seconds);
        let mut report = Self {
            schema: SCHEMA,
            kind: "provider",
            findings: Vec::new(),
            generator,
            plan: facts(plan),
            latency_us: tally.ok.summary(),
            requests: tally
                .steps
                .iter()
                .map(|(&step, seen)| RequestCount {
                    step,
                    failed: seen.failed,
                    latency_us: seen.answered.summary(),
                })
                .collect(),
            faults: tally
                .failures
                .iter()
                .map(|(&(step, class, status), seen)| TransactionFaultCount {
                    step,
                    class,
                    status,
                    count: seen.count,
                    example: seen.example.clone(),
                })
                .collect(),
            per_second: tally.per_second.clone(),
            watched: outcome.watched.iter().map(|series| series.in_window(from, until, Some(rate))).collect(),
            totals,
        };
        let rules = [generator_bound, warm_up_short, window_short, machine_shared];
        report.findings = rules.iter().filter_map(|rule| rule(&report)).collect();
        report.generator.limited = report.findings.iter().any(|finding| finding.limits_generator);
        report
    }

    /// Failed transactions of the whole run.
    pub fn unsuccessful(&self) -> u64 {
        self.totals.failed + self.totals.failed_before + self.totals.failed_after
    }
}

fn facts(plan: &ProviderPlan) -> ProviderFacts {
    let description = &plan.description;
    ProviderFacts {
        provider: description.name.clone(),
        origin: description.origin.clone(),
        scenario: plan.scenario.name(),
        concurrency: plan.concurrency,
        warmup_s: plan.warmup.as_secs_f64(),
        duration_s: plan.duration.as_secs_f64(),
        timeout_s: plan.timeout.as_secs_f64(),
        users: description.users.as_ref().map_or(0, |users| users.count),
        clients: description.clients_for(plan.scenario).len(),
        seed: plan.seed,
    }
}

fn totals(outcome: &ProviderOutcome) -> ProviderTotals {
    let tally = &outcome.tally;
    let (from, until) = tally.window;
    let length = seconds(until.saturating_sub(from));
    let ok = tally.ok.count();
    let answered: u64 = tally.steps.values().map(|seen| seen.answered.count()).sum();
    ProviderTotals {
        ok,
        failed: tally.failed,
        seconds: length,
        ok_per_s: ratio(ok as f64, length),
        requests_per_transaction: ratio(answered as f64, ok as f64),
        warmup_s: seconds(from),
        everyone_warm: outcome.all_users_warm,
        failed_before: tally.before.1,
        ended_after: tally.after.0,
        failed_after: tally.after.1,
        preparation_s: outcome.preparation.as_secs_f64(),
        prepared_again: outcome.repeated_preparations,
        connections_opened: outcome.opened,
        bytes_received: outcome.received,
    }
}

fn generator_bound(report: &ProviderReport) -> Option<Finding> {
    finding::generator_bound(
        report.generator.cpu_share,
        report.generator.core_wait_share,
        "the provider may be faster than shown: give the generator a core of its own",
    )
}

fn warm_up_short(report: &ProviderReport) -> Option<Finding> {
    (!report.totals.everyone_warm).then(|| Finding {
        name: "warm-up-short",
        evidence: format!(
            "not every virtual user finished a transaction in the {:.1} s of warm-up",
            report.totals.warmup_s
        ),
        remedy: "the rate is that of a cold start: raise --warmup or --timeout",
        limits_generator: false,
    })
}

fn window_short(report: &ProviderReport) -> Option<Finding> {
    let (ok, users) = (report.totals.ok, report.plan.concurrency);
    (ok < lab_analysis::units::count(users)).then(|| Finding {
        name: "window-short",
        evidence: format!("{ok} transactions of {users} virtual users ended in the window"),
        remedy: "rate and percentiles rest on few transactions: raise --duration",
        limits_generator: false,
    })
}

fn machine_shared(report: &ProviderReport) -> Option<Finding> {
    finding::machine_shared(report.generator.core_wait_share)
}

/// Formats a run as a text of about one screen, findings first.
pub fn provider_table(report: &ProviderReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let _ = writeln!(text, "! {}: {}; {}", finding.name, finding.evidence, finding.remedy);
    }
    let (plan, totals) = (&report.plan, &report.totals);
    let _ = writeln!(
        text,
        "{} at {}: {}, {} virtual users, {} users, {} clients",
        plan.provider, plan.origin, plan.scenario, plan.concurrency, plan.users, plan.clients
    );
    let _ = writeln!(
        text,
        "{} transactions in {:.1} s ({:.1}/s), {} failed; warm-up {:.1} s, {} connections opened",
        totals.ok, totals.seconds, totals.ok_per_s, totals.failed, totals.warmup_s, totals.connections_opened
    );
    let _ = writeln!(
        text,
        "{:<22}{:>10}{:>11}{:>11}{:>11}{:>11}{:>11}",
        "", "count", "mean", "p50", "p95", "p99", "max"
    );
    row(&mut text, "transaction", &report.latency_us);
    for requests in &report.requests {
        row(&mut text, &format!("  {}", requests.step.name()), &requests.latency_us);
    }
    for fault in &report.faults {
        let _ = writeln!(
            text,
            "failed {} {}: {} ({})",
            fault.step.name(),
            fault.class.name(),
            fault.count,
            fault.example
        );
    }
    let own = &report.generator;
    let percent =
        |share: Option<f64>| share.map_or("?".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let _ = writeln!(
        text,
        "generator: {} of a core, {} waiting for one, {} µs per transaction",
        percent(own.cpu_share),
        percent(own.core_wait_share),
        own.cpu_us_per_transaction.map_or("?".to_owned(), |micros| format!("{micros:.1}"))
    );
    report.watched.iter().for_each(|seen| table::observation(&mut text, seen));
    text
}

fn row(text: &mut String, name: &str, latency: &Latency) {
    let _ = write!(text, "{name:<22}{:>10}", latency.count);
    for value in [latency.mean, latency.p50, latency.p95, latency.p99, latency.max] {
        let _ = write!(text, "{:>11}", ms(value));
    }
    text.push('\n');
}
