//! What is remembered of a request until it is counted and logged.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use auth::request::Canonical;
use auth::time::Timestamp;
use credentials::authenticate::Verified;
use credentials::open_session::OpenSession;
use credentials::revocation::RevocableToken;
use http_engine::clock::CoarseClock;
use http_engine::http_stream::OwnField;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;
use telemetry::access_log::RequestProtocol;
use telemetry::phases::{CacheUse, Phase, Recorder, server_timing};

use crate::authorizer::{AuthorizerAllowed, AuthorizerAnswer};
use crate::exchange_error::ExchangeError;

/// What is remembered of a request.
pub(crate) struct RequestRecord {
    /// When its head was complete.
    pub(crate) started: Instant,
    /// What it spoke.
    pub(crate) protocol: RequestProtocol,
    /// Where its steps read the time; absent when nobody would learn of it, since a reading costs as much as a step.
    clock: Option<Rc<CoarseClock>>,
    /// Phases, when this request is among those that are timed.
    pub(crate) phases: Option<Recorder>,
    /// The client may see them.
    pub(crate) shows_timing: bool,
    /// Index of the route that took it.
    pub(crate) route: Option<usize>,
    /// Whoever sent it, where that is not the peer.
    pub(crate) client: Option<IpAddr>,
    /// What the decision cache said.
    pub(crate) cache: Option<CacheUse>,
    /// What an authorizer said that let it pass, and which one; whether it was asked for that.
    pub(crate) consent: Option<AuthorizerConsent>,
    /// The same of those who guard its new path.
    pub(crate) guards: Vec<AuthorizerConsent>,
    /// Who called.
    pub(crate) caller: Option<Arc<Verified>>,
    /// Method, host and path for the log; absent when nothing is logged.
    pub(crate) text: Option<RequestText>,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Status sent, 0 for none.
    pub(crate) status: u16,
    /// Why, when it was not forwarded or its exchange broke off.
    pub(crate) reason: Option<&'static str>,
    /// It was given to an upstream: whatever became of it there, it was not refused.
    pub(crate) let_through: bool,
    /// When that was, if anybody will learn of it.
    pub(crate) forwarded: Option<Instant>,
    /// The endpoint it went to, by index in the route's upstream.
    pub(crate) endpoint: Option<usize>,
    /// Header fields that were taken off, because they say what no client may say of itself.
    pub(crate) headers_removed: u32,
    /// Body bytes received.
    pub(crate) bytes_up: u64,
    /// Body bytes sent.
    pub(crate) bytes_down: u64,
    /// The trace it belongs to, and the caller's `tracestate`.
    pub(crate) trace: Option<(telemetry::trace::TraceContext, Option<String>)>,
}

/// What an authorizer said that was asked as well.
#[derive(Debug, Clone)]
pub(crate) struct AuthorizerConsent {
    /// Index among the configured ones.
    pub(crate) authorizer: usize,
    /// Its answer was kept.
    pub(crate) kept: bool,
    pub(crate) said: Arc<AuthorizerAnswer>,
}

/// The parts of a request that the log names.
#[derive(Debug, Default)]
pub(crate) struct RequestText {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
}

