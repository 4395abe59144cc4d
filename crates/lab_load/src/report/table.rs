//! Text form of the reports, for a terminal.

use std::fmt::Write as _;

use super::finding::ms;
use super::{HoldReport, LoadReport, ObserveReport};
use crate::load::Latency;
use crate::observe::Observation;

/// Formats a load run as a text of about one screen, findings first.
pub fn load_table(report: &LoadReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        line(&mut text, &format!("! {}: {}; {}", finding.name, finding.evidence, finding.remedy));
    }
    let plan = &report.plan;
    let steps: Vec<String> = plan.steps.iter().map(|(rate, _)| format!("{rate}/s")).collect();
    let tls = if plan.tls { " over TLS" } else { "" };
    line(
        &mut text,
        &format!(
            "{} {} {}{tls}, {} arrivals {}, {} connections × {}",
            plan.method,
            plan.url,
            plan.protocol,
            plan.arrivals,
            steps.join(" → "),
            plan.connections,
            plan.streams
        ),
    );
    let totals = &report.totals;
    line(
        &mut text,
        &format!(
            "{} planned in {:.1} s: {} ok ({:.0}/s), {} refused, {} failed; {:.1} in flight; {} connections opened",
            totals.planned,
            totals.seconds,
            totals.ok,
            totals.ok_per_s,
            totals.refused,
            totals.failed,
            totals.mean_in_flight,
            totals.connections_opened
        ),
    );
    line(&mut text, &format!("{:<22}{:>10}{}", "", "count", LATENCY_HEAD));
    latency(&mut text, "ok, intended start", &report.latency_us);
    latency(&mut text, "ok, from sending", &report.service_us);
    for status in report.statuses.iter().filter(|status| status.status >= 400 || status.status == 0) {
        latency(&mut text, &format!("status {}", status.status), &status.latency_us);
    }
    for fault in &report.faults {
        latency(&mut text, &format!("{} ({})", fault.class.name(), fault.example), &fault.latency_us);
    }
    let own = &report.generator;
    let percent =
        |share: Option<f64>| share.map_or("?".to_owned(), |share| format!("{:.0} %", share * 100.0));
    line(
        &mut text,
        &format!(
            "generator: {} of a core, {} waiting for one, {} µs per request, lag p99 {}",
            percent(own.cpu_share),
            percent(own.core_wait_share),
            own.cpu_us_per_request.map_or("?".to_owned(), |micros| format!("{micros:.1}")),
            ms(own.lag_us.p99)
        ),
    );
    report.watched.iter().for_each(|seen| observation(&mut text, seen));
    text
}

/// Formats held connections as a few lines of text.
pub fn hold_table(report: &HoldReport) -> String {
    let mut text = String::new();
    line(
        &mut text,
        &format!(
            "{}: {} of {} connections to {} opened in {:.1} s, at most {} at once, {} open at the end",
            report.kind,
            report.opened,
            report.connections,
            report.url,
            report.opening_s,
            report.open_max,
            report.open_at_end
        ),
    );
    line(
        &mut text,
        &format!(
            "closed by the server: {} after {} (median) to {} (longest)",
            report.closed_by_peer,
            ms(report.lifetime_us.p50),
            ms(report.lifetime_us.max)
        ),
    );
    for (status, count) in &report.statuses {
        line(&mut text, &format!("answered {status}: {count}"));
    }
    line(&mut text, &format!("{:<22}{:>10}{}", "", "count", LATENCY_HEAD));
    latency(&mut text, "opening", &report.open_us);
    for fault in &report.failed {
        latency(&mut text, &format!("{} ({})", fault.class.name(), fault.example), &fault.latency_us);
    }
    report.watched.iter().for_each(|seen| observation(&mut text, seen));
    text
}

/// Formats observed processes, one line each.
pub fn observe_table(report: &ObserveReport) -> String {
    let mut text = String::new();
    report.watched.iter().for_each(|seen| observation(&mut text, seen));
    text
}

const LATENCY_HEAD: &str = "       mean        p50        p90        p99      p99.9        max";

fn latency(text: &mut String, name: &str, latency: &Latency) {
    let mut row = format!("{name:<22}{:>10}", latency.count);
    for value in [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max] {
        // The width counts characters, and so does the padding of `format!`.
        let _ = write!(row, "{:>11}", ms(value));
    }
    line(text, &row);
}

pub(super) fn observation(text: &mut String, observation: &Observation) {
    let per_request = observation
        .cpu_us_per_request
        .map_or_else(String::new, |micros| format!(" ({micros:.1} µs per request)"));
    // A window that is too short gives no CPU figure.
    let cores = observation.cpu_cores.map_or_else(|| "–".to_owned(), |cores| format!("{cores:.2}"));
    let ended = if observation.ended { "; ended while observed" } else { "" };
    line(
        text,
        &format!(
            "{} (pid {}): {cores} cores{per_request}, RSS {:.1} MB, at most {:.1} MB, {} threads, {:.0} + {:.0} switches/s{ended}",
            observation.name,
            observation.pid,
            observation.rss_last_bytes as f64 / 1e6,
            observation.rss_max_bytes as f64 / 1e6,
            observation.threads_max,
            observation.voluntary_switches_per_s,
            observation.involuntary_switches_per_s
        ),
    );
}

fn line(text: &mut String, content: &str) {
    text.push_str(content.trim_end());
    text.push('\n');
}
