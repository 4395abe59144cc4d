//! What ran, where and with what: the part of a record that says what its figures may be compared with.
//!
//! Owns: origin, machine, peers, the shape of the load, ladders, sweeps and reference rows. Does not own: figures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What ran, where, with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// A line for people.
    pub title: String,
    /// Name of the scenario; absent when there was none.
    pub scenario: Option<String>,
    /// Who measured.
    pub origin: Origin,
    /// Seconds since 1970 at which the run started; absent when nobody says.
    pub started_unix_s: Option<f64>,
    /// Commit that was measured; absent when nobody says.
    pub commit: Option<String>,
    /// Digest of everything that configured the run; absent when nobody says.
    pub configuration: Option<String>,
    /// Seed of arrivals, tokens and order; absent when nobody says.
    pub seed: Option<u64>,
    /// Shorter than the scenario asks for, to get an impression.
    #[serde(default)]
    pub quick: bool,
    /// Ended before its end; what was measured until then is here.
    #[serde(default)]
    pub partial: bool,
    /// Machines that took part: the one of the servers first. Empty when nobody says.
    #[serde(default)]
    pub machines: Vec<Machine>,
    /// Programs that took part, with their versions.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// What counts per request depend on beside the code, such as the compiler; empty where nothing was counted.
    #[serde(default)]
    pub counting: BTreeMap<String, String>,
}

/// Who measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Origin {
    /// The lab itself.
    Lab {
        /// Version of the lab.
        version: String,
        /// Load generators whose figures are added up here.
        generators: u32,
    },
    /// Another tool, whose file was taken in.
    Import {
        /// The tool.
        tool: String,
        /// The file's name, without its folder.
        file: String,
        /// What the file does not hold and what was assumed.
        notes: Vec<String>,
    },
}

/// A machine that took part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it did: `servers`, `generator`, both, or a cluster's node.
    pub role: String,
    /// Cores that can be used.
    pub cores: u32,
    /// Model of the processor; absent when the kernel does not tell.
    pub processor: Option<String>,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The control group the run was in; absent outside of one.
    pub cgroup: Option<Cgroup>,
}

/// Limits of a control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cgroup {
    /// 1 or 2.
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
    /// Its name.
    pub name: String,
    /// Its version, as it tells itself.
    pub version: String,
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// A fixed number of workers, each of which waits for its answer: rate is workers ÷ latency.
    Closed,
    /// At a rate, whatever the answers do.
    Open,
    /// Nobody says.
    Unknown,
}

/// The load that a variant was under.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadShape {
    /// How requests arrive.
    pub arrivals: Arrivals,
    /// Workers of a closed loop, or most requests in flight; absent when nobody says.
    pub concurrency: Option<u32>,
    /// Requests per second that were offered, on average over the window; absent for a closed loop.
    pub rate_per_s: Option<f64>,
    /// Rates one after the other, where it was not one throughout; the warm-up has the first one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// What one unit of work is, such as `request` or `oidc-code`.
    pub flow: String,
    /// `http/1.1` or `h2`; absent when nobody says.
    pub protocol: Option<String>,
    /// Different tokens in use; absent when nobody says, 0 without tokens.
    pub tokens: Option<u64>,
    /// Time after which an answer is not waited for any more, seconds; absent when nobody says.
    pub timeout_s: Option<f64>,
}

/// A rate that was offered for a time, or an even change from one to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Requests per second at its start.
    pub from_per_s: f64,
    /// Requests per second at its end.
    pub to_per_s: f64,
    /// How long it lasted.
    pub seconds: f64,
}

impl LoadShape {
    /// The flow that is a single request.
    pub const REQUEST: &str = "request";
}

/// Variants that add one hop after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// A line for people.
    pub name: String,
    /// From the bare service upwards; the iterations of all rungs were run interleaved.
    #[schemars(length(min = 2))]
    pub rungs: Vec<Rung>,
}

/// One rung of a ladder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// What this rung adds to the one before, such as `gateway`.
    pub adds: String,
    /// The variant that was measured with it.
    pub variant: String,
}

/// Variants that differ in their load only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// A line for people.
    pub name: String,
    /// Variants, by growing load.
    #[schemars(length(min = 3))]
    pub variants: Vec<String>,
}

/// Figures that were published elsewhere, on other hardware: a shape to compare, never a ratio to claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The variant they stand beside; absent when beside none.
    pub beside: Option<String>,
    /// A line for people.
    pub label: String,
    /// Where they come from, on what.
    pub provenance: String,
    /// Median, µs.
    pub p50_us: Option<f64>,
    /// 95th percentile, µs.
    pub p95_us: Option<f64>,
    /// 99th percentile, µs.
    pub p99_us: Option<f64>,
    /// Answers per second.
    pub per_s: Option<f64>,
    /// Cores in use, by component.
    #[serde(default)]
    pub cpu_cores: BTreeMap<String, f64>,
}
