//! Variants in relation to one of them, round by round.

use crate::analyse::{Figure, compare_paired, median, paired, paired_ratio};
use crate::desk::render::{Section, Table, words};
use crate::record::{Ratio, Record, Variant};

/// Share of the divisor by which throughput may differ and still be called equivalent.
const MARGIN: f64 = 0.05;

/// Every ratio of the record.
pub(super) fn ratios(record: &Record, seed: u64) -> Section {
    let mut section = Section::new("In relation to");
    for ratio in &record.ratios {
        if let Some(over) = record.variant(&ratio.over) {
            section.table(table(record, ratio, over, seed));
        }
    }
    section
}

fn table(record: &Record, ratio: &Ratio, over: &Variant, seed: u64) -> Table {
    let caption = format!(
        "{}: figures ÷ those of {} in the same round, median over rounds; below it, between what the truth lies; equivalent means within {}",
        ratio.name,
        over.name,
        words::percent(MARGIN)
    );
    let mut table =
        Table::new(&caption, ["variant", "rounds", "throughput", "throughput differs", "P50", "P99"]);
    for variant in ratio.variants.iter().filter_map(|name| record.variant(name)) {
        let pairs = paired(over, variant, &Figure::PerSecond);
        let usual =
            if pairs.is_empty() { 0.0 } else { median(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>()) };
        table.row(vec![
            variant.name.clone(),
            pairs.len().to_string(),
            divided(over, variant, &Figure::PerSecond, seed),
            words::verdict(&Figure::PerSecond, &compare_paired(&pairs, usual * MARGIN)),
            divided(over, variant, &Figure::P50, seed),
            divided(over, variant, &Figure::P99, seed),
        ]);
    }
    table
}

/// A figure of a variant ÷ that of the other, with its interval.
fn divided(over: &Variant, variant: &Variant, figure: &Figure, seed: u64) -> String {
    let pairs = paired(over, variant, figure);
    let ratios: Vec<f64> = pairs.iter().filter(|pair| pair.0 > 0.0).map(|(a, b)| b / a).collect();
    if ratios.is_empty() {
        return "–".to_owned();
    }
    let between = paired_ratio(&pairs, seed).map_or_else(
        || "too few rounds".to_owned(),
        |of| {
            let sure = words::percent(of.confidence);
            format!("{} … {} ({sure})", words::digits(of.low), words::digits(of.high))
        },
    );
    format!("{}\n{between}", words::digits(median(&ratios)))
}
