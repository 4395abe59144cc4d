//! Import of ab (`ApacheBench`): its text report, and its file for gnuplot with every request.

use super::{
    Content, EndReason, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Request, Rule, Span,
    count_only, from_first_start,
};
use crate::record::{Class, Outcome, StatedFigures, StatedPercentile};

const RULE: &str = "the sorted value at the whole part of count × share, in whole milliseconds";
/// Largest rounding error of the printed time, which has three decimals, seconds.
const TIME_ROUNDING: f64 = 0.001;
/// Shortest time that a file for gnuplot has to cover, seconds: it has whole seconds, so that its
/// time is wrong by up to one.
const MIN_SECONDS: f64 = 10.0;

/// Percentile of sorted values by ab's rule.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    // 0.95 × 200 is a little less than 190 in floating point; ab computes with whole numbers.
    let place = crate::units::index(sorted.len() as f64 * share + 1e-9).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(0.0, |nanos| *nanos as f64)
}

/// Reads `ab -g`: the start of each request in whole seconds, and its times in milliseconds.
pub(super) fn tsv(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut rows = Vec::new();
    for (number, line) in content.lines().enumerate().map(|(number, line)| (number + 1, line)).skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let row = match fields.as_slice() {
            [_, start, _, _, total, _] => start.parse::<u64>().ok().zip(total.parse::<u64>().ok()),
            _ => None,
        };
        let wanted = "`starttime seconds ctime dtime ttime wait`, separated by tabs";
        rows.push(row.ok_or_else(|| at.line(number, format!("`{line}` is not {wanted}")))?);
    }
    let request = |(start, ms): (u64, u64)| Request {
        ended_s: start as f64 + ms as f64 / 1e3,
        nanos: ms.saturating_mul(1_000_000),
        outcome: Outcome::Ok,
        status: None,
        why: EndReason::Plain,
    };
    let mut requests: Vec<Request> = rows.into_iter().map(request).collect();
    let Span { started_s, seconds } = from_first_start(&mut requests);
    if seconds < MIN_SECONDS && !requests.is_empty() {
        return Err(at.whole(format!(
            "covers {seconds:.0} s, and has starts in whole seconds: its rate would be wrong; import ab's text report, or measure for {MIN_SECONDS} s and more"
        )));
    }
    let notes = vec![
        "ab's file for gnuplot names no statuses: refused answers count as good ones".to_owned(),
        "it has starts in whole seconds and times in whole milliseconds: the length of the run, and so the rate, may be off by one second"
            .to_owned(),
    ];
    Ok(ParsedFile {
        tool: "ab",
        content: Content::Untimed(requests, Examples::default(), Rule::exact(RULE, percentile)),
        seconds,
        started_unix_s: started_s,
        load: ParsedLoad::closed(None),
        notes,
    })
}

