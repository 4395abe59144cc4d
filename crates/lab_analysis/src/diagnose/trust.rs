//! Trust: finds doubts about figures that need no cause in the target.
//!
//! Owns: doubts from an unfinished run, another tool's summary, a closed loop, or figures that
//! break an identity.

use super::Subject;
use super::view::ended_per_s;
use crate::record::{Arrivals, Doubt, Finding, Iteration, Origin, Outcome, Record};
use crate::statistics::little;

/// Share by which rate × latency may differ from the requests in flight: the ends of a short run
/// count half.
const LITTLE_TOLERANCE: f64 = 0.1;
/// Requests by which they have to differ as well. With hardly one request in flight, the wait
/// before sending is as long as the flight.
const MIN_DIFFERENCE: f64 = 0.5;

/// Levels of optimization of a build whose figures are those of the packages, and of one of which
/// some crates were not optimized.
const FULL_OPTIMIZATION: &str = "3";
const PARTIAL_OPTIMIZATION: &str = "partial";

/// Findings about the whole run: stopped early, shortened, of a program that is not optimized, or
/// imported.
pub(super) fn about_run(record: &Record) -> Vec<Finding> {
    let about = |name: &str, evidence: &str, remedy: &str| Finding {
        name: name.to_owned(),
        variants: Vec::new(),
        doubt: Doubt::Careful,
        evidence: evidence.to_owned(),
        remedy: remedy.to_owned(),
    };
    let mut findings = Vec::new();
    if record.run.partial {
        findings.push(about(
            "partial",
            "the run was stopped early",
            "the figures cover only what was measured until then",
        ));
    }
    if record.run.quick {
        findings.push(about(
            "quick",
            "the scenario ran in its short form",
            "use it for a first impression only: run the scenario in full before a decision",
        ));
    }
    for peer in &record.run.peers {
        if let Some(level) = peer.optimization.as_deref().filter(|level| *level != FULL_OPTIMIZATION) {
            let how = if level == PARTIAL_OPTIMIZATION {
                "optimized in part".to_owned()
            } else {
                format!("built with optimization level {level}")
            };
            findings.push(about(
                "not-optimized",
                &format!("`{}` was {how}", peer.name),
                "it needs more CPU than the packages do: measure a build of the profile `dist`, as they are",
            ));
        }
    }
    if let Origin::Import { notes, .. } = &record.run.origin {
        findings
            .extend(notes.iter().map(|note| about("import", note, "measure with the lab where it matters")));
    }
    findings
}

/// Reports a closed loop: its workers waited for each response.
pub(super) fn closed_loop(subject: &Subject<'_>) -> Vec<Finding> {
    let load = &subject.variant.load;
    if load.arrivals != Arrivals::Closed {
        return Vec::new();
    }
    let workers = load.concurrency.map(|workers| format!("{workers} workers"));
    let workers = workers.unwrap_or_else(|| "an unknown number of workers".to_owned());
    vec![subject.finding(
        Doubt::Careful,
        "closed-loop",
        format!("{workers} waited for each answer"),
        "throughput is workers ÷ latency, not a capacity, and stalls are under-counted: offer a rate to measure latency",
    )]
}

/// Reports iterations without a histogram, which have only the percentiles that a tool printed.
pub(super) fn summary_only(subject: &Subject<'_>) -> Vec<Finding> {
    let without =
        |iteration: &&Iteration| iteration.count(Outcome::Ok) > 0 && iteration.latency(Outcome::Ok).is_none();
    let iterations = &subject.variant.iterations;
    let many = iterations.iter().filter(without).count();
    if many == 0 {
        return Vec::new();
    }
    let printed = |iteration: &Iteration| {
        iteration.stated.as_ref().is_some_and(|stated| !stated.percentiles.is_empty())
    };
    let content =
        if iterations.iter().any(printed) { "percentiles as a tool printed them" } else { "no percentiles" };
    vec![subject.finding(
        Doubt::Careful,
        "summary-only",
        format!("{many} of {} iterations have {content}, and no histogram", iterations.len()),
        "they cannot be merged, and no other percentile is known: keep the tool's raw output",
    )]
}

/// Finds iterations whose requests in flight are not rate × latency (Little's law).
///
/// There is no finding where many of the requests that ended in the window were due before it. The
/// recorded latencies are then not those of the requests in flight. A request without a response
/// may have been given up after the window. Only a part of its time was then in flight, and the law
/// has to hold for some part of it.
pub(super) fn little_law(subject: &Subject<'_>) -> Vec<Finding> {
    let variant = subject.variant;
    let closed =
        variant.load.concurrency.filter(|_| variant.load.arrivals == Arrivals::Closed).map(f64::from);
    let broken: Vec<String> = variant
        .iterations
        .iter()
        .filter_map(|iteration| {
            let in_flight = iteration.mean_in_flight.or(closed)?;
            let [least, most] = mean_of_all(iteration)?;
            let rate = ended_per_s(iteration);
            let total: u64 = iteration.classes.iter().map(|class| class.count).sum();
            if rate * iteration.seconds - total as f64 > LITTLE_TOLERANCE * total as f64 {
                return None;
            }
            let mean = (in_flight / rate.max(f64::MIN_POSITIVE) * 1e6).clamp(least, most);
            let check = little(in_flight, rate, mean / 1e6, LITTLE_TOLERANCE)?;
            (!check.holds && (check.implied - in_flight).abs() >= MIN_DIFFERENCE).then(|| {
                format!("iteration {}: {:.1} instead of {in_flight:.1}", iteration.number, check.implied)
            })
        })
        .collect();
    if broken.is_empty() {
        return Vec::new();
    }
    vec![
        subject.finding(
            Doubt::Careful,
            "little-law-broken",
            format!("rate × latency differs from the requests in flight: {}", broken.join("; ")),
            "rate and latency were counted over different requests, or workers were idle: use neither before this is explained",
        )]
}

/// Mean time in flight of all requests, µs, without and with the time of those that failed. The
/// time before a request was sent does not count. `None` where a class has no latencies.
fn mean_of_all(iteration: &Iteration) -> Option<[f64; 2]> {
    let (mut answered, mut failed, mut count) = (0.0, 0.0, 0.0);
    for class in iteration.classes.iter().filter(|class| class.count > 0) {
        let own = (class.outcome == Outcome::Ok).then_some(iteration.service.as_ref()).flatten();
        let time = own.or(class.latency.as_ref())?.mean() / 1e3 * class.count as f64;
        *(if class.outcome == Outcome::Failed { &mut failed } else { &mut answered }) += time;
        count += class.count as f64;
    }
    (count > 0.0).then(|| [answered, answered + failed].map(|time| time / count))
}
