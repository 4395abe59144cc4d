//! Requests that did not end well, and why.
//!
//! Owns: what statuses say together with their latencies and their place in time: a timeout that was given another status, a limit on the rate, a
//! burst beside an event.

use std::collections::BTreeMap;

use super::Subject;
use super::view::{middle, slices};
use crate::record::{Distribution, Doubt, Event, Finding, Iteration, Outcome, Slice, Variant};
use crate::statistics::pooled;
use crate::units::whole;
use crate::words;

/// Timeouts as people set them, ms.
const TIMEOUTS_MS: [f64; 13] = [100.0, 200.0, 250.0, 500.0, 1e3, 2e3, 3e3, 5e3, 10e3, 15e3, 20e3, 30e3, 60e3];
/// A timer fires at its time; answers that come up to this share later are its own. A busy machine delays others by any time.
const LATE: f64 = 0.15;
/// And up to this share earlier: a program that is busy counts from when its loop last looked at the clock. Of Envoy's timers of 200 ms a
/// fifth fire 2 to 5 ms early when it has much to do.
const EARLY: f64 = 0.03;
/// Share of a status' answers that are a timer's own, at least.
const TIMED: f64 = 0.5;
/// Nothing comes because of a timer before it fires: in as long a time before it there are at most so many for each of its own. Latencies that
/// are spread have no such edge.
const BEFORE: f64 = 0.25;
/// The usual good answer takes at most this share of the timer: where it takes as long, so does a refusal that is decided.
const GOOD: f64 = 0.8;
/// Fewer good answers than this share of the refusals say nothing about how long a good one takes: they came through late.
const FEW: f64 = 0.01;
/// Fewest answers that cluster.
const LEAST: u64 = 5;
/// Statuses that say themselves that time ran out: 408 and 504.
const TIMED_OUT: [u16; 2] = [408, 504];
/// Share of 429 from which on a rate is limited.
const LIMITED: f64 = 0.01;
/// Share of 503 from which on it may be a limit,
const SHED: f64 = 0.05;
/// where what is let through differs between slices by less than this share.
const STEADY: f64 = 0.15;
/// Fewest slices that show a course.
const COURSE: usize = 8;
/// A burst has most of the bad endings
const MOST: f64 = 0.8;
/// in at most this share of the window,
const SHORT: f64 = 0.25;
/// and is at least this share of what ended there.
const DENSE: f64 = 0.2;
/// Fewest bad endings of a burst.
const BURST: u64 = 10;
/// An event this long before a burst may be its cause, ms: refreshing of keys and of addresses is quicker where it works.
const AFTER_MS: u64 = 1000;

/// Requests that were due and never sent.
pub(super) fn unsent(subject: &Subject<'_>) -> Vec<Finding> {
    let unsent: u64 = subject.variant.iterations.iter().map(|iteration| iteration.unsent).sum();
    if unsent == 0 {
        return Vec::new();
    }
    vec![subject.finding(
        Doubt::Careful,
        "requests-unsent",
        format!("{} requests were due but never sent", words::count(unsent)),
        "the target is slower than the offered rate: percentiles leave out what would have been slowest",
    )]
}

/// Requests that were refused or not answered.
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
            words::count(refused),
            words::count(all),
            words::count(failed)
        ),
        "latencies are those of good answers: read them with the table of endings",
    )]
}

/// Latencies by status of all iterations; a status without a histogram is left out.
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

/// Refusals of which most took as long as a timeout: nobody refused them, somebody did not answer in time. Others of the same status may have
/// been refused, or given up sooner with a connection that broke.
pub(super) fn timeouts_mapped(subject: &Subject<'_>) -> Vec<Finding> {
    let good = pooled(subject.variant, Outcome::Ok);
    let judged = by_status(subject.variant).into_iter().filter_map(|(status, latency)| {
        if TIMED_OUT.contains(&status) {
            return None;
        }
        let enough = good.as_ref().filter(|good| good.count() as f64 >= FEW * latency.count() as f64);
        let usual = enough.map(|good| good.micros(0.5));
        // Good answers that come just then as well are no timer's: what somebody has to be asked about takes so long.
        let slow = |timer: &f64| {
            usual.is_none_or(|usual| usual <= GOOD * timer)
                && enough.is_none_or(|good| edge(good, *timer).is_none())
        };
        let mut timers = TIMEOUTS_MS.iter().map(|ms| ms * 1e3).filter(slow);
        let (timer, own) = timers.find_map(|timer| Some((timer, fired(&latency, timer)?)))?;
        Some(subject.cause(
            "timeouts-mapped",
            format!(
                "{} of {} answers with status {status} came after {} to {}, at a timeout of {}; {}",
                words::count(own),
                words::count(latency.count()),
                words::time(timer * (1.0 - EARLY)),
                words::time(timer * (1.0 + LATE)),
                words::time(timer),
                usual.map_or_else(
                    || "hardly any was good".to_owned(),
                    |usual| format!("the usual good one took {}", words::time(usual))
                )
            ),
            "nobody refused them: something behind did not answer in time. Look there, and let the status say so (504)",
        ))
    });
    judged.collect()
}

/// How many answers a timer of so many µs gave, where most are its own.
fn fired(latency: &Distribution, timer: f64) -> Option<u64> {
    edge(latency, timer).filter(|own| *own as f64 >= TIMED * latency.count() as f64)
}

