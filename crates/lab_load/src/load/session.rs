//! Session: the state that all slots of one target share.
//!
//! Everything runs on one thread, so the state is in cells instead of locks. No borrow is held
//! across an await.
//!
//! Owns: access to clock, dispatcher and recorder, and the classification of failures. Does not
//! own: protocols.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lab_analysis::units::nanos;

use super::Exchange;
use super::ending::RequestFault;
use super::moments::Moments;
use super::recorder::{Recorder, Times};
use super::server_timing;
use super::target::{Io, Target};
use super::timer::Clock;
use crate::load::dispatcher::{Arrival, Dispatcher};
use crate::load::request_template::RequestTemplate;
use crate::load::self_usage::SelfUsage;

/// A failed request: the class it is counted in, and the details of this case.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fault: RequestFault,
    pub(crate) why: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(fault: RequestFault, why: impl Into<Cow<'static, str>>) -> Self {
        Self { fault, why: why.into() }
    }

    /// Classifies an I/O error on an open connection.
    pub(crate) fn io(error: &io::Error) -> Self {
        let fault = match error.kind() {
            io::ErrorKind::UnexpectedEof => RequestFault::Closed,
            io::ErrorKind::InvalidData => RequestFault::Protocol,
            _ => RequestFault::Reset,
        };
        Self::new(fault, error.to_string())
    }

    pub(crate) fn timeout() -> Self {
        Self::new(RequestFault::Timeout, "no complete response within the timeout")
    }
}

/// State that all slots of a target share.
pub(crate) struct TargetSession {
    pub(crate) clock: Clock,
    pub(crate) dispatcher: RefCell<Dispatcher>,
    /// Shared with the sessions of other targets that are loaded at the same time.
    pub(crate) recorder: Rc<RefCell<Recorder>>,
    pub(crate) target: Target,
    pub(crate) body: Bytes,
    pub(crate) head_only: bool,
    pub(crate) keep_alive: bool,
    /// What follows the head of each request.
    pub(crate) exchange: Exchange,
    /// Value of `Sec-WebSocket-Accept` that answers the key of the handshake; empty without one.
    pub(crate) websocket_accept: String,
    /// Reads the phases that servers report in `Server-Timing`.
    pub(crate) read_phases: bool,
    /// Records the requests beside what another thread does.
    pub(crate) moments: Option<Arc<Moments>>,
    /// Timeout of a request in nanoseconds.
    pub(crate) timeout: u64,
    /// Connections opened, including those before the clock started.
    pub(crate) opened: Cell<u64>,
    /// Bytes read: heads and content of HTTP/1.1 responses, content of HTTP/2 responses.
    pub(crate) received: Cell<u64>,
    /// Text of the first failure of each class.
    pub(crate) examples: RefCell<BTreeMap<RequestFault, Cow<'static, str>>>,
    pub(crate) self_usage_start: Cell<SelfUsage>,
}

impl TargetSession {
    pub(crate) fn new(
        target: Target,
        flow: &RequestTemplate,
        timeout: Duration,
        feed: Dispatcher,
        recorder: Rc<RefCell<Recorder>>,
    ) -> Self {
        Self {
            clock: Clock::start(),
            dispatcher: RefCell::new(feed),
            recorder,
            target,
            body: flow.body.clone(),
            head_only: flow.is_head(),
            keep_alive: flow.keep_alive,
            exchange: flow.exchange.clone(),
            websocket_accept: flow.websocket_accept(),
            read_phases: false,
            moments: None,
            timeout: nanos(timeout),
            opened: Cell::new(0),
            received: Cell::new(0),
            examples: RefCell::new(BTreeMap::new()),
            self_usage_start: Cell::new(SelfUsage::read()),
        }
    }

    /// Opens a connection and counts it.
    pub(crate) async fn open(&self) -> Result<Io, Failure> {
        let io = self.target.open().await?;
        self.opened.set(self.opened.get() + 1);
        Ok(io)
    }

    /// Next request of a slot; `None` when the schedule is exhausted.
    pub(crate) async fn next(&self, slot: usize) -> Option<Arrival> {
        poll_fn(|cx| {
            let now = self.clock.now();
            let mut unsent = |due| self.unsent(due, now);
            self.dispatcher.borrow_mut().poll_next(slot, now, cx, &mut unsent)
        })
        .await
    }

    /// Assigns due requests to idle slots.
    pub(crate) fn dispatch(&self) {
        let now = self.clock.now();
        self.dispatcher.borrow_mut().dispatch(now, &mut |due| self.unsent(due, now));
    }

    fn unsent(&self, due: super::schedule::Due, now: u64) {
        let times = Times { intended: due.at, started: now, finished: now, measured: due.measured };
        self.recorder.borrow_mut().record(times, Err(RequestFault::Unsent));
        self.record_example(&Failure::new(
            RequestFault::Unsent,
            "no connection became free within the timeout",
        ));
    }

    /// Records that the request is about to be sent. Returns its actual start time.
    pub(crate) fn start(&self, arrival: &Arrival) -> u64 {
        let started = self.clock.now();
        let mut recorder = self.recorder.borrow_mut();
        recorder.window.request_started(started);
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
            self.record_example(&failure);
            failure.fault
        });
        if let Some(moments) = self.moments.as_ref().filter(|_| arrival.measured && ending.is_ok()) {
            let latency = finished.saturating_sub(arrival.intended);
            moments.record(self.clock.instant(arrival.intended).into_std(), latency);
        }
        let times = Times { intended: arrival.intended, started, finished, measured: arrival.measured };
        self.recorder.borrow_mut().record(times, ending);
        self.dispatcher.borrow_mut().request_ended();
    }

    pub(crate) fn count_received(&self, bytes: usize) {
        self.received.set(self.received.get() + lab_analysis::units::count(bytes));
    }

    /// Records the phases in the head of an HTTP/1.1 response.
    pub(crate) fn record_phases_of_head(&self, head: &[u8]) {
        server_timing::fields(head).for_each(|field| self.record_phases(field));
    }

    /// Records the phases in the value of a `Server-Timing` field.
    pub(crate) fn record_phases(&self, value: &[u8]) {
        let mut recorder = self.recorder.borrow_mut();
        server_timing::durations(value).for_each(|(name, nanos)| recorder.record_phase(name, nanos));
    }

    fn record_example(&self, failure: &Failure) {
        self.examples.borrow_mut().entry(failure.fault).or_insert_with(|| failure.why.clone());
    }
}
