//! Window: the measured part of a run, what ended in it, and how many requests were in flight.
//!
//! The end of a window is known for certain only after the run. Therefore sums are updated when
//! requests begin and end, and saved at each moment that may turn out to be the end. Whatever
//! happens after it is then left out, including the in-flight time of requests that lies after it.
//!
//! Owns: the bounds of the window, and sums over it. Does not own: latencies, which belong to the
//! requests that were due in the window, whenever they ended.

use lab_analysis::units::ratio;

use super::ending::Ending;

/// When a window ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowEnd {
    /// At this time, nanoseconds since the start of the run.
    At(u64),
    /// At this time, or with the last response if that is later. Late responses of an overloaded
    /// target thus count against the time they took. A request without a response does not extend
    /// the window: how long it is awaited depends on the timeout, not on the target.
    LastAnswer(u64),
    /// With the last request sent or the last response, whichever is later: the number of requests
    /// is fixed, not the time.
    Counted,
}

/// Sums since the window began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    /// Time in flight in nanoseconds, summed over requests.
    in_flight: u64,
    /// Requests that ended with any result, whenever they started. Unsent requests are not counted.
    ended: u64,
    /// Those of them that were answered with a status below 400.
    ok: u64,
}

/// The sums at one moment, which is in nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: u64,
    sums: Sums,
}

/// The measured window of a run.
#[derive(Debug)]
pub(crate) struct Window {
    from: u64,
    end: WindowEnd,
    /// Current number of requests in flight.
    in_flight: u64,
    now: Mark,
    /// End of the time in which requests are due: the planned end or, for a counted run, the last
    /// request sent so far.
    due: Mark,
    /// End of the window as far as it is known.
    until: Mark,
    /// `true` if a request was answered in the window.
    answered: bool,
}

impl Window {
    /// Creates a window that begins at `from`.
    pub(crate) fn new(from: u64, end: WindowEnd) -> Self {
        let mark = |at| Mark { at, sums: Sums::default() };
        let mut window = Self {
            from,
            end,
            in_flight: 0,
            now: mark(0),
            due: mark(from),
            until: mark(from),
            answered: false,
        };
        if let Some(planned) = window.planned() {
            (window.due, window.until) = (mark(planned), mark(planned));
        }
        window
    }

