//! Reports of the load driver: JSON with stable, versioned field names, and a short text for
//! people.
//!
//! Owns: the shape and the findings. A field is never renamed or given another unit within a schema
//! version; new fields may appear. What makes the figures doubtful comes first.
//! Does not own: measuring.

mod findings;
mod idle_connections;
mod load;
mod provider;
mod table;

use serde::Serialize;

pub use findings::Finding;
pub(crate) use findings::{CORE_WAIT, LAG_SHARE, LAG_US, never_rests};
pub use idle_connections::HoldReport;
pub use load::{FaultCount, GeneratorUse, LoadReport, PlanFacts, StatusCount, Totals};
pub use provider::{
    ProviderFacts, ProviderGenerator, ProviderReport, ProviderTotals, RequestCount, TroubleCount,
    provider_table,
};
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
