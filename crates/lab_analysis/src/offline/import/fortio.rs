//! Import of Fortio: the JSON of its load tests over HTTP and gRPC.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    Content, ErrorContext, ImportError, ParsedFile, ParsedLoad, Rates, WaitsFor, clock, count_only,
    ending_of_grpc, outcome_of,
};
use crate::record::{Class, Outcome, StatedFigures, StatedPercentile};

const RULE: &str = "linear within the buckets of Fortio's own histogram";
/// Fault of the code -1.
const UNANSWERED: &str = "no answer";
/// Fortio's name for the rate of a closed loop.
const UNPACED: &str = "max";

/// The keys of a result that are read; there are more.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    #[serde(default)]
    run_type: String,
    /// As RFC 3339 writes it.
    start_time: Option<String>,
    /// Number, or `max`.
    #[serde(rename = "RequestedQPS")]
    requested_qps: String,
    #[serde(rename = "ActualQPS")]
    actual_qps: f64,
    /// Nanoseconds.
    actual_duration: u64,
    num_threads: u32,
    duration_histogram: Histogram,
    /// Number of requests by their end: HTTP status, -1 without a response; else a name or words.
    ret_codes: Option<BTreeMap<String, u64>>,
}

/// Seconds.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Histogram {
    count: u64,
    min: f64,
    max: f64,
    avg: f64,
    percentiles: Option<Vec<Percentile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Percentile {
    percentile: f64,
    value: f64,
}

/// Reads the output of `fortio load -json`.
pub(super) fn json(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let report: Report = serde_json::from_str(content).map_err(|error| at.json(None, &error))?;
    if report.duration_histogram.count == 0 {
        return Err(ImportError::Empty { file: at.0.to_owned() });
    }
    let codes = report.ret_codes.iter().flatten();
    let mut classes: Vec<Class> = codes.map(|(code, count)| class(code, *count)).collect();
    let unanswered = classes.iter().any(|class| class.fault.as_deref() == Some(UNANSWERED));
    let mut notes = vec![
        "Fortio's file has the buckets of its histogram, not every request, and counts percentiles over good and refused answers alike"
            .to_owned(),
    ];
    if classes.is_empty() {
        classes.push(count_only(Outcome::Ok, None, report.duration_histogram.count));
        notes.push(format!("a run of type `{}` has no codes: every call counts as good", report.run_type));
    }
    if unanswered {
        notes.push("requests with code -1 had no answer; Fortio does not say why".to_owned());
    }
    let load = load(&report, &mut notes)
        .ok_or_else(|| at.whole(format!("`{}` is not a rate (RequestedQPS)", report.requested_qps)))?;
    let stated = stated(&report.duration_histogram, report.actual_qps);
    Ok(ParsedFile {
        tool: "Fortio",
        content: Content::Summary(classes, stated),
        seconds: (report.actual_duration as f64 / 1e9).max(1e-6),
        started_unix_s: report.start_time.as_deref().and_then(clock::rfc3339),
        load,
        notes,
    })
}

/// Class of a code.
fn class(code: &str, count: u64) -> Class {
    let named = |outcome, fault: String| Class { fault: Some(fault), ..count_only(outcome, None, count) };
    if let Ok(number) = code.parse::<i32>() {
        return match u16::try_from(number).ok().filter(|status| *status > 0) {
            Some(status) => count_only(outcome_of(status), Some(status), count),
            None => named(Outcome::Failed, UNANSWERED.to_owned()),
        };
    }
    if let Some((outcome, _, why)) = ending_of_grpc(code) {
        return Class { fault: why.fault(outcome), ..count_only(outcome, None, count) };
    }
    match code {
        // A call has the health that it was told.
        "SERVING" => count_only(Outcome::Ok, None, count),
        "UNKNOWN" | "NOT_SERVING" | "SERVICE_UNKNOWN" => {
            named(Outcome::Refused, code.to_lowercase().replace('_', " "))
        }
        // The words of an error, over TCP and UDP.
        _ => Class { example: Some(code.to_owned()), ..named(Outcome::Failed, "error".to_owned()) },
    }
}

/// The load; `None` if the requested rate is neither a number nor `max`.
fn load(report: &Report, notes: &mut Vec<String>) -> Option<ParsedLoad> {
    let workers = Some(report.num_threads).filter(|workers| *workers > 0);
    if report.requested_qps == UNPACED {
        return Some(ParsedLoad::closed(workers));
    }
    let asked = report.requested_qps.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0)?;
    let rates = Rates { asked, sent: report.actual_qps };
    Some(ParsedLoad::at_rate(rates, workers, WaitsFor::Responses, notes))
}

fn stated(histogram: &Histogram, per_s: f64) -> StatedFigures {
    let percentiles = histogram.percentiles.as_deref().unwrap_or_default();
    let mut percentiles: Vec<StatedPercentile> = percentiles
        .iter()
        .map(|one| StatedPercentile { share: one.percentile / 100.0, us: one.value * 1e6 })
        .collect();
    percentiles.sort_by(|a, b| a.share.total_cmp(&b.share));
    StatedFigures {
        tool: "Fortio".to_owned(),
        rule: RULE.to_owned(),
        mean_us: Some(histogram.avg * 1e6),
        min_us: Some(histogram.min * 1e6),
        max_us: Some(histogram.max * 1e6),
        per_s: Some(per_s),
        percentiles,
        sent_percentiles: Vec::new(),
    }
}
