//! Import of `JMeter`: result files (JTL) in CSV and XML.

use std::collections::HashMap;

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use super::{
    Content, EndReason, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Request, Rule, clock,
    ending_of, from_first_start, line_of,
};
use crate::record::Outcome;

const RULE: &str = "linear between the sorted values around share × (count + 1), as the dashboard prints";

/// Percentile of sorted values by the rule of `JMeter`'s dashboard.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let count = sorted.len();
    let place = share * (count + 1) as f64;
    match (sorted.first(), sorted.last()) {
        (Some(&first), _) if place < 1.0 => first as f64,
        (_, Some(&last)) if place >= count as f64 => last as f64,
        (Some(_), Some(_)) => {
            let low = crate::units::index(place);
            let (from, to) = (sorted[low - 1] as f64, sorted[low] as f64);
            from + (to - from) * place.fract()
        }
        _ => 0.0,
    }
}

/// Start of the message in the row of a Transaction Controller; the number of its samples follows.
const CONTROLLER: &str = "Number of samples in transaction";

/// Number of samples that the row of a Transaction Controller covers; `None` for the row of a
/// sample.
fn controller_samples(message: &str) -> Option<usize> {
    let number = message.strip_prefix(CONTROLLER)?.trim_start().strip_prefix(':')?;
    number.split(',').next()?.trim().parse().ok()
}

/// Column separator of a CSV file, from its first line; `None` for other files.
pub(super) fn delimiter(names: &str) -> Option<u8> {
    let rest = names.strip_prefix("timeStamp")?;
    let delimiter = rest.bytes().next().filter(|byte| !byte.is_ascii_alphanumeric())?;
    rest.split(char::from(delimiter)).any(|name| name == "elapsed").then_some(delimiter)
}

/// Fields of a sample as text, the same for CSV and XML.
struct Fields<'a> {
    start: &'a str,
    elapsed: &'a str,
    success: &'a str,
    code: &'a str,
    /// Message of the server beside the status, or the reason why there is no response.
    message: &'a str,
    /// Message of the assertion that failed.
    failure: &'a str,
}

/// A sample, converted to a request.
struct ParsedSample {
    request: Request,
    /// Why it did not end well; empty where it did, or where the file does not say.
    words: String,
    /// Whether its time is in whole seconds.
    coarse: bool,
}

impl Fields<'_> {
    /// Converts to a request, with its time in seconds since 1970.
    fn sampled(&self) -> Result<ParsedSample, String> {
        let start = clock::jmeter(self.start).ok_or_else(|| {
            let text = self.start;
            format!("`{text}` is neither a number of milliseconds nor a date as JMeter writes it (start)")
        })?;
        let elapsed = self.elapsed.parse::<u64>();
        let elapsed =
            elapsed.map_err(|_| format!("`{}` is not a number of milliseconds (elapsed)", self.elapsed))?;
        let success = match self.success {
            "true" => true,
            "false" => false,
            other => return Err(format!("`{other}` is neither true nor false (success)")),
        };
        // A sample without a response has text in place of a status.
        let status = self.code.parse::<u16>().ok().filter(|status| (100..600).contains(status));
        let (outcome, status, why) = ending_of(status, success);
        let unanswered = outcome == Outcome::Failed && why == EndReason::Plain;
        let why = if unanswered {
            EndReason::from_message(&format!("{} {}", self.code, self.message))
        } else {
            why
        };
        let words = match outcome {
            Outcome::Ok => String::new(),
            _ if !self.failure.is_empty() => self.failure.to_owned(),
            _ if unanswered => format!("{} {}", self.code, self.message),
            _ => self.message.to_owned(),
        };
        let nanos = elapsed.saturating_mul(1_000_000);
        let request = Request { ended_s: start.seconds + elapsed as f64 / 1e3, nanos, outcome, status, why };
        Ok(ParsedSample { request, words, coarse: start.coarse })
    }
}

