//! Equivalence: decides whether two variants are the same within a margin, differ, or cannot be
//! told apart.
//!
//! Owns: the verdict over paired iterations. "No difference was found" is no verdict: with few or
//! noisy iterations it is always true.
//! Does not own: the wording of verdicts ([`crate::formatting`]).
//!
//! Times and rates scatter in proportion to their size, so pairs are compared by ratio. The
//! statistics are those of the logarithm of `b ÷ a`. A figure that can be 0, such as a share of
//! errors, is compared by difference. The first of these that holds is the verdict:
//!
//! 1. Equivalent within a margin: two one-sided t tests, each at 5 %, reject that the effect
//!    reaches the margin (Schuirmann 1987).
//! 2. Different: the 95 % t interval of the mean effect excludes "no difference".
//! 3. Different in every round: each pair lies beyond the margin on the same side. Besides, the
//!    sides alone rule out chance (six pairs), or each pair differs at least twofold, or four or more
//!    figures of each variant do not overlap, which chance does in 2 of 70 runs (rank sum test). This
//!    assumes nothing about how rounds scatter. Without a difference, n pairs lie on one side with a
//!    probability of 2^(1−n) (sign test). The verdict carries that probability.
//! 4. Different in most rounds: the 95 % interval of the *median* effect lies beyond the margin. A
//!    single wild round, which widens the t interval without limit, does not hide a difference.
//! 5. Inconclusive: a difference and no difference are both possible.
//!
//! The t tests need three pairs, "every round" needs two, "most rounds" nine.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::median::{interval_at, median};
use super::sign::SignTest;

/// Significance level: probability of claiming an equivalence, or a difference by its interval,
/// that does not exist.
const ALPHA: f64 = 0.05;
/// Fewest pairs whose scatter can be estimated.
const MIN_PAIRS: usize = 3;
/// Fewest pairs for the verdict "different in every round".
const MIN_ROUNDS: usize = 2;
/// Factor that no small drift between two rounds explains.
const LARGE_FACTOR: f64 = 2.0;

/// How `b` is compared with `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Ratio `b ÷ a`: 1 is no difference.
    Ratio,
    /// Difference `b − a` in the unit of the figures: 0 is no difference.
    Difference,
}

/// How `b` compares with `a`, with an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    /// Whether the numbers are ratios or differences.
    pub scale: Scale,
    /// Estimate of the effect.
    pub point: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Verdict on `b` compared with `a`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Equivalence {
    /// Both are the same within the margin.
    Equivalent {
        /// Margin within which both count as the same, as a share of `a`.
        margin: f64,
        /// Larger p value of the two one-sided tests.
        p: f64,
    },
    /// The 95 % interval of the mean effect excludes "no difference".
    Different {
        /// Mean effect with its 95 % interval.
        effect: Effect,
    },
    /// Every round differs by more than the margin, to the same side.
    DifferentEachRound {
        /// Median of the rounds, with the smallest and the largest as its interval.
        effect: Effect,
        /// Number of rounds compared.
        rounds: usize,
        /// Probability that this many rounds lie on one side when there is no difference.
        chance: f64,
    },
    /// The interval of the median effect lies beyond the margin.
    DifferentInMostRounds {
        /// Median of the rounds with its interval.
        effect: Effect,
        /// Number of rounds on the side of the median.
        same_side: usize,
        /// Number of rounds compared.
        rounds: usize,
        /// Probability that so many rounds lie on one side when there is no difference.
        chance: f64,
    },
    /// A difference and no difference are both possible.
    Inconclusive {
        /// Mean effect with its 95 % interval; absent with fewer than three pairs.
        effect: Option<Effect>,
    },
}

/// Decides on pairs (a, b) of iterations that ran next to each other. `margin` is what counts as
/// the same, as a share of `a`.
///
/// A difference that is certain but smaller than the margin is an equivalence: the margin states
/// what matters.
pub fn compare_paired(pairs: &[(f64, f64)], margin: f64) -> Equivalence {
    compare_paired_among(pairs, margin, 1)
}

