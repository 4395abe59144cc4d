//! Rules over measurements: finds what contradicts itself in a table, apart from any claim.
//!
//! Owns: the rules on runs and sweeps.
//! Does not own: claims.

use std::cmp::Ordering;

use super::Remark;
use super::table::{Column, RunTable, SweepTable, Tables};
use crate::formatting::digits;
use crate::record::{Arrivals, Doubt};
use crate::statistics::{Knee, SweepPoint, find_knee, little, outliers};

/// Share by which rate × mean latency may differ from the number of workers.
const LITTLE_TOLERANCE: f64 = 0.15;
/// Largest ratio of a median to the mean of values that are never below 0 (Markov). With a median
/// alone, only a larger ratio breaks the law.
const MAX_MEDIAN_FACTOR: f64 = 2.0;
/// Factor from which two costs per request were not measured over the same load.
const COST_FACTOR: f64 = 2.0;
/// Factor within which two rates are alike, so that a request costs the same at both.
const SIMILAR_FACTOR: f64 = 1.5;
/// Factor by which another run without the limit has to be faster, for the limit to have held a run
/// back.
const HELD_BACK_FACTOR: f64 = 2.0;
/// Share of its limit that a throttled program uses at least; a lower figure was not measured under
/// the load.
const USED_UP_SHARE: f64 = 0.9;
/// Share by which samples ÷ time may differ from the published rate.
const RATE_TOLERANCE: f64 = 0.02;

/// Everything that does not follow in the runs and sweeps.
pub(super) fn remarks(tables: &Tables) -> Vec<Remark> {
    let mut all = Vec::new();
    all.extend(closed_loop(tables).into_iter().flatten());
    all.extend(tables.runs.iter().filter_map(odd_iterations));
    all.extend(tables.runs.iter().flat_map(|run| cores_cannot_serve(tables, run)));
    all.extend(tables.runs.iter().flat_map(|run| throttled_reading(tables, run)));
    all.extend(saturated(tables));
    all.extend(tables.sweeps.iter().flat_map(row_contradictions));
    all
}

/// Mean latency of a run, s, or its median where no mean is known; and whether it is the mean.
fn latency(run: &RunTable) -> Option<(f64, bool)> {
    let mean = run.mean_of(Column::MeanS).map(|mean| (mean, true));
    mean.or_else(|| Some((run.mean_of(Column::P50S)?, false)))
}

/// Finds closed loops: their throughput is only workers ÷ latency, or contradicts it.
fn closed_loop(tables: &Tables) -> [Option<Remark>; 2] {
    let closed = tables.runs.iter().filter(|run| run.arrivals == Arrivals::Closed);
    let (mut bound, mut broken) = (Vec::new(), Vec::new());
    for run in closed {
        let (Some(workers), Some(per_s), Some((latency, is_mean))) =
            (run.concurrency, run.mean_of(Column::PerS), latency(run))
        else {
            continue;
        };
        let Some(check) = little(f64::from(workers), per_s, latency, LITTLE_TOLERANCE) else { continue };
        let line = format!(
            "{}: {workers} ÷ {latency:.3} s = {:.1} req/s, published {} req/s",
            run.title,
            f64::from(workers) / latency,
            digits(per_s)
        );
        if check.holds {
            bound.push(line);
        } else if is_mean || check.ratio > MAX_MEDIAN_FACTOR {
            broken.push(line);
        }
    }
    let broken = (!broken.is_empty()).then(|| Remark {
        rule: "little-law-broken",
        doubt: Doubt::Invalid,
        about: "closed loops whose rate, latency and workers do not fit together".to_owned(),
        evidence: broken.join("; "),
        instead: "rate and latency were taken over different requests, or the load generator was the limit: measure again"
            .to_owned(),
    });
    let bound = (!bound.is_empty()).then(|| Remark {
        rule: "closed-loop-throughput",
        doubt: Doubt::Invalid,
        about: "throughput of runs with a fixed number of workers".to_owned(),
        evidence: format!("throughput is only workers ÷ latency: {}", bound.join("; ")),
        instead: "this repeats the latency and is no capacity: offer a rate and raise it until latency grows"
            .to_owned(),
    });
    [broken, bound]
}

