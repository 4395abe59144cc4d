//! What is remembered of a request until it is counted and logged.

use std::sync::Arc;
use std::time::Instant;

use auth::request::Canonical;

use crate::answer::Answer;
use crate::authenticate::Verified;
use crate::metrics::Outcome;
use crate::phases::{CacheUse, Phase, Recorder};
use crate::relay::{Fault, Relayed};

/// What is remembered of a request.
pub(crate) struct Record {
    /// When its head was complete.
    pub(crate) started: Instant,
    /// Phases, when this request is among those that are timed.
    pub(crate) phases: Option<Recorder>,
    /// Index of the route that took it.
    pub(crate) route: Option<usize>,
    /// What the decision cache said.
    pub(crate) cache: Option<CacheUse>,
    /// Who called.
    pub(crate) caller: Option<Arc<Verified>>,
    /// Method, host and path for the log; absent when nothing is logged.
    pub(crate) text: Option<RequestText>,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Status sent, 0 for none.
    pub(crate) status: u16,
    /// Why, when it was not forwarded.
    pub(crate) reason: Option<&'static str>,
    /// The endpoint it went to.
    pub(crate) endpoint: Option<String>,
    /// Body bytes received.
    pub(crate) bytes_up: u64,
    /// Body bytes sent.
    pub(crate) bytes_down: u64,
    /// When the upstream's answer began.
    pub(crate) answered: Option<Instant>,
    /// When it was sent upstream.
    pub(crate) forwarded: Option<Instant>,
    /// The trace it belongs to, and the caller's `tracestate`.
    pub(crate) trace: Option<(crate::trace::Context, Option<String>)>,
}

/// The parts of a request that the log names.
#[derive(Debug, Default)]
pub(crate) struct RequestText {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
}

impl Record {
    /// Begins when the head of a request is complete.
    pub(crate) fn begin(started: Instant, timed: bool, described: bool) -> Self {
        Self {
            started,
            phases: timed.then(|| Recorder::start(started)),
            route: None,
            cache: None,
            caller: None,
            text: described.then(RequestText::default),
            outcome: Outcome::Malformed,
            status: 0,
            reason: None,
            endpoint: None,
            bytes_up: 0,
            bytes_down: 0,
            answered: None,
            forwarded: None,
            trace: None,
        }
    }

    /// Keeps what the log names of the request: its canonical form, never its query (tokens hide there).
    pub(crate) fn describe(&mut self, request: &Canonical<'_>) {
        if let Some(text) = &mut self.text {
            request.method().clone_into(&mut text.method);
            request.host().clone_into(&mut text.host);
            request.path().clone_into(&mut text.path);
        }
    }

    /// The gateway answered by itself.
    pub(crate) fn answered_by_us(&mut self, answer: &Answer, head_request: bool) {
        self.outcome = answer.outcome;
        self.status = answer.status;
        self.reason = (answer.outcome != Outcome::Local).then_some(answer.code);
        self.bytes_down = if head_request { 0 } else { answer.body.len() as u64 };
    }

    /// What an exchange moved, however it ended.
    pub(crate) fn relayed(&mut self, relayed: &Relayed) {
        self.bytes_up = relayed.bytes_up;
        self.bytes_down = relayed.bytes_down;
        self.answered = relayed.answered;
        self.status = relayed.status.unwrap_or(0);
    }

    /// The exchange broke off after the answer had begun, or with nobody left to answer.
    pub(crate) fn failed(&mut self, fault: &Fault) {
        let (outcome, reason) = match fault {
            Fault::ClientGone => (Outcome::ClientAborted, "client_gone"),
            Fault::ClientBody(_) => (Outcome::Malformed, "malformed_body"),
            Fault::ClientStalled => (Outcome::Timeout, "client_stalled"),
            Fault::BodyTooLarge => (Outcome::TooLarge, "body_too_large"),
            Fault::UpstreamClosed(_) => (Outcome::UpstreamError, "upstream_closed"),
            Fault::UpstreamProtocol(_) => (Outcome::UpstreamError, "upstream_protocol"),
            Fault::UpstreamTimeout => (Outcome::Timeout, "upstream_timeout"),
            Fault::RequestTimeout => (Outcome::Timeout, "request_timeout"),
        };
        self.outcome = outcome;
        self.reason = Some(reason);
    }

    /// Ends a phase, if this request is timed.
    pub(crate) fn end(&mut self, phase: Phase) {
        if let Some(phases) = &mut self.phases {
            phases.end(phase, Instant::now());
        }
    }
}
