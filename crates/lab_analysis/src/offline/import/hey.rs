//! Import of hey: its text report, and its CSV with every request.

use std::collections::BTreeMap;

use super::{
    Content, EndReason, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Request, Rule,
    count_only, line_of, nanos_of, outcome_of,
};
use crate::formatting;
use crate::record::{Class, Outcome, StatedFigures, StatedPercentile};
use crate::units::truncated;

/// Maximum number of responses of which hey keeps statuses and times. Of a longer run, its CSV
/// lists and its text summarizes only the first ones.
const MAX_KEPT: usize = 1_000_000;
/// Share by which the number of responses has to exceed those that were kept: the printed rate is
/// rounded.
const MIN_EXCESS: f64 = 0.001;
const RULE: &str = "the first of the sorted values whose index × 100 ÷ count, whole, reaches the percentile";

/// Percentile of sorted values by hey's rule.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let wanted = crate::units::index((share * 100.0).round());
    let found = (0..sorted.len()).find(|index| index * 100 / sorted.len() >= wanted);
    found.or(sorted.len().checked_sub(1)).map_or(0.0, |index| sorted[index] as f64)
}

/// Reads the output of `hey -o csv`.
pub(super) fn csv(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut reader = ::csv::Reader::from_reader(content.as_bytes());
    let head = reader.headers().map_err(|error| at.whole(error.to_string()))?.clone();
    let column = |name: &str| {
        head.iter()
            .position(|field| field == name)
            .ok_or_else(|| at.line(1, format!("there is no column `{name}`")))
    };
    let (time, status, offset) = (column("response-time")?, column("status-code")?, column("offset")?);
    let mut requests = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| at.whole(error.to_string()))?;
        let line = line_of(&row);
        let number = |column: usize| {
            let text = row.get(column).unwrap_or_default();
            let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
            value.ok_or_else(|| at.line(line, format!("`{text}` is not a number of seconds")))
        };
        let text = row.get(status).unwrap_or_default();
        let status: u16 = text.parse().map_err(|_| at.line(line, format!("`{text}` is not a status")))?;
        let (seconds, offset) = (number(time)?, number(offset)?);
        requests.push(Request {
            ended_s: offset + seconds,
            nanos: nanos_of(seconds),
            outcome: outcome_of(status),
            status: Some(status).filter(|status| *status > 0),
            why: EndReason::Plain,
        });
    }
    let seconds = requests.iter().map(|request| request.ended_s).fold(0.0, f64::max).max(1e-4);
    let mut notes = vec!["hey's CSV leaves out requests without an answer".to_owned()];
    if requests.len() >= MAX_KEPT {
        notes.push(format!("hey keeps {MAX_KEPT} requests at most: what came after them is not in the file"));
    }
    Ok(ParsedFile {
        tool: "hey",
        content: Content::Requests(requests, Examples::default(), Rule::exact(RULE, percentile)),
        seconds,
        started_unix_s: None,
        load: ParsedLoad::closed(None),
        notes,
    })
}

