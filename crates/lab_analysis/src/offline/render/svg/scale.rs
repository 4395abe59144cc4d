//! Scales: convert figures to coordinates, with round numbers on the axis.

use crate::formatting;
use crate::units::index;

/// Quantity of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Latency in µs.
    Time,
    /// Latency in µs, on a logarithmic axis.
    TimeLog,
    /// Seconds since the start.
    Clock,
    /// A rate per second.
    Rate,
    /// Number of cores.
    Cores,
    /// CPU time in µs.
    CpuTime,
    /// A share of 1, shown as per cent.
    Share,
    /// Quantiles with a stretched tail: 0.9 and 0.99 are as far apart as 0 and 0.9.
    Tail,
    /// Memory in bytes.
    Bytes,
    /// A plain number.
    Number,
    /// Number of an iteration.
    Iteration,
    /// Offered load: requests per second, or workers.
    Load,
}

/// An axis with its range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    unit: Unit,
    low: f64,
    high: f64,
}

impl Unit {
    /// Label of the axis.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Time => "latency",
            Self::TimeLog => "latency (logarithmic)",
            Self::Clock => "seconds since the start of the iteration",
            Self::Rate => "per second",
            Self::Cores => "cores",
            Self::CpuTime => "CPU time",
            Self::Share => "share",
            Self::Tail => "share of requests that are not slower",
            Self::Bytes => "resident memory",
            Self::Number => "",
            Self::Iteration => "iteration",
            Self::Load => "offered load: requests per second, or workers",
        }
    }

    /// Name of the unit in files of data.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Time | Self::TimeLog | Self::CpuTime => "us",
            Self::Clock => "s",
            Self::Rate => "1/s",
            Self::Cores => "cores",
            Self::Share | Self::Tail => "share",
            Self::Bytes => "bytes",
            Self::Number | Self::Iteration | Self::Load => "",
        }
    }

    pub(super) fn write(self, value: f64) -> String {
        match self {
            Self::Time | Self::TimeLog | Self::CpuTime if value == 0.0 => "0".to_owned(),
            Self::Time | Self::TimeLog | Self::CpuTime => short(&formatting::time(value)),
            Self::Share | Self::Tail => format!("{} %", plain(value * 100.0)),
            Self::Bytes => short(&formatting::bytes(value)),
            Self::Clock | Self::Rate | Self::Cores | Self::Number | Self::Iteration | Self::Load => {
                plain(value)
            }
        }
    }

    /// A round distance between ticks, in the unit of their labels.
    fn step(self, range: f64) -> f64 {
        let written = if self == Self::Bytes { 1_048_576.0 } else { 1.0 };
        step(range / written) * written
    }

    /// Position of a value before scaling: its logarithm, or with the tail stretched.
    fn stretch(self, value: f64) -> f64 {
        match self {
            Self::TimeLog => value.max(1e-3).log10(),
            // The axis ends at 99.999 %: beyond it there is one request in a hundred thousand.
            Self::Tail => -(1.0 - value.min(0.99999)).log10(),
            _ => value,
        }
    }
}

