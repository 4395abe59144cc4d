//! Pauses: finds spans in which no request ends although requests are due.
//!
//! Owns: finding them in the slices, and distinguishing a program that works for itself meanwhile
//! (a garbage collector) from one that waits. Slices longer than [`MAX_SLICE_MS`] hide pauses, so
//! there is no finding then. Does not own: stalls of streams ([`super::streams`]).

use super::Subject;
use super::view::{self, component_windows, median_of, slices};
use crate::formatting;
use crate::record::{Arrivals, Finding, Iteration, Slice, Variant};
use crate::statistics::Figure;

/// Longest slice in which a pause is visible, ms.
const MAX_SLICE_MS: u64 = 500;
/// Share of the usual number of endings up to which a slice is quiet.
const QUIET_SHARE: f64 = 0.1;
/// Fewest requests that usually end in a slice: with fewer, an empty slice may be chance.
const MIN_USUAL: f64 = 4.0;
/// Shortest single pause that counts, ms: a busy machine takes a core away for shorter times.
const MIN_SINGLE_MS: u64 = 300;
/// Number of pauses from which they have a common cause.
const MIN_PAUSES: usize = 3;
/// Shortest of several pauses, in slices: one quiet slice may arise because two responses fall into
/// its neighbours.
const MIN_SLICES: u64 = 2;
/// Median latencies that a pause has to exceed unless arrivals are open. Workers that wait for their
/// responses may run in lockstep: all responses come together, and none for one latency. During a
/// pause of two, all requests in flight took at least twice as long as usual, which lockstep does
/// not explain.
const MIN_LATENCIES: f64 = 2.0;
/// Largest deviation of the distances between regular pauses from their median, as a share of it.
const MAX_DISTANCE_DEVIATION: f64 = 0.35;
/// Cores in use during pauses from which a program works.
const WORKING_CORES: f64 = 0.25;
/// Cores in use during pauses from which a program on a shared machine works, where `MORE` applies
/// as well.
const WORKING_CORES_SHARED: f64 = 0.05;
/// Factor between the cores in use during pauses and outside of them, for a program on a shared
/// machine.
const PAUSE_FACTOR: f64 = 2.0;
/// Cores in use during pauses below which a program waits.
const WAITING_CORES: f64 = 0.1;

/// Start and end of a pause, ms.
type Span = (u64, u64);

/// Finds pauses, and classifies them by what programs did meanwhile.
pub(super) fn pauses(subject: &Subject<'_>) -> Vec<Finding> {
    // When streams end is decided by their length.
    if subject.is_staged() || subject.has_streams() {
        return Vec::new();
    }
    let arrivals = subject.variant.load.arrivals;
    let paused: Vec<(&Iteration, Vec<Span>)> = subject
        .variant
        .iterations
        .iter()
        .map(|iteration| (iteration, quiet_spans(iteration, arrivals)))
        .filter(|(_, stretches)| !stretches.is_empty())
        .collect();
    let Some((iteration, stretches)) = paused.iter().max_by_key(|(_, stretches)| total_length(stretches))
    else {
        return Vec::new();
    };
    let at = |(from, _): &Span| formatting::digits(*from as f64 / 1e3);
    let evidence = format!(
        "{} in iteration {} {} {} s in all without a response, at {}{} s",
        if stretches.len() == 1 { "one pause".to_owned() } else { format!("{} pauses", stretches.len()) },
        iteration.number,
        if stretches.len() == 1 { "is" } else { "are" },
        formatting::digits(total_length(stretches) as f64 / 1e3),
        stretches.iter().take(4).map(at).collect::<Vec<_>>().join(", "),
        if stretches.len() > 4 { " …" } else { "" }
    );
    let used = cores_in_pauses(subject.variant, &paused);
    let busiest = used.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let works = busiest.is_some_and(|(_, inside, outside)| {
        *inside >= WORKING_CORES || (*inside >= WORKING_CORES_SHARED && *inside >= PAUSE_FACTOR * outside)
    });
    let missed = "a closed loop hides pauses, because it sends nothing meanwhile";
    vec![match busiest {
        Some((name, cores, _)) if works && is_regular(stretches) => subject.explanation(
            "gc-like-pauses",
            format!("{evidence}, at regular intervals; `{name}` used {} cores in them", formatting::digits(*cores)),
            &format!("the program works without serving requests, like a garbage collector: give it more memory, or split the work; {missed}"),
        ),
        Some((name, cores, _)) if !works && *cores < WAITING_CORES => subject.explanation(
            "stalls",
            format!("{evidence}; no observed program used CPU in them (`{name}` most, {} cores)", formatting::digits(*cores)),
            &format!("all programs waited for something that was not observed: a lock, a disk, a call without a response; {missed}"),
        ),
        _ => subject.explanation("pauses", evidence, &format!("find out what the servers did in them; {missed}")),
    }]
}

