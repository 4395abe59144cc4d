//! Change points: finds where a series of figures moves from one level to another.
//!
//! Owns: the search in a series with one value per run, and the size of a change with its interval.
//! Does not own: which runs may be in one series.
//!
//! 1. Every split with at least [`MIN_SIDE`] values on both sides is tested with the exact rank-sum
//!    test of Wilcoxon, Mann and Whitney, which assumes nothing about how values scatter. Equal
//!    values share their mean rank. The distribution is computed for the ranks that occur.
//! 2. The smallest probability is multiplied by the number of splits (Bonferroni). If the product
//!    is below [`SIGNIFICANCE`], the level changed.
//! 3. The change is located at the split with the smallest sum of absolute deviations from the
//!    medians of both sides.
//! 4. Both sides are searched in the same way (binary segmentation).
//! 5. Changes of the level by less than the margin are dropped, the smallest first.
//!
//! A series of fewer than [`MIN_CHANGE_VALUES`] values cannot reach the bound, so it has no change.
//! A level that soon returns to its former value can be missed: the rest of the series is then
//! equal on both sides of each split.

use serde::Serialize;

use super::median::{Interval, median};

/// Fewest values on either side of a change.
pub const MIN_SIDE: usize = 3;
/// Fewest values of a series that can have a change: with one less, even a perfect separation in
/// the middle has a probability above the bound.
pub const MIN_CHANGE_VALUES: usize = 13;
/// Most values that are searched, the latest ones.
pub const MAX_CHANGE_VALUES: usize = 60;
/// Probability of a change, in a series without one, from which it is not claimed.
pub const SIGNIFICANCE: f64 = 0.01;
/// Probability outside of the interval of a ratio.
const ALPHA: f64 = 0.05;

/// A change of the level of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ChangePoint {
    /// Index of the first value after the change.
    pub index: usize,
    /// Median of the values before it, back to the former change.
    pub before: f64,
    /// Median of the values from it on, up to the next change.
    pub after: f64,
    /// Interval of the ratio after ÷ before; absent with too few values, and where one is not above
    /// 0. The place of the change comes from the same values, so it is a little too narrow.
    pub ratio: Option<Interval>,
    /// Upper bound of the probability that a series without a change shows one like it.
    pub chance: f64,
}

/// Finds the changes of a series, in its order. `margin` is the smallest change of the level that
/// matters, as a share of the level before it. Only the latest [`MAX_CHANGE_VALUES`] values are
/// searched; none of them may be infinite or NaN.
pub fn change_points(values: &[f64], margin: f64) -> Vec<ChangePoint> {
    let skipped = values.len().saturating_sub(MAX_CHANGE_VALUES);
    let searched = &values[skipped..];
    if searched.iter().any(|value| !value.is_finite()) {
        return Vec::new();
    }
    let mut splits = Vec::new();
    segment(searched, 0, &mut splits);
    splits.sort_by_key(|split| split.index);
    while let Some(least) = smallest_change(searched, &splits, margin) {
        splits.remove(least);
    }
    let levels = levels(searched, &splits);
    splits
        .iter()
        .zip(levels.windows(2))
        .map(|(split, level)| ChangePoint {
            index: skipped + split.index,
            before: median(level[0]),
            after: median(level[1]),
            ratio: ratio(level[0], level[1]),
            chance: split.chance,
        })
        .collect()
}

/// A place at which the level changes.
#[derive(Debug, Clone, Copy)]
struct Split {
    index: usize,
    chance: f64,
}

/// Searches a part of the series that begins at `offset`, and then both sides of what it finds.
fn segment(values: &[f64], offset: usize, found: &mut Vec<Split>) {
    if values.len() < MIN_CHANGE_VALUES {
        return;
    }
    let chance = chance_of_level(values);
    if chance >= SIGNIFICANCE {
        return;
    }
    let index = located(values);
    found.push(Split { index: offset + index, chance });
    segment(&values[..index], offset, found);
    segment(&values[index..], offset + index, found);
}

/// Indices at which a part may be split.
fn possible_splits(length: usize) -> std::ops::RangeInclusive<usize> {
    MIN_SIDE..=length.saturating_sub(MIN_SIDE)
}

