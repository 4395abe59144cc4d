//! Figures as files name them, read out of a variant.
//!
//! Owns: which [`Figure`] a [`Measure`] is, and what it is beside another variant. Does not own: the bounds that a figure is held to.

use super::{CpuUse, Figure, staleness_by_place};
use crate::record::{Measure, Record, Variant};
use crate::units;

/// What a figure is compared with: the same figure of another variant, in the same round, because a machine drifts between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside<'a> {
    /// Nothing.
    Nothing,
    /// It is taken from the figure.
    Minus(&'a str),
    /// The figure is divided by it.
    Over(&'a str),
}

/// A figure of the variant `of` in each of its rounds, or, beside another variant, in each that both have: at least one, and each is a
/// number or endless. The sentence says why there is none: a round without the figure, or one that is missing, is a reason, because those that have it were
/// better ones.
pub fn by_round(
    record: &Record,
    measure: &Measure,
    of: &str,
    beside: Beside<'_>,
) -> Result<Vec<f64>, String> {
    let figures = |name: &str| -> Result<Vec<(u32, f64)>, String> {
        let variant = record.variant(name).ok_or_else(|| format!("there is no figure of `{name}`"))?;
        let values = measured(variant, measure);
        if values.is_empty() {
            return Err(format!(
                "no round of `{name}` has its {measure}{}{}",
                hint(variant, measure),
                why_no_cpu(variant, measure, None)
            ));
        }
        if let Some(number) = lacking(variant, measure, &values) {
            let why = why_no_cpu(variant, measure, Some(number));
            return Err(format!("round {number} of `{name}` has no {measure}: nothing is known of it{why}"));
        }
        Ok(values)
    };
    let own = figures(of)?;
    let (name, how): (_, fn(f64, f64) -> Option<f64>) = match beside {
        Beside::Minus(name) => (name, |own, other| Some(units::difference(own, other))),
        // Something over nothing is endless; nothing over nothing is the same.
        Beside::Over(name) => (name, |own, other| match (own > 0.0, other > 0.0) {
            (_, true) => Some(own / other),
            (true, false) => Some(f64::INFINITY),
            (false, false) => Some(1.0),
        }),
        Beside::Nothing => return Ok(own.into_iter().map(|(_, value)| value).collect()),
    };
    let other = figures(name)?;
    let in_round = |number: u32| other.iter().find(|(round, _)| *round == number).map(|(_, value)| *value);
    let values: Vec<f64> =
        own.into_iter().filter_map(|(number, value)| how(value, in_round(number)?)).collect();
    if values.is_empty() {
        return Err(format!("no round has both figures, its own and that of `{name}`"));
    }
    if values.iter().any(|value| value.is_nan()) {
        return Err(format!(
            "it is endless for both, `{of}` and `{name}`: nothing is known of what lies between"
        ));
    }
    if matches!(beside, Beside::Over(_)) && other.iter().all(|(_, value)| *value <= 0.0) {
        return Err(format!("it is 0 for `{name}`"));
    }
    Ok(values)
}

/// The first round of which nothing is known: it is missing, or has no such figure. A count is no figure of a round: it repeats.
fn lacking(variant: &Variant, measure: &Measure, values: &[(u32, f64)]) -> Option<u32> {
    if matches!(measure, Measure::Count { .. }) {
        return None;
    }
    let lacks = |number: &u32| values.iter().all(|(round, _)| ![0, *number].contains(round));
    let without = variant.iterations.iter().map(|iteration| iteration.number).filter(lacks);
    variant.missing.iter().copied().chain(without).min()
}

/// Which components there are, where the one that is meant is none of them.
fn hint(variant: &Variant, measure: &Measure) -> String {
    let known = variant.watched_names();
    match measure.component() {
        Some(name) if !known.contains(&name) => format!("; it has {}", known.join(", ")),
        _ => String::new(),
    }
}

/// Why a round has no figure of CPU, where it was counted: of the round that is meant, or the first.
fn why_no_cpu(variant: &Variant, measure: &Measure, round: Option<u32>) -> String {
    let names = match measure {
        Measure::Cpu { component } => vec![component.clone()],
        Measure::PathCpu => variant.working(),
        _ => return String::new(),
    };
    let mut rounds = variant.iterations.iter().filter(|one| round.is_none_or(|round| one.number == round));
    let counted = rounds.find_map(|iteration| {
        names.iter().find_map(|name| {
            Some((name, CpuUse::of(iteration, name)?)).filter(|(_, cpu)| cpu.exact_cores().is_none())
        })
    });
    counted.map_or_else(String::new, |(name, cpu)| format!("; `{name}`: {}", cpu.why_not()))
}

/// A figure by number of iteration, for every iteration that has it; once for all (0) a count, which repeats, and staleness, of which an iteration sees few
/// cases: it is that of the worst place over all iterations, infinite where too many credentials were never refused; none where a hundredth of the
/// revocations came to nothing, because those that did not may be the easy ones.
pub fn measured(variant: &Variant, measure: &Measure) -> Vec<(u32, f64)> {
    if let Measure::Count { name } = measure {
        return variant.counters.get(name).map(|value| (0, *value)).into_iter().collect();
    }
    if let Some(share) = staleness_share(measure) {
        if mostly_failed(variant) {
            return Vec::new();
        }
        let places = staleness_by_place(variant).into_iter().map(|place| place.micros(share));
        return places.reduce(f64::max).map(|worst| (0, worst)).into_iter().collect();
    }
    let Some(figure) = figure(variant, measure) else { return Vec::new() };
    let iterations = variant.iterations.iter();
    iterations.filter_map(|iteration| Some((iteration.number, figure.of(iteration)?))).collect()
}

/// Whether so many revocations came to nothing that the others tell little.
fn mostly_failed(variant: &Variant) -> bool {
    let all = variant.iterations.iter().filter_map(|iteration| iteration.revocations.as_ref());
    let (failed, revoked) =
        all.fold((0, 0), |(failed, revoked), one| (failed + one.failed, revoked + one.revoked));
    failed * 100 > failed + revoked
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
        Measure::FloodAdmitted => Figure::FloodAdmitted,
        Measure::Healing => Figure::Healing,
        Measure::Lateness => Figure::Lateness,
    })
}
