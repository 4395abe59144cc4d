//! Endings: finds why requests did not end well.
//!
//! Owns: what statuses prove together with their latencies and their position in time. Examples are
//! a timeout that is reported with another status, a rate limit, and a burst of errors at an event.

use std::collections::BTreeMap;

use super::Subject;
use super::view::{median_of, slices};
use crate::formatting;
use crate::record::{Distribution, Doubt, Event, Finding, Iteration, Outcome, Slice, Variant};
use crate::statistics::pooled;
use crate::units::truncated;

/// Timeouts that are commonly configured, ms.
const TIMEOUTS_MS: [f64; 13] = [100.0, 200.0, 250.0, 500.0, 1e3, 2e3, 3e3, 5e3, 10e3, 15e3, 20e3, 30e3, 60e3];
/// How much later than a timeout its responses may come, as a share of it. A busy machine delays
/// other responses by any time.
const MAX_LATE: f64 = 0.15;
/// How much earlier than a timeout its responses may come, as a share of it. A busy program counts
/// from the last time at which its event loop read the clock. Under load a fifth of Envoy's 200 ms
/// timers fire 2 to 5 ms early.
const MAX_EARLY: f64 = 0.03;
/// Least share of a status' responses that the timeout has to have caused.
const MIN_TIMED_SHARE: f64 = 0.5;
/// Most responses in an equal span just before the timeout, per response that it caused. A timer
/// causes no response before it fires; latencies that are spread out have no such edge.
const MAX_BEFORE: f64 = 0.25;
/// Longest usual successful response, as a share of the timeout. If it takes longer, so may a
/// refusal that is a decision.
const MAX_SUCCESS_LATENCY: f64 = 0.8;
/// Successful responses, as a share of the refusals, below which their latency says nothing: those
/// few were late themselves.
const MIN_SUCCESS_SHARE: f64 = 0.01;
/// Fewest responses that form a cluster.
const MIN_CLUSTER: u64 = 5;
/// Statuses that report a timeout themselves: 408 and 504.
const TIMED_OUT: [u16; 2] = [408, 504];
/// Share of responses with 429 from which a rate limit applies.
const MIN_429_SHARE: f64 = 0.01;
/// Share of responses with 503 from which a rate limit may apply.
const MIN_503_SHARE: f64 = 0.05;
/// Largest deviation between slices of the rate of successful responses, as a share of it, when a
/// limit applies.
const MAX_RATE_DEVIATION: f64 = 0.15;
/// Fewest slices that show a trend.
const MIN_SLICES: usize = 8;
/// Share of all unsuccessful requests that a burst contains at least.
const MIN_BURST_SHARE: f64 = 0.8;
/// Longest burst, as a share of the window.
const MAX_BURST_LENGTH: f64 = 0.25;
/// Least share of the requests of a burst that are unsuccessful.
const MIN_BURST_DENSITY: f64 = 0.2;
/// Fewest unsuccessful requests of an iteration with a burst.
const MIN_UNSUCCESSFUL: u64 = 10;
/// Longest time from an event to a burst that it may have caused, ms. Refreshing keys and addresses
/// is quicker when it works.
const MAX_EVENT_DISTANCE_MS: u64 = 1000;

/// Finds requests that were due but never sent.
pub(super) fn unsent(subject: &Subject<'_>) -> Vec<Finding> {
    let unsent: u64 = subject.variant.iterations.iter().map(|iteration| iteration.unsent).sum();
    if unsent == 0 {
        return Vec::new();
    }
    vec![subject.finding(
        Doubt::Careful,
        "requests-unsent",
        format!("{} requests were due but never sent", formatting::count(unsent)),
        "the target is slower than the offered rate: percentiles leave out the slowest requests",
    )]
}

/// Finds requests that were refused or not answered.
pub(super) fn errors(subject: &Subject<'_>) -> Vec<Finding> {
    let count =
        |outcome| subject.variant.iterations.iter().map(|iteration| iteration.count(outcome)).sum::<u64>();
    let (refused, failed) = (count(Outcome::Refused), count(Outcome::Failed));
    let all = refused + failed + count(Outcome::Ok);
    if refused + failed == 0 {
        return Vec::new();
    }
    vec![subject.finding(
        if count(Outcome::Ok) * 2 < all { Doubt::Invalid } else { Doubt::Careful },
        "errors",
        format!(
            "{} of {} requests were refused and {} not answered",
            formatting::count(refused),
            formatting::count(all),
            formatting::count(failed)
        ),
        "latencies are of successful responses only: read them with the table of endings",
    )]
}

