//! Load generator: one thread that sends requests on time and records how each of them ends.
//!
//! It uses one thread because it usually shares a machine with the measured server. The report says
//! when that thread is the bottleneck.
//!
//! Owns: plans and runs. Does not own: the shape of the report ([`crate::report`]).
//!
//! 1. [`Plan::check`] validates the plan.
//! 2. All connections are opened, then the clock starts.
//! 3. [`dispatcher`] assigns the arrivals of the [`schedule`] to free slots ([`h1`], [`h2`]). The
//!    wait of a request for a free slot is part of its latency.
//!    A request may begin a stream of events or a WebSocket ([`streams`]).
//! 4. [`recorder`] counts the results; the [`window`] decides which of them are measured.
//!
//! Several targets that are loaded at the same time have one session each and share one recorder.

mod dispatcher;
mod ending;
pub(crate) mod h1;
mod h2;
mod moments;
mod outcome;
mod random;
mod recorder;
mod request_template;
pub(crate) mod response;
mod schedule;
mod self_usage;
pub(crate) mod server_timing;
mod session;
mod slices;
pub(crate) mod stream_recorder;
pub(crate) mod streams;
mod target;
mod timer;
mod window;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use ending::RequestFault;
use lab_analysis::units::nanos;
pub use moments::Moments;
pub use outcome::LoadOutcome;
pub use random::Random;
pub(crate) use recorder::{Latencies, Recorder};
pub use recorder::{Latency, Second};
pub use request_template::{RequestTemplate, RequestTemplateError, TokenChoice};
pub use schedule::{InterArrival, Open, Schedule, Step, Stop};
pub(crate) use self_usage::SelfUsage;
pub(crate) use session::{Failure, TargetSession};
pub use slices::Slices;
pub use streams::{Exchange, StreamForm, StreamSettings, WebSocketSettings};
pub(crate) use target::Io;
pub use target::{Protocol, Target, TargetError, Trust};
pub(crate) use timer::{Clock, Deadline};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;

use self::schedule::{Arrivals, Closed};
use self::stream_recorder::StreamRecorder;
use self::streams::websocket;
use self::timer::FineTimer;
use self::window::{Window, WindowEnd};
use crate::load::dispatcher::{ArrivalSource, Dispatcher, Wake};
use crate::observe::{ProcessSampler, WatchedProcess};

/// Connections that are opened at the same time before the clock starts. Below the listen backlog
/// of every usual server.
const MAX_CONCURRENT_CONNECTS: usize = 128;
/// Shortest sleep between two checks of the schedule, in nanoseconds. It bounds the cost of timing
/// (at most 10 000 wake-ups a second) and the lag it adds. When a request ends in between, due
/// requests start without this wait.
const MIN_SLEEP_NS: u64 = 100_000;

/// A load run: target, requests, schedule and end.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Server that receives the requests.
    pub target: Target,
    /// Content of the requests.
    pub flow: RequestTemplate,
    /// When requests start.
    pub schedule: Schedule,
    /// When the run ends.
    pub stop: Stop,
    /// Duration of the load before the measured phase, at the first rate of the schedule.
    pub warmup: Duration,
    /// Connections that are kept open. For a closed loop, at most the concurrency.
    pub connections: usize,
    /// Requests in flight at the same time on one connection: 1 for HTTP/1.1.
    pub streams: usize,
    /// Longest time from sending a request to the end of its response. Also the longest wait of a
    /// due request for a free connection.
    pub timeout: Duration,
    /// Seed of the arrival times and of the choice of tokens.
    pub seed: u64,
    /// Processes to sample during the run.
    pub watch: Vec<WatchedProcess>,
}

