//! Request record: what the gateway keeps about a request until it is counted and logged.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use auth::policy::route::Scope;
use auth::request::Canonical;
use auth::time::Timestamp;
use credentials::authenticate::Verified;
use credentials::open_session::OpenSession;
use credentials::revocation::RevocableToken;
use http_engine::clock::CoarseClock;
use http_engine::field_edits::FieldEdits;
use http_engine::http_stream::AddedField;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;
use telemetry::access_log::RequestProtocol;
use telemetry::phases::{CacheUse, Phase, Recorder, server_timing};
use telemetry::trace_context::TraceId;

use crate::authorizer::{AuthorizerAllowed, AuthorizerAnswer};
use crate::error_page::{SignedInUser, WantsPage};
use crate::exchange_error::ExchangeError;

/// Facts about one request, for metrics, log and traces.
pub(crate) struct RequestRecord {
    /// When the request's head was complete.
    pub(crate) started: Instant,
    /// The protocol of the client.
    pub(crate) protocol: RequestProtocol,
    /// Clock for the steps; absent when no measurement needs it, since reading it costs as much as
    /// a step.
    clock: Option<Rc<CoarseClock>>,
    /// Durations of the phases, when this request is among the timed ones.
    pub(crate) phases: Option<Recorder>,
    /// Whether the client may see the phases.
    pub(crate) shows_timing: bool,
    /// Index of the route that took the request.
    pub(crate) route: Option<usize>,
    /// The routes among which it was looked for, once that is known.
    pub(crate) scope: Option<Scope>,
    /// Index of the upstream that was chosen for the request.
    pub(crate) upstream: Option<usize>,
    /// The client's address, where it is not the peer.
    pub(crate) client: Option<IpAddr>,
    /// Result of the lookup in the decision cache.
    pub(crate) cache: Option<CacheUse>,
    /// The approvals of the route's authorizers.
    pub(crate) route_consents: Vec<AuthorizerConsent>,
    /// The approvals for other readings of the path, and of authorizers of routes that guard the new path.
    pub(crate) guard_consents: Vec<AuthorizerConsent>,
    /// The authenticated caller of the request.
    pub(crate) caller: Option<Arc<Verified>>,
    /// Method, host and path for the log; absent when requests are not logged.
    pub(crate) text: Option<RequestText>,
    /// How the request ended.
    pub(crate) outcome: Outcome,
    /// Status sent, 0 for none.
    pub(crate) status: u16,
    /// Reason code, when the request was not forwarded or its exchange failed.
    pub(crate) reason: Option<&'static str>,
    /// Whether the request was given to an upstream: then it was not refused, even if the exchange
    /// failed.
    pub(crate) was_forwarded: bool,
    /// When the request was given to an upstream, if a measurement needs it.
    pub(crate) forwarded: Option<Instant>,
    /// The endpoint that received the request, when requests are logged.
    pub(crate) endpoint: Option<Rc<str>>,
    /// Number of further attempts after the first failed.
    pub(crate) retries: u32,
    /// Number of header fields removed because no client may set them.
    pub(crate) headers_removed: u32,
    /// The client is a browser that wants a page, if the gateway answers itself.
    pub(crate) wants_page: Option<Box<WantsPage>>,
    /// What few requests have.
    rare: Option<Box<RareFacts>>,
    /// Id of a refused request; the client gets it too.
    pub(crate) request_id: Option<TraceId>,
    /// Edits of the response, whoever sends it.
    pub(crate) response_edits: Option<Arc<FieldEdits>>,
    /// Body bytes received from the client.
    pub(crate) bytes_up: u64,
    /// Body bytes sent to the client.
    pub(crate) bytes_down: u64,
    /// The trace of the request, and the client's `tracestate`.
    pub(crate) trace: Option<(telemetry::trace::TraceContext, Option<String>)>,
}

/// What few requests have. It is apart because a record moves with the futures that hold it.
#[derive(Default)]
pub(crate) struct RareFacts {
    /// What was wrong with the upstream's response or connection, when requests are logged.
    pub(crate) upstream_fault: Option<Box<str>>,
    /// `Set-Cookie` that lets the client keep its endpoint.
    pub(crate) affinity_cookie: Option<Box<str>>,
    /// The user of the session with which a browser was refused.
    pub(crate) signed_in: Option<SignedInUser>,
}

/// An authorizer's approval of a request.
#[derive(Debug, Clone)]
pub(crate) struct AuthorizerConsent {
    /// Number of the authorizer.
    pub(crate) authorizer: usize,
    /// Whether the answer came from the cache.
    pub(crate) from_cache: bool,
    pub(crate) answer: Arc<AuthorizerAnswer>,
}

