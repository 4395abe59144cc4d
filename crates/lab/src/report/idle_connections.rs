//! Report of connections that are held open without load.

use serde::Serialize;

use super::SCHEMA;
use super::load::FaultCount;
use crate::load::Latency;
use crate::observe::Observation;

/// What became of the connections that were held open.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HoldReport {
    /// Name and version of the shape: [`SCHEMA`].
    pub schema: &'static str,
    /// Kind of connections: `idle` or `slow-loris`.
    pub kind: &'static str,
    /// Target URL of the connections.
    pub url: String,
    /// Number of connections that were to be open at once.
    pub connections: u64,
    /// Connections opened, renewed ones included.
    pub opened: u64,
    /// Connections that could not be opened, by class.
    pub failed: Vec<FaultCount>,
    /// Time to open a connection, µs.
    pub open_us: Latency,
    /// Seconds until each connection had been tried once.
    pub opening_s: f64,
    /// Most connections that were open at once.
    pub open_max: u64,
    /// Connections that the server closed.
    pub closed_by_peer: u64,
    /// Lifetime of the connections that the server closed, µs.
    pub lifetime_us: Latency,
    /// Connections that were still open at the end.
    pub open_at_end: u64,
    /// Age of the oldest connection that was open at the end, µs; absent when there was none.
    pub open_longest_us: Option<f64>,
    /// Statuses of the server's responses, and how often each occurred.
    pub statuses: std::collections::BTreeMap<u16, u64>,
    /// Duration of the run, seconds.
    pub seconds: f64,
    /// Observed processes while the connections were held, after all had been opened.
    pub watched: Vec<Observation>,
}

impl HoldReport {
    pub(crate) fn empty(kind: &'static str, url: &str, connections: u64) -> Self {
        Self {
            schema: SCHEMA,
            kind,
            url: url.to_owned(),
            connections,
            opened: 0,
            failed: Vec::new(),
            open_us: Latency::default(),
            opening_s: 0.0,
            open_max: 0,
            closed_by_peer: 0,
            lifetime_us: Latency::default(),
            open_at_end: 0,
            open_longest_us: None,
            statuses: std::collections::BTreeMap::new(),
            seconds: 0.0,
            watched: Vec::new(),
        }
    }
}
