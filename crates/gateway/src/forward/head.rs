//! The head of an upstream request.
//!
//! Owns: the head that a [`Permit`] becomes in HTTP/1 and HTTP/2, the fields that the gateway sets
//! in it, and the head of an authorizer query, which is not a client's request.
//! Does not own: which client fields pass ([`crate::forward_filter`]).

use std::sync::Arc;

use auth::decide::Permit;
use credentials::authenticate::Verified;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use http_engine::buffer::borrow_vec;
use http_engine::head::{BlockId, Framing, HeadFault};
use http_engine::http1::writing::{put_decimal, put_field};
use http_engine::parsed_request::ParsedRequest;

use crate::authorizer::AuthorizerAllowed;
use crate::block_results::LinesBasis;
use crate::config::{Config, RequestHeaders, Rewrite, Route};
use crate::forward_filter::ForwardFilter;
use crate::forwarded_fields::ForwardedFields;
use crate::peer::Peer;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::worker::{ActiveConfig, Worker, access_token, template_values};

/// The head of an authorizer query. Of the client's request it contains only what the authorizer is
/// shown.
pub(crate) struct QuestionHead<'q> {
    pub(crate) method: &'q str,
    /// Path and query of the request line.
    pub(crate) target: &'q [u8],
    pub(crate) authority: &'q str,
    pub(crate) fields: Vec<(&'q str, &'q [u8])>,
    /// Length of the body that follows.
    pub(crate) body_bytes: usize,
}

/// The head of an upstream request, in the form of the upstream's protocol.
pub(super) enum ForwardedHead {
    /// The whole head. `host_at` is where the endpoint's own `Host` goes when the client's is not
    /// preserved.
    Http1 { bytes: Vec<u8>, host_at: Option<usize> },
    /// `own_host`: whether the endpoint's own authority replaces the client's.
    Http2 { request: Box<Request<()>>, own_host: bool },
}

