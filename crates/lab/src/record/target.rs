//! What a scenario wants of its figures, and which variants it divides by one of them.
//!
//! Owns: the shape of both, and the names that figures have in files ([`Measure`]), which baselines of `lab gate` use as well. Does not own: how a
//! figure is read out of a variant ([`crate::statistics`]), nor the verdict ([`crate::offline::targets`](mod@crate::offline::targets)): it is computed from
//! the record, never stored in it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure of a variant, as files name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// A count per request.
    Count {
        /// Its name.
        name: String,
    },
    /// By how much a counter that a component has of itself grew while load lasted.
    Counter {
        /// The component's name.
        component: String,
        /// The counter's name.
        name: String,
    },
    /// Share of requests that did not end well.
    Errors,
    /// Share of requests without an answer, or with a status from 500 other than 503, by which a server says that it has too much to do.
    Failures,
    /// Median latency, µs.
    P50,
    /// 95th percentile, µs.
    P95,
    /// 99th percentile, µs.
    P99,
    /// 99th percentile of the latency of refusals (a status from 400), µs.
    RefusedP99,
    /// Good answers per second.
    Throughput,
    /// CPU per request of a component, µs.
    Cpu {
        /// Its name.
        component: String,
    },
    /// CPU per request of all components on the way of a request, the service left out; of a transaction of a flow, of all that run; µs.
    PathCpu,
    /// Most memory of a component, bytes.
    Memory {
        /// Its name.
        component: String,
    },
    /// Most memory of a component in the last third of the window, divided by that in the first.
    MemoryGrowth {
        /// Its name.
        component: String,
    },
    /// Memory of a component for each connection that was held: what it has more than before they were opened, bytes.
    MemoryPerConnection {
        /// Its name.
        component: String,
    },
    /// Longest time for which a held connection was open, closed by the server or still open at the end, µs.
    HeldLongest,
    /// Median of how long revoked credentials were still accepted, at the worst place, µs.
    StalenessP50,
    /// 99th percentile of how long revoked credentials were still accepted, at the worst place, µs.
    StalenessP99,
    /// Longest time that a revoked credential was still accepted, µs.
    StalenessMax,
    /// 99th percentile of how long whoever revoked a credential waited for the answer, µs.
    RevocationP99,
    /// From the first to the last of those that were revoked by the list, µs.
    Flood,
    /// How often one of those was still accepted when the bound was over, of some that were tried.
    FloodAdmitted,
    /// From the last event of a load until every request ends well again, µs.
    Healing,
    /// 99th percentile of how much later than due and possible the lab sent requests, µs.
    Lateness,
}

/// What the numbers of a figure are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Time,
    /// A share from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// A number: per second, per request, times.
    Number,
}

impl Measure {
    /// What its numbers are.
    pub fn unit(&self) -> Unit {
        match self {
            Self::Count { .. }
            | Self::Counter { .. }
            | Self::Throughput
            | Self::MemoryGrowth { .. }
            | Self::FloodAdmitted => Unit::Number,
            Self::Errors | Self::Failures => Unit::Share,
            Self::Memory { .. } | Self::MemoryPerConnection { .. } => Unit::Bytes,
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
            | Self::Healing
            | Self::Lateness => Unit::Time,
        }
    }

    /// A bound holds in each round, not for the median over them: what is promised of every request or change is broken by one. (Staleness
    /// needs no such rule: it is one figure over all rounds.)
    pub fn holds_each_round(&self) -> bool {
        matches!(self, Self::Counter { .. } | Self::Errors | Self::Failures | Self::FloodAdmitted)
    }

    /// It is one figure over all rounds, and has no interval.
    pub fn is_of_all_rounds(&self) -> bool {
        matches!(self, Self::Count { .. } | Self::StalenessP50 | Self::StalenessP99 | Self::StalenessMax)
    }

    /// The component that it is about.
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
            Self::HeldLongest => f.write_str("longest life of a held connection"),
            Self::StalenessP50 => f.write_str("P50 of staleness"),
            Self::StalenessP99 => f.write_str("P99 of staleness"),
            Self::StalenessMax => f.write_str("longest staleness"),
            Self::RevocationP99 => f.write_str("P99 of answers to revocations"),
            Self::Flood => f.write_str("time of the flood"),
            Self::FloodAdmitted => f.write_str("accepted of the flood"),
            Self::Healing => f.write_str("time until all is well"),
            Self::Lateness => f.write_str("P99 of lateness"),
        }
    }
}

/// What a scenario wants of a figure: the median over the rounds is held to it, or all of its interval; every round where it is a share of
/// errors or failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// What is wanted, in words.
    pub says: String,
    /// Which figure.
    pub figure: Measure,
    /// Of this variant.
    pub of: String,
    /// Less the same figure of this variant in the same round; absent for the figure itself.
    pub minus: Option<String>,
    /// Divided by the same figure of this variant in the same round; absent for the figure itself.
    pub over: Option<String>,
    /// It may be this, in the unit of the figure (µs, share, bytes), or so many times with `over`; absent without an upper bound.
    pub at_most: Option<f64>,
    /// It has to be this; absent without a lower bound.
    pub at_least: Option<f64>,
    /// Not the median alone is held to the bounds, but all of the interval in which the true median lies with 95 % or more: what is wanted is shown.
    #[serde(default)]
    pub surely: bool,
}

/// Variants whose figures are divided by those of one of them in the same round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The variant that is divided by.
    pub baseline: String,
    /// Those that are divided.
    pub variants: Vec<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", self.figure, self.of)?;
        self.minus.as_ref().map_or(Ok(()), |minus| write!(f, " less `{minus}`"))?;
        self.over.as_ref().map_or(Ok(()), |over| write!(f, " over `{over}`"))
    }
}
