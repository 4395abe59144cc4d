//! Provider flow as a load: transactions with the OpenID provider of a topology.
//!
//! Owns: the plan of virtual users. Does not own: the flows ([`lab_load::provider`]), how their
//! results appear in the record ([`lab_load::report`]), and sampling of components
//! ([`super::measure`]).

use lab_analysis::record::Iteration;
use lab_load::Interrupt;
use lab_load::load::{MeasureOptions, Stop};
use lab_load::provider::{self, Flow, ProviderPlan};
use lab_load::report::iteration_of_flow;

use super::ArrangementError;
use crate::scenario::{ArrivalPattern, Load};
use crate::topology::{Running, TopologyError};

/// Sends virtual users through a flow. Returns the iteration, and whether it was interrupted.
pub(super) fn send(
    plan: &ProviderPlan,
    probe: MeasureOptions,
    interrupt: &Interrupt,
) -> Result<(Iteration, bool), ArrangementError> {
    let mut outcome = provider::measure(plan, probe, interrupt.wait())?;
    Ok((iteration_of_flow(plan, &mut outcome), outcome.interrupted))
}

/// Plan of virtual users for a flow of the topology's provider.
///
/// # Errors
/// The topology has no provider, or the load is not a closed loop with a duration.
pub(super) fn plan(
    running: &Running,
    load: &Load,
    flow: Flow,
    seed: u64,
) -> Result<ProviderPlan, ArrangementError> {
    let topology = running.topology();
    let wrong = |message: &str| TopologyError::invalid_value(&topology.name, "provider", message);
    let description = running.provider()?.ok_or_else(|| wrong("missing; a flow needs [provider]"))?;
    let ArrivalPattern::Closed(workers) = load.arrivals else {
        return Err(wrong("a flow needs a closed loop, not a rate").into());
    };
    let Stop::After(duration) = load.stop else {
        return Err(wrong("a flow needs a duration, not a number of transactions").into());
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
