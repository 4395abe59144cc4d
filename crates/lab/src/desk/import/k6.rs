//! k6: JSON lines with every request, and the exported summary.

use serde::Deserialize;
use serde_json::Value;

use super::{At, Content, ImportError, Read, Request, counted, outcome_of};
use crate::record::{Outcome, Printed, Stated};
use crate::units::whole;

const RULE: &str = "linear between the sorted values around (count − 1) × share";

/// A number of users.
fn workers(users: f64) -> u32 {
    u32::try_from(whole(users)).unwrap_or(u32::MAX)
}

/// k6's percentile of sorted values.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let place = share * (sorted.len().saturating_sub(1)) as f64;
    let (low, part) = (crate::units::place(place), place.fract());
    let Some(&from) = sorted.get(low) else { return 0.0 };
    let to = sorted.get(low + 1).copied().unwrap_or(from);
    from as f64 + (to as f64 - from as f64) * part
}

/// A line of `--out json`. k6 writes more keys than are read here, and adds some with each version.
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
    /// `null` for what has none, such as the number of users.
    tags: Option<Tags>,
}

#[derive(Deserialize)]
struct Tags {
    status: Option<String>,
    expected_response: Option<String>,
}

/// `k6 run --out json`.
pub(super) fn lines(content: &str, at: &At<'_>) -> Result<Read, ImportError> {
    let mut requests = Vec::new();
    let mut users: Option<f64> = None;
    for (number, text) in content.lines().enumerate().map(|(number, line)| (number + 1, line)) {
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(text).map_err(|error| at.line(number, error.to_string()))?;
        if line.r#type != "Point" {
            continue;
        }
        match line.metric.as_deref() {
            Some("http_req_duration") => {
                requests.push(request(&line.data).map_err(|what| at.line(number, what))?);
            }
            Some("vus") => users = [users, line.data.value].into_iter().flatten().reduce(f64::max),
            _ => {}
        }
    }
    let start =
        requests.iter().map(|request| request.ended_s - request.nanos as f64 / 1e9).fold(f64::MAX, f64::min);
    for request in &mut requests {
        request.ended_s -= start;
    }
    let seconds = requests.iter().map(|request| request.ended_s).fold(0.0, f64::max).max(1e-6);
    Ok(Read {
        tool: "k6",
        rule: RULE,
        content: Content::Requests(requests, percentile),
        seconds,
        concurrency: users.map(workers),
        notes: vec!["k6 does not say whether requests arrived at a rate or from users that wait".to_owned()],
    })
}

fn request(data: &Data) -> Result<Request, String> {
    let (Some(time), Some(ms)) = (&data.time, data.value) else {
        return Err("a request has no time or no value".to_owned());
    };
    if !(ms.is_finite() && ms >= 0.0) {
        return Err(format!("{ms} is no duration"));
    }
    let ended_s =
        unix_seconds(time).ok_or_else(|| format!("`{time}` is not a time as RFC 3339 writes it"))?;
    let tag = |of: fn(&Tags) -> Option<&String>| data.tags.as_ref().and_then(of).map(String::as_str);
    let status: u16 = match tag(|tags| tags.status.as_ref()) {
        None | Some("") => 0,
        Some(text) => text.parse().map_err(|_| format!("`{text}` is no status"))?,
    };
    let mut outcome = outcome_of(status);
    if outcome == Outcome::Ok && tag(|tags| tags.expected_response.as_ref()) == Some("false") {
        return Err(format!(
            "status {status} was not expected: the script's own expectations cannot be told apart from failures"
        ));
    }
    if status == 0 {
        outcome = Outcome::Failed;
    }
    Ok(Request {
        ended_s,
        nanos: super::nanos_of(ms / 1e3),
        outcome,
        status: Some(status).filter(|status| *status > 0),
    })
}

/// Seconds since 1970 of `2026-11-23T00:16:10.298663684Z` or with an offset.
fn unix_seconds(text: &str) -> Option<f64> {
    let (date, time) = text.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let mut clock = clock.split(':');
    let (hour, minute): (i64, i64) = (clock.next()?.parse().ok()?, clock.next()?.parse().ok()?);
    let second: f64 = clock.next()?.parse().ok()?;
    let sound = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute);
    if !sound || !(0.0..61.0).contains(&second) {
        return None;
    }
    let offset = match zone.strip_prefix(['+', '-']) {
        None => 0,
        Some(digits) => {
            let (hours, minutes) = digits.split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    // Days since 1970 in a calendar that begins in March, where the leap day is the last of the year.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = years.div_euclid(400);
    let of_era = years.rem_euclid(400);
    let days =
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * months + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + hour * 3600 + minute * 60 - offset * 60) as f64 + second)
}

/// `k6 run --summary-export`, and what `handleSummary` is given.
pub(super) fn summary(content: &str, at: &At<'_>) -> Result<Read, ImportError> {
    let exported: Value = serde_json::from_str(content).map_err(|error| at.whole(error.to_string()))?;
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
    // `passes` counts what failed: the metric is called `failed`, and true passes it.
    let bad = failed["passes"].as_f64().unwrap_or(0.0).min(count);
    let mut percentiles: Vec<Printed> = duration
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(Printed { share: share(name)?, us: value.as_f64()? * 1e3 }))
        .collect();
    percentiles.sort_by(|a, b| a.share.total_cmp(&b.share));
    let us = |name: &str| duration[name].as_f64().map(|ms| ms * 1e3);
    let stated = Stated {
        tool: "k6".to_owned(),
        rule: RULE.to_owned(),
        mean_us: us("avg"),
        min_us: us("min"),
        max_us: us("max"),
        per_s: Some(rate),
        percentiles,
    };
    let mut classes =
        vec![counted(Outcome::Ok, None, whole(count - bad)), counted(Outcome::Refused, None, whole(bad))];
    classes.retain(|class| class.count > 0);
    let mut notes = vec![
        "k6's summary counts percentiles over good and failed requests alike; `--out json` keeps every request".to_owned(),
    ];
    if bad > 0.0 {
        notes.push("failed requests may have had no answer: the summary does not say".to_owned());
    }
    let users = metric("vus_max")["max"].as_f64().map(workers);
    Ok(Read {
        tool: "k6",
        rule: RULE,
        content: Content::Summary(classes, stated),
        seconds: count / rate,
        concurrency: users,
        notes,
    })
}

/// `med`, `p(95)`, `p(99.9)`.
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
    fn times_are_read_as_rfc_3339_writes_them() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2000-02-29T12:00:00.5Z", 951_825_600.5),
            ("2026-11-23T02:16:10+02:00", 1_795_392_970.0),
            ("2026-11-22T19:16:10-05:00", 1_795_392_970.0),
        ] {
            assert!((unix_seconds(text).unwrap() - seconds).abs() < 1e-6, "{text}: {:?}", unix_seconds(text));
        }
        for text in ["", "2026-11-23", "2026-13-01T00:00:00Z", "2026-11-23T25:00:00Z", "2026-11-23T00:00:00"]
        {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn percentiles_lie_between_values() {
        assert!((percentile(&[10, 20], 0.5) - 15.0).abs() < 1e-9);
        assert!((percentile(&[10], 0.99) - 10.0).abs() < 1e-9);
        assert!(percentile(&[], 0.5).abs() < 1e-9);
    }
}
