//! Import of k6: JSON lines with every request, and the exported summary.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Content, EndReason, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Request, Rule, clock,
    count_only, ending_of, from_first_start,
};
use crate::record::{Outcome, StatedFigures, StatedPercentile};
use crate::units::truncated;

const RULE: &str = "linear between the sorted values around (count − 1) × share";

/// Converts a number of virtual users to workers.
fn workers(users: f64) -> u32 {
    u32::try_from(truncated(users)).unwrap_or(u32::MAX)
}

/// Percentile of sorted values by k6's rule.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let place = share * (sorted.len().saturating_sub(1)) as f64;
    let (low, part) = (crate::units::index(place), place.fract());
    let Some(&from) = sorted.get(low) else { return 0.0 };
    let to = sorted.get(low + 1).copied().unwrap_or(from);
    from as f64 + (to as f64 - from as f64) * part
}

/// A line of `--out json`. k6 writes more keys than are read here, and each version adds some.
#[derive(Deserialize)]
struct Line {
    metric: Option<String>,
    r#type: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    time: Option<String>,
    value: Option<f64>,
    /// `null` for a metric without tags, such as the number of users.
    tags: Option<Tags>,
}

#[derive(Deserialize)]
struct Tags {
    status: Option<String>,
    expected_response: Option<String>,
    error: Option<String>,
}

/// Reads the output of `k6 run --out json`.
pub(super) fn lines(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut requests = Vec::new();
    let (mut users, mut failed_checks): (Option<f64>, u64) = (None, 0);
    let mut examples = Examples::default();
    for (number, text) in content.lines().enumerate().map(|(number, line)| (number + 1, line)) {
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(text).map_err(|error| at.json(Some(number), &error))?;
        if line.r#type != "Point" {
            continue;
        }
        match line.metric.as_deref() {
            Some("http_req_duration") => {
                let (request, words) = request(&line.data).map_err(|reason| at.line(number, reason))?;
                examples.note(&request, words);
                requests.push(request);
            }
            Some("checks") => failed_checks += u64::from(line.data.value == Some(0.0)),
            Some("vus") => users = [users, line.data.value].into_iter().flatten().reduce(f64::max),
            _ => {}
        }
    }
    let span = from_first_start(&mut requests);
    let mut notes =
        vec!["k6 does not say whether requests arrived at a rate or from users that wait".to_owned()];
    notes.extend(failed_checks_note(failed_checks));
    Ok(ParsedFile {
        tool: "k6",
        content: Content::Requests(requests, examples, Rule::exact(RULE, percentile)),
        seconds: span.seconds.max(1e-6),
        started_unix_s: span.started_s,
        // Its output does not name its arrival-rate executors.
        load: ParsedLoad::unknown(users.map(workers)),
        notes,
    })
}

/// Note about checks that failed; `None` when none did.
fn failed_checks_note(failed: u64) -> Option<String> {
    (failed > 0).then(|| format!("{failed} checks of the script failed; k6 does not say of which requests, and counts these as good ones"))
}

/// Converts a line to a request and the text about its failure.
fn request(data: &Data) -> Result<(Request, &str), String> {
    let (Some(time), Some(ms)) = (&data.time, data.value) else {
        return Err("a request has no time or no value".to_owned());
    };
    if !(ms.is_finite() && ms >= 0.0) {
        return Err(format!("{ms} is not a duration"));
    }
    let ended_s =
        clock::rfc3339(time).ok_or_else(|| format!("`{time}` is not a time as RFC 3339 writes it"))?;
    let tag = |of: fn(&Tags) -> Option<&String>| data.tags.as_ref().and_then(of).map(String::as_str);
    let status: u16 = match tag(|tags| tags.status.as_ref()) {
        None | Some("") => 0,
        Some(text) => text.parse().map_err(|_| format!("`{text}` is not a status"))?,
    };
    // k6 reports whether the script expected the status. Without that, a status below 400 is
    // expected.
    let expected = tag(|tags| tags.expected_response.as_ref());
    let status = Some(status).filter(|status| *status > 0);
    let expected = expected.map_or(status.is_some_and(|status| status < 400), |expected| expected == "true");
    let words = tag(|tags| tags.error.as_ref()).unwrap_or_default();
    // A request without a status had no response, whatever was expected.
    let (outcome, status, why) = ending_of(status, expected && status.is_some());
    let why = if outcome == Outcome::Failed && why == EndReason::Plain {
        EndReason::from_message(words)
    } else {
        why
    };
    let request = Request { ended_s, nanos: super::nanos_of(ms / 1e3), outcome, status, why };
    Ok((request, words))
}

