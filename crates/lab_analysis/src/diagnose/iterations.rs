//! Iterations: finds variants with too few of them, and iterations that deviate from the others.
//!
//! Owns: what the spread between iterations says. An outlier is reported with everything else that
//! was unusual in it, because that shows the cause. It is never dropped.

use std::collections::BTreeMap;

use super::Subject;
use super::view::{self, Counter, component_windows};
use crate::formatting;
use crate::record::{Doubt, Finding, Iteration};
use crate::statistics::{Figure, MIN_OBSERVATIONS, display, figures, outliers};

/// Most differences that are listed for an outlier, the largest first: on a slow machine every
/// program deviates.
const MAX_DIFFERENCES: usize = 6;

/// Most outliers that are named, the largest first: among hundreds of iterations some always
/// deviate.
const MAX_NAMED: usize = 3;

/// Finds variants with too few iterations for an interval.
pub(super) fn few(subject: &Subject<'_>) -> Vec<Finding> {
    let many = subject.variant.iterations.len();
    if many >= MIN_OBSERVATIONS {
        return Vec::new();
    }
    vec![subject.finding(
        Doubt::Careful,
        "few-iterations",
        format!("{many} {} no interval", if many == 1 { "iteration has" } else { "iterations have" }),
        "differences may be chance: run at least five iterations, interleaved with the variant to compare",
    )]
}

/// A figure of an iteration that deviates from the others.
struct OutlierNote {
    index: usize,
    /// Deviation from the usual value, in robust standard deviations.
    score: f64,
    description: String,
}

/// Finds iterations that deviate from the others: `slow-iteration` for a worse one, `odd-iteration`
/// for a better one.
pub(super) fn outlying(subject: &Subject<'_>) -> Vec<Finding> {
    let variant = subject.variant;
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for figure in [Figure::P50, Figure::P99, Figure::PerSecond] {
        let values = figures(variant, &figure);
        if values.len() != variant.iterations.len() {
            continue;
        }
        for outlier in outliers(&values) {
            let description = format!(
                "{figure} of iteration {} is {} where {} is usual",
                variant.iterations[outlier.index].number,
                display::figure(&figure, outlier.value),
                display::figure(&figure, outlier.usual)
            );
            let odd = OutlierNote { index: outlier.index, score: outlier.score.abs(), description };
            let is_better = (outlier.score > 0.0) == figure.more_is_better();
            if is_better { &mut better } else { &mut worse }.push(odd);
        }
    }
    let mut findings = Vec::new();
    if !worse.is_empty() {
        let (places, description) = describe(&worse, variant.iterations.len());
        let beside: Vec<String> = places.iter().flat_map(|place| differences(subject, *place)).collect();
        let beside = if beside.is_empty() {
            "; no other observed figure deviates in it".to_owned()
        } else {
            format!("; also unusual in it: {}", beside.join(", "))
        };
        findings.push(subject.finding(
            Doubt::Careful,
            "slow-iteration",
            description + &beside,
            "medians over iterations are not affected; find out what happened in it",
        ));
    }
    if !better.is_empty() {
        findings.push(subject.finding(
            Doubt::Careful,
            "odd-iteration",
            describe(&better, variant.iterations.len()).1,
            "medians over iterations are not affected; find out which work was skipped in it",
        ));
    }
    findings
}

/// Indices of the iterations that deviate most, and a description of them. The description also
/// counts the other outliers among `all` iterations.
fn describe(odd: &[OutlierNote], all: usize) -> (Vec<usize>, String) {
    let mut by_place: BTreeMap<usize, f64> = BTreeMap::new();
    for one in odd {
        let most = by_place.entry(one.index).or_default();
        *most = most.max(one.score);
    }
    let mut places: Vec<(usize, f64)> = by_place.into_iter().collect();
    places.sort_by(|a, b| b.1.total_cmp(&a.1));
    let others = places.len().saturating_sub(MAX_NAMED);
    let mut places: Vec<usize> = places.into_iter().take(MAX_NAMED).map(|(place, _)| place).collect();
    places.sort_unstable();
    let named = odd.iter().filter(|one| places.contains(&one.index)).map(|one| one.description.clone());
    let more = (others > 0).then(|| format!("{others} more of {all} iterations deviate, but less"));
    let descriptions: Vec<String> = named.chain(more).collect();
    (places, descriptions.join("; "))
}

/// Describes what else was unusual in an iteration.
fn differences(subject: &Subject<'_>, place: usize) -> Vec<String> {
    let variant = subject.variant;
    let number = variant.iterations[place].number;
    let mut deviations = Vec::new();
    let mut add = |label: &str, values: &[Option<f64>], written: fn(f64) -> String| {
        let Some(known) = values.iter().copied().collect::<Option<Vec<f64>>>() else { return };
        if let Some(odd) = outliers(&known).iter().find(|outlier| outlier.index == place) {
            let text = format!("{label} {} (usual {})", written(odd.value), written(odd.usual));
            deviations.push((odd.score.abs(), text));
        }
    };
    let each = |figure: &dyn Fn(&Iteration) -> Option<f64>| {
        variant.iterations.iter().map(figure).collect::<Vec<_>>()
    };
    add("errors", &each(&|iteration| Figure::BadShare.value(iteration)), formatting::percent);
    let own = |share: fn(&crate::record::GeneratorUse) -> Option<f64>| {
        each(&move |iteration| share(iteration.generator.as_ref()?))
    };
    add("the generator's wait for a core", &own(|own| own.core_wait_share), formatting::percent);
    add("CPU time given to others by the host", &own(|own| own.stolen_share), formatting::percent);
    add("the generator's lag", &own(|own| own.lag_p99_us), formatting::time);
    for name in variant.component_names() {
        let looks = component_windows(variant, name);
        if looks.len() != variant.iterations.len() {
            continue;
        }
        let per_request =
            |counter: Counter| looks.iter().map(|look| look.per_request(counter)).collect::<Vec<_>>();
        let cost: Vec<Option<f64>> = looks.iter().map(view::ComponentWindow::cpu_per_request).collect();
        add(&format!("CPU per request of `{name}`"), &cost, formatting::time);
        add(&format!("switches per request of `{name}`"), &per_request(view::switches), formatting::digits);
        let opened = per_request(|sample| sample.connections_opened);
        add(&format!("connections per request to `{name}`"), &opened, formatting::digits);
        let calls = per_request(|sample| sample.calls_received);
        add(&format!("calls per request to `{name}`"), &calls, formatting::digits);
        let throttled_periods = per_request(|sample| sample.throttled_periods);
        add(&format!("throttled periods per request of `{name}`"), &throttled_periods, formatting::digits);
        let memory = looks.iter().map(|look| Some(look.last.rss_bytes as f64)).collect::<Vec<_>>();
        add(&format!("memory of `{name}`"), &memory, formatting::bytes);
    }
    deviations.sort_by(|a, b| b.0.total_cmp(&a.0));
    let more = deviations.len().saturating_sub(MAX_DIFFERENCES);
    let greatest = deviations.into_iter().take(MAX_DIFFERENCES).map(|(_, text)| text);
    let more = (more > 0).then(|| format!("{more} more"));
    let all = greatest.chain(more).chain(formatting::events(&variant.iterations[place].events));
    all.map(|text| format!("{text} in iteration {number}")).collect()
}
