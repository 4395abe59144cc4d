//! Requests of a file, in the same form for every tool.
//!
//! Owns: how a request ended ([`EndReason`]), what a tool's words about a failure mean, and the
//! rules by which tools compute percentiles ([`Rule`]).
//! Does not own: the formats.

use std::collections::BTreeMap;

use crate::record::{Class, Outcome};
use crate::units::truncated;

/// Most characters that are kept of a tool's message about a failure.
const MAX_MESSAGE: usize = 300;

/// Names of the gRPC status codes by number, as gRPC libraries for Go write them.
const GRPC_CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// A request, as a file reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Request {
    /// End of the request, seconds since the start of the first one.
    pub(super) ended_s: f64,
    /// Duration of the request, ns.
    pub(super) nanos: u64,
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    pub(super) why: EndReason,
}

/// Why a request did not end as its status says, or has no status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum EndReason {
    /// It ended as its status says; without a status, it had no response.
    #[default]
    Plain,
    /// The response had this status, below 400, but a check of the tool's user failed.
    Unexpected(u16),
    /// The response had this status, from 400, and the tool's user expected it.
    Expected(u16),
    /// A check of the tool's user failed; the status is not known.
    Check,
    /// The call ended with this gRPC status, not `OK`.
    Grpc(u8),
    /// The request timed out.
    Timeout,
    /// The connection, or TLS on it, could not be established.
    Connect,
    /// The connection closed before the response was complete.
    Closed,
}

impl EndReason {
    /// Name of the fault in the record; `None` where outcome and status say all.
    pub(super) fn fault(self, outcome: Outcome) -> Option<String> {
        match self {
            Self::Unexpected(status) => Some(format!("assertion failed on {status}")),
            Self::Check => Some("check failed".to_owned()),
            Self::Grpc(code) => GRPC_CODES.get(usize::from(code)).map(|name| format!("gRPC {name}")),
            Self::Timeout => Some("timeout".to_owned()),
            Self::Connect => Some("connect".to_owned()),
            Self::Closed => Some("closed".to_owned()),
            Self::Plain => (outcome == Outcome::Failed).then(|| "no answer".to_owned()),
            Self::Expected(_) => None,
        }
    }

    /// Classifies a tool's message about a request without a response.
    pub(super) fn from_message(message: &str) -> Self {
        let words = words_of(message);
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
        } else if any(&[
            "reset",
            "closed",
            "eof",
            "failed to respond",
            "nohttpresponse",
            "socketexception",
            "premature close",
        ]) {
            Self::Closed
        } else {
            Self::Plain
        }
    }
}

/// Words of a message in lower case, without URLs and hosts: those may have any name.
fn words_of(message: &str) -> String {
    let (mut kept, mut rest) = (String::new(), message);
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at);
        let before = before.trim_end_matches(|letter: char| letter.is_ascii_alphanumeric());
        kept.push_str(before);
        // A URL in quotes ends with them, another one with its word.
        let quote = before.chars().next_back().filter(|last| matches!(*last, '"' | '\'' | '`'));
        let end = quote.and_then(|quote| url.find(quote)).or_else(|| url.find(char::is_whitespace));
        rest = end.map_or("", |end| &url[end..]);
    }
    kept.push_str(rest);
    let words: Vec<&str> = kept.split_whitespace().filter(|word| !is_host(word)).collect();
    words.join(" ").to_lowercase()
}

/// Whether a word is a host or an address: it ends with a port, or has a dot and no capital letter.
/// The names of exceptions have dots and capital letters.
fn is_host(word: &str) -> bool {
    let name = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let has_port = name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    has_port || (name.contains('.') && !name.contains(|letter: char| letter.is_ascii_uppercase()))
}

/// Requests with the same ending form one class.
pub(super) type Ending = (Outcome, Option<u16>, EndReason);

/// First message in the file about each ending.
#[derive(Default)]
pub(super) struct Examples(BTreeMap<Ending, String>);

