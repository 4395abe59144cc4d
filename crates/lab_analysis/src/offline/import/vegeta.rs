//! Import of vegeta: every request as JSON lines or CSV, and its report in JSON.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    Content, EndReason, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Request, Rule, clock,
    count_only, from_first_start, line_of, outcome_of,
};
use crate::record::{Class, Outcome, StatedFigures, StatedPercentile};

/// Fewest columns of the CSV; newer versions write more.
const MIN_COLUMNS: usize = 9;
/// Bytes at the beginning of the binary form that name its fields.
const HEAD: usize = 512;
const REPORT_RULE: &str = "estimated by vegeta with a t-digest";
const ARRIVALS: &str = "vegeta does not say whether it attacked at a rate or as fast as its workers could";

/// Whether a file has vegeta's binary form (Go's gob): it begins with the names of its fields.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD)];
    let names = |name: &[u8]| head.windows(name.len()).any(|window| window == name);
    std::str::from_utf8(head).is_err() && names(b"Result") && names(b"Attack") && names(b"Latency")
}

/// Whether a line is one of vegeta's CSV: nanoseconds since 1970, status, nanoseconds, bytes out,
/// bytes in, and more.
pub(super) fn is_csv(first: &str) -> bool {
    let mut fields = first.split(',');
    let mut next = || fields.next()?.parse::<u64>().ok();
    let start = next().is_some_and(|nanos| nanos > 1_000_000_000_000_000_000);
    let rest = next().is_some_and(|status| status < 1000) && next().is_some() && next().is_some();
    start && rest && next().is_some() && fields.count() >= MIN_COLUMNS - 5
}

/// A line of `vegeta encode --to json`. There are more keys, with bodies and headers.
#[derive(Deserialize)]
struct Line {
    code: u16,
    /// Start of the request.
    timestamp: String,
    /// Nanoseconds.
    latency: u64,
    #[serde(default)]
    error: String,
}

/// Reads the output of `vegeta encode --to json`.
pub(super) fn lines(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut rows = ParsedRows::default();
    for (number, text) in content.lines().enumerate().map(|(number, line)| (number + 1, line)) {
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(text).map_err(|error| at.json(Some(number), &error))?;
        let start = clock::rfc3339(&line.timestamp).ok_or_else(|| {
            at.line(number, format!("`{}` is not a time as RFC 3339 writes it", line.timestamp))
        })?;
        rows.add(start, line.code, line.latency, &line.error);
    }
    Ok(rows.read())
}

/// Reads the output of `vegeta encode --to csv`.
pub(super) fn csv(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut reader = ::csv::ReaderBuilder::new();
    let mut reader = reader.has_headers(false).flexible(true).from_reader(content.as_bytes());
    let mut rows = ParsedRows::default();
    for row in reader.records() {
        let row = row.map_err(|error| at.whole(error.to_string()))?;
        let line = line_of(&row);
        if row.len() < MIN_COLUMNS {
            return Err(at.line(line, format!("has {} columns, not {MIN_COLUMNS} or more", row.len())));
        }
        let number = |column: usize, what: &str| {
            let text = row.get(column).unwrap_or_default();
            text.parse::<u64>().map_err(|_| at.line(line, format!("`{text}` is not {what}")))
        };
        let start = number(0, "a time in nanoseconds since 1970")?;
        let status = number(1, "a status")?;
        let status =
            u16::try_from(status).map_err(|_| at.line(line, format!("`{status}` is not a status")))?;
        let nanos = number(2, "a number of nanoseconds")?;
        rows.add(start as f64 / 1e9, status, nanos, row.get(5).unwrap_or_default());
    }
    Ok(rows.read())
}

/// Content of a file while it is read.
#[derive(Default)]
struct ParsedRows {
    requests: Vec<Request>,
    examples: Examples,
}

impl ParsedRows {
    /// Adds a request that started at `start`, seconds since 1970.
    fn add(&mut self, start: f64, status: u16, nanos: u64, error: &str) {
        // Beside a status from 400 vegeta repeats its reason; beside another one the body could not
        // be read.
        let broken = outcome_of(status) == Outcome::Ok && !error.is_empty();
        let (outcome, status, why) = if broken || status == 0 {
            (Outcome::Failed, None, EndReason::from_message(error))
        } else {
            (outcome_of(status), Some(status), EndReason::Plain)
        };
        let request = Request { ended_s: start + nanos as f64 / 1e9, nanos, outcome, status, why };
        self.examples.note(&request, error);
        self.requests.push(request);
    }

