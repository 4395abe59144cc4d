//! Revocations: finds revoked credentials that were accepted too long, and revocations that failed.
//!
//! Owns: what is too long: the bound of the run, and a credential that was never refused.

use super::Subject;
use crate::formatting;
use crate::record::{BulkRevocation, Doubt, Finding, Revocations};
use crate::statistics::staleness_by_scope;

/// Finds credentials that were accepted for longer after their revocation than is allowed.
pub(super) fn beyond_bound(subject: &Subject<'_>) -> Vec<Finding> {
    let iterations =
        || subject.variant.iterations.iter().filter_map(|iteration| iteration.revocations.as_ref());
    let bound = iterations().filter_map(|seen| seen.bound_s).reduce(f64::min);
    let patience = iterations().map(|seen| seen.patience_s).reduce(f64::min);
    let evidence = staleness_by_scope(subject.variant)
        .into_iter()
        .filter(|place| !place.is_cluster)
        .filter_map(|place| {
            let above =
                bound.map_or(0, |bound| place.delay.count_above(crate::units::nanos_of_seconds(bound)));
            if above + place.never_refused == 0 {
                return None;
            }
            let all = formatting::count(place.delay.count() + place.never_refused);
            let mut parts = Vec::new();
            if above > 0 {
                let longest = formatting::time(place.delay.max() as f64 / 1e3);
                parts.push(format!("{} of {all}, the longest for {longest}", formatting::count(above)));
            }
            if place.never_refused > 0 {
                let end = patience
                    .map_or_else(|| "the end".to_owned(), |patience| formatting::time(patience * 1e6));
                parts.push(format!("{} of {all} still after {end}", formatting::count(place.never_refused)));
            }
            Some(format!("{} accepted {}", place.name, parts.join(" and ")))
        });
    let mut evidence: Vec<String> = evidence.collect();
    let floods = || iterations().filter_map(|seen| seen.flood.as_ref());
    let admitted: u64 = floods().map(|flood| flood.admitted).sum();
    if admitted > 0 {
        let tried: u64 = floods().map(|flood| flood.admitted + flood.refused).sum();
        evidence.push(format!(
            "{} of {} from the bulk revocation were still accepted after the bound",
            formatting::count(admitted),
            formatting::count(tried)
        ));
    }
    if evidence.is_empty() {
        return Vec::new();
    }
    let allowed =
        bound.map_or_else(String::new, |bound| format!("; {} is allowed", formatting::time(bound * 1e6)));
    vec![subject.finding(
        Doubt::Careful,
        "stale-beyond-bound",
        format!("revoked credentials: {}{allowed}", evidence.join("; ")),
        "a cache there receives revocations too late or not at all: check its revocation transport, and how long an entry stays valid without one",
    )]
}

/// Finds revocations whose staleness could not be measured.
pub(super) fn failed(subject: &Subject<'_>) -> Vec<Finding> {
    let all: Vec<&Revocations> =
        subject.variant.iterations.iter().filter_map(|iteration| iteration.revocations.as_ref()).collect();
    let flooded = |of: fn(&BulkRevocation) -> u64| {
        all.iter().filter_map(|seen| seen.flood.as_ref()).map(of).sum::<u64>()
    };
    let failed = all.iter().map(|seen| seen.failed).sum::<u64>() + flooded(|flood| flood.failed);
    if failed == 0 {
        return Vec::new();
    }
    let revoked = all.iter().map(|seen| seen.revoked).sum::<u64>() + flooded(|flood| flood.revoked);
    let examples = |seen: &&Revocations| {
        let flood = seen.flood.as_ref().filter(|flood| flood.failed > 0);
        let unknown = || Some("the provider did not know tokens of a list".to_owned());
        seen.example.clone().or_else(|| flood.and_then(|flood| flood.example.clone().or_else(unknown)))
    };
    let example = all.iter().find_map(examples).unwrap_or_default();
    vec![subject.finding(
        Doubt::Careful,
        "revocations-failed",
        format!(
            "{} of {} revocations failed, the first because {example}",
            formatting::count(failed),
            formatting::count(failed + revoked)
        ),
        "staleness covers only the others: check the endpoints that issue, accept and revoke credentials",
    )]
}