fn total_length(stretches: &[Span]) -> u64 {
    stretches.iter().map(|(from, until)| until - from).sum()
}

/// Quiet spans between endings: a long one, or several.
fn quiet_spans(iteration: &Iteration, arrivals: Arrivals) -> Vec<Span> {
    let Some(explained) = explained_ms(iteration, arrivals) else { return Vec::new() };
    let slices = slices(iteration);
    let ended = |slice: &Slice| (slice.ok + slice.bad) as f64;
    let widest = slices.iter().map(|slice| slice.ms).max().unwrap_or(u64::MAX);
    let some: Vec<f64> = slices.iter().map(|slice| ended(slice)).filter(|ended| *ended > 0.0).collect();
    let Some(usual) = median_of(&some).filter(|usual| *usual >= MIN_USUAL && widest <= MAX_SLICE_MS) else {
        return Vec::new();
    };
    let quiet = |slice: &Slice| ended(slice) <= QUIET_SHARE * usual;
    let mut spans: Vec<Span> = Vec::new();
    let mut open: Option<Span> = None;
    let mut answered = false;
    for slice in slices {
        if quiet(slice) {
            let from = open.map_or(slice.at_ms, |(from, _)| from);
            open = Some((from, slice.at_ms + slice.ms));
        } else {
            // A quiet span before the first ending is the start of the run; one after the last is
            // its end.
            spans.extend(open.take().filter(|_| answered));
            answered = true;
        }
    }
    spans.retain(|(from, until)| (until - from) as f64 > explained);
    let enough = |(from, until): &Span| until - from >= MIN_SINGLE_MS;
    let lone = spans.iter().any(enough);
    spans.retain(|stretch| enough(stretch) || stretch.1 - stretch.0 >= MIN_SLICES * widest);
    if lone || spans.len() >= MIN_PAUSES { spans } else { Vec::new() }
}

/// Longest time without an ending that needs no pause, ms; `None` when unknown.
fn explained_ms(iteration: &Iteration, arrivals: Arrivals) -> Option<f64> {
    match arrivals {
        Arrivals::Open => Some(0.0),
        Arrivals::Closed | Arrivals::Unknown => {
            Figure::P50.value(iteration).map(|latency| MIN_LATENCIES * latency / 1e3)
        }
    }
}

/// Whether the pauses come at nearly equal distances.
fn is_regular(stretches: &[Span]) -> bool {
    let distances: Vec<f64> = stretches.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64).collect();
    let Some(usual) = median_of(&distances).filter(|_| stretches.len() >= MIN_PAUSES) else { return false };
    let off: Vec<f64> = distances.iter().map(|distance| (distance - usual).abs()).collect();
    median_of(&off).is_some_and(|off| off <= MAX_DISTANCE_DEVIATION * usual)
}

/// Cores that each component used in the pauses and outside of them, where samples are close enough
/// to each other.
fn cores_in_pauses<'a>(variant: &'a Variant, paused: &[(&Iteration, Vec<Span>)]) -> Vec<(&'a str, f64, f64)> {
    let cores = |name: &'a str| {
        let (mut used, mut time, mut all, mut whole) = (0.0, 0.0, 0.0, 0.0);
        for look in component_windows(variant, name) {
            let of = paused.iter().find(|(iteration, _)| iteration.number == look.iteration.number);
            for (from, until) in of.into_iter().flat_map(|(_, stretches)| stretches) {
                let inside = look.samples().filter(|sample| (*from..=*until).contains(&sample.at_ms)).count();
                let ends =
                    look.value_at(*from as f64, view::cpu).zip(look.value_at(*until as f64, view::cpu));
                let Some((before, after)) = ends.filter(|_| inside > 0) else { continue };
                used += (after - before) / 1e3;
                time += (until - from) as f64;
            }
            if of.is_some() {
                all += look.growth(view::cpu).unwrap_or(0.0) / 1e3;
                whole += look.seconds() * 1e3;
            }
        }
        let outside = if whole > time { (all - used).max(0.0) / (whole - time) } else { 0.0 };
        (time > 0.0).then(|| (name, used / time, outside))
    };
    variant.component_names().into_iter().filter_map(cores).collect()
}