    /// Begin and end (as far as it is known), nanoseconds since the start of the run.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.from, self.until.at)
    }

    /// Time until which requests are due; `None` for a counted run.
    pub(crate) fn planned(&self) -> Option<u64> {
        match self.end {
            WindowEnd::At(planned) | WindowEnd::LastAnswer(planned) => Some(planned),
            WindowEnd::Counted => None,
        }
    }

    /// Whether the period lies between the begin of the window and the end of the schedule.
    pub(crate) fn contains(&self, from: u64, until: u64) -> bool {
        from >= self.from && self.planned().is_none_or(|planned| until <= planned)
    }

    /// Counts a request that is sent at `at`.
    pub(crate) fn request_started(&mut self, at: u64) {
        self.advance_past_end(at);
        self.in_flight += 1;
        if self.end == WindowEnd::Counted {
            (self.due, self.until) = (self.now, self.now);
        }
    }

    /// Counts a request that was sent and ended at `at`.
    pub(crate) fn request_ended(&mut self, at: u64, ending: Ending) {
        self.advance_past_end(at);
        self.in_flight = self.in_flight.saturating_sub(1);
        if at < self.from {
            return;
        }
        self.now.sums.ended += 1;
        self.now.sums.ok += u64::from(ending.is_ok_and(|status| status < 400));
        if ending.is_err() {
            return;
        }
        self.answered = true;
        let is_in_window = match self.end {
            WindowEnd::At(_) => false,
            WindowEnd::LastAnswer(planned) => at >= planned,
            WindowEnd::Counted => true,
        };
        if is_in_window {
            self.until = self.now;
        }
    }

    /// Ends the schedule at `at`: no request is due any more, because the run is being stopped.
    pub(crate) fn stop(&mut self, at: u64) {
        self.advance_past_end(at);
        if self.planned().is_some_and(|planned| at < planned) {
            (self.due, self.until) = (self.now, self.now);
            self.end = match self.end {
                WindowEnd::LastAnswer(_) => WindowEnd::LastAnswer(at),
                WindowEnd::At(_) | WindowEnd::Counted => WindowEnd::At(at),
            };
        }
    }

    /// Closes the window at the end of the run, when no request is in flight any more.
    pub(crate) fn close(&mut self, at: u64) {
        self.advance_past_end(self.planned().map_or(at, |planned| at.max(planned)));
        // Without any response there is no last response: the window then extends to the last
        // attempt.
        if self.end == WindowEnd::Counted && !self.answered {
            self.until = self.now;
        }
    }

    /// Requests that ended in the window.
    pub(crate) fn ended(&self) -> u64 {
        self.until.sums.ended
    }

    /// Requests that were answered in the window with a status below 400.
    pub(crate) fn ok(&self) -> u64 {
        self.until.sums.ok
    }

    /// Mean number of requests in flight in the window.
    pub(crate) fn mean_in_flight(&self) -> f64 {
        self.mean(self.until)
    }

    /// Mean number of requests in flight while requests were due. It excludes the time that only
    /// waited for responses.
    pub(crate) fn mean_in_flight_while_due(&self) -> f64 {
        self.mean(self.due)
    }

    fn mean(&self, until: Mark) -> f64 {
        ratio(until.sums.in_flight as f64, until.at.saturating_sub(self.from) as f64)
    }

    /// Advances to `at`, and saves the sums at the planned end on the way.
    fn advance_past_end(&mut self, at: u64) {
        let is_passed = |planned: &u64| self.now.at < *planned && *planned <= at;
        if let Some(planned) = self.planned().filter(is_passed) {
            self.advance(planned);
            (self.due, self.until) = (self.now, self.now);
        }
        self.advance(at);
    }

    fn advance(&mut self, at: u64) {
        let passed = at.saturating_sub(self.now.at.max(self.from));
        self.now.sums.in_flight += self.in_flight.saturating_mul(passed);
        self.now.at = self.now.at.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::RequestFault;

    const SECOND: u64 = 1_000_000_000;
    const OK: Ending = Ok(200);
    const LOST: Ending = Err(RequestFault::Timeout);

    /// Nanoseconds of `at` milliseconds.
    fn ms(at: u64) -> u64 {
        at * 1_000_000
    }

    /// Creates a window and applies these requests in the order of time; each has a begin and an
    /// end in ms.
    fn after(end: WindowEnd, requests: &[(u64, u64, Ending)]) -> Window {
        let mut window = Window::new(ms(100), end);
        let begins = requests.iter().map(|(from, ..)| (ms(*from), None));
        let ends = requests.iter().map(|(_, until, ending)| (ms(*until), Some(*ending)));
        let mut events: Vec<(u64, Option<Ending>)> = begins.chain(ends).collect();
        events.sort_by_key(|(at, _)| *at);
        for (at, ending) in &events {
            match ending {
                None => window.request_started(*at),
                Some(ending) => window.request_ended(*at, *ending),
            }
        }
        window.close(events.last().map_or(0, |(at, _)| *at));
        window
    }

    fn is(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-3, "{value} is not {expected}");
    }

    #[test]
    fn what_is_never_answered_makes_no_window_longer() {
        let requests = [(100, 600, OK), (600, 1050, OK), (1000, 11_000, LOST), (1080, 1100, OK)];
        for end in [WindowEnd::At(ms(1100)), WindowEnd::LastAnswer(ms(1100))] {
            let window = after(end, &requests);
            assert_eq!(window.bounds(), (ms(100), ms(1100)), "{end:?}");
            // The part in flight after the window does not count as if it were in flight inside it.
            is(window.mean_in_flight(), (0.5 + 0.45 + 0.1 + 0.02) / 1.0);
        }
        // Until the timeout of the lost request, other requests were sent.
        let window = after(WindowEnd::Counted, &[(100, 10_100, LOST), (100, 200, OK), (200, 1100, OK)]);
        assert_eq!(window.bounds(), (ms(100), ms(1100)));
        is(window.mean_in_flight(), 2.0);
        assert_eq!((window.ended(), window.ok()), (2, 2));
    }

    #[test]
    fn what_is_answered_late_counts_against_the_time_it_took() {
        let requests = [(100, 1500, OK), (100, 1400, LOST), (100, 1200, Ok(503)), (1000, 9000, LOST)];
        let late = after(WindowEnd::LastAnswer(ms(1100)), &requests);
        assert_eq!(late.bounds(), (ms(100), ms(1500)));
        assert_eq!((late.ended(), late.ok()), (3, 1), "what was lost before the last answer as well");
        is(late.mean_in_flight(), (1.4 + 1.3 + 1.1 + 0.5) / 1.4);
        is(late.mean_in_flight_while_due(), 3.1);
        let fixed = after(WindowEnd::At(ms(1100)), &requests);
        assert_eq!((fixed.bounds(), fixed.ended()), ((ms(100), ms(1100)), 0));
        is(fixed.mean_in_flight(), 3.1);
    }

    /// A closed loop in which one worker gets its last response long after the others.
    #[test]
    fn workers_that_only_wait_for_answers_were_not_idle_while_requests_were_due() {
        let busy = [(100, 1000, OK), (1000, 1200, OK), (100, 1050, OK), (1050, 3100, OK)];
        let timed = after(WindowEnd::LastAnswer(ms(1100)), &busy);
        is(timed.mean_in_flight_while_due(), 2.0);
        is(timed.mean_in_flight(), (1.1 + 3.0) / 3.0);
        let counted = after(WindowEnd::Counted, &busy);
        assert_eq!(counted.bounds(), (ms(100), ms(3100)));
        is(counted.mean_in_flight_while_due(), 2.0);
    }

    #[test]
    fn the_warm_up_counts_for_what_of_it_lies_in_the_window() {
        let window = after(WindowEnd::At(ms(1100)), &[(0, 50, OK), (50, 600, OK)]);
        assert_eq!(window.ended(), 1);
        is(window.mean_in_flight(), 0.5);
        assert!(
            window.contains(SECOND / 10, SECOND)
                && !window.contains(0, SECOND)
                && !window.contains(SECOND, 2 * SECOND)
        );
    }

    #[test]
    fn who_answers_nothing_is_waited_for_to_the_end() {
        let window = after(WindowEnd::Counted, &[(50, 80, OK), (100, 400, LOST), (120, 420, LOST)]);
        assert_eq!((window.bounds(), window.ended()), ((ms(100), ms(420)), 2));
        assert_eq!(
            after(WindowEnd::LastAnswer(ms(1100)), &[]).bounds(),
            (ms(100), ms(1100)),
            "there was nothing to do"
        );
    }

    #[test]
    fn a_run_that_is_ended_early_ends_its_window() {
        let stopped = |end| {
            let mut window = Window::new(0, end);
            window.request_started(0);
            window.request_started(0);
            window.stop(SECOND);
            window.request_ended(2 * SECOND, OK);
            window.request_ended(9 * SECOND, LOST);
            window.close(9 * SECOND);
            (window.bounds().1, window.ended())
        };
        assert_eq!(stopped(WindowEnd::At(60 * SECOND)), (SECOND, 0));
        assert_eq!(stopped(WindowEnd::LastAnswer(60 * SECOND)), (2 * SECOND, 1));
        assert_eq!(stopped(WindowEnd::Counted), (2 * SECOND, 1));
    }
}