impl Examples {
    pub(super) fn note(&mut self, request: &Request, words: &str) {
        let words = words.trim();
        if !words.is_empty() {
            let ending = (request.outcome, request.status, request.why);
            self.0.entry(ending).or_insert_with(|| words.chars().take(MAX_MESSAGE).collect());
        }
    }

    pub(super) fn of(&self, ending: &Ending) -> Option<String> {
        self.0.get(ending).cloned()
    }
}

/// How a tool computes percentiles of the requests in its file.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// Description, for the record.
    pub(super) text: &'static str,
    /// Percentile, in ns, of sorted ns.
    pub(super) percentile: fn(&[u64], f64) -> f64,
    /// Whether only successful requests count.
    pub(super) successes_only: bool,
    /// Whether the tool estimates, so that its figures differ a little from these.
    pub(super) estimates: bool,
}

impl Rule {
    /// A rule that gives what the tool prints, over all requests.
    pub(super) fn exact(text: &'static str, percentile: fn(&[u64], f64) -> f64) -> Self {
        Self { text, percentile, successes_only: false, estimates: false }
    }

    /// The tool estimates percentiles with a t-digest. With few values each is a point of its own,
    /// and the estimate is this interpolation.
    pub(super) fn digest() -> Self {
        Self {
            text: "linear between the sorted values around count × share − ½; the tool estimates them with a t-digest",
            percentile: between_centres,
            successes_only: false,
            estimates: true,
        }
    }
}

/// Percentile of sorted values, each of which stands for the middle of its share.
fn between_centres(sorted: &[u64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (share * sorted.len() as f64 - 0.5).clamp(0.0, last as f64);
    let low = crate::units::index(place);
    let Some(&from) = sorted.get(low) else { return 0.0 };
    let to = sorted.get(low + 1).copied().unwrap_or(from);
    from as f64 + (to as f64 - from as f64) * place.fract()
}

/// When the requests of a file ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    /// Start of the first request, on the clock of the ends that were given; absent without a
    /// request.
    pub(super) started_s: Option<f64>,
    /// Time from the start of the first request to the end of the last, seconds.
    pub(super) seconds: f64,
}

/// Makes ends relative to the start of the first request.
pub(super) fn from_first_start(requests: &mut [Request]) -> Span {
    let start = |request: &Request| request.ended_s - request.nanos as f64 / 1e9;
    let started_s = requests.iter().map(start).reduce(f64::min);
    let mut seconds: f64 = 0.0;
    for request in requests {
        request.ended_s -= started_s.unwrap_or_default();
        seconds = seconds.max(request.ended_s);
    }
    Span { started_s, seconds }
}

/// Number of the line on which a CSV row begins, from 1.
pub(super) fn line_of(row: &::csv::StringRecord) -> usize {
    row.position().map_or(0, |position| usize::try_from(position.line()).unwrap_or(usize::MAX))
}

