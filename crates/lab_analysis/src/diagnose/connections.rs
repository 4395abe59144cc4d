//! Connections: finds those that are opened for each request, need a handshake each, or are shared
//! by requests that wait for each other.
//!
//! Owns: what counts of connections prove. Without counts there is no finding.

use super::Subject;
use super::view::{ComponentWindow, Counter, component_windows, majority, median_of};
use crate::formatting;
use crate::record::{Finding, Variant};
use crate::statistics::{Figure, figures};

/// Connections per request from which they are opened for requests, not for the run: one in twenty.
const CHURN_PER_REQUEST: f64 = 0.05;
/// Connections per request from which none is kept open.
const NONE_KEPT_OPEN: f64 = 0.9;
/// Fewest connections in a window that count: pools open some when they fill at the start.
const MIN_CONNECTIONS: f64 = 50.0;
/// P99 over HTTP/2 divided by P99 over HTTP/1.1 from which requests block each other: less may be
/// chance.
const BLOCKED_FACTOR: f64 = 2.0;
/// Fewest iterations over each protocol: chance puts all of one side above all of the other in 2 of
/// 70 cases with four and four, but always with one and one.
const MIN_ITERATIONS: usize = 4;
/// Largest factor between the medians of both: if they are alike, the waiting differs and not the
/// work.
const MAX_MEDIAN_FACTOR: f64 = 1.3;

/// Finds connections or TLS handshakes that are made for a large part of the requests.
pub(super) fn churn(subject: &Subject<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if subject.has_websockets() {
        return findings;
    }
    for name in subject.variant.component_names() {
        let looks = component_windows(subject.variant, name);
        if let Some((each, all)) = per_request(&looks, |sample| sample.tls_handshakes) {
            let evidence = format!(
                "`{name}` did {} TLS handshakes, {} per request",
                formatting::grouped(all),
                formatting::digits(each)
            );
            let remedy =
                "a handshake costs more CPU than most requests: keep connections open, and resume sessions";
            findings.push(subject.explanation("tls-handshakes", evidence, remedy));
        }
        if let Some((each, all)) = per_request(&looks, |sample| sample.connections_opened) {
            let note = if each >= NONE_KEPT_OPEN { ": none is kept open" } else { "" };
            let evidence = format!(
                "{} connections were opened to `{name}`, {} per request{note}",
                formatting::grouped(all),
                formatting::digits(each)
            );
            let remedy = "each costs a round trip, a port and a descriptor: keep connections open (keep-alive), and let the pool be as \
                          large as the requests in flight";
            findings.push(subject.explanation("connection-churn", evidence, remedy));
        }
    }
    findings
}

/// A counter per request and in total, where at least half of the iterations show it.
fn per_request(looks: &[ComponentWindow<'_>], counter: Counter) -> Option<(f64, f64)> {
    let shown: Vec<(f64, f64)> = looks
        .iter()
        .filter_map(|look| Some((look.per_request(counter)?, look.growth(counter)?)))
        .filter(|(each, all)| *each >= CHURN_PER_REQUEST && *all >= MIN_CONNECTIONS)
        .collect();
    let each: Vec<f64> = shown.iter().map(|(each, _)| *each).collect();
    (!shown.is_empty() && shown.len() >= majority(looks.len()))
        .then(|| Some((median_of(&each)?, shown.iter().map(|(_, all)| all).sum())))?
}

/// Finds a load with slow responses over HTTP/2 but not over HTTP/1.1: requests wait behind others
/// on their connection.
pub(super) fn head_of_line(subject: &Subject<'_>) -> Vec<Finding> {
    let shared = subject.variant;
    if shared.load.protocol.as_deref() != Some("h2") {
        return Vec::new();
    }
    let evidence = subject.record.variants.iter().find_map(|alone| {
        let slow = figures(shared, &Figure::P99);
        let quick = figures(alone, &Figure::P99);
        let medians = median_of(&figures(shared, &Figure::P50)).zip(median_of(&figures(alone, &Figure::P50)));
        let same_work = medians.is_some_and(|(a, b)| a <= MAX_MEDIAN_FACTOR * b && b <= MAX_MEDIAN_FACTOR * a);
        // Every iteration over HTTP/2 is slower than every one over HTTP/1.1, which is hardly chance
        // if there are enough of them.
        let enough = slow.len().min(quick.len()) >= MIN_ITERATIONS;
        let apart = slow.iter().copied().fold(f64::MAX, f64::min) > quick.iter().copied().fold(0.0, f64::max);
        let (slow, quick) = median_of(&slow).zip(median_of(&quick))?;
        let blocked = enough && same_work && apart && slow >= BLOCKED_FACTOR * quick;
        (only_protocol_differs(shared, alone) && blocked).then(|| {
            format!(
                "P99 over h2 is {} and {} under the same load over HTTP/1.1 (`{}`), while the medians are alike",
                formatting::time(slow),
                formatting::time(quick),
                alone.name
            )
        })
    });
    let remedy = "requests of one connection wait behind each other: use more connections, and look for an answer that fills the \
                  connection's window";
    evidence.map(|evidence| subject.explanation("head-of-line", evidence, remedy)).into_iter().collect()
}

fn only_protocol_differs(shared: &Variant, alone: &Variant) -> bool {
    let labels = |variant: &Variant| {
        let mut labels = variant.labels.clone();
        labels.remove("protocol");
        labels
    };
    let load = |variant: &Variant| (variant.load.arrivals, variant.load.rate_per_s, variant.load.concurrency);
    alone.load.protocol.as_deref() == Some("http/1.1")
        && load(shared) == load(alone)
        && labels(shared) == labels(alone)
        && shared.topology == alone.topology
        && shared.load.flow == alone.load.flow
}