/// Reads ab's text report.
pub(super) fn text(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut report = ParsedReport::default();
    for (number, line) in content.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
        report.line(line).ok_or_else(|| at.line(number, format!("`{line}` is not as ab writes it")))?;
    }
    let missing = |name: &str| {
        at.whole(format!("there is no line `{name}`: the file is cut off, or ab gave up before its end"))
    };
    let shown = report.seconds.ok_or_else(|| missing("Time taken for tests:"))?;
    let complete = report.complete.ok_or_else(|| missing("Complete requests:"))?;
    // The rate has more digits than the time of a short run.
    let exact = report.per_s.map(|per_s| complete as f64 / per_s);
    let seconds = exact.filter(|exact| (exact - shown).abs() < TIME_ROUNDING).unwrap_or(shown).max(1e-6);
    let refused = report.non_2xx.min(complete);
    // ab counts a request as complete although it could not be sent or its response not be read.
    let broken = report.receive.saturating_add(report.write).min(complete - refused);
    let failed = |fault: &str, count| Class {
        fault: Some(fault.to_owned()),
        ..count_only(Outcome::Failed, None, count)
    };
    let mut classes = vec![
        count_only(Outcome::Ok, None, complete - refused - broken),
        count_only(Outcome::Refused, None, refused),
        failed("closed", broken),
        failed("connect", report.connect),
        failed("exception", report.exceptions),
    ];
    classes.retain(|class| class.count > 0);
    let [min_us, mean_us, max_us] = report.times_us;
    let mut notes = vec![
        "ab prints whole milliseconds, and counts percentiles over good and refused answers alike; `ab -g` keeps every request, without its status"
            .to_owned(),
    ];
    if report.percentiles.is_empty() {
        notes.push("the file has no percentiles: ab ran with -d, or the file is cut off".to_owned());
    }
    if refused > 0 {
        notes.push("ab counts redirects among refused answers: all that are not 2xx".to_owned());
    }
    if report.length > 0 {
        notes.push(format!(
            "{} answers had another length than the first; ab counts them as failed, but here their status counts",
            report.length
        ));
    }
    let stated = StatedFigures {
        tool: "ab".to_owned(),
        rule: RULE.to_owned(),
        mean_us,
        min_us,
        max_us,
        per_s: report.per_s,
        percentiles: report.percentiles,
        sent_percentiles: Vec::new(),
    };
    Ok(ParsedFile {
        tool: "ab",
        content: Content::Summary(classes, stated),
        seconds,
        started_unix_s: None,
        load: ParsedLoad::closed(report.concurrency),
        notes,
    })
}

#[derive(Default)]
struct ParsedReport {
    concurrency: Option<u32>,
    seconds: Option<f64>,
    complete: Option<u64>,
    non_2xx: u64,
    connect: u64,
    receive: u64,
    write: u64,
    exceptions: u64,
    /// Responses of another length than the first one.
    length: u64,
    per_s: Option<f64>,
    /// Shortest, mean and longest time.
    times_us: [Option<f64>; 3],
    percentiles: Vec<StatedPercentile>,
}

impl ParsedReport {
    /// Reads a line; `None` when it begins like one of ab's but continues in another way.
    fn line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Concurrency", "Level:", count] => self.concurrency = Some(count.parse().ok()?),
            ["Time", "taken", "for", "tests:", seconds, ..] => self.seconds = Some(number(seconds)?),
            ["Complete", "requests:", count] => self.complete = Some(count.parse().ok()?),
            ["Non-2xx", "responses:", count] => self.non_2xx = count.parse().ok()?,
            ["Write", "errors:", count] => self.write = count.parse().ok()?,
            // Without a request ab prints no rate, or 0.
            ["Requests", "per", "second:", rate, ..] => {
                self.per_s = Some(number(rate)?).filter(|rate| *rate > 0.0);
            }
            ["(Connect:", connect, "Receive:", receive, "Length:", length, "Exceptions:", exceptions] => {
                let count = |text: &str| text.trim_end_matches([',', ')']).parse::<u64>().ok();
                (self.connect, self.receive) = (count(connect)?, count(receive)?);
                (self.length, self.exceptions) = (count(length)?, count(exceptions)?);
            }
            ["Total:", least, mean, .., most] => {
                let us = |text: &str| number(text).map(|ms| ms * 1e3);
                self.times_us = [Some(us(least)?), Some(us(mean)?), Some(us(most)?)];
            }
            [share, ms, ..] if share.ends_with('%') => {
                let share: f64 = share.trim_end_matches('%').parse().ok()?;
                self.percentiles.push(StatedPercentile { share: share / 100.0, us: number(ms)? * 1e3 });
            }
            _ => {}
        }
        Some(())
    }
}

/// A finite number from 0.
fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_whole_places() {
        let values: Vec<u64> = (0..200).collect();
        for (share, value) in [(0.5, 100.0), (0.95, 190.0), (0.99, 198.0), (1.0, 199.0)] {
            assert!((percentile(&values, share) - value).abs() < 1e-9, "{share}");
        }
        assert!(percentile(&[], 0.5).abs() < 1e-9);
    }
}
