//! Provider load generator: virtual users that run transactions against an OpenID provider. Each
//! transaction consists of several dependent requests.
//!
//! It is a closed loop on one thread, like the generator of plain requests.
//!
//! Owns: plans and runs. Does not own: names and addresses of the provider ([`description`]), the
//! kinds of transactions ([`scenario`]) and their requests ([`user`]), the shape of the report
//! ([`crate::report`]).
//!
//! 1. The [`ProviderPlan`] is checked.
//! 2. Initial tokens are obtained, then the clock starts.
//! 3. Each virtual user runs one transaction after the other.
//! 4. The warm-up ends after its time, when every user has finished a transaction, but at most one
//!    timeout later.
//! 5. The window is measured.
//! 6. Transactions in progress are awaited, so that they do not burden the next run.

mod browser;
mod description;
pub mod html;
mod jar;
mod scenario;
mod tally;
mod url;
mod user;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub use description::{
    Client, ConsentButton, DescriptionError, Endpoints, Fields, ProviderDescription, Scopes, Users,
};
use lab_analysis::units::nanos;
pub use scenario::Flow;
pub(crate) use tally::TransactionTally;
pub use tally::{FailureClass, Step};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;
pub(crate) use url::escape;

use self::browser::SharedState;
use self::tally::TransactionFailure;
use self::user::{MAX_INTROSPECTED_TOKENS, Place, Token, User};
use crate::load::{Clock, MeasureOptions, Protocol, Random, SelfUsage, Target, TargetError, Trust};
use crate::observe::{ObserveError, ProcessSampler, Series, WatchedProcess};

/// Virtual users that obtain tokens at the same time before the clock starts.
const MAX_CONCURRENT_PREPARATIONS: usize = 16;
/// Pause of a virtual user after a failed transaction. Without it, a provider that refuses
/// immediately would turn the loop into a flood of attempts.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);
/// Time between two checks of whether the warm-up has ended.
const WARMUP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Plan of a run against an OpenID provider.
#[derive(Debug, Clone)]
pub struct ProviderPlan {
    /// Description of the provider.
    pub description: ProviderDescription,
    /// Transaction to run.
    pub scenario: Flow,
    /// Number of virtual users, each with its own connection.
    pub concurrency: usize,
    /// Minimum duration of the load before the window. The warm-up continues until every user has
    /// finished one transaction, but at most one timeout longer.
    pub warmup: Duration,
    /// Duration of the measured window.
    pub duration: Duration,
    /// How long the load continues after the window.
    pub after: Duration,
    /// Timeout of one request.
    pub timeout: Duration,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Which certificates are accepted if the origin is `https`.
    pub trust: Option<Trust>,
    /// Address `HOST:PORT` to connect to, instead of that of the origin.
    pub connect: Option<String>,
    /// Processes to sample during the run.
    pub watch: Vec<WatchedProcess>,
}

