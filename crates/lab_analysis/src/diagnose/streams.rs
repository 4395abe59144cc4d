//! Streams: finds stalls that a pause of a component explains, events that are held back on the
//! way, and WebSockets that are closed after a fixed time.
//!
//! Owns: what the times of events prove. Does not own: pauses between responses
//! ([`super::pauses`]).

use super::Subject;
use super::view::{self, ComponentWindow, component_windows};
use crate::formatting;
use crate::record::{Distribution, Finding, Iteration, StreamKind, Streams, Variant};
use crate::statistics::{Figure, StreamFigure, figures, median};

/// Share of the streams in flight that have to stall at once for a common cause.
const COMMON_SHARE: f64 = 0.5;
/// Fewest streams that have to stall at once.
const MIN_COMMON: usize = 3;
/// Shortest common stall that counts, ms: samples of CPU are 100 ms apart.
const MIN_COMMON_MS: u64 = 300;
/// Longest time between two samples for which CPU in a stall is known, ms. A machine that stood still
/// as a whole took no samples meanwhile.
const MAX_SAMPLE_DISTANCE_MS: u64 = 250;
/// CPU in the stalls divided by CPU outside of them, up to which a component rests.
const RESTS: f64 = 0.4;
/// How much lower this share of a component has to be than that of another one that rests: one that
/// gets fewer new streams meanwhile does less, too.
const CLEARLY: f64 = 0.05;
/// Cores that a component has to use outside of the stalls for its rest to show.
const MIN_CORES: f64 = 0.002;
/// Cores from which a component works in the stalls, and by what factor more than outside.
const WORKING: (f64, f64) = (0.25, 2.0);
/// Fewest streams for a statement about most of them.
const MIN_STREAMS: u64 = 10;
/// Share of the streams whose events came together, from which they are held back, and up to which
/// they are not.
const TOGETHER: (f64, f64) = (0.9, 0.1);
/// Factor by which the first event has to be later than without the component that holds it back.
const LATER: f64 = 2.0;
/// Fewest WebSockets that a timeout has to have closed.
const MIN_CLOSES: u64 = 5;
/// Share of the closes of the peer that have to be in the longest silence.
const MOST_CLOSES: f64 = 0.8;
/// Largest deviation of the silences before a close from their median, as a share of it.
const SAME_SILENCE: f64 = 0.15;
/// Shortest silence that may be a timeout, µs.
const MIN_SILENCE_US: f64 = 50_000.0;

/// Start and end of a common stall, ms.
type Span = (u64, u64);

/// Finds stalls of most streams at once, in which one component rested or worked for itself.
pub(super) fn stalls(subject: &Subject<'_>) -> Vec<Finding> {
    let stalled: Vec<(&Iteration, Vec<Span>)> = subject
        .variant
        .iterations
        .iter()
        .map(|iteration| (iteration, common_stalls(iteration)))
        .filter(|(_, spans)| !spans.is_empty())
        .collect();
    let length = |spans: &[Span]| spans.iter().map(|(from, until)| until - from).sum::<u64>();
    let Some((iteration, spans)) = stalled.iter().max_by_key(|(_, spans)| length(spans)) else {
        return Vec::new();
    };
    let Some((name, what)) = cause(subject.variant, &stalled) else { return Vec::new() };
    let at: Vec<String> =
        spans.iter().take(4).map(|(from, _)| formatting::digits(*from as f64 / 1e3)).collect();
    let is_partial = iteration.streams.as_ref().is_some_and(|streams| listed_share(streams) < 1.0);
    let evidence = format!(
        "{}{} in iteration {}, {} s in all, at {}{} s, {} most streams at once; in them `{name}` {what}",
        if is_partial { "at least " } else { "" },
        if spans.len() == 1 { "one stall".to_owned() } else { format!("{} stalls", spans.len()) },
        iteration.number,
        formatting::digits(length(spans) as f64 / 1e3),
        at.join(", "),
        if spans.len() > 4 { " …" } else { "" },
        if spans.len() == 1 { "held up" } else { "each held up" },
    );
    let remedy = "find out what this program waited for or did then: a collection of garbage, a reload, a lock, a disk; its users saw \
                  their streams stand still";
    vec![subject.explanation("stream-stalls", evidence, remedy)]
}

/// Share of the stalls that the record lists: those that a list lacks were as likely at any time.
fn listed_share(streams: &Streams) -> f64 {
    streams.stalled.len() as f64 / streams.stalls.max(1) as f64
}

