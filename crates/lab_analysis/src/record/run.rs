//! Run: what ran, where and with what. These facts decide what the figures may be compared with.
//!
//! Owns: origin, machines, peers, the shape of the load, ladders, sweeps and published figures.
//! Does not own: the measured figures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What ran, where and with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Title of the run, one line.
    pub title: String,
    /// Name of the scenario; absent when there was none.
    pub scenario: Option<String>,
    /// The tool that measured.
    pub origin: Origin,
    /// Start of the run, seconds since 1970; absent when unknown.
    pub started_unix_s: Option<f64>,
    /// Commit that was measured; absent when unknown.
    pub commit: Option<String>,
    /// Digest of everything that configured the run; absent when unknown.
    pub configuration: Option<String>,
    /// Seed of arrivals, tokens and order; absent when unknown.
    pub seed: Option<u64>,
    /// Whether the run was shorter than the scenario asks for, for a first impression.
    #[serde(default)]
    pub quick: bool,
    /// Whether the run was stopped early; the record has what was measured until then.
    #[serde(default)]
    pub partial: bool,
    /// Machines that took part, the one of the servers first; empty when unknown.
    #[serde(default)]
    pub machines: Vec<Machine>,
    /// Programs that took part, with their versions.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// What counts per request depend on besides the code, such as the compiler; empty where
    /// nothing was counted.
    #[serde(default)]
    pub counting: BTreeMap<String, String>,
}

/// The tool that measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Origin {
    /// The lab itself measured.
    Lab {
        /// Version of the lab.
        version: String,
        /// Number of load generators whose figures are merged here.
        generators: u32,
    },
    /// Another tool measured, and its file was imported.
    Import {
        /// Name of the tool.
        tool: String,
        /// Name of the file, without its folder.
        file: String,
        /// What the file does not contain, and what was assumed.
        notes: Vec<String>,
    },
}

/// A machine that took part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Role of the machine: `servers`, `generator`, both, or a cluster's node.
    pub role: String,
    /// Number of usable cores.
    pub cores: u32,
    /// Model of the processor; absent when the kernel does not report it.
    pub processor: Option<String>,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Memory of the machine, bytes.
    pub memory_bytes: u64,
    /// Control group of the run; absent when it was in none.
    pub cgroup: Option<Cgroup>,
}

/// Limits of a control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cgroup {
    /// Version of the cgroup interface, 1 or 2.
    #[schemars(range(min = 1, max = 2))]
    pub version: u8,
    /// Cores it may use on average; absent without a limit.
    pub cpu_limit_cores: Option<f64>,
    /// Memory it may use, bytes; absent without a limit.
    pub memory_limit_bytes: Option<u64>,
}

/// A program that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Name of the program.
    pub name: String,
    /// Version that the program reports.
    pub version: String,
    /// Level of optimization with which the compiler built it, `0` to `3`, or `partial` where some
    /// crates were not optimized; absent when unknown. It is known for the program that contains
    /// the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimization: Option<String>,
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Closed loop: a fixed number of workers, each of which waits for its response. The rate is
    /// workers ÷ latency.
    Closed,
    /// Open loop: at a rate that does not depend on the responses.
    Open,
    /// Not known, because the file does not say.
    Unknown,
}

/// The load that a variant was under.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadShape {
    /// How requests arrive.
    pub arrivals: Arrivals,
    /// Workers of a closed loop, or most requests in flight; absent when unknown.
    pub concurrency: Option<u32>,
    /// Requests per second that were offered, on average over the window; absent for a closed loop.
    pub rate_per_s: Option<f64>,
    /// Successive rates, where the rate changed; the warm-up has the first one's. Empty for a
    /// constant rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// One unit of work, such as `request`, `oidc-code`, or the kind of a stream (`sse`, `lines`,
    /// `grpc`, `websocket`).
    pub flow: String,
    /// `http/1.1` or `h2`; absent when unknown.
    pub protocol: Option<String>,
    /// Number of different tokens in use; absent when unknown, 0 without tokens.
    pub tokens: Option<u64>,
    /// Time after which a request is given up, seconds; absent when unknown.
    pub timeout_s: Option<f64>,
}

/// A rate that was offered for a time, or a linear change from one rate to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Requests per second at the start of the stage.
    pub from_per_s: f64,
    /// Requests per second at the end of the stage.
    pub to_per_s: f64,
    /// Length of the stage, seconds.
    pub seconds: f64,
}

impl LoadShape {
    /// The flow that is a single request.
    pub const REQUEST: &str = "request";

    /// Whether a unit of work is one exchange with the service: a request, a stream or a WebSocket.
    pub fn is_exchange(&self) -> bool {
        use super::StreamKind::{Grpc, Lines, Sse, Websocket};
        let streams = [Sse, Lines, Grpc, Websocket].map(super::StreamKind::unit);
        self.flow == Self::REQUEST || streams.contains(&self.flow.as_str())
    }
}

/// Variants that add one hop after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// Title of the ladder, one line.
    pub name: String,
    /// Rungs, the service alone first; the iterations of all rungs ran interleaved.
    #[schemars(length(min = 2))]
    pub rungs: Vec<Rung>,
}

/// One rung of a ladder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// What this rung adds to the one before, such as `gateway`.
    pub adds: String,
    /// The variant that was measured for this rung.
    pub variant: String,
}

/// Variants that differ only in their load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Title of the sweep, one line.
    pub name: String,
    /// Names of the variants, by increasing load.
    #[schemars(length(min = 3))]
    pub variants: Vec<String>,
}

/// Figures that were published elsewhere, on other hardware: a shape to compare, never a ratio to
/// claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The variant that they are shown beside; absent when they are shown by themselves.
    pub beside: Option<String>,
    /// Title of the row, one line.
    pub label: String,
    /// Source of the figures, and the hardware.
    pub provenance: String,
    /// Median latency, µs.
    pub p50_us: Option<f64>,
    /// 95th percentile of the latency, µs.
    pub p95_us: Option<f64>,
    /// 99th percentile of the latency, µs.
    pub p99_us: Option<f64>,
    /// Responses per second.
    pub per_s: Option<f64>,
    /// Cores in use, by component.
    #[serde(default)]
    pub cpu_cores: BTreeMap<String, f64>,
}
