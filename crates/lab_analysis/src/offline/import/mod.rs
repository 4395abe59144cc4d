//! Import: converts files of other load generators to records (`lab import`).
//!
//! Owns: recognising formats ([`Tool`]), and building one iteration from samples or from a summary.
//! Each tool's format has its own module.
//! Does not own: what the tools measured.
//!
//! A file with every request gives a histogram. Beside it the record has the percentiles that the
//! tool's own rule gives for the same requests, to compare them with what the tool prints. A file
//! with only a summary gives a record without a histogram, which says so: none is invented.

mod clock;
mod h2load;
mod hey;
mod jmeter;
mod k6;
mod oha;
mod wrk;

use std::collections::BTreeMap;

use crate::record::{
    Arrivals, Class, Distribution, Iteration, LoadShape, Origin, Outcome, Record, Run, Slice, StatedFigures,
    StatedPercentile, Variant,
};
use crate::units::truncated;

/// Most requests of a file: each takes 32 bytes of memory while it is read.
const MAX_REQUESTS: usize = 5_000_000;
/// Most characters that are kept of a tool's message about a failure.
const MAX_MESSAGE: usize = 300;
/// Significant digits of the histograms: tools print up to four.
const DIGITS: u8 = 4;
/// Most slices of a timeline.
const MAX_SLICES: f64 = 120.0;

/// A tool and the form of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Text report of hey.
    Hey,
    /// CSV of hey, with every request.
    HeyCsv,
    /// JSON lines of k6, with every request.
    K6,
    /// Summary of k6.
    K6Summary,
    /// Text report of wrk.
    Wrk,
    /// Text report of h2load.
    H2load,
    /// Log of h2load, with every request.
    H2loadLog,
    /// JSON of oha.
    Oha,
    /// Result file of `JMeter` in CSV, with every request.
    Jtl,
    /// Result file of `JMeter` in XML, with every request.
    JtlXml,
}

impl Tool {
    /// All tools and forms.
    pub const ALL: [Self; 10] = [
        Self::Hey,
        Self::HeyCsv,
        Self::K6,
        Self::K6Summary,
        Self::Wrk,
        Self::H2load,
        Self::H2loadLog,
        Self::Oha,
        Self::Jtl,
        Self::JtlXml,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hey => "hey",
            Self::HeyCsv => "hey-csv",
            Self::K6 => "k6",
            Self::K6Summary => "k6-summary",
            Self::Wrk => "wrk",
            Self::H2load => "h2load",
            Self::H2loadLog => "h2load-log",
            Self::Oha => "oha",
            Self::Jtl => "jtl",
            Self::JtlXml => "jtl-xml",
        }
    }

    /// The tool and form with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The option of the tool that writes this form, and what it has, for the help.
    pub fn form(self) -> &'static str {
        match self {
            Self::Hey => "hey text report",
            Self::HeyCsv => "hey -o csv: every request",
            Self::K6 => "k6 run --out json: every request",
            Self::K6Summary => "k6 run --summary-export",
            Self::Wrk => "wrk, with or without --latency",
            Self::H2load => "h2load text report",
            Self::H2loadLog => "h2load --log-file: every request",
            Self::Oha => "oha --output-format json",
            Self::Jtl => "JMeter result file in CSV: every request",
            Self::JtlXml => "JMeter result file in XML: every request",
        }
    }
}

/// Facts that a file does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOptions {
    /// Name of the variant.
    pub variant: String,
    /// Number of workers; used only when the file does not say.
    pub concurrency: Option<u32>,
    /// Name of the file, for the record.
    pub file: String,
}

/// Why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The format is not recognised.
    #[error(
        "`{file}` has an unknown format (hey text or CSV, k6 JSON lines or summary, wrk text, h2load text or log, oha JSON, JMeter JTL in CSV or XML): name it with --tool"
    )]
    Unknown {
        /// Name of the file.
        file: String,
    },
    /// The content is not as the tool writes it.
    #[error("`{file}`{}: {reason}", .line.map_or(String::new(), |line| format!(", line {line}")))]
    Malformed {
        /// Name of the file.
        file: String,
        /// Line number, from 1; absent when the problem is not in one line.
        line: Option<usize>,
        /// Description of the problem.
        reason: String,
    },
    /// The file has no requests.
    #[error("`{file}` has no requests")]
    Empty {
        /// Name of the file.
        file: String,
    },
    /// The file has more requests than are read.
    #[error("`{file}` has more than {MAX_REQUESTS} requests: split it")]
    TooMany {
        /// Name of the file.
        file: String,
    },
}

