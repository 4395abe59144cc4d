//! Reports: JSON with stable, versioned field names, and a short text for people.
//!
//! Owns: the shape and the findings. Does not own: the measuring. A field is never renamed or given another unit
//! within a schema version; new ones may appear. What makes the figures doubtful comes first.

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

/// What `observe` found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObserveReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `observe`.
    pub kind: &'static str,
    /// Each process.
    pub watched: Vec<Observation>,
}

impl ObserveReport {
    /// A report over `watched`.
    pub fn new(watched: Vec<Observation>) -> Self {
        Self { schema: SCHEMA, kind: "observe", watched }
    }
}
