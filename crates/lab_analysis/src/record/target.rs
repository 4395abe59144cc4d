//! Targets: what a scenario requires of its figures, and which variants it divides by one of them.
//!
//! Owns: the shape of both, and the names of figures in files ([`Measure`]), which baselines of
//! `lab gate` use as well.
//! Does not own: how a figure is read out of a variant ([`crate::statistics`]), nor the verdict
//! ([`crate::offline::targets`](mod@crate::offline::targets)). A verdict is computed from the
//! record, never stored in it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure of a variant, as files name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// A count per request.
    Count {
        /// Name of the count.
        name: String,
    },
    /// Growth of a counter that a component exposes, during the load.
    Counter {
        /// Name of the component.
        component: String,
        /// Name of the counter.
        name: String,
    },
    /// Share of requests that were refused, failed or never sent.
    Errors,
    /// Share of requests without a response, or with a status from 500 other than 503, by which a
    /// server reports overload.
    Failures,
    /// Median latency, µs.
    P50,
    /// 95th percentile of the latency, µs.
    P95,
    /// 99th percentile of the latency, µs.
    P99,
    /// 99th percentile of the latency of refusals (a status from 400), µs.
    RefusedP99,
    /// Successful responses per second.
    Throughput,
    /// CPU per request of a component, µs.
    Cpu {
        /// Name of the component.
        component: String,
    },
    /// CPU per request of all components that a request passes before the service, µs. For a flow:
    /// CPU per transaction of all components.
    PathCpu,
    /// Highest memory use of a component, bytes.
    Memory {
        /// Name of the component.
        component: String,
    },
    /// Highest memory use of a component in the last third of the window, divided by that in the
    /// first third.
    MemoryGrowth {
        /// Name of the component.
        component: String,
    },
    /// Memory of a component per held connection, bytes: its growth since before the connections
    /// were opened.
    MemoryPerConnection {
        /// Name of the component.
        component: String,
    },
    /// Longest time for which a held connection was open, µs, whether the server closed it or it
    /// was still open at the end.
    HeldLongest,
    /// Median time for which revoked credentials were still accepted, at the worst node or cluster,
    /// µs.
    StalenessP50,
    /// 99th percentile of the time for which revoked credentials were still accepted, at the worst
    /// node or cluster, µs.
    StalenessP99,
    /// Longest time for which a revoked credential was still accepted, µs.
    StalenessMax,
    /// 99th percentile of the latency of revocation requests, µs.
    RevocationP99,
    /// Duration of a bulk revocation, from its first request to its last response, µs.
    Flood,
    /// How often a credential of a bulk revocation was still accepted after the bound, among those
    /// that were tried.
    FloodAdmitted,
    /// Median time from the acceptance of a change by the API server until a request saw it, µs.
    ChangeP50,
    /// 99th percentile of the time from the acceptance of a change by the API server until a request
    /// saw it, µs.
    ChangeP99,
    /// Changes that were not written or that no request saw.
    ChangesFailed,
    /// Longest scrape of a component's metrics, µs.
    ScrapeLongest,
    /// Size of the largest scrape, bytes.
    ScrapeSize,
    /// 99th percentile of the latency of requests that were due in the window after the beginning of a
    /// scrape, less that of the window between two scrapes, µs.
    ScrapeDelay,
    /// Time from the last event of a load until every request ends well again, µs.
    Healing,
    /// 99th percentile of the time by which the lab sent requests later than due and possible, µs.
    Lateness,
    /// Median time until the head of a stream had arrived, µs; of a WebSocket until it was open.
    FirstByteP50,
    /// 99th percentile of the time until the head of a stream had arrived, µs; of a WebSocket until
    /// it was open.
    FirstByteP99,
    /// Median time until the first event of a stream had arrived, µs.
    FirstEventP50,
    /// 99th percentile of the time until the first event of a stream had arrived, µs.
    FirstEventP99,
    /// Median time between two events of a stream, µs.
    EventGapP50,
    /// 99th percentile of the time between two events of a stream, µs.
    EventGapP99,
    /// Mean time between two events of a stream, µs.
    EventGapMean,
    /// Median time until a message of a WebSocket came back, µs.
    RoundTripP50,
    /// 99th percentile of the time until a message of a WebSocket came back, µs.
    RoundTripP99,
    /// Times in which a stream brought no event for longer than the threshold of its load.
    Stalls,
    /// Share of the opened streams that ended early, or with an error status of gRPC.
    StreamsCut,
}

/// Unit of a figure's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A time in microseconds.
    Time,
    /// A share from 0 to 1.
    Share,
    /// An amount of memory in bytes.
    Bytes,
    /// A plain number: per second, per request, or a factor.
    Number,
}

impl Measure {
    /// Unit of the measure's numbers.
    pub fn unit(&self) -> Unit {
        match self {
            Self::Count { .. }
            | Self::Counter { .. }
            | Self::Throughput
            | Self::MemoryGrowth { .. }
            | Self::FloodAdmitted
            | Self::ChangesFailed
            | Self::Stalls => Unit::Number,
            Self::Errors | Self::Failures | Self::StreamsCut => Unit::Share,
            Self::Memory { .. } | Self::MemoryPerConnection { .. } | Self::ScrapeSize => Unit::Bytes,
            Self::P50
            | Self::P95
            | Self::P99
            | Self::RefusedP99
            | Self::Cpu { .. }
            | Self::PathCpu
            | Self::HeldLongest
            | Self::StalenessP50
            | Self::StalenessP99
            | Self::StalenessMax
            | Self::RevocationP99
            | Self::Flood
            | Self::ChangeP50
            | Self::ChangeP99
            | Self::ScrapeLongest
            | Self::ScrapeDelay
            | Self::Healing
            | Self::Lateness
            | Self::FirstByteP50
            | Self::FirstByteP99
            | Self::FirstEventP50
            | Self::FirstEventP99
            | Self::EventGapP50
            | Self::EventGapP99
            | Self::EventGapMean
            | Self::RoundTripP50
            | Self::RoundTripP99 => Unit::Time,
        }
    }

