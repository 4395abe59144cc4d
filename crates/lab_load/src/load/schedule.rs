//! Schedule: when requests start.
//!
//! Everything here is a function of the plan and its seed, so that a run can be repeated. The
//! backlog of an overloaded server needs no queue: it consists of the due requests that the cursor
//! has not passed.
//!
//! Owns: arrival times and whether an arrival is measured. Does not own: clocks and connections.

use std::time::Duration;

use lab_analysis::units::{nanos, nanos_of_seconds};

use super::random::Random;

/// How requests arrive.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// Closed loop: each worker starts its next request when its last one ended. Throughput is then
    /// only concurrency ÷ latency, and a stall hides the requests that were never sent.
    Closed {
        /// Requests in flight at the same time.
        concurrency: usize,
    },
    /// Open loop: requests start at their scheduled times, independent of the server.
    Open(Open),
}

/// Open-loop arrivals: spacing and rates.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// How the time between two arrivals is drawn.
    pub spacing: InterArrival,
    /// Consecutive rates. The warm-up precedes them at the start rate of the first step. The last
    /// rate continues until the run stops.
    pub steps: Vec<Step>,
}

/// Distribution of the time between two arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterArrival {
    /// Always the same time.
    Constant,
    /// Exponentially distributed: independent users.
    Poisson,
}

/// A rate, or a ramp between two rates, for a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Requests per second at the start of the step; 0 is a pause.
    pub rate: f64,
    /// Requests per second at the end of the step. The rate changes linearly.
    pub to: f64,
    /// Duration of the step.
    pub duration: Duration,
}

impl Step {
    /// Creates a step with a constant rate.
    pub fn steady(rate: f64, duration: Duration) -> Self {
        Self { rate, to: rate, duration }
    }

    /// Average number of requests that are due in the step.
    pub fn requests(&self) -> f64 {
        self.rate.midpoint(self.to) * self.duration.as_secs_f64()
    }

    /// Whether the rate is constant.
    pub fn is_steady(&self) -> bool {
        self.rate.to_bits() == self.to.to_bits()
    }
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// No request starts later than this after the warm-up.
    After(Duration),
    /// Exactly this many requests start after the warm-up.
    Count(u64),
}

/// A request that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// Intended start, nanoseconds since the start of the run.
    pub(crate) at: u64,
    /// `true` if the request is due after the warm-up.
    pub(crate) measured: bool,
}

/// A step with its absolute end time.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// Requests per second at its start.
    rate: f64,
    /// Increase of the rate, in requests per second per second.
    slope: f64,
    /// End of the step, nanoseconds since the start of the run.
    end: u64,
}

impl Segment {
    /// Number of requests that are due in the first `seconds`.
    fn due_after(&self, seconds: f64) -> f64 {
        (self.rate + self.slope * seconds / 2.0) * seconds
    }

    /// Seconds from the start until `requests` are due; `None` if the rate falls to 0 before that.
    fn time_of(&self, requests: f64) -> Option<f64> {
        if requests <= 0.0 {
            return (self.rate > 0.0 || self.slope > 0.0).then_some(0.0);
        }
        // A falling rate may reach 0 before: the root is then not a number.
        let root = (self.rate * self.rate + 2.0 * self.slope * requests).sqrt();
        Some(2.0 * requests / (self.rate + root)).filter(|seconds| seconds.is_finite())
    }
}

/// Cursor over an open-loop schedule.
pub(crate) struct Arrivals {
    spacing: InterArrival,
    /// Consecutive rates. The warm-up is part of the first one, or precedes it as an entry of its
    /// own if the first rate is not constant.
    segments: Vec<Segment>,
    current: usize,
    /// Start of the current stretch, and arrivals since then. Arrival times are computed from both,
    /// not summed, so that the rate does not drift.
    origin: u64,
    emitted: u64,
    next: Option<u64>,
    warmup: u64,
    stop: Stop,
    measured: u64,
    random: Random,
}

