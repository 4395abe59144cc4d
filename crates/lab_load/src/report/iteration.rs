//! Iterations: the results of a run in the form that the lab's record stores.
//!
//! Owns: which results become which classes of requests. Does not own: what else is observed during
//! a run, and the record itself ([`lab_analysis::record`]).

use lab_analysis::record::{Class, GeneratorUse, Iteration, Outcome, Phase};
use lab_analysis::units::seconds;

use super::{LoadReport, ProviderReport};
use crate::load::{LoadOutcome, Plan, RequestFault, Slices};
use crate::provider::{FailureClass as Trouble, ProviderOutcome, ProviderPlan};

/// Converts the results of a load to an iteration. Of several plans `plan` is the first. `timing`
/// is the component whose phases the responses report; without it the iteration has no phases.
///
/// The timeline and the phases are taken from the results.
pub fn iteration_of_load(plan: &Plan, outcome: &mut LoadOutcome, timing: Option<&str>) -> Iteration {
    let report = LoadReport::new(plan, outcome);
    let recorder = &mut outcome.recorder;
    let (from, until) = recorder.window.bounds();
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
        if fault == RequestFault::Unsent {
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
    iteration.mean_in_flight = Some(recorder.window.mean_in_flight());
    let own = &report.generator;
    iteration.generator = Some(GeneratorUse {
        cpu_share: own.cpu_share,
        core_wait_share: own.core_wait_share,
        stolen_share: own.stolen_share,
        lag_p99_us: (own.lag_us.count > 0).then_some(own.lag_us.p99),
        limited: own.limited,
    });
    iteration.streams = report.streams;
    iteration.timeline = recorder.slices.as_mut().map(Slices::take).unwrap_or_default();
    if let Some(component) = timing {
        let phases = std::mem::take(&mut recorder.phases).into_iter();
        iteration.phases = phases
            .map(|(name, durations)| Phase {
                component: component.to_owned(),
                name: name.into_string(),
                duration: durations.distribution(),
            })
            .collect();
    }
    iteration
}

/// Converts the results of transactions to an iteration.
///
/// A transaction counts as one request of the record. It is successful when every response in it
/// was as expected. The timeline is taken from the results.
pub fn iteration_of_flow(plan: &ProviderPlan, outcome: &mut ProviderOutcome) -> Iteration {
    let report = ProviderReport::new(plan, outcome);
    let tally = &mut outcome.tally;
    let (from, until) = tally.window;
    let mut iteration = Iteration::new(1, seconds(until.saturating_sub(from)));
    iteration.warmup_s = seconds(from);
    if tally.ok.count() > 0 {
        iteration.classes.push(Class {
            outcome: Outcome::Ok,
            status: None,
            fault: None,
            count: tally.ok.count(),
            latency: Some(tally.ok.distribution()),
            example: None,
        });
    }
    for (&(step, class, status), seen) in tally.failures.iter().filter(|(_, seen)| seen.measured.count() > 0)
    {
        let answered = matches!(class, Trouble::Status);
        iteration.classes.push(Class {
            outcome: if answered { Outcome::Refused } else { Outcome::Failed },
            // An unexpected status below 400 is not an error status, so it is not recorded.
            status: status.filter(|status| *status >= 400),
            fault: Some(format!("{}: {}", step.name(), class.name())),
            count: seen.measured.count(),
            latency: Some(seen.measured.distribution()),
            example: Some(seen.example.clone()),
        });
    }
    let own = &report.generator;
    iteration.generator = Some(GeneratorUse {
        cpu_share: own.cpu_share,
        core_wait_share: own.core_wait_share,
        stolen_share: own.stolen_share,
        // A virtual user sends when the previous response is there, so no request is due earlier.
        lag_p99_us: None,
        limited: own.limited,
    });
    if let Some(slices) = &mut tally.slices {
        slices.finish(until);
        iteration.timeline = slices.take();
    }
    iteration
}
