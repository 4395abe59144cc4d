//! Import of h2load: its text report, and its log with every request.

use super::{
    Content, EndReason, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Request, Rule,
    count_only, outcome_of,
};
use crate::record::{Class, Outcome, StatedFigures};

const RULE: &str = "h2load prints no percentiles";
/// Largest deviation, as a share, of the printed time from the time that follows from the rate: the
/// printed one has two decimals.
const MAX_TIME_DEVIATION: f64 = 0.02;
const LOG_RULE: &str = "the sorted value at the whole part of count × share";

/// Percentile of sorted values by h2load's rule.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let place = crate::units::index(sorted.len() as f64 * share).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(0.0, |nanos| *nanos as f64)
}

/// Reads `h2load --log-file`: start in µs since 1970, status, µs to the end of the response. Newer
/// versions write more columns.
pub(super) fn log(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut rows = Vec::new();
    for (number, line) in content.lines().enumerate().map(|(number, line)| (number + 1, line)) {
        let mut fields = line.split_whitespace();
        let mut next = || fields.next()?.parse::<i64>().ok();
        let row = next().zip(next()).zip(next());
        let Some(((start, status), micros)) = row.filter(|((start, _), micros)| *start >= 0 && *micros >= 0)
        else {
            return Err(at.line(number, format!("`{line}` is not `start status microseconds`")));
        };
        rows.push((start, status, micros));
    }
    let started = rows.iter().map(|(start, ..)| *start).min();
    let first = started.unwrap_or(0);
    let request = |(start, status, micros): (i64, i64, i64)| {
        // h2load writes -1 for a request without a response.
        let status = u16::try_from(status).unwrap_or(0);
        Request {
            ended_s: ((start - first) as f64 + micros as f64) / 1e6,
            nanos: u64::try_from(micros).unwrap_or(0).saturating_mul(1000),
            outcome: outcome_of(status),
            status: Some(status).filter(|status| *status > 0),
            why: EndReason::Plain,
        }
    };
    let requests: Vec<Request> = rows.into_iter().map(request).collect();
    let seconds = requests.iter().map(|request| request.ended_s).fold(0.0, f64::max).max(1e-6);
    Ok(ParsedFile {
        tool: "h2load",
        content: Content::Requests(requests, Examples::default(), Rule::exact(LOG_RULE, percentile)),
        seconds,
        started_unix_s: started.map(|micros| micros as f64 / 1e6),
        load: ParsedLoad::closed(None),
        notes: Vec::new(),
    })
}

/// Reads h2load's text report.
pub(super) fn text(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut report = ParsedReport::default();
    for (number, line) in content.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
        report.line(line).ok_or_else(|| at.line(number, format!("`{line}` is not as h2load writes it")))?;
    }
    let (shown, per_s) = report.finished.ok_or_else(|| at.whole("there is no line `finished in …`"))?;
    let mut classes = report.classes;
    // The rate counts requests with a response. It has more digits than the time printed beside it.
    let answered = classes.iter().map(|class| class.count).sum::<u64>() as f64;
    let exact = Some(answered / per_s).filter(|exact| (exact / shown - 1.0).abs() < MAX_TIME_DEVIATION);
    let seconds = exact.unwrap_or(shown).max(1e-6);
    let others = report.errored.saturating_sub(report.timeout);
    for (fault, count) in [("timeout", report.timeout), ("errored", others)] {
        classes.push(Class { fault: Some(fault.to_owned()), ..count_only(Outcome::Failed, None, count) });
    }
    classes.retain(|class: &Class| class.count > 0);
    let [min_us, max_us, mean_us] = report.times;
    let stated = StatedFigures {
        tool: "h2load".to_owned(),
        rule: RULE.to_owned(),
        mean_us,
        min_us,
        max_us,
        per_s: Some(per_s),
        percentiles: Vec::new(),
        sent_percentiles: Vec::new(),
    };
    Ok(ParsedFile {
        tool: "h2load",
        content: Content::Summary(classes, stated),
        seconds,
        started_unix_s: None,
        load: ParsedLoad::closed(report.clients),
        notes: vec!["h2load's report has no percentiles; with --log-file it keeps every request".to_owned()],
    })
}

#[derive(Default)]
struct ParsedReport {
    clients: Option<u32>,
    /// Duration in seconds, and requests per second.
    finished: Option<(f64, f64)>,
    errored: u64,
    timeout: u64,
    classes: Vec<Class>,
    /// Shortest, longest and mean time, µs.
    times: [Option<f64>; 3],
}

impl ParsedReport {
    /// Reads a line; `None` when it begins like one of h2load's but continues in another way.
    fn line(&mut self, line: &str) -> Option<()> {
        if let Some(rest) = line.strip_prefix("finished in ") {
            let (time, rest) = rest.split_once(',')?;
            let rate = rest.trim().strip_suffix("req/s").or_else(|| rest.trim().split(" req/s").next())?;
            self.finished = Some((time_us(time)? / 1e6, rate.trim().parse().ok()?));
        } else if let Some(rest) = line.strip_prefix("status codes: ") {
            for part in rest.split(", ") {
                let (count, status) = part.split_once(' ')?;
                let outcome = if matches!(status, "4xx" | "5xx") { Outcome::Refused } else { Outcome::Ok };
                let class = count_only(outcome, None, count.parse().ok()?);
                // It is not known how many of the 5xx are 503.
                self.classes.push(Class { fault: (status == "4xx").then(|| status.to_owned()), ..class });
            }
        } else if let Some(rest) = line.strip_prefix("requests: ") {
            for part in rest.split(", ") {
                let (count, kind) = part.split_once(' ')?;
                // `failed` also includes refusals, so it is not read; `errored` includes `timeout`.
                match kind {
                    "errored" => self.errored = count.parse().ok()?,
                    "timeout" => self.timeout = count.parse().ok()?,
                    _ => {}
                }
            }
        } else if let Some(rest) = line.strip_prefix("time for request:") {
            let times: Vec<f64> = rest.split_whitespace().filter_map(time_us).collect();
            if let [least, most, mean, ..] = times.as_slice() {
                self.times = [Some(*least), Some(*most), Some(*mean)];
            }
        } else if let Some((count, _)) = line.split_once(" total client") {
            // `spawning thread #0: 50 total client(s). …`, one line per thread.
            let of_thread: u32 = count.rsplit(' ').next()?.parse().ok()?;
            self.clients = Some(self.clients.unwrap_or(0).saturating_add(of_thread));
        }
        Some(())
    }
}

/// Parses `1.20ms`, `980us` or `2.01s` into µs.
fn time_us(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic())?);
    let unit = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * unit)
}
