//! Whether two variants are the same for a purpose, differ, or cannot be told apart with what was measured.
//!
//! Owns: the verdict over paired iterations. "No difference was found" is no verdict: with few or noisy iterations it is always
//! true. Equivalence within a margin is claimed only when two one-sided t tests, each at 5 %, both refuse that the difference
//! reaches the margin (Schuirmann 1987); a difference is claimed when the 95 % interval of the mean difference leaves out 0.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Chance of claiming equivalence that is not there.
const ALPHA: f64 = 0.05;
/// Fewest pairs that a verdict is given for.
const LEAST: usize = 3;

/// What can be said about `b − a`. All figures are in the unit of the observations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The same within the margin.
    Equivalent {
        /// What counts as the same.
        margin: f64,
        /// Mean difference.
        by: f64,
        /// The larger p value of the two tests.
        p: f64,
    },
    /// Different.
    Different {
        /// Mean difference.
        by: f64,
        /// Half of its 95 % interval.
        give_or_take: f64,
    },
    /// Neither can be said.
    Inconclusive {
        /// Mean difference.
        by: f64,
        /// Half of its 95 % interval; infinite with fewer than three pairs.
        give_or_take: f64,
    },
}

/// Judges pairs (a, b) of iterations that ran next to each other. `margin` is what counts as the same, in the pairs' unit.
///
/// A difference that is certain but smaller than the margin is equivalence: the margin says what matters.
pub fn compare_paired(pairs: &[(f64, f64)], margin: f64) -> Verdict {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    let count = differences.len() as f64;
    let by = if differences.is_empty() { 0.0 } else { differences.iter().sum::<f64>() / count };
    if differences.len() < LEAST {
        return Verdict::Inconclusive { by, give_or_take: f64::INFINITY };
    }
    let variance = differences.iter().map(|value| (value - by).powi(2)).sum::<f64>() / (count - 1.0);
    let error = (variance / count).sqrt();
    let Ok(student) = StudentsT::new(0.0, 1.0, count - 1.0) else {
        return Verdict::Inconclusive { by, give_or_take: f64::INFINITY };
    };
    let give_or_take = error * student.inverse_cdf(1.0 - ALPHA / 2.0);
    let p = two_one_sided(&student, by, error, margin);
    if p < ALPHA {
        Verdict::Equivalent { margin, by, p }
    } else if by.abs() > give_or_take {
        Verdict::Different { by, give_or_take }
    } else {
        Verdict::Inconclusive { by, give_or_take }
    }
}

/// The larger p value of "not more than the margin below" and "not more than the margin above".
fn two_one_sided(student: &StudentsT, by: f64, error: f64, margin: f64) -> f64 {
    if error <= 0.0 {
        return if by.abs() < margin { 0.0 } else { 1.0 };
    }
    let below = 1.0 - student.cdf((by + margin) / error);
    let above = student.cdf((by - margin) / error);
    below.max(above)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(differences: &[f64]) -> Vec<(f64, f64)> {
        differences.iter().map(|difference| (100.0, 100.0 + difference)).collect()
    }

    #[test]
    fn known_answers() {
        // Mean 1, deviation 1, n 5: standard error 0.4472. t(0.975, 4) = 2.7764, so 1 ± 1.2416.
        let differences = pairs(&[1.0, 1.0 - 2.0_f64.sqrt(), 1.0 + 2.0_f64.sqrt(), 1.0, 1.0]);
        let Verdict::Inconclusive { by, give_or_take } = compare_paired(&differences, 1.5) else {
            panic!("{:?}", compare_paired(&differences, 1.5))
        };
        assert!((by - 1.0).abs() < 1e-9 && (give_or_take - 1.2417).abs() < 1e-3, "{by} {give_or_take}");
        // (1 − 2.5) ÷ 0.4472 = −3.354; the t distribution with 4 degrees of freedom is 0.0142 there.
        let Verdict::Equivalent { p, .. } = compare_paired(&differences, 2.5) else {
            panic!("equivalent within 2.5")
        };
        assert!((p - 0.0142).abs() < 2e-4, "{p}");
    }

    #[test]
    fn what_is_certain_is_said() {
        let far = compare_paired(&pairs(&[10.0, 11.0, 9.0, 10.5, 9.5]), 1.0);
        assert!(matches!(far, Verdict::Different { by, .. } if (by - 10.0).abs() < 1e-9), "{far:?}");
        let same = compare_paired(&pairs(&[0.1, -0.1, 0.05, -0.05, 0.0]), 1.0);
        assert!(matches!(same, Verdict::Equivalent { .. }), "{same:?}");
    }

    #[test]
    fn noise_and_few_iterations_prove_nothing() {
        let noisy = compare_paired(&pairs(&[50.0, -60.0, 40.0, -30.0, 5.0]), 10.0);
        assert!(matches!(noisy, Verdict::Inconclusive { .. }), "{noisy:?}");
        let few = compare_paired(&pairs(&[0.0, 0.0]), 10.0);
        assert!(
            matches!(few, Verdict::Inconclusive { give_or_take, .. } if give_or_take.is_infinite()),
            "{few:?}"
        );
    }

    #[test]
    fn a_margin_that_is_just_reached_is_not_kept() {
        assert!(matches!(compare_paired(&pairs(&[2.0; 5]), 2.0), Verdict::Different { .. }));
        assert!(matches!(compare_paired(&pairs(&[2.0; 5]), 2.1), Verdict::Equivalent { .. }));
    }

    proptest! {
        #[test]
        fn a_wider_margin_never_takes_equivalence_back(
            differences in prop::collection::vec(-100.0_f64..100.0, 3..12), margin in 0.1_f64..200.0, more in 0.0_f64..200.0
        ) {
            let equivalent =
                |margin| matches!(compare_paired(&pairs(&differences), margin), Verdict::Equivalent { .. });
            prop_assert!(!equivalent(margin) || equivalent(margin + more));
        }

        #[test]
        fn the_other_way_round_is_the_same_verdict(differences in prop::collection::vec(-100.0_f64..100.0, 3..12)) {
            let forth = compare_paired(&pairs(&differences), 20.0);
            let back: Vec<f64> = differences.iter().map(|difference| -difference).collect();
            let back = compare_paired(&pairs(&back), 20.0);
            prop_assert_eq!(std::mem::discriminant(&forth), std::mem::discriminant(&back));
        }
    }
}