/// Times in which most of the streams in flight stalled. Where the list is a sample of the stalls, as
/// large a share of it has to overlap. It may lack so many that a common stall does not show.
fn common_stalls(iteration: &Iteration) -> Vec<Span> {
    let Some(streams) = &iteration.streams else { return Vec::new() };
    let wanted = iteration.mean_in_flight.unwrap_or(0.0) * COMMON_SHARE * listed_share(streams);
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for stall in &streams.stalled {
        edges.extend([(stall.at_ms, 1), (stall.at_ms + stall.ms, -1)]);
    }
    // At the same moment ends come before beginnings.
    edges.sort_unstable();
    let (mut open, mut from, mut spans) = (0_i32, None, Vec::new());
    for (at, change) in edges {
        open += change;
        let common = usize::try_from(open).unwrap_or(0) >= MIN_COMMON && f64::from(open) >= wanted;
        match (common, from) {
            (true, None) => from = Some(at),
            (false, Some(begun)) => {
                spans.push((begun, at));
                from = None;
            }
            _ => {}
        }
    }
    spans.retain(|(from, until)| until - from >= MIN_COMMON_MS);
    spans
}

/// The component that caused the stalls, and what it did in them. The one that rested most is the
/// cause. One that waits for another rests as much, so of several the one next to the service is.
fn cause<'a>(variant: &'a Variant, stalled: &[(&Iteration, Vec<Span>)]) -> Option<(&'a str, String)> {
    let names: Vec<&str> = if variant.path.is_empty() {
        variant.component_names()
    } else {
        variant.path.iter().rev().map(String::as_str).collect()
    };
    let used: Vec<(&str, f64, f64)> =
        names.into_iter().filter_map(|name| cores_in_stalls(variant, name, stalled)).collect();
    let cores = formatting::digits;
    let works =
        used.iter().find(|(_, inside, outside)| *inside >= WORKING.0 && *inside >= WORKING.1 * outside);
    if let Some((name, inside, outside)) = works {
        let what =
            format!("used {} cores, and {} otherwise: it worked for itself", cores(*inside), cores(*outside));
        return Some((*name, what));
    }
    let mut quietest: Option<(usize, f64)> = None;
    for (place, (_, inside, outside)) in used.iter().enumerate() {
        let share = inside / outside.max(f64::MIN_POSITIVE);
        let rests = *outside >= MIN_CORES && share <= RESTS;
        if rests && quietest.is_none_or(|(_, least)| share < least - CLEARLY) {
            quietest = Some((place, share));
        }
    }
    let (place, _) = quietest?;
    let (name, inside, outside) = &used[place];
    let before = place.checked_sub(1).map(|before| &used[before]).filter(|one| one.1 > RESTS * one.2);
    let before = before.map_or_else(String::new, |(name, ..)| format!(", while `{name}` went on"));
    let what = format!("used {} cores, and {} otherwise: it paused{before}", cores(*inside), cores(*outside));
    Some((*name, what))
}

/// Cores that a component used in the stalls and outside of them; `None` where it was not sampled
/// often enough.
fn cores_in_stalls<'a>(
    variant: &'a Variant,
    name: &'a str,
    stalled: &[(&Iteration, Vec<Span>)],
) -> Option<(&'a str, f64, f64)> {
    let (mut used, mut time, mut all, mut whole) = (0.0, 0.0, 0.0, 0.0);
    for look in component_windows(variant, name) {
        let Some((_, spans)) =
            stalled.iter().find(|(iteration, _)| iteration.number == look.iteration.number)
        else {
            continue;
        };
        for (from, until) in spans.iter().filter(|span| is_sampled(&look, **span)) {
            let ends = look.value_at(*from as f64, view::cpu).zip(look.value_at(*until as f64, view::cpu));
            let Some((before, after)) = ends else { continue };
            used += (after - before) / 1e3;
            time += (until - from) as f64;
        }
        all += look.growth(view::cpu).unwrap_or(0.0) / 1e3;
        whole += look.seconds() * 1e3;
    }
    let outside = if whole > time { (all - used).max(0.0) / (whole - time) } else { 0.0 };
    (time > 0.0).then(|| (name, used / time, outside))
}

/// Whether the samples around and in a span are close to each other.
fn is_sampled(look: &ComponentWindow<'_>, (from, until): Span) -> bool {
    let mut samples = look.component.samples.windows(2);
    let apart = samples.any(|pair| {
        let touches = pair[1].at_ms >= from && pair[0].at_ms <= until;
        touches && pair[1].at_ms - pair[0].at_ms > MAX_SAMPLE_DISTANCE_MS
    });
    !apart
}

