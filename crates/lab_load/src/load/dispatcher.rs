//! Dispatcher: assigns due requests to idle slots.
//!
//! A *slot* carries one request at a time: an HTTP/1.1 connection, or one HTTP/2 stream. Slots are
//! used in the order in which they became idle, so that the load spreads over all connections.
//! There is no queue of requests: every request that the schedule cursor has not passed is still
//! waiting.
//!
//! Owns: the cursor of the schedule, the queue of idle slots, the count of requests in flight. Does
//! not own: connections.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use super::random::TokenPicker;
use super::schedule::{Arrivals, Closed, Due};

/// One request that a slot is to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Intended start, nanoseconds since the start of the run.
    pub(crate) intended: u64,
    /// First moment at which the request was due *and* a slot was free. A start later than this is
    /// the generator's own delay.
    pub(crate) ready: u64,
    /// Index of the prepared request to send: one per token.
    pub(crate) variant: usize,
    /// `true` for requests that are due after the warm-up.
    pub(crate) measured: bool,
}

/// Source of arrivals: the open-loop schedule, or the closed loop.
pub(crate) enum ArrivalSource {
    Open(Arrivals),
    Closed(Closed),
}

/// When the dispatch task must run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// At this time (nanoseconds since the start of the run), or earlier when a slot becomes idle.
    At(u64),
    /// When a slot becomes idle: requests may be due, but no slot is free.
    WhenIdle,
    /// Never: the schedule is exhausted.
    Never,
}

struct Slot {
    assigned: Option<Arrival>,
    idle_since: Option<u64>,
    waker: Waker,
}

/// Assigns due requests to idle slots.
pub(crate) struct Dispatcher {
    source: ArrivalSource,
    pick: TokenPicker,
    slots: Vec<Slot>,
    idle: VecDeque<usize>,
    clock_waker: Waker,
    /// Longest wait of a due request for a slot, in nanoseconds. After it the request counts as
    /// unsent.
    max_wait: u64,
    pub(crate) in_flight: u64,
    /// Measured requests that the schedule has handed out or given up as unsent.
    pub(crate) planned: u64,
}

impl Dispatcher {
    pub(crate) fn new(source: ArrivalSource, pick: TokenPicker, slots: usize, patience: u64) -> Self {
        let slot = || Slot { assigned: None, idle_since: None, waker: Waker::noop().clone() };
        Self {
            source,
            pick,
            slots: std::iter::repeat_with(slot).take(slots).collect(),
            idle: VecDeque::with_capacity(slots),
            clock_waker: Waker::noop().clone(),
            max_wait: patience,
            in_flight: 0,
            planned: 0,
        }
    }

    /// Next request of `slot`; `None` when the schedule is exhausted. Calls `unsent` for each
    /// request that waited too long.
    pub(crate) fn poll_next(
        &mut self,
        slot: usize,
        now: u64,
        cx: &Context<'_>,
        unsent: &mut dyn FnMut(Due),
    ) -> Poll<Option<Arrival>> {
        if let ArrivalSource::Closed(closed) = &mut self.source {
            let Some(due) = closed.next(now) else { return Poll::Ready(None) };
            return Poll::Ready(Some(self.start(due, now)));
        }
        if let Some(arrival) = self.slots[slot].assigned.take() {
            return Poll::Ready(Some(arrival));
        }
        if self.slots[slot].idle_since.is_none() {
            self.slots[slot].idle_since = Some(now);
            self.idle.push_back(slot);
            self.dispatch(now, unsent);
            if let Some(arrival) = self.slots[slot].assigned.take() {
                return Poll::Ready(Some(arrival));
            }
            if self.idle.len() == 1 {
                self.clock_waker.wake_by_ref();
            }
        }
        if self.wake() == Wake::Never {
            return Poll::Ready(None);
        }
        let waker = &mut self.slots[slot].waker;
        if !waker.will_wake(cx.waker()) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }

    /// Assigns every due request to the slot that has been idle longest, as long as a slot is idle.
    pub(crate) fn dispatch(&mut self, now: u64, unsent: &mut dyn FnMut(Due)) {
        while let ArrivalSource::Open(arrivals) = &mut self.source {
            let Some(due) = arrivals.peek() else {
                self.wake_all();
                return;
            };
            if due.at > now {
                return;
            }
            if now - due.at > self.max_wait {
                arrivals.pop();
                self.planned += u64::from(due.measured);
                unsent(due);
                continue;
            }
            let Some(slot) = self.idle.pop_front() else { return };
            arrivals.pop();
            let idle_since = self.slots[slot].idle_since.take().unwrap_or(now);
            let arrival = self.start(due, due.at.max(idle_since));
            self.slots[slot].assigned = Some(arrival);
            self.slots[slot].waker.wake_by_ref();
        }
    }

    fn start(&mut self, due: Due, ready: u64) -> Arrival {
        self.in_flight += 1;
        self.planned += u64::from(due.measured);
        Arrival { intended: due.at, ready, variant: self.pick.next(), measured: due.measured }
    }

    /// Counts one request in flight less: it ended.
    pub(crate) fn request_ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Ends the schedule: no further request starts.
    pub(crate) fn stop(&mut self) {
        match &mut self.source {
            ArrivalSource::Open(arrivals) => arrivals.finish(),
            ArrivalSource::Closed(closed) => closed.finished = true,
        }
        self.wake_all();
    }

