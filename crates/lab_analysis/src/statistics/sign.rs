//! Sign test: whether chance alone puts so many pairs on one side.
//!
//! Owns: the exact two-sided test on the signs of differences (Conover, Practical Nonparametric
//! Statistics, §3.4). It assumes nothing but that rounds are independent, and ignores sizes.

/// Sides of pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignTest {
    /// Pairs whose second value is higher.
    pub above: usize,
    /// Pairs whose second value is lower.
    pub below: usize,
    /// Probability of sides at least as uneven when neither is more likely.
    pub chance: f64,
}

impl SignTest {
    /// Counts the sides of differences. A difference of 0 is on neither side.
    pub fn of(differences: impl IntoIterator<Item = f64>) -> Self {
        let (mut above, mut below) = (0_usize, 0_usize);
        for difference in differences {
            above += usize::from(difference > 0.0);
            below += usize::from(difference < 0.0);
        }
        Self { above, below, chance: two_sided(above.min(below), above + below) }
    }
}

/// Probability that of `all` tosses of a coin at most `fewer`, or at least as many of the other
/// side, show one side.
fn two_sided(fewer: usize, all: usize) -> f64 {
    // As even as possible: no result is more even, and a sum would be 1 but for rounding.
    if 2 * fewer + 1 >= all {
        return 1.0;
    }
    // Logarithm of (all over at) ÷ 2^all: the value itself underflows for many rounds.
    let mut chance = -(all as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for at in 0..=fewer {
        sum += chance.exp();
        chance += ((all - at) as f64 / (at as f64 + 1.0)).ln();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        for (signs, chance) in [
            (&[1.0, 2.0, 3.0, 4.0, 5.0][..], 0.0625),
            (&[-1.0; 8], 0.007_812_5),
            // Nine of ten: 2 · (1 + 10) ÷ 1024.
            (&[1.0, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 22.0 / 1024.0),
            // A pair without a difference does not count.
            (&[1.0, 0.0, 1.0], 0.5),
            (&[1.0, -1.0], 1.0),
            (&[1.0, -1.0, 1.0, -1.0, 1.0], 1.0),
            (&[], 1.0),
            (&[0.0; 4], 1.0),
        ] {
            let found = SignTest::of(signs.iter().copied());
            assert!((found.chance - chance).abs() < 1e-12, "{signs:?}: {found:?}");
            assert_eq!(found.chance < 1.0, chance < 1.0, "{signs:?}: all is not almost all");
        }
        let many = SignTest::of((0..1000).map(|at| if at < 450 { -1.0 } else { 1.0 }));
        assert_eq!((many.above, many.below), (550, 450));
        // A normal distribution with a continuity correction gives 0.00173.
        assert!((many.chance - 0.001_73).abs() < 2e-5, "{many:?}");
    }
}
