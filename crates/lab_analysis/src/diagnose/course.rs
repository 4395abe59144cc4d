//! Memory growth: finds memory that grows over the course of a run.
//!
//! Owns: the distinction between memory that fills at the start and memory that grows with the
//! work.

use super::Subject;
use super::view::{ComponentWindow, component_windows, ended_per_s, majority};
use crate::formatting;
use crate::record::{Finding, Sample};
use crate::statistics::median;

/// Smallest growth that counts, as a share of the memory in use at first.
const MIN_GROWTH_SHARE: f64 = 0.1;
/// Smallest growth that counts, bytes: allocators take memory in large pieces.
const MIN_GROWTH_BYTES: f64 = 4.0 * 1_048_576.0;
/// Number of parts of the window whose medians are compared.
const PARTS: usize = 4;
/// Smallest growth in the last step, as a share of the mean step: memory that fills at the start
/// becomes flat.
const MIN_LAST_STEP: f64 = 0.5;
/// Most samples that the slope is computed from. The slope is the median of the slopes between all
/// pairs.
const MAX_SAMPLES: usize = 120;

/// Finds resident memory that grows with the number of requests.
pub(super) fn memory_growth(subject: &Subject<'_>) -> Vec<Finding> {
    if subject.is_staged() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for name in subject.variant.component_names() {
        let looks = component_windows(subject.variant, name);
        let growths: Vec<String> = looks.iter().filter_map(growth).collect();
        if growths.is_empty() || growths.len() < majority(looks.len()) {
            continue;
        }
        findings.push(subject.explanation(
            "memory-growth",
            format!("`{name}` {}", growths[0]),
            "memory of requests is never released: look for state per token, session or connection, and bound it",
        ));
    }
    findings
}

fn growth(look: &ComponentWindow<'_>) -> Option<String> {
    let samples: Vec<&Sample> = look.samples().collect();
    if samples.len() < 3 * PARTS {
        return None;
    }
    let part = |part: usize| {
        let range = samples.len() * part / PARTS..samples.len() * (part + 1) / PARTS;
        median(&samples[range].iter().map(|sample| sample.rss_bytes as f64).collect::<Vec<_>>())
    };
    let parts: Vec<f64> = (0..PARTS).map(part).collect();
    let steps: Vec<f64> = parts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let whole = parts[PARTS - 1] - parts[0];
    let mean = whole / steps.len() as f64;
    let grows = steps.iter().all(|step| *step > 0.0) && steps[steps.len() - 1] >= MIN_LAST_STEP * mean;
    if !grows || whole < MIN_GROWTH_BYTES || whole < MIN_GROWTH_SHARE * parts[0] {
        return None;
    }
    // Memory that grows without requests is not caused by them.
    let per_s = Some(ended_per_s(look.iteration)).filter(|per_s| *per_s > 0.0)?;
    let each = Some(slope(&samples) / per_s).filter(|each| *each > 0.0)?;
    Some(format!(
        "grew from {} in the first quarter of {} s to {} in the last, {} bytes per request, without slowing down",
        formatting::bytes(parts[0]),
        formatting::digits(look.seconds()),
        formatting::bytes(parts[PARTS - 1]),
        formatting::digits(each)
    ))
}

/// Growth in bytes per second: the median over pairs of samples (Theil and Sen), which single
/// samples do not shift.
fn slope(samples: &[&Sample]) -> f64 {
    let every = samples.len().div_ceil(MAX_SAMPLES);
    let looks: Vec<&&Sample> = samples.iter().step_by(every).collect();
    let pairs =
        looks.iter().enumerate().flat_map(|(at, from)| looks[at + 1..].iter().map(move |to| (from, to)));
    let slopes: Vec<f64> = pairs
        .filter(|(from, to)| to.at_ms > from.at_ms)
        .map(|(from, to)| {
            (to.rss_bytes as f64 - from.rss_bytes as f64) * 1e3 / (to.at_ms - from.at_ms) as f64
        })
        .collect();
    median(&slopes)
}
