//! Connections that do nothing, or almost nothing: what they cost the server, and how it gets rid of them.
//!
//! Owns: idle and slow-loris connections. Does not own: load; run a [`crate::load`] beside to see what the rest of the
//! server's users notice. One task per connection and no buffer while it waits, so that the holder itself stays small.

mod connection;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::interrupt::Interrupt;
use crate::load::{
    Clock, Failure, Latencies, Protocol, RequestFault, RequestTemplate, RequestTemplateError, Target,
};
use crate::observe::{INTERVAL, ObserveError, Watch, Watched};
use crate::report::{FaultCount, HoldReport};
use crate::units::{count, nanos, seconds};

/// What held connections do.
#[derive(Debug, Clone)]
pub enum Manner {
    /// Nothing; after one complete request each when `first` is given, so that they are kept-alive connections.
    Idle {
        /// The request; its first token is used.
        first: Option<Box<RequestTemplate>>,
    },
    /// A request head that never ends: one header line every `interval`. A connection the server closes is replaced.
    SlowLoris {
        /// Time between two lines.
        interval: Duration,
    },
}

/// Connections to hold.
#[derive(Debug, Clone)]
pub struct HoldPlan {
    /// Where to; HTTP/1.1.
    pub target: Target,
    /// How many at once.
    pub connections: usize,
    /// What they do.
    pub manner: Manner,
    /// How long they are held after all have been tried once.
    pub hold: Duration,
    /// How long opening one, and its first request, may take.
    pub timeout: Duration,
    /// Connections being opened at once.
    pub opening: usize,
    /// Processes to watch.
    pub watch: Vec<Watched>,
}

