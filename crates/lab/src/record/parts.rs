//! What was measured: variants, their iterations, and what is known of each.
//!
//! Owns: the shape of figures. Does not own: what follows from them. All times of an iteration (slices of the timeline,
//! samples of components) count in milliseconds from the start of that iteration, warm-up included, so that they lie on one
//! axis; latencies count from the *intended* start where arrivals are open.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::run::LoadShape;

/// One arrangement under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Unique in the record: `fused/oidc`.
    pub name: String,
    /// What is connected to what, in words; empty when nobody says.
    #[serde(default)]
    pub topology: String,
    /// Components in the order in which a request meets them, the service last; empty when nobody says.
    #[serde(default)]
    pub path: Vec<String>,
    /// What tells it from others, such as token mode or connector.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its load.
    pub load: LoadShape,
    /// In the order in which they ran.
    pub iterations: Vec<Iteration>,
    /// Rounds that it was to be measured in and has no iteration of: it failed, or nothing ended in the window. Those that it has were better ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<u32>,
    /// Counts that repeat from run to run, per request, such as instructions.
    #[serde(default)]
    pub counters: BTreeMap<String, f64>,
}

/// One run of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iteration {
    /// Counts from 1; equal numbers of two variants ran next to each other.
    pub number: u32,
    /// Its start, milliseconds since the start of the run.
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
    /// Latency of the good answers from the moment they were really sent; absent where that is the same or not known.
    pub service: Option<Distribution>,
    /// Requests in flight on average, measured, not computed from rate and latency; absent when not measured.
    pub mean_in_flight: Option<f64>,
    /// What the load generator used; absent when nobody says.
    pub generator: Option<GeneratorUse>,
    /// Throughput and latency over time.
    #[serde(default)]
    pub timeline: Vec<Slice>,
    /// Programs that were watched.
    #[serde(default)]
    pub components: Vec<Component>,
    /// The program that sent the load; absent where it was not watched.
    #[serde(default)]
    pub sender: Option<Component>,
    /// Phases of a request as the server itself says (`Server-Timing`).
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// How long revoked credentials were still accepted.
    #[serde(default)]
    pub staleness: Vec<Staleness>,
    /// Connections that were held meanwhile; absent when there were none.
    #[serde(default)]
    pub held: Option<Held>,
    /// The revocations that staleness was seen with; absent without any.
    pub revocations: Option<Revocations>,
    /// What happened to the target meanwhile, such as a deployment or the rotation of a key.
    #[serde(default)]
    pub events: Vec<Event>,
    /// What another tool says about the iteration, in its own way of counting; absent where the lab measured.
    pub stated: Option<Stated>,
}

/// How requests ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Answered as hoped: a status below 400, a transaction that succeeded.
    Ok,
    /// Answered with a status from 400.
    Refused,
    /// Not answered.
    Failed,
}

impl Outcome {
    /// In a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Requests of one ending.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// How they ended.
    pub outcome: Outcome,
    /// The status; absent without an answer, and where nobody says.
    pub status: Option<u16>,
    /// What kind of failure; absent with an answer.
    pub fault: Option<String>,
    /// How many.
    pub count: u64,
    /// How long they took; absent where only a summary is known.
    pub latency: Option<Distribution>,
    /// The first one in words.
    pub example: Option<String>,
}

/// What the load generator used while requests of the window were due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorUse {
    /// Share of one core per generator thread, the busiest one.
    pub cpu_share: Option<f64>,
    /// Share of the time in which it was ready to run and waited for a core, the worst one.
    pub core_wait_share: Option<f64>,
    /// Share of the CPU time of its machine that the host of that gave to others (steal), the worst one; absent where nobody says.
    pub stolen_share: Option<f64>,
    /// 99th percentile of how much later than due and possible requests were sent, µs.
    pub lag_p99_us: Option<f64>,
    /// The generator, not the target, limits or distorts the figures.
    pub limited: bool,
}

