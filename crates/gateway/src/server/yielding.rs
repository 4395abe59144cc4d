//! When a worker lets others use its core.
//!
//! Owns: noticing that a worker has run for long without sleeping. Does not own: the workers' order among themselves,
//! which is the system's.
//!
//! The system gives a core to whoever wakes, but takes it from whoever runs only at its clock tick (4 ms at 250 Hz). Two
//! workers that share a core for a moment, each with requests waiting at every turn, hold it for one or two ticks at a
//! time while the other's requests wait: the 99th percentile shows it. A worker that offers its core four times in a
//! millisecond spends a system call on it each time, and nothing else when nobody waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a worker runs before it offers its core.
const RUN: Duration = Duration::from_micros(250);
/// Asking for events takes less when there are some, even if the system receives packets meanwhile. Whoever slept for
/// less does no harm by offering its core as well.
const SLEPT: Duration = Duration::from_micros(100);

/// What is known of one worker's sleep. Times count from any fixed instant; they never go back.
#[derive(Default)]
pub(crate) struct Yielding {
    asked: AtomicU64,
    rested: AtomicU64,
}

impl Yielding {
    /// The worker asks for events, and sleeps if there are none.
    pub(crate) fn asks(&self, now: Duration) {
        self.asked.store(nanos(now), Ordering::Relaxed);
    }

    /// The worker has got events. True when it should offer its core first.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let now = nanos(now);
        // One thread writes both: nothing else depends on their order.
        let asked = self.asked.load(Ordering::Relaxed);
        let slept = now.saturating_sub(asked) >= nanos(SLEPT);
        let due = !slept && now.saturating_sub(self.rested.load(Ordering::Relaxed)) >= nanos(RUN);
        if slept || due {
            self.rested.store(now, Ordering::Relaxed);
        }
        due
    }
}

/// Wraps after 584 years.
#[allow(clippy::cast_possible_truncation, reason = "a process does not run for 584 years")]
fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks at `micros` and gets events after `took`.
    fn turn(worker: &Yielding, micros: u64, took: u64) -> bool {
        worker.asks(Duration::from_micros(micros));
        worker.is_due(Duration::from_micros(micros + took))
    }

    #[test]
    fn a_worker_that_always_finds_events_gives_way_four_times_in_a_millisecond() {
        let worker = Yielding::default();
        let given: Vec<_> = (1..=20).map(|at| at * 50).filter(|at| turn(&worker, *at, 2)).collect();
        assert_eq!(given, [250, 500, 750, 1000]);
    }

    #[test]
    fn a_worker_that_sleeps_in_between_does_not() {
        let worker = Yielding::default();
        let given = (1..=100).filter(|at| turn(&worker, at * 200, if at % 2 == 0 { 120 } else { 2 })).count();
        assert_eq!(given, 0);
    }

    #[test]
    fn a_worker_that_has_just_slept_does_not_however_long_that_took() {
        let worker = Yielding::default();
        assert!(!turn(&worker, 5, 60_000_000));
        assert!(!turn(&worker, 60_000_205, 2));
        assert!(turn(&worker, 60_000_305, 2));
    }
}