/// Latencies by status over all iterations. A status is left out when one of its classes has no
/// histogram.
fn by_status(variant: &Variant) -> BTreeMap<u16, Distribution> {
    let mut all: BTreeMap<u16, Option<Distribution>> = BTreeMap::new();
    let classes = variant.iterations.iter().flat_map(|iteration| &iteration.classes);
    for class in classes.filter(|class| class.outcome == Outcome::Refused && class.count > 0) {
        let Some(status) = class.status else { continue };
        let Some(latency) = &class.latency else {
            all.insert(status, None);
            continue;
        };
        if let Some(whole) = all.entry(status).or_insert_with(|| Some(Distribution::of([], 3))) {
            whole.add(latency);
        }
    }
    all.into_iter().filter_map(|(status, latency)| Some((status, latency?))).collect()
}

/// Finds refusals most of which took as long as a timeout: they are not decisions, but responses
/// that did not come in time. Others of the same status may be real refusals, or failed sooner with
/// a broken connection.
pub(super) fn timeouts_mapped(subject: &Subject<'_>) -> Vec<Finding> {
    let good = pooled(subject.variant, Outcome::Ok);
    let judged = by_status(subject.variant).into_iter().filter_map(|(status, latency)| {
        if TIMED_OUT.contains(&status) {
            return None;
        }
        let enough = good.as_ref().filter(|good| good.count() as f64 >= MIN_SUCCESS_SHARE * latency.count() as f64);
        let usual = enough.map(|good| good.micros(0.5));
        // Successful responses that come just then contradict a timer: a call to another server
        // takes this long.
        let slow = |timer: &f64| {
            usual.is_none_or(|usual| usual <= MAX_SUCCESS_LATENCY * timer)
                && enough.is_none_or(|good| timer_edge(good, *timer).is_none())
        };
        let mut timers = TIMEOUTS_MS.iter().map(|ms| ms * 1e3).filter(slow);
        let (timer, own) = timers.find_map(|timer| Some((timer, timer_responses(&latency, timer)?)))?;
        Some(subject.explanation(
            "timeouts-mapped",
            format!(
                "{} of {} responses with status {status} came after {} to {}, at a timeout of {}; {}",
                formatting::count(own),
                formatting::count(latency.count()),
                formatting::time(timer * (1.0 - MAX_EARLY)),
                formatting::time(timer * (1.0 + MAX_LATE)),
                formatting::time(timer),
                usual.map_or_else(
                    || "hardly any response was successful".to_owned(),
                    |usual| format!("a successful one usually took {}", formatting::time(usual))
                )
            ),
            "these are not refusals: an upstream did not respond in time. Check it, and report timeouts as 504",
        ))
    });
    judged.collect()
}

/// Number of responses that a timer of `timer` µs caused, when most are its own.
fn timer_responses(latency: &Distribution, timer: f64) -> Option<u64> {
    timer_edge(latency, timer).filter(|own| *own as f64 >= MIN_TIMED_SHARE * latency.count() as f64)
}

/// Number of responses that came when a timer of `timer` µs may fire, when hardly any came just
/// before.
fn timer_edge(latency: &Distribution, timer: f64) -> Option<u64> {
    let since = |share: f64| latency.count_above(truncated(timer * share * 1e3));
    let own = since(1.0 - MAX_EARLY) - since(1.0 + MAX_LATE);
    let before = since(1.0 - 2.0 * MAX_EARLY - MAX_LATE) - since(1.0 - MAX_EARLY);
    (own >= MIN_CLUSTER && before as f64 <= MAX_BEFORE * own as f64).then_some(own)
}

/// Finds a rate limit: the rate of successful responses stays constant.
pub(super) fn rate_limited(subject: &Subject<'_>) -> Vec<Finding> {
    let variant = subject.variant;
    let all: u64 =
        variant.iterations.iter().flat_map(|iteration| &iteration.classes).map(|class| class.count).sum();
    let of = |status: u16| {
        let classes = variant.iterations.iter().flat_map(|iteration| &iteration.classes);
        classes.filter(|class| class.status == Some(status)).map(|class| class.count).sum::<u64>()
    };
    let share = |status: u16| of(status) as f64 / all.max(1) as f64;
    let let_through: Vec<f64> = variant.iterations.iter().filter_map(steady_rate).collect();
    let through = median_of(&let_through)
        .map_or_else(String::new, |rate| format!(", {}/s passed", formatting::digits(rate)));
    let status = if of(429) >= MIN_CLUSTER && share(429) >= MIN_429_SHARE {
        429
    } else if share(503) >= MIN_503_SHARE
        && is_503_quick(variant)
        && let_through.len() == variant.iterations.len()
    {
        503
    } else {
        return Vec::new();
    };
    vec![subject.explanation(
        "rate-limited",
        format!("{} of the responses have status {status}{through}", formatting::percent(share(status))),
        "the figures show the rate limit: raise it for the measurement, or offer a lower rate",
    )]
}

