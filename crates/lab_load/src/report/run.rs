//! Runs that end in a report: what the commands of `postern-load` do.
//!
//! Owns: the end of a run by Ctrl-C. Does not own: measuring ([`crate::load`], [`crate::provider`],
//! [`crate::idle_connections`]).

use super::{HoldReport, LoadReport, ProviderReport};
use crate::idle_connections::{self, HoldError, HoldPlan};
use crate::load::{self, LoadError, MeasureOptions, Plan};
use crate::provider::{self, ProviderError, ProviderPlan};

/// Runs a load on the calling thread. An interrupt (Ctrl-C) ends the run early; the report is still
/// made.
///
/// # Errors
/// The plan is invalid, a watched process cannot be read, or the event loop cannot be created.
pub fn run_load(plan: &Plan) -> Result<LoadReport, LoadError> {
    let outcome = load::measure(std::slice::from_ref(plan), MeasureOptions::default(), interrupted())?;
    Ok(LoadReport::new(plan, &outcome))
}

/// Runs transactions with a provider on the calling thread. An interrupt (Ctrl-C) ends the run
/// early; the report is still made.
///
/// # Errors
/// The plan is invalid, the origin cannot be used as a target, or the initial tokens cannot be
/// obtained.
pub fn run_provider(plan: &ProviderPlan) -> Result<ProviderReport, ProviderError> {
    let outcome = provider::measure(plan, MeasureOptions::default(), interrupted())?;
    Ok(ProviderReport::new(plan, &outcome))
}

/// Holds connections on the calling thread. An interrupt (Ctrl-C) ends the run early; the report is
/// still made. `held` is called with the number of open connections when all have been tried.
///
/// # Errors
/// The plan is invalid, a watched process cannot be read, or the event loop cannot be created.
pub fn run_hold(plan: HoldPlan, held: impl FnOnce(u64)) -> Result<HoldReport, HoldError> {
    let outcome = idle_connections::run(plan, held, interrupted())?;
    Ok(HoldReport::new(&outcome))
}

/// Resolves at an interrupt (Ctrl-C).
async fn interrupted() {
    // If no signal handler can be installed, the signal ends the process, which is the default.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