/// The parts of a request that the log contains.
#[derive(Debug, Default)]
pub(crate) struct RequestText {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    /// A path that the service could read instead, for which the request was refused.
    pub(crate) other_path: Option<Box<str>>,
}

/// What a record keeps besides counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordDetail {
    /// Durations of the phases.
    pub(crate) phases: bool,
    /// The parts of the request that the log contains.
    pub(crate) text: bool,
}

impl RequestRecord {
    /// What few requests have; `None`: this one has nothing of it.
    pub(crate) fn rare(&self) -> Option<&RareFacts> {
        self.rare.as_deref()
    }

    /// The same, to be written.
    pub(crate) fn rare_mut(&mut self) -> &mut RareFacts {
        self.rare.get_or_insert_default()
    }

    /// Begins when the head of a request is complete. Inlined, because it is built in its place then
    /// instead of being copied there.
    #[inline]
    pub(crate) fn begin(
        started: Instant,
        protocol: RequestProtocol,
        clock: Option<Rc<CoarseClock>>,
        detail: RecordDetail,
    ) -> Self {
        Self {
            started,
            protocol,
            clock,
            phases: detail.phases.then(|| Recorder::start(started)),
            shows_timing: false,
            route: None,
            scope: None,
            upstream: None,
            client: None,
            cache: None,
            route_consents: Vec::new(),
            guard_consents: Vec::new(),
            caller: None,
            text: detail.text.then(RequestText::default),
            outcome: Outcome::Malformed,
            status: 0,
            reason: None,
            was_forwarded: false,
            forwarded: None,
            endpoint: None,
            retries: 0,
            headers_removed: 0,
            wants_page: None,
            rare: None,
            request_id: None,
            response_edits: None,
            bytes_up: 0,
            bytes_down: 0,
            trace: None,
        }
    }

    /// Stores the parts for the log: as they would be forwarded, never the query, which may contain
    /// tokens.
    pub(crate) fn describe(&mut self, request: &Canonical<'_>) {
        if let Some(text) = &mut self.text {
            request.method().clone_into(&mut text.method);
            request.host().clone_into(&mut text.host);
            request.forwarded_path().clone_into(&mut text.path);
        }
    }

    /// Stores the path that the service could read instead of the one that was received.
    pub(crate) fn read_differently(&mut self, other_path: &str) {
        if let Some(text) = &mut self.text {
            text.other_path = Some(other_path.into());
        }
    }

    /// Records a reply of the gateway itself.
    pub(crate) fn local_reply(&mut self, answer: &LocalReply, head_request: bool) {
        self.outcome = answer.outcome;
        self.status = answer.status;
        let as_wished = matches!(answer.outcome, Outcome::Local | Outcome::Allowed);
        self.reason = (!as_wished).then_some(answer.code);
        self.bytes_down = if head_request { 0 } else { answer.body.len() as u64 };
    }

    /// Records a permitting response to a proxy that forwards itself.
    pub(crate) fn check_permitted(&mut self) {
        self.outcome = Outcome::Allowed;
        self.status = 200;
    }

    /// Records a document or health response of the gateway itself.
    pub(crate) fn own_content(&mut self) {
        self.outcome = Outcome::Local;
        self.status = 200;
    }

    /// Records a gRPC call that ended with a status and without a message.
    pub(crate) fn call_failed(&mut self) {
        if self.reason.is_none() {
            self.outcome = Outcome::Malformed;
            self.reason = Some("unclear_question");
            self.status = 400;
        }
    }

    /// Records that the request has its permit and its slot at the upstream. The time until here
    /// was the decision phase.
    pub(crate) fn mark_forwarded(&mut self) {
        self.outcome = Outcome::Allowed;
        self.was_forwarded = true;
        self.forwarded = self.clock.as_ref().map(|clock| clock.monotonic());
        if let (Some(phases), Some(at)) = (&mut self.phases, self.forwarded) {
            phases.end_phase(Phase::Decide, at);
        }
    }

    /// Records an exchange's final status (0: none) and body bytes, however it ended.
    pub(crate) fn transferred(&mut self, status: u16, bytes_up: u64, bytes_down: u64) {
        self.status = status;
        self.bytes_up = bytes_up;
        self.bytes_down = bytes_down;
    }

    /// Ends the phase of the exchange: `Respond` if there was a response, otherwise `Upstream`.
    pub(crate) fn exchanged(&mut self, answered: bool) {
        self.end(if answered { Phase::Respond } else { Phase::Upstream });
    }

    /// Records an exchange that failed after the response had begun, or with the client gone.
    pub(crate) fn failed(&mut self, fault: &ExchangeError) {
        let (outcome, reason) = fault.outcome_and_reason();
        self.outcome = outcome;
        self.reason = Some(reason);
    }

