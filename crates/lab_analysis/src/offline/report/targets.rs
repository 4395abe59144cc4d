//! Targets: report sections with the targets of a scenario, and with figures divided by those of
//! one variant.

use std::fmt::Write as _;

use crate::formatting;
use crate::offline::render::{Section, Table};
use crate::offline::targets::{TargetVerdict, judge};
use crate::record::{Comparison, Record, Variant};
use crate::statistics::{
    Figure, MIN_OBSERVATIONS, ScopeStaleness, median, paired, paired_figures, staleness_by_scope,
};

/// Section with every target and its verdict.
pub(super) fn targets(record: &Record) -> Section {
    let mut section = Section::new("Targets");
    let judged = judge(record);
    let met = judged.iter().filter(|judged| judged.is_met()).count();
    let caption = format!("{met} of {} are met; seen: the median over rounds, least and most", judged.len());
    let mut table = Table::new(&caption, ["target", "wanted", "seen", ""]);
    for judged in judged {
        let verdict = match judged.verdict {
            TargetVerdict::Met => "met",
            TargetVerdict::NotShown => "not shown",
            TargetVerdict::Missed => "missed",
        };
        table.row(vec![
            format!("{}\n{}", judged.target.says, judged.target),
            judged.requirement,
            [vec![judged.result], judged.scatter].concat().join("\n"),
            verdict.to_owned(),
        ]);
    }
    section.table(table);
    section
}

/// Section with variants divided by one of them.
pub(super) fn comparisons(record: &Record) -> Section {
    let mut section = Section::new("Ratios within a round");
    for comparison in &record.comparisons {
        let Some(baseline) = record.variant(&comparison.baseline) else { continue };
        section.table(ratios(record, comparison, baseline));
    }
    section
}

fn ratios(record: &Record, comparison: &Comparison, baseline: &Variant) -> Table {
    let others = comparison.variants.iter().filter(|name| **name != comparison.baseline);
    let others: Vec<&Variant> = others.filter_map(|name| record.variant(name)).collect();
    let divided: Vec<[Vec<f64>; 4]> = others.iter().map(|variant| divided(variant, baseline)).collect();
    let mut caption =
        format!("Divided by `{}` in the same round: median (minimum – maximum)", comparison.baseline);
    // A round that one of the two lacks is in no ratio. A statement about all ratios holds for the
    // one with the fewest rounds.
    let fewest = divided.iter().flatten().map(Vec::len).filter(|rounds| *rounds > 0).min();
    if let Some(rounds) = fewest.filter(|rounds| *rounds >= MIN_OBSERVATIONS) {
        let sure = 1.0 - 2.0_f64.powf(1.0 - rounds as f64);
        let _ = write!(caption, "; the range contains the true median with {}", formatting::percent(sure));
    }
    let stale = std::iter::once(baseline).chain(others.iter().copied()).map(staleness).collect::<Vec<_>>();
    let revoked = stale.iter().any(Option::is_some);
    let mut table = Table::new(&caption, ["variant", "throughput", "CPU per request", "P50", "P99"]);
    if revoked {
        // Staleness is shown beside the cost, because it is what that cost buys.
        table.head.push("revoked credentials still accepted".to_owned());
        let own = [&comparison.baseline, "1", "1", "1", "1"].map(str::to_owned);
        table.row(own.into_iter().chain([stale[0].clone().unwrap_or_default()]).collect());
    }
    for ((variant, divided), stale) in others.into_iter().zip(divided).zip(stale.into_iter().skip(1)) {
        let figures = divided.map(|ratios| ratio(&ratios));
        let row = std::iter::once(variant.name.clone()).chain(figures);
        table.row(row.chain(revoked.then(|| stale.unwrap_or_else(|| "–".to_owned()))).collect());
    }
    table
}

/// How long revoked credentials were accepted at the worst node; `None` where none was revoked.
fn staleness(variant: &Variant) -> Option<String> {
    let nodes: Vec<ScopeStaleness> =
        staleness_by_scope(variant).into_iter().filter(|place| !place.is_cluster).collect();
    if nodes.is_empty() {
        return None;
    }
    let never: u64 = nodes.iter().map(|node| node.never_refused).sum();
    let all = never + nodes.iter().map(|node| node.delay.count()).sum::<u64>();
    let worst = |share: f64| nodes.iter().map(|node| node.micros(share)).fold(0.0, f64::max);
    Some(match never {
        0 => format!(
            "P50 {}\nlongest {}",
            formatting::staleness(worst(0.5)),
            formatting::staleness(worst(1.0))
        ),
        never => format!("never refused: {} of {}", formatting::count(never), formatting::count(all)),
    })
}

/// CPU per request in pairs: the components that count differ between the two variants.
fn cpu_pairs(variant: &Variant, baseline: &Variant) -> Vec<(f64, f64)> {
    let figure = |variant: &Variant| Figure::CpuPerRequestSum(variant.cost_components());
    paired_figures((variant, &figure(variant)), (baseline, &figure(baseline)))
}

/// Throughput, CPU, P50 and P99 in each round that both variants have, divided by those of the
/// baseline.
fn divided(variant: &Variant, baseline: &Variant) -> [Vec<f64>; 4] {
    let of = |figure: Figure| paired(variant, baseline, &figure);
    let pairs = [of(Figure::PerSecond), cpu_pairs(variant, baseline), of(Figure::P50), of(Figure::P99)];
    pairs.map(|pairs| {
        pairs.into_iter().filter(|(_, other)| *other > 0.0).map(|(own, other)| own / other).collect()
    })
}

fn ratio(ratios: &[f64]) -> String {
    if ratios.is_empty() {
        return "–".to_owned();
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2}\n{least:.2} – {most:.2}", median(ratios))
}