/// A request, as a file reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Request {
    /// End of the request, seconds since the start of the first one.
    ended_s: f64,
    /// Duration of the request, ns.
    nanos: u64,
    outcome: Outcome,
    status: Option<u16>,
    why: EndReason,
}

/// Why a request did not end as its status says, or has no status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum EndReason {
    /// It ended as its status says; without a status, it had no response.
    #[default]
    Plain,
    /// The response had this status, below 400, but a check of the tool's user failed.
    Unexpected(u16),
    /// The response had this status, from 400, and the tool's user expected it.
    Expected(u16),
    /// The request timed out.
    Timeout,
    /// The connection, or TLS on it, could not be established.
    Connect,
    /// The connection closed before the response was complete.
    Closed,
}

impl EndReason {
    /// Name of the fault in the record; `None` where outcome and status say all.
    fn fault(self, outcome: Outcome) -> Option<String> {
        match self {
            Self::Unexpected(status) => Some(format!("assertion failed on {status}")),
            Self::Timeout => Some("timeout".to_owned()),
            Self::Connect => Some("connect".to_owned()),
            Self::Closed => Some("closed".to_owned()),
            Self::Plain => (outcome == Outcome::Failed).then(|| "no answer".to_owned()),
            Self::Expected(_) => None,
        }
    }

    /// Classifies a tool's message about a request without a response.
    fn from_message(words: &str) -> Self {
        let words = words.to_lowercase();
        let any = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
        // A timeout while connecting is a connection failure.
        if any(&[
            "connect timed out",
            "connecttimeout",
            "dial",
            "refused",
            "unknownhost",
            "no route",
            "handshake",
            "ssl",
            "tls",
        ]) {
            Self::Connect
        } else if any(&["timeout", "timed out", "deadline"]) {
            Self::Timeout
        } else if any(&["reset", "closed", "eof", "failed to respond", "nohttpresponse", "socketexception"]) {
            Self::Closed
        } else {
            Self::Plain
        }
    }
}

/// Requests with the same ending form one class.
type Ending = (Outcome, Option<u16>, EndReason);

/// First message in the file about each ending.
#[derive(Default)]
struct Examples(BTreeMap<Ending, String>);

impl Examples {
    fn note(&mut self, request: &Request, words: &str) {
        let words = words.trim();
        if !words.is_empty() {
            let ending = (request.outcome, request.status, request.why);
            self.0.entry(ending).or_insert_with(|| words.chars().take(MAX_MESSAGE).collect());
        }
    }
}

/// A file, as the module of its tool read it.
struct ParsedFile {
    tool: &'static str,
    rule: &'static str,
    content: Content,
    seconds: f64,
    concurrency: Option<u32>,
    notes: Vec<String>,
}

enum Content {
    /// Every request, the messages about their endings, and the tool's rule for a percentile of
    /// sorted ns.
    Requests(Vec<Request>, Examples, fn(&[u64], f64) -> f64),
    /// Counts, and the figures that the tool computed.
    Summary(Vec<Class>, StatedFigures),
}

/// Shares of the percentiles that are computed for files with every request.
const SHARES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// Creates errors about a malformed file of this name.
struct ErrorContext<'a>(&'a str);

impl ErrorContext<'_> {
    fn line(&self, line: usize, reason: impl Into<String>) -> ImportError {
        ImportError::Malformed { file: self.0.to_owned(), line: Some(line), reason: reason.into() }
    }

    fn whole(&self, reason: impl Into<String>) -> ImportError {
        ImportError::Malformed { file: self.0.to_owned(), line: None, reason: reason.into() }
    }
}

/// Recognises the tool that wrote a file by its beginning; `None` for an unknown format.
pub fn recognise(content: &str) -> Option<Tool> {
    let text = content.trim_start_matches('\u{feff}').trim_start();
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with("response-time,") {
        return Some(Tool::HeyCsv);
    }
    if jmeter::delimiter(first).is_some() {
        return Some(Tool::Jtl);
    }
    if text.starts_with("<?xml") || text.starts_with("<testResults") {
        return text.contains("<testResults").then_some(Tool::JtlXml);
    }
    if first.starts_with("Running ") && text.contains(" requests in ") {
        return Some(Tool::Wrk);
    }
    if first.starts_with("Summary:") && text.contains("Requests/sec:") {
        return Some(Tool::Hey);
    }
    if first.starts_with("starting benchmark...") {
        return Some(Tool::H2load);
    }
    let numbers = first.split_whitespace().take_while(|field| field.parse::<i64>().is_ok()).count();
    if numbers >= 3 && first.contains('\t') {
        return Some(Tool::H2loadLog);
    }
    if first.starts_with('{') {
        if text.contains("\"latencyPercentiles\"") {
            return Some(Tool::Oha);
        }
        if first.contains("\"type\":\"Metric\"") || first.contains("\"type\":\"Point\"") {
            return Some(Tool::K6);
        }
        return text.contains("\"http_req_duration\"").then_some(Tool::K6Summary);
    }
    None
}

