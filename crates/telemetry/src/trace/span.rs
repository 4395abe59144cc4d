//! Spans of a finished request.
//!
//! Owns: names and attributes (OpenTelemetry semantic conventions for HTTP, stable), the phases as
//! events, and the client span for the upstream. As in the access log, header fields, queries and
//! tokens cannot appear: spans are made from the same [`AccessRecord`].

use http_engine::labels::Outcome;

use super::TraceContext;
use super::otlp::{Code, Event, KeyValue, Kind, REMOTE, REMOTE_KNOWN, Span, Status};
use crate::access_log::{AccessRecord, ForwardedTo};
use crate::phases::{CacheUse, Phase, Recorder};

/// A finished request and its trace.
#[derive(Debug, Clone, Copy)]
pub struct FinishedRequest<'a> {
    /// Ids of the request.
    pub trace: &'a TraceContext,
    /// The caller's `tracestate`.
    pub state: Option<&'a str>,
    /// When the request's head was complete, in nanoseconds since the Unix epoch.
    pub start_unix_nanos: u64,
    /// Time per phase.
    pub phases: &'a Recorder,
    /// The request's access log record.
    pub record: &'a AccessRecord<'a>,
}

impl FinishedRequest<'_> {
    /// The server span, and the client span if the request was forwarded to an upstream.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        let client = self.record.forwarded.as_ref().map(|forwarded| self.client(forwarded));
        [Some(self.server()), client].into_iter().flatten()
    }

    fn end_unix_nanos(&self) -> u64 {
        self.start_unix_nanos.saturating_add(self.record.total_nanos)
    }

    fn server(&self) -> Span {
        let record = self.record;
        let parent = self.trace.parent;
        Span {
            trace_id: self.trace.trace.as_bytes().to_vec(),
            span_id: self.trace.server.as_bytes().to_vec(),
            trace_state: self.state.unwrap_or_default().to_owned(),
            parent_span_id: parent.map(|span| span.as_bytes().to_vec()).unwrap_or_default(),
            name: self.name(),
            kind: Kind::Server.into(),
            start_unix_nanos: self.start_unix_nanos,
            end_unix_nanos: self.end_unix_nanos(),
            attributes: self.attributes(),
            events: self.events(),
            // a refusal is normal operation; only a failure of the gateway is an error
            status: failed(record).then(|| error(record.reason.unwrap_or(record.outcome.as_str()))),
            flags: u32::from(self.trace.flags.as_byte())
                | REMOTE_KNOWN
                | if parent.is_some() { REMOTE } else { 0 },
        }
    }

    fn client(&self, forwarded: &ForwardedTo<'_>) -> Span {
        let record = self.record;
        let begin = self.start_unix_nanos.saturating_add(self.nanos_before_upstream());
        let mut attributes = vec![KeyValue::text("postern.upstream", forwarded.upstream)];
        match forwarded.endpoint.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
            Some((host, Ok(port))) => {
                attributes.push(KeyValue::text("server.address", host));
                attributes.push(KeyValue::integer("server.port", port.into()));
            }
            _ => attributes.push(KeyValue::text("server.address", forwarded.endpoint)),
        }
        if let Some(target) = &record.target {
            attributes.push(KeyValue::text("http.request.method", target.method));
        }
        if record.outcome == Outcome::Allowed && record.status != 0 {
            attributes.push(KeyValue::integer("http.response.status_code", record.status.into()));
        }
        Span {
            trace_id: self.trace.trace.as_bytes().to_vec(),
            span_id: self.trace.client.as_bytes().to_vec(),
            trace_state: self.state.unwrap_or_default().to_owned(),
            parent_span_id: self.trace.server.as_bytes().to_vec(),
            name: record.target.map_or_else(|| "HTTP".to_owned(), |target| target.method.to_owned()),
            kind: Kind::Client.into(),
            start_unix_nanos: begin,
            end_unix_nanos: begin.saturating_add(forwarded.duration_nanos).min(self.end_unix_nanos()),
            attributes,
            events: Vec::new(),
            // in a client span a 4xx response of the peer is an error as well
            status: (failed(record) || record.status >= 400).then(|| error("")),
            flags: u32::from(self.trace.flags.as_byte()) | REMOTE_KNOWN,
        }
    }

    /// Method and route, because span names should have low cardinality.
    fn name(&self) -> String {
        match (self.record.target, self.record.route) {
            (Some(target), Some(route)) => format!("{} {route}", target.method),
            (Some(target), None) => target.method.to_owned(),
            (None, _) => "HTTP".to_owned(),
        }
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let record = self.record;
        let mut attributes = vec![
            KeyValue::text("client.address", record.peer.ip().to_string()),
            KeyValue::integer("client.port", record.peer.port().into()),
            KeyValue::text("network.protocol.name", "http"),
            KeyValue::text("network.protocol.version", record.protocol.version()),
            KeyValue::text("postern.listener", record.listener),
            KeyValue::text("postern.outcome", record.outcome.as_str()),
        ];
        if let Some(target) = &record.target {
            attributes.push(KeyValue::text("http.request.method", target.method));
            attributes.push(KeyValue::text("server.address", target.host));
            attributes.push(KeyValue::text("url.path", target.path));
        }
        if record.status != 0 {
            attributes.push(KeyValue::integer("http.response.status_code", record.status.into()));
        }
        let optional = [
            ("postern.route", record.route),
            ("postern.reason", record.reason),
            ("postern.cache", record.cache_result.map(CacheUse::as_str)),
            ("postern.issuer", record.identity.map(|identity| &*identity.issuer)),
            ("enduser.id", record.identity.map(|identity| &*identity.subject)),
        ];
        attributes.extend(optional.into_iter().filter_map(|(key, value)| Some(KeyValue::text(key, value?))));
        attributes
    }

    /// One event at the end of each phase, with its duration. Phases are consecutive, so each
    /// starts where the one before ended. [`Phase::Accept`] precedes the request and does not
    /// advance the time.
    fn events(&self) -> Vec<Event> {
        let mut at = self.start_unix_nanos;
        let event = |(phase, nanos): (Phase, u64)| {
            if phase != Phase::Accept {
                at = at.saturating_add(nanos);
            }
            Event {
                unix_nanos: at,
                name: phase.as_str().to_owned(),
                attributes: vec![KeyValue::integer("postern.phase.nanoseconds", nanos)],
            }
        };
        self.phases.iter().map(event).collect()
    }

    /// Nanoseconds from the request's head to the start of forwarding.
    fn nanos_before_upstream(&self) -> u64 {
        [Phase::Parse, Phase::Match, Phase::Authenticate, Phase::Decide]
            .into_iter()
            .filter_map(|phase| self.phases.nanos(phase))
            .fold(0, u64::saturating_add)
    }
}

/// Whether the gateway or one of its dependencies failed the request.
fn failed(record: &AccessRecord<'_>) -> bool {
    let of_the_client = record.status == 408 || record.reason == Some("client_stalled");
    record.status >= 500
        || match record.outcome {
            Outcome::AuthUnavailable | Outcome::UpstreamError | Outcome::Overloaded | Outcome::Unfinished => {
                true
            }
            Outcome::Timeout => !of_the_client,
            _ => false,
        }
}

fn error(message: &str) -> Status {
    Status { message: message.to_owned(), code: Code::Error.into() }
}