impl QuestionHead<'_> {
    /// The length of the body. Methods that usually have one state that there is none (RFC 9110
    /// section 8.6).
    fn length(&self) -> Option<String> {
        let is_told = self.body_bytes > 0 || !matches!(self.method, "GET" | "HEAD");
        is_told.then(|| self.body_bytes.to_string())
    }

    pub(super) fn http1(&self) -> ForwardedHead {
        let mut out = borrow_vec();
        for part in [self.method.as_bytes(), b" ", self.target, b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
        put_field(&mut out, "host", self.authority.as_bytes());
        for (name, value) in &self.fields {
            put_field(&mut out, name, value);
        }
        if let Some(length) = self.length() {
            put_field(&mut out, "content-length", length.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        ForwardedHead::Http1 { bytes: out, host_at: None }
    }

    pub(super) fn http2(&self, tls: bool) -> Result<ForwardedHead, Refusal> {
        let uri = http2_uri(tls, self.authority, self.target.to_vec())?;
        let mut request = Request::new(());
        *request.method_mut() = self.method.parse().map_err(|_| Refusal::Head(HeadFault::FirstLine))?;
        *request.uri_mut() = uri;
        let length = self.length();
        let length = length.as_ref().map(|length| ("content-length", length.as_bytes()));
        for (name, value) in self.fields.iter().copied().chain(length) {
            let value = HeaderValue::from_bytes(value).map_err(|_| Refusal::Head(HeadFault::FieldLine))?;
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| Refusal::Head(HeadFault::FieldLine))?;
            request.headers_mut().append(name, value);
        }
        Ok(ForwardedHead::Http2 { request: Box::new(request), own_host: false })
    }
}

/// Input for writing a request head.
#[derive(Clone, Copy)]
pub(super) struct Draft<'a, 'r> {
    pub(super) permit: &'a Permit<'r>,
    pub(super) running: &'a ActiveConfig,
    pub(super) peer: &'a Peer,
    pub(super) route: &'a Route,
    /// Index of the upstream among several of the route.
    pub(super) entry: Option<usize>,
    /// Index of the upstream that receives the request.
    pub(super) upstream: usize,
    /// The changes of the request's fields for this upstream.
    pub(super) changes: Option<&'a RequestHeaders>,
    pub(super) forwarded: &'a ForwardedFields,
    pub(super) inbound: &'a ParsedRequest<'a>,
    /// Filter for the client's fields.
    pub(super) filter: &'a ForwardFilter<'a>,
    pub(super) caller: Option<&'a Verified>,
    pub(super) record: &'a RequestRecord,
}

impl<'a> Draft<'a, '_> {
    /// The identity to send upstream; `None` if an authorizer's answer already names the caller.
    fn identity(&self) -> Option<&'a Verified> {
        self.caller.filter(|_| !self.record.authorizer_answers().any(|answer| answer.has_identity))
    }

    /// Calls `put` with the gateway's fields that are the same for every request of this connection
    /// and caller. (HTTP/1 has them ready as lines.)
    fn connection_fields(&self, mut put: impl FnMut(&str, &[u8])) {
        for (name, value) in &self.forwarded.fields {
            put(name, value.as_bytes());
        }
        for (name, value) in self.identity().iter().flat_map(|caller| &caller.upstream_fields) {
            put(name, value);
        }
        for answer in self.record.authorizer_answers() {
            self.answered_fields(answer, &mut put);
        }
    }

    /// Calls `put` with the fields of an authorizer's answer, but for those that the route sets or
    /// removes: its changes come last, and a field that is set arrives once.
    fn answered_fields(&self, answer: &AuthorizerAllowed, mut put: impl FnMut(&str, &[u8])) {
        for (name, value) in &answer.fields {
            if !self.changes.is_some_and(|changes| changes.removes(name)) {
                put(name, value);
            }
        }
    }

    /// Calls `put` with the other fields that the gateway sets itself.
    fn own_fields(&self, worker: &Worker, mut put: impl FnMut(&str, &[u8])) -> Result<(), Refusal> {
        let host = self.forwarded.host.as_deref();
        put("x-forwarded-host", host.unwrap_or_else(|| self.permit.request().authority()).as_bytes());
        if let Some(Rewrite::StripPrefix(prefix)) =
            self.route.rewrite.as_ref().filter(|_| self.permit.is_rewritten())
        {
            put("x-forwarded-prefix", prefix.as_bytes());
        }
        put("via", self.inbound.via.as_bytes());
        if let Some((name, token)) = access_token(self.route, self.caller) {
            put(name, token.as_bytes());
        }
        if let Some(headers) = self.changes {
            let values = template_values(self.caller, self.inbound, self.permit.request(), self.forwarded);
            for (name, template) in &headers.values {
                if let Some(value) = template.render(&values) {
                    put(name, value.as_bytes());
                }
            }
        }
        let now = || worker.clock.at(self.record.started);
        if let Some((name, token)) =
            self.running.assertion((self.route, Some(self.upstream)), self.caller, now)?
        {
            put(name, token.as_bytes());
        }
        if let Some((trace, state)) = &self.record.trace {
            let mut parent = Vec::with_capacity(64);
            trace.outgoing().write(&mut parent);
            put("traceparent", &parent);
            if let Some(state) = state {
                put("tracestate", state.as_bytes());
            }
        }
        Ok(())
    }

    /// The host that the upstream receives: the route's, or the client's if it sent one. `None`: the
    /// endpoint's own.
    fn host(&self) -> Option<&str> {
        let client = self.permit.request().authority();
        let preserved = (self.route.preserve_host && !client.is_empty()).then_some(client);
        self.route.rewrite_host.as_deref().or(preserved)
    }

    /// Whether the gateway replaces this trace field of the client.
    fn replaces_trace(&self, name: &str) -> bool {
        self.record.trace.is_some()
            && (name.eq_ignore_ascii_case("traceparent") || name.eq_ignore_ascii_case("tracestate"))
    }

    /// Appends the lines with the client's fields.
    fn client_lines(&self, out: &mut Vec<u8>) {
        for field in self.inbound.fields {
            if !self.replaces_trace(field.name)
                && let Some(value) = self.filter.passing_value(field)
            {
                put_field(out, field.name, &value);
            }
        }
    }

    /// What the client's lines follow from; `None`: from more than that, or they are seldom the same.
    fn lines_basis(&self) -> Option<(BlockId, LinesBasis<&Arc<Config>>)> {
        let block = self.inbound.block?;
        let is_fixed = self.record.trace.is_none() && !self.filter.depends_on_answers();
        let of_route = self.route.request_headers.as_ref();
        let has_own_changes = self.changes.map(std::ptr::from_ref) != of_route.map(std::ptr::from_ref);
        let basis = LinesBasis {
            config: &self.running.config,
            route: self.permit.route(),
            // Those without changes of their own share the lines.
            entry: self.entry.filter(|_| has_own_changes),
            is_session: self.caller.is_some_and(|caller| caller.session.is_some()),
        };
        is_fixed.then_some((block, basis))
    }

    pub(super) fn http1(&self, worker: &Worker) -> Result<ForwardedHead, Refusal> {
        let request = self.permit.request();
        let mut out = borrow_vec();
        out.extend_from_slice(request.method().as_bytes());
        out.push(b' ');
        request.write_target(&mut out);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let host_at = match self.host() {
            Some(host) => {
                put_field(&mut out, "host", host.as_bytes());
                None
            }
            None => Some(out.len()),
        };
        match self.lines_basis() {
            Some((block, basis)) => {
                let write = |out: &mut Vec<u8>| self.client_lines(out);
                self.peer.block_results.put_lines(block, basis, self.filter, &mut out, write);
            }
            None => self.client_lines(&mut out),
        }
        out.extend_from_slice(&self.forwarded.http1);
        if let Some(caller) = self.identity() {
            out.extend_from_slice(&caller.http1_block);
        }
        for answer in self.record.authorizer_answers() {
            if self.changes.is_some_and(|changes| !changes.removed.is_empty()) {
                self.answered_fields(answer, |name, value| put_field(&mut out, name, value));
            } else {
                out.extend_from_slice(&answer.http1_block);
            }
        }
        self.own_fields(worker, |name, value| put_field(&mut out, name, value))?;
        match self.inbound.framing {
            Framing::Length(n) if n > 0 || self.inbound.has_length => {
                out.extend_from_slice(b"content-length: ");
                put_decimal(&mut out, n);
                out.extend_from_slice(b"\r\n");
            }
            Framing::Length(_) => {}
            Framing::Chunked | Framing::UntilClose => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
        }
        if let Some(protocol) = self.inbound.upgrade {
            out.extend_from_slice(b"connection: upgrade\r\n");
            put_field(&mut out, "upgrade", protocol);
        }
        out.extend_from_slice(b"\r\n");
        Ok(ForwardedHead::Http1 { bytes: out, host_at })
    }

    pub(super) fn http2(&self, worker: &Worker) -> Result<ForwardedHead, Refusal> {
        let canonical = self.permit.request();
        let mut fields = HeaderMap::with_capacity(self.inbound.fields.len() + 8);
        let mut append = |name: &str, value: &[u8]| {
            // A parser checked both, or they come from checked text; a field that still does not
            // fit is omitted.
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
            {
                fields.append(name, value);
            }
        };
        for field in self.inbound.fields {
            if self.replaces_trace(field.name) {
                continue;
            }
            if let Some(value) = self.filter.passing_value(field) {
                append(field.name, &value);
            } else if field.name.eq_ignore_ascii_case("te") && field.value.eq_ignore_ascii_case(b"trailers") {
                append("te", b"trailers"); // HTTP/2 keeps only this value (RFC 9113 §8.2.2)
            }
        }
        self.connection_fields(&mut append);
        self.own_fields(worker, &mut append)?;
        if let Framing::Length(n) = self.inbound.framing
            && (n > 0 || self.inbound.has_length)
        {
            append("content-length", n.to_string().as_bytes());
        }
        let mut target = Vec::new();
        canonical.write_target(&mut target);
        let tls = self.running.config.routing.upstream(self.upstream).tls.is_some();
        let host = self.host();
        // Replaced by the endpoint's own where there is no other.
        let uri = http2_uri(tls, host.unwrap_or("endpoint"), target)?;
        let mut request = Request::new(());
        *request.method_mut() =
            canonical.method().parse().map_err(|_| Refusal::Head(HeadFault::FirstLine))?;
        *request.uri_mut() = uri;
        *request.headers_mut() = fields;
        Ok(ForwardedHead::Http2 { request: Box::new(request), own_host: host.is_none() })
    }
}

/// The URI of a request over HTTP/2.
fn http2_uri(tls: bool, authority: &str, target: Vec<u8>) -> Result<Uri, Refusal> {
    let uri = Uri::builder()
        .scheme(if tls { "https" } else { "http" })
        .authority(authority)
        .path_and_query(http2_target(target))
        .build();
    // For a canonical target, only its length can still be refused.
    uri.map_err(|_| Refusal::Head(HeadFault::TargetTooLong))
}

/// Converts the target for the `http` crate, which rejects some characters that a query may contain
/// here. They are percent-encoded; every rule and every form parser reads both forms as the same.
fn http2_target(target: Vec<u8>) -> Vec<u8> {
    if !target.iter().any(|b| matches!(b, b'"' | b'<' | b'>')) {
        return target;
    }
    let mut escaped = Vec::with_capacity(target.len() + 16);
    for byte in target {
        match byte {
            b'"' => escaped.extend_from_slice(b"%22"),
            b'<' => escaped.extend_from_slice(b"%3C"),
            b'>' => escaped.extend_from_slice(b"%3E"),
            _ => escaped.push(byte),
        }
    }
    escaped
}
