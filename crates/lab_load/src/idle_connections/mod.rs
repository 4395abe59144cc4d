//! Idle connections: holds connections that send nothing or almost nothing, and measures what they
//! cost the server and how it closes them.
//!
//! Each connection has one task and no buffer while it waits, so that the holder itself stays
//! small.
//!
//! Owns: idle and slow-loris connections, and what became of them. Does not own: the shape of the
//! report ([`crate::report`]), and load. Run a [`crate::load`] at the same time to see the effect
//! on other clients of the server.

mod connection;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab_analysis::units::count;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::interrupt::Interrupt;
use crate::load::{
    Clock, Failure, Latencies, Latency, Protocol, RequestFault, RequestTemplate, RequestTemplateError, Target,
};
use crate::observe::{INTERVAL, ObserveError, ProcessSampler, Series, WatchedProcess};

/// What held connections send.
#[derive(Debug, Clone)]
pub enum HoldBehavior {
    /// Nothing. With `first`, each sends one complete request before, so that it is a kept-alive
    /// connection.
    Idle {
        /// The request to send; only its first token is used.
        first: Option<Box<RequestTemplate>>,
    },
    /// A request head that never ends: one header line every `interval`. A connection that the
    /// server closes is replaced.
    SlowLoris {
        /// Time between two header lines.
        interval: Duration,
    },
}

/// Plan of connections to hold.
#[derive(Debug, Clone)]
pub struct HoldPlan {
    /// Target of the connections, with HTTP/1.1.
    pub target: Target,
    /// Number of connections at the same time.
    pub connections: usize,
    /// What the connections send.
    pub behavior: HoldBehavior,
    /// How long they are held after all have been tried once.
    pub hold: Duration,
    /// Longest time to open a connection and complete its first request.
    pub timeout: Duration,
    /// Connections that are opened at the same time.
    pub max_concurrent_connects: usize,
    /// Processes to sample during the run.
    pub watch: Vec<WatchedProcess>,
}

