//! Parts of a record: variants, their iterations, and what each iteration measured.
//!
//! Owns: the shape of the figures.
//! Does not own: what follows from them.
//!
//! All times of an iteration (slices of the timeline, samples of components) are milliseconds since
//! its start, warm-up included. So they share one axis. Latencies count from the *intended* start
//! when arrivals are open.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::changes::{Changes, Scrapes};
use super::distribution::Distribution;
use super::profile::ProfileRound;
use super::run::LoadShape;
use super::streams::{StreamKind, Streams};

/// One arrangement under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Name, unique in the record: `fused/oidc`.
    pub name: String,
    /// Description of what is connected to what; empty when unknown.
    #[serde(default)]
    pub topology: String,
    /// Components in the order in which a request passes them, the service last; empty when
    /// unknown.
    #[serde(default)]
    pub path: Vec<String>,
    /// Labels that distinguish it from other variants, such as token mode or connector.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The load that the variant was under.
    pub load: LoadShape,
    /// Iterations, in the order in which they ran.
    pub iterations: Vec<Iteration>,
    /// Numbers of the rounds without an iteration: it failed, or no request ended in the window.
    /// The rounds that are there may be the better ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<u32>,
    /// Counts per request that repeat from run to run, such as instructions.
    #[serde(default)]
    pub counters: BTreeMap<String, f64>,
    /// Profiles of its components, from a round of their own; absent when none was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRound>,
}

/// One run of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iteration {
    /// Number, from 1. Iterations of two variants with equal numbers ran next to each other.
    pub number: u32,
    /// Start of the iteration, milliseconds since the start of the run.
    #[serde(default)]
    pub start_ms: u64,
    /// Warm-up before the measured window, seconds.
    #[serde(default)]
    pub warmup_s: f64,
    /// Length of the measured window, seconds.
    pub seconds: f64,
    /// How requests of the window ended, and after how long.
    pub classes: Vec<Class>,
    /// Requests that were due but never sent.
    #[serde(default)]
    pub unsent: u64,
    /// Latency of successful responses from the moment at which the request was sent; absent where
    /// that equals the intended start, or is unknown.
    pub service: Option<Distribution>,
    /// Average number of requests in flight, measured and not computed from rate and latency;
    /// absent when not measured.
    pub mean_in_flight: Option<f64>,
    /// What the load generator used; absent when unknown.
    pub generator: Option<GeneratorUse>,
    /// Throughput and latency over time.
    #[serde(default)]
    pub timeline: Vec<Slice>,
    /// Programs that were observed.
    #[serde(default)]
    pub components: Vec<Component>,
    /// The program that sent the load; absent where it was not observed.
    #[serde(default)]
    pub sender: Option<Component>,
    /// Phases of a request as the server reports them (`Server-Timing`).
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// How long revoked credentials were still accepted, per node.
    #[serde(default)]
    pub staleness: Vec<Staleness>,
    /// Connections that were held open during the load; absent when there were none.
    #[serde(default)]
    pub held: Option<HeldConnections>,
    /// The revocations from which staleness was measured; absent when there were none.
    pub revocations: Option<Revocations>,
    /// Changes of objects of a cluster; absent when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// Scrapes of a component's metrics; absent when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrapes: Option<Scrapes>,
    /// Streams of events, or WebSockets; absent where requests began none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// What happened to the target during the iteration, such as a deployment or the rotation of a
    /// key.
    #[serde(default)]
    pub events: Vec<Event>,
    /// Figures that another tool states about the iteration, in its own way of counting; absent
    /// where the lab measured.
    pub stated: Option<StatedFigures>,
}

/// How requests ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Success: a status below 400, or a transaction that succeeded.
    Ok,
    /// A response with a status from 400.
    Refused,
    /// No valid response.
    Failed,
}

impl Outcome {
    /// Name of the outcome in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Requests that ended in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// How the requests ended.
    pub outcome: Outcome,
    /// Status of the response; absent without a response, and where it is unknown.
    pub status: Option<u16>,
    /// Kind of failure; absent when the status says all.
    pub fault: Option<String>,
    /// Number of requests.
    pub count: u64,
    /// How long they took; absent where only a summary is known.
    pub latency: Option<Distribution>,
    /// Description of the first of them.
    pub example: Option<String>,
}

/// What the load generator used while requests of the window were due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorUse {
    /// CPU of a generator thread as a share of one core, of the busiest one.
    pub cpu_share: Option<f64>,
    /// Share of the time in which a generator thread was ready to run and waited for a core, the
    /// highest one.
    pub core_wait_share: Option<f64>,
    /// Share of CPU time that the host gave to other virtual machines (steal), the highest one;
    /// absent when unknown.
    pub stolen_share: Option<f64>,
    /// 99th percentile of the time by which requests were sent later than due and possible, µs.
    pub lag_p99_us: Option<f64>,
    /// Whether the generator, not the target, limits or distorts the figures.
    pub limited: bool,
}

