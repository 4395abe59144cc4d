//! Measures: reads the figures that files name out of a variant.
//!
//! Owns: which [`Figure`] belongs to a [`Measure`], and its difference or ratio to another variant.
//! Does not own: the bounds that a figure has to meet.

use super::{CpuUse, Figure, StreamFigure, staleness_by_scope};
use crate::record::{Measure, Record, Variant};
use crate::units;

/// What a figure is compared with: the same figure of another variant in the same round. Comparing
/// within a round removes the drift of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparedTo<'a> {
    /// The figure stands by itself.
    Nothing,
    /// The other variant's figure is subtracted.
    Minus(&'a str),
    /// The figure is divided by the other variant's.
    Over(&'a str),
}

/// Figures of the variant `of`, one per round, or per round that both variants have when it is
/// compared. There is at least one, and each is a number or infinite.
///
/// # Errors
///
/// Returns a sentence that says why there is no figure. One round without the figure is reason
/// enough: the rounds that have it may be better ones.
pub fn values_by_round(
    record: &Record,
    measure: &Measure,
    of: &str,
    beside: ComparedTo<'_>,
) -> Result<Vec<f64>, String> {
    let figures = |name: &str| -> Result<Vec<(u32, f64)>, String> {
        let variant = record.variant(name).ok_or_else(|| format!("there is no variant `{name}`"))?;
        let values = values_by_iteration(variant, measure);
        if values.is_empty() {
            return Err(format!(
                "no round of `{name}` has {measure}{}{}",
                known_components(variant, measure),
                why_no_cpu(variant, measure, None)
            ));
        }
        if let Some(number) = first_round_without(variant, measure, &values) {
            let why = why_no_cpu(variant, measure, Some(number));
            return Err(format!("round {number} of `{name}` has no {measure}{why}"));
        }
        Ok(values)
    };
    let own = figures(of)?;
    let (name, how): (_, fn(f64, f64) -> Option<f64>) = match beside {
        ComparedTo::Minus(name) => (name, |own, other| Some(units::difference(own, other))),
        // A value divided by 0 is infinite; 0 divided by 0 is 1, because both are the same.
        ComparedTo::Over(name) => (name, |own, other| match (own > 0.0, other > 0.0) {
            (_, true) => Some(own / other),
            (true, false) => Some(f64::INFINITY),
            (false, false) => Some(1.0),
        }),
        ComparedTo::Nothing => return Ok(own.into_iter().map(|(_, value)| value).collect()),
    };
    let other = figures(name)?;
    let in_round = |number: u32| other.iter().find(|(round, _)| *round == number).map(|(_, value)| *value);
    let values: Vec<f64> =
        own.into_iter().filter_map(|(number, value)| how(value, in_round(number)?)).collect();
    if values.is_empty() {
        return Err(format!("no round has this figure for both this variant and `{name}`"));
    }
    if values.iter().any(|value| value.is_nan()) {
        return Err(format!("it is infinite for both `{of}` and `{name}`: they cannot be compared"));
    }
    if matches!(beside, ComparedTo::Over(_)) && other.iter().all(|(_, value)| *value <= 0.0) {
        return Err(format!("cannot divide by `{name}`: its figure is 0"));
    }
    Ok(values)
}

/// First round without this figure, or that is missing altogether. A count has no rounds: it
/// repeats.
fn first_round_without(variant: &Variant, measure: &Measure, values: &[(u32, f64)]) -> Option<u32> {
    if matches!(measure, Measure::Count { .. }) {
        return None;
    }
    let lacks = |number: &u32| values.iter().all(|(round, _)| ![0, *number].contains(round));
    let without = variant.iterations.iter().map(|iteration| iteration.number).filter(lacks);
    variant.missing.iter().copied().chain(without).min()
}

/// Names the components of the variant when the measure's component is none of them.
fn known_components(variant: &Variant, measure: &Measure) -> String {
    let known = variant.observed_names();
    match measure.component() {
        Some(name) if !known.contains(&name) => format!("; its components are {}", known.join(", ")),
        _ => String::new(),
    }
}

/// Explains why a round has no CPU figure although CPU was counted: of the given round, or of the
/// first one.
fn why_no_cpu(variant: &Variant, measure: &Measure, round: Option<u32>) -> String {
    let names = match measure {
        Measure::Cpu { component } => vec![component.clone()],
        Measure::PathCpu => variant.cost_components(),
        _ => return String::new(),
    };
    let mut rounds = variant.iterations.iter().filter(|one| round.is_none_or(|round| one.number == round));
    let counted = rounds.find_map(|iteration| {
        names.iter().find_map(|name| {
            Some((name, CpuUse::in_window(iteration, name)?)).filter(|(_, cpu)| cpu.exact_cores().is_none())
        })
    });
    counted.map_or_else(String::new, |(name, cpu)| format!("; `{name}`: {}", cpu.why_inexact()))
}

/// Values of a measure by iteration number, for every iteration that has it.
///
/// A count and a staleness have one value for all iterations, under the number 0. A count repeats.
/// An iteration sees only a few revocations, so staleness is that of the worst node or cluster over
/// all iterations. It is infinite where too many credentials were never refused. It is absent when
/// more than a hundredth of the revocations failed, because those that succeeded may be the easy
/// ones.
pub fn values_by_iteration(variant: &Variant, measure: &Measure) -> Vec<(u32, f64)> {
    if let Measure::Count { name } = measure {
        return variant.counters.get(name).map(|value| (0, *value)).into_iter().collect();
    }
    if let Some(share) = staleness_share(measure) {
        if too_many_failed(variant) {
            return Vec::new();
        }
        let places = staleness_by_scope(variant).into_iter().map(|place| place.micros(share));
        return places.reduce(f64::max).map(|worst| (0, worst)).into_iter().collect();
    }
    let Some(figure) = figure(variant, measure) else { return Vec::new() };
    let iterations = variant.iterations.iter();
    iterations.filter_map(|iteration| Some((iteration.number, figure.value(iteration)?))).collect()
}

/// Whether so many revocations failed that the others say little: more than a hundredth.
fn too_many_failed(variant: &Variant) -> bool {
    let all = variant.iterations.iter().filter_map(|iteration| iteration.revocations.as_ref());
    let (failed, revoked) =
        all.fold((0, 0), |(failed, revoked), one| (failed + one.failed, revoked + one.revoked));
    failed * 100 > failed + revoked
}

/// The share of revocations that a staleness measure is about; `None` for other measures.
fn staleness_share(measure: &Measure) -> Option<f64> {
    match measure {
        Measure::StalenessP50 => Some(0.5),
        Measure::StalenessP99 => Some(0.99),
        Measure::StalenessMax => Some(1.0),
        _ => None,
    }
}

/// The figure of a measure; `None` for a measure that no single iteration has.
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
        Measure::PathCpu => Figure::CpuPerRequestSum(variant.cost_components()),
        Measure::Memory { component } => Figure::Memory(component.clone()),
        Measure::MemoryGrowth { component } => Figure::MemoryGrowth(component.clone()),
        Measure::MemoryPerConnection { component } => Figure::MemoryPerConnection(component.clone()),
        Measure::HeldLongest => Figure::HeldLongest,
        Measure::RevocationP99 => Figure::RevocationLatency(99_000),
        Measure::Flood => Figure::BulkRevocation,
        Measure::FloodAdmitted => Figure::BulkRevocationAccepted,
        Measure::Healing => Figure::Recovery,
        Measure::ChangeP50 => Figure::ChangeInForce(50_000),
        Measure::ChangeP99 => Figure::ChangeInForce(99_000),
        Measure::ChangesFailed => Figure::ChangesFailed,
        Measure::ScrapeLongest => Figure::ScrapeLongest,
        Measure::ScrapeSize => Figure::ScrapeSize,
        Measure::ScrapeDelay => Figure::ScrapeDelay,
        Measure::Lateness => Figure::Lateness,
        Measure::FirstByteP50 => Figure::Stream(StreamFigure::FirstByte(50_000)),
        Measure::FirstByteP99 => Figure::Stream(StreamFigure::FirstByte(99_000)),
        Measure::FirstEventP50 => Figure::Stream(StreamFigure::FirstEvent(50_000)),
        Measure::FirstEventP99 => Figure::Stream(StreamFigure::FirstEvent(99_000)),
        Measure::EventGapP50 => Figure::Stream(StreamFigure::EventGap(50_000)),
        Measure::EventGapP99 => Figure::Stream(StreamFigure::EventGap(99_000)),
        Measure::EventGapMean => Figure::Stream(StreamFigure::MeanEventGap),
        Measure::RoundTripP50 => Figure::Stream(StreamFigure::RoundTrip(50_000)),
        Measure::RoundTripP99 => Figure::Stream(StreamFigure::RoundTrip(99_000)),
        Measure::Stalls => Figure::Stream(StreamFigure::Stalls),
        Measure::StreamsCut => Figure::Stream(StreamFigure::CutShare),
    })
}
