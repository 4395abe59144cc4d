//! Answers: the sentences of a verdict.
//!
//! Owns: what a reader asks of a run, and the order of the answers: whether the figures can be used,
//! whether the targets hold, what each path and each held connection cost, what limits, and how
//! requests ended.

use std::fmt::Write as _;

use super::MAX_ANSWERS;
use super::paths::Paths;
use crate::diagnose::points;
use crate::formatting;
use crate::offline::render::Warning;
use crate::offline::report::costs::rungs;
use crate::offline::targets::{TargetResult, TargetVerdict, judge};
use crate::offline::warnings::warnings;
use crate::record::{Arrivals, Doubt, Finding, Ladder, Outcome, Record, Variant};
use crate::statistics::{
    Attribution, HeldMemory, HopCost, attribute, display, find_knee, staleness_by_scope,
};

/// Findings that name what limits a run, the most direct cause first.
const LIMITS: [&str; 20] = [
    "generator-bound",
    "out-of-memory",
    "swapping",
    "component-ended",
    "throttled",
    "one-thread-bound",
    "waits-for-lock",
    "waits-for-disk",
    "sleeps",
    "waits-for-core",
    "saturated",
    "lock-convoy",
    "rate-limited",
    "core-starved",
    "time-stolen",
    "backend-bound",
    "round-trip-bound",
    "tls-handshakes",
    "connection-churn",
    "n-plus-one",
];
/// Most limits that are named besides the first.
const MAX_OTHERS: usize = 3;
/// Most paths whose memory per held connection is listed one by one.
const MAX_HELD: usize = 8;

/// Answers in order, at most [`MAX_ANSWERS`].
pub(super) fn answers(record: &Record, findings: &[Finding], paths: &Paths<'_>) -> Vec<String> {
    let unusable = unusable(findings);
    // Figures that cannot be used are not explained hop by hop.
    let hops = if unusable.is_none() { hops(record, paths) } else { None };
    let ended = outcome(record);
    let limits = ended.is_some().then(|| limits(record, findings, paths));
    let memory = held_memory(record);
    // Who holds connections on every path asks for their memory first.
    let (first, last) = if paths.hold_connections() { (memory, None) } else { (None, memory) };
    let all = [unusable, targets(record), first, paths.cpu(), paths.latency(), last, hops, limits, ended];
    all.into_iter().flatten().take(MAX_ANSWERS).collect()
}

/// Says that no figure of the run can be used.
fn unusable(findings: &[Finding]) -> Option<String> {
    let found = findings.iter().find(|one| one.doubt == Doubt::Invalid && one.variants.is_empty())?;
    Some(format!("The figures of this run must not be used (`{}`): {}.", found.name, found.evidence))
}

/// Says whether the targets are met.
fn targets(record: &Record) -> Option<String> {
    let judged = judge(record);
    let of =
        |verdict: TargetVerdict| judged.iter().filter(move |one| one.verdict == verdict).collect::<Vec<_>>();
    let (missed, open) = (of(TargetVerdict::Missed), of(TargetVerdict::NotShown));
    let all = judged.len();
    let parts: Vec<String> =
        [named("missed", &missed), named("not shown", &open)].into_iter().flatten().collect();
    match (all, parts.is_empty()) {
        (0, _) => None,
        (1, true) => Some("The target is met.".to_owned()),
        (_, true) => Some(format!("All {all} targets are met.")),
        _ => Some(format!(
            "{} of {all} targets are met; {}.",
            all - missed.len() - open.len(),
            parts.join("; ")
        )),
    }
}