/// Reads a JTL in CSV.
pub(super) fn csv(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let first = content.trim_start().lines().next().unwrap_or_default();
    let mut reader = ::csv::ReaderBuilder::new();
    let mut reader = reader.delimiter(delimiter(first).unwrap_or(b',')).from_reader(content.as_bytes());
    let head = reader.headers().map_err(|error| at.whole(error.to_string()))?.clone();
    let column = |name: &str| {
        head.iter().position(|field| field == name).ok_or_else(|| {
            at.line(1, format!("there is no column `{name}`: set jmeter.save.saveservice.print_field_names and {name} to true"))
        })
    };
    let (start, elapsed) = (column("timeStamp")?, column("elapsed")?);
    let (success, code) = (column("success")?, column("responseCode")?);
    let threads = head.iter().position(|field| field == "allThreads");
    let message = head.iter().position(|field| field == "responseMessage");
    let failure = head.iter().position(|field| field == "failureMessage");
    let thread = head.iter().position(|field| field == "threadName");
    let mut rows = ParsedRows::default();
    for row in reader.records() {
        let row = row.map_err(|error| at.whole(error.to_string()))?;
        let line = line_of(&row);
        let get = |column: usize| row.get(column).unwrap_or_default();
        let optional = |column: Option<usize>| column.map_or("", get);
        let fields = Fields {
            start: get(start),
            elapsed: get(elapsed),
            success: get(success),
            code: get(code),
            message: optional(message),
            failure: optional(failure),
        };
        let row = fields.sampled().map_err(|reason| at.line(line, reason))?;
        let samples = controller_samples(fields.message);
        rows.add(&row, samples, optional(threads).parse().ok(), optional(thread));
    }
    Ok(rows.read())
}

/// Reads a JTL in XML. Samples within a sample (redirects, embedded resources) are part of it and
/// not counted again.
pub(super) fn xml(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut reader = quick_xml::Reader::from_str(content);
    let (mut rows, mut depth) = (ParsedRows::default(), 0_usize);
    // The sample that is being read, and whether the parser is in the message of an assertion.
    let (mut open, mut failing): (Option<Sample>, bool) = (None, false);
    loop {
        let event = reader.read_event().map_err(|error| at.whole(error.to_string()))?;
        let until = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX).min(content.len());
        let close = |rows: &mut ParsedRows, sample: Sample, holds: bool| {
            let row = sample.fields().sampled().map_err(|reason| at.line(line_at(content, until), reason))?;
            // A controller that contains its samples as elements is the only place where they are
            // counted.
            let samples = controller_samples(&sample.message).filter(|_| !holds);
            rows.add(&row, samples, sample.threads.parse().ok(), &sample.thread);
            Ok(())
        };
        match &event {
            Event::Eof if depth == 0 => break,
            Event::Eof => return Err(at.whole("the file is truncated")),
            Event::End(_) => {
                depth = depth.saturating_sub(1);
                failing = false;
                if let Some(sample) = open.take_if(|_| depth == 1) {
                    let holds = sample.has_nested;
                    close(&mut rows, sample, holds)?;
                }
            }
            Event::Start(tag) | Event::Empty(tag) => {
                let empty = matches!(event, Event::Empty(_));
                if depth == 1 && is_sample(tag) {
                    let sample =
                        Sample::of(tag).map_err(|reason| at.line(line_at(content, until), reason))?;
                    if empty { close(&mut rows, sample, false)? } else { open = Some(sample) }
                } else if let Some(sample) = &mut open {
                    sample.has_nested |= depth == 2 && is_sample(tag);
                    failing = !empty && depth == 3 && AsRef::<str>::as_ref(&tag.name()) == "failureMessage";
                }
                depth += usize::from(!empty);
            }
            Event::Text(text) if failing => append_failure_message(&mut open, text.as_ref()),
            Event::CData(text) if failing => append_failure_message(&mut open, text.as_ref()),
            Event::GeneralRef(name) if failing => {
                let character = name.resolve_char_ref().ok().flatten().map(String::from);
                let named = || resolve_predefined_entity(name.as_ref()).map(str::to_owned);
                append_failure_message(&mut open, &character.or_else(named).unwrap_or_default());
            }
            _ => {}
        }
    }
    Ok(rows.read())
}

/// Appends to the message of a failed assertion.
fn append_failure_message(open: &mut Option<Sample>, words: &str) {
    if let Some(sample) = open {
        sample.failure.push_str(words);
    }
}

/// Line number of a position in a text, from 1.
fn line_at(content: &str, until: usize) -> usize {
    content.get(..until).unwrap_or(content).lines().count().max(1)
}

fn is_sample(tag: &BytesStart<'_>) -> bool {
    matches!(AsRef::<str>::as_ref(&tag.name()), "httpSample" | "sample")
}

/// A sample in XML, as text.
#[derive(Default)]
struct Sample {
    start: String,
    elapsed: String,
    success: String,
    code: String,
    /// Number of threads that were active.
    threads: String,
    /// Name of its own thread.
    thread: String,
    message: String,
    failure: String,
    /// Whether other samples are nested in it.
    has_nested: bool,
}

impl Sample {
    fn of(tag: &BytesStart<'_>) -> Result<Self, String> {
        let mut sample = Self::default();
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let place = match AsRef::<str>::as_ref(&attribute.key) {
                "ts" => &mut sample.start,
                "t" => &mut sample.elapsed,
                "s" => &mut sample.success,
                "rc" => &mut sample.code,
                "na" => &mut sample.threads,
                "tn" => &mut sample.thread,
                "rm" => &mut sample.message,
                _ => continue,
            };
            attribute.value.as_ref().clone_into(place);
        }
        Ok(sample)
    }

    fn fields(&self) -> Fields<'_> {
        Fields {
            start: &self.start,
            elapsed: &self.elapsed,
            success: &self.success,
            code: &self.code,
            message: &self.message,
            failure: self.failure.trim(),
        }
    }
}