/// Decides as [`compare_paired`] does, on one of `comparisons` that could have been made: the level
/// of each test is divided by that number (Bonferroni), so that the pair that looks most different
/// is not called different more often than any one pair.
pub fn compare_paired_among(pairs: &[(f64, f64)], margin: f64, comparisons: usize) -> Equivalence {
    let alpha = ALPHA / comparisons.max(1) as f64;
    let effects = Effects::new(pairs, margin, alpha);
    let mean = effects.mean();
    match &mean {
        Some(mean) if mean.p < alpha => Equivalence::Equivalent { margin, p: mean.p },
        Some(mean) if mean.estimate.abs() > mean.half_width => {
            Equivalence::Different { effect: effects.mean_effect(mean) }
        }
        _ => effects.every_round(pairs).or_else(|| effects.most_rounds()).unwrap_or_else(|| {
            Equivalence::Inconclusive { effect: mean.as_ref().map(|mean| effects.mean_effect(mean)) }
        }),
    }
}

/// Effect of each pair, on a scale on which effects can be averaged.
struct Effects {
    scale: Scale,
    per_pair: Vec<f64>,
    /// Margin on the same scale.
    margin: f64,
    /// Level of each test.
    alpha: f64,
}

/// Mean of the effects, on their scale.
struct Mean {
    estimate: f64,
    /// Half of the width of its interval: 95 %, or more for one of several comparisons.
    half_width: f64,
    /// Larger p value of the two tests for equivalence.
    p: f64,
}

impl Effects {
    fn new(pairs: &[(f64, f64)], margin: f64, alpha: f64) -> Self {
        let ratios: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
        let positive = pairs.iter().all(|(a, b)| *a > 0.0 && *b > 0.0);
        if positive && ratios.iter().all(|ratio| ratio.is_finite()) {
            return Self { scale: Scale::Ratio, per_pair: ratios, margin: margin.ln_1p(), alpha };
        }
        let usual = median(&pairs.iter().map(|(a, _)| *a).collect::<Vec<_>>());
        let each = pairs.iter().map(|(a, b)| b - a).collect();
        Self { scale: Scale::Difference, per_pair: each, margin: usual.abs() * margin, alpha }
    }

    /// Mean effect; `None` with too few pairs, or when the mean or its interval is infinite.
    fn mean(&self) -> Option<Mean> {
        if self.per_pair.len() < MIN_PAIRS {
            return None;
        }
        let count = self.per_pair.len() as f64;
        let estimate = self.per_pair.iter().sum::<f64>() / count;
        let variance =
            self.per_pair.iter().map(|effect| (effect - estimate).powi(2)).sum::<f64>() / (count - 1.0);
        let error = (variance / count).sqrt();
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
        let give_or_take = error * student.inverse_cdf(1.0 - self.alpha / 2.0);
        let p = two_one_sided(&student, estimate, error, self.margin);
        Some(Mean { estimate, half_width: give_or_take, p })
            .filter(|mean| mean.estimate.is_finite() && mean.half_width.is_finite())
    }

    /// Verdict for pairs that all lie beyond the margin on one side, where chance is ruled out, each
    /// difference is large, or the two variants do not overlap; `None` otherwise.
    fn every_round(&self, pairs: &[(f64, f64)]) -> Option<Equivalence> {
        let rounds = pairs.len();
        let beyond = |sign: f64| self.per_pair.iter().all(|effect| effect * sign > self.margin);
        let ends = |side: fn(&(f64, f64)) -> f64| {
            let values = pairs.iter().map(side);
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            })
        };
        let (a, b) = (ends(|pair| pair.0), ends(|pair| pair.1));
        // Of 2n values in order, the first n belong to one variant in 2 of (2n over n) cases.
        let chance_apart = (1..=rounds).fold(2.0, |chance, n| chance * n as f64 / (rounds + n) as f64);
        let apart = chance_apart < self.alpha && (a.1 < b.0 || b.1 < a.0);
        let chance = SignTest::of(self.per_pair.iter().copied()).chance;
        let is_large = |effect: &f64| effect.abs() >= LARGE_FACTOR.ln();
        let large = self.scale == Scale::Ratio && self.per_pair.iter().all(is_large);
        let shown = apart || large || chance < self.alpha;
        if rounds < MIN_ROUNDS || !shown || !(beyond(1.0) || beyond(-1.0)) {
            return None;
        }
        let least = self.per_pair.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.per_pair.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let effect = self.effect(median(&self.per_pair), least, most);
        Some(Equivalence::DifferentEachRound { effect, rounds, chance })
    }

    /// Verdict for pairs whose median effect lies beyond the margin with all of its interval; `None`
    /// otherwise, and where no interval is as sure as the level requires.
    fn most_rounds(&self) -> Option<Equivalence> {
        let of = interval_at(&self.per_pair, 1.0 - self.alpha)?;
        if of.low <= self.margin && of.high >= -self.margin {
            return None;
        }
        let signs = SignTest::of(self.per_pair.iter().copied());
        Some(Equivalence::DifferentInMostRounds {
            effect: self.effect(of.point, of.low, of.high),
            same_side: signs.above.max(signs.below),
            rounds: self.per_pair.len(),
            chance: signs.chance,
        })
    }

    fn mean_effect(&self, mean: &Mean) -> Effect {
        self.effect(mean.estimate, mean.estimate - mean.half_width, mean.estimate + mean.half_width)
    }

    /// Converts an effect from its scale to ratios or differences.
    fn effect(&self, point: f64, low: f64, high: f64) -> Effect {
        let [point, low, high] = match self.scale {
            Scale::Ratio => [point, low, high].map(f64::exp),
            Scale::Difference => [point, low, high],
        };
        Effect { scale: self.scale, point, low, high }
    }
}

