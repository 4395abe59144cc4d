//! `JMeter`: result files (JTL) in CSV and XML.

use quick_xml::events::{BytesStart, Event};

use super::{At, Content, ImportError, Read, Request, line_of, outcome_of};
use crate::record::Outcome;

const RULE: &str = "linear between the sorted values around share × (count + 1), as the dashboard prints";

/// The percentile of `JMeter`'s dashboard.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let count = sorted.len();
    let place = share * (count + 1) as f64;
    match (sorted.first(), sorted.last()) {
        (Some(&first), _) if place < 1.0 => first as f64,
        (_, Some(&last)) if place >= count as f64 => last as f64,
        (Some(_), Some(_)) => {
            let low = crate::units::place(place);
            let (from, to) = (sorted[low - 1] as f64, sorted[low] as f64);
            from + (to - from) * place.fract()
        }
        _ => 0.0,
    }
}

/// How `JMeter` words the row of a Transaction Controller, before the number of samples that it holds together.
const CONTROLLER: &str = "Number of samples in transaction";

/// How many samples a Transaction Controller's row holds together; `None` for a row of a sample.
fn held_together(message: &str) -> Option<usize> {
    let number = message.strip_prefix(CONTROLLER)?.trim_start().strip_prefix(':')?;
    number.split(',').next()?.trim().parse().ok()
}

/// A sample's fields as text, in either form.
struct Fields<'a> {
    start: &'a str,
    elapsed: &'a str,
    success: &'a str,
    code: &'a str,
}

impl Fields<'_> {
    /// The request, its times in ms since 1970 as seconds.
    fn request(&self) -> Result<Request, String> {
        let number = |text: &str, name: &str| {
            text.parse::<u64>().map_err(|_| format!("`{text}` is no number of milliseconds ({name})"))
        };
        let (start, elapsed) = (number(self.start, "start")?, number(self.elapsed, "elapsed")?);
        let success = match self.success {
            "true" => true,
            "false" => false,
            other => return Err(format!("`{other}` is neither true nor false (success)")),
        };
        // A sample that was not answered has words in place of a status.
        let status = self.code.parse::<u16>().ok().filter(|status| (100..600).contains(status));
        let outcome = match (success, status) {
            (true, _) => Outcome::Ok,
            (false, Some(status)) if outcome_of(status) == Outcome::Refused => Outcome::Refused,
            (false, _) => Outcome::Failed,
        };
        // What an assertion refused although the status is good has failed; what a script accepted although it is not is good.
        let told = match (outcome, status) {
            (Outcome::Ok, Some(400..)) | (Outcome::Failed, _) => None,
            _ => status,
        };
        let nanos = elapsed.saturating_mul(1_000_000);
        Ok(Request { ended_s: start.saturating_add(elapsed) as f64 / 1e3, nanos, outcome, status: told })
    }
}

/// A JTL in CSV.
pub(super) fn csv(content: &str, at: &At<'_>) -> Result<Read, ImportError> {
    let mut reader = ::csv::Reader::from_reader(content.as_bytes());
    let head = reader.headers().map_err(|error| at.whole(error.to_string()))?.clone();
    let column = |name: &str| {
        head.iter().position(|field| field == name).ok_or_else(|| {
            at.line(1, format!("there is no column `{name}`: let jmeter.save.saveservice.print_field_names and {name} be true"))
        })
    };
    let (start, elapsed) = (column("timeStamp")?, column("elapsed")?);
    let (success, code) = (column("success")?, column("responseCode")?);
    let threads = head.iter().position(|field| field == "allThreads");
    let message = head.iter().position(|field| field == "responseMessage");
    let (mut requests, mut most, mut controllers) = (Vec::new(), None, Vec::new());
    for row in reader.records() {
        let row = row.map_err(|error| at.whole(error.to_string()))?;
        let line = line_of(&row);
        let get = |column: usize| row.get(column).unwrap_or_default();
        let fields =
            Fields { start: get(start), elapsed: get(elapsed), success: get(success), code: get(code) };
        let request = fields.request().map_err(|what| at.line(line, what))?;
        match message.and_then(|column| held_together(get(column))) {
            Some(samples) => controllers.push((request, samples)),
            None => requests.push(request),
        }
        most = most.max(threads.and_then(|column| get(column).parse::<u32>().ok()));
    }
    Ok(read(requests, most, controllers))
}

