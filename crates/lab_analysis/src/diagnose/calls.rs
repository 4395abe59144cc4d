//! Calls behind a request: finds too many calls per request, many calls only at the start, and
//! calls to one of several nodes only.
//!
//! Owns: what counters of received calls prove. Where a component's calls were not counted, its
//! opened connections are a lower bound, or there is no finding.

use super::Subject;
use super::view::{ComponentWindow, component_windows, majority, median_of, slices};
use crate::formatting;
use crate::record::{Finding, Iteration, Sample};
use crate::units::index;

/// Calls to one component per request from which there are several. One call checks a token; two
/// may be a token and a decision.
const MIN_CALLS_PER_REQUEST: f64 = 2.5;
/// Fewest calls from which a ratio is computed.
const MIN_CALLS: f64 = 50.0;
/// Number of parts into which the window is cut to see a trend.
const PARTS: usize = 5;
/// Factor by which the calls per request of a cold cache fall from the first part of the window to
/// the last two.
const COLD_FACTOR: f64 = 5.0;
/// Fewest calls per request of a cold cache in the first part of the window.
const MIN_COLD_CALLS: f64 = 0.1;
/// Smallest divisor of that factor, in calls per request: dividing by 0 would give infinity.
const MIN_DIVISOR: f64 = 0.01;
/// Factor by which the first slices have to be slower than the last half, where calls are not
/// counted.
const SLOW_START_FACTOR: f64 = 2.0;
/// Fewest iterations that all start slowly: one slow start may be chance.
const MIN_SLOW_STARTS: usize = 3;
/// Factor between the node with the most calls and the node with the fewest. Hashing spreads calls
/// more evenly.
const UNEVEN_FACTOR: f64 = 2.0;

/// Finds components that receive many calls per request.
pub(super) fn several_per_request(subject: &Subject<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in subject.variant.component_names() {
        let looks = component_windows(subject.variant, name);
        let calls = |look: &ComponentWindow<'_>| {
            let counted = look.growth(|sample| sample.calls_received);
            // A client that opens a connection sends at least one request over it.
            let calls = counted.or_else(|| look.growth(|sample| sample.connections_opened))?;
            Some((calls / look.requests().max(1.0), calls, counted.is_some()))
        };
        let many: Vec<(f64, f64, bool)> = looks
            .iter()
            .filter_map(calls)
            .filter(|(each, all, _)| *each >= MIN_CALLS_PER_REQUEST && *all >= MIN_CALLS)
            .collect();
        if many.is_empty() || many.len() < majority(looks.len()) {
            continue;
        }
        let each = median_of(&many.iter().map(|(each, ..)| *each).collect::<Vec<_>>()).unwrap_or(0.0);
        let unit = if many.iter().all(|(.., counted)| *counted) { "calls" } else { "connections" };
        findings.push(subject.explanation(
            "n-plus-one",
            format!("one request makes {} {unit} to `{name}`", formatting::digits(each)),
            "each call adds to the latency and to the load of the component: combine the calls, or cache the responses",
        ));
    }
    findings
}

/// Finds caches that were still empty when the measurement began. Streams show none: one makes its
/// calls when it starts and counts as a request when it ends, and its latency is its length.
pub(super) fn cold_cache(subject: &Subject<'_>) -> Vec<Finding> {
    if subject.is_staged() || subject.has_streams() {
        return Vec::new();
    }
    let mut evidence: Vec<String> = subject
        .variant
        .component_names()
        .into_iter()
        .filter_map(|name| many_calls_at_first(subject, name))
        .collect();
    if evidence.is_empty() {
        evidence.extend(slow_at_first(subject));
    }
    if evidence.is_empty() {
        return Vec::new();
    }
    vec![subject.explanation(
        "cold-cache",
        evidence.join("; "),
        "the start and the rest are two different measurements: warm up longer, or measure the start separately",
    )]
}

fn many_calls_at_first(subject: &Subject<'_>, name: &str) -> Option<String> {
    let looks = component_windows(subject.variant, name);
    let courses: Vec<(f64, f64)> = looks.iter().filter_map(calls_trend).collect();
    if courses.is_empty() || courses.len() < majority(looks.len()) {
        return None;
    }
    let (first, last): (Vec<f64>, Vec<f64>) = courses.into_iter().unzip();
    Some(format!(
        "`{name}` received {} calls per request in the first fifth of the window and {} in the last two",
        formatting::digits(median_of(&first)?),
        formatting::digits(median_of(&last)?)
    ))
}