/// A slice of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Start of the slice, milliseconds since the start of the iteration.
    pub at_ms: u64,
    /// Length of the slice, milliseconds.
    pub ms: u64,
    /// Successful responses that ended in the slice.
    pub ok: u64,
    /// Requests that ended otherwise in the slice.
    pub bad: u64,
    /// Median latency of the successful responses, µs; absent when there is none, and where slices
    /// were merged: percentiles do not add up.
    pub p50_us: Option<f64>,
    /// 99th percentile of the successful responses, µs; absent as the median is.
    pub p99_us: Option<f64>,
    /// Longest of the successful responses, µs; absent when there is none.
    pub max_us: Option<f64>,
}

/// Something that was done to the target while it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Time of the event, milliseconds since the start of the iteration.
    pub at_ms: u64,
    /// Description of the event: `key rotation`.
    pub what: String,
}

/// A program that was observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Name of the component in the topology.
    pub name: String,
    /// Cores that its control group may use; absent without a limit.
    pub cpu_limit_cores: Option<f64>,
    /// Memory that its control group may use, bytes; absent without a limit.
    pub memory_limit_bytes: Option<u64>,
    /// Largest error of a difference between two CPU samples, µs. If absent, CPU is counted in
    /// clock ticks.
    #[serde(default)]
    pub cpu_error_us: Option<u64>,
    /// Samples in the order of time. Their counters never decrease.
    pub samples: Vec<Sample>,
    /// Counters that the component exposes: how much each grew during the load.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Whether the component ended by itself while it was observed.
    #[serde(default)]
    pub ended: bool,
}

/// One sample of a program and all processes that it started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Time of the sample, milliseconds since the start of the iteration.
    pub at_ms: u64,
    /// CPU in user mode so far, ms.
    pub user_ms: u64,
    /// CPU in the kernel so far, ms.
    pub system_ms: u64,
    /// CPU in both modes so far, µs, from a finer clock than the two above; absent when there is
    /// none.
    pub cpu_us: Option<u64>,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Number of threads.
    #[serde(default)]
    pub threads: u64,
    /// How often the program gave up its core voluntarily so far.
    #[serde(default)]
    pub voluntary_switches: u64,
    /// How often the core was taken from the program so far.
    #[serde(default)]
    pub involuntary_switches: u64,
    /// Time so far for which its threads were ready to run and waited for a core, µs, summed over
    /// threads; absent when not observed.
    pub core_wait_us: Option<u64>,
    /// Connections opened to it so far; absent when not observed.
    pub connections_opened: Option<u64>,
    /// Requests it received so far, from any client; absent when not observed.
    pub calls_received: Option<u64>,
    /// TLS handshakes it completed so far; absent when not observed.
    pub tls_handshakes: Option<u64>,
    /// Memory of it that is swapped out, bytes; absent when not observed.
    pub swap_bytes: Option<u64>,
    /// How often so far the kernel killed a program of its control group for lack of memory; absent
    /// when not observed.
    pub oom_kills: Option<u64>,
    /// Scheduling periods of its control group so far; absent without a limit.
    pub periods: Option<u64>,
    /// Periods so far in which it used up its limit and was throttled; absent without a limit.
    pub throttled_periods: Option<u64>,
    /// Time so far for which its threads were throttled, ms, summed over cores; absent without a
    /// limit.
    pub throttled_ms: Option<u64>,
}

impl Sample {
    /// CPU in both modes so far, µs.
    pub fn cpu_so_far_us(&self) -> u64 {
        self.cpu_us.unwrap_or_else(|| (self.user_ms + self.system_ms).saturating_mul(1000))
    }
}

/// A phase of requests as the server reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Component that reports the phase.
    pub component: String,
    /// Name of the phase.
    pub name: String,
    /// Duration of the phase, one value per request that has it.
    pub duration: Distribution,
}

/// How long one node still accepted revoked credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Staleness {
    /// The node that accepted the credentials.
    pub node: String,
    /// Cluster of the node; absent with one cluster.
    pub cluster: Option<String>,
    /// Time from the response to the revocation to the last request that was still accepted; 0
    /// where none was.
    pub delay: Distribution,
    /// Revocations whose credential was still accepted when observation ended: not in `delay`, and
    /// longer than every value in it.
    #[serde(default)]
    pub never: u64,
}

