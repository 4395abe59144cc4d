//! Measurement: sends one load through a running topology and produces an iteration of the record.
//!
//! Owns: the plans of the load, what happens during it (sampling, revocations, events), and a
//! common time axis for all of these. Does not own: the order of loads.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lab_analysis::record::{Arrivals, Component, Iteration, LoadShape, Outcome, Stage};
use lab_analysis::units::{count, nanos};
use lab_load::Interrupt;
use lab_load::cluster::{ClusterSite, ClusterThreads};
use lab_load::generator::COMPONENT;
use lab_load::load::{
    self, MeasureOptions, Open, Plan, Protocol, Schedule, Slices, Step, Stop, Target, TokenChoice,
};
use lab_load::provider::{Flow, ProviderPlan};
use lab_load::report::iteration_of_load;
use lab_load::revoke::{self, RevocationSite};

use super::generator::LoadSender;
use super::progress::Progress;
use super::sampler::Sampler;
use super::{ArrangementError, events};
use crate::run::background;
use crate::run::provider_flow;
use crate::scenario::{Arrangement, ArrivalPattern, Load};
use crate::topology::Running;

/// Minimum width of a timeline slice, maximum width, and the approximate number of slices.
const MIN_SLICE_MS: u64 = 100;
const MAX_SLICE_MS: u64 = 500;
const SLICE_COUNT: u64 = 100;

/// Result of one load.
pub(super) struct Measured {
    /// The iteration; `None` if no request ended in the window.
    pub(super) iteration: Option<Iteration>,
    pub(super) interrupted: bool,
}

impl Measured {
    /// Successful responses per second; `None` if there were none.
    pub(super) fn ok_per_s(&self) -> Option<f64> {
        let iteration = self.iteration.as_ref()?;
        Some(iteration.count(Outcome::Ok) as f64 / iteration.seconds).filter(|rate| *rate > 0.0)
    }
}

/// Description of the load for the record.
pub(super) fn load_shape(arrangement: &Arrangement, load: &Load, steps: &[Step], tokens: usize) -> LoadShape {
    let (arrivals, concurrency) = match &load.arrivals {
        ArrivalPattern::Closed(workers) => (Arrivals::Closed, *workers),
        ArrivalPattern::Open { connections, .. } => (Arrivals::Open, *connections),
    };
    let stage = |step: &Step| Stage {
        from_per_s: step.rate,
        to_per_s: step.to,
        seconds: step.duration.as_secs_f64(),
    };
    let (rate, stages) = match steps {
        [] => (None, Vec::new()),
        [one] if one.is_steady() => (Some(one.rate), Vec::new()),
        steps => {
            let total: Duration = steps.iter().map(|step| step.duration).sum();
            let requests: f64 = steps.iter().map(Step::requests).sum();
            (Some(requests / total.as_secs_f64()), steps.iter().map(stage).collect())
        }
    };
    let http2 = arrangement.topology.entry.protocol == Protocol::Http2;
    LoadShape {
        arrivals,
        concurrency: Some(concurrency),
        rate_per_s: rate,
        stages,
        flow: load.flow.map_or_else(|| load.exchange.unit(), Flow::name).to_owned(),
        protocol: Some(if http2 && load.flow.is_none() { "h2" } else { "http/1.1" }.to_owned()),
        // A flow obtains new tokens continuously, so the number is not known.
        tokens: load.flow.is_none().then(|| u64::from(load.tokens).min(count(tokens))),
        timeout_s: Some(load.timeout.as_secs_f64()),
    }
}

/// A running arrangement, with what its loads need.
pub(super) struct RunningArrangement {
    pub(super) running: Running,
    pub(super) tokens: Vec<String>,
    /// Endpoints where credentials are revoked and checked; `None` if the topology does not
    /// describe them.
    pub(super) site: Option<RevocationSite>,
    /// The cluster that loads change; `None` if the topology has none.
    pub(super) cluster: Option<ClusterSite>,
    /// Sender of its loads; `None` for the lab itself, not sampled.
    pub(super) sender: Option<LoadSender>,
    /// Where a profiler awaits the start of the next measured window; `None` if there is none.
    pub(super) profiling: Option<mpsc::Sender<Instant>>,
}

/// What sends a load: a flow, another program, or the lab itself.
fn load_source<'s>(
    running: &Running,
    tokens: &[String],
    sender: Option<&'s LoadSender>,
    (load, steps, seed): (&'s Load, &[Step], u64),
) -> Result<LoadSource<'s>, ArrangementError> {
    let another = sender.filter(|sender| sender.is_external());
    Ok(match (load.flow, another) {
        (Some(flow), _) => LoadSource::Flow(Box::new(provider_flow::plan(running, load, flow, seed)?)),
        (None, Some(sender)) => {
            let entry = running.entry_target(load.path.as_deref(), Protocol::Http1)?;
            let token = tokens.first().filter(|_| load.tokens > 0).cloned();
            LoadSource::External { sender, entry: Box::new(entry), token, load }
        }
        (None, None) => LoadSource::Requests(plans(running, tokens, load, steps, seed)?),
    })
}