impl Arrivals {
    pub(crate) fn new(open: &Open, warmup: Duration, stop: Stop, random: Random) -> Self {
        let warmup = nanos(warmup);
        let mut stretches: Vec<Segment> = Vec::new();
        let mut end = warmup;
        // The warm-up is part of the first step if both have the same constant rate.
        if let Some(first) = open.steps.first().filter(|first| !first.is_steady() && warmup > 0) {
            stretches.push(Segment { rate: first.rate, slope: 0.0, end });
        }
        for step in &open.steps {
            end = end.saturating_add(nanos(step.duration));
            let slope =
                if step.is_steady() { 0.0 } else { (step.to - step.rate) / step.duration.as_secs_f64() };
            // A step of zero duration has no finite slope.
            let slope = if slope.is_finite() { slope } else { 0.0 };
            stretches.push(Segment { rate: step.rate, slope, end });
        }
        // The last rate continues until the run stops.
        match (stretches.last_mut(), open.steps.last()) {
            (Some(last), _) if last.slope.abs() < f64::MIN_POSITIVE => last.end = u64::MAX,
            (_, Some(last)) => stretches.push(Segment { rate: last.to, slope: 0.0, end: u64::MAX }),
            _ => {}
        }
        let mut arrivals = Self {
            spacing: open.spacing,
            segments: stretches,
            current: 0,
            origin: 0,
            emitted: 0,
            next: Some(0),
            warmup,
            stop,
            measured: 0,
            random,
        };
        arrivals.advance(0);
        arrivals
    }

    /// Next request to start; `None` when the schedule is exhausted.
    pub(crate) fn peek(&self) -> Option<Due> {
        let at = self.next?;
        let measured = at >= self.warmup;
        let ended = match self.stop {
            Stop::After(duration) => at >= self.warmup.saturating_add(nanos(duration)),
            Stop::Count(count) => measured && self.measured >= count,
        };
        (!ended).then_some(Due { at, measured })
    }

    /// Moves past the arrival that [`Arrivals::peek`] shows.
    pub(crate) fn pop(&mut self) {
        let Some(due) = self.peek() else { return };
        self.measured += u64::from(due.measured);
        self.advance(due.at);
    }

    /// Ends the schedule immediately.
    pub(crate) fn finish(&mut self) {
        self.next = None;
    }

    /// Finds the arrival after `last`; enters later steps where necessary.
    fn advance(&mut self, last: u64) {
        let mut last = last;
        while let Some(stretch @ Segment { end, .. }) = self.segments.get(self.current).copied() {
            if let Some(at) = self.draw_arrival(stretch, last)
                && at < end
            {
                self.emitted += 1;
                self.next = Some(at);
                return;
            }
            if end == u64::MAX {
                break;
            }
            // The exponential distribution is memoryless: drawing again from the boundary is exact,
            // not an approximation.
            (self.current, self.origin, self.emitted, last) = (self.current + 1, end, 0, end);
        }
        self.next = None;
    }

    fn draw_arrival(&mut self, stretch: Segment, last: u64) -> Option<u64> {
        if stretch.rate <= 0.0 && stretch.slope <= 0.0 {
            return None;
        }
        // For a Poisson process with a changing rate, the expected number of arrivals between two
        // requests is exponential with mean 1.
        let due = match self.spacing {
            InterArrival::Constant => self.emitted as f64,
            InterArrival::Poisson if stretch.slope.abs() < f64::MIN_POSITIVE => {
                let wait = self.random.exponential() / stretch.rate;
                return Some(last.saturating_add(nanos_of_seconds(wait)));
            }
            InterArrival::Poisson => {
                stretch.due_after((last - self.origin) as f64 / 1e9) + self.random.exponential()
            }
        };
        Some(self.origin.saturating_add(nanos_of_seconds(stretch.time_of(due)?)))
    }
}

/// Closed-loop arrivals: a request starts whenever a worker is free.
pub(crate) struct Closed {
    pub(crate) warmup: u64,
    pub(crate) stop: Stop,
    pub(crate) measured: u64,
    pub(crate) finished: bool,
}

