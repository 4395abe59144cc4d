//! Target verdicts: judges whether a run meets the targets of its scenario.
//!
//! Owns: the verdict on each target of a record, and its wording.
//! Does not own: the targets ([`crate::record::Target`]) and the figures ([`crate::statistics`]).
//!
//! - The bound applies to the median over the rounds.
//! - For a target with `surely` it applies to the whole interval of the median.
//! - For a promise about every single request it applies to the worst round
//!   ([`Measure::holds_each_round`](crate::record::Measure::holds_each_round)).
//!
//! Differences and ratios are taken within a round, because a machine drifts between rounds. A
//! figure that was not measured does not meet its target.

use crate::formatting;
use crate::record::{Record, Target, Unit};
use crate::statistics::{ComparedTo, Interval, MIN_OBSERVATIONS, interval, median, values_by_round};

/// A target with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetResult<'a> {
    /// The target that was judged.
    pub target: &'a Target,
    /// Values of its figure, round by round.
    pub values: Vec<f64>,
    /// Verdict on the target.
    pub verdict: TargetVerdict,
    /// Text of the result: the median, or why there is no figure.
    pub result: String,
    /// Texts about the scatter: the interval of the true value, the range of the rounds, and how
    /// many rounds meet the target by themselves. The range and the number need two rounds.
    pub scatter: Vec<String>,
    /// Text of the requirement.
    pub requirement: String,
}

/// Verdict on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetVerdict {
    /// The target is met.
    Met,
    /// The median meets the target, but its interval exceeds the bound or is unknown, and `surely`
    /// was required.
    NotShown,
    /// The target is not met, or the figure was not measured.
    Missed,
}

impl TargetResult<'_> {
    /// Whether the target is met.
    pub fn is_met(&self) -> bool {
        self.verdict == TargetVerdict::Met
    }
}

/// Judges every target of a record, in their order.
pub fn judge(record: &Record) -> Vec<TargetResult<'_>> {
    record.targets.iter().map(|target| judge_target(record, target)).collect()
}

fn judge_target<'a>(record: &Record, target: &'a Target) -> TargetResult<'a> {
    let beside = match (&target.minus, &target.over) {
        (Some(minus), _) => ComparedTo::Minus(minus),
        (None, Some(over)) => ComparedTo::Over(over),
        (None, None) => ComparedTo::Nothing,
    };
    let wanted = wanted(target);
    let values = match values_by_round(record, &target.figure, &target.of, beside) {
        Ok(values) => values,
        Err(why) => {
            let seen = format!("not measured: {why}");
            return TargetResult {
                target,
                values: Vec::new(),
                verdict: TargetVerdict::Missed,
                result: seen,
                scatter: Vec::new(),
                requirement: wanted,
            };
        }
    };
    let truth = target.surely.then(|| interval(&values)).flatten();
    let middle = median(&values);
    let verdict = match truth {
        _ if target.figure.holds_each_round() => {
            if values.iter().all(|value| meets_bounds(target, *value)) {
                TargetVerdict::Met
            } else {
                TargetVerdict::Missed
            }
        }
        _ if !meets_bounds(target, middle) => TargetVerdict::Missed,
        Some(truth) if meets_bounds(target, truth.low) && meets_bounds(target, truth.high) => {
            TargetVerdict::Met
        }
        _ if target.surely => TargetVerdict::NotShown,
        _ => TargetVerdict::Met,
    };
    let between = between(target, &values, truth);
    TargetResult {
        target,
        values,
        verdict,
        result: format_value(target, middle),
        scatter: between,
        requirement: wanted,
    }
}

fn meets_bounds(target: &Target, value: f64) -> bool {
    target.at_most.is_none_or(|most| value <= most) && target.at_least.is_none_or(|least| value >= least)
}

fn wanted(target: &Target) -> String {
    let bounds =
        [target.at_most.map(|most| ("at most", most)), target.at_least.map(|least| ("at least", least))];
    let words: Vec<String> = bounds
        .into_iter()
        .flatten()
        .map(|(how, bound)| format!("{how} {}", format_value(target, bound)))
        .collect();
    let words = words.join(", ");
    if target.surely { format!("surely {words}") } else { words }
}

/// Texts about the interval, where the target has to be met surely, and about the range of the
/// rounds.
fn between(target: &Target, values: &[f64], truth: Option<Interval>) -> Vec<String> {
    let show = |value: f64| format_value(target, value);
    let mut between = match truth {
        Some(Interval { low, high, confidence, .. }) => {
            vec![format!("with {:.0} % between {} and {}", confidence * 100.0, show(low), show(high))]
        }
        None if target.surely && values.len() < MIN_OBSERVATIONS => {
            vec![format!("no interval of fewer than {MIN_OBSERVATIONS} rounds")]
        }
        None if target.surely => vec!["no interval, because a round is infinite".to_owned()],
        None => Vec::new(),
    };
    if values.len() < 2 {
        return between;
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    between.push(format!("{} … {}", show(least), show(most)));
    let kept = values.iter().filter(|value| meets_bounds(target, **value)).count();
    if kept > 0 && kept < values.len() {
        between.push(format!("{kept} of {} rounds meet it alone", values.len()));
    }
    between
}

/// Formats a value in the unit of the target.
fn format_value(target: &Target, value: f64) -> String {
    if value.is_infinite() {
        return "infinite".to_owned();
    }
    if target.over.is_some() {
        return format!("{} times", formatting::digits(value));
    }
    match target.figure.unit() {
        Unit::Time => formatting::time(value),
        Unit::Share if value < 0.0 => format!("−{}", formatting::percent(-value)),
        Unit::Share => formatting::percent(value),
        Unit::Bytes => formatting::bytes(value),
        Unit::Number => formatting::digits(value),
    }
}
