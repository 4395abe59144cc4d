//! Import of Gatling: its log with every request, and the figures of its report.
//!
//! The log is text up to Gatling 3.12 and binary from 3.13 on. The binary form belongs to its
//! version and is not published: such a file is refused, with what to import instead.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Content, EndReason, ErrorContext, Examples, ImportError, ParsedFile, ParsedLoad, Request, Rule,
    count_only, ending_of, from_first_start,
};
use crate::record::{Outcome, StatedFigures, StatedPercentile};
use crate::units::truncated;

/// Longest version in the head of a binary log.
const MAX_VERSION: usize = 32;
/// Gatling's defaults for the percentiles of its report, which its file only numbers.
const REPORT_SHARES: [f64; 4] = [0.5, 0.75, 0.95, 0.99];
const REPORT_RULE: &str =
    "estimated by Gatling with a t-digest, in whole milliseconds, over the requests that succeeded";
/// What a script has in place of a figure of no request.
const ABSENT: &str = "-";
/// What precedes the figures of all requests in the script of a report.
const SCRIPT_FIGURES: &str = "\nstats: ";
const ARRIVALS: &str = "Gatling's file does not say how its users were injected";

/// Version of Gatling that wrote a binary log; `None` for other files. The log begins with a byte
/// 0, and the length and the text of the version.
pub(super) fn binary_version(bytes: &[u8]) -> Option<String> {
    let rest = bytes.strip_prefix(&[0])?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok().filter(|length| *length <= MAX_VERSION)?;
    let version = std::str::from_utf8(rest.get(..length)?).ok()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

/// What to import instead of a binary log.
pub(super) fn binary_remedy(version: &str) -> String {
    format!(
        "is the binary simulation.log of Gatling {version}: import `js/stats.js` of its report, or measure with Gatling 3.12, whose log is text"
    )
}

/// A line of the log, as far as it is read.
enum LogLine<'a> {
    Request { started: u64, ended: u64, good: bool, message: &'a str },
    User { begins: bool, at: u64 },
    Other,
}

impl<'a> LogLine<'a> {
    /// Reads a line; `None` when it is not as Gatling writes it.
    fn of(line: &'a str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        match *fields.first()? {
            "REQUEST" => {
                // Versions differ in the columns before the times, and agree from there on.
                let end = (3..fields.len()).find(|place| {
                    let times = [place - 2, place - 1].map(|time| fields[time].parse::<u64>().is_ok());
                    matches!(fields[*place], "OK" | "KO") && times == [true, true]
                })?;
                let (started, ended) = (fields[end - 2].parse().ok()?, fields[end - 1].parse().ok()?);
                let (good, message) = (fields[end] == "OK", fields.get(end + 1).copied().unwrap_or_default());
                (started <= ended).then_some(Self::Request { started, ended, good, message })
            }
            "USER" => {
                // The scenario, which comes first, may have any name.
                let event = fields.iter().skip(2).find(|field| matches!(**field, "START" | "END"))?;
                Some(Self::User { begins: *event == "START", at: fields.last()?.parse().ok()? })
            }
            "RUN" | "ASSERTION" | "GROUP" | "ERROR" => Some(Self::Other),
            _ => None,
        }
    }
}

/// Reads simulation.log as Gatling up to 3.12 writes it.
pub(super) fn log(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let (mut requests, mut examples) = (Vec::new(), Examples::default());
    let mut users: Vec<(u64, i32)> = Vec::new();
    for (number, line) in content.lines().enumerate().map(|(number, line)| (number + 1, line)) {
        if line.is_empty() {
            continue;
        }
        let parsed = LogLine::of(line).ok_or_else(|| {
            at.line(number, format!("`{line}` is not a line of Gatling's log, or is cut off"))
        })?;
        match parsed {
            LogLine::Request { started, ended, good, message } => {
                let request = request(started, ended, good, message);
                examples.note(&request, message);
                requests.push(request);
            }
            LogLine::User { begins, at } => users.push((at, if begins { 1 } else { -1 })),
            LogLine::Other => {}
        }
    }
    let span = from_first_start(&mut requests);
    Ok(ParsedFile {
        tool: "Gatling",
        content: Content::Requests(requests, examples, Rule::digest()),
        seconds: span.seconds.max(1e-3),
        started_unix_s: span.started_s,
        load: ParsedLoad::unknown(most_users(users)),
        notes: vec![
            "Gatling keeps whole milliseconds, and statuses only of failed checks".to_owned(),
            ARRIVALS.to_owned(),
        ],
    })
}

/// A request between two times in milliseconds since 1970.
fn request(started: u64, ended: u64, good: bool, message: &str) -> Request {
    let (outcome, status, why) = if good { (Outcome::Ok, None, EndReason::Plain) } else { failure(message) };
    let nanos = (ended - started).saturating_mul(1_000_000);
    Request { ended_s: ended as f64 / 1e3, nanos, outcome, status, why }
}

