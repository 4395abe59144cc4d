//! Import of ghz: its JSON report, with every call.

use serde::Deserialize;

use super::{
    Content, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Rates, Request, Rule, Span,
    WaitsFor, clock, ending_of_grpc, from_first_start,
};
use crate::record::Outcome;

const RULE: &str = "the sorted value at count × share, rounded up";
const RULE_OF_SUCCESSES: &str =
    "the sorted value at count × share, rounded up, of the calls that succeeded; its mean is of all calls";
/// Most calls of which ghz keeps times.
const MAX_KEPT: u64 = 1_000_000;
/// gRPC status of the calls that ghz itself ends at the end of its time, and a part of its message.
const CUT_OFF: (&str, &str) = ("Canceled", "client connection is closing");

/// Percentile of sorted values by ghz's rule.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let place = share * sorted.len() as f64;
    // A whole number is the rank itself, as far as floating point knows whole numbers.
    let rank = if (place - place.round()).abs() < 1e-9 { place.round() } else { place.ceil() };
    let index = crate::units::index(rank).saturating_sub(1).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0.0, |nanos| *nanos as f64)
}

/// The keys of the report that are read; there are more.
#[derive(Deserialize)]
struct Report {
    options: Options,
    count: u64,
    /// Length of the run, ns.
    total: u64,
    details: Option<Vec<Detail>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Options {
    #[serde(default)]
    rps: u32,
    #[serde(default)]
    concurrency: u32,
    #[serde(default)]
    load_schedule: String,
    #[serde(default)]
    concurrency_schedule: String,
    /// Whether calls are sent without waiting for responses.
    #[serde(default, rename = "async")]
    unpaired: bool,
    /// Whether percentiles are of all calls.
    #[serde(default)]
    count_errors: bool,
}

/// A call.
#[derive(Deserialize)]
struct Detail {
    /// End of the call.
    timestamp: String,
    /// Nanoseconds.
    latency: u64,
    #[serde(default)]
    error: String,
    status: String,
}

/// Reads the output of `ghz -O json`.
pub(super) fn json(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let report: Report = serde_json::from_str(content).map_err(|error| at.json(None, &error))?;
    let details = report.details.unwrap_or_default();
    let mut examples = Examples::default();
    let (mut requests, mut cut_off): (Vec<Request>, u64) = (Vec::new(), 0);
    for (number, detail) in details.iter().enumerate() {
        let place = |what: &str| at.whole(format!("`details[{number}]`: {what}"));
        let ended_s = clock::rfc3339(&detail.timestamp)
            .ok_or_else(|| place(&format!("`{}` is not a time as RFC 3339 writes it", detail.timestamp)))?;
        if detail.status == CUT_OFF.0 && detail.error.contains(CUT_OFF.1) {
            cut_off += 1;
            continue;
        }
        let (outcome, status, why) = ending_of_grpc(&detail.status)
            .ok_or_else(|| place(&format!("`{}` is not a gRPC status", detail.status)))?;
        let request = Request { ended_s, nanos: detail.latency, outcome, status, why };
        if outcome != Outcome::Ok {
            examples.note(&request, &detail.error);
        }
        requests.push(request);
    }
    let Span { started_s, seconds: last } = from_first_start(&mut requests);
    let seconds = (report.total as f64 / 1e9).max(last).max(1e-6);
    let of_all = report.options.count_errors;
    let counted = if of_all { "all calls" } else { "the calls that succeeded" };
    let mut notes = vec![format!("ghz counts percentiles over {counted}")];
    if cut_off > 0 {
        notes.push(format!("{cut_off} calls were in flight at the end of the run and are not counted"));
    }
    if report.count > MAX_KEPT {
        notes.push(format!("ghz keeps {MAX_KEPT} calls: the record has the first of {}", report.count));
    }
    // The calls that were kept are the first ones, and took a part of the time.
    let seconds = if report.count > MAX_KEPT { last.max(1e-6) } else { seconds };
    let text = if of_all { RULE } else { RULE_OF_SUCCESSES };
    let rule = Rule { successes_only: !of_all, ..Rule::exact(text, percentile) };
    let load = load(&report.options, &requests, &mut notes);
    let content = Content::Requests(requests, examples, rule);
    Ok(ParsedFile { tool: "ghz", content, seconds, started_unix_s: started_s, load, notes })
}

/// Calls per second from the first start to the last. What the last calls took is no part of it.
fn sent_per_s(requests: &[Request]) -> f64 {
    let start = |request: &Request| request.ended_s - request.nanos as f64 / 1e9;
    requests.len() as f64 / requests.iter().map(start).fold(0.0, f64::max)
}

fn load(options: &Options, requests: &[Request], notes: &mut Vec<String>) -> ParsedLoad {
    let constant = |schedule: &str| matches!(schedule, "" | "const");
    let workers = Some(options.concurrency).filter(|workers| *workers > 0);
    if !constant(&options.load_schedule) || !constant(&options.concurrency_schedule) {
        notes.push("the load changed during the run; ghz's file has no rates over time".to_owned());
        return ParsedLoad::unknown(None);
    }
    let rates = |rate: u32| Rates { asked: f64::from(rate), sent: sent_per_s(requests) };
    match (options.rps, options.unpaired) {
        (0, false) => ParsedLoad::closed(workers),
        (0, true) => ParsedLoad::unknown(None),
        (rate, true) => ParsedLoad::at_rate(rates(rate), None, WaitsFor::Nothing, notes),
        (rate, false) => ParsedLoad::at_rate(rates(rate), workers, WaitsFor::Responses, notes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_its_rank_rounded_up() {
        let values: Vec<u64> = (1..=200).collect();
        for (share, value) in [(0.1, 20.0), (0.5, 100.0), (0.95, 190.0), (0.99, 198.0)] {
            assert!((percentile(&values, share) - value).abs() < 1e-9, "{share}");
        }
        assert!((percentile(&values[..3], 0.5) - 2.0).abs() < 1e-9 && percentile(&[], 0.5).abs() < 1e-9);
    }
}