    fn wake_all(&self) {
        self.slots.iter().for_each(|slot| slot.waker.wake_by_ref());
        self.clock_waker.wake_by_ref();
    }

    /// When [`Dispatcher::dispatch`] has work to do.
    pub(crate) fn wake(&self) -> Wake {
        let ArrivalSource::Open(arrivals) = &self.source else { return Wake::Never };
        match arrivals.peek() {
            None => Wake::Never,
            Some(_) if self.idle.is_empty() => Wake::WhenIdle,
            Some(due) => Wake::At(due.at),
        }
    }

    /// Registers the task to wake when a slot becomes idle or the schedule ends.
    pub(crate) fn register_clock_waker(&mut self, cx: &Context<'_>) {
        self.clock_waker.clone_from(cx.waker());
    }

    /// How long the oldest due request has waited for a slot, in nanoseconds.
    pub(crate) fn oldest_wait(&self, now: u64) -> u64 {
        match &self.source {
            ArrivalSource::Open(arrivals) => arrivals.peek().map_or(0, |due| now.saturating_sub(due.at)),
            ArrivalSource::Closed(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::random::Random;
    use crate::load::schedule::{InterArrival, Open, Step, Stop};

    fn dispatcher(rate: f64, slots: usize, patience: u64, count: u64) -> Dispatcher {
        let open = Open { spacing: InterArrival::Constant, steps: vec![Step::steady(rate, Duration::ZERO)] };
        let arrivals = Arrivals::new(&open, Duration::ZERO, Stop::Count(count), Random::new(1));
        Dispatcher::new(ArrivalSource::Open(arrivals), TokenPicker::round_robin(1), slots, patience)
    }

    fn next(feed: &mut Dispatcher, slot: usize, now: u64) -> Poll<Option<u64>> {
        let cx = Context::from_waker(Waker::noop());
        let mut none = |due: Due| panic!("given up: {due:?}");
        feed.poll_next(slot, now, &cx, &mut none).map(|arrival| arrival.map(|arrival| arrival.intended))
    }

    #[test]
    fn the_slot_idle_longest_comes_first() {
        let mut feed = dispatcher(1e9, 3, u64::MAX, 10);
        assert_eq!(next(&mut feed, 2, 0), Poll::Ready(Some(0)));
        assert_eq!(next(&mut feed, 1, 0), Poll::Pending);
        assert_eq!(next(&mut feed, 0, 0), Poll::Pending);
        feed.dispatch(1, &mut |_| ());
        assert_eq!(next(&mut feed, 0, 1), Poll::Pending);
        assert_eq!(next(&mut feed, 1, 1), Poll::Ready(Some(1)));
    }

    #[test]
    fn requests_due_while_all_slots_are_busy_keep_their_intended_start() {
        let mut feed = dispatcher(1000.0, 1, u64::MAX, 100);
        assert_eq!(next(&mut feed, 0, 0), Poll::Ready(Some(0)));
        assert_eq!(feed.wake(), Wake::WhenIdle);
        assert_eq!(next(&mut feed, 0, 50_000_000), Poll::Ready(Some(1_000_000)));
        assert_eq!(next(&mut feed, 0, 51_000_000), Poll::Ready(Some(2_000_000)));
        assert_eq!(feed.oldest_wait(51_000_000), 48_000_000);
    }

    #[test]
    fn only_the_generators_own_delay_counts_as_lag() {
        let mut feed = dispatcher(1000.0, 1, u64::MAX, 100);
        let cx = Context::from_waker(Waker::noop());
        let mut take = |now| match feed.poll_next(0, now, &cx, &mut |_| ()) {
            Poll::Ready(Some(arrival)) => arrival.ready,
            other => panic!("{other:?}"),
        };
        assert_eq!(take(0), 0);
        // Due at 1 ms, but the slot was busy until 5 ms: this delay is not the generator's.
        assert_eq!(take(5_000_000), 5_000_000);
    }

    #[test]
    fn gives_up_what_waited_too_long_and_counts_it() {
        let mut feed = dispatcher(1000.0, 1, 10_000_000, 100);
        let mut given_up = Vec::new();
        let cx = Context::from_waker(Waker::noop());
        let first = feed.poll_next(0, 0, &cx, &mut |_| ());
        assert!(first.is_ready());
        let second = feed.poll_next(0, 20_000_000, &cx, &mut |due| given_up.push(due.at));
        assert!(matches!(second, Poll::Ready(Some(Arrival { intended: 10_000_000, .. }))), "{second:?}");
        assert_eq!(given_up.len(), 9);
        assert_eq!(feed.planned, 11);
        assert_eq!(feed.in_flight, 2);
    }

    #[test]
    fn ends_when_the_schedule_does_or_is_stopped() {
        let mut short = dispatcher(1e9, 1, u64::MAX, 1);
        assert_eq!(next(&mut short, 0, 0), Poll::Ready(Some(0)));
        assert_eq!(next(&mut short, 0, 0), Poll::Ready(None));
        let mut stopped = dispatcher(1.0, 1, u64::MAX, 100);
        assert_eq!(next(&mut stopped, 0, 0), Poll::Ready(Some(0)));
        assert_eq!(next(&mut stopped, 0, 0), Poll::Pending);
        stopped.stop();
        assert_eq!(next(&mut stopped, 0, 0), Poll::Ready(None));
        assert_eq!(stopped.wake(), Wake::Never);
    }
}
