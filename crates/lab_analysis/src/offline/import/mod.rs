//! Import: converts files of other load generators to records (`lab import`).
//!
//! Owns: recognising formats ([`recognise()`]), and building one iteration from samples or from a
//! summary. Each tool's format has its own module.
//! Does not own: what the tools measured.
//!
//! A file with every request gives a histogram. Beside it the record has the percentiles that the
//! tool's own rule gives for the same requests, to compare them with what the tool prints. A file
//! with only a summary gives a record without a histogram, which says so: none is invented.

mod ab;
mod clock;
mod fortio;
mod gatling;
mod ghz;
mod h2load;
mod hey;
mod jmeter;
mod k6;
mod load;
mod locust;
mod nighthawk;
mod oha;
mod recognise;
mod request;
mod tool;
mod vegeta;
mod wrk;

use std::collections::BTreeMap;

use load::{ParsedLoad, Rates, WaitsFor};
pub use recognise::{decode, recognise};
use request::{
    EndReason, Ending, Examples, Request, Rule, Span, count_only, ending_of, ending_of_grpc,
    from_first_start, line_of, nanos_of, outcome_of,
};
pub use tool::Tool;

use crate::record::{
    Class, Distribution, Iteration, LoadShape, Origin, Outcome, Record, Run, Slice, StatedFigures,
    StatedPercentile, Variant,
};
use crate::units::truncated;

/// Most requests of a file: each takes 32 bytes of memory while it is read.
const MAX_REQUESTS: usize = 5_000_000;
/// Significant digits of the histograms: tools print up to four.
const DIGITS: u8 = 4;
/// Most slices of a timeline.
const MAX_SLICES: f64 = 120.0;

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
        "`{file}` has an unknown format (`postern lab import --help` lists those of ab, Fortio, Gatling, ghz, h2load, hey, JMeter, k6, Locust, Nighthawk, oha, vegeta and wrk): name it with --tool"
    )]
    Unknown {
        /// Name of the file.
        file: String,
    },
    /// The file is known, but cannot be read or has too little of the run.
    #[error("`{file}` {reason}")]
    Unusable {
        /// Name of the file.
        file: String,
        /// Description of the file, and what to import instead.
        reason: String,
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

/// A file, as the module of its tool read it.
struct ParsedFile {
    tool: &'static str,
    content: Content,
    seconds: f64,
    /// Start of the first request, seconds since 1970; absent where the file does not say.
    started_unix_s: Option<f64>,
    load: ParsedLoad,
    notes: Vec<String>,
}

enum Content {
    /// Every request, the messages about their endings, and the tool's rule for percentiles.
    Requests(Vec<Request>, Examples, Rule),
    /// The same, with times at which requests ended that are too coarse for a timeline.
    Untimed(Vec<Request>, Examples, Rule),
    /// Counts, and the figures that the tool computed.
    Summary(Vec<Class>, StatedFigures),
    /// The same, with counts of parts of the time.
    Course(Vec<Class>, StatedFigures, Vec<Slice>),
}

/// Shares of the percentiles that are computed for files with every request.
const SHARES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// Creates errors about a malformed file of this name.
struct ErrorContext<'a>(&'a str);

impl ErrorContext<'_> {
    fn line(&self, line: usize, reason: impl Into<String>) -> ImportError {
        ImportError::Malformed { file: self.0.to_owned(), line: Some(line), reason: reason.into() }
    }

    /// A JSON document that cannot be read, of the whole file or of a line.
    fn json(&self, line: Option<usize>, error: &serde_json::Error) -> ImportError {
        let cut = if error.is_eof() { "is cut off: " } else { "" };
        ImportError::Malformed { file: self.0.to_owned(), line, reason: format!("{cut}{error}") }
    }

    fn whole(&self, reason: impl Into<String>) -> ImportError {
        ImportError::Malformed { file: self.0.to_owned(), line: None, reason: reason.into() }
    }
}

/// Imports a file as one iteration.
pub fn iteration(content: &str, tool: Tool, options: &ImportOptions) -> Result<Iteration, ImportError> {
    let mut record = import(content, Some(tool), options)?;
    let iteration = record.variants.pop().and_then(|mut variant| variant.iterations.pop());
    iteration.ok_or_else(|| ImportError::Empty { file: options.file.clone() })
}