/// Finds iterations that deviate from the others and are part of the mean.
fn odd_iterations(run: &RunTable) -> Option<Remark> {
    let mut found = Vec::new();
    for column in [Column::MeanS, Column::P50S, Column::P95S, Column::P99S, Column::PerS] {
        let values = run.column(column, &[]);
        if values.len() != run.iterations.len() {
            continue;
        }
        for odd in outliers(&values) {
            found.push(format!(
                "{column} of iteration {} is {} {unit} where {:.4} {unit} is usual",
                odd.index + 1,
                odd.value,
                odd.usual,
                unit = column.unit()
            ));
        }
    }
    (!found.is_empty()).then(|| Remark {
        rule: "odd-iteration",
        doubt: Doubt::Invalid,
        about: run.title.clone(),
        evidence: found.join("; "),
        instead: "report medians over iterations, name the odd one, and find out what happened in it"
            .to_owned(),
    })
}

/// Finds cores published for a program that could not have served the published rate, at the cost
/// per request of another run.
///
/// The cost depends on the rate: at a low rate a program wakes up for each request, and its
/// background work counts for few requests. Only a run at a similar rate proves the contradiction.
/// A run at another rate gives a remark of weight careful.
fn cores_cannot_serve(tables: &Tables, run: &RunTable) -> Vec<Remark> {
    let Some(rate) = run.mean_of(Column::PerS).filter(|rate| *rate > 0.0) else { return Vec::new() };
    let judged = run.cpu_cores.iter().filter_map(|(program, &cores)| {
        let too_few = |cost: &Cost<'_>| cores > 0.0 && rate * cost.low / cores >= COST_FACTOR;
        let costs: Vec<Cost<'_>> = costs(tables, run, program).filter(too_few).collect();
        // A run with a known limit comes first: its cost has an upper bound.
        let dearest = |like: bool| {
            let all = costs.iter().filter(|cost| cost.is_similar(rate) == like);
            all.max_by(|a, b| (a.limited, a.low).partial_cmp(&(b.limited, b.low)).unwrap_or(Ordering::Equal))
        };
        let (cost, doubt) = match (dearest(true), dearest(false)) {
            (Some(like), _) => (like, Doubt::Invalid),
            (None, other) => (other?, Doubt::Careful),
        };
        Some(cost.remark(run, program, (cores, rate), doubt))
    });
    judged.collect()
}

/// Cost of a request for a program in another run, seconds of CPU.
struct Cost<'a> {
    run: &'a RunTable,
    rate: f64,
    low: f64,
    /// Cost at the limit of the program; equal to `low` without a limit.
    high: f64,
    limited: bool,
}

fn costs<'a>(tables: &'a Tables, run: &RunTable, program: &str) -> impl Iterator<Item = Cost<'a>> {
    let others = tables.runs.iter().filter(|other| other.id != run.id);
    others.filter_map(|other| {
        let rate = other.mean_of(Column::PerS).filter(|rate| *rate > 0.0)?;
        let low = other.cpu_cores.get(program)? / rate;
        let limit = other.cpu_limit_cores.get(program).copied();
        Some(Cost {
            run: other,
            rate,
            low,
            high: limit.map_or(low, |limit| limit / rate),
            limited: limit.is_some(),
        })
    })
}

impl Cost<'_> {
    /// Whether the two rates are so similar that a request costs the same at both.
    fn is_similar(&self, rate: f64) -> bool {
        (1.0 / SIMILAR_FACTOR..=SIMILAR_FACTOR).contains(&(self.rate / rate))
    }

    fn remark(&self, run: &RunTable, program: &str, (cores, rate): (f64, f64), doubt: Doubt) -> Remark {
        let (low, high) = (self.low, self.high);
        let up_to = if high > low {
            format!(" (at most {:.0} µs, its limit over its rate: {:.2} cores)", high * 1e6, rate * high)
        } else {
            String::new()
        };
        let evidence = format!(
            "that is {:.0} µs of CPU per request; `{}` shows {:.0} µs, at which {} req/s take {:.3} cores{up_to}",
            cores / rate * 1e6,
            self.run.title,
            low * 1e6,
            digits(rate),
            rate * low,
        );
        let (evidence, instead) = match doubt {
            Doubt::Careful => (
                format!(
                    "{evidence}; but that is at {} req/s, where what a program does without requests, and waking for each, may be most of it",
                    digits(self.rate)
                ),
                "compare costs at like rates, or subtract what the program uses at rest; and count user and system time over exactly the measured window"
                    .to_owned(),
            ),
            _ => (
                evidence,
                "one of the two was not measured under the load: count user and system time over exactly the measured window, then divide by its requests"
                    .to_owned(),
            ),
        };
        Remark {
            rule: "cores-cannot-serve",
            doubt,
            about: format!("{}: {program} on {cores} cores at {} req/s", run.title, digits(rate)),
            evidence,
            instead,
        }
    }
}

