//! Import of Nighthawk: its JSON, as its published schema (`nighthawk.client.Output`) describes it.
//!
//! No file that Nighthawk wrote was at hand: the form is that of the schema in JSON, and of the
//! names of counters and statistics in its documentation.

use serde::Deserialize;
use serde_json::Value;

use super::{Content, ErrorContext, ImportError, ParsedFile, ParsedLoad, Rates, WaitsFor, count_only};
use crate::record::{Class, Outcome, StatedFigures, StatedPercentile};

const RULE: &str = "from Nighthawk's own histogram, with HDR's steps of percentiles";
/// Name of the result over all workers.
const ALL: &str = "global";
/// Start of the names of the results of single workers.
const WORKER: &str = "worker_";
/// Time from sending a request to its complete response.
const LATENCY: &str = "benchmark_http_client.request_to_response";

/// Counters, what they count, and the fault; they do not overlap.
const COUNTERS: [(&str, Outcome, Option<&str>); 9] = [
    ("benchmark.http_1xx", Outcome::Ok, None),
    ("benchmark.http_2xx", Outcome::Ok, None),
    ("benchmark.http_3xx", Outcome::Ok, None),
    ("benchmark.http_4xx", Outcome::Refused, Some("4xx")),
    // It is not known how many of the 5xx are 503.
    ("benchmark.http_5xx", Outcome::Refused, None),
    ("benchmark.http_xxx", Outcome::Failed, Some("unknown status")),
    ("benchmark.stream_resets", Outcome::Failed, Some("closed")),
    ("benchmark.pool_connection_failure", Outcome::Failed, Some("connect")),
    ("benchmark.pool_overflow", Outcome::Failed, Some("not sent")),
];

/// The keys of the schema that are read; there are more. 64-bit numbers are strings in protobuf's
/// JSON.
#[derive(Deserialize)]
struct Output {
    options: Options,
    results: Vec<WorkerResult>,
}

#[derive(Deserialize)]
struct Options {
    /// Per worker.
    requests_per_second: Option<f64>,
    /// Per worker.
    connections: Option<u32>,
    #[serde(default)]
    open_loop: bool,
}

#[derive(Deserialize)]
struct WorkerResult {
    name: String,
    #[serde(default)]
    statistics: Vec<Statistic>,
    #[serde(default)]
    counters: Vec<Counter>,
    execution_duration: Option<String>,
}

#[derive(Deserialize)]
struct Statistic {
    id: String,
    mean: Option<String>,
    min: Option<String>,
    max: Option<String>,
    #[serde(default)]
    percentiles: Vec<Percentile>,
}

#[derive(Deserialize)]
struct Percentile {
    percentile: f64,
    duration: Option<String>,
}

#[derive(Deserialize)]
struct Counter {
    name: String,
    value: Value,
}

/// Reads the output of `nighthawk_client --output-format json`.
pub(super) fn json(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let output: Output = serde_json::from_str(content).map_err(|error| at.json(None, &error))?;
    let all = output.results.iter().find(|result| result.name == ALL);
    let all = all.ok_or_else(|| at.whole(format!("there is no result `{ALL}`")))?;
    let duration = all.execution_duration.as_deref();
    let duration =
        duration.ok_or_else(|| at.whole(format!("the result `{ALL}` has no `execution_duration`")))?;
    let seconds = seconds(duration, at)?.max(1e-6);
    let mut classes = Vec::new();
    for counter in &all.counters {
        let Some((_, outcome, fault)) = COUNTERS.iter().find(|(name, ..)| *name == counter.name) else {
            continue;
        };
        let count = whole(&counter.value)
            .ok_or_else(|| at.whole(format!("`{}` is not a count ({})", counter.value, counter.name)))?;
        classes.push(Class { fault: fault.map(str::to_owned), ..count_only(*outcome, None, count) });
    }
    classes.retain(|class| class.count > 0);
    let answered: u64 = classes.iter().map(|class| class.count).fold(0, u64::saturating_add);
    let per_s = answered as f64 / seconds;
    let stated = stated(all, per_s, at)?;
    let workers = output.results.iter().filter(|result| result.name.starts_with(WORKER)).count();
    let mut notes = vec![
        "files of Nighthawk are read by its published schema; the import was not tried with a file that it wrote"
            .to_owned(),
        "Nighthawk counts percentiles over good and refused answers alike".to_owned(),
    ];
    let workers = u32::try_from(workers).unwrap_or(u32::MAX).max(1);
    let load = load(&output.options, workers, per_s, &mut notes);
    let content = Content::Summary(classes, stated);
    Ok(ParsedFile { tool: "Nighthawk", content, seconds, started_unix_s: None, load, notes })
}

fn stated(all: &WorkerResult, per_s: f64, at: &ErrorContext<'_>) -> Result<StatedFigures, ImportError> {
    let latency = all.statistics.iter().find(|statistic| statistic.id == LATENCY);
    let latency = latency.ok_or_else(|| at.whole(format!("there is no statistic `{LATENCY}`")))?;
    let us = |time: Option<&str>| time.map(|time| seconds(time, at).map(|seconds| seconds * 1e6)).transpose();
    let mut percentiles: Vec<StatedPercentile> = Vec::new();
    for one in &latency.percentiles {
        let known = percentiles.last().is_some_and(|last| last.share >= one.percentile);
        if let Some(us) = us(one.duration.as_deref())?.filter(|_| !known) {
            percentiles.push(StatedPercentile { share: one.percentile, us });
        }
    }
    Ok(StatedFigures {
        tool: "Nighthawk".to_owned(),
        rule: RULE.to_owned(),
        mean_us: us(latency.mean.as_deref())?,
        min_us: us(latency.min.as_deref())?,
        max_us: us(latency.max.as_deref())?,
        per_s: Some(per_s),
        percentiles,
        sent_percentiles: Vec::new(),
    })
}

/// The load of this many workers, which together sent `sent` requests per second.
fn load(options: &Options, workers: u32, sent: f64, notes: &mut Vec<String>) -> ParsedLoad {
    let in_flight = options.connections.map(|connections| connections.saturating_mul(workers));
    let Some(rate) = options.requests_per_second.filter(|rate| *rate > 0.0) else {
        return ParsedLoad::unknown(in_flight);
    };
    let rates = Rates { asked: rate * f64::from(workers), sent };
    let waits_for = if options.open_loop { WaitsFor::Nothing } else { WaitsFor::Connections };
    ParsedLoad::at_rate(rates, in_flight, waits_for, notes)
}

/// A 64-bit number, which protobuf's JSON has as a string.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Seconds of a duration in protobuf's JSON: `0.000031494s`.
fn seconds(text: &str, at: &ErrorContext<'_>) -> Result<f64, ImportError> {
    let number = text.strip_suffix('s').and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| at.whole(format!("`{text}` is not a duration, such as `0.25s`")))
}
