//! Provider flow as a load: how transactions with an OpenID provider appear in the record.
//!
//! A transaction counts as one request of the record. It is successful when every response in it
//! was as expected.
//!
//! Owns: the plan of virtual users, and the mapping of transaction results to request classes. Does
//! not own: the flows ([`crate::provider`]), and sampling of components ([`super::measure`]).

use super::Failed;
use crate::interrupt::Interrupt;
use crate::load::{Probe, Stop};
use crate::provider::{self, Class as Trouble, ProviderPlan, Scenario as Flow, Tally};
use crate::record::{Class, GeneratorUse, Iteration, Outcome};
use crate::report::ProviderReport;
use crate::scenario::{Arriving, Load};
use crate::topology::{Running, TopologyError};
use crate::units::seconds;

/// Sends virtual users through a flow. Returns the iteration, and whether it was interrupted.
pub(super) fn send(
    plan: &ProviderPlan,
    probe: Probe,
    interrupt: &Interrupt,
) -> Result<(Iteration, bool), Failed> {
    let (report, mut outcome) = provider::measure(plan, probe, interrupt.wait())?;
    Ok((iteration(&report, &mut outcome.tally), outcome.interrupted))
}

/// Plan of virtual users for a flow of the topology's provider.
///
/// # Errors
/// The topology has no provider, or the load is not a closed loop with a duration.
pub(super) fn plan(running: &Running, load: &Load, flow: Flow, seed: u64) -> Result<ProviderPlan, Failed> {
    let topology = running.topology();
    let wrong = |what: &str| TopologyError::value(&topology.name, "provider", what);
    let description = running.provider()?.ok_or_else(|| wrong("a flow needs one, and there is none"))?;
    let Arriving::Closed(workers) = load.arrivals else {
        return Err(wrong("a flow has virtual users, not a rate").into());
    };
    let Stop::After(duration) = load.stop else {
        return Err(wrong("a flow lasts for a time, not for a number of transactions").into());
    };
    Ok(ProviderPlan {
        description,
        scenario: flow,
        concurrency: workers as usize,
        warmup: load.warmup,
        duration,
        after: load.after_window().unwrap_or_default(),
        timeout: load.timeout,
        seed,
        trust: running.trust()?,
        connect: None,
        watch: Vec::new(),
    })
}

fn iteration(report: &ProviderReport, tally: &mut Tally) -> Iteration {
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
    for (&(step, class, status), seen) in tally.troubles.iter().filter(|(_, seen)| seen.measured.count() > 0)
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
