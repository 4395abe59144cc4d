//! What one worker thread holds: everything a request needs without asking another thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use crate::access_log;
use crate::assertion::AssertionMinter;
use crate::authenticate::Authenticator;
use crate::clock::CoarseClock;
use crate::config::Config;
use crate::deadline::Deadlines;
use crate::metrics::{self, RouteMetrics};
use crate::trace::Tracer;
use crate::upstream::pool::Pool;

/// One worker thread.
pub(crate) struct Worker {
    /// From 0; also the shard of the metrics.
    pub(crate) index: usize,
    /// The right to count.
    pub(crate) metrics: metrics::Worker,
    /// Deadlines of all its connections.
    pub(crate) deadlines: Rc<Deadlines>,
    /// Wall and monotonic time.
    pub(crate) clock: CoarseClock,
    /// Lines of the access log not yet handed to its writer.
    pub(crate) log: RefCell<Option<access_log::Buffer>>,
    /// Spans, when traces are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The configuration in force, with what was made of it for this thread.
    pub(crate) running: RefCell<Rc<Running>>,
    /// Set while the gateway drains: milliseconds after the worker's start when quiet connections close.
    pub(crate) draining: Cell<Option<u64>>,
    /// Open connections of this worker; read by the others to share new ones fairly.
    pub(crate) open: Arc<AtomicUsize>,
    /// Counts requests, to time the phases of every n-th.
    sample: Cell<u32>,
}

/// A configuration in force on one worker.
pub(crate) struct Running {
    pub(crate) config: Arc<Config>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) minter: Option<Arc<AssertionMinter>>,
    /// By index of the upstream.
    pub(crate) pools: Vec<Rc<Pool>>,
    /// By index of the route.
    pub(crate) routes: Vec<Arc<RouteMetrics>>,
}

/// The phases of one request in this many are timed: reading the clock seven times costs as much as parsing.
const SAMPLE_EVERY: u32 = 16;

impl Worker {
    #[allow(clippy::too_many_arguments, reason = "the parts of a worker, named once where it is made")]
    pub(crate) fn new(
        index: usize,
        metrics: metrics::Worker,
        clock: CoarseClock,
        log: Option<access_log::Buffer>,
        tracer: Option<Arc<Tracer>>,
        running: Running,
        deadlines: Rc<Deadlines>,
        open: Arc<AtomicUsize>,
    ) -> Rc<Self> {
        Rc::new(Self {
            index,
            metrics,
            deadlines,
            clock,
            log: RefCell::new(log),
            tracer,
            running: RefCell::new(Rc::new(running)),
            draining: Cell::new(None),
            open,
            sample: Cell::new(0),
        })
    }

    /// The configuration in force now. A request keeps the one it began with.
    pub(crate) fn running(&self) -> Rc<Running> {
        self.running.borrow().clone()
    }

    /// Whether the phases of the request that begins now are timed.
    pub(crate) fn times_phases(&self) -> bool {
        let n = self.sample.get();
        self.sample.set(if n + 1 == SAMPLE_EVERY { 0 } else { n + 1 });
        n == 0 || self.tracer.is_some()
    }

    /// Notes an instant that was read anyway.
    pub(crate) fn noticed(&self, now: Instant) {
        self.deadlines.set_now(now);
    }

    /// Begins to drain: answers ask for the connection's end, and quiet connections close after `grace`.
    pub(crate) fn drain(&self, grace: Duration) {
        let millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.draining.set(Some(self.deadlines.now_millis().saturating_add(millis)));
        self.deadlines.wake_all();
    }
}