/// Why a run cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The numbers of the plan contradict each other.
    #[error("{0}")]
    Plan(String),
    /// The request cannot be sent as it is given.
    #[error(transparent)]
    Flow(#[from] RequestTemplateError),
    /// The kernel's data of a watched process cannot be read.
    #[error(transparent)]
    Observe(#[from] crate::observe::ObserveError),
    /// The event loop or a timer cannot be created.
    #[error("cannot set up the event loop: {0}")]
    Runtime(#[from] io::Error),
}

impl Plan {
    /// Number of requests that can be in flight at the same time.
    pub fn slots(&self) -> usize {
        self.connections.saturating_mul(self.streams)
    }

    fn check(&self) -> Result<(), LoadError> {
        let refuse = |why: &str| Err(LoadError::Plan(why.to_owned()));
        if self.slots() == 0 {
            return refuse("at least one connection with one request at a time is needed");
        }
        if self.target.protocol == Protocol::Http1 && self.streams != 1 {
            return refuse("HTTP/1.1 carries one request at a time; streams need HTTP/2");
        }
        if let Some(why) = self.wrong_exchange() {
            return refuse(why);
        }
        if self.target.protocol == Protocol::Http2 && !self.flow.keep_alive {
            return refuse("a connection per request is offered for HTTP/1.1 only");
        }
        if self.timeout.is_zero() {
            return refuse("the timeout must be greater than zero");
        }
        match &self.schedule {
            Schedule::Closed { concurrency } if *concurrency != self.slots() => {
                refuse("the concurrency of a closed loop must be its connections times their streams")
            }
            Schedule::Open(open) if open.steps.is_empty() => refuse("an open loop needs a rate"),
            Schedule::Open(open)
                if open
                    .steps
                    .iter()
                    .any(|step| ![step.rate, step.to].iter().all(|rate| (0.0..=1e7).contains(rate))) =>
            {
                refuse("a rate must be a number from 0 to 10 000 000 requests per second")
            }
            _ => Ok(self.flow.check(&self.target)?),
        }
    }

    /// Why the exchange cannot be done over this protocol, or within this timeout.
    fn wrong_exchange(&self) -> Option<&'static str> {
        match (&self.flow.exchange, self.target.protocol) {
            (exchange, Protocol::Http1) if exchange.is_grpc() => Some("gRPC needs HTTP/2"),
            (Exchange::WebSocket(_), Protocol::Http2) => Some("WebSockets are offered over HTTP/1.1 only"),
            (Exchange::WebSocket(socket), _) if socket.messages == 0 => {
                Some("a WebSocket needs at least one message")
            }
            (Exchange::WebSocket(socket), _) if socket.length() >= self.timeout => {
                Some("the timeout must be longer than a WebSocket lasts: its messages times their interval")
            }
            _ => None,
        }
    }

    fn dispatcher(&self) -> Dispatcher {
        let source = match &self.schedule {
            Schedule::Open(open) => {
                ArrivalSource::Open(Arrivals::new(open, self.warmup, self.stop, Random::new(self.seed)))
            }
            Schedule::Closed { .. } => ArrivalSource::Closed(Closed {
                warmup: nanos(self.warmup),
                stop: self.stop,
                measured: 0,
                finished: false,
            }),
        };
        // A second random stream, so that the choice of tokens is independent of the arrival times.
        let pick = self.flow.pick(Random::new(!self.seed));
        Dispatcher::new(source, pick, self.slots(), nanos(self.timeout))
    }

    /// The measured window. If the run has a fixed duration, `until_last_answer` extends the window
    /// to the last response.
    fn window(&self, until_last_answer: bool) -> Window {
        let from = nanos(self.warmup);
        let end = match self.stop {
            Stop::Count(_) => WindowEnd::Counted,
            Stop::After(duration) => {
                let planned = from.saturating_add(nanos(duration));
                if until_last_answer { WindowEnd::LastAnswer(planned) } else { WindowEnd::At(planned) }
            }
        };
        Window::new(from, end)
    }
}

/// What a caller observes while a load runs, and when its window ends. The default observes nothing
/// and ends the window as planned.
#[derive(Default)]
pub struct MeasureOptions {
    /// Timeline in slices shorter than a second.
    pub slices: Option<Slices>,
    /// Reads the phases that servers report in `Server-Timing`.
    pub phases: bool,
    /// Extends the window to the last response, so that late responses of an overloaded target
    /// count against the time they took. Requests that never get a response do not extend it.
    pub until_last_answer: bool,
    /// Records the requests beside what another thread does.
    pub moments: Option<Arc<Moments>>,
    /// Called with the moment at which the clock starts.
    pub started: Option<Box<dyn FnOnce(Instant)>>,
    /// Called with the moment at which the window ends, if load goes on after it. Only a flow does
    /// this.
    pub on_window_end: Option<Box<dyn FnOnce(Instant)>>,
}

/// Runs the plans at the same time on the calling thread, until they end or until `interrupted`
/// resolves.
///
/// This puts the same load on several targets. Each has its own arrivals and connections; the
/// results are recorded as one run. The window and the watched processes are those of the first
/// plan.
///
/// # Errors
/// A plan is invalid, a watched process cannot be read, or the event loop cannot be created.
pub fn measure(
    plans: &[Plan],
    probe: MeasureOptions,
    interrupted: impl Future<Output = ()>,
) -> Result<LoadOutcome, LoadError> {
    let Some(first) = plans.first() else {
        return Err(LoadError::Plan("the load plan names no target".to_owned()));
    };
    plans.iter().try_for_each(Plan::check)?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(run_plan(plans, first, probe, interrupted))
}

async fn run_plan(
    plans: &[Plan],
    first: &Plan,
    probe: MeasureOptions,
    interrupted: impl Future<Output = ()>,
) -> Result<LoadOutcome, LoadError> {
    let mut recorder = Recorder::new(first.window(probe.until_last_answer));
    recorder.slices = probe.slices;
    recorder.streams = first.flow.exchange.kind().map(|(kind, stall)| StreamRecorder::new(kind, stall));
    let recorder = Rc::new(RefCell::new(recorder));
    let mut lanes = Vec::new();
    for plan in plans {
        let recorder = Rc::clone(&recorder);
        let mut session =
            TargetSession::new(plan.target.clone(), &plan.flow, plan.timeout, plan.dispatcher(), recorder);
        session.read_phases = probe.phases;
        session.moments.clone_from(&probe.moments);
        let session = Rc::new(session);
        lanes.push((plan, PreparedConnections::open(plan, &session).await, session));
    }
    // The clock starts when every connection is open: opening them is not part of the measurement.
    let origin = Instant::now();
    let mut slots = JoinSet::new();
    let mut sessions = Vec::new();
    for (plan, opened, session) in lanes {
        session.clock.restart_at(origin);
        opened.spawn_workers(plan, &session, &mut slots);
        sessions.push(session);
    }
    if let Some(started) = probe.started {
        started(origin);
    }
    let watch = ProcessSampler::start(&first.watch, crate::observe::INTERVAL, Instant::now())?;
    let (own, interrupted) = supervise(&sessions, slots, interrupted).await?;
    let recorder = recorder.replace(Recorder::new(Window::new(0, WindowEnd::At(0))));
    let connections = plans.iter().map(|plan| plan.connections).sum();
    Ok(LoadOutcome::new(&sessions, recorder, own, connections, watch.stop(), interrupted))
}

/// The prepared requests of a plan and its open connections, before the first request is sent.
enum PreparedConnections {
    Http1(Rc<[Box<[u8]>]>, Vec<Option<h1::Connection>>),
    Http2(Rc<[http::Request<()>]>, Vec<Rc<h2::ReconnectingConnection>>),
    /// Every WebSocket opens its own connection, and opening it is measured.
    WebSocket(Rc<[Box<[u8]>]>),
}

impl PreparedConnections {
    async fn open(plan: &Plan, session: &Rc<TargetSession>) -> Self {
        match plan.target.protocol {
            _ if matches!(plan.flow.exchange, Exchange::WebSocket(_)) => {
                Self::WebSocket(plan.flow.http1(&plan.target).into())
            }
            Protocol::Http1 => {
                Self::Http1(plan.flow.http1(&plan.target).into(), h1::open(session, plan.connections).await)
            }
            Protocol::Http2 => {
                Self::Http2(plan.flow.http2(&plan.target).into(), h2::open(session, plan.connections).await)
            }
        }
    }

    /// Spawns one worker per slot.
    fn spawn_workers(self, plan: &Plan, session: &Rc<TargetSession>, slots: &mut JoinSet<()>) {
        let closed = matches!(plan.schedule, Schedule::Closed { .. });
        match self {
            Self::Http1(requests, connections) => {
                for (slot, connection) in connections.into_iter().enumerate() {
                    let (session, requests) = (Rc::clone(session), Rc::clone(&requests));
                    slots.spawn_local(h1::Worker { session, requests, slot, closed }.run(connection));
                }
            }
            Self::WebSocket(requests) => {
                for slot in 0..plan.slots() {
                    let (session, requests) = (Rc::clone(session), Rc::clone(&requests));
                    let random = Random::new(plan.seed ^ slot as u64);
                    let worker = websocket::Worker { session, requests, slot, closed, random };
                    slots.spawn_local(worker.run());
                }
            }
            Self::Http2(requests, links) => {
                for slot in 0..plan.slots() {
                    let link = Rc::clone(&links[slot % links.len()]);
                    let (session, requests) = (Rc::clone(session), Rc::clone(&requests));
                    slots.spawn_local(h2::Worker { session, link, requests, slot, closed }.run());
                }
            }
        }
    }
}

/// Runs until every slot has ended. Returns the generator's own usage while requests of the window
/// were due, and whether the run was interrupted.
async fn supervise(
    sessions: &[Rc<TargetSession>],
    mut slots: JoinSet<()>,
    interrupted: impl Future<Output = ()>,
) -> Result<(SelfUsage, bool), LoadError> {
    let session = &sessions[0];
    let mut ticking = JoinSet::new();
    for session in sessions {
        let (session, timer) = (Rc::clone(session), FineTimer::new()?);
        ticking.spawn_local(async move { dispatch_when_due(&session, timer).await });
    }
    let mut keeping = std::pin::pin!(close_rows_on_time(sessions));
    let mut using = std::pin::pin!(measure_self_usage(session));
    let mut interrupted = std::pin::pin!(interrupted);
    let (mut used, mut stopped) = (None, false);
    loop {
        tokio::select! {
            biased;
            joined = slots.join_next() => match joined {
                Some(ended) => ended.map_err(io::Error::other)?,
                None => break,
            },
            Some(ticked) = ticking.join_next() => ticked.map_err(io::Error::other)??,
            own = &mut using, if used.is_none() => used = Some(own),
            never = &mut keeping => match never {},
            () = &mut interrupted, if !stopped => {
                stopped = true;
                session.recorder.borrow_mut().window.stop(session.clock.now());
                for session in sessions {
                    session.dispatcher.borrow_mut().stop();
                }
            }
        }
    }
    session.recorder.borrow_mut().finish(session.clock.now());
    let own = used.unwrap_or_else(|| session.self_usage_start.get().delta(SelfUsage::read()));
    Ok((own, stopped))
}

/// Runs the dispatcher whenever a request is due and a slot is free for it.
async fn dispatch_when_due(session: &TargetSession, timer: FineTimer) -> io::Result<()> {
    loop {
        let wake = session.dispatcher.borrow().wake();
        match wake {
            Wake::Never => return Ok(()),
            Wake::WhenIdle => {
                let mut registered = false;
                std::future::poll_fn(|cx| {
                    if std::mem::replace(&mut registered, true) {
                        return std::task::Poll::Ready(());
                    }
                    session.dispatcher.borrow_mut().register_clock_waker(cx);
                    std::task::Poll::Pending
                })
                .await;
            }
            Wake::At(at) => {
                let now = session.clock.now();
                if at > now {
                    timer.sleep(Duration::from_nanos((at - now).max(MIN_SLEEP_NS))).await?;
                }
            }
        }
        session.dispatch();
    }
}

/// Measures the generator's own usage from the end of the warm-up until the last request is due.
///
/// Waiting for responses after that costs almost nothing and would make the generator look less
/// busy. In a run that ends after a number of requests this end is unknown, so the future never
/// resolves.
async fn measure_self_usage(session: &TargetSession) -> SelfUsage {
    let (from, until) = {
        let recorder = session.recorder.borrow();
        (recorder.window.bounds().0, recorder.window.planned())
    };
    session.self_usage_start.set(SelfUsage::read());
    if from > 0 {
        tokio::time::sleep_until(session.clock.instant(from)).await;
        session.self_usage_start.set(SelfUsage::read());
    }
    let Some(until) = until else { return std::future::pending().await };
    tokio::time::sleep_until(session.clock.instant(until)).await;
    session.self_usage_start.get().delta(SelfUsage::read())
}

/// Closes the rows and slices of the timeline on time.
async fn close_rows_on_time(sessions: &[Rc<TargetSession>]) -> Infallible {
    let session = &sessions[0];
    let mut next = 1_000_000_000;
    loop {
        roll_slices(session, next).await;
        tokio::time::sleep_until(session.clock.instant(next)).await;
        next += 1_000_000_000;
        let now = session.clock.now();
        let (mut in_flight, mut waiting) = (0, 0);
        for feed in sessions.iter().map(|session| session.dispatcher.borrow()) {
            in_flight += feed.in_flight;
            waiting = feed.oldest_wait(now).max(waiting);
        }
        session.recorder.borrow_mut().close_rows_until(now, in_flight, waiting);
    }
}

/// Closes the slices of the timeline that end before `until`, so that an observer sees a silence
/// while it lasts.
async fn roll_slices(session: &TargetSession, until: u64) {
    let width = session.recorder.borrow().slices.as_ref().map(Slices::width);
    let Some(width) = width else { return };
    loop {
        let now = session.clock.now();
        if let Some(slices) = &mut session.recorder.borrow_mut().slices {
            slices.close_until(now);
        }
        let next = (now / width + 1) * width;
        if next >= until {
            return;
        }
        tokio::time::sleep_until(session.clock.instant(next)).await;
    }
}