/// Upper bound of the probability that values of one level are as far apart in order as these.
fn chance_of_level(values: &[f64]) -> f64 {
    let ranks = doubled_ranks(values);
    let sums = RankSums::of(&ranks);
    let splits = possible_splits(values.len());
    let many = splits.clone().count() as f64;
    let mut sum: usize = ranks[..MIN_SIDE - 1].iter().sum();
    let mut least = 1.0_f64;
    for split in splits {
        sum += ranks[split - 1];
        least = least.min(sums.two_sided(split, sum));
    }
    (least * many).min(1.0)
}

/// The split with the smallest sum of absolute deviations from the medians of both sides.
fn located(values: &[f64]) -> usize {
    let deviation = |part: &[f64]| {
        let level = median(part);
        part.iter().map(|value| (value - level).abs()).sum::<f64>()
    };
    let cost = |split: &usize| deviation(&values[..*split]) + deviation(&values[*split..]);
    let all = possible_splits(values.len());
    all.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(MIN_SIDE)
}

/// Parts of the series between its changes.
fn levels<'a>(values: &'a [f64], splits: &[Split]) -> Vec<&'a [f64]> {
    let ends = splits.iter().map(|split| split.index).chain([values.len()]);
    let mut from = 0;
    ends.map(|end| {
        let part = &values[from..end];
        from = end;
        part
    })
    .collect()
}

/// The split with the smallest change of the level, if that is below the margin.
fn smallest_change(values: &[f64], splits: &[Split], margin: f64) -> Option<usize> {
    let levels: Vec<f64> = levels(values, splits).into_iter().map(median).collect();
    let size = |pair: &[f64]| {
        let difference = (pair[1] - pair[0]).abs();
        if difference > 0.0 { difference / pair[0].abs() } else { 0.0 }
    };
    let sizes = levels.windows(2).map(size).enumerate();
    sizes.filter(|(_, size)| *size < margin).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// Ranks of the values from 1, doubled so that the mean rank of equal values is whole.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| other.total_cmp(value).is_lt()).count();
        let equal = values.iter().filter(|other| other.total_cmp(value).is_eq()).count();
        2 * below + equal + 1
    };
    values.iter().map(rank).collect()
}

/// Number of ways to choose some of the ranks, by how many are chosen and by their sum.
struct RankSums {
    /// `ways[chosen][sum]`, for up to half of the ranks.
    ways: Vec<Vec<f64>>,
    length: usize,
    total: usize,
}

impl RankSums {
    fn of(ranks: &[usize]) -> Self {
        let (length, total) = (ranks.len(), ranks.iter().sum::<usize>());
        let mut ways = vec![vec![0.0; total + 1]; length / 2 + 1];
        ways[0][0] = 1.0;
        let mut reached = 0;
        for (number, rank) in ranks.iter().enumerate() {
            for chosen in (1..=(length / 2).min(number + 1)).rev() {
                let (fewer, more) = ways.split_at_mut(chosen);
                let (from, to) = (&fewer[chosen - 1], &mut more[0]);
                for (sum, count) in from[..=reached].iter().enumerate() {
                    to[sum + rank] += count;
                }
            }
            reached += rank;
        }
        Self { ways, length, total }
    }

    /// Probability that the sum of `chosen` ranks is as far from its mean as `sum`, or farther.
    fn two_sided(&self, chosen: usize, sum: usize) -> f64 {
        // The ranks that are not chosen are as far from their mean.
        let (chosen, sum) =
            if chosen * 2 > self.length { (self.length - chosen, self.total - sum) } else { (chosen, sum) };
        let mean = self.total as f64 * chosen as f64 / self.length as f64;
        let far = (sum as f64 - mean).abs();
        let ways = &self.ways[chosen];
        // Sums that differ from the mean by the same amount may differ in the last bit.
        let outside = ways.iter().enumerate().filter(|(at, _)| (*at as f64 - mean).abs() >= far - 1e-9);
        outside.map(|(_, count)| count).sum::<f64>() / ways.iter().sum::<f64>()
    }
}

