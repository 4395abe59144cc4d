//! Rules over claims: checks whether a claim follows from the figures.
//!
//! Owns: one rule per kind of claim.
//! Does not own: the tables themselves.
//!
//! A claim follows when recomputing it gives the printed figure, within its rounding.

use super::Remark;
use super::measured::full_from_the_start;
use super::table::{Claim, ClaimKind, Column, PrintedFigure, RunTable, SweepTable, Tables};
use crate::formatting::{self, digits};
use crate::record::{Arrivals, Doubt};
use crate::statistics::{Equivalence, compare_paired, display};

/// Largest deviation, as a share, at which a printed figure is taken for another quantity.
const NEAR_SHARE: f64 = 0.15;
/// Largest deviation, as a share, at which two ratios count as the same.
const SAME_SHARE: f64 = 0.1;

/// Checks a claim; `None` when it follows, or when the tables do not suffice.
pub(super) fn remark(tables: &Tables, claim: &Claim) -> Option<Remark> {
    let found = match &claim.that {
        ClaimKind::Mean { run, column, without, printed } => {
            mean(tables.run(run)?, *column, without, printed)
        }
        ClaimKind::Variation { run, column, without, printed } => {
            variation(tables.run(run)?, *column, without, printed)
        }
        ClaimKind::Spread { run, column, without, printed } => {
            spread(tables.run(run)?, *column, without, printed)
        }
        ClaimKind::Change { from, to, printed } => change(from, to, printed),
        ClaimKind::Replicas { run, than, printed } => replicas(tables.run(run)?, tables.run(than)?, printed),
        ClaimKind::Parts { from, to, column, parts } => {
            let sums = parts.values().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
            parts_of(tables.run(from)?, tables.run(to)?, *column, sums)
        }
        ClaimKind::NoImpact { from, to, margin_pct } => {
            no_impact(tables.sweep(from)?, tables.sweep(to)?, *margin_pct)
        }
    };
    let (rule, evidence, instead) = found?;
    Some(Remark { rule, doubt: Doubt::Invalid, about: format!("\"{}\"", claim.says), evidence, instead })
}