/// Imports a file as one iteration.
pub fn iteration(content: &str, tool: Tool, options: &ImportOptions) -> Result<Iteration, ImportError> {
    let mut record = import(content, Some(tool), options)?;
    let iteration = record.variants.pop().and_then(|mut variant| variant.iterations.pop());
    iteration.ok_or_else(|| ImportError::Empty { file: options.file.clone() })
}

/// Imports a file as a record. Without `tool`, the format is recognised by the content.
pub fn import(content: &str, tool: Option<Tool>, options: &ImportOptions) -> Result<Record, ImportError> {
    let tool = tool
        .or_else(|| recognise(content))
        .ok_or_else(|| ImportError::Unknown { file: options.file.clone() })?;
    let content = content.trim_start_matches('\u{feff}');
    let at = ErrorContext(&options.file);
    let read = match tool {
        Tool::Hey => hey::text(content, &at),
        Tool::HeyCsv => hey::csv(content, &at),
        Tool::K6 => k6::lines(content, &at),
        Tool::K6Summary => k6::summary(content, &at),
        Tool::Wrk => wrk::text(content, &at),
        Tool::H2load => h2load::text(content, &at),
        Tool::H2loadLog => h2load::log(content, &at),
        Tool::Oha => oha::json(content, &at),
        Tool::Jtl => jmeter::csv(content, &at),
        Tool::JtlXml => jmeter::xml(content, &at),
    }?;
    record(read, options)
}

fn record(read: ParsedFile, options: &ImportOptions) -> Result<Record, ImportError> {
    let (tool, concurrency) = (read.tool, read.concurrency.or(options.concurrency));
    let mut notes = read.notes;
    if read.concurrency.is_none() && options.concurrency.is_some() {
        notes.push("the number of workers is not in the file; it was given at import".to_owned());
    }
    let iteration = match read.content {
        Content::Requests(requests, examples, percentile) => {
            if requests.is_empty() {
                return Err(ImportError::Empty { file: options.file.clone() });
            }
            if requests.len() > MAX_REQUESTS {
                return Err(ImportError::TooMany { file: options.file.clone() });
            }
            from_requests(&requests, &examples, read.seconds, (tool, read.rule), percentile)
        }
        Content::Summary(classes, stated) => {
            if classes.iter().all(|class| class.count == 0) {
                return Err(ImportError::Empty { file: options.file.clone() });
            }
            Iteration { classes, stated: Some(stated), ..Iteration::new(1, read.seconds) }
        }
    };
    let run = Run {
        title: format!("{tool}: {}", options.variant),
        scenario: None,
        origin: Origin::Import { tool: tool.to_owned(), file: options.file.clone(), notes },
        started_unix_s: None,
        commit: None,
        configuration: None,
        seed: None,
        quick: false,
        partial: false,
        machines: Vec::new(),
        peers: Vec::new(),
        counting: BTreeMap::new(),
    };
    let mut record = Record::new(run);
    record.variants.push(Variant {
        name: options.variant.clone(),
        topology: String::new(),
        path: Vec::new(),
        labels: BTreeMap::new(),
        load: LoadShape {
            // Every tool is a closed loop in the forms read here, except for two. The output of k6
            // does not name its arrival-rate executors, and wrk2 does not print its rate.
            arrivals: if matches!(tool, "k6" | wrk::PACED) { Arrivals::Unknown } else { Arrivals::Closed },
            concurrency,
            rate_per_s: None,
            stages: Vec::new(),
            flow: LoadShape::REQUEST.to_owned(),
            protocol: None,
            tokens: None,
            timeout_s: None,
        },
        iterations: vec![iteration],
        missing: Vec::new(),
        counters: BTreeMap::new(),
    });
    record.check().map_err(|contradiction| ImportError::Malformed {
        file: options.file.clone(),
        line: None,
        reason: contradiction.to_string(),
    })?;
    Ok(record)
}

