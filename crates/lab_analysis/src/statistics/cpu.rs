//! CPU use: how much CPU a program used in a window, and whether the window is long enough to say
//! so.
//!
//! Owns: how exact the difference between two samples is, and how exact it has to be to count as a
//! figure.
//! Does not own: taking the samples.
//!
//! A figure that is not exact enough is absent, with the reason. It is neither 0 nor a number that
//! mostly shows the resolution of a clock.

use crate::formatting;
use crate::record::{Component, Iteration, Sample};

/// Largest error of a figure, as a share of it.
const MAX_RELATIVE_ERROR: f64 = 0.1;
/// Largest error of a figure in cores, where that is larger: a program that uses hardly any CPU is
/// known to do so.
const MAX_ERROR_CORES: f64 = 0.01;
/// Error of a difference between two samples in µs, where a record states none. User and system
/// time are each cut to ticks of 10 ms.
const TICK_ERROR_US: u64 = 20_000;

/// CPU that a program used between two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuUse {
    /// CPU used, as counted, µs.
    pub used_us: f64,
    /// Largest possible error of `used_us`, µs.
    pub error_us: f64,
    /// Time between the two samples, µs.
    pub wall_us: f64,
}

impl CpuUse {
    /// CPU of a component in the measured window; `None` when fewer than two samples lie in it.
    pub fn in_window(iteration: &Iteration, name: &str) -> Option<Self> {
        let component = iteration.observed(name)?;
        let (first, last) = super::window(iteration, component)?;
        Self::between(component, first, last)
    }

    /// CPU of a component between two samples; `None` when no time passed between them.
    pub(crate) fn between(component: &Component, first: &Sample, last: &Sample) -> Option<Self> {
        let used = match (first.cpu_us, last.cpu_us) {
            (Some(first), Some(last)) => last.saturating_sub(first),
            _ => (last.user_ms + last.system_ms).saturating_sub(first.user_ms + first.system_ms) * 1000,
        };
        let wall = last.at_ms.saturating_sub(first.at_ms) * 1000;
        (wall > 0).then(|| Self {
            used_us: used as f64,
            error_us: component.cpu_error_us.unwrap_or(TICK_ERROR_US) as f64,
            wall_us: wall as f64,
        })
    }

    /// Cores in use on average; `None` when the window is too short for that.
    pub fn cores(&self) -> Option<f64> {
        let off = self.error_us <= (MAX_RELATIVE_ERROR * self.used_us).max(MAX_ERROR_CORES * self.wall_us);
        (self.wall_us > 0.0 && off).then(|| self.used_us / self.wall_us)
    }

    /// Cores in use on average; `None` when they are not exact enough to be divided by a request
    /// rate.
    pub fn exact_cores(&self) -> Option<f64> {
        self.cores().filter(|_| self.error_us <= MAX_RELATIVE_ERROR * self.used_us)
    }

    /// Upper bound of the cores in use on average.
    pub fn max_cores(&self) -> f64 {
        (self.used_us + self.error_us) / self.wall_us
    }

    /// Whether less CPU was counted than the error of the count: then only the upper bound is
    /// known.
    pub fn is_within_error(&self) -> bool {
        self.used_us < self.error_us
    }

    /// CPU of several components together; `None` when there is none.
    pub(super) fn sum(all: &[Self]) -> Option<Self> {
        let first = all.first()?;
        // The windows differ by one sampling interval at most, so each use is scaled by its own
        // window.
        let sum =
            |of: fn(&Self) -> f64| all.iter().map(|one| of(one) / one.wall_us).sum::<f64>() * first.wall_us;
        Some(Self {
            used_us: sum(|one| one.used_us),
            error_us: sum(|one| one.error_us),
            wall_us: first.wall_us,
        })
    }

    /// Explains why the CPU is not a figure.
    pub fn why_inexact(&self) -> String {
        format!(
            "{} ± {} of CPU between samples {} apart: at most {} cores",
            formatting::time(self.used_us),
            formatting::time(self.error_us),
            formatting::time(self.wall_us),
            formatting::digits(self.max_cores())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(used_ms: f64, error_ms: f64, wall_ms: f64) -> CpuUse {
        CpuUse { used_us: used_ms * 1e3, error_us: error_ms * 1e3, wall_us: wall_ms * 1e3 }
    }

    #[test]
    fn a_window_that_is_too_short_has_no_figure() {
        // 10 ms counted in 70 ms, by a clock with a resolution of 10 ms.
        let short = cpu(10.0, 20.0, 70.0);
        assert_eq!((short.cores(), short.exact_cores()), (None, None));
        assert_eq!(
            short.why_inexact(),
            "10.0 ms ± 20.0 ms of CPU between samples 70.0 ms apart: at most 0.429 cores"
        );
        assert_eq!(cpu(0.0, 20.0, 20.0).cores(), None, "0 is no figure either");
        assert_eq!(cpu(60.0, 4.0, 70.0).cores(), Some(60.0 / 70.0), "a finer clock tells");
    }

    #[test]
    fn who_rests_is_known_to_rest_in_a_long_window_and_costs_nothing_that_is_known() {
        let idle = cpu(1.0, 8.0, 5000.0);
        assert!(idle.is_within_error() && (idle.cores().unwrap() - 0.0002).abs() < 1e-12);
        assert_eq!(idle.exact_cores(), None);
        assert!((idle.max_cores() - 0.0018).abs() < 1e-12);
    }

    #[test]
    fn what_is_known_of_all_together_may_not_be_known_of_each() {
        let all = [cpu(500.0, 8.0, 1000.0), cpu(9.0, 8.0, 900.0)];
        let together = CpuUse::sum(&all).unwrap();
        assert_eq!(all[1].exact_cores(), None);
        assert!((together.exact_cores().unwrap() - 0.51).abs() < 1e-9, "{together:?}");
        assert_eq!(CpuUse::sum(&[]), None);
    }

    #[test]
    fn looks_of_earlier_programs_count_in_ticks() {
        let component = Component {
            name: "x".to_owned(),
            cpu_limit_cores: None,
            memory_limit_bytes: None,
            cpu_error_us: None,
            samples: Vec::new(),
            counters: std::collections::BTreeMap::new(),
            ended: false,
        };
        let look = |at_ms, user_ms, cpu_us| Sample { at_ms, user_ms, cpu_us, ..Sample::default() };
        let between = |first, last| CpuUse::between(&component, &first, &last);
        assert_eq!(between(look(0, 0, None), look(50, 10, None)), Some(cpu(10.0, 20.0, 50.0)));
        assert_eq!(between(look(0, 0, Some(1000)), look(50, 10, Some(13_000))), Some(cpu(12.0, 20.0, 50.0)));
        assert_eq!(between(look(50, 0, None), look(50, 10, None)), None);
    }
}