    fn read(self) -> ParsedFile {
        let Self { mut requests, examples } = self;
        let span = from_first_start(&mut requests);
        ParsedFile {
            tool: "vegeta",
            content: Content::Requests(requests, examples, Rule::digest()),
            seconds: span.seconds.max(1e-6),
            started_unix_s: span.started_s,
            load: ParsedLoad::unknown(None),
            notes: vec![ARRIVALS.to_owned()],
        }
    }
}

/// The keys of the report that are read; there are more.
#[derive(Deserialize)]
struct Report {
    latencies: Latencies,
    /// From the first to the last start, ns.
    duration: u64,
    /// From the last start to the last end, ns.
    wait: u64,
    rate: f64,
    status_codes: BTreeMap<String, u64>,
    /// Each message once.
    errors: Option<Vec<String>>,
}

/// Nanoseconds; versions differ in their percentiles.
#[derive(Deserialize)]
struct Latencies {
    mean: f64,
    max: f64,
    min: Option<f64>,
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

/// Reads the output of `vegeta report -type json`.
pub(super) fn report(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let report: Report = serde_json::from_str(content).map_err(|error| at.json(None, &error))?;
    let messages = report.errors.as_deref().unwrap_or_default();
    let mut classes = Vec::new();
    for (text, count) in &report.status_codes {
        let status: u16 = text.parse().map_err(|_| at.whole(format!("`{text}` is not a status")))?;
        if status > 0 {
            classes.push(count_only(outcome_of(status), Some(status), *count));
            continue;
        }
        // The message about a response begins with its status.
        let answered =
            |message: &&String| message.split(' ').next().is_some_and(|word| word.parse::<u16>().is_ok());
        let example = messages.iter().find(|message| !answered(message)).cloned();
        let class = count_only(Outcome::Failed, None, *count);
        classes.push(Class { fault: Some("error".to_owned()), example, ..class });
    }
    let seconds = report.duration.saturating_add(report.wait) as f64 / 1e9;
    let percent = |name: &str| name.strip_suffix("th")?.parse::<f64>().ok();
    let latencies = &report.latencies;
    let mut percentiles: Vec<StatedPercentile> = latencies
        .others
        .iter()
        .filter_map(|(name, ns)| Some((percent(name)?, ns.as_f64()?)))
        .filter(|(percent, _)| (0.0..=100.0).contains(percent))
        .map(|(percent, ns)| StatedPercentile { share: percent / 100.0, us: ns / 1e3 })
        .collect();
    percentiles.sort_by(|a, b| a.share.total_cmp(&b.share));
    let stated = StatedFigures {
        tool: "vegeta".to_owned(),
        rule: REPORT_RULE.to_owned(),
        mean_us: Some(latencies.mean / 1e3),
        min_us: latencies.min.map(|ns| ns / 1e3),
        max_us: Some(latencies.max / 1e3),
        per_s: Some(report.rate),
        percentiles,
        sent_percentiles: Vec::new(),
    };
    let notes = vec![
        "vegeta's report counts percentiles over good and refused answers alike; `vegeta encode` gives every request"
            .to_owned(),
        ARRIVALS.to_owned(),
    ];
    Ok(ParsedFile {
        tool: "vegeta",
        content: Content::Summary(classes, stated),
        seconds: seconds.max(1e-6),
        started_unix_s: None,
        load: ParsedLoad::unknown(None),
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_csv_is_told_from_other_numbers() {
        assert!(is_csv("1795393319114000000,200,1234567,0,100,,aGk=,,0,GET,http://127.0.0.1/,"));
        assert!(is_csv("1795393319114000000,503,1234567,0,100,503 Service Unavailable,aGk=,,0"));
        for line in ["1795393319114,200,5,0,0,,,,0", "1795393319114000000,200,5", "a,b,c,d,e,f,g,h,i", ""] {
            assert!(!is_csv(line), "{line}");
        }
    }
}
