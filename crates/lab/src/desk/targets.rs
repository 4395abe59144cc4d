//! What a scenario wants of its figures, judged.
//!
//! Owns: the verdict on each target of a record, and its words. Does not own: the targets ([`crate::record::Target`]) and the figures
//! ([`crate::analyse`]). What is held to the bound is the median over the rounds, and the worst round where a promise is for every single time
//! ([`Measure::holds_each_round`](crate::record::Measure::holds_each_round)); a difference and a ratio are taken within a round, because a machine
//! drifts between two. A figure that was not measured does not meet its target: nobody knows.

use crate::analyse::{Beside, by_round, median};
use crate::record::{Record, Target, Unit};
use crate::words;

/// What became of a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged<'a> {
    /// The target.
    pub target: &'a Target,
    /// Its figure, round by round.
    pub values: Vec<f64>,
    /// Whether it is met.
    pub met: bool,
    /// What was seen, in words: the median, or why there is no figure.
    pub seen: String,
    /// Between what the rounds lie, and how many of them would meet it, in words; empty of one round.
    pub between: String,
    /// What is wanted, in words.
    pub wanted: String,
}

/// The verdict on every target, in their order.
pub fn judge(record: &Record) -> Vec<Judged<'_>> {
    record.targets.iter().map(|target| judged(record, target)).collect()
}

fn judged<'a>(record: &Record, target: &'a Target) -> Judged<'a> {
    let show = |value: f64| shown(target, value);
    let bounds =
        [target.at_most.map(|most| ("at most", most)), target.at_least.map(|least| ("at least", least))];
    let wanted: Vec<String> =
        bounds.into_iter().flatten().map(|(how, bound)| format!("{how} {}", show(bound))).collect();
    let wanted = wanted.join(", ");
    let beside = match (&target.minus, &target.over) {
        (Some(minus), _) => Beside::Minus(minus),
        (None, Some(over)) => Beside::Over(over),
        (None, None) => Beside::Nothing,
    };
    let values = match by_round(record, &target.figure, &target.of, beside) {
        Ok(values) => values,
        Err(why) => {
            return Judged {
                target,
                values: Vec::new(),
                met: false,
                seen: format!("not measured: {why}"),
                between: String::new(),
                wanted,
            };
        }
    };
    let within = |value: f64| {
        target.at_most.is_none_or(|most| value <= most) && target.at_least.is_none_or(|least| value >= least)
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = median(&values);
    let met = if target.figure.holds_each_round() { within(least) && within(most) } else { within(middle) };
    let mut between = String::new();
    if values.len() > 1 {
        between = format!("{} … {}", show(least), show(most));
        let kept = values.iter().filter(|value| within(**value)).count();
        if kept > 0 && kept < values.len() {
            between = format!("{between}; {kept} of {} rounds by themselves", values.len());
        }
    }
    Judged { target, values, met, seen: show(middle), between, wanted }
}

/// A value in the unit of the target.
fn shown(target: &Target, value: f64) -> String {
    if value.is_infinite() {
        return "endless".to_owned();
    }
    if target.over.is_some() {
        return format!("{} times", words::digits(value));
    }
    match target.figure.unit() {
        Unit::Time => words::time(value),
        Unit::Share if value < 0.0 => format!("−{}", words::percent(-value)),
        Unit::Share => words::percent(value),
        Unit::Bytes => words::bytes(value),
        Unit::Number => words::digits(value),
    }
}
