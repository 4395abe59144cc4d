//! Wait for a core: how long threads of a program were ready to run and had no core.
//!
//! Owns: the wait between two samples, per request, and beside the time on a core.
//! Does not own: taking the samples.
//!
//! The kernel counts a wait when it ends. It sums the waits of all threads, so it may be longer than
//! the time in which it happened.

use super::{CpuUse, window};
use crate::record::Iteration;

/// Wait of a program for a core in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreWait {
    /// Time for which threads waited for a core, µs, summed over threads.
    pub wait_us: f64,
    /// CPU that the program used in the same time.
    pub cpu: CpuUse,
    /// Requests that completed in the same time.
    requests: f64,
}

impl CoreWait {
    /// Wait of a component in the measured window; `None` when it was not observed, or fewer than two
    /// samples lie in the window.
    pub fn in_window(iteration: &Iteration, name: &str) -> Option<Self> {
        let component = iteration.observed(name)?;
        let (first, last) = window(iteration, component)?;
        let wait = last.core_wait_us?.saturating_sub(first.core_wait_us?);
        let cpu = CpuUse::between(component, first, last)?;
        let ended: u64 = iteration.classes.iter().map(|class| class.count).sum();
        let requests = ended as f64 / iteration.seconds * cpu.wall_us / 1e6;
        Some(Self { wait_us: wait as f64, cpu, requests })
    }

    /// Wait per completed request, µs; `None` when less than one completed.
    pub fn per_request_us(&self) -> Option<f64> {
        (self.requests >= 1.0).then(|| self.wait_us / self.requests)
    }

    /// Wait as a share of the time in which threads wanted a core: they had one or waited for one.
    /// `None` when the program did hardly anything.
    pub fn share(&self) -> Option<f64> {
        let wanted = self.wait_us + self.cpu.used_us;
        (wanted > self.cpu.error_us).then(|| self.wait_us / wanted)
    }

    /// Number of threads that waited for a core, on average.
    pub fn threads(&self) -> f64 {
        self.wait_us / self.cpu.wall_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Class, Component, Outcome, Sample};

    fn iteration(samples: [(u64, u64, Option<u64>); 2]) -> Iteration {
        let sample = |(at_ms, cpu_us, core_wait_us)| Sample {
            at_ms,
            cpu_us: Some(cpu_us),
            core_wait_us,
            ..Sample::default()
        };
        let component = Component {
            name: "gateway".to_owned(),
            cpu_limit_cores: None,
            memory_limit_bytes: None,
            cpu_error_us: Some(1000),
            samples: samples.map(sample).to_vec(),
            counters: std::collections::BTreeMap::new(),
            ended: false,
        };
        let class = Class {
            outcome: Outcome::Ok,
            status: Some(200),
            fault: None,
            count: 2000,
            latency: None,
            example: None,
        };
        Iteration { classes: vec![class], components: vec![component], ..Iteration::new(1, 2.0) }
    }

    #[test]
    fn a_wait_is_per_request_of_its_own_window() {
        // One of the two seconds lies between the samples, so half of the requests.
        let seen = iteration([(500, 0, Some(100)), (1500, 300_000, Some(900_100))]);
        let wait = CoreWait::in_window(&seen, "gateway").unwrap();
        assert_eq!(wait.per_request_us(), Some(900.0));
        assert_eq!(wait.share(), Some(0.75));
        assert!((wait.threads() - 0.9).abs() < 1e-9);
    }

    #[test]
    fn a_wait_that_was_not_observed_is_absent() {
        assert_eq!(CoreWait::in_window(&iteration([(0, 0, None), (1000, 9, Some(5))]), "gateway"), None);
        let idle = iteration([(0, 0, Some(0)), (1000, 400, Some(300))]);
        let wait = CoreWait::in_window(&idle, "gateway").unwrap();
        assert_eq!(wait.share(), None, "within the error of the clock");
        assert_eq!(CoreWait::in_window(&idle, "nobody"), None);
    }
}