/// Interval of the ratio of two levels, from all ratios of a value after to one before (Hodges and
/// Lehmann; Moses). `None` where a value is not above 0, and with so few values that no interval
/// has 95 %.
fn ratio(before: &[f64], after: &[f64]) -> Option<Interval> {
    if before.iter().chain(after).any(|value| *value <= 0.0) {
        return None;
    }
    let mut ratios: Vec<f64> =
        before.iter().flat_map(|before| after.iter().map(move |after| after / before)).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (outside, confidence) = ratios_outside(before.len(), after.len())?;
    Some(Interval {
        point: median(&ratios),
        low: ratios[outside],
        high: ratios[ratios.len() - 1 - outside],
        confidence,
    })
}

/// How many of the sorted ratios lie outside of the interval on either side, and its confidence.
fn ratios_outside(before: usize, after: usize) -> Option<(usize, f64)> {
    let untied: Vec<usize> = (1..=before + after).map(|rank| 2 * rank).collect();
    let fewer = before.min(after);
    let sums = RankSums::of(&untied);
    let ways = &sums.ways[fewer];
    let all: f64 = ways.iter().sum();
    // The smallest sum of the doubled ranks belongs to the value 0 of Mann and Whitney's statistic.
    let least = fewer * (fewer + 1);
    let (mut below, mut ends) = (0.0, None);
    for outside in 0..before * after / 2 {
        below += ways[least + 2 * outside] / all;
        if below > ALPHA / 2.0 {
            break;
        }
        ends = Some((outside, 1.0 - 2.0 * below));
    }
    ends
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    /// Values that scatter by `noise` around levels, each with its number of values.
    fn series(levels: &[(usize, f64)], noise: f64, random: &mut Random) -> Vec<f64> {
        let each = levels.iter().flat_map(|(many, level)| std::iter::repeat_n(*level, *many));
        each.map(|level| level * (1.0 + noise * (random.unit() - 0.5))).collect()
    }

    fn places(values: &[f64]) -> Vec<usize> {
        change_points(values, 0.05).iter().map(|change| change.index).collect()
    }

    #[test]
    fn probabilities_are_those_of_the_tables() {
        // All ways to choose k of n, by hand: a perfect separation is one of them on either side.
        let ranks = doubled_ranks(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let sums = RankSums::of(&ranks);
        assert!((sums.two_sided(3, 2 + 4 + 6) - 2.0 / 35.0).abs() < 1e-12);
        assert!((sums.two_sided(4, 8 + 10 + 12 + 14) - 2.0 / 35.0).abs() < 1e-12, "the other side alike");
        assert!((sums.two_sided(3, 2 + 4 + 8) - 4.0 / 35.0).abs() < 1e-12);
        assert!((sums.two_sided(3, 24) - 1.0).abs() < 1e-12, "the mean itself");
        // With ties: of 1, 2, 2, 3 two are chosen in six ways, with the doubled sums 7, 7, 10, 10,
        // 13, 13.
        let ranks = doubled_ranks(&[1.0, 2.0, 2.0, 3.0]);
        assert_eq!(ranks, [2, 5, 5, 8]);
        assert!((RankSums::of(&ranks).two_sided(2, 7) - 4.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn the_fewest_values_are_those_that_can_reach_the_bound() {
        let apart = |length: usize| (0..length).map(|at| if at < length / 2 { 1.0 } else { 2.0 }).collect();
        let enough: Vec<f64> = apart(MIN_CHANGE_VALUES);
        let few: Vec<f64> = apart(MIN_CHANGE_VALUES - 1);
        assert!(chance_of_level(&few) >= SIGNIFICANCE);
        // Distinct values, so that nothing is gained by ties.
        let rising = |length: usize| (0..length).map(|at| at as f64).collect::<Vec<_>>();
        assert!(chance_of_level(&rising(MIN_CHANGE_VALUES)) < SIGNIFICANCE);
        assert!(chance_of_level(&rising(MIN_CHANGE_VALUES - 1)) >= SIGNIFICANCE);
        assert_eq!((places(&enough), places(&few)), (vec![6], vec![]));
    }

    #[test]
    fn a_step_is_found_where_it_is_with_its_size() {
        let mut random = Random::new(5);
        for _ in 0..40 {
            let values = series(&[(17, 100.0), (6, 120.0)], 0.06, &mut random);
            let found = change_points(&values, 0.05);
            assert_eq!(found.len(), 1, "{values:?}");
            assert_eq!(found[0].index, 17);
            let ratio = found[0].ratio.unwrap();
            assert!((ratio.point - 1.2).abs() < 0.04 && ratio.low < ratio.point && ratio.confidence >= 0.95);
            assert!(found[0].chance < SIGNIFICANCE, "{}", found[0].chance);
        }
    }

    #[test]
    fn several_steps_each_have_the_levels_beside_them() {
        let mut random = Random::new(9);
        let values = series(&[(16, 100.0), (16, 130.0), (16, 90.0)], 0.05, &mut random);
        let found = change_points(&values, 0.05);
        assert_eq!(found.iter().map(|change| change.index).collect::<Vec<_>>(), [16, 32]);
        assert!((found[0].after - found[1].before).abs() < 1e-9 && (found[1].after - 90.0).abs() < 3.0);
    }

    #[test]
    fn a_change_below_the_margin_is_none_however_certain() {
        let mut random = Random::new(3);
        let values = series(&[(15, 100.0), (15, 102.0)], 0.001, &mut random);
        assert_eq!(change_points(&values, 0.05), []);
        assert_eq!(change_points(&values, 0.01).len(), 1);
        let none = [vec![0.0; 10], vec![1.0; 10]].concat();
        let found = change_points(&none, 0.05);
        assert!(found.len() == 1 && found[0].ratio.is_none(), "from nothing to something: {found:?}");
    }

    #[test]
    fn what_only_scatters_is_seldom_called_a_change() {
        let mut random = Random::new(21);
        for (length, rounds) in [(13, 600_u32), (20, 600), (40, 200), (60, 100)] {
            let claimed = (0..rounds)
                .filter(|_| !change_points(&series(&[(length, 100.0)], 0.5, &mut random), 0.0).is_empty())
                .count();
            assert!(claimed as f64 <= 2.0 * SIGNIFICANCE * f64::from(rounds), "{length}: {claimed}");
        }
    }

    #[test]
    fn the_interval_of_a_ratio_contains_it_as_often_as_is_said() {
        let mut random = Random::new(8);
        for (before, after) in [(4, 9), (5, 5), (3, 12)] {
            let rounds: u32 = 2000;
            let mut confidence = 0.0;
            let inside = (0..rounds).filter(|_| {
                let old = series(&[(before, 100.0)], 0.4, &mut random);
                let new = series(&[(after, 130.0)], 0.4, &mut random);
                let of = ratio(&old, &new).unwrap();
                confidence = of.confidence;
                !of.excludes(1.3)
            });
            let share = inside.count() as f64 / f64::from(rounds);
            // Four standard deviations of a share of this many observations.
            assert!((share - confidence).abs() < 0.02, "{before}, {after}: {share}, said {confidence}");
        }
        assert_eq!(ratio(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), None, "three and three prove nothing");
        assert_eq!(ratio(&[0.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0]), None);
    }

    #[test]
    fn only_the_latest_values_are_searched_and_keep_their_index() {
        let mut random = Random::new(4);
        let values = series(&[(40, 50.0), (60, 100.0), (20, 200.0)], 0.05, &mut random);
        assert_eq!(places(&values), [100], "the step at 40 is too old");
    }

    #[test]
    fn what_is_no_number_is_not_searched() {
        let mut values = vec![1.0; 20];
        values[4] = f64::INFINITY;
        assert_eq!(change_points(&values, 0.05), []);
        assert_eq!(change_points(&[], 0.05), []);
    }

    proptest! {
        #[test]
        fn any_series_has_changes_in_order_with_both_sides(values in prop::collection::vec(0.0_f64..1e6, 0..40)) {
            let found = change_points(&values, 0.0);
            prop_assert!(found.windows(2).all(|pair| pair[1].index >= pair[0].index + MIN_SIDE));
            for change in found {
                prop_assert!(change.index >= MIN_SIDE && change.index + MIN_SIDE <= values.len());
                prop_assert!(change.chance > 0.0 && change.chance < SIGNIFICANCE);
            }
        }
    }
}