/// Sends a load through a topology, performs its events, and samples the components.
///
/// # Errors
/// The load cannot be sent, a component ended, or nothing could be revoked.
pub(super) fn measure(
    up: &mut RunningArrangement,
    load: &Load,
    steps: &[Step],
    seed: u64,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<Measured, ArrangementError> {
    let RunningArrangement { running, tokens, site, cluster, sender, profiling } = up;
    let profiling = profiling.take();
    let load_sender = sender.as_ref();
    let sending = load_source(running, tokens, load_sender, (load, steps, seed))?;
    let watch = load.revocations.zip(site.as_ref());
    let watch = watch
        .map(|(pace, site)| revoke::RevocationThread::prepare(site.clone(), pace, !seed, interrupt.clone()));
    let watch = watch.transpose().map_err(ArrangementError::Revocations)?;
    let changing = cluster_threads(cluster.as_ref(), load, seed, interrupt)?;
    let held = background::open(running, tokens, load, interrupt)?;
    let sampler: Rc<RefCell<Option<Sampler>>> = Rc::default();
    let (begun, view) = (Rc::clone(&sampler), progress.view());
    let mut watched = running.component_infos();
    watched.extend(load_sender.map(LoadSender::component_info));
    let prepared = Sampler::prepare(watched);
    let (slices, warmup) = (view.clone(), load.warmup);
    let revoking = watch.as_ref().map(revoke::RevocationThread::start_sender);
    let (in_window, after) = if load.after_window().is_some() { (None, revoking) } else { (revoking, None) };
    let starting = changing.as_ref().map(ClusterThreads::start_senders).unwrap_or_default();
    let (beginning, begins) = mpsc::channel();
    let acting = beginning.clone();
    let probe = MeasureOptions {
        slices: Some(Slices::new(slice_ms(load), Some(Box::new(move |slice| slices.push_slice(slice))))),
        phases: running.server_timing_component().is_some(),
        until_last_answer: true,
        moments: changing.as_ref().and_then(ClusterThreads::scraping),
        started: Some(Box::new(move |origin| {
            *begun.borrow_mut() = Some(Sampler::start(prepared, origin, &view));
            // If the receiver has ended, its result is read at the join below.
            let _ = acting.send(origin);
            for thread in starting {
                let _ = thread.send(origin + warmup);
            }
            let _ = profiling.map(|profiling| profiling.send(origin + warmup));
            let _ = in_window.map(|revoking| revoking.send(origin + warmup));
        })),
        on_window_end: after.map(|revoking| -> Box<dyn FnOnce(_)> {
            Box::new(move |closed| {
                let _ = revoking.send(closed);
            })
        }),
    };
    let timing = running.server_timing_component().map(str::to_owned);
    let (measured, events) = std::thread::scope(|scope| {
        let running = &mut *running;
        let acting = scope.spawn(move || events::run_events(running, &load.events, &begins));
        let measured = match load_sender {
            Some(load_sender) => load_sender
                .on_cores(|| sending.send(timing.as_deref(), probe, interrupt))
                .and_then(|measured| measured),
            None => sending.send(timing.as_deref(), probe, interrupt),
        };
        drop(beginning);
        (measured, acting.join())
    });
    // The revocation watch ends with any result of the load, so that nothing is revoked or sampled
    // afterwards.
    let revoked = watch.map(revoke::RevocationThread::finish).transpose();
    let changed = changing.map(ClusterThreads::finish).transpose();
    let mut components = sampler.take().map(Sampler::stop).unwrap_or_default();
    let sent_by = load_sender.and_then(|_| components.pop_if(|last| last.name == COMPONENT));
    let held = held.map(background::HeldDuringLoad::close).transpose()?;
    let (mut iteration, interrupted) = measured?;
    iteration.components = components;
    for component in &mut iteration.components {
        component.ended &= !running.is_stopped_on_purpose(&component.name);
    }
    // A load generator ends with its load; that is not a failure.
    iteration.sender = sent_by.map(|sender| Component { ended: false, ..sender });
    iteration.held = held;
    iteration.events = events.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    (iteration.changes, iteration.scrapes) = changed.map_err(ArrangementError::Changes)?.unwrap_or_default();
    if let Some(observed) = revoked.map_err(ArrangementError::Revocations)? {
        if let (0, Some(why)) = (observed.revocations.revoked, &observed.revocations.example) {
            return Err(ArrangementError::NothingRevoked(why.clone()));
        }
        iteration.staleness = observed.staleness;
        iteration.revocations = Some(observed.revocations);
    }
    if !interrupted {
        running.check_alive()?;
    }
    let counted = iteration.seconds > 0.0 && iteration.classes.iter().any(|class| class.count > 0);
    Ok(Measured { iteration: counted.then_some(iteration), interrupted })
}

/// Threads that change the cluster and scrape metrics; `None` if the load does neither.
fn cluster_threads(
    cluster: Option<&ClusterSite>,
    load: &Load,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Option<ClusterThreads>, ArrangementError> {
    let wanted = load.changes.is_some() || load.scrape_every.is_some();
    let Some(site) = cluster.filter(|_| wanted) else { return Ok(None) };
    ClusterThreads::prepare(site, load.changes, load.scrape_every, !seed, interrupt)
        .map(Some)
        .map_err(ArrangementError::Changes)
}

/// What a load sends.
enum LoadSource<'a> {
    /// Requests from the lab to each load entry.
    Requests(Vec<Plan>),
    /// Requests that another generator sends.
    External { sender: &'a LoadSender, entry: Box<Target>, token: Option<String>, load: &'a Load },
    /// Transactions with an OpenID provider.
    Flow(Box<ProviderPlan>),
}

impl LoadSource<'_> {
    /// Sends the load. Returns the iteration, and whether it was interrupted. `timing` is the
    /// component whose phases the responses report.
    fn send(
        &self,
        timing: Option<&str>,
        probe: MeasureOptions,
        interrupt: &Interrupt,
    ) -> Result<(Iteration, bool), ArrangementError> {
        match self {
            Self::Requests(plans) => requests(plans, timing, probe, interrupt),
            Self::External { sender, entry, token, load } => {
                sender.send(entry, token.as_deref(), load, probe, interrupt)
            }
            Self::Flow(plan) => provider_flow::send(plan, probe, interrupt),
        }
    }
}

