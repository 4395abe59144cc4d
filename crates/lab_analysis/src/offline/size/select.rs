//! Selection: which variants of which reports a plan is based on, and which check its assumption.
//!
//! Owns: the meaning of a path's name, and what makes two variants the same path.

use super::{MeasuredReport, SizeError, names};
use crate::record::{Machine, Record, Variant};

/// Label of a variant with the name of its load.
const LOAD_LABEL: &str = "load";

/// A variant of a report.
pub(super) struct Selected<'a> {
    pub(super) file: &'a str,
    pub(super) record: &'a Record,
    pub(super) variant: &'a Variant,
    /// Whether the plan is based on it; otherwise it only checks the assumption.
    pub(super) is_base: bool,
}

/// Selects the variants of a path in every report, at least one of each, and other loads of them.
/// The first one is a base.
pub(super) fn variants<'a>(
    reports: &[MeasuredReport<'a>],
    path: Option<&str>,
) -> Result<Vec<Selected<'a>>, SizeError> {
    let mut selected: Vec<Selected<'a>> = Vec::new();
    for report in reports {
        let base = base(report, path)?;
        if let Some(first) = selected.first() {
            if !same_machines(&first.record.run.machines, &report.record.run.machines) {
                return Err(SizeError::OtherMachine { a: first.file.to_owned(), b: report.file.to_owned() });
            }
            if !is_same_path(first.variant, base[0]) {
                return Err(SizeError::OtherPath {
                    a: first.file.to_owned(),
                    variant_a: first.variant.name.clone(),
                    b: report.file.to_owned(),
                    variant_b: base[0].name.clone(),
                });
            }
        }
        let of = |variant: &'a Variant, is_base| Selected {
            file: report.file,
            record: report.record,
            variant,
            is_base,
        };
        let is_base = |variant: &Variant| base.iter().any(|one| one.name == variant.name);
        let others = report.record.variants.iter().filter(|variant| {
            !is_base(variant)
                && arrangement(&variant.name) == arrangement(&base[0].name)
                && is_same_path(base[0], variant)
        });
        selected.extend(base.iter().copied().map(|variant| of(variant, true)));
        selected.extend(others.map(|variant| of(variant, false)));
    }
    Ok(selected)
}

/// The variants that a path's name means.
fn base<'a>(report: &MeasuredReport<'a>, path: Option<&str>) -> Result<Vec<&'a Variant>, SizeError> {
    let (file, record) = (report.file.to_owned(), report.record);
    let known = || names(record.variants.iter());
    let Some(path) = path else {
        return match &record.variants[..] {
            [only] => Ok(vec![only]),
            _ => Err(SizeError::PathNeeded { file, known: known() }),
        };
    };
    if let Some(exact) = record.variant(path) {
        return Ok(vec![exact]);
    }
    let below =
        |variant: &&Variant| variant.name.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    let found: Vec<&Variant> = record.variants.iter().filter(below).collect();
    let Some(first) = found.first() else {
        return Err(SizeError::NoPath { file, path: path.to_owned(), known: known() });
    };
    let one_path = |variant: &&Variant| {
        arrangement(&variant.name) == arrangement(&first.name) && is_same_path(first, variant)
    };
    if !found.iter().all(one_path) {
        let found = names(found.iter().copied());
        return Err(SizeError::SeveralPaths { file, path: path.to_owned(), found });
    }
    Ok(found)
}

/// Name of a variant without its load: `fused/oidc/open` is `fused/oidc`.
fn arrangement(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(arrangement, _)| arrangement)
}

/// Whether two variants send the same requests through the same components. Their rates may differ.
/// A load without a warm-up fills caches while it is measured, so it has another cost.
fn is_same_path(a: &Variant, b: &Variant) -> bool {
    let holds = |variant: &Variant| variant.iterations.iter().any(|iteration| iteration.held.is_some());
    let warm = |variant: &Variant| variant.iterations.iter().any(|iteration| iteration.warmup_s > 0.0);
    let labels = |variant: &Variant| {
        let mut labels = variant.labels.clone();
        labels.remove(LOAD_LABEL);
        labels
    };
    let (load, other) = (&a.load, &b.load);
    (&a.topology, &a.path, labels(a)) == (&b.topology, &b.path, labels(b))
        && (&load.flow, &load.protocol, load.tokens) == (&other.flow, &other.protocol, other.tokens)
        && holds(a) == holds(b)
        && warm(a) == warm(b)
}

/// Whether the cores of two runs are alike. Kernels may differ.
fn same_machines(a: &[Machine], b: &[Machine]) -> bool {
    let alike = |(a, b): (&Machine, &Machine)| {
        (&a.role, a.cores, &a.processor) == (&b.role, b.cores, &b.processor)
            && a.cgroup.as_ref().and_then(|group| group.cpu_limit_cores)
                == b.cgroup.as_ref().and_then(|group| group.cpu_limit_cores)
    };
    a.len() == b.len() && a.iter().zip(b).all(alike)
}