/// Calls per request in the first part of the window and in the last two, when they fell
/// permanently; `None` otherwise.
fn calls_trend(look: &ComponentWindow<'_>) -> Option<(f64, f64)> {
    let calls = |sample: &Sample| sample.calls_received;
    let (from, until) = (look.first.at_ms as f64, look.last.at_ms as f64);
    if look.samples().count() <= PARTS || look.growth(calls)? < MIN_CALLS {
        return None;
    }
    let edge = |part: usize| from + (until - from) * part as f64 / PARTS as f64;
    let part = |from: usize, until: usize| {
        let (from, until) = (edge(from), edge(until));
        let requests = requests(look.iteration, from, until)?;
        let call_count = look.value_at(until, calls)? - look.value_at(from, calls)?;
        (requests >= 1.0).then(|| call_count / requests)
    };
    let (first, middle, last) = (part(0, 1)?, part(2, 3)?, part(PARTS - 2, PARTS)?);
    let fell =
        first >= MIN_COLD_CALLS && first >= COLD_FACTOR * last.max(MIN_DIVISOR) && first >= 2.0 * middle;
    fell.then_some((first, last))
}

/// Number of requests that ended between two moments, from the slices there. A slice that lies
/// partly inside counts by its share.
fn requests(iteration: &Iteration, from: f64, until: f64) -> Option<f64> {
    if iteration.timeline.is_empty() {
        return None;
    }
    let inside = |slice: &crate::record::Slice| {
        let (begin, end) = (slice.at_ms as f64, (slice.at_ms + slice.ms) as f64);
        let overlap = (end.min(until) - begin.max(from)).max(0.0) / (end - begin);
        (slice.ok + slice.bad) as f64 * overlap
    };
    Some(iteration.timeline.iter().map(inside).sum())
}

fn slow_at_first(subject: &Subject<'_>) -> Option<String> {
    let iterations = &subject.variant.iterations;
    let starts: Vec<(f64, f64)> = iterations.iter().filter_map(start_latency).collect();
    let all_slow = starts.iter().all(|(first, rest)| *first >= SLOW_START_FACTOR * rest);
    if starts.len() < MIN_SLOW_STARTS || starts.len() < iterations.len() || !all_slow {
        return None;
    }
    let (first, rest): (Vec<f64>, Vec<f64>) = starts.into_iter().unzip();
    Some(format!(
        "the median latency at the start of every iteration is {}, and {} in its last half",
        formatting::time(median_of(&first)?),
        formatting::time(median_of(&rest)?)
    ))
}

/// Median latency of the first fifth of the slices, and of the last half.
fn start_latency(iteration: &Iteration) -> Option<(f64, f64)> {
    let slices = slices(iteration);
    let known: Vec<f64> = slices.iter().filter_map(|slice| slice.p50_us).collect();
    if known.len() < 2 * PARTS || known.len() < slices.len() / 2 {
        return None;
    }
    let (first, rest) = (index(known.len() as f64 / PARTS as f64), known.len() / 2);
    median_of(&known[..first]).zip(median_of(&known[rest..]))
}

/// Finds nodes of one kind of which one receives far more calls than another.
pub(super) fn uneven_spread(subject: &Subject<'_>) -> Vec<Finding> {
    let variant = subject.variant;
    let names = variant.component_names();
    let mut kinds: Vec<&str> = names.iter().filter_map(|name| kind(name)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut findings = Vec::new();
    for of in kinds {
        let calls: Vec<(&str, f64)> = names
            .iter()
            .filter(|name| kind(name) == Some(of))
            .filter_map(|name| {
                let looks = component_windows(variant, name);
                let grown: Option<Vec<f64>> =
                    looks.iter().map(|look| look.growth(|sample| sample.calls_received)).collect();
                Some((*name, grown.filter(|grown| !grown.is_empty())?.iter().sum()))
            })
            .collect();
        let most = calls.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let least = calls.iter().copied().reduce(|a, b| if b.1 < a.1 { b } else { a });
        let Some((most, least)) = most.zip(least).filter(|_| calls.len() > 1) else { continue };
        if most.1 >= MIN_CALLS && most.1 >= UNEVEN_FACTOR * least.1 {
            findings.push(subject.explanation(
                "uneven-spread",
                format!(
                    "`{}` received {} calls and `{}` {}",
                    most.0,
                    formatting::grouped(most.1),
                    least.0,
                    formatting::grouped(least.1)
                ),
                "the busiest node is the limit and the others' capacity is unused: balance by request, not by connection",
            ));
        }
    }
    findings
}

/// Kind of a node, from its name: `node-1` and `node-2` are of one kind, and so are `idp.a` and
/// `idp.b`. `None` where the name does not end in a number or a single character.
fn kind(name: &str) -> Option<&str> {
    let (stem, end) = name.rsplit_once(['-', '_', '.', '/'])?;
    let one = end.parse::<u32>().is_ok() || (end.len() == 1 && end.is_ascii());
    (one && !stem.is_empty() && !stem.contains(' ')).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn nodes_of_one_kind_are_known_by_their_names() {
        assert_eq!(
            ["node-1", "node-12", "idp.a", "gateway", "auth-proxy", "-1"].map(kind),
            [Some("node"), Some("node"), Some("idp"), None, None, None]
        );
    }
}