/// A stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Its start, milliseconds since the start of the iteration.
    pub at_ms: u64,
    /// Its length, milliseconds.
    pub ms: u64,
    /// Good answers that ended in it.
    pub ok: u64,
    /// Requests that ended otherwise.
    pub bad: u64,
    /// Median of the good ones, µs; absent when there is none, and where slices were put together: percentiles do not add up.
    pub p50_us: Option<f64>,
    /// 99th percentile of the good ones, µs; absent as the median is.
    pub p99_us: Option<f64>,
    /// Longest of the good ones, µs; absent when there is none.
    pub max_us: Option<f64>,
}

/// Something that was done to the target while it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Milliseconds since the start of the iteration.
    pub at_ms: u64,
    /// What, in words: `key rotation`.
    pub what: String,
}

/// A program that was watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Its name in the topology.
    pub name: String,
    /// Cores that its control group may use; absent without a limit.
    pub cpu_limit_cores: Option<f64>,
    /// Memory that its control group may use, bytes; absent without a limit.
    pub memory_limit_bytes: Option<u64>,
    /// A difference of two looks at its CPU is off by this much at most, µs; absent where nobody says: it is then counted in clock ticks.
    #[serde(default)]
    pub cpu_error_us: Option<u64>,
    /// Looks at it, by time. Counters only grow.
    pub samples: Vec<Sample>,
    /// Counters that it has of itself: by how much each grew while load lasted.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// It ended while it was watched, and was not made to.
    #[serde(default)]
    pub ended: bool,
}

/// One look at a program and all it started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Milliseconds since the start of the iteration.
    pub at_ms: u64,
    /// CPU in user mode so far, ms.
    pub user_ms: u64,
    /// CPU in the kernel so far, ms.
    pub system_ms: u64,
    /// CPU in either mode so far, µs, from a finer clock than the two above; absent when there is none.
    pub cpu_us: Option<u64>,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Threads.
    #[serde(default)]
    pub threads: u64,
    /// Times it gave up the core by itself so far.
    #[serde(default)]
    pub voluntary_switches: u64,
    /// Times the core was taken from it so far.
    #[serde(default)]
    pub involuntary_switches: u64,
    /// Connections opened to it so far; absent when not observed.
    pub connections_opened: Option<u64>,
    /// Requests it has received so far, from whomever; absent when not observed.
    pub calls_received: Option<u64>,
    /// TLS handshakes it has done so far; absent when not observed.
    pub tls_handshakes: Option<u64>,
    /// Its memory that lies in swap, bytes; absent when not observed.
    pub swap_bytes: Option<u64>,
    /// Times so far that the kernel ended a program of its control group for want of memory; absent when not observed.
    pub oom_kills: Option<u64>,
    /// Scheduling periods of its control group so far; absent without a limit.
    pub periods: Option<u64>,
    /// Periods so far in which it used up its limit and had to stand still; absent without a limit.
    pub throttled_periods: Option<u64>,
    /// Time so far that its threads stood still because of the limit, ms, summed over cores; absent without a limit.
    pub throttled_ms: Option<u64>,
}

impl Sample {
    /// CPU in either mode so far, µs.
    pub(crate) fn cpu_so_far_us(&self) -> u64 {
        self.cpu_us.unwrap_or_else(|| (self.user_ms + self.system_ms).saturating_mul(1000))
    }
}

/// A phase of requests as the server says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Who says it.
    pub component: String,
    /// Which phase.
    pub name: String,
    /// How long it took, once per request that has it.
    pub duration: Distribution,
}

/// How long revoked credentials were still accepted at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Staleness {
    /// The node that accepted.
    pub node: String,
    /// Its cluster; absent with one cluster.
    pub cluster: Option<String>,
    /// From the answer to the revocation to the last request that was still accepted; 0 where none was.
    pub delay: Distribution,
    /// Revocations whose credential was still accepted when watching ended: not in `delay`, and worse than anything in it.
    #[serde(default)]
    pub never: u64,
}

