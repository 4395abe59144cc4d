//! Medians: computes the median and an interval that contains the true one.
//!
//! Owns: the interval of a median, and of the median of differences and ratios of pairs.
//! Does not own: what an interval means for a claim ([`super::equivalence`]).
//!
//! Of n observations, the number below the true median follows the binomial distribution for n coin
//! tosses, whatever their own distribution. So the k-th smallest and the k-th largest enclose the
//! true median with an exactly known probability (David and Nagaraja, Order Statistics, §7.1). An
//! interval states this probability. It cannot exceed 1 − 2^(1−n), the probability that the true
//! median lies between the smallest and the largest. Fewer than [`MIN_OBSERVATIONS`] observations
//! have no interval.

use serde::Serialize;

use crate::units;

/// Fewest observations that have an interval: five reach 93.75 %.
pub const MIN_OBSERVATIONS: usize = 5;
/// Least confidence of an interval: it is as narrow as this allows when there are enough
/// observations.
const MIN_CONFIDENCE: f64 = 0.95;

/// An estimate with an interval for the true value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Estimate of the value.
    pub point: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that an interval computed in this way contains the true value.
    pub confidence: f64,
}

impl Interval {
    /// Whether the value lies outside of the interval.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }

    /// Half of the width of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Median: the middle value, or the mean of the middle two; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    median_of_sorted(&sorted(values))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Interval of the median; `None` with fewer than [`MIN_OBSERVATIONS`] observations, and when one
/// is infinite or NaN.
pub fn interval(values: &[f64]) -> Option<Interval> {
    interval_of(values, MIN_CONFIDENCE)
}

/// The same with this confidence at least, from 0 to 1; `None` also where the least and the greatest
/// value do not have it.
pub(super) fn interval_at(values: &[f64], confidence: f64) -> Option<Interval> {
    interval_of(values, confidence).filter(|interval| interval.confidence >= confidence)
}

fn interval_of(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.len() < MIN_OBSERVATIONS || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let sorted = sorted(values);
    let (outside, confidence) = interval_ends(sorted.len(), confidence);
    Some(Interval {
        point: median_of_sorted(&sorted),
        low: sorted[outside],
        high: sorted[sorted.len() - 1 - outside],
        confidence,
    })
}

/// How many observations lie outside of the interval on either side, and its confidence. It is the
/// largest number that keeps the wanted one, and 0 when even that does not.
fn interval_ends(observations: usize, wanted: f64) -> (usize, f64) {
    let all = observations as f64;
    // Logarithm of the probability that exactly `outside` observations lie below the true median:
    // (n over `outside`) ÷ 2^n. The value itself underflows for many observations.
    let mut chance = -all * std::f64::consts::LN_2;
    let mut beyond = 0.0;
    let mut ends = (0, 0.0);
    for outside in 0..observations.div_ceil(2) {
        beyond += chance.exp();
        let confidence = 1.0 - 2.0 * beyond;
        if outside > 0 && confidence < wanted {
            break;
        }
        ends = (outside, confidence);
        chance += ((all - outside as f64) / (outside as f64 + 1.0)).ln();
    }
    ends
}

/// Interval of the median of `b − a` over pairs; `None` with fewer than [`MIN_OBSERVATIONS`] pairs.
pub fn paired_difference(pairs: &[(f64, f64)]) -> Option<Interval> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| units::difference(*b, *a)).collect();
    interval(&differences)
}