impl RequestRecord {
    /// Begins when the head of a request is complete.
    pub(crate) fn begin(
        started: Instant,
        protocol: RequestProtocol,
        clock: Option<Rc<CoarseClock>>,
        timed: bool,
        described: bool,
    ) -> Self {
        Self {
            started,
            protocol,
            clock,
            phases: timed.then(|| Recorder::start(started)),
            shows_timing: false,
            route: None,
            client: None,
            cache: None,
            consent: None,
            guards: Vec::new(),
            caller: None,
            text: described.then(RequestText::default),
            outcome: Outcome::Malformed,
            status: 0,
            reason: None,
            let_through: false,
            forwarded: None,
            endpoint: None,
            headers_removed: 0,
            bytes_up: 0,
            bytes_down: 0,
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
    pub(crate) fn answered_by_us(&mut self, answer: &LocalReply, head_request: bool) {
        self.outcome = answer.outcome;
        self.status = answer.status;
        let as_wished = matches!(answer.outcome, Outcome::Local | Outcome::Allowed);
        self.reason = (!as_wished).then_some(answer.code);
        self.bytes_down = if head_request { 0 } else { answer.body.len() as u64 };
    }

    /// Somebody who asked about it may forward it.
    pub(crate) fn vouched(&mut self) {
        self.outcome = Outcome::Allowed;
        self.status = 200;
    }

    /// A document of our own, or a word about ourselves.
    pub(crate) fn answered_locally(&mut self) {
        self.outcome = Outcome::Local;
        self.status = 200;
    }

    /// A gRPC call has no answer but a status.
    pub(crate) fn call_failed(&mut self) {
        if self.reason.is_none() {
            self.outcome = Outcome::Malformed;
            self.reason = Some("unclear_question");
            self.status = 400;
        }
    }

    /// It has its permit and its place upstream. What was done until here was deciding.
    pub(crate) fn let_through(&mut self) {
        self.outcome = Outcome::Allowed;
        self.let_through = true;
        self.forwarded = self.clock.as_ref().map(|clock| clock.monotonic());
        if let (Some(phases), Some(at)) = (&mut self.phases, self.forwarded) {
            phases.end(Phase::Decide, at);
        }
    }

    /// What an exchange moved, however it ended: the status passed on (0: none) and body bytes.
    pub(crate) fn moved(&mut self, status: u16, bytes_up: u64, bytes_down: u64) {
        self.status = status;
        self.bytes_up = bytes_up;
        self.bytes_down = bytes_down;
    }

    /// The exchange is over: it was answered, or waited for an answer in vain.
    pub(crate) fn exchanged(&mut self, answered: bool) {
        self.end(if answered { Phase::Respond } else { Phase::Upstream });
    }

    /// The exchange broke off after the answer had begun, or with nobody left to answer.
    pub(crate) fn failed(&mut self, fault: &ExchangeError) {
        let (outcome, reason) = fault.told();
        self.outcome = outcome;
        self.reason = Some(reason);
    }

    /// It was broken off where it stood. What was answered or had failed before then stays as it is.
    pub(crate) fn cut(&mut self, reason: &'static str) {
        if self.reason.is_some() || self.outcome == Outcome::Local {
            return;
        }
        if self.let_through {
            self.exchanged(self.status != 0);
        }
        self.outcome = Outcome::Unfinished;
        self.reason = Some(reason);
    }

    /// Ends a phase, if this request is timed.
    pub(crate) fn end(&mut self, phase: Phase) {
        if let (Some(phases), Some(clock)) = (&mut self.phases, &self.clock) {
            phases.end(phase, clock.monotonic());
        }
    }

    /// The `Set-Cookie` for a client that still has the cookie before, whatever it is answered: what that led to is only
    /// remembered for a while.
    pub(crate) fn renewed(&self) -> Option<&str> {
        self.caller.as_ref()?.session.as_ref()?.renewed.as_deref()
    }

    /// What all authorizers said that let it pass.
    pub(crate) fn consents(&self) -> impl Iterator<Item = &AuthorizerConsent> {
        self.consent.iter().chain(&self.guards)
    }

    /// Of what it was let in by, its credential and what authorizers said, all that may be taken back while it lasts.
    pub(crate) fn revocable(&self) -> impl Iterator<Item = &RevocableToken> {
        self.caller_revocable().chain(self.revocable_consents().map(|(_, revocable)| revocable))
    }

    /// When what lets it in ends by itself: the credential of its `caller`, and what authorizers say of whom they vouch for. A session has its
    /// own way to end.
    pub(crate) fn ends(&self, caller: Option<&Verified>) -> Timestamp {
        let credential = caller.filter(|caller| caller.session.is_none());
        let credential = credential.map_or(Timestamp::MAX, |caller| caller.facts.expires);
        self.consents().filter_map(|consent| consent.said.ends()).fold(credential, Timestamp::min)
    }

    /// The session that it was let in by, if it was one: that may end while it lasts.
    pub(crate) fn session(&self) -> Option<&OpenSession> {
        self.caller.as_ref()?.session.as_ref().map(|session| &session.lasting)
    }

    /// Its credential, if that may be taken back while it lasts.
    pub(crate) fn caller_revocable(&self) -> impl Iterator<Item = &RevocableToken> {
        self.caller.iter().filter_map(|caller| caller.revocable.as_ref())
    }

    /// What authorizers said that may be taken back while it lasts.
    pub(crate) fn revocable_consents(&self) -> impl Iterator<Item = (&AuthorizerConsent, &RevocableToken)> {
        self.consents().filter_map(|consent| Some((consent, consent.said.revocable()?)))
    }

    /// What the authorizer said that let it pass, if one was asked.
    pub(crate) fn allowed(&self) -> Option<&AuthorizerAllowed> {
        match &*self.consent.as_ref()?.said {
            AuthorizerAnswer::Allowed(allowed) => Some(allowed),
            AuthorizerAnswer::Refused(_) => None,
        }
    }

    /// What the gateway adds to a response from upstream.
    pub(crate) fn own_fields(&self) -> Vec<OwnField> {
        let mut fields = Vec::new();
        fields.extend(self.server_timing().map(|timing| ("server-timing", timing)));
        if let Some(allowed) = self.allowed() {
            fields.extend(allowed.cookies.iter().map(|cookie| ("set-cookie", cookie.to_vec())));
        }
        if let Some(cookie) = self.renewed() {
            fields.push(("set-cookie", cookie.as_bytes().to_vec()));
        }
        if fields.iter().any(|(name, _)| *name == "set-cookie") {
            // No shared cache may keep an answer with somebody's session in it (RFC 9111 section 5.2.2.7).
            fields.push(("cache-control", b"private".to_vec()));
        }
        fields
    }

    /// The value of `Server-Timing` as far as is known, for a client that may see it.
    fn server_timing(&self) -> Option<Vec<u8>> {
        let phases = self.phases.as_ref().filter(|_| self.shows_timing)?;
        let authority = self.caller.as_ref().map(|c| c.facts.identity.issuer.as_ref());
        let mut line = Vec::new();
        server_timing(phases, self.cache, authority, &mut line);
        Some(line)
    }
}