/// Names the first of several targets that are not met, with its figure.
fn named(how: &str, targets: &[&TargetResult<'_>]) -> Option<String> {
    let first = targets.first()?;
    let more = match targets.len() {
        1 => String::new(),
        many => format!(", and {} more", many - 1),
    };
    Some(format!("{how}: {} ({}, wanted {}){more}", first.target.says, first.result, first.requirement))
}

/// Says what a held connection takes, the least first; `None` where none was held.
fn held_memory(record: &Record) -> Option<String> {
    let mut all = HeldMemory::of(&record.variants);
    all.sort_by(|a, b| a.per_connection.total_cmp(&b.per_connection));
    let (first, others) = all.split_first()?;
    let is_alike = |one: &HeldMemory| (one.range(), one.is_slope()) == (first.range(), first.is_slope());
    let is_one_component = others.iter().all(|one| one.component == first.component);
    let (least, most) = first.range();
    let (least, most) = (formatting::grouped(least), formatting::grouped(most));
    let how = match (others.iter().all(is_alike), first.is_slope()) {
        (true, true) => format!(", by its growth from {least} to {most} connections"),
        (true, false) if least == most => format!(" of {most}"),
        _ => String::new(),
    };
    let one = |one: &HeldMemory| {
        let component = if is_one_component { String::new() } else { format!(", {}", one.component) };
        format!("`{}`{component} {}", one.path, formatting::bytes(one.per_connection))
    };
    let listed = if all.len() <= MAX_HELD {
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    } else {
        format!("from {} to {}, of {} paths", one(first), all.last().map_or(String::new(), one), all.len())
    };
    Some(format!("Memory of each held connection{how}: {listed}."))
}

/// Says what each hop adds, for the ladder that ends with one of the compared variants.
fn hops(record: &Record, paths: &Paths<'_>) -> Option<String> {
    let is_compared = |ladder: &&Ladder| {
        let last = ladder.rungs.last().map(|rung| &rung.variant);
        paths.variants.iter().any(|variant| Some(&variant.name) == last)
    };
    let ladder = record.ladders.iter().find(is_compared)?;
    let is_invalid = |variant: &Variant| paths.is_invalid(variant, true);
    if ladder.rungs.iter().filter_map(|rung| record.variant(&rung.variant)).any(is_invalid) {
        return None;
    }
    let [usual, ..] = &paths.wait.percentiles;
    let Attribution { shares, rounds, .. } = attribute(&rungs(record, ladder, usual))?;
    let (service, added) = shares.split_first()?;
    let hop = |cost: &HopCost| {
        let how = match (cost.interval, cost.certain) {
            (None, _) => "not certain".to_owned(),
            (Some(of), true) => display::interval(usual, &of),
            (Some(of), false) => format!("{}, may be 0", display::interval(usual, &of)),
        };
        let adds = display::difference(usual, cost.adds);
        format!("{} adds {} ({how})", cost.hop, adds.trim_start_matches('+'))
    };
    Some(format!(
        "Hop by hop, over {rounds} rounds, the P50{} of {} is {}; {}.",
        paths.wait.suffix(),
        service.hop,
        formatting::time(service.adds),
        added.iter().map(hop).collect::<Vec<_>>().join(", ")
    ))
}

/// Says what limits, or that nothing shows a limit. What concerns the compared variants comes first.
fn limits(record: &Record, findings: &[Finding], paths: &Paths<'_>) -> String {
    let rank = |warning: &Warning| LIMITS.iter().position(|name| *name == warning.name);
    let is_compared = |name: &String| paths.variants.iter().any(|variant| variant.name == *name);
    let is_elsewhere = |warning: &Warning| {
        !warning.cases.iter().any(|case| case.about.is_empty() || case.about.iter().any(is_compared))
    };
    let mut found: Vec<Warning> = warnings(findings, "");
    found.retain(|warning| rank(warning).is_some());
    found.sort_by_key(|warning| (is_elsewhere(warning), rank(warning)));
    let observed = record.variants.iter().any(|variant| !variant.component_names().is_empty());
    let mut text = match (found.split_first(), observed) {
        (Some((first, others)), _) => {
            let mut text = format!("What limits: `{}`{}: {}", first.name, about(first), first.evidence());
            if !others.is_empty() {
                let names = others.iter().take(MAX_OTHERS);
                let names: Vec<String> = names.map(|one| format!("`{}`{}", one.name, about(one))).collect();
                let _ = write!(text, "; also {}", names.join(", "));
            }
            text
        }
        (None, true) => {
            let is_open = |variant: &Variant| variant.load.arrivals == Arrivals::Open;
            let queues = if record.variants.iter().any(is_open) {
                "no queue grew"
            } else {
                "only an open loop shows whether a queue grows"
            };
            format!("No limit was found: no component was seen throttled or short of a core, and {queues}")
        }
        (None, false) => "What limits is not known: no component was observed".to_owned(),
    };
    if let Some(knee) = knee(record) {
        text.push_str(&knee);
    }
    text.push('.');
    text
}

fn about(warning: &Warning) -> String {
    Some(warning.about())
        .filter(|about| !about.is_empty())
        .map_or(String::new(), |about| format!(" ({about})"))
}

/// Names the knee of the first sweep that has one.
fn knee(record: &Record) -> Option<String> {
    record.sweeps.iter().find_map(|sweep| {
        let knee = find_knee(&points(record, sweep))?;
        let mut variants = sweep.variants.iter().filter_map(|name| record.variant(name));
        let is_closed = variants.any(|variant| variant.load.arrivals == Arrivals::Closed);
        let unit = if is_closed { " workers" } else { "/s" };
        let bound = if knee.at_first { "at or below" } else { "at" };
        let load = formatting::digits(knee.offered);
        Some(format!("; the knee of `{}` is {bound} {load}{unit}", sweep.name))
    })
}

/// Says how requests ended, and for how long revoked credentials were accepted; `None` without any
/// request.
fn outcome(record: &Record) -> Option<String> {
    let sums = |variant: &Variant| {
        let classes = variant.iterations.iter().flat_map(|iteration| &iteration.classes);
        let (ok, ended) = classes.fold((0, 0), |(ok, all), class| {
            (ok + if class.outcome == Outcome::Ok { class.count } else { 0 }, all + class.count)
        });
        // Requests that were due but never sent count as unsuccessful.
        (ok, ended + variant.iterations.iter().map(|iteration| iteration.unsent).sum::<u64>())
    };
    let share = |(ok, all): (u64, u64)| ok as f64 / all.max(1) as f64;
    let each: Vec<(&Variant, (u64, u64))> = record.variants.iter().map(|one| (one, sums(one))).collect();
    let whole = each.iter().fold((0, 0), |whole, (_, sum)| (whole.0 + sum.0, whole.1 + sum.1));
    let worst = each
        .iter()
        .filter(|(_, sum)| sum.1 > 0)
        .min_by(|a, b| share(a.1).total_cmp(&share(b.1)))
        .filter(|_| whole.1 > 0)?;
    let requests = formatting::count(whole.1);
    let mut text = if whole.0 == whole.1 {
        format!("All {requests} requests ended well")
    } else if each.len() == 1 {
        format!("Of {requests} requests {} ended well", formatting::percent(share(whole)))
    } else {
        format!(
            "Of {requests} requests {} ended well, fewest on `{}` ({})",
            formatting::percent(share(whole)),
            worst.0.name,
            formatting::percent(share(worst.1))
        )
    };
    if let Some(stale) = staleness(record) {
        text.push_str(&stale);
    }
    text.push('.');
    Some(text)
}

/// The longest time for which any variant accepted a revoked credential.
fn staleness(record: &Record) -> Option<String> {
    let places = record.variants.iter().flat_map(|variant| {
        let places = staleness_by_scope(variant).into_iter();
        places.map(move |place| (variant, place.micros(1.0)))
    });
    let (variant, longest) = places.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(match longest {
        f64::INFINITY => format!("; a revoked credential was never refused (`{}`)", variant.name),
        longest => format!(
            "; revoked credentials were accepted for {} at most (`{}`)",
            formatting::staleness(longest),
            variant.name
        ),
    })
}