/// Connections that were held open during a load: opened before it, closed after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldConnections {
    /// What they did: `idle` (one request, then nothing), `silent` (nothing), `slow-loris` (a
    /// request head that does not end).
    pub manner: String,
    /// Number of connections that were to be open at once.
    pub asked: u64,
    /// Connections that were opened, replacements of closed ones included.
    pub opened: u64,
    /// Connections that were still open at the end.
    pub open_at_end: u64,
    /// Connections that the server closed.
    pub closed_by_server: u64,
    /// Median lifetime of the connections that the server closed, µs; absent when there were none.
    pub lifetime_p50_us: Option<f64>,
    /// Longest lifetime of the connections that the server closed, µs; absent when there were none.
    pub lifetime_max_us: Option<f64>,
    /// Age of the oldest connection that was open at the end, µs; absent when there was none, and
    /// in records of earlier versions.
    #[serde(default)]
    pub open_longest_us: Option<f64>,
    /// Statuses of the responses, and how often each occurred.
    #[serde(default)]
    pub statuses: BTreeMap<u16, u64>,
    /// Resident memory of each component before the connections were opened, bytes.
    #[serde(default)]
    pub memory_before: BTreeMap<String, u64>,
}

/// Revocations during the load, and what observing them took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revocations {
    /// Credentials that were revoked.
    pub revoked: u64,
    /// Revocations that failed: no credential was issued, a valid one was not accepted, or it could
    /// not be revoked.
    pub failed: u64,
    /// Description of the first failure.
    pub example: Option<String>,
    /// Longest staleness that is allowed, seconds; absent when none is stated.
    pub bound_s: Option<f64>,
    /// Longest time for which a revoked credential was tried, seconds.
    pub patience_s: f64,
    /// Whether credentials were revoked after the window, while load continued: the window's
    /// figures then do not include the cost of observing them.
    #[serde(default)]
    pub after_window: bool,
    /// Latency of the revocation requests; absent in records of earlier versions.
    #[serde(default)]
    pub answer: Option<Distribution>,
    /// The bulk revocation during the load; absent when there was none.
    #[serde(default)]
    pub flood: Option<BulkRevocation>,
    /// Requests that tried credentials before or after their revocation; they are not part of the
    /// load.
    pub asked: u64,
    /// Share of one core that revoking and trying used; absent where the kernel does not report it.
    pub cpu_share: Option<f64>,
}

/// How a bulk revocation identifies a credential.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdentifiedBy {
    /// By the whole token.
    #[default]
    Token,
    /// By its `jti` claim (RFC 7519 §4.1.7), so that the provider verifies no signature.
    Jti,
}

/// A bulk revocation: many credentials revoked in a short time by list, besides the single ones
/// that were observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkRevocation {
    /// Credentials that were revoked.
    pub revoked: u64,
    /// Credentials that were not revoked.
    pub failed: u64,
    /// Why the first of them was not revoked; absent where the provider did not know them.
    pub example: Option<String>,
    /// Time over which the lists were to be spread, seconds.
    pub within_s: f64,
    /// Time from the first list to the last response, seconds.
    pub took_s: f64,
    /// How the lists identified the credentials.
    #[serde(default)]
    pub by: IdentifiedBy,
    /// How often a credential was refused when some were tried at each node. They were tried when
    /// the bound had passed since the last response.
    #[serde(default)]
    pub refused: u64,
    /// How often a credential was still accepted then.
    #[serde(default)]
    pub admitted: u64,
    /// How often the result was neither.
    #[serde(default)]
    pub unclear: u64,
    /// Latency of each list's request.
    pub answer: Distribution,
}

/// Figures from the summary of another tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatedFigures {
    /// Name of the tool.
    pub tool: String,
    /// Description of how the tool computes percentiles.
    pub rule: String,
    /// Mean latency, µs; absent when not stated.
    pub mean_us: Option<f64>,
    /// Shortest latency, µs; absent when not stated.
    pub min_us: Option<f64>,
    /// Longest latency, µs; absent when not stated.
    pub max_us: Option<f64>,
    /// Requests per second as the tool counts them; absent when not stated.
    pub per_s: Option<f64>,
    /// Percentiles, by increasing share.
    pub percentiles: Vec<StatedPercentile>,
    /// Percentiles from the moment at which requests were sent, where those above count from when
    /// they were due; empty where the tool has one kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_percentiles: Vec<StatedPercentile>,
}

/// A percentile as a tool prints it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatedPercentile {
    /// Share of requests: 0.99 is the 99th percentile.
    pub share: f64,
    /// Value of the percentile, µs.
    pub us: f64,
}

