//! Import of oha: its JSON report.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Content, ErrorContext, ImportError, ParsedFile, ParsedLoad, count_only, outcome_of};
use crate::record::{Class, Outcome, StatedFigures, StatedPercentile};

const RULE: &str = "the sorted value at the share of the count";
/// oha's word for requests that it aborted at the end of its run.
const CUT_OFF: &str = "deadline";

/// The keys of the report that are read; there are more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    summary: Summary,
    latency_percentiles: BTreeMap<String, Option<f64>>,
    status_code_distribution: BTreeMap<String, u64>,
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    /// Duration of the run, seconds.
    total: f64,
    slowest: Option<f64>,
    fastest: Option<f64>,
    average: Option<f64>,
    requests_per_sec: Option<f64>,
}

/// Reads the output of `oha --output-format json`.
pub(super) fn json(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let file: File = serde_json::from_str(content).map_err(|error| at.json(None, &error))?;
    let mut classes = Vec::new();
    for (text, count) in &file.status_code_distribution {
        // oha writes the status alone, or with its reason phrase.
        let number = text.split_whitespace().next().and_then(|number| number.parse::<u16>().ok());
        let status = number.ok_or_else(|| at.whole(format!("`{text}` is not a status")))?;
        classes.push(count_only(outcome_of(status), Some(status), *count));
    }
    let mut notes = vec![
        "oha counts percentiles over good and refused answers alike; it has no file of requests".to_owned(),
    ];
    for (error, count) in &file.error_distribution {
        if error.contains(CUT_OFF) {
            notes.push(format!("{count} requests were in flight at the end of the run and are not counted"));
            continue;
        }
        let class = count_only(Outcome::Failed, None, *count);
        classes.push(Class { fault: Some("error".to_owned()), example: Some(error.clone()), ..class });
    }
    let summary = &file.summary;
    if !(summary.total.is_finite() && summary.total > 0.0) {
        return Err(at.whole(format!("`total` is {}, not a time above 0", summary.total)));
    }
    let share = |name: &str| name.strip_prefix('p')?.parse::<f64>().ok().map(|percent| percent / 100.0);
    let printed = |(name, seconds): (&String, &Option<f64>)| {
        Some(StatedPercentile { share: share(name)?, us: (*seconds)? * 1e6 })
    };
    let mut percentiles: Vec<StatedPercentile> =
        file.latency_percentiles.iter().filter_map(printed).collect();
    percentiles.sort_by(|a, b| a.share.total_cmp(&b.share));
    let us = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e6);
    let stated = StatedFigures {
        tool: "oha".to_owned(),
        rule: RULE.to_owned(),
        mean_us: us(summary.average),
        min_us: us(summary.fastest),
        max_us: us(summary.slowest),
        per_s: summary.requests_per_sec,
        percentiles,
        sent_percentiles: Vec::new(),
    };
    Ok(ParsedFile {
        tool: "oha",
        content: Content::Summary(classes, stated),
        seconds: summary.total,
        started_unix_s: None,
        load: ParsedLoad::closed(None),
        notes,
    })
}
