//! Figures as files name them, read out of a variant.
//!
//! Owns: which [`Figure`] a [`Measure`] is. Does not own: the bounds that a figure is held to.

use super::Figure;
use crate::record::{Measure, Variant};

/// A figure by number of iteration, for every iteration that has it; a count, which repeats, once for all (0).
pub fn measured(variant: &Variant, measure: &Measure) -> Vec<(u32, f64)> {
    if let Measure::Count { name } = measure {
        return variant.counters.get(name).map(|value| (0, *value)).into_iter().collect();
    }
    let Some(figure) = figure(variant, measure) else { return Vec::new() };
    let iterations = variant.iterations.iter();
    iterations.filter_map(|iteration| Some((iteration.number, figure.of(iteration)?))).collect()
}

/// The figure that is meant; `None` for a count, which no iteration has.
pub(crate) fn figure(variant: &Variant, measure: &Measure) -> Option<Figure> {
    Some(match measure {
        Measure::Count { .. } => return None,
        Measure::Errors => Figure::BadShare,
        Measure::Failures => Figure::FailureShare,
        Measure::P50 => Figure::P50,
        Measure::P95 => Figure::P95,
        Measure::P99 => Figure::P99,
        Measure::RefusedP99 => Figure::Refused(99_000),
        Measure::Throughput => Figure::PerSecond,
        Measure::Cpu { component } => Figure::CpuPerRequest(component.clone()),
        Measure::PathCpu => Figure::CpuTogether(variant.before_service().to_vec()),
        Measure::Memory { component } => Figure::Memory(component.clone()),
        Measure::MemoryGrowth { component } => Figure::MemoryGrowth(component.clone()),
        Measure::MemoryPerConnection { component } => Figure::MemoryPerConnection(component.clone()),
        Measure::HeldLongest => Figure::HeldLongest,
        Measure::StalenessP50 => Figure::Staleness(50_000),
        Measure::StalenessP99 => Figure::Staleness(99_000),
        Measure::StalenessMax => Figure::Staleness(100_000),
    })
}