/// Reads hey's text report.
pub(super) fn text(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut figures: BTreeMap<&str, f64> = BTreeMap::new();
    let mut percentiles = Vec::new();
    let mut classes = Vec::new();
    let mut section = "";
    for (number, line) in content.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
        if let Some(name) = line.strip_suffix(':').filter(|name| !name.is_empty() && !name.contains('\t')) {
            section = name;
            continue;
        }
        let bad = || at.line(number, format!("`{line}` is not as hey writes it"));
        match section {
            "Summary" => {
                if let Some((name, value)) = line.split_once(':') {
                    let value = value.split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
                    let value = value.ok_or_else(bad)?;
                    // Without a response hey divides by 0 and prints no finite number.
                    if value.is_finite() {
                        figures.insert(name, value);
                    }
                }
            }
            "Latency distribution" if !line.is_empty() => {
                percentiles.extend(percentile_line(line).ok_or_else(bad)?);
            }
            "Status code distribution" if !line.is_empty() => {
                classes.push(status_line(line).ok_or_else(bad)?);
            }
            "Error distribution" if !line.is_empty() => classes.push(error_line(line).ok_or_else(bad)?),
            _ => {}
        }
    }
    let mut seconds = *figures.get("Total").ok_or_else(|| at.whole("there is no line `Total:`"))?;
    let mut notes = vec![
        "hey's report has percentiles to a tenth of a millisecond, over good and refused answers alike; `hey -o csv` keeps every request, up to a million"
            .to_owned(),
    ];
    if let Some(part) = figures.get("Requests/sec").and_then(|per_s| kept_share(&classes, per_s * seconds)) {
        notes.push(format!(
            "hey keeps {MAX_KEPT} answers at most: statuses and percentiles are of the first {} of its time, and the record is of that part alone. \
             Its average divides the time of all answers by that number, and is left out",
            formatting::percent(part)
        ));
        figures.remove("Average");
        seconds *= part;
        for class in classes.iter_mut().filter(|class| class.outcome == Outcome::Failed) {
            class.count = truncated((class.count as f64 * part).round());
        }
        classes.retain(|class| class.count > 0);
    }
    let us = |name: &str| figures.get(name).map(|seconds| seconds * 1e6);
    let stated = StatedFigures {
        tool: "hey".to_owned(),
        rule: RULE.to_owned(),
        mean_us: us("Average"),
        min_us: us("Fastest"),
        max_us: us("Slowest"),
        per_s: figures.get("Requests/sec").copied(),
        percentiles,
        sent_percentiles: Vec::new(),
    };
    Ok(ParsedFile {
        tool: "hey",
        content: Content::Summary(classes, stated),
        seconds,
        started_unix_s: None,
        load: ParsedLoad::closed(None),
        notes,
    })
}

/// Share of its responses that hey kept, when it did not keep all; `None` otherwise. hey's rate
/// counts all requests, including errors, which it keeps separately.
fn kept_share(classes: &[Class], requests: f64) -> Option<f64> {
    let count = |failed: bool| {
        let some = classes.iter().filter(|class| (class.outcome == Outcome::Failed) == failed);
        some.map(|class| class.count).sum::<u64>() as f64
    };
    let (kept, answered) = (count(false), requests - count(true));
    (kept >= MAX_KEPT as f64 && answered > kept * (1.0 + MIN_EXCESS)).then(|| kept / answered)
}

/// Parses `95% in 0.0052 secs`. hey prints 0 for a percentile that too few requests reach; it is
/// left out.
fn percentile_line(line: &str) -> Option<Vec<StatedPercentile>> {
    let (share, rest) = line.split_once('%')?;
    let (share, seconds): (f64, f64) = (
        share.parse().ok()?,
        rest.trim_start_matches('%').trim().strip_prefix("in ")?.split(' ').next()?.parse().ok()?,
    );
    let shown = (share > 0.0).then_some(StatedPercentile { share: share / 100.0, us: seconds * 1e6 });
    Some(shown.into_iter().collect())
}

/// Parses `[200]`, a tab, `109 responses`.
fn status_line(line: &str) -> Option<Class> {
    let (status, rest) = line.strip_prefix('[')?.split_once(']')?;
    let status: u16 = status.parse().ok()?;
    let count = rest.split_whitespace().next()?.parse().ok()?;
    Some(count_only(outcome_of(status), Some(status), count))
}

/// Parses `[20]`, a tab, the text of the error.
fn error_line(line: &str) -> Option<Class> {
    let (count, words) = line.strip_prefix('[')?.split_once(']')?;
    let class = count_only(Outcome::Failed, None, count.parse().ok()?);
    Some(Class { fault: Some("error".to_owned()), example: Some(words.trim().to_owned()), ..class })
}