/// Ending of a failed request, from Gatling's message about it.
fn failure(message: &str) -> super::Ending {
    if message.contains("status.find") {
        let found = message.rsplit("found ").next().and_then(|status| status.trim().parse::<u16>().ok());
        return match found {
            Some(status) => ending_of(Some(status), false),
            None => (Outcome::Failed, None, EndReason::Check),
        };
    }
    if message.contains(".find") {
        return (Outcome::Failed, None, EndReason::Check);
    }
    (Outcome::Failed, None, EndReason::from_message(message))
}

/// Most users at the same time; `None` when the log has none.
fn most_users(mut changes: Vec<(u64, i32)>) -> Option<u32> {
    // At the same time, who ends goes before who begins.
    changes.sort_unstable();
    let mut now = 0_i32;
    let most = changes.into_iter().map(|(_, change)| {
        now = now.saturating_add(change);
        now
    });
    most.max().and_then(|most| u32::try_from(most).ok()).filter(|most| *most > 0)
}

/// The keys of a report's file that are read; there are more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    number_of_requests: Split,
    min_response_time: Split,
    max_response_time: Split,
    mean_response_time: Split,
    percentiles1: Split,
    percentiles2: Split,
    percentiles3: Split,
    percentiles4: Split,
    mean_number_of_requests_per_second: Split,
}

/// A figure of all requests and of the successful ones: numbers in JSON, texts in a script.
#[derive(Deserialize)]
struct Split {
    total: Value,
    ok: Value,
}

/// Reads `js/stats.js` or `js/global_stats.json` of a report. The first is a script: the figures of
/// all requests are the first object in it that is JSON.
pub(super) fn stats(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let json = content.split_once(SCRIPT_FIGURES).map_or(content, |(_, json)| json);
    let stats = serde_json::Deserializer::from_str(json).into_iter::<Stats>().next();
    let stats = stats.ok_or_else(|| at.whole("is empty"))?;
    let stats = stats.map_err(|error| at.json(None, &error))?;
    let requests = &stats.number_of_requests;
    let all = number(&requests.total, "numberOfRequests.total", at)?;
    let good = number(&requests.ok, "numberOfRequests.ok", at)?.min(all);
    if all < 1.0 {
        return Err(ImportError::Empty { file: at.0.to_owned() });
    }
    let rate = &stats.mean_number_of_requests_per_second;
    let per_s = number(&rate.total, "meanNumberOfRequestsPerSecond.total", at)?;
    if per_s <= 0.0 {
        return Err(at.whole("`meanNumberOfRequestsPerSecond.total` is 0, although there are requests"));
    }
    let times = (good >= 1.0).then_some(&stats);
    let stated = stated(times, per_s, at)?;
    let failed = truncated(all) - truncated(good);
    let mut classes =
        vec![count_only(Outcome::Ok, None, truncated(good)), count_only(Outcome::Refused, None, failed)];
    classes.retain(|class| class.count > 0);
    let mut notes = vec![
        "Gatling's report numbers its percentiles; they are taken for P50, P75, P95 and P99, its defaults"
            .to_owned(),
        "of its times, those of the requests that succeeded are taken: a request that fails may end sooner, or only when it times out"
            .to_owned(),
        "it has whole milliseconds, and rates over whole seconds: the length of the run may be off by one second"
            .to_owned(),
        ARRIVALS.to_owned(),
    ];
    if failed > 0 {
        notes.push("failed requests may have had no answer: the file does not say".to_owned());
    }
    Ok(ParsedFile {
        tool: "Gatling",
        content: Content::Summary(classes, stated),
        seconds: all / per_s,
        started_unix_s: None,
        load: ParsedLoad::unknown(None),
        notes,
    })
}

/// The figures of a report: its times are those of the requests that succeeded. Without such a
/// request, `times` is `None`.
fn stated(times: Option<&Stats>, per_s: f64, at: &ErrorContext<'_>) -> Result<StatedFigures, ImportError> {
    let us = |figure: fn(&Stats) -> &Split, name: &str| {
        let ok = times.map(|times| &figure(times).ok);
        let ok = ok.filter(|ok| ok.as_str().is_none_or(|text| text.trim() != ABSENT));
        ok.map(|ok| number(ok, name, at).map(|ms| ms * 1e3)).transpose()
    };
    let numbered = [
        us(|stats| &stats.percentiles1, "percentiles1.ok")?,
        us(|stats| &stats.percentiles2, "percentiles2.ok")?,
        us(|stats| &stats.percentiles3, "percentiles3.ok")?,
        us(|stats| &stats.percentiles4, "percentiles4.ok")?,
    ];
    let percentile = |(share, us): (f64, Option<f64>)| us.map(|us| StatedPercentile { share, us });
    Ok(StatedFigures {
        tool: "Gatling".to_owned(),
        rule: REPORT_RULE.to_owned(),
        mean_us: us(|stats| &stats.mean_response_time, "meanResponseTime.ok")?,
        min_us: us(|stats| &stats.min_response_time, "minResponseTime.ok")?,
        max_us: us(|stats| &stats.max_response_time, "maxResponseTime.ok")?,
        per_s: Some(per_s),
        percentiles: REPORT_SHARES.into_iter().zip(numbered).filter_map(percentile).collect(),
        sent_percentiles: Vec::new(),
    })
}