fn from_requests(
    requests: &[Request],
    examples: &Examples,
    seconds: f64,
    (tool, rule): (&str, &str),
    percentile: fn(&[u64], f64) -> f64,
) -> Iteration {
    let mut kinds: BTreeMap<Ending, Vec<u64>> = BTreeMap::new();
    for request in requests {
        kinds.entry((request.outcome, request.status, request.why)).or_default().push(request.nanos);
    }
    let mut sorted: Vec<u64> = requests.iter().map(|request| request.nanos).collect();
    sorted.sort_unstable();
    let classes = kinds.into_iter().map(|(ending, nanos)| {
        let (outcome, status, why) = ending;
        let accepted = match why {
            EndReason::Expected(status) => Some(format!("status {status}, which was expected")),
            _ => None,
        };
        Class {
            outcome,
            status,
            fault: why.fault(outcome),
            count: nanos.len() as u64,
            latency: Some(Distribution::of(nanos, DIGITS)),
            example: examples.0.get(&ending).cloned().or(accepted),
        }
    });
    let us = |nanos: u64| nanos as f64 / 1e3;
    let stated = StatedFigures {
        tool: tool.to_owned(),
        rule: format!("computed here from every request of the file, by {tool}'s own rule: {rule}"),
        mean_us: Some(sorted.iter().map(|nanos| *nanos as f64).sum::<f64>() / sorted.len() as f64 / 1e3),
        min_us: sorted.first().copied().map(us),
        max_us: sorted.last().copied().map(us),
        per_s: Some(requests.len() as f64 / seconds),
        percentiles: SHARES
            .map(|share| StatedPercentile { share, us: percentile(&sorted, share) / 1e3 })
            .to_vec(),
        sent_percentiles: Vec::new(),
    };
    Iteration {
        classes: classes.collect(),
        timeline: timeline(requests, seconds),
        stated: Some(stated),
        ..Iteration::new(1, seconds)
    }
}

/// Slices of a whole number of tenths of a second, few enough to display. A slice without requests
/// is kept: it shows a silence.
fn timeline(requests: &[Request], seconds: f64) -> Vec<Slice> {
    let width = truncated(((seconds / MAX_SLICES * 10.0).ceil() * 100.0).max(100.0));
    let end = truncated((seconds * 1e3).ceil());
    // A short rest at the end joins the last slice: a few responses in a few milliseconds are no
    // rate.
    let count = (end / width + u64::from(end % width * 2 > width)).max(1);
    let mut cells = vec![(Vec::new(), 0_u64); usize::try_from(count).unwrap_or(usize::MAX)];
    for request in requests {
        let number = (truncated(request.ended_s * 1e3) / width).min(count - 1);
        let Some(cell) = usize::try_from(number).ok().and_then(|number| cells.get_mut(number)) else {
            continue;
        };
        if request.outcome == Outcome::Ok { cell.0.push(request.nanos) } else { cell.1 += 1 }
    }
    let slice = |(number, (nanos, bad)): (u64, (Vec<u64>, u64))| {
        // The last slice ends with the run.
        let until = if number + 1 == count { end } else { (number + 1) * width };
        let ms = until.saturating_sub(number * width).max(1);
        let ok = nanos.len() as u64;
        let latency = Distribution::of(nanos, DIGITS);
        let at = |share| (ok > 0).then(|| latency.micros(share));
        Slice { at_ms: number * width, ms, ok, bad, p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) }
    };
    (0..).zip(cells).map(slice).collect()
}

/// Number of the line on which a CSV row begins, from 1.
fn line_of(row: &::csv::StringRecord) -> usize {
    row.position().map_or(0, |position| usize::try_from(position.line()).unwrap_or(usize::MAX))
}

/// Ending of a request when the tool's user stated what is expected. An unexpected response failed
/// although its status is good. An expected one succeeded although its status is not. A request
/// without a status had no response: it failed, unless that was expected.
fn ending_of(status: Option<u16>, expected: bool) -> Ending {
    match (status, expected) {
        (None, true) => (Outcome::Ok, None, EndReason::Plain),
        (None, false) => (Outcome::Failed, None, EndReason::Plain),
        (Some(status), true) if outcome_of(status) == Outcome::Refused => {
            (Outcome::Ok, None, EndReason::Expected(status))
        }
        (Some(status), false) if outcome_of(status) == Outcome::Ok => {
            (Outcome::Failed, None, EndReason::Unexpected(status))
        }
        (Some(status), _) => (outcome_of(status), Some(status), EndReason::Plain),
    }
}

/// Outcome of a status; 0 stands for no response.
fn outcome_of(status: u16) -> Outcome {
    match status {
        0 => Outcome::Failed,
        1..400 => Outcome::Ok,
        _ => Outcome::Refused,
    }
}

/// A class with a count and without latencies.
fn count_only(outcome: Outcome, status: Option<u16>, count: u64) -> Class {
    Class { outcome, status, fault: None, count, latency: None, example: None }
}

/// Seconds as nanoseconds, rounded: 0.0023 s is not 2 299 999 ns.
fn nanos_of(seconds: f64) -> u64 {
    truncated((seconds * 1e9).round())
}