/// How many answers came when a timer of so many µs may fire, where hardly any came before.
fn edge(latency: &Distribution, timer: f64) -> Option<u64> {
    let since = |share: f64| latency.above(whole(timer * share * 1e3));
    let own = since(1.0 - EARLY) - since(1.0 + LATE);
    let before = since(1.0 - 2.0 * EARLY - LATE) - since(1.0 - EARLY);
    (own >= LEAST && before as f64 <= BEFORE * own as f64).then_some(own)
}

/// A limit on the rate: what is let through stays the same.
pub(super) fn rate_limited(subject: &Subject<'_>) -> Vec<Finding> {
    let variant = subject.variant;
    let all: u64 =
        variant.iterations.iter().flat_map(|iteration| &iteration.classes).map(|class| class.count).sum();
    let of = |status: u16| {
        let classes = variant.iterations.iter().flat_map(|iteration| &iteration.classes);
        classes.filter(|class| class.status == Some(status)).map(|class| class.count).sum::<u64>()
    };
    let share = |status: u16| of(status) as f64 / all.max(1) as f64;
    let let_through: Vec<f64> = variant.iterations.iter().filter_map(steady).collect();
    let through = middle(&let_through)
        .map_or_else(String::new, |rate| format!(", {} a second let through", words::digits(rate)));
    let status = if of(429) >= LEAST && share(429) >= LIMITED {
        429
    } else if share(503) >= SHED && quick(variant) && let_through.len() == variant.iterations.len() {
        503
    } else {
        return Vec::new();
    };
    vec![subject.cause(
        "rate-limited",
        format!("{} of the answers have status {status}{through}", words::percent(share(status))),
        "the figures are those of the limit: raise it for the measurement, or offer less",
    )]
}

/// Answers with 503 are decided before any work is done.
fn quick(variant: &Variant) -> bool {
    let good = pooled(variant, Outcome::Ok).map(|good| good.micros(0.5));
    let shed = by_status(variant).remove(&503).map(|shed| shed.micros(0.5));
    good.zip(shed).is_some_and(|(good, shed)| shed <= good)
}

/// Good answers per second where every slice has as many, while others were refused in them.
fn steady(iteration: &Iteration) -> Option<f64> {
    let slices = slices(iteration);
    let rates: Vec<f64> = slices.iter().map(|slice| slice.ok as f64 * 1e3 / slice.ms as f64).collect();
    let usual = middle(&rates).filter(|usual| rates.len() >= COURSE && *usual > 0.0)?;
    let off: Vec<f64> = rates.iter().map(|rate| (rate - usual).abs()).collect();
    let refused = slices.iter().filter(|slice| slice.bad > 0).count() * 2 >= slices.len();
    (refused && middle(&off)? <= STEADY * usual).then_some(usual)
}

/// Bad endings that lie together in time.
pub(super) fn burst(subject: &Subject<'_>) -> Vec<Finding> {
    let told: Vec<String> = subject.variant.iterations.iter().filter_map(in_iteration).collect();
    if told.is_empty() {
        return Vec::new();
    }
    vec![subject.cause(
        "error-burst",
        told.join("; "),
        "errors that come together have one cause: look at what was deployed, rotated or restarted at that moment",
    )]
}

fn in_iteration(iteration: &Iteration) -> Option<String> {
    let slices = slices(iteration);
    let bad: u64 = slices.iter().map(|slice| slice.bad).sum();
    if slices.len() < COURSE || bad < BURST {
        return None;
    }
    let (from, until) = densest(&slices, bad)?;
    let (begin, end) = (slices[from].at_ms, slices[until].at_ms + slices[until].ms);
    let inside: u64 = slices[from..=until].iter().map(|slice| slice.bad).sum();
    let ended: u64 = slices[from..=until].iter().map(|slice| slice.ok + slice.bad).sum();
    if (inside as f64) < DENSE * ended as f64 {
        return None;
    }
    let near = |event: &&Event| event.at_ms + AFTER_MS >= begin && event.at_ms < end;
    let events = words::events(iteration.events.iter().filter(near));
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
    let beside = if events.is_empty() { String::new() } else { format!(", beside {}", events.join(" and ")) };
    Some(format!(
        "{} of {} bad endings of iteration {} ({}) lie between {} and {} s{beside}",
        words::count(inside),
        words::count(bad),
        iteration.number,
        kinds.join(", "),
        words::digits(begin as f64 / 1e3),
        words::digits(end as f64 / 1e3)
    ))
}

/// First and last slice of the shortest stretch with most of the bad endings, where it is short.
fn densest(slices: &[&Slice], bad: u64) -> Option<(usize, usize)> {
    let whole = slices[slices.len() - 1].at_ms + slices[slices.len() - 1].ms - slices[0].at_ms;
    let wanted = MOST * bad as f64;
    let mut best: Option<(u64, usize, usize)> = None;
    let (mut from, mut inside) = (0, 0);
    for until in 0..slices.len() {
        inside += slices[until].bad;
        while (inside - slices[from].bad) as f64 >= wanted {
            inside -= slices[from].bad;
            from += 1;
        }
        let length = slices[until].at_ms + slices[until].ms - slices[from].at_ms;
        if inside as f64 >= wanted && best.is_none_or(|(shortest, ..)| length < shortest) {
            best = Some((length, from, until));
        }
    }
    let (length, from, until) = best?;
    (length as f64 <= SHORT * whole as f64).then_some((from, until))
}