    /// Whether a bound applies to each round instead of to the median over rounds: a promise for
    /// every request or change is broken by one. Staleness needs no such rule, because it is one
    /// figure over all rounds.
    pub fn holds_each_round(&self) -> bool {
        matches!(
            self,
            Self::Counter { .. }
                | Self::Errors
                | Self::Failures
                | Self::FloodAdmitted
                | Self::ChangesFailed
                | Self::Stalls
                | Self::StreamsCut
        )
    }

    /// Whether the measure is one figure over all rounds, which has no interval.
    pub fn is_of_all_rounds(&self) -> bool {
        matches!(self, Self::Count { .. } | Self::StalenessP50 | Self::StalenessP99 | Self::StalenessMax)
    }

    /// The component that the measure is about.
    pub fn component(&self) -> Option<&str> {
        match self {
            Self::Counter { component, .. }
            | Self::Cpu { component }
            | Self::Memory { component }
            | Self::MemoryGrowth { component }
            | Self::MemoryPerConnection { component } => Some(component),
            _ => None,
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { name } => write!(f, "{name} per request"),
            Self::Counter { component, name } => write!(f, "{name} of {component}"),
            Self::Errors => f.write_str("share of errors"),
            Self::Failures => f.write_str("share of failures"),
            Self::P50 => f.write_str("P50"),
            Self::P95 => f.write_str("P95"),
            Self::P99 => f.write_str("P99"),
            Self::RefusedP99 => f.write_str("P99 of refusals"),
            Self::Throughput => f.write_str("throughput"),
            Self::Cpu { component } => write!(f, "CPU per request of {component}"),
            Self::PathCpu => f.write_str("CPU per request of the path"),
            Self::Memory { component } => write!(f, "memory of {component}"),
            Self::MemoryGrowth { component } => write!(f, "growth of the memory of {component}"),
            Self::MemoryPerConnection { component } => {
                write!(f, "memory of {component} per held connection")
            }
            Self::HeldLongest => f.write_str("longest lifetime of a held connection"),
            Self::StalenessP50 => f.write_str("P50 of staleness"),
            Self::StalenessP99 => f.write_str("P99 of staleness"),
            Self::StalenessMax => f.write_str("longest staleness"),
            Self::RevocationP99 => f.write_str("P99 of revocation latency"),
            Self::Flood => f.write_str("duration of the bulk revocation"),
            Self::FloodAdmitted => f.write_str("accepted after the bulk revocation"),
            Self::ChangeP50 => f.write_str("P50 of changes in force"),
            Self::ChangeP99 => f.write_str("P99 of changes in force"),
            Self::ChangesFailed => f.write_str("changes that failed"),
            Self::ScrapeLongest => f.write_str("longest scrape"),
            Self::ScrapeSize => f.write_str("size of a scrape"),
            Self::ScrapeDelay => f.write_str("delay beside scrapes"),
            Self::Healing => f.write_str("recovery time"),
            Self::Lateness => f.write_str("P99 of lateness"),
            Self::FirstByteP50 => f.write_str("P50 of time to first byte"),
            Self::FirstByteP99 => f.write_str("P99 of time to first byte"),
            Self::FirstEventP50 => f.write_str("P50 of time to first event"),
            Self::FirstEventP99 => f.write_str("P99 of time to first event"),
            Self::EventGapP50 => f.write_str("P50 of time between events"),
            Self::EventGapP99 => f.write_str("P99 of time between events"),
            Self::EventGapMean => f.write_str("mean time between events"),
            Self::RoundTripP50 => f.write_str("P50 of round trip of messages"),
            Self::RoundTripP99 => f.write_str("P99 of round trip of messages"),
            Self::Stalls => f.write_str("stalls"),
            Self::StreamsCut => f.write_str("share of streams cut"),
        }
    }
}

/// What a scenario requires of a figure. The bounds apply to the median over the rounds, or to its
/// whole interval. For shares of errors or failures, and for counters, they apply to every round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Description of the requirement.
    pub says: String,
    /// The figure that is judged.
    pub figure: Measure,
    /// The variant that the figure is of.
    pub of: String,
    /// Variant whose same figure is subtracted, within the same round; absent for the figure
    /// itself.
    pub minus: Option<String>,
    /// Variant by whose same figure it is divided, within the same round; absent for the figure
    /// itself.
    pub over: Option<String>,
    /// Upper bound in the unit of the figure (µs, share, bytes), or a factor with `over`; absent
    /// without an upper bound.
    pub at_most: Option<f64>,
    /// Lower bound, in the same unit; absent without a lower bound.
    pub at_least: Option<f64>,
    /// Whether the bounds apply to the whole interval in which the true median lies with 95 % or
    /// more, not to the median alone. The requirement is then proven.
    #[serde(default)]
    pub surely: bool,
}

/// Variants whose figures are divided by those of one of them in the same round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The variant that the others are divided by.
    pub baseline: String,
    /// The variants that are divided.
    pub variants: Vec<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", self.figure, self.of)?;
        self.minus.as_ref().map_or(Ok(()), |minus| write!(f, " less `{minus}`"))?;
        self.over.as_ref().map_or(Ok(()), |over| write!(f, " over `{over}`"))
    }
}
