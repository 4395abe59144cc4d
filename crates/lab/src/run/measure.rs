//! One load through one topology that runs: what becomes an iteration of the record.
//!
//! Owns: the plan of the load, watching the components meanwhile, and putting both on one time axis. Does not own: when it happens.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::progress::Progress;
use super::sampler::Sampler;
use super::{Failed, beside};
use crate::interrupt::Interrupt;
use crate::load::{self, Choice, Fault, Flow, Open, Plan, Probe, Protocol, Schedule, Slices, Step, Stop};
use crate::record::{Arrivals, Class, GeneratorUse, Iteration, LoadShape, Outcome, Phase};
use crate::report::LoadReport;
use crate::scenario::{Arrangement, Arriving, Load};
use crate::topology::Running;
use crate::units::{count, nanos, seconds};

/// Slices of the timeline are at least this long, and there are about so many.
const LEAST_SLICE_MS: u64 = 100;
const MOST_SLICE_MS: u64 = 500;
const SLICES: u64 = 100;

/// What one load came to.
pub(super) struct Measured {
    /// Absent when nothing ended in the window.
    pub(super) iteration: Option<Iteration>,
    pub(super) interrupted: bool,
}

impl Measured {
    /// Good answers per second; absent when there were none.
    pub(super) fn per_s(&self) -> Option<f64> {
        let iteration = self.iteration.as_ref()?;
        Some(iteration.count(Outcome::Ok) as f64 / iteration.seconds).filter(|rate| *rate > 0.0)
    }
}

/// How long a load takes, where it is known.
pub(super) fn length(load: &Load) -> Option<Duration> {
    match load.stop {
        Stop::After(duration) => Some(load.warmup + duration),
        Stop::Count(_) => None,
    }
}

/// The load as the record says it.
pub(super) fn shape(arrangement: &Arrangement, load: &Load, rate: Option<f64>, tokens: usize) -> LoadShape {
    let (arrivals, concurrency) = match load.arrivals {
        Arriving::Closed(workers) => (Arrivals::Closed, workers),
        Arriving::Open { connections, .. } => (Arrivals::Open, connections),
    };
    let http2 = arrangement.topology.load.protocol == Protocol::Http2;
    LoadShape {
        arrivals,
        concurrency: Some(concurrency),
        rate_per_s: rate,
        flow: "request".to_owned(),
        protocol: Some(if http2 { "h2" } else { "http/1.1" }.to_owned()),
        tokens: Some(u64::from(load.tokens).min(count(tokens))),
        timeout_s: Some(load.timeout.as_secs_f64()),
    }
}

