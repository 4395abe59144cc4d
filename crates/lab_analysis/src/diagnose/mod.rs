//! Diagnosis: finds what makes a run's figures doubtful and what explains them, each with evidence
//! and a remedy.
//!
//! Owns: every rule over a [`Record`], with its thresholds.
//! Does not own: the statistics ([`crate::statistics`]), how findings are shown
//! ([`crate::offline`]), and a load generator's findings about its own runs, which have some
//! thresholds in common with these ([`is_saturated`], [`CORE_WAIT`], [`LAG_US`], [`LAG_SHARE`]).
//!
//! 1. The rules read each variant ([`RULES`]), then the sweeps and the whole record.
//! 2. Findings that another finding explains are dropped.
//! 3. Equal findings about several variants are merged.
//! 4. Findings that the run itself made are put first.
//! 5. All are sorted, the most serious first.
//!
//! Every rule is a pure function. It reports a finding only where the data prove the cause. A
//! figure that was not observed is no evidence. Thresholds are ratios or structural wherever
//! possible, because absolute times differ between machines.

mod calls;
mod capacity;
mod connections;
mod course;
mod endings;
mod generator;
mod iterations;
mod limits;
mod paths;
mod pauses;
mod revocations;
mod streams;
mod thresholds;
mod trust;
mod view;
mod waits;

pub(crate) use capacity::points;
pub use thresholds::{CORE_WAIT, LAG_SHARE, LAG_US, is_saturated};

use crate::record::{Doubt, Finding, Record, Variant};

/// A variant under diagnosis, with its record.
struct Subject<'a> {
    record: &'a Record,
    variant: &'a Variant,
}

type Rule = fn(&Subject<'_>) -> Vec<Finding>;

/// Rules over one variant. Findings of equal weight keep this order: causes before their effects.
const RULES: [Rule; 33] = [
    generator::generator_bound,
    generator::generator_late,
    endings::unsent,
    trust::closed_loop,
    trust::summary_only,
    iterations::few,
    endings::errors,
    revocations::beyond_bound,
    revocations::failed,
    trust::little_law,
    iterations::outlying,
    limits::throttled,
    limits::memory,
    limits::component_ended,
    limits::core_starved,
    waits::for_core,
    waits::of_threads,
    endings::timeouts_mapped,
    endings::rate_limited,
    endings::burst,
    streams::stalls,
    streams::buffered,
    streams::idle_timeout,
    capacity::overloaded,
    paths::backend_bound,
    paths::round_trip_bound,
    connections::churn,
    connections::head_of_line,
    calls::several_per_request,
    calls::cold_cache,
    calls::uneven_spread,
    course::memory_growth,
    pauses::pauses,
];

/// Findings that a cause explains: about the same variant they say nothing new beside it.
const EXPLAINED: [(&str, &[&str]); 6] = [
    // The threads wait for the result of that thread.
    ("one-thread-bound", &["waits-for-lock"]),
    // A program without CPU stalls, and everything that waits for it is slow.
    (
        "throttled",
        &[
            "stalls",
            "pauses",
            "gc-like-pauses",
            "core-starved",
            "waits-for-core",
            "backend-bound",
            "round-trip-bound",
            "stream-stalls",
        ],
    ),
    // A generator that does not keep up offers less load than planned, at its own pace.
    ("generator-bound", &["saturated", "core-starved", "waits-for-core", "stalls", "pauses", "cold-cache"]),
    ("tls-handshakes", &["connection-churn"]),
    // The same pauses, seen by streams: there a component is named.
    ("stream-stalls", &["stalls", "pauses"]),
    // The latency is the queue's, not the backend's. While a queue grows, more requests are in
    // flight than are answered.
    ("saturated", &["backend-bound", "round-trip-bound", "little-law-broken"]),
];

/// Findings that a record keeps when its figures change. Either only the run itself could make
/// them, or a timeline with less detail no longer shows them.
const KEPT_FINDINGS: [&str; 6] =
    ["not-measured", "nothing-ended", "stalls", "pauses", "gc-like-pauses", "stream-stalls"];

/// Whether a finding in a record cannot be derived again from its figures.
pub(crate) fn is_kept(finding: &Finding) -> bool {
    KEPT_FINDINGS.contains(&finding.name.as_str())
}

/// Findings of the run itself and of its figures, the most serious first. A finding that is already
/// in the record is not added again.
pub fn findings(record: &Record) -> Vec<Finding> {
    let mut shown = trust::about_run(record);
    shown.extend(generator::machine_shared(record));
    shown.extend(generator::time_stolen(record));
    for variant in &record.variants {
        let subject = Subject { record, variant };
        let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&subject)).collect();
        drop_explained(&mut findings);
        shown.extend(findings);
    }
    for sweep in &record.sweeps {
        shown.extend(capacity::saturated_sweep(record, sweep));
        shown.extend(capacity::lock_convoy(record, sweep));
    }
    let mut all = record.findings.clone();
    for finding in merge_equal(shown, record.variants.len()) {
        let known = |noticed: &Finding| noticed.name == finding.name && noticed.variants == finding.variants;
        if !record.findings.iter().any(known) {
            all.push(finding);
        }
    }
    all.sort_by_key(|finding| finding.doubt);
    all
}