/// A JTL in XML. Samples within a sample (redirects, embedded resources) are part of it and not counted again.
pub(super) fn xml(content: &str, at: &At<'_>) -> Result<Read, ImportError> {
    let mut reader = quick_xml::Reader::from_str(content);
    let (mut requests, mut most, mut depth, mut controllers) = (Vec::new(), None, 0_usize, Vec::new());
    loop {
        let event = reader.read_event().map_err(|error| at.whole(error.to_string()))?;
        let until = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX).min(content.len());
        match &event {
            Event::Eof if depth == 0 => break,
            Event::Eof => return Err(at.whole("it is cut off")),
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Start(tag) | Event::Empty(tag) => {
                if depth == 1 && is_sample(tag) {
                    let found = sample(tag).map_err(|what| at.line(line_at(content, until), what))?;
                    // One that has its samples within it is the only place where they are counted.
                    match found.samples.filter(|_| matches!(event, Event::Empty(_))) {
                        Some(samples) => controllers.push((found.request, samples)),
                        None => requests.push(found.request),
                    }
                    most = most.max(found.threads);
                }
                depth += usize::from(matches!(event, Event::Start(_)));
            }
            _ => {}
        }
    }
    Ok(read(requests, most, controllers))
}

/// The line of a place in a text, from 1.
fn line_at(content: &str, until: usize) -> usize {
    content.get(..until).unwrap_or(content).lines().count().max(1)
}

fn is_sample(tag: &BytesStart<'_>) -> bool {
    matches!(AsRef::<str>::as_ref(&tag.name()), "httpSample" | "sample")
}

/// A sample in XML.
struct Sample {
    request: Request,
    /// Workers that there were.
    threads: Option<u32>,
    /// Of a controller, how many it holds together.
    samples: Option<usize>,
}

fn sample(tag: &BytesStart<'_>) -> Result<Sample, String> {
    let mut found = [const { String::new() }; 6];
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let place = match AsRef::<str>::as_ref(&attribute.key) {
            "ts" => 0,
            "t" => 1,
            "s" => 2,
            "rc" => 3,
            "na" => 4,
            "rm" => 5,
            _ => continue,
        };
        attribute.value.as_ref().clone_into(&mut found[place]);
    }
    let [start, elapsed, success, code, threads, message] = &found;
    let fields = Fields { start, elapsed, success, code };
    Ok(Sample { request: fields.request()?, threads: threads.parse().ok(), samples: held_together(message) })
}

fn read(mut requests: Vec<Request>, threads: Option<u32>, controllers: Vec<(Request, usize)>) -> Read {
    let mut notes = vec!["JMeter keeps whole milliseconds".to_owned()];
    // Where "generate parent sample" is set, what a controller holds together has no rows, and the controller's is the one that there is.
    let held: usize = controllers.iter().map(|(_, samples)| samples).sum();
    if held > requests.len() {
        requests.extend(controllers.into_iter().map(|(request, _)| request));
        notes
            .push("a Transaction Controller's row stands for all of its samples, which have none".to_owned());
    } else if !controllers.is_empty() {
        notes.push(format!(
            "{} rows are of Transaction Controllers, whose samples have rows of their own: they are not counted",
            controllers.len()
        ));
    }
    let begin =
        requests.iter().map(|request| request.ended_s - request.nanos as f64 / 1e9).fold(f64::MAX, f64::min);
    for request in &mut requests {
        request.ended_s -= begin;
    }
    let seconds = requests.iter().map(|request| request.ended_s).fold(0.0, f64::max).max(1e-3);
    Read {
        tool: "JMeter",
        rule: RULE,
        content: Content::Requests(requests, percentile),
        seconds,
        concurrency: threads,
        notes,
    }
}
