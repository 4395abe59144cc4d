//! Confidence intervals by resampling.
//!
//! Owns: percentile bootstrap intervals of a median or mean, and of differences and ratios of pairs. Does not own: what an
//! interval means for a claim ([`super::equivalence`]). With n observations no interval of a median can be surer than
//! 1 − 2^(1−n), which is the chance that the true median lies between the shortest and the longest: an interval says the
//! confidence it has, and fewer than [`LEAST_PAIRS`] observations have none.

use serde::Serialize;

use crate::load::Random;
use crate::units::{count, place};

/// Fewest observations an interval is given for: five reach 93.75 %.
pub const LEAST_PAIRS: usize = 5;
/// Resamples. The ends of an interval are stable to about 1 % of its width.
const RESAMPLES: usize = 4000;
/// What is aimed at.
const CONFIDENCE: f64 = 0.95;

/// What is computed from observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The middle one.
    Median,
    /// The arithmetic mean.
    Mean,
}

impl Statistic {
    /// The statistic of observations; 0 when there is none.
    pub fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Median => median(values),
            Self::Mean if values.is_empty() => 0.0,
            Self::Mean => values.iter().sum::<f64>() / values.len() as f64,
        }
    }
}

/// An estimate and between what the truth lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub point: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Chance that an interval made like this holds the truth.
    pub confidence: f64,
}

impl Interval {
    /// The value does not lie in it.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }

    /// Half its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The middle value, of an even number the mean of the middle two; 0 when there is none.
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

/// The same, putting the values in order.
fn median_of(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The interval of a statistic; `None` for fewer than [`LEAST_PAIRS`] observations.
pub fn interval(values: &[f64], statistic: Statistic, seed: u64) -> Option<Interval> {
    if values.len() < LEAST_PAIRS || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut random = Random::new(seed);
    let mut resample = vec![0.0; values.len()];
    let mut estimates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.fill_with(|| values[pick(&mut random, values.len())]);
            match statistic {
                Statistic::Median => median_of(&mut resample),
                Statistic::Mean => statistic.of(&resample),
            }
        })
        .collect();
    estimates.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let at = |share: f64| estimates[place((share * (RESAMPLES - 1) as f64).round())];
    let reachable = 1.0 - 2.0_f64.powf(1.0 - values.len() as f64);
    Some(Interval {
        point: statistic.of(values),
        low: at(tail),
        high: at(1.0 - tail),
        confidence: CONFIDENCE.min(reachable),
    })
}

/// One of so many places.
fn pick(random: &mut Random, places: usize) -> usize {
    usize::try_from(random.below(count(places))).unwrap_or(0)
}

/// The interval of the median of `b − a` over pairs; `None` for fewer than [`LEAST_PAIRS`].
pub fn paired_difference(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    interval(&differences, Statistic::Median, seed)
}

/// The interval of the median of `b ÷ a` over pairs; `None` for fewer than [`LEAST_PAIRS`], and where an `a` is not above 0.
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    if pairs.iter().any(|(a, _)| *a <= 0.0) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b / a).collect();
    interval(&ratios, Statistic::Median, seed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Normally distributed values (Box and Muller).
    fn normal(random: &mut Random, mean: f64, deviation: f64) -> f64 {
        let radius = (2.0 * random.exponential()).sqrt();
        mean + deviation * radius * (std::f64::consts::TAU * random.unit()).cos()
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        assert!(median(&[]).abs() < 1e-12);
    }

    #[test]
    fn five_observations_reach_from_the_least_to_the_most() {
        // Three or more of five draws are the least with probability 0.058, so the 2.5th percentile of medians is the least.
        let of = interval(&[5.0, 1.0, 4.0, 2.0, 3.0], Statistic::Median, 1).unwrap();
        assert_eq!((of.low.to_bits(), of.high.to_bits()), (1.0_f64.to_bits(), 5.0_f64.to_bits()));
        assert!((of.confidence - 0.9375).abs() < 1e-12, "no interval of five medians is surer");
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0], Statistic::Median, 1), None);
    }

    #[test]
    fn a_seed_repeats_itself() {
        let values: Vec<f64> = (0..20).map(|value| f64::from(value * value)).collect();
        assert_eq!(interval(&values, Statistic::Mean, 7), interval(&values, Statistic::Mean, 7));
        assert_ne!(interval(&values, Statistic::Mean, 7), interval(&values, Statistic::Mean, 8));
    }

    #[test]
    fn the_truth_lies_inside_as_often_as_is_said() {
        let mut random = Random::new(11);
        for size in [5, 10, 20] {
            let rounds: u32 = 150;
            let inside = (0..rounds)
                .filter(|&round| {
                    let values: Vec<f64> = (0..size).map(|_| normal(&mut random, 10.0, 2.0)).collect();
                    !interval(&values, Statistic::Median, u64::from(round)).unwrap().excludes(10.0)
                })
                .count();
            let share = inside as f64 / f64::from(rounds);
            assert!((0.87..=0.995).contains(&share), "{size}: {share}");
        }
    }

    #[test]
    fn a_difference_of_pairs_is_free_of_what_they_share() {
        let mut random = Random::new(3);
        let pairs: Vec<(f64, f64)> = (0..12)
            .map(|round| {
                let drift = f64::from(round) * 50.0;
                (100.0 + drift + normal(&mut random, 0.0, 1.0), 107.0 + drift + normal(&mut random, 0.0, 1.0))
            })
            .collect();
        let difference = paired_difference(&pairs, 1).unwrap();
        assert!(!difference.excludes(7.0) && difference.half_width() < 2.0, "{difference:?}");
        let ratio = paired_ratio(&[(2.0, 4.0), (3.0, 6.0), (5.0, 10.0), (1.0, 2.0), (4.0, 8.0)], 1).unwrap();
        assert!((ratio.low - 2.0).abs() < 1e-12 && (ratio.high - 2.0).abs() < 1e-12);
        assert_eq!(paired_ratio(&[(0.0, 1.0); 6], 1), None);
    }

    proptest! {
        // Each case resamples, or fills a histogram of megabytes.
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn the_ends_enclose_the_estimate(values in prop::collection::vec(-1e6_f64..1e6, 5..40), seed: u64) {
            for statistic in [Statistic::Median, Statistic::Mean] {
                let of = interval(&values, statistic, seed).unwrap();
                let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(l, m), &v| (l.min(v), m.max(v)));
                prop_assert!(least - 1e-9 <= of.low && of.low <= of.high && of.high <= most + 1e-9);
                prop_assert!(of.low <= of.point + 1e-6 && of.point <= of.high + 1e-6);
            }
        }

        #[test]
        fn shift_and_scale_go_through(values in prop::collection::vec(-1e3_f64..1e3, 5..20), shift in -1e3_f64..1e3) {
            let plain = interval(&values, Statistic::Median, 5).unwrap();
            let moved: Vec<f64> = values.iter().map(|value| value * 2.0 + shift).collect();
            let moved = interval(&moved, Statistic::Median, 5).unwrap();
            prop_assert!((moved.low - (plain.low * 2.0 + shift)).abs() < 1e-6);
            prop_assert!((moved.high - (plain.high * 2.0 + shift)).abs() < 1e-6);
        }
    }
}
