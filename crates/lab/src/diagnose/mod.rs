//! Findings: what makes a run's figures doubtful, and what explains them, each with its evidence and a remedy.
//!
//! Owns: every rule over a [`Record`], with its thresholds. Does not own: the statistics ([`crate::statistics`]), how findings are shown
//! ([`crate::offline`]), and what the load driver says about a single run of its own ([`crate::report`]).
//!
//! Flow: record → rules over each variant ([`RULES`]) and over the whole → what another finding explains is dropped → the same
//! about several variants is said once → what the run noticed itself stands before → the gravest first. Every rule is a pure
//! function. It speaks where the data proves its cause and is silent where they do not suffice: a figure that was not observed is no
//! evidence. Thresholds are ratios or structure wherever they can be, because bare times differ between machines.

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
mod trust;
mod view;

pub(crate) use capacity::points;

use crate::record::{Doubt, Finding, Record, Variant};

/// A variant, with the record it stands in.
struct Subject<'a> {
    record: &'a Record,
    variant: &'a Variant,
}

type Rule = fn(&Subject<'_>) -> Vec<Finding>;

/// The rules over one variant. Of equal weight, what is earlier here is said first: causes before what follows from them.
const RULES: [Rule; 28] = [
    generator::bound,
    generator::late,
    endings::unsent,
    trust::closed_loop,
    trust::summary_only,
    iterations::few,
    endings::errors,
    revocations::beyond_bound,
    revocations::failed,
    trust::law,
    iterations::odd,
    limits::throttled,
    limits::memory,
    limits::ended,
    limits::core_starved,
    endings::timeouts_mapped,
    endings::rate_limited,
    endings::burst,
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

/// What a cause brings with it: of the same variant, these say nothing new beside it.
const EXPLAINED: [(&str, &[&str]); 4] = [
    // A program without CPU stands still, and everything that waits for it is slow.
    (
        "throttled",
        &["stalls", "pauses", "gc-like-pauses", "core-starved", "backend-bound", "round-trip-bound"],
    ),
    // A generator that does not keep up offers less than was asked for, in its own rhythm.
    ("generator-bound", &["saturated", "core-starved", "stalls", "pauses", "cold-cache"]),
    ("tls-handshakes", &["connection-churn"]),
    // A latency that is the queue's is not the backend's, and what is in flight while a queue grows is not what was answered.
    ("saturated", &["backend-bound", "round-trip-bound", "little-law-broken"]),
];

/// What a record keeps of its findings where its figures become others: what only who ran it can know, and what is not to be seen any more where
/// a timeline lost its detail.
const LASTING: [&str; 5] = ["not-measured", "nothing-ended", "stalls", "pauses", "gc-like-pauses"];

/// Whether a finding that is in a record is not found again from its figures.
pub(crate) fn lasts(finding: &Finding) -> bool {
    LASTING.contains(&finding.name.as_str())
}

/// What the run noticed and what its figures show, the gravest first. Findings that are put back into the record are not found
/// again.
pub fn findings(record: &Record) -> Vec<Finding> {
    let mut shown = trust::whole(record);
    shown.extend(generator::shared(record));
    shown.extend(generator::stolen(record));
    for variant in &record.variants {
        let subject = Subject { record, variant };
        let mut found: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&subject)).collect();
        drop_explained(&mut found);
        shown.extend(found);
    }
    for sweep in &record.sweeps {
        shown.extend(capacity::full(record, sweep));
        shown.extend(capacity::lock_convoy(record, sweep));
    }
    let mut all = record.findings.clone();
    for finding in together(shown, record.variants.len()) {
        let known = |noticed: &Finding| noticed.name == finding.name && noticed.variants == finding.variants;
        if !record.findings.iter().any(known) {
            all.push(finding);
        }
    }
    all.sort_by_key(|finding| finding.doubt);
    all
}

fn drop_explained(found: &mut Vec<Finding>) {
    let names: Vec<String> = found.iter().map(|finding| finding.name.clone()).collect();
    let explained = |effect: &str| {
        EXPLAINED
            .iter()
            .any(|(cause, effects)| effects.contains(&effect) && names.iter().any(|name| name == cause))
    };
    found.retain(|finding| !explained(&finding.name));
}

/// The same to say about several variants is said once.
fn together(all: Vec<Finding>, variants: usize) -> Vec<Finding> {
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

/// Findings of one name and remedy, each about other variants: what is shown as one. What is about the whole run stands by itself.
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
    /// The load had a course of its own: what changes over time may be due to it.
    fn is_staged(&self) -> bool {
        !self.variant.load.stages.is_empty()
    }

    /// A finding about this variant.
    fn finding(&self, doubt: Doubt, name: &str, evidence: String, remedy: &str) -> Finding {
        Finding {
            name: name.to_owned(),
            variants: vec![self.variant.name.clone()],
            doubt,
            evidence,
            remedy: remedy.to_owned(),
        }
    }

    /// The same that explains the figures.
    fn cause(&self, name: &str, evidence: String, remedy: &str) -> Finding {
        self.finding(Doubt::Explains, name, evidence, remedy)
    }
}
