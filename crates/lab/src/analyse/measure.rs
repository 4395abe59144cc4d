//! Figures as files name them, read out of a variant.
//!
//! Owns: which [`Figure`] a [`Measure`] is. Does not own: the bounds that a figure is held to.

use super::{Figure, staleness_by_place};
use crate::record::{Measure, Variant};

/// A figure by number of iteration, for every iteration that has it; once for all (0) a count, which repeats, and staleness, of which an iteration sees few
/// cases: it is that of the worst place over all iterations, infinite where too many credentials were never refused.
pub fn measured(variant: &Variant, measure: &Measure) -> Vec<(u32, f64)> {
    if let Measure::Count { name } = measure {
        return variant.counters.get(name).map(|value| (0, *value)).into_iter().collect();
    }
    if let Some(share) = staleness_share(measure) {
        let places = staleness_by_place(variant).into_iter().map(|place| place.micros(share));
        return places.reduce(f64::max).map(|worst| (0, worst)).into_iter().collect();
    }
    let Some(figure) = figure(variant, measure) else { return Vec::new() };
    let iterations = variant.iterations.iter();
    iterations.filter_map(|iteration| Some((iteration.number, figure.of(iteration)?))).collect()
}

/// Which share of revocations is meant; `None` for other figures.
fn staleness_share(measure: &Measure) -> Option<f64> {
    match measure {
        Measure::StalenessP50 => Some(0.5),
        Measure::StalenessP99 => Some(0.99),
        Measure::StalenessMax => Some(1.0),
        _ => None,
    }
}

/// The figure that is meant; `None` for what no single iteration has.
pub(crate) fn figure(variant: &Variant, measure: &Measure) -> Option<Figure> {
    Some(match measure {
        Measure::Count { .. } | Measure::StalenessP50 | Measure::StalenessP99 | Measure::StalenessMax => {
            return None;
        }
        Measure::Counter { component, name } => Figure::Counter(component.clone(), name.clone()),
        Measure::Errors => Figure::BadShare,
        Measure::Failures => Figure::FailureShare,
        Measure::P50 => Figure::P50,
        Measure::P95 => Figure::P95,
        Measure::P99 => Figure::P99,
        Measure::RefusedP99 => Figure::Refused(99_000),
        Measure::Throughput => Figure::PerSecond,
        Measure::Cpu { component } => Figure::CpuPerRequest(component.clone()),
        Measure::PathCpu => Figure::CpuTogether(variant.working()),
        Measure::Memory { component } => Figure::Memory(component.clone()),
        Measure::MemoryGrowth { component } => Figure::MemoryGrowth(component.clone()),
        Measure::MemoryPerConnection { component } => Figure::MemoryPerConnection(component.clone()),
        Measure::HeldLongest => Figure::HeldLongest,
        Measure::RevocationP99 => Figure::Revoking(99_000),
        Measure::Flood => Figure::Flood,
    })
}