type Checked = Option<(&'static str, String, String)>;

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Standard deviation as estimated from a sample, and that of these values alone: tools print
/// either.
fn deviations(values: &[f64]) -> [f64; 2] {
    let mean = mean_of(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    [values.len().max(2) - 1, values.len().max(1)].map(|count| (squares / count as f64).sqrt())
}

/// Largest error of values that were rounded: half of the last digit that any of them has.
fn rounding(values: &[f64]) -> f64 {
    let digits = |value: &f64| value.to_string().split_once('.').map_or(0, |(_, part)| part.len());
    let most = values.iter().map(digits).max().unwrap_or(0);
    0.5 * 10.0_f64.powi(-i32::try_from(most).unwrap_or(i32::MAX))
}

/// Whether a printed figure may be `value`, computed from figures whose error is `off` at most.
fn is_consistent(printed: &PrintedFigure, value: f64, off: f64) -> bool {
    (printed.value() - value).abs() <= (printed.rounding() + off) * (1.0 + 1e-9)
}

fn range(values: &[f64]) -> f64 {
    let (least, most) =
        values.iter().fold((f64::MAX, f64::MIN), |(l, m), &value| (l.min(value), m.max(value)));
    if values.is_empty() { 0.0 } else { most - least }
}

/// The quantity that a printed figure most likely is, among other ways to compute it; `None` when
/// none is near.
fn nearest_quantity(printed: f64, ways: &[(&'static str, f64)]) -> Option<(&'static str, f64)> {
    let off = |value: f64| (value / printed - 1.0).abs();
    let nearest = ways.iter().min_by(|a, b| off(a.1).total_cmp(&off(b.1)))?;
    (off(nearest.1) <= NEAR_SHARE).then_some(*nearest)
}

fn mean(run: &RunTable, column: Column, without: &[usize], printed: &PrintedFigure) -> Checked {
    let values = run.column(column, without);
    if values.is_empty() || is_consistent(printed, mean_of(&values), rounding(&values)) {
        return None;
    }
    let left_out = if without.is_empty() {
        String::new()
    } else {
        format!(
            " without iteration {}",
            without.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        )
    };
    let decimals = printed.decimals();
    Some((
        "mean-does-not-follow",
        format!(
            "the mean {column} of {} iterations{left_out} is {:.decimals$} {unit}, printed {printed} {unit}",
            values.len(),
            mean_of(&values),
            unit = column.unit()
        ),
        format!("{:.decimals$} {}", mean_of(&values), column.unit()),
    ))
}

fn variation(run: &RunTable, column: Column, without: &[usize], printed: &PrintedFigure) -> Checked {
    let values = run.column(column, without);
    let share = |part: f64| part / mean_of(&values) * 100.0;
    let both = deviations(&values).map(share);
    let true_one = both[0];
    if values.len() < 2 || both.iter().any(|one| is_consistent(printed, *one, share(rounding(&values)))) {
        return None;
    }
    let ways = [
        ("the range", share(range(&values))),
        ("half of the range", share(range(&values) / 2.0)),
        ("the deviation", true_one),
    ];
    let (rule, guess) = match nearest_quantity(printed.value(), &ways) {
        Some((way @ ("the range" | "half of the range"), value)) => (
            "variation-is-a-range",
            format!("; the nearest that can be computed is {way} over the mean, {value:.2} %"),
        ),
        _ => ("variation-does-not-follow", String::new()),
    };
    Some((
        rule,
        format!(
            "the standard deviation of the {column} over its mean is {true_one:.2} %, printed {printed} %{guess}"
        ),
        format!(
            "{true_one:.2} %; a range grows with the number of iterations and cannot be compared between tests"
        ),
    ))
}

fn spread(run: &RunTable, column: Column, without: &[usize], printed: &PrintedFigure) -> Checked {
    let values = run.column(column, without);
    let both = deviations(&values);
    let true_one = both[0];
    let off = rounding(&values);
    // Some authors print the variance.
    let follows =
        |one: &f64| is_consistent(printed, *one, off) || is_consistent(printed, one * one, 2.0 * one * off);
    if values.len() < 2 || both.iter().any(follows) {
        return None;
    }
    let unit = column.unit();
    let (rule, guess) =
        match nearest_quantity(printed.value(), &[("range", range(&values)), ("deviation", true_one)]) {
            Some(("range", value)) => {
                ("spread-is-a-range", format!("; most minus least is {value:.4} {unit}"))
            }
            _ => ("spread-does-not-follow", String::new()),
        };
    Some((
        rule,
        format!(
            "the standard deviation of the {column} is {true_one:.4} {unit}, printed {printed} {unit}{guess}"
        ),
        format!(
            "{true_one:.4} {unit}; a range grows with the number of iterations and cannot be compared between tests"
        ),
    ))
}

fn change(from: &PrintedFigure, to: &PrintedFigure, printed: &PrintedFigure) -> Checked {
    if from.value().abs() < f64::MIN_POSITIVE {
        return None;
    }
    let percent = |from: f64, to: f64| (to / from - 1.0) * 100.0;
    // Both ends are rounded too: the change may lie anywhere between these limits.
    let ends = [-1.0, 1.0]
        .map(|sign| percent(from.value() - sign * from.rounding(), to.value() + sign * to.rounding()));
    let (low, high) = (ends[0].min(ends[1]) - printed.rounding(), ends[0].max(ends[1]) + printed.rounding());
    if (low..=high).contains(&printed.value()) {
        return None;
    }
    let decimals = printed.decimals();
    let is = percent(from.value(), to.value());
    Some((
        "change-does-not-follow",
        format!("from {from} to {to} is {} %, printed {printed} %", formatting::signed_change(is, decimals)),
        format!("{} %", formatting::signed_change(is, decimals)),
    ))
}

fn replicas(run: &RunTable, than: &RunTable, printed: &PrintedFigure) -> Checked {
    let closed = |run: &RunTable| run.arrivals == Arrivals::Closed && run.concurrency.is_some();
    if !closed(run) || !closed(than) || run.concurrency != than.concurrency {
        return None;
    }
    let latency = |run: &RunTable| run.mean_of(Column::MeanS).or_else(|| run.mean_of(Column::P50S));
    let (slow, fast) = (latency(run)?, latency(than)?);
    let rates = than.mean_of(Column::PerS)? / run.mean_of(Column::PerS)?;
    let from_latency = slow / fast;
    // A claim that was computed in another way is not judged.
    if (printed.value() / rates - 1.0).abs() > SAME_SHARE {
        return None;
    }
    // A rate that follows from the latency says nothing about the capacity of a machine.
    ((rates / from_latency - 1.0).abs() <= SAME_SHARE).then(|| {
        (
            "capacity-from-a-closed-loop",
            format!(
                "{printed} times the machines comes from {} ÷ {} req/s = {rates:.2}; both had {} workers, so this is {slow:.4} ÷ {fast:.4} s = {from_latency:.2}: a ratio of latencies",
                digits(than.mean_of(Column::PerS).unwrap_or_default()),
                digits(run.mean_of(Column::PerS).unwrap_or_default()),
                run.concurrency.unwrap_or_default(),
            ),
            "derive the number of machines from the rate that saturates one, found by raising the rate, or from CPU per request".to_owned(),
        )
    })
}

fn parts_of(from: &RunTable, to: &RunTable, column: Column, (low, high): (f64, f64)) -> Checked {
    let whole = to.mean_of(column)? - from.mean_of(column)?;
    if (low..=high).contains(&whole) {
        return None;
    }
    Some((
        "parts-are-not-the-whole",
        format!(
            "the parts sum up to {:.1} to {:.1} ms; the measured difference of the {column} is {:.1} ms",
            low * 1e3,
            high * 1e3,
            whole * 1e3
        ),
        "measure each hop by leaving it out: the same load over the path with and without it, in turns"
            .to_owned(),
    ))
}

fn no_impact(from: &SweepTable, to: &SweepTable, margin_pct: Option<f64>) -> Checked {
    let full = [from, to].into_iter().find_map(full_from_the_start);
    if let Some(knee) = full {
        return Some((
            "no-impact-at-a-full-server",
            format!(
                "from {} to {} workers throughput changes by × {:.2} while latency grows × {:.1}: the server is saturated at every load of the table, so a cost outside of the bottleneck is invisible",
                knee.offered,
                from.rows.last().map_or(0, |row| row.concurrency),
                knee.per_s_factor,
                knee.latency_factor
            ),
            "measure below the knee, several times each, and claim equivalence only within a stated margin"
                .to_owned(),
        ));
    }
    let beside = |concurrency| to.rows.iter().find(|row| row.concurrency == concurrency);
    let pairs: Vec<(f64, f64)> = from
        .rows
        .iter()
        .filter_map(|row| Some((row, beside(row.concurrency)?)))
        .flat_map(|(a, b)| a.repeats_per_s.iter().copied().zip(b.repeats_per_s.iter().copied()))
        .collect();
    let instead = "repeat each run, in turns, and claim equivalence only within a stated margin".to_owned();
    let Some(margin) = margin_pct else {
        return Some((
            "no-margin",
            "no margin is stated within which both count as the same".to_owned(),
            instead,
        ));
    };
    let verdict = compare_paired(&pairs, margin / 100.0);
    match verdict {
        Equivalence::Equivalent { .. } => None,
        Equivalence::Different { .. }
        | Equivalence::DifferentEachRound { .. }
        | Equivalence::DifferentInMostRounds { .. } => Some((
            "there-is-an-impact",
            format!("throughput is {}", display::verdict(&crate::statistics::Figure::PerSecond, &verdict)),
            "state the difference".to_owned(),
        )),
        Equivalence::Inconclusive { .. } => Some((
            "no-impact-unproven",
            format!(
                "{} repetitions do not tell whether throughput is the same within {margin} %",
                pairs.len()
            ),
            instead,
        )),
    }
}
