//! The report of connections that are only held.

use serde::Serialize;

use super::SCHEMA;
use super::load::FaultCount;
use crate::load::Latency;
use crate::observe::Observation;

/// What became of connections that were held.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HoldReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `idle` or `slow-loris`.
    pub kind: &'static str,
    /// Target URL.
    pub url: String,
    /// Connections asked for at once.
    pub connections: u64,
    /// Connections opened, renewed ones included.
    pub opened: u64,
    /// Connections that could not be opened, by class.
    pub failed: Vec<FaultCount>,
    /// Time to open one, µs.
    pub open_us: Latency,
    /// Seconds until all had been tried once.
    pub opening_s: f64,
    /// Most connections open at once.
    pub open_max: u64,
    /// Connections the server closed.
    pub closed_by_peer: u64,
    /// How long those had lived, µs.
    pub lifetime_us: Latency,
    /// Connections still open at the end.
    pub open_at_end: u64,
    /// How long the one that had been open for longest was open then, µs; absent when there was none.
    pub open_longest_us: Option<f64>,
    /// Statuses the server answered with, and how often.
    pub statuses: std::collections::BTreeMap<u16, u64>,
    /// Seconds all in all.
    pub seconds: f64,
    /// Watched processes while the connections were held (after opening them).
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