/// Why a run cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// A number of the plan is out of range.
    #[error("{0}")]
    Plan(&'static str),
    /// The description is incomplete or invalid.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The origin cannot be used as a target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The kernel's data of a watched process cannot be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The initial tokens could not be obtained.
    #[error("cannot prepare {scenario}: {why}; try the request manually")]
    Prepare {
        /// Name of the scenario.
        scenario: &'static str,
        /// Failed step, and what happened.
        why: String,
    },
    /// The event loop or a timer cannot be created.
    #[error("cannot set up the event loop: {0}")]
    Runtime(#[from] io::Error),
}

/// Raw result of a run, before it becomes a report.
pub struct ProviderOutcome {
    pub(crate) tally: TransactionTally,
    pub(crate) self_usage: SelfUsage,
    pub(crate) opened: u64,
    pub(crate) received: u64,
    pub(crate) preparation: Duration,
    pub(crate) repeated_preparations: u64,
    pub(crate) all_users_warm: bool,
    pub(crate) watched: Vec<Series>,
    /// `true` if the run was interrupted before its planned end.
    pub interrupted: bool,
}

/// Runs the plan on the calling thread until its end, or until `interrupted` resolves. The slices
/// of `probe` count transactions; phases are not recorded.
///
/// # Errors
/// The plan is invalid, the origin cannot be used as a target, or the initial tokens cannot be
/// obtained.
pub fn measure(
    plan: &ProviderPlan,
    probe: MeasureOptions,
    interrupted: impl Future<Output = ()>,
) -> Result<ProviderOutcome, ProviderError> {
    plan.description.check(plan.scenario)?;
    if plan.concurrency == 0 {
        return Err(ProviderError::Plan("at least one virtual user is required: --concurrency"));
    }
    if plan.timeout.is_zero() || plan.duration.is_zero() {
        return Err(ProviderError::Plan("timeout and duration must be greater than zero"));
    }
    let origin = &plan.description.origin;
    let target = Target::new(origin, Protocol::Http1, plan.trust.as_ref(), plan.connect.as_deref(), None)?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(run_plan(plan, target, probe, interrupted))
}

/// State of the run that all virtual users share.
#[derive(Default)]
struct RunState {
    over: Cell<bool>,
    /// Virtual users that have finished a transaction.
    warm: Cell<usize>,
    prepared_again: Cell<u64>,
}

async fn run_plan(
    plan: &ProviderPlan,
    target: Target,
    probe: MeasureOptions,
    interrupted: impl Future<Output = ()>,
) -> Result<ProviderOutcome, ProviderError> {
    let shared = Rc::new(SharedState {
        clock: Clock::start(),
        target,
        timeout: nanos(plan.timeout),
        tally: RefCell::new(TransactionTally::new()),
        opened: Cell::new(0),
        received: Cell::new(0),
    });
    let description = Rc::new(plan.description.clone());
    let tokens: Rc<RefCell<Vec<Token>>> = Rc::default();
    let mut seeds = Random::new(plan.seed);
    let users = (0..plan.concurrency).map(|index| {
        let random = Random::new(seeds.next_u64());
        let (shared, description) = (Rc::clone(&shared), Rc::clone(&description));
        let place = Place { index, of: plan.concurrency };
        User::new(shared, description, plan.scenario, place, random, Rc::clone(&tokens))
    });
    let started = Instant::now();
    let users = prepare(plan.scenario, users.collect()).await?;
    let preparation = started.elapsed();

    let origin = Instant::now();
    shared.clock.restart_at(origin);
    shared.tally.borrow_mut().slices = probe.slices;
    if let Some(started) = probe.started {
        started(origin);
    }
    let watch = ProcessSampler::start(&plan.watch, crate::observe::INTERVAL, Instant::now())?;
    let course = Rc::new(RunState::default());
    let mut working = JoinSet::new();
    for user in users {
        working.spawn_local(run_user(user, Rc::clone(&shared), Rc::clone(&course)));
    }
    let kept = run_window(plan, &shared, &course, probe.on_window_end, interrupted).await;
    let watched = watch.stop();
    let draining = async { while working.join_next().await.is_some() {} };
    // The wait is bounded: transactions that are not finished by then are dropped.
    let _ = tokio::time::timeout(plan.timeout, draining).await;
    drop(working);
    Ok(ProviderOutcome {
        tally: shared.tally.replace(TransactionTally::new()),
        self_usage: kept.own,
        opened: shared.opened.get(),
        received: shared.received.get(),
        preparation,
        repeated_preparations: course.prepared_again.get(),
        all_users_warm: kept.everyone_warm,
        watched,
        interrupted: kept.interrupted,
    })
}

/// Obtains the initial tokens, for several virtual users at the same time. This is not measured.
async fn prepare(scenario: Flow, users: Vec<User>) -> Result<Vec<User>, ProviderError> {
    let most = match scenario {
        Flow::Refresh => users.len(),
        Flow::Introspection => MAX_INTROSPECTED_TOKENS,
        _ => return Ok(users),
    };
    let (mut ready, mut preparing) = (Vec::with_capacity(users.len()), JoinSet::new());
    for (index, mut user) in users.into_iter().enumerate() {
        if index >= most {
            ready.push(user);
            continue;
        }
        if preparing.len() == MAX_CONCURRENT_PREPARATIONS {
            ready.extend(next_prepared(scenario, &mut preparing).await?);
        }
        preparing.spawn_local(async move { user.prepare().await.map(|()| user) });
    }
    while let Some(user) = next_prepared(scenario, &mut preparing).await? {
        ready.push(user);
    }
    Ok(ready)
}

async fn next_prepared(
    scenario: Flow,
    preparing: &mut JoinSet<Result<User, TransactionFailure>>,
) -> Result<Option<User>, ProviderError> {
    let Some(ended) = preparing.join_next().await else { return Ok(None) };
    let failed = |trouble: TransactionFailure| ProviderError::Prepare {
        scenario: scenario.name(),
        why: format!("{}: {}: {}", trouble.step.name(), trouble.class.name(), trouble.why),
    };
    ended.map_err(io::Error::other)?.map(Some).map_err(failed)
}

/// Runs one virtual user until the run ends.
async fn run_user(mut user: User, shared: Rc<SharedState>, course: Rc<RunState>) {
    let mut warm = false;
    while !course.over.get() {
        // Tokens that a failure has cost are obtained again, outside the measured transaction.
        let prepared = if user.needs_preparation() {
            course.prepared_again.set(course.prepared_again.get() + 1);
            user.prepare().await
        } else {
            Ok(())
        };
        let started = shared.clock.now();
        let ending = match prepared {
            Ok(()) => user.transaction().await,
            Err(trouble) => Err(trouble),
        };
        let ended = shared.clock.now();
        let failed = ending.is_err();
        shared.tally.borrow_mut().record_transaction(ended.saturating_sub(started), ended, ending);
        if !std::mem::replace(&mut warm, true) {
            course.warm.set(course.warm.get() + 1);
        }
        if failed {
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
    }
}

/// Result of the measured window.
struct WindowResult {
    /// The generator's own usage in the window.
    own: SelfUsage,
    everyone_warm: bool,
    interrupted: bool,
}

/// Opens and closes the measured window, and ends the load, immediately or after a planned time.
async fn run_window(
    plan: &ProviderPlan,
    shared: &SharedState,
    course: &RunState,
    closed: Option<Box<dyn FnOnce(Instant)>>,
    interrupted: impl Future<Output = ()>,
) -> WindowResult {
    let until = |at: u64| tokio::time::sleep_until(shared.clock.instant(at));
    let warming = async {
        until(nanos(plan.warmup)).await;
        let latest = nanos(plan.warmup).saturating_add(nanos(plan.timeout));
        while course.warm.get() < plan.concurrency && shared.clock.now() < latest {
            tokio::time::sleep(WARMUP_POLL_INTERVAL).await;
        }
    };
    let mut interrupted = std::pin::pin!(interrupted);
    let mut stopped = tokio::select! {
        () = warming => false,
        () = &mut interrupted => true,
    };
    let everyone_warm = course.warm.get() == plan.concurrency;
    let from = shared.clock.now();
    let own = SelfUsage::read();
    shared.tally.borrow_mut().window = (from, from.saturating_add(nanos(plan.duration)));
    if !stopped {
        let end = shared.tally.borrow().window.1;
        tokio::select! {
            () = until(end) => {}
            () = &mut interrupted => stopped = true,
        }
    }
    let own = own.delta(SelfUsage::read());
    let now = shared.clock.now();
    shared.tally.borrow_mut().close_window(now);
    if !stopped && !plan.after.is_zero() {
        if let Some(closed) = closed {
            closed(shared.clock.instant(now).into());
        }
        tokio::select! {
            () = until(now.saturating_add(nanos(plan.after))) => {}
            () = &mut interrupted => stopped = true,
        }
    }
    course.over.set(true);
    WindowResult { own, everyone_warm, interrupted: stopped }
}
