//! Outliers: finds iterations that deviate from the others.
//!
//! Owns: the test. An outlier shifts the mean and the standard deviation and so hides itself. The
//! median and the median absolute deviation (MAD) do not move. An outlier is reported, never
//! dropped: its cause may be the finding.

use serde::Serialize;

use super::median::median;

/// Modified z score from which a value is an outlier (Iglewicz and Hoaglin 1993).
const OUTLIER_SCORE: f64 = 3.5;
/// Ratio of the MAD to the standard deviation of a normal distribution.
const MAD_PER_DEVIATION: f64 = 0.6745;
/// Ratio of the mean absolute deviation to the standard deviation of a normal distribution. It is
/// used when more than half of the values are equal, because the MAD is 0 then.
const MEAN_DEVIATION_PER_DEVIATION: f64 = 0.7979;
/// Smallest deviation that counts, as a share of the median, however close the other values are.
/// Among five values the MAD is often small by chance.
const MIN_DEVIATION: f64 = 0.1;
/// Fewest values from which the usual value is known.
const MIN_VALUES: usize = 4;

/// A value that deviates from the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outlier {
    /// Index of the value, from 0.
    pub index: usize,
    /// The value itself.
    pub value: f64,
    /// Usual value: the median of all values.
    pub usual: f64,
    /// Deviation from the usual value in robust standard deviations, with its sign.
    pub score: f64,
}

/// Finds the outliers among values, in their order; none among fewer than four values.
pub fn outliers(values: &[f64]) -> Vec<Outlier> {
    if values.len() < MIN_VALUES {
        return Vec::new();
    }
    let usual = median(values);
    let deviations: Vec<f64> = values.iter().map(|value| (value - usual).abs()).collect();
    let mad = median(&deviations);
    let deviation = if mad > 0.0 {
        mad / MAD_PER_DEVIATION
    } else {
        deviations.iter().sum::<f64>() / deviations.len() as f64 / MEAN_DEVIATION_PER_DEVIATION
    };
    if deviation <= 0.0 {
        return Vec::new();
    }
    let odd = |(index, &value): (usize, &f64)| {
        let score = (value - usual) / deviation;
        let material = (value - usual).abs() >= MIN_DEVIATION * usual.abs();
        (score.abs() > OUTLIER_SCORE && material).then_some(Outlier { index, value, usual, score })
    };
    values.iter().enumerate().filter_map(odd).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(values: &[f64]) -> Vec<usize> {
        outliers(values).iter().map(|outlier| outlier.index).collect()
    }

    #[test]
    fn the_published_iteration_five_is_found() {
        assert_eq!(places(&[2.8299, 3.2003, 2.9317, 3.4856, 12.5513]), [4]);
        assert_eq!(places(&[19.08, 18.77, 18.83, 18.74, 16.66]), [4]);
    }

    #[test]
    fn healthy_iterations_are_left_alone() {
        assert_eq!(places(&[2.9939, 2.9697, 2.9851, 2.9717, 2.9716]), Vec::<usize>::new());
        assert_eq!(places(&[29.45, 29.04, 28.72, 28.65, 29.39]), Vec::<usize>::new());
    }

    #[test]
    fn equal_values_do_not_hide_an_odd_one_and_do_not_make_one() {
        assert_eq!(places(&[5.0, 5.0, 5.0, 5.0, 5.0, 9.0]), [5]);
        assert_eq!(places(&[5.0; 6]), Vec::<usize>::new());
        assert_eq!(
            places(&[100.0, 100.0, 100.0, 100.0, 100.0, 101.0]),
            Vec::<usize>::new(),
            "1 % is nothing"
        );
    }

    #[test]
    fn three_values_do_not_tell_what_is_usual() {
        assert_eq!(places(&[1.0, 1.0, 100.0]), Vec::<usize>::new());
    }

    proptest! {
        #[test]
        fn one_value_far_off_is_found(mut values in prop::collection::vec(90.0_f64..110.0, 5..20), at: prop::sample::Index) {
            let index = at.index(values.len());
            values[index] = 10_000.0;
            prop_assert!(places(&values).contains(&index));
        }

        #[test]
        fn order_does_not_matter(values in prop::collection::vec(1.0_f64..1000.0, 4..20)) {
            let mut backwards = values.clone();
            backwards.reverse();
            prop_assert_eq!(places(&values).len(), places(&backwards).len());
        }
    }
}