/// Finds programs that their CPU limit held back, although the published figure says that they did
/// not use it.
fn throttled_reading(tables: &Tables, run: &RunTable) -> Vec<Remark> {
    let Some(rate) = run.mean_of(Column::PerS).filter(|rate| *rate > 0.0) else { return Vec::new() };
    let judged = run.cpu_limit_cores.iter().filter_map(|(program, &limit)| {
        let free = tables.runs.iter().filter(|other| {
            other.cpu_cores.contains_key(program) && !other.cpu_limit_cores.contains_key(program)
        });
        let faster = free
            .filter_map(|other| Some((other, other.mean_of(Column::PerS)?)))
            .filter(|(_, other)| *other >= rate * HELD_BACK_FACTOR)
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        let cores = *run.cpu_cores.get(program)?;
        (cores < limit * USED_UP_SHARE).then(|| Remark {
            rule: "throttled-reading",
            doubt: Doubt::Invalid,
            about: format!("{}: {program} at {cores} of {limit} cores", run.title),
            evidence: format!(
                "without the limit `{}` makes {:.0} req/s instead of {rate:.1}: the limit held it back, so it was used up, not to {:.0} %",
                faster.0.title,
                faster.1,
                cores / limit * 100.0
            ),
            instead: "an average over throttled time looks idle: read the throttled periods of its control group"
                .to_owned(),
        })
    });
    judged.collect()
}

/// Knee of a sweep that is saturated from its first point on; `None` for others.
pub(super) fn full_from_the_start(sweep: &SweepTable) -> Option<Knee> {
    let points = sweep.rows.iter().map(|row| SweepPoint {
        offered: f64::from(row.concurrency),
        per_s: row.per_s,
        latency: row.mean_ms,
    });
    find_knee(&points.collect::<Vec<_>>()).filter(|knee| knee.at_first)
}

/// Finds sweeps in which more load only brings more waiting.
fn saturated(tables: &Tables) -> Option<Remark> {
    let full: Vec<(&SweepTable, Knee)> =
        tables.sweeps.iter().filter_map(|sweep| Some((sweep, full_from_the_start(sweep)?))).collect();
    if full.is_empty() {
        return None;
    }
    let lines = full.iter().map(|(sweep, knee)| {
        format!(
            "{}: from {} workers on, throughput × {:.2}, latency × {:.1}",
            sweep.title, knee.offered, knee.per_s_factor, knee.latency_factor
        )
    });
    Some(Remark {
        rule: "saturated",
        doubt: Doubt::Invalid,
        about: format!("{} of {} sweeps", full.len(), tables.sweeps.len()),
        evidence: lines.collect::<Vec<_>>().join("; "),
        instead: "the server is saturated at the lowest load: throughput is its capacity and latency is workers ÷ capacity, so neither shows a cost. Measure below the knee"
            .to_owned(),
    })
}

/// Finds rows of a sweep whose figures contradict each other.
fn row_contradictions(sweep: &SweepTable) -> Vec<Remark> {
    let mut found = Vec::new();
    for row in &sweep.rows {
        let workers = f64::from(row.concurrency);
        if let Some(check) =
            little(workers, row.per_s, row.mean_ms / 1e3, LITTLE_TOLERANCE).filter(|check| !check.holds)
        {
            found.push((
                "little-law-broken",
                format!(
                    "{workers} workers: {} req/s × {} ms are {:.1} in flight",
                    row.per_s, row.mean_ms, check.implied
                ),
            ));
        }
        if let (Some(samples), Some(run_s)) = (row.samples, sweep.run_s.filter(|run_s| *run_s > 0.0)) {
            let rate = samples as f64 / run_s;
            if (rate / row.per_s - 1.0).abs() > RATE_TOLERANCE {
                found.push((
                    "rate-is-not-samples-over-time",
                    format!(
                        "{workers} workers: {samples} in {run_s} s are {rate:.2} per s, published {}",
                        row.per_s
                    ),
                ));
            }
        }
    }
    let remark = |(rule, evidence): (&'static str, String)| Remark {
        rule,
        doubt: Doubt::Invalid,
        about: sweep.title.clone(),
        evidence,
        instead: "two of the three were taken over different requests: measure again".to_owned(),
    };
    found.into_iter().map(remark).collect()
}
