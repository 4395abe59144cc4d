//! What the figures of a record say against themselves.
//!
//! Owns: rules that need nothing but the record. Does not own: what was noticed while the run lasted, which whoever ran it has put into
//! the record; a rule here is silent when the record already has a finding of its name.

use crate::analyse::{Figure, LEAST_PAIRS, Load, figures, find_knee, little, outliers};
use crate::desk::render::words;
use crate::record::{
    Arrivals, Component, Doubt, Finding, Iteration, Origin, Outcome, Record, Sweep, Variant,
};

/// By this share rate × latency may differ from what was in flight.
const LITTLE: f64 = 0.1;
/// From this share of throttled periods on a component is throttled.
const THROTTLED: f64 = 0.05;

/// What the figures say against themselves.
pub fn doubts(record: &Record) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(unfinished(record));
    for variant in &record.variants {
        let rules = [generator, unsent, closed_loop, no_histogram, few_iterations, errors, law];
        all.extend(rules.iter().filter_map(|rule| rule(variant)));
        all.extend(odd(variant));
        all.extend(throttled(variant));
    }
    all.extend(record.sweeps.iter().filter_map(|sweep| full(record, sweep)));
    together(all, record.variants.len())
}

/// The same to say about several variants is said once.
fn together(all: Vec<Finding>, variants: usize) -> Vec<Finding> {
    let mut joined: Vec<(Finding, usize)> = Vec::new();
    for finding in all {
        let same = joined.iter_mut().find(|(seen, _)| {
            seen.name == finding.name && seen.evidence == finding.evidence && seen.variant.is_some()
        });
        match (same, &finding.variant) {
            (Some((seen, many)), Some(name)) => {
                *many += 1;
                seen.variant = seen.variant.as_ref().map(|names| format!("{names}, {name}"));
            }
            _ => joined.push((finding, 1)),
        }
    }
    let whole = |(mut finding, many): (Finding, usize)| {
        if many == variants && many > 1 {
            finding.variant = None;
        }
        finding
    };
    joined.into_iter().map(whole).collect()
}

fn about(variant: &Variant, doubt: Doubt, name: &str, evidence: String, remedy: &str) -> Finding {
    Finding {
        name: name.to_owned(),
        variant: Some(variant.name.clone()),
        doubt,
        evidence,
        remedy: remedy.to_owned(),
    }
}

fn unfinished(record: &Record) -> Vec<Finding> {
    let whole = |name: &str, evidence: &str, remedy: &str| Finding {
        name: name.to_owned(),
        variant: None,
        doubt: Doubt::Careful,
        evidence: evidence.to_owned(),
        remedy: remedy.to_owned(),
    };
    let mut found = Vec::new();
    if record.run.partial {
        found.push(whole(
            "partial",
            "the run was ended before its end",
            "figures rest on what was measured until then",
        ));
    }
    if record.run.quick {
        found.push(whole(
            "quick",
            "a short form of the scenario ran",
            "for an impression only: run it in full before deciding anything",
        ));
    }
    if let Origin::Import { notes, .. } = &record.run.origin {
        found.extend(notes.iter().map(|note| whole("import", note, "measure with the lab where it matters")));
    }
    found
}

fn generator(variant: &Variant) -> Option<Finding> {
    let limited: Vec<String> = variant
        .iterations
        .iter()
        .filter(|iteration| iteration.generator.as_ref().is_some_and(|own| own.limited))
        .map(|iteration| iteration.number.to_string())
        .collect();
    (!limited.is_empty()).then(|| {
        about(
            variant,
            Doubt::Invalid,
            "generator-bound",
            format!("the load generator was the limit in iteration {}", limited.join(", ")),
            "the target may be faster than shown: lower the rate, give the generator a core of its own, or use several generators",
        )
    })
}

fn unsent(variant: &Variant) -> Option<Finding> {
    let unsent: u64 = variant.iterations.iter().map(|iteration| iteration.unsent).sum();
    (unsent > 0).then(|| {
        about(
            variant,
            Doubt::Careful,
            "requests-unsent",
            format!("{} requests were due but never sent", words::count(unsent)),
            "the target is slower than the offered rate: percentiles leave out what would have been slowest",
        )
    })
}