/// Connections that were held beside a load: opened before it, closed after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// What they did: `idle` (one request, then nothing), `silent` (nothing), `slow-loris` (a request head that does not end).
    pub manner: String,
    /// So many were wanted at once.
    pub asked: u64,
    /// Opened, those that took the place of closed ones included.
    pub opened: u64,
    /// Still open at the end.
    pub open_at_end: u64,
    /// Closed by the server.
    pub closed_by_server: u64,
    /// Median of how long those had lived, µs; absent when there were none.
    pub lifetime_p50_us: Option<f64>,
    /// Longest of those, µs; absent when there were none.
    pub lifetime_max_us: Option<f64>,
    /// How long the one that had been open for longest was open at the end, µs; absent when there was none, and from records of earlier programs.
    #[serde(default)]
    pub open_longest_us: Option<f64>,
    /// Statuses that they were answered with, and how often.
    #[serde(default)]
    pub statuses: BTreeMap<u16, u64>,
    /// Resident memory of each component before they were opened, bytes.
    #[serde(default)]
    pub memory_before: BTreeMap<String, u64>,
}

/// Revocations while load lasted, and what watching them took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revocations {
    /// Credentials that were revoked.
    pub revoked: u64,
    /// Revocations that came to nothing: no credential was given, a good one was not accepted, or it could not be revoked.
    pub failed: u64,
    /// The first of them in words.
    pub example: Option<String>,
    /// Longest staleness that is allowed, seconds; absent when nobody says.
    pub bound_s: Option<f64>,
    /// How long a revoked credential was asked about at most, seconds.
    pub patience_s: f64,
    /// Credentials were revoked after the window, while load went on: what watching them took is no part of its figures.
    #[serde(default)]
    pub after_window: bool,
    /// How long whoever revoked waited for the answer; absent from records of earlier programs.
    #[serde(default)]
    pub answer: Option<Distribution>,
    /// What was revoked by the list meanwhile; absent without.
    #[serde(default)]
    pub flood: Option<Flooded>,
    /// Requests with credentials that were or were to be revoked; they are not part of the load.
    pub asked: u64,
    /// Share of one core that revoking and asking used; absent where the kernel does not tell.
    pub cpu_share: Option<f64>,
}

/// What whoever revokes a credential says of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NamedBy {
    /// All of it.
    #[default]
    Token,
    /// Its name (RFC 7519 §4.1.7), so that no signature is verified.
    Jti,
}

/// A great many credentials that were revoked by the list in a short time, beside others that were watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flooded {
    /// Credentials that were revoked.
    pub revoked: u64,
    /// Those that were not.
    pub failed: u64,
    /// Why the first of them was not; absent where they were unknown.
    pub example: Option<String>,
    /// Time over which they were spread, seconds.
    pub within_s: f64,
    /// From the first list to the last answer, seconds.
    pub took_s: f64,
    /// What the provider was told of each.
    #[serde(default)]
    pub by: NamedBy,
    /// Of some of them, tried at each place when the bound was over after the last answer: how often one was refused.
    #[serde(default)]
    pub refused: u64,
    /// How often one was still accepted.
    #[serde(default)]
    pub admitted: u64,
    /// How often nobody could tell.
    #[serde(default)]
    pub unclear: u64,
    /// How long each list waited for its answer.
    pub answer: Distribution,
}

/// What another tool's summary says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// The tool.
    pub tool: String,
    /// How it computes percentiles, in words.
    pub rule: String,
    /// Mean, µs; absent when it does not say.
    pub mean_us: Option<f64>,
    /// Shortest, µs; absent when it does not say.
    pub min_us: Option<f64>,
    /// Longest, µs; absent when it does not say.
    pub max_us: Option<f64>,
    /// Requests per second as it counts them; absent when it does not say.
    pub per_s: Option<f64>,
    /// Its percentiles, by growing share.
    pub percentiles: Vec<Printed>,
    /// Its percentiles from the moment at which requests were really sent, where those above count from when they were due; empty where it has one kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_percentiles: Vec<Printed>,
}