/// Reads the output of `k6 run --summary-export`, or the data that `handleSummary` receives.
pub(super) fn summary(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let exported: Value = serde_json::from_str(content).map_err(|error| at.json(None, &error))?;
    // `handleSummary` has the figures one level deeper.
    let metric = |name: &str| {
        let metric = &exported["metrics"][name];
        if metric["values"].is_object() { metric["values"].clone() } else { metric.clone() }
    };
    let (duration, requests, failed) =
        (metric("http_req_duration"), metric("http_reqs"), metric("http_req_failed"));
    let need =
        |value: &Value, name: &str| value.as_f64().ok_or_else(|| at.whole(format!("there is no `{name}`")));
    let count = need(&requests["count"], "http_reqs.count")?;
    let rate = need(&requests["rate"], "http_reqs.rate")?;
    if rate <= 0.0 {
        return Err(ImportError::Empty { file: at.0.to_owned() });
    }
    // `passes` counts failed requests: the metric is called `failed`, and a true value passes.
    let bad = failed["passes"].as_f64().unwrap_or(0.0).min(count);
    let mut percentiles: Vec<StatedPercentile> = duration
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(StatedPercentile { share: share(name)?, us: value.as_f64()? * 1e3 }))
        .collect();
    percentiles.sort_by(|a, b| a.share.total_cmp(&b.share));
    let us = |name: &str| duration[name].as_f64().map(|ms| ms * 1e3);
    let stated = StatedFigures {
        tool: "k6".to_owned(),
        rule: RULE.to_owned(),
        mean_us: us("avg"),
        min_us: us("min"),
        max_us: us("max"),
        per_s: Some(rate),
        percentiles,
        sent_percentiles: Vec::new(),
    };
    let mut classes = vec![
        count_only(Outcome::Ok, None, truncated(count - bad)),
        count_only(Outcome::Refused, None, truncated(bad)),
    ];
    classes.retain(|class| class.count > 0);
    let mut notes = vec![
        "k6's summary counts percentiles over good and failed requests alike; `--out json` keeps every request".to_owned(),
    ];
    if bad > 0.0 {
        notes.push("failed requests may have had no answer: the summary does not say".to_owned());
    }
    notes.extend(failed_checks_note(metric("checks")["fails"].as_f64().map_or(0, truncated)));
    let users = metric("vus_max")["max"].as_f64().map(workers);
    Ok(ParsedFile {
        tool: "k6",
        content: Content::Summary(classes, stated),
        seconds: count / rate,
        started_unix_s: None,
        load: ParsedLoad::unknown(users),
        notes,
    })
}

/// Parses the name of a percentile: `med`, `p(95)`, `p(99.9)`.
fn share(name: &str) -> Option<f64> {
    if name == "med" {
        return Some(0.5);
    }
    let percent: f64 = name.strip_prefix("p(")?.strip_suffix(')')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_values() {
        assert!((percentile(&[10, 20], 0.5) - 15.0).abs() < 1e-9);
        assert!((percentile(&[10], 0.99) - 10.0).abs() < 1e-9);
        assert!(percentile(&[], 0.5).abs() < 1e-9);
    }
}