/// Ending of a request when the tool's user stated what is expected. An unexpected response failed
/// although its status is good. An expected one succeeded although its status is not. A request
/// without a status had no response: it failed, unless that was expected.
pub(super) fn ending_of(status: Option<u16>, expected: bool) -> Ending {
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

/// Ending of a call with this gRPC status, by its name; `None` for an unknown one. The statuses
/// that a client sets when it has no response, and those of a broken server, are failures. The
/// others are refusals.
pub(super) fn ending_of_grpc(name: &str) -> Option<Ending> {
    let code = GRPC_CODES.iter().position(|known| *known == name)?;
    let why = EndReason::Grpc(u8::try_from(code).ok()?);
    Some(match name {
        "OK" => (Outcome::Ok, None, EndReason::Plain),
        "DeadlineExceeded" => (Outcome::Failed, None, EndReason::Timeout),
        "Canceled" | "DataLoss" | "Internal" | "Unavailable" | "Unknown" => (Outcome::Failed, None, why),
        _ => (Outcome::Refused, None, why),
    })
}

/// Outcome of a status; 0 stands for no response.
pub(super) fn outcome_of(status: u16) -> Outcome {
    match status {
        0 => Outcome::Failed,
        1..400 => Outcome::Ok,
        _ => Outcome::Refused,
    }
}

/// A class with a count and without latencies.
pub(super) fn count_only(outcome: Outcome, status: Option<u16>, count: u64) -> Class {
    Class { outcome, status, fault: None, count, latency: None, example: None }
}

/// Seconds as nanoseconds, rounded: 0.0023 s is not 2 299 999 ns.
pub(super) fn nanos_of(seconds: f64) -> u64 {
    truncated((seconds * 1e9).round())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_of_few_values_interpolates_between_their_centres() {
        let of = |sorted: &[u64], share| between_centres(sorted, share);
        assert!((of(&[10, 20], 0.5) - 15.0).abs() < 1e-9);
        assert!((of(&[10, 20, 30, 40], 0.25) - 15.0).abs() < 1e-9);
        assert!((of(&[10, 20], 0.99) - 20.0).abs() < 1e-9 && (of(&[10, 20], 0.01) - 10.0).abs() < 1e-9);
        assert!((of(&[10], 0.5) - 10.0).abs() < 1e-9 && of(&[], 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_grpc_status_without_a_response_or_of_a_broken_server_is_a_failure() {
        let outcome = |name| ending_of_grpc(name).map(|(outcome, ..)| outcome);
        assert_eq!(outcome("OK"), Some(Outcome::Ok));
        for name in ["DeadlineExceeded", "Unavailable", "Canceled", "Internal"] {
            assert_eq!(outcome(name), Some(Outcome::Failed), "{name}");
        }
        for name in ["PermissionDenied", "Unauthenticated", "NotFound", "ResourceExhausted"] {
            assert_eq!(outcome(name), Some(Outcome::Refused), "{name}");
        }
        assert_eq!(outcome("Fine"), None);
        let (outcome, _, why) = ending_of_grpc("PermissionDenied").unwrap();
        assert_eq!(why.fault(outcome).as_deref(), Some("gRPC PermissionDenied"));
    }

    #[test]
    fn the_names_of_urls_and_hosts_say_nothing_about_a_failure() {
        for (message, why) in [
            ("Get \"https://tls.gateway.test/dialog\": context deadline exceeded", EndReason::Timeout),
            ("Get \"https://ssl.test/timeout\":EOF", EndReason::Closed),
            ("GET https://reset.test/closed: no bytes", EndReason::Plain),
            ("Get \"HTTP://refused.test/timeout", EndReason::Plain),
            ("Request timeout to tls.gateway.test/10.0.0.1:443 after 100 ms", EndReason::Timeout),
            ("dialog:8443 failed to respond", EndReason::Closed),
            ("Get \"https://a.test/\": dial tcp 10.0.0.1:443: i/o timeout", EndReason::Connect),
            ("Get 'https://a.test/': remote error: tls: handshake failure", EndReason::Connect),
            ("javax.net.ssl.SSLException: Unsupported record version", EndReason::Connect),
            ("request canceled (Client.Timeout exceeded while awaiting headers)", EndReason::Timeout),
            ("://", EndReason::Plain),
        ] {
            assert_eq!(EndReason::from_message(message), why, "{message}");
        }
    }

    #[test]
    fn ends_count_from_the_first_start() {
        let one = |ended_s, nanos| Request {
            ended_s,
            nanos,
            outcome: Outcome::Ok,
            status: Some(200),
            why: EndReason::Plain,
        };
        let mut requests = [one(1000.5, 500_000_000), one(1000.25, 100_000_000)];
        let span = from_first_start(&mut requests);
        assert_eq!(span, Span { started_s: Some(1000.0), seconds: 0.5 });
        assert!((requests[1].ended_s - 0.25).abs() < 1e-9);
        assert_eq!(from_first_start(&mut []), Span { started_s: None, seconds: 0.0 });
    }
}