fn plain(value: f64) -> String {
    let text = format!("{value:.5}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if value.abs() >= 10_000.0 { formatting::grouped(value) } else { text.to_owned() }
}

/// Removes zeros after the decimal point: `5.00 ms` is `5 ms` on an axis.
fn short(text: &str) -> String {
    let Some((number, unit)) = text.split_once(' ') else { return text.to_owned() };
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

impl Scale {
    /// Creates an axis that contains all values. A linear axis includes 0, because a cut axis makes
    /// any difference look large.
    pub(super) fn of(unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let sound = values.filter(|value| value.is_finite());
        let (least, most) = sound.fold((f64::MAX, f64::MIN), |(l, m), value| (l.min(value), m.max(value)));
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        match unit {
            Unit::Tail => Self { unit, low: 0.0, high: 0.99999 },
            Unit::TimeLog => {
                let (low, high) = (least.max(1.0).log10().floor(), most.max(2.0).log10());
                // Up to the next of 1, 2, 5 or 10 in the decade.
                let decade = 10.0_f64.powf(high.floor());
                let high =
                    [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * decade).find(|edge| *edge >= most * 0.999);
                let low = 10.0_f64.powf(low);
                let low = [5.0, 2.0, 1.0]
                    .into_iter()
                    .map(|s| s * low)
                    .find(|edge| *edge <= least.max(1.0))
                    .unwrap_or(low);
                Self { unit, low, high: high.unwrap_or(most).max(low * 10.0) }
            }
            Unit::Clock => Self { unit, low: least, high: if most > least { most } else { least + 1.0 } },
            _ => {
                let step = unit.step(most.max(0.0) - least.min(0.0));
                let low = (least.min(0.0) / step).floor() * step;
                let high = ((most.max(0.0) / step).ceil() * step).max(low + step);
                Self { unit, low, high }
            }
        }
    }

    /// Lower and upper end of the axis.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Coordinate of a value between `from` and `to`; a value outside of the axis is moved to its
    /// end.
    pub(super) fn coordinate(&self, value: f64, from: f64, to: f64) -> f64 {
        let (low, high) = (self.unit.stretch(self.low), self.unit.stretch(self.high));
        let share = (self.unit.stretch(value) - low) / (high - low).max(f64::MIN_POSITIVE);
        from + share.clamp(0.0, 1.0) * (to - from)
    }

    /// Round values on the axis, with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<f64> = match self.unit {
            Unit::Tail => vec![0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999],
            Unit::TimeLog => self.decades(),
            _ => {
                let step = self.unit.step(self.high - self.low);
                let first = (self.low / step - 1e-9).ceil();
                let many = index((self.high / step + 1e-9).floor() - first);
                (0..=many).map(|at| (first + at as f64) * step).collect()
            }
        };
        values.into_iter().map(|value| (value, self.unit.write(value))).collect()
    }

    fn decades(&self) -> Vec<f64> {
        let wide = (self.high / self.low).log10() > 2.5;
        let marks: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor();
        let decades = index(self.high.log10().ceil() - first);
        let all = (0..=decades)
            .flat_map(|decade| marks.iter().map(move |mark| mark * 10.0_f64.powf(first + decade as f64)));
        all.filter(|value| (self.low * 0.999..=self.high * 1.001).contains(value)).collect()
    }
}

/// A round distance between ticks, about five to a range.
fn step(range: f64) -> f64 {
    let rough = if range > 0.0 { range / 5.0 } else { 0.2 };
    let decade = 10.0_f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0]
        .into_iter()
        .map(|s| s * decade)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(unit: Unit, values: &[f64]) -> Vec<String> {
        Scale::of(unit, values.iter().copied()).ticks().into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round_and_have_units() {
        assert_eq!(texts(Unit::Time, &[300.0, 4700.0]), ["0", "1 ms", "2 ms", "3 ms", "4 ms", "5 ms"]);
        assert_eq!(texts(Unit::Share, &[0.42]), ["0 %", "10 %", "20 %", "30 %", "40 %", "50 %"]);
        assert_eq!(texts(Unit::Cores, &[0.2]), ["0", "0.05", "0.1", "0.15", "0.2"]);
        assert_eq!(texts(Unit::TimeLog, &[300.0, 4700.0]), ["200 µs", "500 µs", "1 ms", "2 ms", "5 ms"]);
    }

    #[test]
    fn nothing_to_show_still_has_an_axis() {
        assert!(texts(Unit::Rate, &[]).len() >= 2);
        assert!(texts(Unit::Rate, &[0.0]).len() >= 2);
        assert!(texts(Unit::TimeLog, &[0.0]).len() >= 2);
    }

    proptest! {
        #[test]
        fn every_value_lies_between_the_ends(values in prop::collection::vec(0.0_f64..1e9, 1..20)) {
            for unit in [Unit::Time, Unit::TimeLog, Unit::Rate, Unit::Clock] {
                let scale = Scale::of(unit, values.iter().copied());
                let ticks = scale.ticks();
                prop_assert!(ticks.len() <= 25, "{unit:?} {ticks:?}");
                for value in &values {
                    let at = scale.coordinate(*value, 10.0, 20.0);
                    prop_assert!((10.0..=20.0).contains(&at));
                }
                prop_assert!(ticks.windows(2).all(|pair| pair[0].0 < pair[1].0), "{ticks:?}");
            }
        }
    }
}