/// Why connections could not be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The numbers of the plan are not valid.
    #[error("{0}")]
    Plan(String),
    /// The limit of open files of the process is too low.
    #[error(
        "{wanted} open files are needed, but the limit of this process is {limit}: raise it with `ulimit -n`"
    )]
    Files {
        /// Required number of file descriptors.
        wanted: u64,
        /// Soft limit of open files.
        limit: u64,
    },
    /// The first request cannot be sent as it is given.
    #[error(transparent)]
    Flow(#[from] RequestTemplateError),
    /// The kernel's data of a watched process cannot be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The event loop cannot be created.
    #[error("cannot set up the event loop: {0}")]
    Runtime(#[from] io::Error),
}

/// Time between two checks for an interrupt while connections are opened.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// File descriptors in addition to the connections: standard streams, event queue, files of
/// `/proc`.
const RESERVED_FILES: u64 = 32;

impl HoldPlan {
    fn check(&self) -> Result<(), HoldError> {
        if self.target.protocol != Protocol::Http1 {
            return Err(HoldError::Plan("connections can be held with HTTP/1.1 only".to_owned()));
        }
        if self.connections == 0 || self.max_concurrent_connects == 0 {
            return Err(HoldError::Plan("at least one connection is required".to_owned()));
        }
        if let HoldBehavior::Idle { first: Some(flow) } = &self.behavior {
            flow.check(&self.target)?;
        }
        let wanted = count(self.connections) + RESERVED_FILES;
        match open_files_limit() {
            Some(limit) if limit < wanted => Err(HoldError::Files { wanted, limit }),
            _ => Ok(()),
        }
    }
}

/// Soft limit of open files; `None` if it is unlimited or unknown.
pub fn open_files_limit() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// What became of the connections of a plan. Times are nanoseconds since the start of the run.
#[derive(Debug, Clone)]
pub struct HoldOutcome {
    /// Kind of connections: `idle` or `slow-loris`.
    pub kind: &'static str,
    /// Target URL of the connections.
    pub url: String,
    /// Number of connections that were to be open at once.
    pub connections: u64,
    /// Connections opened, renewed ones included.
    pub opened: u64,
    /// Connections that could not be opened: the class, the time until the failure, and a
    /// description of the first of the class.
    pub failed: Vec<(RequestFault, Latency, String)>,
    /// Time to open a connection, µs.
    pub open_us: Latency,
    /// When each connection had been tried once.
    pub opened_at: u64,
    /// Most connections that were open at once.
    pub open_max: u64,
    /// Connections that the server closed.
    pub closed_by_peer: u64,
    /// Lifetime of the connections that the server closed, µs.
    pub lifetime_us: Latency,
    /// Connections that were still open at the end.
    pub open_at_end: u64,
    /// When the oldest connection that was open at the end was opened; `None` if there was none.
    pub oldest: Option<u64>,
    /// Statuses of the server's responses, and how often each occurred.
    pub statuses: BTreeMap<u16, u64>,
    /// When the run ended.
    pub ended_at: u64,
    /// Samples of the observed processes.
    pub watched: Vec<Series>,
}

/// Counts and distributions of the held connections.
struct HeldTally {
    opened: u64,
    open: u64,
    open_max: u64,
    closed: u64,
    tried: u64,
    open_us: Latencies,
    lifetime: Latencies,
    /// Open connections by their opening time, with their number.
    since: BTreeMap<u64, u64>,
    failed: BTreeMap<RequestFault, (Latencies, String)>,
    statuses: BTreeMap<u16, u64>,
}

/// State that all held connections share.
struct HeldState {
    plan: HoldPlan,
    clock: Clock,
    opening: Semaphore,
    tally: RefCell<HeldTally>,
    /// Notified when a connection has been tried for the first time.
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

    /// Records an opened connection. Returns its opening time.
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

    fn record_first_attempt(&self) {
        self.tally.borrow_mut().tried += 1;
        self.tried.notify_one();
    }
}

/// Holds the connections on the calling thread until the end of the plan, or until `interrupted`
/// resolves. `held` is called with the number of open connections when all have been tried.
///
/// # Errors
/// The plan is invalid, a watched process cannot be read, or the event loop cannot be created.
pub fn run(
    plan: HoldPlan,
    held: impl FnOnce(u64),
    interrupted: impl Future<Output = ()>,
) -> Result<HoldOutcome, HoldError> {
    plan.check()?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(drive(plan, held, interrupted))
}

/// Connections that a separate thread holds during other work.
pub struct OpenConnections {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<HoldOutcome, HoldError>>,
}

impl OpenConnections {
    /// Opens the connections. Returns when all have been tried once, or on an interrupt.
    pub fn open(plan: HoldPlan, interrupt: &Interrupt) -> Result<Self, HoldError> {
        let (stop, stopped) = oneshot::channel();
        let (open_sender, opened) = mpsc::channel();
        let thread = std::thread::Builder::new().name("hold".to_owned()).spawn(move || {
            plan.check()?;
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
            let stopped = async { drop(stopped.await) };
            let held = move |open| {
                let _ = open_sender.send(open);
            };
            runtime.block_on(drive(plan, held, stopped))
        })?;
        // If the thread fails to start, it drops the sender; [`OpenConnections::close`] returns its
        // error.
        while matches!(opened.recv_timeout(INTERRUPT_POLL_INTERVAL), Err(RecvTimeoutError::Timeout))
            && !interrupt.is_set()
        {}
        Ok(Self { stop, thread })
    }

    /// Closes the connections. Returns what became of them.
    pub fn close(self) -> Result<HoldOutcome, HoldError> {
        drop(self.stop);
        let ended = self.thread.join();
        ended
            .unwrap_or_else(|_| Err(HoldError::Plan("the thread that holds connections panicked".to_owned())))
    }
}

async fn drive(
    plan: HoldPlan,
    held: impl FnOnce(u64),
    stopped: impl Future<Output = ()>,
) -> Result<HoldOutcome, HoldError> {
    let watch = ProcessSampler::start(&plan.watch, INTERVAL, Instant::now())?;
    let tally = HeldTally {
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
        opening: Semaphore::new(plan.max_concurrent_connects),
        clock: Clock::start(),
        tally: RefCell::new(tally),
        tried: tokio::sync::Notify::new(),
        plan,
    });
    let mut connections = JoinSet::new();
    for _ in 0..shared.plan.connections {
        connections.spawn_local(connection::hold_connection(Rc::clone(&shared)));
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
    let outcome = outcome(&shared, opened_at, watch);
    connections.abort_all();
    Ok(outcome)
}

fn outcome(shared: &HeldState, opened_at: u64, watch: ProcessSampler) -> HoldOutcome {
    let ended_at = shared.clock.now();
    let tally = shared.tally.borrow();
    let failed =
        tally.failed.iter().map(|(fault, (seen, example))| (*fault, seen.summary(), example.clone()));
    HoldOutcome {
        kind: match shared.plan.behavior {
            HoldBehavior::Idle { .. } => "idle",
            HoldBehavior::SlowLoris { .. } => "slow-loris",
        },
        url: shared.plan.target.url.clone(),
        connections: count(shared.plan.connections),
        opened: tally.opened,
        failed: failed.collect(),
        open_us: tally.open_us.summary(),
        opened_at,
        open_max: tally.open_max,
        closed_by_peer: tally.closed,
        lifetime_us: tally.lifetime.summary(),
        open_at_end: tally.open,
        oldest: tally.since.keys().next().copied(),
        statuses: tally.statuses.clone(),
        ended_at,
        watched: watch.stop(),
    }
}
