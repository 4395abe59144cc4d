//! Attribution: computes what each hop costs, from variants that add one hop after the other.
//!
//! Owns: the differences between neighbouring rungs with their intervals, and the total.
//!
//! Nothing is estimated. A hop's cost is the median over rounds of "with the hop" minus "without
//! the hop", both measured in the same round. Medians do not add up exactly, so the parts need not
//! sum to the total. The report states the rest.

use serde::Serialize;

use super::median::{Interval, interval, median, paired_difference};
use crate::units;

/// Cost of one hop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HopCost {
    /// Name of the hop.
    pub hop: String,
    /// What the hop adds, in the unit of the figures. For the first rung: what the service alone
    /// costs.
    pub adds: f64,
    /// Interval of the added cost; absent with too few rounds.
    pub interval: Option<Interval>,
    /// Whether the interval excludes 0, so that the hop certainly has a cost. Always true for the
    /// first rung.
    pub certain: bool,
}

/// Cost of all hops of a ladder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attribution {
    /// Costs of the rungs, the service alone first.
    pub shares: Vec<HopCost>,
    /// Figure of the last rung: the service with every hop.
    pub whole: f64,
    /// Last rung minus first rung: what all added hops cost together. Absent with too few rounds.
    pub added: Option<Interval>,
    /// The last rung's figure minus the sum of the shares.
    pub rest: f64,
    /// Number of rounds in which every rung was measured.
    pub rounds: usize,
}

/// Attributes cost to hops. Each rung is a name and one figure per round, with the rounds in the
/// same order for all rungs.
///
/// Rounds that one of the rungs lacks are left out. Returns `None` for fewer than two rungs or
/// without a common round.
pub fn attribute(rungs: &[(String, Vec<f64>)]) -> Option<Attribution> {
    let rounds = rungs.iter().map(|(_, figures)| figures.len()).min().unwrap_or(0);
    let (first, last) = (rungs.first()?, rungs.last()?);
    if rungs.len() < 2 || rounds == 0 {
        return None;
    }
    let mut shares = vec![HopCost {
        hop: first.0.clone(),
        adds: median(&first.1[..rounds]),
        interval: interval(&first.1[..rounds]),
        certain: true,
    }];
    for pair in rungs.windows(2) {
        let pairs = zip(&pair[0].1, &pair[1].1, rounds);
        let differences: Vec<f64> =
            pairs.iter().map(|(without, with)| units::difference(*with, *without)).collect();
        let interval = paired_difference(&pairs);
        shares.push(HopCost {
            hop: pair[1].0.clone(),
            adds: median(&differences),
            interval,
            certain: interval.is_some_and(|interval| interval.excludes(0.0)),
        });
    }
    let whole = median(&last.1[..rounds]);
    let parts: Vec<f64> = shares.iter().map(|share| share.adds).collect();
    let added = paired_difference(&zip(&first.1, &last.1, rounds));
    Some(Attribution { shares, whole, added, rest: units::remainder(whole, &parts), rounds })
}

fn zip(a: &[f64], b: &[f64], rounds: usize) -> Vec<(f64, f64)> {
    a[..rounds].iter().copied().zip(b[..rounds].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    fn ladder(costs: &[(&str, f64)], rounds: usize, noise: f64, seed: u64) -> Vec<(String, Vec<f64>)> {
        let mut random = Random::new(seed);
        let drift: Vec<f64> = (0..rounds).map(|round| round as f64 * 30.0).collect();
        let mut sum = 0.0;
        let rungs = costs.iter().map(|(name, cost)| {
            sum += cost;
            let figures = drift.iter().map(|drift| sum + drift + (random.unit() - 0.5) * noise);
            ((*name).to_owned(), figures.collect())
        });
        rungs.collect()
    }

    #[test]
    fn known_costs_are_found_through_the_drift() {
        let costs = [("service", 100.0), ("gateway", 40.0), ("authentication", 7.0), ("authorization", 0.0)];
        let (mut held, mut invented) = (0, 0);
        for seed in 0..40 {
            let found = attribute(&ladder(&costs, 10, 2.0, seed)).unwrap();
            let shares: Vec<&HopCost> = found.shares.iter().skip(1).collect();
            assert_eq!(
                shares.iter().map(|share| share.hop.as_str()).collect::<Vec<_>>(),
                costs.map(|c| c.0)[1..]
            );
            assert!(shares[0].certain && shares[1].certain, "{shares:?}");
            let holds = |(share, cost): (&&HopCost, f64)| !share.interval.unwrap().excludes(cost);
            held += usize::from(shares.iter().zip([40.0, 7.0, 0.0]).all(holds));
            invented += usize::from(shares[2].certain);
            assert!(found.rest.abs() < 3.0 && found.rounds == 10, "{found:?}");
        }
        assert!(held >= 30 && invented <= 5, "{held} of 40 runs held all three, {invented} made up a cost");
    }

    #[test]
    fn parts_that_are_the_whole_but_for_rounding_leave_nothing() {
        let rungs = [("service", 0.1), ("gateway", 0.3), ("authentication", 0.6)];
        let rungs = rungs.map(|(name, figure)| (name.to_owned(), vec![figure; 5]));
        let found = attribute(&rungs).unwrap();
        assert_eq!(found.rest.to_bits(), 0, "{:e}", found.rest);
    }

    #[test]
    fn few_rounds_have_no_interval_and_claim_nothing() {
        let found = attribute(&ladder(&[("service", 100.0), ("gateway", 40.0)], 3, 1.0, 1)).unwrap();
        assert!(found.shares[1].interval.is_none() && !found.shares[1].certain);
        assert_eq!(attribute(&ladder(&[("service", 1.0)], 9, 1.0, 1)), None);
        assert_eq!(attribute(&ladder(&[("a", 1.0), ("b", 1.0)], 0, 1.0, 1)), None);
    }

    proptest! {
        #[test]
        fn without_noise_the_parts_are_the_whole(costs in prop::collection::vec(0.0_f64..1000.0, 2..6), rounds in 5_usize..12) {
            let named: Vec<(&str, f64)> = costs.iter().map(|cost| ("hop", *cost)).collect();
            let rungs = ladder(&named, rounds, 0.0, 1);
            let found = attribute(&rungs).unwrap();
            prop_assert!(found.rest.abs() < 1e-6);
            let added: f64 = costs[1..].iter().sum();
            prop_assert!((found.added.unwrap().point - added).abs() < 1e-6);
        }
    }
}
