//! Waits: decides what threads of a component waited for, other than the network.
//!
//! Owns: the wait for a core, from the kernel's counters of every iteration; waits for a lock, for a
//! disk and for time to pass, and a thread that is the limit, from a profile.
//!
//! Threads of a pool wait for work with the same call as threads that wait for a lock. So a wait counts
//! only as far as it exceeds the waits right after the load, and beside the requests in flight.

use super::Subject;
use super::thresholds::is_saturated;
use super::view::{majority, median_of};
use crate::formatting;
use crate::record::{Activity, ComponentProfile, Finding, ProfileRound};
use crate::statistics::{CoreWait, Figure};

/// Wait of one component for cores, as a share of the mean latency, from which it is the main part
/// of it.
const MAIN_PART: f64 = 0.5;
/// Threads that wait only under load, as a share of the requests in flight, from which most requests
/// wait so.
const MOST_REQUESTS: f64 = 0.5;
/// Fewest threads that wait only under load; fewer are within the error of the samples.
const MIN_THREADS: f64 = 0.05;
/// Fewest requests in flight from which they queue.
const MIN_QUEUE: f64 = 1.5;
/// CPU of all other threads of a program, as a share of the busiest one's, up to which that one does
/// the work alone.
const MAX_OTHER_THREADS: f64 = 0.5;

/// Finds components whose threads were ready to run most of the time of a request, and had no core.
pub(super) fn for_core(subject: &Subject<'_>) -> Vec<Finding> {
    let variant = subject.variant;
    let of = |name: &str| {
        let waits: Vec<[f64; 3]> = variant
            .iterations
            .iter()
            .filter_map(|iteration| {
                let wait = CoreWait::in_window(iteration, name)?;
                let (each, mean) = (wait.per_request_us()?, Figure::Mean.value(iteration)?);
                // A program that runs longer than it waits is slow by itself.
                let is_main = each >= MAIN_PART * mean && wait.share()? >= MAIN_PART;
                is_main.then(|| [each, mean, each * (1.0 / wait.share().unwrap_or(1.0) - 1.0)])
            })
            .collect();
        if waits.len() < majority(variant.iterations.len()) {
            return None;
        }
        let [each, mean, own] =
            [0, 1, 2].map(|at| median_of(&waits.iter().map(|one| one[at]).collect::<Vec<_>>()));
        Some((each?, mean?, own?))
    };
    let mut found: Vec<(&str, f64, f64, f64)> = Vec::new();
    for name in variant.component_names() {
        found.extend(of(name).map(|(each, mean, own)| (name, each, mean, own)));
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let Some((name, each, mean, own)) = found.first() else { return Vec::new() };
    let others = match found.len() {
        1 => String::new(),
        many => format!("; so did {} more components", many - 1),
    };
    let evidence = format!(
        "threads of `{name}` were ready to run and waited for a core {} per request, {} of the mean latency of {}; they ran for {}{others}",
        formatting::time(*each),
        formatting::percent(each / mean),
        formatting::time(*mean),
        formatting::time(*own)
    );
    let remedy = "give it cores of its own: look for programs that are pinned to the same core, and for more busy threads than cores";
    vec![subject.explanation("waits-for-core", evidence, remedy)]
}

/// Finds components in which most requests wait for a lock, a disk or a fixed time, or for one thread.
pub(super) fn of_threads(subject: &Subject<'_>) -> Vec<Finding> {
    let Some(profile) = &subject.variant.profile else { return Vec::new() };
    let rules = [for_lock, for_disk, asleep, for_one_thread];
    let components = profile.components.iter();
    components
        .flat_map(|component| rules.iter().filter_map(move |rule| rule(subject, profile, component)))
        .collect()
}

/// Threads with this activity that have it only under load, and the requests in flight, where most
/// requests wait so.
fn waiting(profile: &ProfileRound, component: &ComponentProfile, activity: Activity) -> Option<(f64, f64)> {
    let (under_load, at_rest) = component.threads_in(activity);
    let (more, in_flight) = (under_load - at_rest?, profile.mean_in_flight?);
    (more >= MIN_THREADS && more >= MOST_REQUESTS * in_flight).then_some((more, in_flight))
}

/// Evidence from the number of threads that wait.
fn evidence(component: &ComponentProfile, what: &str, (more, in_flight): (f64, f64)) -> String {
    format!(
        "under load {} threads of `{}` {what}, which did not right after it, with {} requests in flight",
        formatting::digits(more),
        component.component,
        formatting::digits(in_flight)
    )
}

fn for_lock(subject: &Subject<'_>, profile: &ProfileRound, component: &ComponentProfile) -> Option<Finding> {
    let seen =
        waiting(profile, component, Activity::Lock).filter(|(_, in_flight)| *in_flight >= MIN_QUEUE)?;
    let remedy = "find what calls futex in the off-CPU flame graph: hold that lock for less time, split it, or add threads where \
                  others wait for their result";
    let evidence = evidence(component, "waited for a lock or for another thread", seen);
    Some(subject.explanation("waits-for-lock", evidence, remedy))
}

fn for_disk(subject: &Subject<'_>, profile: &ProfileRound, component: &ComponentProfile) -> Option<Finding> {
    let seen = waiting(profile, component, Activity::Disk)?;
    let remedy = "find what is read or synced in the off-CPU flame graph: write several changes with one sync, keep what is read in \
                  memory, or use a faster disk";
    let evidence = evidence(component, "waited for a disk", seen);
    Some(subject.explanation("waits-for-disk", evidence, remedy))
}

fn asleep(subject: &Subject<'_>, profile: &ProfileRound, component: &ComponentProfile) -> Option<Finding> {
    let seen = waiting(profile, component, Activity::Sleep)?;
    let remedy = "requests wait for a fixed time, such as a pause between retries or polls, or a rate limit: find what calls nanosleep \
                  in the off-CPU flame graph, and let it wait for the event instead";
    let evidence = evidence(component, "slept for a fixed time", seen);
    Some(subject.explanation("sleeps", evidence, remedy))
}

/// Finds a program in which one thread does all the work and never rests, while requests queue.
fn for_one_thread(
    subject: &Subject<'_>,
    profile: &ProfileRound,
    component: &ComponentProfile,
) -> Option<Finding> {
    let (busiest, others) = component.threads.split_first()?;
    let rest: f64 = others.iter().map(|thread| thread.core_share).sum();
    let limit = subject.variant.iterations.iter().find_map(|iteration| {
        iteration.observed(&component.component).and_then(|observed| observed.cpu_limit_cores)
    });
    let is_alone = rest <= MAX_OTHER_THREADS * busiest.core_share && limit.is_none_or(|cores| cores > 1.0);
    let in_flight = profile.mean_in_flight.filter(|in_flight| *in_flight >= MIN_QUEUE)?;
    let saturated = is_saturated(busiest.core_share, busiest.core_wait_share.unwrap_or(0.0));
    (is_alone && saturated).then(|| {
        let evidence = format!(
            "thread `{}` of `{}` ran {} of the time and its other threads {} together, with {} requests in flight",
            busiest.name,
            component.component,
            formatting::percent(busiest.core_share),
            formatting::percent(rest),
            formatting::digits(in_flight)
        );
        let remedy = "more cores do not help: give it more threads or processes for this work, or make the work cheaper";
        subject.explanation("one-thread-bound", evidence, remedy)
    })
}