impl Closed {
    pub(crate) fn next(&mut self, now: u64) -> Option<Due> {
        let measured = now >= self.warmup;
        self.finished |= match self.stop {
            Stop::After(duration) => now >= self.warmup.saturating_add(nanos(duration)),
            Stop::Count(count) => self.measured >= count,
        };
        if self.finished {
            return None;
        }
        self.measured += u64::from(measured);
        Some(Due { at: now, measured })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(open: &Open, warmup: Duration, stop: Stop) -> Vec<Due> {
        let mut arrivals = Arrivals::new(open, warmup, stop, Random::new(7));
        std::iter::from_fn(|| {
            let due = arrivals.peek();
            arrivals.pop();
            due
        })
        .collect()
    }

    fn steady(spacing: InterArrival, rate: f64) -> Open {
        Open { spacing, steps: vec![Step::steady(rate, Duration::ZERO)] }
    }

    #[test]
    fn constant_rate_is_exact_and_does_not_drift() {
        let dues =
            all(&steady(InterArrival::Constant, 3.0), Duration::ZERO, Stop::After(Duration::from_secs(1000)));
        assert_eq!(dues.len(), 3000);
        assert_eq!(dues[0].at, 0);
        assert_eq!(dues[2999].at, 999_666_666_666);
    }

    #[test]
    fn poisson_rate_has_the_mean_and_spread_of_independent_users() {
        let dues = all(
            &steady(InterArrival::Poisson, 1000.0),
            Duration::ZERO,
            Stop::After(Duration::from_secs(100)),
        );
        let count = dues.len() as f64;
        assert!((count - 100_000.0).abs() < 1500.0, "{count}");
        let gaps: Vec<f64> = dues.windows(2).map(|pair| (pair[1].at - pair[0].at) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.03,
            "deviation equals mean: {}",
            variance.sqrt() / mean
        );
    }

    #[test]
    fn warm_up_is_not_measured_and_comes_first() {
        let dues = all(&steady(InterArrival::Constant, 10.0), Duration::from_secs(1), Stop::Count(5));
        assert_eq!(dues.iter().filter(|due| !due.measured).count(), 10);
        assert_eq!(dues.iter().filter(|due| due.measured).count(), 5);
        assert_eq!(dues.last().map(|due| due.at), Some(1_400_000_000));
    }

    #[test]
    fn steps_follow_each_other_and_a_rate_of_zero_is_a_pause() {
        let second = Duration::from_secs(1);
        let steps = [10.0, 0.0, 20.0].map(|rate| Step::steady(rate, second)).to_vec();
        for spacing in [InterArrival::Constant, InterArrival::Poisson] {
            let open = Open { spacing, steps: steps.clone() };
            let dues = all(&open, Duration::ZERO, Stop::After(3 * second));
            let within =
                |low: u64, high: u64| dues.iter().filter(|due| (low..high).contains(&due.at)).count();
            assert_eq!(within(1_000_000_000, 2_000_000_000), 0);
            if spacing == InterArrival::Constant {
                assert_eq!(within(0, 1_000_000_000), 10);
                assert_eq!(within(2_000_000_000, 3_000_000_000), 20);
            } else {
                assert!(within(2_000_000_000, 3_000_000_000) > 5);
            }
        }
    }

    #[test]
    fn a_ramp_offers_what_lies_under_it_and_each_second_more_than_the_one_before() {
        let up = Step { rate: 100.0, to: 1900.0, duration: Duration::from_secs(10) };
        let down = Step { rate: 1900.0, to: 0.0, duration: Duration::from_secs(10) };
        assert!((up.requests() - 10_000.0).abs() < 1e-6);
        for (spacing, off) in [(InterArrival::Constant, 1.0), (InterArrival::Poisson, 400.0)] {
            let open = Open { spacing, steps: vec![up, down] };
            let warmup = Duration::from_secs(2);
            let dues = all(&open, warmup, Stop::After(Duration::from_secs(20)));
            let within = |from: u64, until: u64| {
                let seconds = from * 1_000_000_000..until * 1_000_000_000;
                dues.iter().filter(|due| seconds.contains(&due.at)).count() as f64
            };
            let is = |found: f64, expected: f64| (found - expected).abs() <= off;
            assert!(is(within(0, 2), 200.0), "the warm-up has the first rate: {}", within(0, 2));
            assert!(is(within(2, 12), 10_000.0) && is(within(12, 22), 9_500.0));
            // In each second the rate grows from 100 + 180 t to the same value one second later.
            assert!(
                is(within(2, 3), 190.0) && is(within(11, 12), 1810.0),
                "{} {}",
                within(2, 3),
                within(11, 12)
            );
            assert!(dues.windows(2).all(|pair| pair[0].at <= pair[1].at));
            assert!(dues.last().is_some_and(|last| last.at > 21_000_000_000));
        }
    }

    #[test]
    fn a_ramp_that_is_over_stays_where_it_is() {
        let up = Step { rate: 0.0, to: 100.0, duration: Duration::from_secs(1) };
        let dues = all(
            &Open { spacing: InterArrival::Constant, steps: vec![up] },
            Duration::ZERO,
            Stop::After(Duration::from_secs(3)),
        );
        assert_eq!(dues.len(), 250);
        assert_eq!(dues[50].at, 1_000_000_000);
        assert_eq!(dues[51].at, 1_010_000_000);
    }

    #[test]
    fn a_last_step_of_zero_ends_the_schedule() {
        let dues = all(&steady(InterArrival::Poisson, 0.0), Duration::ZERO, Stop::Count(5));
        assert_eq!(dues, []);
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let open = steady(InterArrival::Poisson, 100.0);
        assert_eq!(all(&open, Duration::ZERO, Stop::Count(50)), all(&open, Duration::ZERO, Stop::Count(50)));
    }
}