/// Sums of the streams of a variant: completed ones, and those whose events came together.
fn together(variant: &Variant) -> Option<(StreamKind, u64, u64)> {
    let mut all = seen(variant).peekable();
    let kind = all.peek()?.kind;
    let (completed, together) =
        all.fold((0, 0), |sums, streams| (sums.0 + streams.completed, sums.1 + streams.together));
    (completed >= MIN_STREAMS).then_some((kind, completed, together))
}

fn seen(variant: &Variant) -> impl Iterator<Item = &Streams> {
    variant.iterations.iter().filter_map(|iteration| iteration.streams.as_ref())
}

/// Finds streams whose events all come at the end, while they come one by one on another path under
/// the same load.
pub(super) fn buffered(subject: &Subject<'_>) -> Vec<Finding> {
    let held = subject.variant;
    let Some((kind, completed, late)) = together(held) else { return Vec::new() };
    if kind == StreamKind::Websocket || (late as f64) < TOGETHER.0 * completed as f64 {
        return Vec::new();
    }
    let time = |variant: &Variant, figure: StreamFigure| {
        let values = figures(variant, &Figure::Stream(figure));
        (!values.is_empty()).then(|| median(&values))
    };
    let (first, last) = (StreamFigure::FirstEvent(50_000), StreamFigure::LastEvent(50_000));
    let Some((own_first, own_last)) = time(held, first).zip(time(held, last)) else { return Vec::new() };
    let other = subject.record.variants.iter().find_map(|other| {
        let (other_kind, completed, late) = together(other)?;
        let (its_first, its_last) = time(other, first).zip(time(other, last))?;
        let proves = same_load(held, other)
            && other_kind == kind
            && late as f64 <= TOGETHER.1 * completed as f64
            && own_first >= LATER * its_first
            && own_last <= LATER * its_last;
        proves.then_some((other, its_first))
    });
    let Some((other, its_first)) = other else { return Vec::new() };
    let between: Vec<String> =
        held.path.iter().filter(|name| !other.path.contains(name)).map(|name| format!("`{name}`")).collect();
    let between = if between.is_empty() { "a program on the path".to_owned() } else { between.join(" or ") };
    let evidence = format!(
        "{} of {} streams brought all their events in the last tenth of their time: the first after {} and the last after {} (P50); \
         through `{}` the first came after {}",
        formatting::count(late),
        formatting::count(completed),
        formatting::time(own_first),
        formatting::time(own_last),
        other.name,
        formatting::time(its_first),
    );
    let remedy = format!(
        "{between} holds events back until the response is complete: turn its buffering of responses off, and compression of event streams"
    );
    vec![subject.explanation("buffered-stream", evidence, &remedy)]
}

fn same_load(one: &Variant, other: &Variant) -> bool {
    one.labels.get("load") == other.labels.get("load")
        && one.load.flow == other.load.flow
        && one.load.rate_per_s == other.load.rate_per_s
}

/// Finds WebSockets that the peer closes after always the same time without a message. If that was
/// their first silence, they are all of the same age too, so both causes are named.
pub(super) fn idle_timeout(subject: &Subject<'_>) -> Vec<Finding> {
    let cut: u64 = seen(subject.variant).map(|streams| streams.cut).sum();
    let opened: u64 = seen(subject.variant).map(|streams| streams.opened).sum();
    let silences = seen(subject.variant).filter_map(|streams| streams.idle_at_close.clone());
    let silences = silences.reduce(|mut all: Distribution, one| {
        all.add(&one);
        all
    });
    let Some(silences) = silences.filter(|all| all.count() >= MIN_CLOSES) else { return Vec::new() };
    let usual = silences.micros(0.5);
    let same = [0.1, 0.9].iter().all(|share| (silences.micros(*share) - usual).abs() <= SAME_SILENCE * usual);
    if !same || usual < MIN_SILENCE_US || (silences.count() as f64) < MOST_CLOSES * cut as f64 {
        return Vec::new();
    }
    let evidence = format!(
        "the peer closed {} of {} WebSockets, {} of them after {} without a message ({} … {} for eight of ten), longer than any \
         silence before",
        formatting::count(cut),
        formatting::count(opened),
        formatting::count(silences.count()),
        formatting::time(usual),
        formatting::time(silences.micros(0.1)),
        formatting::time(silences.micros(0.9)),
    );
    let remedy = "a program on the path closes connections that are idle for that long (raise its timeout for tunnels, or send a ping \
                  more often), or that are that old (raise its maximum age, or reconnect before); with messages only at the beginning, \
                  both look alike: send them at shorter intervals to tell the two apart";
    vec![subject.explanation("websocket-idle-timeout", evidence, remedy)]
}