/// Larger p value of the two null hypotheses: the effect is at or below `-margin`, or at or above
/// `margin`.
fn two_one_sided(student: &StudentsT, estimate: f64, error: f64, margin: f64) -> f64 {
    if error <= 0.0 {
        return if estimate.abs() < margin { 0.0 } else { 1.0 };
    }
    let below = 1.0 - student.cdf((estimate + margin) / error);
    let above = student.cdf((estimate - margin) / error);
    below.max(above)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    /// Pairs whose ratios have the given logarithms.
    fn pairs(effects: &[f64]) -> Vec<(f64, f64)> {
        effects.iter().map(|effect| (100.0, 100.0 * effect.exp())).collect()
    }

    /// The margin at which the given effect lies.
    fn within(effect: f64) -> f64 {
        effect.exp_m1()
    }

    #[test]
    fn known_answers() {
        // Mean 0.1, deviation 0.1, n = 5: standard error 0.04472. t(0.975, 4) = 2.7764, so the
        // interval is 0.1 ± 0.12416.
        let all = pairs(&[0.1, 0.1 - 0.1 * 2.0_f64.sqrt(), 0.1 + 0.1 * 2.0_f64.sqrt(), 0.1, 0.1]);
        let Equivalence::Inconclusive { effect: Some(effect) } = compare_paired(&all, within(0.15)) else {
            panic!("{:?}", compare_paired(&all, within(0.15)))
        };
        assert_eq!(effect.scale, Scale::Ratio);
        for (seen, log) in [(effect.point, 0.1), (effect.low, 0.1 - 0.124_17), (effect.high, 0.1 + 0.124_17)]
        {
            assert!((seen.ln() - log).abs() < 1e-4, "{effect:?}");
        }
        // (0.1 − 0.25) ÷ 0.04472 = −3.354. There the t distribution with 4 degrees of freedom is
        // 0.0142.
        let Equivalence::Equivalent { p, .. } = compare_paired(&all, within(0.25)) else {
            panic!("equivalent within a factor of 1.28")
        };
        assert!((p - 0.0142).abs() < 2e-4, "{p}");
    }

    #[test]
    fn what_is_certain_is_said() {
        let far = compare_paired(&pairs(&[0.10, 0.11, 0.09, 0.105, 0.095]), 0.01);
        assert!(
            matches!(far, Equivalence::Different { effect } if (effect.point.ln() - 0.1).abs() < 1e-9),
            "{far:?}"
        );
        let same = compare_paired(&pairs(&[0.001, -0.001, 0.0005, -0.0005, 0.0]), 0.01);
        assert!(matches!(same, Equivalence::Equivalent { .. }), "{same:?}");
    }

    #[test]
    fn noise_and_few_iterations_prove_nothing() {
        let noisy = compare_paired(&pairs(&[0.5, -0.6, 0.4, -0.3, 0.05]), 0.1);
        assert!(matches!(noisy, Equivalence::Inconclusive { effect: Some(_) }), "{noisy:?}");
        for few in [&[][..], &[0.0], &[0.0, 0.0], &[3.0]] {
            let few = compare_paired(&pairs(few), 0.1);
            assert!(matches!(few, Equivalence::Inconclusive { effect: None }), "{few:?}");
        }
    }

    /// Ten times as much in every round, with rounds that scatter: by difference the interval
    /// contains 0.
    #[test]
    fn a_tenfold_difference_in_every_round_is_a_difference() {
        let scattered = [(10.0, 60.0), (8.0, 100.0), (12.0, 330.0), (9.0, 75.0)];
        let verdict = compare_paired(&scattered, 0.05);
        assert!(matches!(verdict, Equivalence::Different { effect } if effect.low > 1.0), "{verdict:?}");
        let two = compare_paired(&[(1.0, 10.0), (1.1, 10.5)], 0.05);
        let Equivalence::DifferentEachRound { effect, rounds: 2, chance } = two else { panic!("{two:?}") };
        assert!((chance - 0.5).abs() < 1e-12 && effect.low > 9.5 && effect.high < 10.1, "{two:?}");
        // The rounds scatter so much that the interval contains 1, but the two variants do not
        // overlap.
        let wild = [(1.0, 1.3), (1.0, 300.0), (1.0, 1.4), (1.0, 1.5)];
        let verdict = compare_paired(&wild, 0.05);
        let Equivalence::DifferentEachRound { rounds: 4, chance, .. } = verdict else {
            panic!("{verdict:?}")
        };
        assert!((chance - 0.125).abs() < 1e-12);
        let verdict = compare_paired(&wild[..3], 0.05);
        assert!(
            matches!(verdict, Equivalence::Inconclusive { .. }),
            "chance does that to three: {verdict:?}"
        );
        let few = compare_paired(&[(100.0, 120.0), (108.0, 116.0)], 0.05);
        assert!(matches!(few, Equivalence::Inconclusive { .. }), "chance does that to two: {few:?}");
        let other_way = compare_paired(&[(10.0, 1.0), (10.5, 1.1)], 0.05);
        assert!(
            matches!(other_way, Equivalence::DifferentEachRound { effect, .. } if effect.high < 0.2),
            "{other_way:?}"
        );
    }

    #[test]
    fn every_round_needs_two_rounds_the_margin_and_two_sides_apart() {
        for all in [
            &[(1.0, 10.0)][..],
            // One round lies within the margin.
            &[(1.0, 1.2), (1.0, 1.04)],
            // A round of one variant reaches a round of the other.
            &[(1.0, 1.2), (1.3, 1.6)],
            // The rounds lie on both sides.
            &[(1.0, 10.0), (1.0, 0.1)],
        ] {
            let verdict = compare_paired(all, 0.05);
            assert!(matches!(verdict, Equivalence::Inconclusive { effect: None }), "{all:?}: {verdict:?}");
        }
    }

    /// Ten times as much in every round, while the machine drifts so far that the variants overlap.
    #[test]
    fn a_large_difference_in_every_round_needs_no_steady_machine() {
        let drifting = [(1.0, 11.0), (12.0, 4_000.0), (300.0, 3_100.0)];
        let verdict = compare_paired(&drifting, 0.05);
        assert!(
            matches!(verdict, Equivalence::DifferentEachRound { effect, rounds: 3, .. } if effect.low > 10.0),
            "{verdict:?}"
        );
        // Six rounds rule out chance also where the difference is small and the rounds overlap.
        let mut small: Vec<(f64, f64)> =
            (1..=6).map(|round| (f64::from(round), f64::from(round) * 1.1)).collect();
        small[3].1 *= 400.0;
        let verdict = compare_paired(&small, 0.05);
        assert!(
            matches!(verdict, Equivalence::DifferentEachRound { rounds: 6, chance, .. } if chance < 0.05),
            "{verdict:?}"
        );
        small.pop();
        let verdict = compare_paired(&small, 0.05);
        assert!(matches!(verdict, Equivalence::Inconclusive { .. }), "five do not: {verdict:?}");
    }

    #[test]
    fn one_wild_round_does_not_hide_a_difference_of_all_others() {
        let mut effects = vec![0.7, 0.72, 0.69, 0.71, 0.7, 0.73, 0.68, 0.7, 0.71, -9.0];
        let verdict = compare_paired(&pairs(&effects), 0.05);
        let Equivalence::DifferentInMostRounds { effect, same_side: 9, rounds: 10, chance } = verdict else {
            panic!("{verdict:?}")
        };
        assert!(
            (chance - 22.0 / 1024.0).abs() < 1e-12 && effect.low > 1.9 && effect.high < 2.1,
            "{effect:?}"
        );
        // Two of eight: the interval of the median reaches to the wild rounds.
        effects.drain(..2);
        effects[0] = -8.0;
        let verdict = compare_paired(&pairs(&effects), 0.05);
        assert!(matches!(verdict, Equivalence::Inconclusive { effect: Some(_) }), "{verdict:?}");
    }

    #[test]
    fn what_is_picked_from_many_pairs_needs_more_evidence() {
        let seen = pairs(&[0.10, 0.12, 0.05, 0.13, 0.08]);
        let verdict = |comparisons| compare_paired_among(&seen, 0.01, comparisons);
        let Equivalence::Different { effect: one } = verdict(1) else { panic!("{:?}", verdict(1)) };
        let Equivalence::Different { effect: few } = verdict(3) else { panic!("{:?}", verdict(3)) };
        assert!(few.low < one.low && few.high > one.high, "{one:?} {few:?}");
        assert!(!matches!(verdict(200), Equivalence::Different { .. }), "{:?}", verdict(200));
        assert_eq!(verdict(1), compare_paired(&seen, 0.01));
    }

    #[test]
    fn a_figure_that_can_be_0_is_compared_by_difference() {
        let errors = [(0.0, 0.10), (0.0, 0.11), (0.001, 0.10), (0.0, 0.105)];
        let verdict = compare_paired(&errors, 0.05);
        let Equivalence::Different { effect } = verdict else { panic!("{verdict:?}") };
        assert!(effect.scale == Scale::Difference && (effect.point - 0.1035).abs() < 1e-9, "{effect:?}");
        assert!(
            matches!(compare_paired(&[(0.0, 0.0); 5], 0.05), Equivalence::Inconclusive { .. }),
            "no margin of nothing"
        );
    }

    #[test]
    fn a_margin_that_is_just_reached_is_not_kept() {
        let pairs = [(100.0, 102.0); 5];
        assert!(matches!(compare_paired(&pairs, 0.02), Equivalence::Different { .. }));
        assert!(matches!(compare_paired(&pairs, 0.021), Equivalence::Equivalent { .. }));
    }

    /// Without a difference, the t interval claims one in 5 % of runs, the interval of the median
    /// adds little to that, and "every round" claims one no more often than stated.
    #[test]
    fn a_difference_that_is_not_there_is_claimed_no_more_often_than_is_said() {
        let mut random = Random::new(5);
        for rounds in [2, 3, 5, 8, 12] {
            let runs = 4000;
            let (mut interval, mut each) = (0, 0);
            for _ in 0..runs {
                let mut value = || {
                    100.0
                        * (0.1
                            * (-2.0 * (1.0 - random.unit()).ln()).sqrt()
                            * (std::f64::consts::TAU * random.unit()).cos())
                        .exp()
                };
                let pairs: Vec<(f64, f64)> = (0..rounds).map(|_| (value(), value())).collect();
                match compare_paired(&pairs, 0.01) {
                    Equivalence::Different { .. } | Equivalence::DifferentInMostRounds { .. } => {
                        interval += 1;
                    }
                    Equivalence::DifferentEachRound { .. } => each += 1,
                    _ => {}
                }
            }
            let share = |count: i32| f64::from(count) / f64::from(runs);
            assert!(share(interval) < 0.07, "{rounds}: {}", share(interval));
            assert!(share(each) <= 2.0_f64.powi(1 - rounds), "{rounds}: {}", share(each));
        }
    }

    proptest! {
        #[test]
        fn a_wider_margin_never_takes_equivalence_back(
            effects in prop::collection::vec(-2.0_f64..2.0, 3..12), margin in 0.001_f64..2.0, more in 0.0_f64..2.0
        ) {
            let equivalent = |margin| matches!(compare_paired(&pairs(&effects), margin), Equivalence::Equivalent { .. });
            prop_assert!(!equivalent(margin) || equivalent(margin + more));
        }

        #[test]
        fn the_other_way_round_is_the_same_verdict(all in prop::collection::vec((1.0_f64..100.0, 1.0_f64..100.0), 0..12)) {
            let forth = compare_paired(&all, 0.2);
            let back: Vec<(f64, f64)> = all.iter().map(|(a, b)| (*b, *a)).collect();
            let back = compare_paired(&back, 0.2);
            prop_assert_eq!(std::mem::discriminant(&forth), std::mem::discriminant(&back));
        }

        #[test]
        fn no_verdict_has_a_figure_that_is_none(all in prop::collection::vec((0.0_f64..1e300, 0.0_f64..1e300), 0..6)) {
            let ends = match compare_paired(&all, 0.05) {
                Equivalence::Different { effect } | Equivalence::DifferentEachRound { effect, .. } | Equivalence::Inconclusive { effect: Some(effect) } => {
                    [effect.low, effect.point, effect.high]
                }
                _ => [0.0; 3],
            };
            prop_assert!(ends.iter().all(|end| !end.is_nan()) && ends[0] <= ends[1] && ends[1] <= ends[2], "{:?}", ends);
        }
    }
}