/// A percentile as a tool prints it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// Share: 0.99 is the 99th percentile.
    pub share: f64,
    /// Value, µs.
    pub us: f64,
}

/// How much a finding says against the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// The figures say nothing about the target.
    Invalid,
    /// The figures have to be read with it in mind.
    Careful,
    /// It explains the figures.
    Explains,
}

/// Something that was noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Stable name, such as `throttled`.
    pub name: String,
    /// The variants, or the sweep, that it is about; none when it is about the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// What it does to the figures.
    pub doubt: Doubt,
    /// The figures it rests on.
    pub evidence: String,
    /// What to do about it.
    pub remedy: String,
}

impl Variant {
    /// Names of its components, in the order of their first appearance.
    pub fn component_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for component in self.iterations.iter().flat_map(|iteration| &iteration.components) {
            if !names.contains(&component.name.as_str()) {
                names.push(&component.name);
            }
        }
        names
    }

    /// Components that a request meets before the service; the service where there is nobody else.
    pub fn before_service(&self) -> &[String] {
        match self.path.as_slice() {
            [before @ .., _] if !before.is_empty() => before,
            path => path,
        }
    }

    /// Names of its components, and of who sent the load where that was watched.
    pub fn watched_names(&self) -> Vec<&str> {
        let mut names = self.component_names();
        let sender = self.iterations.iter().find_map(|iteration| iteration.sender.as_ref());
        names.extend(sender.map(|sender| sender.name.as_str()));
        names
    }

    /// Components whose CPU a request costs: those that it meets before the service; all that run where it is a flow, which goes wherever its provider
    /// sends it, and has no service behind.
    pub fn working(&self) -> Vec<String> {
        if self.load.flow == LoadShape::REQUEST {
            return self.before_service().to_vec();
        }
        self.component_names().into_iter().map(str::to_owned).collect()
    }
}

impl Iteration {
    /// An iteration of this number and length, with nothing known yet.
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
            events: Vec::new(),
            stated: None,
        }
    }

    /// Requests of the window that ended in one way.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.of(outcome).map(|class| class.count).sum()
    }

    /// Latencies of all that ended in one way; `None` where not every class of it has them.
    pub fn latency(&self, outcome: Outcome) -> Option<Distribution> {
        let mut all: Option<Distribution> = None;
        for class in self.of(outcome).filter(|class| class.count > 0) {
            let latency = class.latency.as_ref()?;
            match &mut all {
                None => all = Some(latency.clone()),
                Some(all) => all.add(latency),
            }
        }
        all
    }

    fn of(&self, outcome: Outcome) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(move |class| class.outcome == outcome)
    }

    /// A program that was watched, by its name: a component, or who sent the load.
    pub fn watched(&self, name: &str) -> Option<&Component> {
        self.components.iter().chain(&self.sender).find(|component| component.name == name)
    }

    /// Series that can be thinned.
    pub(super) fn series(&self) -> usize {
        self.components.len() + usize::from(self.sender.is_some()) + usize::from(!self.timeline.is_empty())
    }

    /// Drops detail until no series has more than `most` points.
    pub(super) fn thin(&mut self, most: usize) {
        while self.timeline.len() > most {
            self.timeline = self.timeline.chunks(2).map(Slice::joined).collect();
        }
        for component in self.components.iter_mut().chain(&mut self.sender) {
            while component.samples.len() > most {
                let last = component.samples.len() - 1;
                let mut at = 0;
                // The last look stays: the difference to the first is what the iteration used.
                component.samples.retain(|_| {
                    at += 1;
                    at % 2 == 1 || at - 1 == last
                });
            }
        }
    }
}

impl Slice {
    /// Slices that follow each other as one. A percentile of the whole cannot be computed from those of its parts.
    pub(crate) fn joined(parts: &[Self]) -> Self {
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