/// Sends a load through a topology and watches its components.
pub(super) fn measure(
    running: &mut Running,
    tokens: &[String],
    load: &Load,
    rate: Option<f64>,
    seed: u64,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<Measured, Failed> {
    let plan = plan(running, tokens, load, rate, seed)?;
    let held = beside::open(running, tokens, load, interrupt)?;
    let timing = running.phases_of().map(str::to_owned);
    let width = slice_ms(load);
    let sampler: Rc<RefCell<Option<Sampler>>> = Rc::default();
    let (begun, components, view) = (Rc::clone(&sampler), running.started(), progress.view());
    let slices = view.clone();
    let probe = Probe {
        slices: Some(Slices::new(width, Some(Box::new(move |slice| slices.slice(slice))))),
        phases: timing.is_some(),
        until_last_answer: true,
        started: Some(Box::new(move |origin| {
            *begun.borrow_mut() = Some(Sampler::start(components, origin, &view));
        })),
    };
    let measured = load::measure(&plan, probe, interrupt.wait());
    // Stopped whatever became of the load: nobody is watched any longer.
    let components = sampler.take().map(Sampler::stop).unwrap_or_default();
    let held = held.map(beside::Open::close).transpose()?;
    let (report, mut outcome) = measured?;
    let mut iteration = iteration(&plan, &report, &mut outcome);
    iteration.components = components;
    iteration.held = held;
    if let Some(component) = timing {
        let phases = std::mem::take(&mut outcome.recorder.phases).into_iter();
        iteration.phases = phases
            .map(|(name, durations)| Phase {
                component: component.clone(),
                name: name.into_string(),
                duration: durations.distribution(),
            })
            .collect();
    }
    if !outcome.interrupted {
        running.check_alive()?;
    }
    let counted = iteration.seconds > 0.0 && iteration.classes.iter().any(|class| class.count > 0);
    Ok(Measured { iteration: counted.then_some(iteration), interrupted: outcome.interrupted })
}

fn plan(
    running: &Running,
    tokens: &[String],
    load: &Load,
    rate: Option<f64>,
    seed: u64,
) -> Result<Plan, Failed> {
    let target = running.target()?;
    let population = tokens.iter().take(load.tokens as usize).cloned().collect();
    let choice = load.zipf.map_or(Choice::RoundRobin, Choice::Zipf);
    let (schedule, slots) = match load.arrivals {
        Arriving::Closed(workers) => (Schedule::Closed { concurrency: workers as usize }, workers as usize),
        Arriving::Open { spacing, connections, .. } => {
            let steps = vec![Step { rate: rate.unwrap_or(0.0), duration: Duration::ZERO }];
            (Schedule::Open(Open { spacing, steps }), connections as usize)
        }
    };
    // HTTP/2 shares connections: as many requests in flight on fewer of them.
    let streams = match target.protocol {
        Protocol::Http1 => 1,
        Protocol::Http2 => load.streams.map_or_else(
            || (1..=10).rev().find(|streams| slots % streams == 0).unwrap_or(1),
            |streams| streams as usize,
        ),
    };
    Ok(Plan {
        target,
        flow: Flow { tokens: population, choice, ..Flow::get() },
        schedule,
        stop: load.stop,
        warmup: load.warmup,
        connections: slots / streams,
        streams,
        timeout: load.timeout,
        seed,
        watch: Vec::new(),
    })
}

fn slice_ms(load: &Load) -> u64 {
    let whole = length(load).map_or(0, |length| nanos(length) / 1_000_000);
    (whole / SLICES / 50 * 50).clamp(LEAST_SLICE_MS, MOST_SLICE_MS)
}

/// The figures of a load as an iteration.
fn iteration(plan: &Plan, report: &LoadReport, outcome: &mut load::Outcome) -> Iteration {
    let recorder = &mut outcome.recorder;
    let (from, until) = recorder.window;
    let mut iteration = Iteration::new(1, seconds(until.saturating_sub(from)));
    iteration.warmup_s = plan.warmup.as_secs_f64();
    for (&status, seen) in &recorder.statuses {
        iteration.classes.push(Class {
            outcome: if (1..400).contains(&status) { Outcome::Ok } else { Outcome::Refused },
            // Status 0 collects the rarer ones.
            status: (status > 0).then_some(status),
            fault: None,
            count: seen.count(),
            latency: Some(seen.distribution()),
            example: None,
        });
    }
    for (&fault, seen) in &recorder.faults {
        if fault == Fault::Unsent {
            iteration.unsent = seen.count();
            continue;
        }
        iteration.classes.push(Class {
            outcome: Outcome::Failed,
            status: None,
            fault: Some(fault.name().to_owned()),
            count: seen.count(),
            latency: Some(seen.distribution()),
            example: outcome.examples.get(&fault).map(ToString::to_string),
        });
    }
    iteration.service = (recorder.service.count() > 0).then(|| recorder.service.distribution());
    iteration.mean_in_flight = Some(recorder.mean_in_flight());
    let own = &report.generator;
    iteration.generator = Some(GeneratorUse {
        cpu_share: own.cpu_share,
        core_wait_share: own.core_wait_share,
        lag_p99_us: (own.lag_us.count > 0).then_some(own.lag_us.p99),
        limited: own.limited,
    });
    iteration.timeline = recorder.slices.as_mut().map(Slices::take).unwrap_or_default();
    iteration
}