/// Why connections could not be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The plan's numbers do not fit together.
    #[error("{0}")]
    Plan(String),
    /// The process may not open that many files.
    #[error(
        "{wanted} connections need {wanted} open files and this process may have {limit}: raise it with `ulimit -n`"
    )]
    Files {
        /// Descriptors needed.
        wanted: u64,
        /// Soft limit.
        limit: u64,
    },
    /// The first request cannot be sent.
    #[error(transparent)]
    Flow(#[from] RequestTemplateError),
    /// A watched process cannot be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Event queue.
    #[error("cannot set up the event loop: {0}")]
    Runtime(#[from] io::Error),
}

/// How often whoever waits for the connections looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// Descriptors beside the connections: standard streams, event queue, files of `/proc`.
const SPARE_FILES: u64 = 32;

impl HoldPlan {
    fn check(&self) -> Result<(), HoldError> {
        if self.target.protocol != Protocol::Http1 {
            return Err(HoldError::Plan("connections are held with HTTP/1.1 only".to_owned()));
        }
        if self.connections == 0 || self.opening == 0 {
            return Err(HoldError::Plan("at least one connection is needed".to_owned()));
        }
        if let Manner::Idle { first: Some(flow) } = &self.manner {
            flow.check(&self.target)?;
        }
        let wanted = count(self.connections) + SPARE_FILES;
        match open_files_limit() {
            Some(limit) if limit < wanted => Err(HoldError::Files { wanted, limit }),
            _ => Ok(()),
        }
    }
}

/// The soft limit of open files; `None` when unlimited or not told.
pub(crate) fn open_files_limit() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// What is counted while connections are held.
struct Tally {
    opened: u64,
    open: u64,
    open_max: u64,
    closed: u64,
    tried: u64,
    open_us: Latencies,
    lifetime: Latencies,
    /// Since when those have been open that are, and how many since then.
    since: BTreeMap<u64, u64>,
    failed: BTreeMap<RequestFault, (Latencies, String)>,
    statuses: BTreeMap<u16, u64>,
}

/// What the connections share.
struct HeldState {
    plan: HoldPlan,
    clock: Clock,
    opening: Semaphore,
    tally: RefCell<Tally>,
    /// Told when a connection has been tried for the first time.
    tried: tokio::sync::Notify,
}

impl HeldState {
    fn failed(&self, began: u64, failure: &Failure) {
        let took = self.clock.now() - began;
        let mut tally = self.tally.borrow_mut();
        let seen =
            tally.failed.entry(failure.fault).or_insert_with(|| (Latencies::new(), failure.why.to_string()));
        seen.0.record(took);
    }

    /// One was opened; since when it is open.
    fn opened(&self, began: u64) -> u64 {
        let now = self.clock.now();
        let mut tally = self.tally.borrow_mut();
        tally.opened += 1;
        tally.open += 1;
        tally.open_max = tally.open_max.max(tally.open);
        tally.open_us.record(now - began);
        *tally.since.entry(now).or_default() += 1;
        now
    }

    fn answered(&self, status: u16) {
        *self.tally.borrow_mut().statuses.entry(status).or_default() += 1;
    }

    fn closed(&self, since: u64) {
        let mut tally = self.tally.borrow_mut();
        tally.open -= 1;
        tally.closed += 1;
        tally.lifetime.record(self.clock.now() - since);
        if let Entry::Occupied(mut beside) = tally.since.entry(since) {
            *beside.get_mut() -= 1;
            if *beside.get() == 0 {
                beside.remove();
            }
        }
    }

    fn tried_once(&self) {
        self.tally.borrow_mut().tried += 1;
        self.tried.notify_one();
    }
}

/// Holds the connections on the calling thread; an interrupt (Ctrl-C) ends it early and still reports. `held` is told
/// how many are open once all have been tried.
pub fn hold(plan: HoldPlan, held: impl FnOnce(u64)) -> Result<HoldReport, HoldError> {
    plan.check()?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let interrupted = async {
        // Where signals cannot be waited for, they end the process as ever.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    runtime.block_on(drive(plan, held, interrupted))
}

/// Connections that a thread of its own holds while something else goes on.
pub(crate) struct HeldConnections {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<HoldReport, HoldError>>,
}

impl HeldConnections {
    /// Opens the connections, and comes back when all have been tried once, or when it was asked to end.
    pub(crate) fn open(plan: HoldPlan, interrupt: &Interrupt) -> Result<Self, HoldError> {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new().name("hold".to_owned()).spawn(move || {
            plan.check()?;
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
            let stopped = async { drop(stopped.await) };
            let held = move |open| {
                let _ = tell.send(open);
            };
            runtime.block_on(drive(plan, held, stopped))
        })?;
        // Who cannot begin drops the sender, and says why when it is asked.
        while matches!(told.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) && !interrupt.is_set() {}
        Ok(Self { stop, thread })
    }

    /// Closes them; what became of them.
    pub(crate) fn close(self) -> Result<HoldReport, HoldError> {
        drop(self.stop);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| {
            Err(HoldError::Plan("the thread that held connections has failed".to_owned()))
        })
    }
}

async fn drive(
    plan: HoldPlan,
    held: impl FnOnce(u64),
    stopped: impl Future<Output = ()>,
) -> Result<HoldReport, HoldError> {
    let watch = Watch::start(&plan.watch, INTERVAL, Instant::now())?;
    let tally = Tally {
        opened: 0,
        open: 0,
        open_max: 0,
        closed: 0,
        tried: 0,
        open_us: Latencies::new(),
        lifetime: Latencies::new(),
        since: BTreeMap::new(),
        failed: BTreeMap::new(),
        statuses: BTreeMap::new(),
    };
    let shared = Rc::new(HeldState {
        opening: Semaphore::new(plan.opening),
        clock: Clock::start(),
        tally: RefCell::new(tally),
        tried: tokio::sync::Notify::new(),
        plan,
    });
    let mut connections = JoinSet::new();
    for _ in 0..shared.plan.connections {
        connections.spawn_local(connection::keep(Rc::clone(&shared)));
    }
    let work = async {
        while shared.tally.borrow().tried < count(shared.plan.connections) {
            shared.tried.notified().await;
        }
        let opened_at = shared.clock.now();
        held(shared.tally.borrow().open);
        tokio::time::sleep(shared.plan.hold).await;
        opened_at
    };
    let opened_at = tokio::select! {
        at = work => at,
        () = stopped => shared.clock.now(),
    };
    let report = report(&shared, opened_at, watch);
    connections.abort_all();
    Ok(report)
}

fn report(shared: &HeldState, opened_at: u64, watch: Watch) -> HoldReport {
    let now = shared.clock.now();
    let tally = shared.tally.borrow();
    let kind = match shared.plan.manner {
        Manner::Idle { .. } => "idle",
        Manner::SlowLoris { .. } => "slow-loris",
    };
    let failed = tally.failed.iter().map(|(&class, (seen, example))| FaultCount {
        class,
        count: seen.count(),
        latency_us: seen.summary(),
        example: example.clone(),
    });
    let window = (Duration::from_nanos(opened_at), Duration::from_nanos(now.saturating_add(nanos(INTERVAL))));
    let watched = watch.stop();
    HoldReport {
        opened: tally.opened,
        failed: failed.collect(),
        open_us: tally.open_us.summary(),
        opening_s: seconds(opened_at),
        open_max: tally.open_max,
        closed_by_peer: tally.closed,
        lifetime_us: tally.lifetime.summary(),
        open_at_end: tally.open,
        open_longest_us: tally.since.keys().next().map(|since| (now - since) as f64 / 1e3),
        statuses: tally.statuses.clone(),
        seconds: seconds(now),
        watched: watched.iter().map(|series| series.over(window.0, window.1, None)).collect(),
        ..HoldReport::empty(kind, &shared.plan.target.url, count(shared.plan.connections))
    }
}
