//! Random numbers: repeatable pseudo-random numbers for arrival times and the choice of tokens. Not
//! for secrets.

/// A small generator (`SplitMix64`). It is good enough to spread arrivals and to choose tokens, and
/// gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator. The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a uniform number in (0, 1]. It is never 0, so that its logarithm is finite.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: the bias is below bound / 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an exponentially distributed number with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

/// Picks which of `n` tokens a request carries.
#[derive(Debug, Clone)]
pub(crate) enum TokenPicker {
    /// Each token in turn.
    RoundRobin { count: usize, next: usize },
    /// Token k with weight 1 / k^s. The cumulative weights are computed once.
    Zipf { cumulative: Vec<f64>, random: Random },
}

impl TokenPicker {
    pub(crate) fn round_robin(count: usize) -> Self {
        Self::RoundRobin { count, next: 0 }
    }

    pub(crate) fn zipf(count: usize, exponent: f64, random: Random) -> Self {
        let mut sum = 0.0;
        let weights = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self::Zipf { cumulative: weights.collect(), random }
    }

    pub(crate) fn next(&mut self) -> usize {
        match self {
            Self::RoundRobin { count, next } => {
                let picked = *next;
                *next = if picked + 1 >= *count { 0 } else { picked + 1 };
                picked
            }
            Self::Zipf { cumulative, random } => {
                let total = cumulative.last().copied().unwrap_or(0.0);
                let point = random.unit() * total;
                cumulative.partition_point(|&sum| sum < point).min(cumulative.len().saturating_sub(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_robin_visits_all_in_turn() {
        let mut pick = TokenPicker::round_robin(3);
        let picked: Vec<usize> = (0..7).map(|_| pick.next()).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn zipf_weights_follow_the_rank() {
        let mut pick = TokenPicker::zipf(100, 1.0, Random::new(1));
        let mut seen = [0_u32; 100];
        for _ in 0..100_000 {
            seen[pick.next()] += 1;
        }
        // The harmonic number of 100 is 5.187: rank 1 gets 19.3 %, rank 2 half of it.
        assert!((f64::from(seen[0]) / 100_000.0 - 0.1928).abs() < 0.01, "{}", seen[0]);
        assert!((f64::from(seen[0]) / f64::from(seen[1]) - 2.0).abs() < 0.15);
        assert!(seen[99] > 0);
    }

    #[test]
    fn the_unit_interval_excludes_zero() {
        let mut random = Random::new(0);
        assert!((0..100_000).map(|_| random.unit()).all(|value| value > 0.0 && value <= 1.0));
    }
}
