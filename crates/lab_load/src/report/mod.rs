//! Reports of the load driver: JSON with stable, versioned field names, and a short text for
//! people.
//!
//! Owns: the shape, the findings, and the iteration of a record that a run becomes. A field is
//! never renamed or given another unit within a schema version; new fields may appear. What makes
//! the figures doubtful comes first. Does not own: measuring, whose results are plain values.

mod finding;
mod findings;
mod idle_connections;
mod iteration;
mod load;
mod provider;
mod run;
mod table;

pub use finding::Finding;
pub use idle_connections::HoldReport;
pub use iteration::{iteration_of_flow, iteration_of_load};
pub use load::{FaultCount, GeneratorUse, LoadReport, PlanFacts, StatusCount, Totals};
pub use provider::{
    ProviderFacts, ProviderGenerator, ProviderReport, ProviderTotals, RequestCount, TransactionFaultCount,
    provider_table,
};
pub use run::{run_hold, run_load, run_provider};
use serde::Serialize;
pub use table::{hold_table, load_table, observe_table};

use crate::observe::Observation;

/// Name and version of the JSON shapes.
pub const SCHEMA: &str = "postern-load/1";

/// Report of the command `observe`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObserveReport {
    /// Name and version of the shape: [`SCHEMA`].
    pub schema: &'static str,
    /// Kind of report: `observe`.
    pub kind: &'static str,
    /// One observation per process.
    pub watched: Vec<Observation>,
}

impl ObserveReport {
    /// Creates a report over `watched`.
    pub fn new(watched: Vec<Observation>) -> Self {
        Self { schema: SCHEMA, kind: "observe", watched }
    }
}