/// Interval of the median of `b ÷ a` over pairs; `None` with fewer than [`MIN_OBSERVATIONS`] pairs,
/// and when an `a` is not above 0.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    if pairs.iter().any(|(a, _)| *a <= 0.0) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b / a).collect();
    interval(&ratios)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    /// A normally distributed value (Box and Muller).
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
        let of = interval(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((of.low.to_bits(), of.high.to_bits()), (1.0_f64.to_bits(), 5.0_f64.to_bits()));
        assert!((of.confidence - 0.9375).abs() < 1e-12, "no interval of five medians is surer");
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, f64::INFINITY]), None);
    }

    #[test]
    fn ends_are_those_of_the_tables() {
        // Sums of binomial coefficients over 2^n, by hand.
        for (observations, outside, confidence) in [
            (5, 0, 1.0 - 2.0 / 32.0),
            (6, 0, 1.0 - 2.0 / 64.0),
            (7, 0, 1.0 - 2.0 / 128.0),
            (8, 0, 1.0 - 2.0 / 256.0),
            (9, 1, 1.0 - 2.0 * 10.0 / 512.0),
            (12, 2, 1.0 - 2.0 * 79.0 / 4096.0),
            (20, 5, 1.0 - 2.0 * 21_700.0 / 1_048_576.0),
        ] {
            let (found, sure) = interval_ends(observations, MIN_CONFIDENCE);
            assert_eq!(found, outside, "{observations}");
            assert!((sure - confidence).abs() < 1e-12, "{observations}: {sure}");
        }
        // Where 2^-n underflows, the normal distribution gives the limit: n/2 − 1.96 × √n ÷ 2.
        for observations in [600, 1000, 5000] {
            let (outside, sure) = interval_ends(observations, MIN_CONFIDENCE);
            let kth = observations as f64 / 2.0 - 1.96 * (observations as f64).sqrt() / 2.0;
            assert!((outside as f64 + 1.0 - kth).abs() <= 1.0, "{observations}: {outside}");
            assert!((0.95..0.956).contains(&sure), "{observations}: {sure}");
        }
    }

    #[test]
    fn the_truth_lies_inside_as_often_as_is_said() {
        let mut random = Random::new(11);
        for size in 5..=20 {
            let rounds: u32 = 4000;
            let mut confidence = 0.0;
            let inside = (0..rounds)
                .filter(|_| {
                    let values: Vec<f64> = (0..size).map(|_| normal(&mut random, 10.0, 2.0)).collect();
                    let of = interval(&values).unwrap();
                    confidence = of.confidence;
                    !of.excludes(10.0)
                })
                .count();
            let share = inside as f64 / f64::from(rounds);
            // Four standard deviations of a share of this many observations.
            let chance = 4.0 * (confidence * (1.0 - confidence) / f64::from(rounds)).sqrt();
            assert!((share - confidence).abs() <= chance, "{size}: {share}, said {confidence}");
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
        let difference = paired_difference(&pairs).unwrap();
        assert!(!difference.excludes(7.0) && difference.half_width() < 2.0, "{difference:?}");
        let ratio = paired_ratio(&[(2.0, 4.0), (3.0, 6.0), (5.0, 10.0), (1.0, 2.0), (4.0, 8.0)]).unwrap();
        assert!((ratio.low - 2.0).abs() < 1e-12 && (ratio.high - 2.0).abs() < 1e-12);
        assert_eq!(paired_ratio(&[(0.0, 1.0); 6]), None);
    }

    proptest! {
        #[test]
        fn the_ends_enclose_the_estimate(values in prop::collection::vec(-1e6_f64..1e6, 5..40)) {
            let of = interval(&values).unwrap();
            let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(l, m), &v| (l.min(v), m.max(v)));
            prop_assert!(least <= of.low && of.low <= of.point && of.point <= of.high && of.high <= most);
        }

        #[test]
        fn shift_and_scale_go_through(values in prop::collection::vec(-1e3_f64..1e3, 5..20), shift in -1e3_f64..1e3) {
            let plain = interval(&values).unwrap();
            let moved: Vec<f64> = values.iter().map(|value| value * 2.0 + shift).collect();
            let moved = interval(&moved).unwrap();
            prop_assert!((moved.low - (plain.low * 2.0 + shift)).abs() < 1e-6);
            prop_assert!((moved.high - (plain.high * 2.0 + shift)).abs() < 1e-6);
        }
    }
}
