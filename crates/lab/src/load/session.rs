//! What all slots of a target share.
//!
//! Owns: clock, feed and recorder together, and the vocabulary of failures. Does not own: protocols. One thread, so
//! cells instead of locks; no borrow lives across an await.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::recorder::{Recorder, RequestFault, Times};
use super::server_timing;
use super::target::{Io, Target};
use super::timer::Clock;
use crate::load::dispatcher::{Arrival, Dispatcher};
use crate::load::request_template::RequestTemplate;
use crate::load::self_usage::SelfUsage;
use crate::units::nanos;

/// A request failed: the class it is counted in, and what happened in this case.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fault: RequestFault,
    pub(crate) why: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(fault: RequestFault, why: impl Into<Cow<'static, str>>) -> Self {
        Self { fault, why: why.into() }
    }

    /// An error on an open connection.
    pub(crate) fn io(error: &io::Error) -> Self {
        let fault = match error.kind() {
            io::ErrorKind::UnexpectedEof => RequestFault::Closed,
            io::ErrorKind::InvalidData => RequestFault::Protocol,
            _ => RequestFault::Reset,
        };
        Self::new(fault, error.to_string())
    }

    pub(crate) fn timeout() -> Self {
        Self::new(RequestFault::Timeout, "no complete answer in time")
    }
}

/// What all slots of a target share.
pub(crate) struct Session {
    pub(crate) clock: Clock,
    pub(crate) feed: RefCell<Dispatcher>,
    /// Shared with the sessions of other targets that are loaded at the same time.
    pub(crate) recorder: Rc<RefCell<Recorder>>,
    pub(crate) target: Target,
    pub(crate) body: Bytes,
    pub(crate) head_only: bool,
    pub(crate) keep_alive: bool,
    /// Read what servers say about their phases (`Server-Timing`).
    pub(crate) phases: bool,
    /// Nanoseconds.
    pub(crate) timeout: u64,
    /// Connections opened, those before the clock started included.
    pub(crate) opened: Cell<u64>,
    /// Bytes read: response heads and content of HTTP/1.1, content of HTTP/2.
    pub(crate) received: Cell<u64>,
    /// The first failure of each class, in words.
    pub(crate) examples: RefCell<BTreeMap<RequestFault, Cow<'static, str>>>,
    pub(crate) own_start: Cell<SelfUsage>,
}

impl Session {
    pub(crate) fn new(
        target: Target,
        flow: &RequestTemplate,
        timeout: Duration,
        feed: Dispatcher,
        recorder: Rc<RefCell<Recorder>>,
    ) -> Self {
        Self {
            clock: Clock::start(),
            feed: RefCell::new(feed),
            recorder,
            target,
            body: flow.body.clone(),
            head_only: flow.is_head(),
            keep_alive: flow.keep_alive,
            phases: false,
            timeout: nanos(timeout),
            opened: Cell::new(0),
            received: Cell::new(0),
            examples: RefCell::new(BTreeMap::new()),
            own_start: Cell::new(SelfUsage::read()),
        }
    }

    /// Opens a connection.
    pub(crate) async fn open(&self) -> Result<Io, Failure> {
        let io = self.target.open().await?;
        self.opened.set(self.opened.get() + 1);
        Ok(io)
    }

    /// The next request of a slot; `None` when there will be none.
    pub(crate) async fn next(&self, slot: usize) -> Option<Arrival> {
        poll_fn(|cx| {
            let now = self.clock.now();
            let mut unsent = |due| self.unsent(due, now);
            self.feed.borrow_mut().poll_next(slot, now, cx, &mut unsent)
        })
        .await
    }

    /// Hands out what is due.
    pub(crate) fn dispatch(&self) {
        let now = self.clock.now();
        self.feed.borrow_mut().dispatch(now, &mut |due| self.unsent(due, now));
    }

    fn unsent(&self, due: super::schedule::Due, now: u64) {
        let times = Times { intended: due.at, started: now, finished: now, measured: due.measured };
        self.recorder.borrow_mut().record(times, Err(RequestFault::Unsent));
        self.example(&Failure::new(RequestFault::Unsent, "no connection became free in time"));
    }

    /// Notes that the request is about to be sent: the time at which it really starts.
    pub(crate) fn start(&self, arrival: &Arrival) -> u64 {
        let started = self.clock.now();
        let mut recorder = self.recorder.borrow_mut();
        recorder.window.begin(started);
        if arrival.measured {
            recorder.lag.record(started.saturating_sub(arrival.ready));
            recorder.wait.record(arrival.ready.saturating_sub(arrival.intended));
        }
        started
    }

    /// Records how a request ended.
    pub(crate) fn end(&self, arrival: &Arrival, started: u64, ending: Result<u16, Failure>) {
        let finished = self.clock.now();
        let ending = ending.map_err(|failure| {
            self.example(&failure);
            failure.fault
        });
        let times = Times { intended: arrival.intended, started, finished, measured: arrival.measured };
        self.recorder.borrow_mut().record(times, ending);
        self.feed.borrow_mut().ended();
    }

    pub(crate) fn count_received(&self, bytes: usize) {
        self.received.set(self.received.get() + crate::units::count(bytes));
    }

    /// Notes the phases that the head of an HTTP/1.1 answer tells.
    pub(crate) fn phases_of_head(&self, head: &[u8]) {
        server_timing::fields(head).for_each(|field| self.phases_of(field));
    }

    /// Notes the phases that the value of a `Server-Timing` field tells.
    pub(crate) fn phases_of(&self, value: &[u8]) {
        let mut recorder = self.recorder.borrow_mut();
        server_timing::durations(value).for_each(|(name, nanos)| recorder.phase(name, nanos));
    }

    fn example(&self, failure: &Failure) {
        self.examples.borrow_mut().entry(failure.fault).or_insert_with(|| failure.why.clone());
    }
}

/// After a failed connection a closed loop waits this long: without it, a server that refuses connections would turn
/// the loop into a flood of attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Whether a closed loop pauses after this ending.
pub(crate) fn wants_pause(ending: &Result<u16, Failure>) -> bool {
    matches!(ending, Err(Failure { fault: RequestFault::Connect | RequestFault::Tls, .. }))
}
