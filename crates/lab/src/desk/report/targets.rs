//! What a scenario wants of its figures and whether it is so, and figures divided by those of one variant.

use std::fmt::Write as _;

use crate::analyse::{Figure, LEAST_PAIRS, median, paired};
use crate::desk::render::{Section, Table, words};
use crate::desk::targets::judge;
use crate::record::{Comparison, Record, Variant};

/// Every target with its verdict.
pub(super) fn targets(record: &Record) -> Section {
    let mut section = Section::new("Targets");
    let judged = judge(record);
    let met = judged.iter().filter(|judged| judged.met).count();
    let caption = format!("{met} of {} are met; seen: the median over rounds, least and most", judged.len());
    let mut table = Table::new(&caption, ["target", "figure", "wanted", "seen", ""]);
    for judged in judged {
        let verdict = if judged.met { "met" } else { "missed" };
        table.row(vec![
            judged.target.says.clone(),
            judged.target.to_string(),
            judged.wanted,
            judged.seen,
            verdict.to_owned(),
        ]);
    }
    section.table(table);
    section
}

/// Variants divided by one of them.
pub(super) fn comparisons(record: &Record) -> Section {
    let mut section = Section::new("Ratios within a round");
    for comparison in &record.comparisons {
        let Some(baseline) = record.variant(&comparison.baseline) else { continue };
        section.table(ratios(record, comparison, baseline));
    }
    section
}

fn ratios(record: &Record, comparison: &Comparison, baseline: &Variant) -> Table {
    let rounds = baseline.iterations.len();
    let mut caption =
        format!("Divided by `{}` in the same round: median (minimum – maximum)", comparison.baseline);
    if rounds >= LEAST_PAIRS {
        let sure = 1.0 - 2.0_f64.powf(1.0 - rounds as f64);
        let _ =
            write!(caption, "; between least and most the true median lies with {}", words::percent(sure));
    }
    let mut table = Table::new(&caption, ["variant", "throughput", "CPU per request", "P50", "P99"]);
    for name in comparison.variants.iter().filter(|name| **name != comparison.baseline) {
        let Some(variant) = record.variant(name) else { continue };
        let cpu = cpu_pairs(variant, baseline);
        let of = |figure: Figure| ratio(&paired(variant, baseline, &figure));
        let figures = [of(Figure::PerSecond), ratio(&cpu), of(Figure::P50), of(Figure::P99)];
        table.row(std::iter::once(name.clone()).chain(figures).collect());
    }
    table
}

/// CPU of what stands before the service, which are other components in each of the two.
fn cpu_pairs(variant: &Variant, baseline: &Variant) -> Vec<(f64, f64)> {
    let figure = |variant: &Variant| Figure::CpuTogether(variant.before_service().to_vec());
    let (own, other) = (figure(variant), figure(baseline));
    let beside = |number| baseline.iterations.iter().find(|iteration| iteration.number == number);
    let iterations = variant.iterations.iter();
    iterations.filter_map(|left| Some((own.of(left)?, other.of(beside(left.number)?)?))).collect()
}

fn ratio(pairs: &[(f64, f64)]) -> String {
    let ratios: Vec<f64> =
        pairs.iter().filter(|(_, other)| *other > 0.0).map(|(own, other)| own / other).collect();
    if ratios.is_empty() {
        return "–".to_owned();
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2}\n{least:.2} – {most:.2}", median(&ratios))
}
