//! Waits: decides what threads of a component waited for, other than the network.
//!
//! Owns: the wait for a core, from the kernel's counters of every iteration.

use super::Subject;
use super::view::{majority, median_of};
use crate::formatting;
use crate::record::Finding;
use crate::statistics::{CoreWait, Figure};

/// Wait of one component for cores, as a share of the mean latency, from which it is the main part
/// of it.
const MAIN_PART: f64 = 0.5;

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
