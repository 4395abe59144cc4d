//! Retry budget: limits retries to a share of the requests, so that they cannot multiply the load on
//! an upstream that fails because of load.

use std::cell::{Cell, RefCell};

use crate::config::Retries;

/// Length of the period that the limit refers to, in seconds.
const WINDOW: usize = 10;

/// The requests and retries of one pool in the last seconds.
#[derive(Debug, Default)]
pub(super) struct RetryBudget {
    /// By second, modulo the length of the window.
    seconds: RefCell<[Second; WINDOW]>,
    /// The second that was counted last.
    latest: Cell<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    requests: u64,
    retries: u64,
}

impl RetryBudget {
    /// Counts a request. `now`: milliseconds since a fixed time.
    pub(super) fn count_request(&self, now: u64) {
        self.at(now, |second| second.requests += 1);
    }

    /// Whether one more retry is within the limits; counts it then.
    pub(super) fn take(&self, now: u64, limits: &Retries) -> bool {
        self.at(now, |_| {});
        let (requests, retries) = self
            .seconds
            .borrow()
            .iter()
            .fold((0, 0), |sum, second| (sum.0 + second.requests, sum.1 + second.retries));
        let share = requests * u64::from(limits.budget_percent) / 100;
        let allowed = share.max(u64::from(limits.min_per_second) * WINDOW as u64);
        let within = retries < allowed;
        if within {
            self.at(now, |second| second.retries += 1);
        }
        within
    }

    /// Changes the current second, after the seconds that have passed since the latest were cleared.
    fn at(&self, now: u64, change: impl FnOnce(&mut Second)) {
        let now = now / 1000;
        let mut seconds = self.seconds.borrow_mut();
        let passed = now.saturating_sub(self.latest.replace(now)).min(WINDOW as u64);
        for back in 0..passed {
            seconds[index(now - back)] = Second::default();
        }
        change(&mut seconds[index(now)]);
    }
}

fn index(second: u64) -> usize {
    usize::try_from(second % WINDOW as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(budget_percent: u32, min_per_second: u32) -> Retries {
        Retries {
            attempts: 2,
            on_connect_failure: true,
            on_reset: true,
            on_statuses: Vec::new(),
            budget_percent,
            min_per_second,
            per_try_timeout: None,
        }
    }

    fn taken(budget: &RetryBudget, now: u64, limits: &Retries) -> u32 {
        (0..1000).map(|_| u32::from(budget.take(now, limits))).sum()
    }

    #[test]
    fn retries_are_a_share_of_the_requests_of_the_last_seconds() {
        let budget = RetryBudget::default();
        let limits = limits(20, 0);
        assert_eq!(taken(&budget, 0, &limits), 0, "without requests there are no retries");
        for now in 0..100 {
            budget.count_request(now * 100);
        }
        assert_eq!(taken(&budget, 9_999, &limits), 20);
        assert_eq!(taken(&budget, 9_999, &limits), 0);
        for _ in 0..5 {
            budget.count_request(9_999);
        }
        assert_eq!(taken(&budget, 9_999, &limits), 1);
        // The requests leave the window second by second, the retries with the last.
        assert_eq!(taken(&budget, 18_000, &limits), 0);
        for now in 0..10 {
            budget.count_request(20_000 + now);
        }
        assert_eq!(taken(&budget, 20_010, &limits), 2);
    }

    #[test]
    fn few_retries_are_allowed_without_traffic() {
        let budget = RetryBudget::default();
        assert_eq!(taken(&budget, 1_000_000, &limits(20, 3)), 30);
        assert_eq!(taken(&budget, 1_009_999, &limits(20, 3)), 0);
        assert_eq!(taken(&budget, 1_010_000, &limits(20, 3)), 30);
    }
}