fn drop_explained(findings: &mut Vec<Finding>) {
    let names: Vec<String> = findings.iter().map(|finding| finding.name.clone()).collect();
    let explained = |effect: &str| {
        EXPLAINED
            .iter()
            .any(|(cause, effects)| effects.contains(&effect) && names.iter().any(|name| name == cause))
    };
    findings.retain(|finding| !explained(&finding.name));
}

/// Merges equal findings about several variants into one.
fn merge_equal(all: Vec<Finding>, variants: usize) -> Vec<Finding> {
    let mut joined: Vec<Finding> = Vec::new();
    for finding in all {
        let same = joined.iter_mut().find(|seen| {
            seen.name == finding.name && seen.evidence == finding.evidence && !seen.variants.is_empty()
        });
        match same {
            Some(seen) if !finding.variants.is_empty() => seen.variants.extend(finding.variants),
            _ => joined.push(finding),
        }
    }
    for finding in &mut joined {
        if variants > 1 && finding.variants.len() == variants {
            finding.variants.clear();
        }
    }
    joined
}

/// Groups findings with the same name, weight and remedy about different variants: a report shows a
/// group as one. A finding about the whole run is a group by itself.
pub fn groups(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<&Finding>| {
            let first = group[0];
            let about_variants = !first.variants.is_empty() && !finding.variants.is_empty();
            let said_alike =
                (&first.name, first.doubt, &first.remedy) == (&finding.name, finding.doubt, &finding.remedy);
            about_variants && said_alike
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

impl Subject<'_> {
    /// Whether the offered rate changed by plan: that may cause changes over time.
    fn is_staged(&self) -> bool {
        !self.variant.load.stages.is_empty()
    }

    /// Whether the requests are streams or WebSockets. Their length is that of the load, not a cost.
    fn has_streams(&self) -> bool {
        self.variant.iterations.iter().any(|iteration| iteration.streams.is_some())
    }

    /// Whether the requests are WebSockets, each of which is a connection of its own.
    fn has_websockets(&self) -> bool {
        let kind = |streams: &crate::record::Streams| streams.kind == crate::record::StreamKind::Websocket;
        self.variant.iterations.iter().any(|iteration| iteration.streams.as_ref().is_some_and(kind))
    }

    /// Creates a finding about this variant.
    fn finding(&self, doubt: Doubt, name: &str, evidence: String, remedy: &str) -> Finding {
        Finding {
            name: name.to_owned(),
            variants: vec![self.variant.name.clone()],
            doubt,
            evidence,
            remedy: remedy.to_owned(),
        }
    }

    /// Creates a finding about this variant that explains its figures.
    fn explanation(&self, name: &str, evidence: String, remedy: &str) -> Finding {
        self.finding(Doubt::Explains, name, evidence, remedy)
    }
}
