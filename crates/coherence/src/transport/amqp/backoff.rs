//! Backoff: how long to wait before the next attempt.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Waits that grow with each failure. Each wait is between half of its nominal time and all of it.
/// So nodes that lost a broker together do not reconnect at the same time.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    random: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self { failures: 0, random: seed }
    }

    /// Resets the waits: the connection has lasted for a while.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Notes a failure; returns how long to wait now.
    pub(super) fn failed(&mut self) -> Duration {
        let full = SHORTEST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures += 1;
        full.mul_f64(0.5 + self.fraction() / 2.0)
    }

    /// A number from 0 to 1, by Steele's and Vigna's splitmix64.
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_are_spread() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<_> = (0..20).map(|_| backoff.failed()).collect();
        assert!((SHORTEST / 2..=SHORTEST).contains(&waits[0]));
        assert!((SHORTEST..=SHORTEST * 2).contains(&waits[1]));
        assert!(waits[10..].iter().all(|wait| (LONGEST / 2..=LONGEST).contains(wait)));
        assert!(waits[10..].windows(2).all(|two| two[0] != two[1]));
        backoff.succeeded();
        assert!(backoff.failed() <= SHORTEST);
        assert_ne!(Backoff::new(1).failed(), Backoff::new(2).failed());
    }
}