/// Sends requests to the load entries. Returns the iteration, and whether it was interrupted.
fn requests(
    plans: &[Plan],
    timing: Option<&str>,
    probe: MeasureOptions,
    interrupt: &Interrupt,
) -> Result<(Iteration, bool), ArrangementError> {
    let mut outcome = load::measure(plans, probe, interrupt.wait())?;
    Ok((iteration_of_load(&plans[0], &mut outcome, timing), outcome.interrupted))
}

/// Creates one plan per load entry, each with its share of the load.
fn plans(
    running: &Running,
    tokens: &[String],
    load: &Load,
    steps: &[Step],
    seed: u64,
) -> Result<Vec<Plan>, ArrangementError> {
    let targets = running.targets(load.path.as_deref())?;
    let parts = targets.len();
    let share = |rate: f64| rate / parts as f64;
    let steps: Vec<Step> =
        steps.iter().map(|step| Step { rate: share(step.rate), to: share(step.to), ..*step }).collect();
    let all = targets.into_iter().enumerate();
    let plans = all.map(|(index, target)| {
        let part = |whole: usize| whole / parts + usize::from(index < whole % parts);
        plan(target, tokens, load, &steps, seed ^ count(index) << 32, part)
    });
    let plans: Vec<Plan> = plans.collect();
    if plans.iter().any(|plan| plan.connections == 0 || plan.stop == Stop::Count(0)) {
        let message =
            format!("load enters at {parts} places: each needs a worker or connection, and a request");
        return Err(ArrangementError::Load(load::LoadError::Plan(message)));
    }
    Ok(plans)
}

fn plan(
    target: Target,
    tokens: &[String],
    load: &Load,
    steps: &[Step],
    seed: u64,
    part: impl Fn(usize) -> usize,
) -> Plan {
    let population = tokens.iter().take(load.tokens as usize).cloned().collect();
    let choice = load.zipf.map_or(TokenChoice::RoundRobin, TokenChoice::Zipf);
    let (schedule, slots) = match &load.arrivals {
        ArrivalPattern::Closed(workers) => {
            let workers = part(*workers as usize);
            (Schedule::Closed { concurrency: workers }, workers)
        }
        ArrivalPattern::Open { spacing, connections, .. } => {
            let open = Open { spacing: *spacing, steps: steps.to_vec() };
            (Schedule::Open(open), part(*connections as usize))
        }
    };
    // HTTP/2 multiplexes: the same number of requests in flight on fewer connections.
    let streams = match target.protocol {
        Protocol::Http1 => 1,
        Protocol::Http2 => load.streams.filter(|streams| slots % *streams as usize == 0).map_or_else(
            || (1..=10).rev().find(|streams| slots % streams == 0).unwrap_or(1),
            |streams| streams as usize,
        ),
    };
    let stop = match load.stop {
        Stop::Count(requests) => Stop::Count(count(part(usize::try_from(requests).unwrap_or(usize::MAX)))),
        stop @ Stop::After(_) => stop,
    };
    Plan {
        target,
        flow: load::RequestTemplate {
            tokens: population,
            choice,
            ..load::RequestTemplate::of_exchange(load.exchange.clone(), seed)
        },
        schedule,
        stop,
        warmup: load.warmup,
        connections: slots / streams,
        streams,
        timeout: load.timeout,
        seed,
        watch: Vec::new(),
    }
}

fn slice_ms(load: &Load) -> u64 {
    let whole = load.length().map_or(0, |length| nanos(length) / 1_000_000);
    (whole / SLICE_COUNT / 50 * 50).clamp(MIN_SLICE_MS, MAX_SLICE_MS)
}
