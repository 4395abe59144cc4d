//! Results: reads published results from a plain JSON file: gateways iteration by iteration, an
//! identity server load by load.
//!
//! Owns: the shape, and its conversion to tables.
//! Does not own: the rules.
//!
//! Such a file is collected by hand. Keys that are not read here may occur in it, and an absent
//! figure is unknown.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::table::{Format, Row, RunTable, SweepRow, SweepTable, Tables};
use crate::record::Arrivals;

/// Keys that identify the shape; at least one is present.
pub(super) const MARKS: [&str; 2] = ["gateway", "identity_server"];

/// The part of a file that is read.
#[derive(Deserialize)]
pub(super) struct Results {
    note: Option<String>,
    #[serde(default)]
    gateway: Vec<Run>,
    identity_server: Option<IdentityServer>,
}

/// A run of a gateway at one load.
#[derive(Deserialize)]
struct Run {
    id: String,
    architecture: Option<String>,
    token: Option<String>,
    tool: Option<String>,
    requests: Option<u64>,
    concurrency: Option<u32>,
    failed: Option<u64>,
    #[serde(default)]
    iterations_s: Vec<Figures>,
    mean_s: Option<Figures>,
    #[serde(default)]
    cpu_cores: BTreeMap<String, f64>,
    #[serde(default)]
    cpu_limit_cores: BTreeMap<String, f64>,
}

/// Latencies in seconds, and responses per second.
#[derive(Deserialize)]
struct Figures {
    mean: Option<f64>,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    rps: Option<f64>,
}

/// Runs of an identity server at several loads.
#[derive(Deserialize)]
struct IdentityServer {
    run_s: Option<f64>,
    results: Vec<Sweep>,
}

#[derive(Deserialize)]
struct Sweep {
    flow: String,
    connector: Option<String>,
    clusters: Option<u32>,
    rows: Vec<Load>,
}

#[derive(Deserialize)]
struct Load {
    concurrency: u32,
    samples: Option<u64>,
    tps: f64,
    mean_ms: f64,
    error_pct: Option<f64>,
}

impl Results {
    /// Converts the results to tables.
    pub(super) fn tables(self, file: &str) -> Tables {
        let sweeps = self.identity_server.map(IdentityServer::sweeps).unwrap_or_default();
        Tables {
            format: Format::V1,
            title: file.to_owned(),
            provenance: self.note.unwrap_or_default(),
            runs: self.gateway.into_iter().map(Run::table).collect(),
            sweeps,
            claims: Vec::new(),
        }
    }
}

impl Figures {
    fn row(self) -> Row {
        Row { mean_s: self.mean, p50_s: self.p50, p95_s: self.p95, p99_s: self.p99, per_s: self.rps }
    }
}

impl Run {
    fn table(self) -> RunTable {
        let about = [self.architecture, self.token].into_iter().flatten().collect::<Vec<_>>().join(", ");
        RunTable {
            title: if about.is_empty() { self.id.clone() } else { format!("{} ({about})", self.id) },
            id: self.id,
            arrivals: arrivals(self.tool.as_deref(), self.concurrency),
            concurrency: self.concurrency,
            requests: self.requests,
            failed: self.failed,
            iterations: self.iterations_s.into_iter().map(Figures::row).collect(),
            mean: self.mean_s.map(Figures::row),
            cpu_cores: self.cpu_cores,
            cpu_limit_cores: self.cpu_limit_cores,
        }
    }
}

/// Arrivals of a tool that was given a number of workers: a closed loop, unless the tool may send
/// at a rate. The arrivals are unknown then.
fn arrivals(tool: Option<&str>, concurrency: Option<u32>) -> Arrivals {
    let paced = tool.is_some_and(|tool| ["wrk2", "k6", "vegeta", "fortio"].contains(&&*tool.to_lowercase()));
    if concurrency.is_some() && !paced { Arrivals::Closed } else { Arrivals::Unknown }
}

impl IdentityServer {
    fn sweeps(self) -> Vec<SweepTable> {
        let run_s = self.run_s;
        let sweep = |sweep: Sweep| {
            let connector = sweep.connector.unwrap_or_else(|| "-".to_owned());
            let clusters = sweep.clusters.map_or_else(|| "-".to_owned(), |clusters| clusters.to_string());
            let row = |load: Load| SweepRow {
                concurrency: load.concurrency,
                samples: load.samples,
                per_s: load.tps,
                mean_ms: load.mean_ms,
                error_pct: load.error_pct,
                repeats_per_s: Vec::new(),
            };
            SweepTable {
                id: format!("{}/{connector}/{clusters}", sweep.flow),
                title: format!("{}, connector {connector}, clusters {clusters}", sweep.flow),
                run_s,
                rows: sweep.rows.into_iter().map(row).collect(),
            }
        };
        self.results.into_iter().map(sweep).collect()
    }
}
