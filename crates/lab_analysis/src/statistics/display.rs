//! Display: formats figures, intervals and verdicts as text.
//!
//! Owns: the unit of each [`Figure`], and the wording of a verdict.
//! Does not own: how numbers are written ([`crate::formatting`]).

use super::{Effect, Equivalence, Figure, Interval, Scale, StreamFigure};
use crate::formatting::{bytes, digits, factor, grouped, is_zero, percent, time};

/// Formats a figure with its unit.
pub(crate) fn figure(kind: &Figure, value: f64) -> String {
    if !value.is_finite() {
        return digits(value);
    }
    match kind {
        Figure::PerSecond => format!("{}/s", digits(value)),
        Figure::BadShare | Figure::FailureShare | Figure::Stream(StreamFigure::CutShare) => percent(value),
        Figure::Cores(_) => format!("{} cores", digits(value)),
        Figure::Memory(_) | Figure::MemoryPerConnection(_) | Figure::ScrapeSize => bytes(value),
        Figure::MemoryGrowth(_) => format!("{} times", digits(value)),
        Figure::Counter(..)
        | Figure::BulkRevocationAccepted
        | Figure::ChangesFailed
        | Figure::Stream(StreamFigure::Stalls) => grouped(value),
        Figure::Mean
        | Figure::Max
        | Figure::Percentile(_)
        | Figure::Refused(_)
        | Figure::HeldLongest
        | Figure::RevocationLatency(_)
        | Figure::BulkRevocation
        | Figure::ChangeInForce(_)
        | Figure::ScrapeLongest
        | Figure::ScrapeDelay
        | Figure::Recovery
        | Figure::Lateness
        | Figure::Stream(_)
        | Figure::CpuPerRequestSum(_)
        | Figure::CoreWaitPerRequest(_)
        | Figure::CpuPerRequest(_) => time(value),
    }
}

/// Formats a difference between figures, with its sign.
pub(crate) fn difference(kind: &Figure, value: f64) -> String {
    let text = figure(kind, value.abs());
    if value.is_nan() || is_zero(&text) {
        return text;
    }
    format!("{}{text}", if value < 0.0 { '−' } else { '+' })
}

/// Formats the ends of an interval: `12.0 ms … 12.9 ms`.
pub(crate) fn interval(kind: &Figure, interval: &Interval) -> String {
    format!("{} … {}", figure(kind, interval.low), figure(kind, interval.high))
}

/// Formats a verdict on the difference between two variants.
pub(crate) fn verdict(kind: &Figure, verdict: &Equivalence) -> String {
    match verdict {
        Equivalence::Equivalent { margin, .. } => format!("equivalent within {}", percent(*margin)),
        Equivalence::Different { effect } => format!("different: {}", self::effect(kind, effect)),
        Equivalence::DifferentEachRound { effect, rounds, chance } => format!(
            "different in each of {rounds} rounds: {}; by chance alone: {}",
            self::effect(kind, effect),
            percent(*chance)
        ),
        Equivalence::DifferentInMostRounds { effect, same_side, rounds, chance } => format!(
            "different in {same_side} of {rounds} rounds: {}; by chance alone: {}",
            self::effect(kind, effect),
            percent(*chance)
        ),
        Equivalence::Inconclusive { effect: Some(effect) } => {
            format!("inconclusive: {}", self::effect(kind, effect))
        }
        Equivalence::Inconclusive { effect: None } => "inconclusive: too few iterations".to_owned(),
    }
}

/// Formats an effect with its interval: `× 1.098 (× 1.071 … × 1.126)`.
pub(crate) fn effect(kind: &Figure, effect: &Effect) -> String {
    let one = |value: f64| match effect.scale {
        Scale::Ratio => factor(value),
        Scale::Difference => difference(kind, value),
    };
    format!("{} ({} … {})", one(effect.point), one(effect.low), one(effect.high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formatting::readable;

    #[test]
    fn verdicts_say_what_they_may() {
        let p50 = Figure::P50;
        let ratio = Effect { scale: Scale::Ratio, point: 1.0983, low: 1.07, high: 10.26 };
        assert_eq!(
            verdict(&p50, &Equivalence::Different { effect: ratio }),
            "different: × 1.098 (× 1.070 … × 10.3)"
        );
        assert_eq!(
            verdict(&p50, &Equivalence::DifferentEachRound { effect: ratio, rounds: 3, chance: 0.25 }),
            "different in each of 3 rounds: × 1.098 (× 1.070 … × 10.3); by chance alone: 25.00 %"
        );
        let most = Equivalence::DifferentInMostRounds {
            effect: ratio,
            same_side: 9,
            rounds: 10,
            chance: 22.0 / 1024.0,
        };
        assert_eq!(
            verdict(&p50, &most),
            "different in 9 of 10 rounds: × 1.098 (× 1.070 … × 10.3); by chance alone: 2.15 %"
        );
        let difference = Effect { scale: Scale::Difference, point: -1200.0, low: -1290.0, high: 0.0 };
        assert_eq!(
            verdict(&p50, &Equivalence::Inconclusive { effect: Some(difference) }),
            "inconclusive: −1.20 ms (−1.29 ms … 0 µs)"
        );
        assert_eq!(
            verdict(&p50, &Equivalence::Inconclusive { effect: None }),
            "inconclusive: too few iterations"
        );
        assert_eq!(
            verdict(&p50, &Equivalence::Equivalent { margin: 0.05, p: 0.01 }),
            "equivalent within 5.00 %"
        );
    }

    /// Formats a value as each kind of figure.
    fn written(value: f64) -> Vec<String> {
        let kinds = [
            Figure::P50,
            Figure::PerSecond,
            Figure::BadShare,
            Figure::Cores(String::new()),
            Figure::Memory(String::new()),
            Figure::MemoryGrowth(String::new()),
            Figure::BulkRevocationAccepted,
            Figure::CpuPerRequest(String::new()),
        ];
        kinds.iter().flat_map(|kind| [figure(kind, value), difference(kind, value)]).collect()
    }

    #[test]
    fn what_is_nothing_has_no_sign_and_what_is_no_number_is_not_printed() {
        for text in readable::NOTHING.into_iter().flat_map(written) {
            assert!(readable::is_plain_nothing(&text), "{text}");
        }
        for text in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().flat_map(written) {
            assert!(readable::is_plain(&text), "{text}");
        }
        assert_eq!(difference(&Figure::P50, -1.1e-13), "0 µs");
    }

    proptest::proptest! {
        #[test]
        fn no_figure_is_written_as_programs_write_them(value in proptest::num::f64::ANY) {
            for text in written(value) {
                proptest::prop_assert!(readable::is_plain(&text), "{:e}: {}", value, text);
            }
        }
    }
}
