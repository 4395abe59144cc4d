//! Report of connections that are held open without load.

use std::time::Duration;

use lab_analysis::units::{nanos, seconds};
use serde::Serialize;

use super::SCHEMA;
use super::load::FaultCount;
use crate::idle_connections::HoldOutcome;
use crate::load::Latency;
use crate::observe::{INTERVAL, Observation};

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
    /// Creates the report of connections that were held.
    pub fn new(outcome: &HoldOutcome) -> Self {
        let failed = outcome.failed.iter().map(|(class, latency_us, example)| FaultCount {
            class: *class,
            count: latency_us.count,
            latency_us: latency_us.clone(),
            example: example.clone(),
        });
        let from = Duration::from_nanos(outcome.opened_at);
        let until = Duration::from_nanos(outcome.ended_at.saturating_add(nanos(INTERVAL)));
        Self {
            schema: SCHEMA,
            kind: outcome.kind,
            url: outcome.url.clone(),
            connections: outcome.connections,
            opened: outcome.opened,
            failed: failed.collect(),
            open_us: outcome.open_us.clone(),
            opening_s: seconds(outcome.opened_at),
            open_max: outcome.open_max,
            closed_by_peer: outcome.closed_by_peer,
            lifetime_us: outcome.lifetime_us.clone(),
            open_at_end: outcome.open_at_end,
            open_longest_us: outcome.oldest.map(|since| (outcome.ended_at - since) as f64 / 1e3),
            statuses: outcome.statuses.clone(),
            seconds: seconds(outcome.ended_at),
            watched: outcome.watched.iter().map(|series| series.in_window(from, until, None)).collect(),
        }
    }
}