fn closed_loop(variant: &Variant) -> Option<Finding> {
    let workers = variant.load.concurrency.filter(|_| variant.load.arrivals == Arrivals::Closed)?;
    Some(about(
        variant,
        Doubt::Careful,
        "closed-loop",
        format!("{workers} workers waited for each answer"),
        "throughput is workers ÷ latency, not a capacity, and stalls are under-counted: offer a rate to measure latency",
    ))
}

fn no_histogram(variant: &Variant) -> Option<Finding> {
    let without =
        |iteration: &&Iteration| iteration.count(Outcome::Ok) > 0 && iteration.latency(Outcome::Ok).is_none();
    let many = variant.iterations.iter().filter(without).count();
    (many > 0).then(|| {
        about(
            variant,
            Doubt::Careful,
            "summary-only",
            format!(
                "{many} of {} iterations have percentiles as a tool printed them, and no histogram",
                variant.iterations.len()
            ),
            "they cannot be added to others, and no other percentile is known: keep the tool's raw output",
        )
    })
}

fn few_iterations(variant: &Variant) -> Option<Finding> {
    let many = variant.iterations.len();
    (many < LEAST_PAIRS).then(|| {
        about(
            variant,
            Doubt::Careful,
            "few-iterations",
            format!("{many} {} no interval", if many == 1 { "iteration has" } else { "iterations have" }),
            "what differs between runs may be chance: run at least five iterations, interleaved with what is compared",
        )
    })
}

fn errors(variant: &Variant) -> Option<Finding> {
    let count = |outcome| variant.iterations.iter().map(|iteration| iteration.count(outcome)).sum::<u64>();
    let (refused, failed) = (count(Outcome::Refused), count(Outcome::Failed));
    let all = refused + failed + count(Outcome::Ok);
    (refused + failed > 0).then(|| {
        about(
            variant,
            if count(Outcome::Ok) * 2 < all { Doubt::Invalid } else { Doubt::Careful },
            "errors",
            format!(
                "{} of {} requests were refused and {} not answered",
                words::count(refused),
                words::count(all),
                words::count(failed)
            ),
            "latencies are those of good answers: read them with the table of endings",
        )
    })
}

/// What was in flight is not rate × latency.
fn law(variant: &Variant) -> Option<Finding> {
    let closed =
        variant.load.concurrency.filter(|_| variant.load.arrivals == Arrivals::Closed).map(f64::from);
    let broken: Vec<String> = variant
        .iterations
        .iter()
        .filter_map(|iteration| {
            let in_flight = iteration.mean_in_flight.or(closed)?;
            let ended: u64 = iteration.classes.iter().map(|class| class.count).sum();
            let mean = mean_of_all(iteration)?;
            let check = little(in_flight, ended as f64 / iteration.seconds, mean / 1e6, LITTLE)?;
            (!check.holds).then(|| {
                format!("iteration {}: {:.1} instead of {in_flight:.1}", iteration.number, check.implied)
            })
        })
        .collect();
    (!broken.is_empty()).then(|| {
        about(
            variant,
            Doubt::Careful,
            "little-law-broken",
            format!("rate × latency is not what was in flight: {}", broken.join("; ")),
            "rate and latency were counted over different requests, or workers idled: trust neither before it is explained",
        )
    })
}

/// Mean time in flight of all requests, µs; `None` where a class has no latencies. Time before a request was sent does not count.
fn mean_of_all(iteration: &Iteration) -> Option<f64> {
    let mut sum = (0.0, 0.0);
    for class in iteration.classes.iter().filter(|class| class.count > 0) {
        let own = (class.outcome == Outcome::Ok).then_some(iteration.service.as_ref()).flatten();
        let mean = own.or(class.latency.as_ref())?.mean() / 1e3;
        sum = (sum.0 + mean * class.count as f64, sum.1 + class.count as f64);
    }
    (sum.1 > 0.0).then(|| sum.0 / sum.1)
}