/// Content of a file while it is read.
#[derive(Default)]
struct ParsedRows {
    requests: Vec<Request>,
    /// Number of the thread of each request.
    thread_of: Vec<usize>,
    /// Numbers of threads by their names.
    numbers: HashMap<String, usize>,
    examples: Examples,
    /// Largest number of active threads.
    threads: Option<u32>,
    controllers: Vec<Controller>,
    /// Whether times are in whole seconds.
    coarse: bool,
}

/// The row of a Transaction Controller.
struct Controller {
    request: Request,
    /// Number of samples that it covers, those of controllers within it included.
    samples: usize,
    thread: usize,
}

/// A moment of two rows is the same within this, seconds: rows have whole milliseconds.
const SAME_MOMENT_S: f64 = 1e-4;

/// Start and end of a request, seconds since 1970.
fn span(request: &Request) -> (f64, f64) {
    (request.ended_s - request.nanos as f64 / 1e9, request.ended_s)
}

impl ParsedRows {
    fn add(&mut self, sample: &ParsedSample, samples: Option<usize>, threads: Option<u32>, thread: &str) {
        self.threads = self.threads.max(threads);
        self.coarse |= sample.coarse;
        let next = self.numbers.len();
        let thread = match self.numbers.get(thread) {
            Some(number) => *number,
            None => *self.numbers.entry(thread.to_owned()).or_insert(next),
        };
        match samples {
            Some(samples) => {
                self.controllers.push(Controller { request: sample.request, samples, thread });
            }
            None => {
                self.examples.note(&sample.request, &sample.words);
                self.requests.push(sample.request);
                self.thread_of.push(thread);
            }
        }
    }

    /// Takes the rows of controllers whose samples have no rows of their own. A thread does one thing
    /// after the other, so its samples lie within the time of their controller. Without the names of
    /// threads only the numbers of all rows can tell.
    fn controllers_without_rows(&mut self) -> Vec<Request> {
        let has_names = !self.numbers.contains_key("");
        if !has_names {
            let held: usize = self.controllers.iter().map(|controller| controller.samples).sum();
            let none = held <= self.requests.len();
            return self.controllers.iter().filter(|_| !none).map(|controller| controller.request).collect();
        }
        let mut spans = vec![Vec::new(); self.numbers.len()];
        for (request, thread) in self.requests.iter().zip(&self.thread_of) {
            spans[*thread].push(span(request));
        }
        for spans in &mut spans {
            spans.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        let has_rows = |controller: &Controller| {
            let (from, until) = span(&controller.request);
            let spans = &spans[controller.thread];
            let at = spans.partition_point(|(_, end)| *end <= from + SAME_MOMENT_S);
            spans.get(at).is_some_and(|(start, _)| *start < until - SAME_MOMENT_S)
        };
        let without = self.controllers.iter().filter(|controller| !has_rows(controller));
        without.map(|controller| controller.request).collect()
    }

    fn read(mut self) -> ParsedFile {
        let represented = self.controllers_without_rows();
        let Self { mut requests, examples, threads, controllers, coarse, .. } = self;
        let mut notes = vec![
            "JMeter keeps whole milliseconds, and does not say whether threads waited between samples"
                .to_owned(),
        ];
        if coarse {
            let note = "the file has times in whole seconds: the length of the run, and so the rate, may be off by one second";
            notes.push(note.to_owned());
        }
        // With "generate parent sample" the samples of a controller have no rows of their own, and
        // the controller's row counts instead.
        let left_out = controllers.len() - represented.len();
        if !represented.is_empty() {
            let note = "a Transaction Controller's row represents all of its samples, which have no rows";
            notes.push(note.to_owned());
        }
        requests.extend(represented);
        if left_out > 0 {
            notes.push(format!(
                "{left_out} rows are of Transaction Controllers, whose samples have rows of their own: they are not counted"
            ));
        }
        let span = from_first_start(&mut requests);
        let rule = Rule::exact(RULE, percentile);
        let content = if coarse {
            Content::Untimed(requests, examples, rule)
        } else {
            Content::Requests(requests, examples, rule)
        };
        ParsedFile {
            tool: "JMeter",
            content,
            seconds: span.seconds.max(1e-3),
            started_unix_s: span.started_s,
            load: ParsedLoad::unknown(threads),
            notes,
        }
    }
}