/// Imports a file as a record. Without `tool`, the format is recognised by the content.
pub fn import(content: &str, tool: Option<Tool>, options: &ImportOptions) -> Result<Record, ImportError> {
    let file = || options.file.clone();
    let tool = match (tool.or_else(|| recognise(content)), recognise::too_little(content)) {
        (Some(tool), _) => tool,
        (None, Some(reason)) => {
            return Err(ImportError::Unusable { file: file(), reason: reason.to_owned() });
        }
        (None, None) => return Err(ImportError::Unknown { file: file() }),
    };
    let content = content.trim_start_matches('\u{feff}');
    let at = ErrorContext(&options.file);
    let read = match tool {
        Tool::Ab => ab::text(content, &at),
        Tool::AbTsv => ab::tsv(content, &at),
        Tool::Fortio => fortio::json(content, &at),
        Tool::Gatling => gatling::log(content, &at),
        Tool::GatlingStats => gatling::stats(content, &at),
        Tool::Ghz => ghz::json(content, &at),
        Tool::Hey => hey::text(content, &at),
        Tool::HeyCsv => hey::csv(content, &at),
        Tool::K6 => k6::lines(content, &at),
        Tool::K6Summary => k6::summary(content, &at),
        Tool::Locust => locust::totals(content, &at),
        Tool::LocustHistory => locust::history(content, &at),
        Tool::Nighthawk => nighthawk::json(content, &at),
        Tool::Wrk => wrk::text(content, &at),
        Tool::H2load => h2load::text(content, &at),
        Tool::H2loadLog => h2load::log(content, &at),
        Tool::Oha => oha::json(content, &at),
        Tool::Jtl => jmeter::csv(content, &at),
        Tool::JtlXml => jmeter::xml(content, &at),
        Tool::Vegeta => vegeta::lines(content, &at),
        Tool::VegetaCsv => vegeta::csv(content, &at),
        Tool::VegetaReport => vegeta::report(content, &at),
    }?;
    record(read, options)
}

fn record(read: ParsedFile, options: &ImportOptions) -> Result<Record, ImportError> {
    let (tool, concurrency) = (read.tool, read.load.concurrency.or(options.concurrency));
    let mut notes = read.notes;
    if read.load.concurrency.is_none() && options.concurrency.is_some() {
        notes.push("the number of workers is not in the file; it was given at import".to_owned());
    }
    let iteration = iteration_of(read.content, read.seconds, tool, &options.file)?;
    let run = Run {
        title: format!("{tool}: {}", options.variant),
        scenario: None,
        origin: Origin::Import { tool: tool.to_owned(), file: options.file.clone(), notes },
        started_unix_s: read.started_unix_s,
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
            arrivals: read.load.arrivals,
            concurrency,
            rate_per_s: read.load.rate_per_s,
            stages: Vec::new(),
            flow: LoadShape::REQUEST.to_owned(),
            protocol: None,
            tokens: None,
            timeout_s: None,
        },
        iterations: vec![iteration],
        missing: Vec::new(),
        counters: BTreeMap::new(),
        profile: None,
    });
    record.check().map_err(|contradiction| ImportError::Malformed {
        file: options.file.clone(),
        line: None,
        reason: contradiction.to_string(),
    })?;
    Ok(record)
}

/// Converts the content of a file; fails without a request.
fn iteration_of(content: Content, seconds: f64, tool: &str, file: &str) -> Result<Iteration, ImportError> {
    let empty = || ImportError::Empty { file: file.to_owned() };
    let (requests, examples, rule, timed) = match content {
        Content::Requests(requests, examples, rule) => (requests, examples, rule, true),
        Content::Untimed(requests, examples, rule) => (requests, examples, rule, false),
        Content::Summary(classes, stated) => {
            return summary(classes, stated, Vec::new(), seconds).ok_or_else(empty);
        }
        Content::Course(classes, stated, timeline) => {
            return summary(classes, stated, timeline, seconds).ok_or_else(empty);
        }
    };
    if requests.is_empty() {
        return Err(empty());
    }
    if requests.len() > MAX_REQUESTS {
        return Err(ImportError::TooMany { file: file.to_owned() });
    }
    let mut iteration = from_requests(&requests, &examples, seconds, tool, rule);
    if !timed {
        iteration.timeline.clear();
    }
    Ok(iteration)
}

/// An iteration of a summary; `None` without a request.
fn summary(
    classes: Vec<Class>,
    stated: StatedFigures,
    timeline: Vec<Slice>,
    seconds: f64,
) -> Option<Iteration> {
    let some = classes.iter().any(|class| class.count > 0);
    some.then(|| Iteration { classes, timeline, stated: Some(stated), ..Iteration::new(1, seconds) })
}

fn from_requests(
    requests: &[Request],
    examples: &Examples,
    seconds: f64,
    tool: &str,
    rule: Rule,
) -> Iteration {
    let mut kinds: BTreeMap<Ending, Vec<u64>> = BTreeMap::new();
    for request in requests {
        kinds.entry((request.outcome, request.status, request.why)).or_default().push(request.nanos);
    }
    let counts = |request: &&Request| !rule.successes_only || request.outcome == Outcome::Ok;
    let mut sorted: Vec<u64> = requests.iter().filter(counts).map(|request| request.nanos).collect();
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
            example: examples.of(&ending).or(accepted),
        }
    });
    let us = |nanos: u64| nanos as f64 / 1e3;
    let all: f64 = requests.iter().map(|request| request.nanos as f64).sum();
    let how = if rule.estimates { "close to what it estimates" } else { "by its own rule" };
    let percentile = |share| StatedPercentile { share, us: (rule.percentile)(&sorted, share) / 1e3 };
    let stated = StatedFigures {
        tool: tool.to_owned(),
        rule: format!("computed here from every request of {tool}'s file, {how}: {}", rule.text),
        // Tools whose percentiles are of successes only still average over all requests.
        mean_us: Some(all / requests.len() as f64 / 1e3),
        min_us: sorted.first().copied().map(us),
        max_us: sorted.last().copied().map(us),
        per_s: Some(requests.len() as f64 / seconds),
        percentiles: if sorted.is_empty() { Vec::new() } else { SHARES.map(percentile).to_vec() },
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