fn odd(variant: &Variant) -> Option<Finding> {
    let mut found = Vec::new();
    for figure in [Figure::P50, Figure::P99, Figure::PerSecond] {
        let values = figures(variant, &figure);
        if values.len() != variant.iterations.len() {
            continue;
        }
        for outlier in outliers(&values) {
            found.push(format!(
                "{figure} of iteration {} is {} where {} is usual",
                variant.iterations[outlier.index].number,
                words::figure(&figure, outlier.value),
                words::figure(&figure, outlier.usual)
            ));
        }
    }
    (!found.is_empty()).then(|| {
        about(
            variant,
            Doubt::Careful,
            "odd-iteration",
            found.join("; "),
            "tables show medians over iterations, which it does not move; find out what happened in it",
        )
    })
}

/// Components that stood still because of their limit.
fn throttled(variant: &Variant) -> Vec<Finding> {
    let names = super::components(variant);
    let judged = names.into_iter().filter_map(|name| {
        let mut sums = (0, 0, 0);
        let mut limit = None;
        for (iteration, component) in of(variant, name) {
            let (first, last) = crate::analyse::window(iteration, component)?;
            limit = limit.or(component.cpu_limit_cores);
            sums.0 += last.periods? - first.periods?;
            sums.1 += last.throttled_periods? - first.throttled_periods?;
            sums.2 += last.throttled_ms? - first.throttled_ms?;
        }
        let (limit, share) = (limit?, sums.1 as f64 / (sums.0 as f64).max(1.0));
        if share < THROTTLED {
            return None;
        }
        let cost = crate::analyse::median(&figures(variant, &Figure::CpuPerRequest(name.to_owned())));
        let rate = crate::analyse::median(&figures(variant, &Figure::PerSecond));
        let implied = if cost > 0.0 {
            format!(
                "; {limit} cores ÷ {} of CPU per request are {} requests/s, measured {}",
                words::time(cost),
                words::digits(limit / cost * 1e6),
                words::digits(rate)
            )
        } else {
            String::new()
        };
        Some(about(
            variant,
            Doubt::Explains,
            "throttled",
            format!(
                "`{name}` used up its {limit} cores in {} of {} periods and stood still for {} s{implied}",
                words::count(sums.1),
                words::count(sums.0),
                words::digits(sums.2 as f64 / 1e3)
            ),
            "raise or remove the CPU limit; an average of CPU use does not show this",
        ))
    });
    judged.collect()
}

fn of<'a>(variant: &'a Variant, name: &'a str) -> impl Iterator<Item = (&'a Iteration, &'a Component)> {
    variant.iterations.iter().filter_map(move |iteration| {
        Some((iteration, iteration.components.iter().find(|component| component.name == name)?))
    })
}

/// The points of a sweep: load, throughput, median latency.
pub(super) fn points(record: &Record, sweep: &Sweep) -> Vec<Load> {
    let of = |name: &String| {
        let variant = record.variant(name)?;
        let median = |figure: &Figure| crate::analyse::median(&figures(variant, figure));
        let closed =
            variant.load.concurrency.map(f64::from).filter(|_| variant.load.arrivals == Arrivals::Closed);
        Some(Load {
            offered: variant.load.rate_per_s.or(closed)?,
            per_s: median(&Figure::PerSecond),
            latency: median(&Figure::P50),
        })
    };
    sweep.variants.iter().filter_map(of).collect()
}

fn full(record: &Record, sweep: &Sweep) -> Option<Finding> {
    let knee = find_knee(&points(record, sweep)).filter(|knee| knee.at_first)?;
    Some(Finding {
        name: "saturated".to_owned(),
        variant: Some(sweep.name.clone()),
        doubt: Doubt::Invalid,
        evidence: format!(
            "from the first load on, throughput changes by × {:.2} while latency grows × {:.1}",
            knee.per_s_factor, knee.latency_factor
        ),
        remedy: "the server is full at every load: latency is load ÷ ceiling and shows no cost of anything; measure below the knee"
            .to_owned(),
    })
}