    /// Records that the request was aborted. A response or failure recorded earlier stays.
    pub(crate) fn aborted(&mut self, reason: &'static str) {
        if self.reason.is_some() || self.outcome == Outcome::Local {
            return;
        }
        if self.was_forwarded {
            self.exchanged(self.status != 0);
        }
        self.outcome = Outcome::Unfinished;
        self.reason = Some(reason);
    }

    /// Records the endpoint that receives the request, if the log names it.
    pub(crate) fn sent_to(&mut self, endpoint: &Rc<str>) {
        if self.text.is_some() {
            self.endpoint = Some(endpoint.clone());
        }
    }

    /// Ends a phase, if this request is timed.
    pub(crate) fn end(&mut self, phase: Phase) {
        if let (Some(phases), Some(clock)) = (&mut self.phases, &self.clock) {
            phases.end_phase(phase, clock.monotonic());
        }
    }

    /// The `Set-Cookie` for a client that still sends the cookie before a renewal, regardless of
    /// the response: the gateway keeps the successor only for a while.
    pub(crate) fn renewed_cookie(&self) -> Option<&str> {
        self.caller.as_ref()?.session.as_ref()?.renewed.as_deref()
    }

    /// The approvals of all authorizers.
    pub(crate) fn consents(&self) -> impl Iterator<Item = &AuthorizerConsent> {
        self.route_consents.iter().chain(&self.guard_consents)
    }

    /// Everything that authorized the request and may be revoked during the exchange: the
    /// credential, and authorizers' answers.
    pub(crate) fn revocable(&self) -> impl Iterator<Item = &RevocableToken> {
        self.caller_revocable().chain(self.revocable_consents().map(|(_, revocable)| revocable))
    }

    /// When the authorization expires by itself: the credential of `caller`, and the credentials
    /// that authorizers' answers depend on. Sessions are not included; they have their own check.
    pub(crate) fn expires_at(&self, caller: Option<&Verified>) -> Timestamp {
        let credential = caller.filter(|caller| caller.session.is_none());
        let credential = credential.map_or(Timestamp::MAX, |caller| caller.facts.expires);
        self.consents().filter_map(|consent| consent.answer.ends()).fold(credential, Timestamp::min)
    }

    /// The session that authorized the request, if any: it may end during the exchange.
    pub(crate) fn session(&self) -> Option<&OpenSession> {
        self.caller.as_ref()?.session.as_ref().map(|session| &session.open_session)
    }

    /// The caller's credential, if it may be revoked during the exchange.
    pub(crate) fn caller_revocable(&self) -> impl Iterator<Item = &RevocableToken> {
        self.caller.iter().filter_map(|caller| caller.revocable.as_ref())
    }

    /// The authorizers' answers that may be revoked during the exchange.
    pub(crate) fn revocable_consents(&self) -> impl Iterator<Item = (&AuthorizerConsent, &RevocableToken)> {
        self.consents().filter_map(|consent| Some((consent, consent.answer.revocable()?)))
    }

    /// The answers of the route's authorizers, as far as they were queried.
    pub(crate) fn authorizer_answers(&self) -> impl Iterator<Item = &AuthorizerAllowed> {
        self.route_consents.iter().filter_map(|consent| match &*consent.answer {
            AuthorizerAnswer::Allowed(allowed) => Some(allowed),
            AuthorizerAnswer::Refused(_) => None,
        })
    }

    /// The fields that the gateway adds to a response from upstream.
    pub(crate) fn own_fields(&self) -> Vec<AddedField> {
        let mut fields = Vec::new();
        fields.extend(self.server_timing().map(|timing| ("server-timing", timing)));
        for allowed in self.authorizer_answers() {
            fields.extend(allowed.cookies.iter().map(|cookie| ("set-cookie", cookie.to_vec())));
        }
        if let Some(cookie) = self.renewed_cookie() {
            fields.push(("set-cookie", cookie.as_bytes().to_vec()));
        }
        if let Some(cookie) = self.rare().and_then(|rare| rare.affinity_cookie.as_ref()) {
            fields.push(("set-cookie", cookie.as_bytes().to_vec()));
        }
        if fields.iter().any(|(name, _)| *name == "set-cookie") {
            // A shared cache must not store a response that contains a session cookie (RFC 9111
            // section 5.2.2.7).
            fields.push(("cache-control", b"private".to_vec()));
        }
        fields
    }

    /// The value of `Server-Timing` as far as it is known, for a client that may see it.
    fn server_timing(&self) -> Option<Vec<u8>> {
        let phases = self.phases.as_ref().filter(|_| self.shows_timing)?;
        let authority = self.caller.as_ref().map(|c| c.facts.identity.issuer.as_ref());
        let mut line = Vec::new();
        server_timing(phases, self.cache, authority, &mut line);
        Some(line)
    }
}
