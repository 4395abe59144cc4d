//! Stages: report section about loads whose rate changes, with offered load and results per stage.
//!
//! Owns: which slices belong to a stage, and the offered rate over time.
//! Does not own: the other figures over time ([`super::over_time`]).
//!
//! A stage has no percentiles of its own, because those of its slices do not add up. Instead it
//! shows the median of the slices' P50 and their longest latency.

use super::facts;
use crate::formatting;
use crate::offline::render::{Section, Table};
use crate::record::{Iteration, Record, Slice, Stage, Variant};
use crate::statistics::median;

/// Section with a table for each variant whose rate changed.
pub(super) fn stages(record: &Record) -> Section {
    let mut section = Section::new("Stage by stage");
    for variant in record.variants.iter().filter(|variant| !variant.load.stages.is_empty()) {
        section.table(of_variant(variant));
    }
    section
}

fn of_variant(variant: &Variant) -> Table {
    let mut table = Table::new(
        &format!("{}: medians over iterations", variant.name),
        ["offered", "offered/s", "good/s", "other endings/s", "P50, median of its slices", "longest"],
    );
    let mut from = 0.0;
    for stage in &variant.load.stages {
        let seen: Vec<StageFigures> = variant
            .iterations
            .iter()
            .filter_map(|iteration| StageFigures::of(iteration, from, stage))
            .collect();
        let of = |figure: fn(&StageFigures) -> Option<f64>, words: fn(f64) -> String| {
            let values: Vec<f64> = seen.iter().filter_map(figure).collect();
            if values.is_empty() { "–".to_owned() } else { words(median(&values)) }
        };
        table.row(vec![
            facts::stage(stage),
            formatting::digits(stage.from_per_s.midpoint(stage.to_per_s)),
            of(|seen| Some(seen.good_per_s), formatting::digits),
            of(|seen| Some(seen.bad_per_s), formatting::digits),
            of(|seen| seen.p50_us, formatting::time),
            of(|seen| seen.longest_us, formatting::time),
        ]);
        from += stage.seconds;
    }
    table
}

/// What one iteration measured in a stage.
struct StageFigures {
    good_per_s: f64,
    bad_per_s: f64,
    p50_us: Option<f64>,
    longest_us: Option<f64>,
}

impl StageFigures {
    /// Reads a stage of an iteration; `None` where no slice lies in it, because the iteration ended
    /// earlier or has no timeline.
    fn of(iteration: &Iteration, from_s: f64, stage: &Stage) -> Option<Self> {
        let within = |slice: &&Slice| {
            let middle = (slice.at_ms as f64 + slice.ms as f64 / 2.0) / 1e3 - iteration.warmup_s;
            (from_s..from_s + stage.seconds).contains(&middle)
        };
        let slices: Vec<&Slice> = iteration.timeline.iter().filter(within).collect();
        let seconds = slices.iter().map(|slice| slice.ms).sum::<u64>() as f64 / 1e3;
        if seconds <= 0.0 {
            return None;
        }
        let per_s =
            |count: fn(&Slice) -> u64| slices.iter().map(|slice| count(slice)).sum::<u64>() as f64 / seconds;
        let middles: Vec<f64> = slices.iter().filter_map(|slice| slice.p50_us).collect();
        Some(Self {
            good_per_s: per_s(|slice| slice.ok),
            bad_per_s: per_s(|slice| slice.bad),
            p50_us: (!middles.is_empty()).then(|| median(&middles)),
            longest_us: slices.iter().filter_map(|slice| slice.max_us).reduce(f64::max),
        })
    }
}

/// Requests per second that were due, over the seconds of an iteration; empty for a closed loop.
pub(super) fn offered(variant: &Variant, iteration: &Iteration) -> Vec<(f64, f64)> {
    let stages = &variant.load.stages;
    let Some(first) = stages.first().map(|stage| stage.from_per_s).or(variant.load.rate_per_s) else {
        return Vec::new();
    };
    let mut at = iteration.warmup_s;
    let mut points = vec![(0.0, first)];
    for stage in stages {
        points.push((at, stage.from_per_s));
        at += stage.seconds;
        points.push((at, stage.to_per_s));
    }
    if stages.is_empty() {
        points.push((at + iteration.seconds, first));
    }
    points
}