/// Whether responses with 503 are decided before any work is done: their median is not above that
/// of successful responses.
fn is_503_quick(variant: &Variant) -> bool {
    let good = pooled(variant, Outcome::Ok).map(|good| good.micros(0.5));
    let shed = by_status(variant).remove(&503).map(|shed| shed.micros(0.5));
    good.zip(shed).is_some_and(|(good, shed)| shed <= good)
}

/// Rate of successful responses, when the slices have nearly the same rate and at least half of
/// them have refusals.
fn steady_rate(iteration: &Iteration) -> Option<f64> {
    let slices = slices(iteration);
    let rates: Vec<f64> = slices.iter().map(|slice| slice.ok as f64 * 1e3 / slice.ms as f64).collect();
    let usual = median_of(&rates).filter(|usual| rates.len() >= MIN_SLICES && *usual > 0.0)?;
    let off: Vec<f64> = rates.iter().map(|rate| (rate - usual).abs()).collect();
    let refused = slices.iter().filter(|slice| slice.bad > 0).count() * 2 >= slices.len();
    (refused && median_of(&off)? <= MAX_RATE_DEVIATION * usual).then_some(usual)
}

/// Finds unsuccessful requests that lie close together in time.
pub(super) fn burst(subject: &Subject<'_>) -> Vec<Finding> {
    let evidence: Vec<String> = subject.variant.iterations.iter().filter_map(burst_in).collect();
    if evidence.is_empty() {
        return Vec::new();
    }
    vec![subject.explanation(
        "error-burst",
        evidence.join("; "),
        "errors at one time have one cause: check what was deployed, rotated or restarted then",
    )]
}

fn burst_in(iteration: &Iteration) -> Option<String> {
    let slices = slices(iteration);
    let bad: u64 = slices.iter().map(|slice| slice.bad).sum();
    if slices.len() < MIN_SLICES || bad < MIN_UNSUCCESSFUL {
        return None;
    }
    let (from, until) = densest_span(&slices, bad)?;
    let (begin, end) = (slices[from].at_ms, slices[until].at_ms + slices[until].ms);
    let inside: u64 = slices[from..=until].iter().map(|slice| slice.bad).sum();
    let ended: u64 = slices[from..=until].iter().map(|slice| slice.ok + slice.bad).sum();
    if (inside as f64) < MIN_BURST_DENSITY * ended as f64 {
        return None;
    }
    let near = |event: &&Event| event.at_ms + MAX_EVENT_DISTANCE_MS >= begin && event.at_ms < end;
    let events = formatting::events(iteration.events.iter().filter(near));
    let mut kinds: Vec<(u64, String)> = iteration
        .classes
        .iter()
        .filter(|class| class.outcome != Outcome::Ok && class.count > 0)
        .map(|class| {
            let name = class
                .status
                .map_or_else(|| class.fault.clone().unwrap_or_default(), |status| status.to_string());
            (class.count, name)
        })
        .collect();
    kinds.sort_by(|a, b| b.cmp(a));
    let kinds: Vec<String> = kinds.into_iter().take(2).map(|(_, name)| name).collect();
    let beside = if events.is_empty() { String::new() } else { format!(", near {}", events.join(" and ")) };
    Some(format!(
        "{} of {} unsuccessful requests of iteration {} ({}) ended between {} and {} s{beside}",
        formatting::count(inside),
        formatting::count(bad),
        iteration.number,
        kinds.join(", "),
        formatting::digits(begin as f64 / 1e3),
        formatting::digits(end as f64 / 1e3)
    ))
}

/// First and last slice of the shortest span with most of the unsuccessful requests; `None` when it
/// is not short.
fn densest_span(slices: &[&Slice], bad: u64) -> Option<(usize, usize)> {
    let whole = slices[slices.len() - 1].at_ms + slices[slices.len() - 1].ms - slices[0].at_ms;
    let threshold = MIN_BURST_SHARE * bad as f64;
    let mut best: Option<(u64, usize, usize)> = None;
    let (mut from, mut inside) = (0, 0);
    for until in 0..slices.len() {
        inside += slices[until].bad;
        while (inside - slices[from].bad) as f64 >= threshold {
            inside -= slices[from].bad;
            from += 1;
        }
        let length = slices[until].at_ms + slices[until].ms - slices[from].at_ms;
        if inside as f64 >= threshold && best.is_none_or(|(shortest, ..)| length < shortest) {
            best = Some((length, from, until));
        }
    }
    let (length, from, until) = best?;
    (length as f64 <= MAX_BURST_LENGTH * whole as f64).then_some((from, until))
}