impl Variant {
    /// Names of the observed components, in the order of their first appearance.
    pub fn component_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for component in self.iterations.iter().flat_map(|iteration| &iteration.components) {
            if !names.contains(&component.name.as_str()) {
                names.push(&component.name);
            }
        }
        names
    }

    /// Kind of the streams that its load opened; `None` where the load is of requests.
    pub fn stream_kind(&self) -> Option<StreamKind> {
        self.iterations.iter().find_map(|iteration| Some(iteration.streams.as_ref()?.kind))
    }

    /// Components that a request passes before the service; the service when it is the only one.
    pub fn before_service(&self) -> &[String] {
        match self.path.as_slice() {
            [before @ .., _] if !before.is_empty() => before,
            path => path,
        }
    }

    /// Names of the observed components, then of the program that sent the load where it was
    /// observed.
    pub fn observed_names(&self) -> Vec<&str> {
        let mut names = self.component_names();
        let sender = self.iterations.iter().find_map(|iteration| iteration.sender.as_ref());
        names.extend(sender.map(|sender| sender.name.as_str()));
        names
    }

    /// Components whose CPU counts as the cost of a request. For a request or a stream these are the
    /// ones that it passes before the service. For a flow these are all components: a flow follows
    /// its provider's redirects and has no service.
    pub fn cost_components(&self) -> Vec<String> {
        if self.load.is_exchange() {
            return self.before_service().to_vec();
        }
        self.component_names().into_iter().map(str::to_owned).collect()
    }
}

impl Iteration {
    /// Creates an iteration with this number and length, without measurements.
    pub fn new(number: u32, seconds: f64) -> Self {
        Self {
            number,
            start_ms: 0,
            warmup_s: 0.0,
            seconds,
            classes: Vec::new(),
            unsent: 0,
            service: None,
            mean_in_flight: None,
            generator: None,
            timeline: Vec::new(),
            components: Vec::new(),
            sender: None,
            phases: Vec::new(),
            staleness: Vec::new(),
            held: None,
            revocations: None,
            changes: None,
            scrapes: None,
            streams: None,
            events: Vec::new(),
            stated: None,
        }
    }

    /// Number of requests of the window with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.classes_with(outcome).map(|class| class.count).sum()
    }

    /// Latencies of all requests with this outcome; `None` where one of their classes has none.
    pub fn latency(&self, outcome: Outcome) -> Option<Distribution> {
        let mut all: Option<Distribution> = None;
        for class in self.classes_with(outcome).filter(|class| class.count > 0) {
            let latency = class.latency.as_ref()?;
            match &mut all {
                None => all = Some(latency.clone()),
                Some(all) => all.add(latency),
            }
        }
        all
    }

    fn classes_with(&self, outcome: Outcome) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(move |class| class.outcome == outcome)
    }

    /// An observed program by name: a component, or the program that sent the load.
    pub fn observed(&self, name: &str) -> Option<&Component> {
        self.components.iter().chain(&self.sender).find(|component| component.name == name)
    }

    /// Number of series that can be thinned.
    pub(super) fn series_count(&self) -> usize {
        self.components.len() + usize::from(self.sender.is_some()) + usize::from(!self.timeline.is_empty())
    }

    /// Drops detail until no series has more than `most` points.
    pub(super) fn thin(&mut self, most: usize) {
        while self.timeline.len() > most {
            self.timeline = self.timeline.chunks(2).map(Slice::merged).collect();
        }
        for component in self.components.iter_mut().chain(&mut self.sender) {
            while component.samples.len() > most {
                let last = component.samples.len() - 1;
                let mut at = 0;
                // The last sample stays: its difference to the first is what the iteration used.
                component.samples.retain(|_| {
                    at += 1;
                    at % 2 == 1 || at - 1 == last
                });
            }
        }
    }
}

impl Slice {
    /// Merges consecutive slices into one. The percentiles of the whole cannot be computed from
    /// those of its parts, so they are dropped.
    pub fn merged(parts: &[Self]) -> Self {
        let (first, last) = (&parts[0], &parts[parts.len() - 1]);
        let alone = parts.len() == 1;
        Self {
            at_ms: first.at_ms,
            ms: last.at_ms + last.ms - first.at_ms,
            ok: parts.iter().map(|slice| slice.ok).sum(),
            bad: parts.iter().map(|slice| slice.bad).sum(),
            p50_us: first.p50_us.filter(|_| alone),
            p99_us: first.p99_us.filter(|_| alone),
            max_us: parts.iter().filter_map(|slice| slice.max_us).reduce(f64::max),
        }
    }
}