/// A number from 0, in JSON or in a text.
fn number(figure: &Value, name: &str, at: &ErrorContext<'_>) -> Result<f64, ImportError> {
    let value = figure.as_f64().or_else(|| grouped(figure.as_str()?));
    value
        .filter(|value| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| at.whole(format!("`{figure}` is not a number ({name})")))
}

/// Parses a number whose digits may be in groups of three, with spaces around it: `   29,403`.
fn grouped(text: &str) -> Option<f64> {
    let separates = |letter: char| letter == ',' || letter.is_whitespace();
    let text = text.trim();
    let whole = text.split('.').next()?;
    let has_groups = whole.split(separates).skip(1).all(|group| group.len() == 3);
    if has_groups { text.replace(separates, "").parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_each_version_writes_them() {
        for line in [
            "REQUEST\tscenario\t1\t\tget\t1000\t1030\tOK\t ",
            "REQUEST\t1\t\tget\t1000\t1030\tOK\t ",
            "REQUEST\t\tget\t1000\t1030\tOK\t ",
            "REQUEST\tgroup,inner\tOK\t1000\t1030\tOK\t ",
        ] {
            let read = matches!(
                LogLine::of(line),
                Some(LogLine::Request { started: 1000, ended: 1030, good: true, .. })
            );
            assert!(read, "{line}");
        }
        for line in [
            "REQUEST\t\tget\t1000",
            "REQUEST\t\tget\t1000\t1030\tO",
            "REQUEST\t\tget\t1030\t1000\tOK\t ",
            "x",
        ] {
            assert!(LogLine::of(line).is_none(), "{line}");
        }
    }

    #[test]
    fn messages_say_how_requests_failed() {
        for (message, ending) in [
            (
                "status.find.in(200,201), but actually found 503",
                (Outcome::Refused, Some(503), EndReason::Plain),
            ),
            ("status.find.in([200, 209], 304), found 503", (Outcome::Refused, Some(503), EndReason::Plain)),
            ("status.find.is(201), found 200", (Outcome::Failed, None, EndReason::Unexpected(200))),
            ("regex(closed).find.exists, found nothing", (Outcome::Failed, None, EndReason::Check)),
            (
                "i.g.h.c.i.RequestTimeoutException: Request timeout to localhost after 60000 ms",
                (Outcome::Failed, None, EndReason::Timeout),
            ),
            ("j.n.ConnectException: Connection refused", (Outcome::Failed, None, EndReason::Connect)),
            ("j.i.IOException: Premature close", (Outcome::Failed, None, EndReason::Closed)),
        ] {
            assert_eq!(failure(message), ending, "{message}");
        }
    }

    #[test]
    fn digits_may_be_in_groups_of_three() {
        for (text, number) in [
            ("113", Some(113.0)),
            ("  37.67 ", Some(37.67)),
            ("   29,403", Some(29_403.0)),
            ("1,234,567.5", Some(1_234_567.5)),
            ("29\u{202f}403", Some(29_403.0)),
            ("9,09", None),
            ("1,0000", None),
            ("        -", None),
            ("", None),
        ] {
            assert_eq!(grouped(text), number, "{text}");
        }
    }

    #[test]
    fn users_overlap() {
        assert_eq!(most_users(vec![(1, 1), (2, 1), (3, -1), (3, 1), (4, -1), (4, -1)]), Some(2));
        assert_eq!(most_users(Vec::new()), None);
    }

    #[test]
    fn a_binary_log_names_its_version() {
        let binary = |version: &str| {
            let length = u32::try_from(version.len()).unwrap().to_be_bytes();
            [&[0][..], &length, version.as_bytes(), &[0, 0, 0, 1]].concat()
        };
        assert_eq!(binary_version(&binary("3.13.1")).as_deref(), Some("3.13.1"));
        assert_eq!(binary_version(&binary("later")), None);
        for bytes in [&b""[..], b"\0", b"\0\0\0\0\x09", b"RUN\tx"] {
            assert_eq!(binary_version(bytes), None);
        }
    }
}
