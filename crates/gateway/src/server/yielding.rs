//! Yielding: when a worker offers its core to other threads.
//!
//! Owns: detecting that a worker has run for long without sleeping. Does not own: scheduling, which
//! is the system's.
//!
//! The system gives a core to a thread that wakes, but takes it from a running thread only at its
//! clock tick (4 ms at 250 Hz). Two workers that share a core for a moment, each with requests
//! waiting at every turn, hold it for one or two ticks at a time. The other's requests wait
//! meanwhile, which shows in the 99th percentile. A worker that offers its core four times in a
//! millisecond spends a system call each time, and nothing else when no thread waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a worker runs before it offers its core.
const MAX_RUN: Duration = Duration::from_micros(250);
/// A wait for events that took longer counts as sleep. A call that finds events returns sooner,
/// even if the system receives packets meanwhile. After a shorter sleep, offering the core does no
/// harm.
const MIN_SLEEP: Duration = Duration::from_micros(100);

/// Sleep times of one worker. Times count from a fixed instant and never decrease.
#[derive(Default)]
pub(crate) struct Yielding {
    waiting_since: AtomicU64,
    last_rest: AtomicU64,
}

impl Yielding {
    /// The worker waits for events, and sleeps if there are none.
    pub(crate) fn begin_wait(&self, now: Duration) {
        self.waiting_since.store(nanos(now), Ordering::Relaxed);
    }

    /// The worker has got events. True when it should offer its core first.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let now = nanos(now);
        // One thread writes both, and nothing depends on their order.
        let waiting_since = self.waiting_since.load(Ordering::Relaxed);
        let slept = now.saturating_sub(waiting_since) >= nanos(MIN_SLEEP);
        let due = !slept && now.saturating_sub(self.last_rest.load(Ordering::Relaxed)) >= nanos(MAX_RUN);
        if slept || due {
            self.last_rest.store(now, Ordering::Relaxed);
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

    /// Waits at `micros` and gets events after `took`.
    fn turn(worker: &Yielding, micros: u64, took: u64) -> bool {
        worker.begin_wait(Duration::from_micros(micros));
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
