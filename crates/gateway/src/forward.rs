//! Forwarding: writes the upstream's request head and runs the exchange that follows.
//!
//! Owns:
//!
//! - the upstream's request head, which only a [`Permit`] can create, and the fields that the
//!   gateway sets in it;
//! - the head of an authorizer query, which is not a client's request;
//! - the one retry, when no byte was sent or the peer guarantees that it processed nothing
//!   (RFC 9113 §8.7);
//! - what a failed exchange means for its endpoint;
//! - the second check of a request that had to wait for a connection.
//!
//! Does not own: which client fields pass ([`crate::forward_filter`]), connections, the relay,
//! whether the request may still be sent ([`crate::stream_guard`]).

use std::rc::Rc;
use std::time::Duration;

use auth::decide::Permit;
use credentials::authenticate::Verified;
use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_engine::buffer::borrow_vec;
use http_engine::config::UpstreamProtocol;
use http_engine::deadline::Deadline;
use http_engine::head::{Framing, HeadFault};
use http_engine::http_stream::{Downstream, HttpStreamError};
use http_engine::http1::writing::{put_decimal, put_field};
use http_engine::http2::stream::ClientStream;
use http_engine::parsed_request::ParsedRequest;
use http_engine::upstream::connect::ConnectError;
use http_engine::upstream::pool::{ExchangeFailure, IdleConnections, Lease, LeasedLink, Pool, RequestSlot};

use crate::authorizer::AuthorizerAllowed;
use crate::config::{OnExpiry, Route};
use crate::exchange_error::ExchangeError;
use crate::forward_filter::ForwardFilter;
use crate::peer::Peer;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::relay::{Progress, Relayed, Terms, relay};
use crate::stream_guard::{Expiry, may_be_sent};
use crate::worker::{ActiveConfig, Worker, access_token};

/// A permitted request, ready to be sent.
pub(crate) struct ForwardedRequest {
    pool: Rc<Pool>,
    head: ForwardedHead,
    framing: Framing,
    head_request: bool,
    terms: Terms,
}

/// The head of an authorizer query. Of the client's request it contains only what the authorizer is
/// shown.
pub(crate) struct QuestionHead<'q> {
    pub(crate) method: &'q str,
    /// Path and query of the request line.
    pub(crate) target: &'q [u8],
    pub(crate) authority: &'q str,
    pub(crate) fields: Vec<(&'q str, &'q [u8])>,
}

enum ForwardedHead {
    /// The whole head. `host_at` is where the endpoint's own `Host` goes when the client's is not
    /// preserved.
    Http1 { bytes: Vec<u8>, host_at: Option<usize> },
    /// `own_host`: whether the endpoint's own authority replaces the client's.
    Http2 { request: Box<Request<()>>, own_host: bool },
}

/// A request as it came in: the configuration that it holds, its connection, and its head.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) running: &'a Rc<ActiveConfig>,
    pub(crate) peer: &'a Peer,
    pub(crate) inbound: &'a ParsedRequest<'a>,
}

impl ForwardedRequest {
    /// Turns a permit into a request. The forwarded request is the permit's, byte for byte what was
    /// matched and decided. Only the fields and the body framing come from `inbound`.
    #[allow(clippy::needless_pass_by_value, reason = "a permit is used up by what it permits")]
    pub(crate) fn new(
        permit: Permit<'_>,
        worker: &Worker,
        incoming: Incoming<'_>,
        caller: Option<&Verified>,
        record: &mut RequestRecord,
    ) -> Result<Self, Refusal> {
        let Incoming { running, peer, inbound } = incoming;
        let consent = record.allowed();
        let route = &running.config.routes[permit.route()];
        let Some(upstream) = route.upstream else { return Err(Refusal::NoRoute) };
        let pool = running.pools[upstream].clone();
        let sieve = ForwardFilter::new(&running.config, route, inbound.fields, inbound.nominates);
        let draft =
            Draft { permit: &permit, running, route, peer, inbound, sieve: &sieve, caller, consent, record };
        let head = match pool.config.protocol {
            UpstreamProtocol::Http1 => draft.http1(worker)?,
            UpstreamProtocol::Http2 => draft.http2(worker)?,
        };
        record.headers_removed = sieve.removed();
        let timeouts = &pool.config.timeouts;
        // An authorizer sends an end only where its own configuration keeps nothing open beyond it.
        let own = caller.filter(|_| route.on_expiry == OnExpiry::Close);
        let expiry = Expiry::new(record.ends(own), &worker.clock);
        let terms = Terms {
            response_header: timeouts.response_header,
            upstream_stall: timeouts.stall,
            client_stall: peer.listener().timeouts.stall,
            tunnel_idle: peer.listener().timeouts.idle,
            until: route.request_timeout.map(|limit| {
                worker
                    .deadlines
                    .now_millis()
                    .saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
            }),
            body_bytes: route.body_bytes,
            // HTTP/2 has no 101 (RFC 9113 §8.6).
            offered: inbound
                .upgrade
                .filter(|_| pool.config.protocol == UpstreamProtocol::Http1)
                .map(Box::from),
            expiry,
            running: running.clone(),
        };
        let head_request = permit.request().method() == "HEAD";
        Ok(Self { pool, head, framing: inbound.framing, head_request, terms })
    }

    /// An authorizer query, without a body. It needs no permit, because a request waits for it to
    /// get one.
    pub(crate) fn question(
        pool: Rc<Pool>,
        question: &QuestionHead<'_>,
        timeout: Duration,
        running: &Rc<ActiveConfig>,
    ) -> Result<Self, Refusal> {
        // Methods that usually have a body state that there is none (RFC 9110 section 8.6).
        let length = (!matches!(question.method, "GET" | "HEAD")).then_some(("content-length", &b"0"[..]));
        let head = match pool.config.protocol {
            UpstreamProtocol::Http1 => question.http1(length),
            UpstreamProtocol::Http2 => question.http2(length, pool.config.tls.is_some())?,
        };
        let terms = Terms {
            response_header: timeout,
            upstream_stall: timeout,
            client_stall: timeout,
            tunnel_idle: timeout,
            until: None,
            body_bytes: None,
            offered: None,
            expiry: None,
            running: running.clone(),
        };
        Ok(Self { pool, head, framing: Framing::Length(0), head_request: question.method == "HEAD", terms })
    }
}

impl QuestionHead<'_> {
    fn fields(&self, length: Option<(&'static str, &'static [u8])>) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().copied().chain(length)
    }

    fn http1(&self, length: Option<(&'static str, &'static [u8])>) -> ForwardedHead {
        let mut out = borrow_vec();
        for part in [self.method.as_bytes(), b" ", self.target, b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
        put_field(&mut out, "host", self.authority.as_bytes());
        for (name, value) in self.fields(length) {
            put_field(&mut out, name, value);
        }
        out.extend_from_slice(b"\r\n");
        ForwardedHead::Http1 { bytes: out, host_at: None }
    }

    fn http2(
        &self,
        length: Option<(&'static str, &'static [u8])>,
        tls: bool,
    ) -> Result<ForwardedHead, Refusal> {
        let uri = http2_uri(tls, self.authority, self.target.to_vec())?;
        let mut request = Request::new(());
        *request.method_mut() = self.method.parse().map_err(|_| Refusal::Head(HeadFault::FirstLine))?;
        *request.uri_mut() = uri;
        for (name, value) in self.fields(length) {
            let value = HeaderValue::from_bytes(value).map_err(|_| Refusal::Head(HeadFault::FieldLine))?;
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| Refusal::Head(HeadFault::FieldLine))?;
            request.headers_mut().append(name, value);
        }
        Ok(ForwardedHead::Http2 { request: Box::new(request), own_host: false })
    }
}

/// Input for writing a request head.
struct Draft<'a, 'r> {
    permit: &'a Permit<'r>,
    running: &'a ActiveConfig,
    route: &'a Route,
    peer: &'a Peer,
    inbound: &'a ParsedRequest<'a>,
    /// Filter for the client's fields.
    sieve: &'a ForwardFilter<'a>,
    caller: Option<&'a Verified>,
    /// The authorizer's answer, where the route has an authorizer.
    consent: Option<&'a AuthorizerAllowed>,
    record: &'a RequestRecord,
}

impl<'a> Draft<'a, '_> {
    /// The identity to send upstream; `None` if the authorizer's answer already names the caller.
    fn told(&self) -> Option<&'a Verified> {
        self.caller.filter(|_| !self.consent.is_some_and(|consent| consent.names_caller))
    }

    /// Calls `put` with the gateway's fields that are the same for every request of this connection
    /// and caller. (HTTP/1 has them ready as lines.)
    fn standing_fields(&self, mut put: impl FnMut(&str, &[u8])) {
        for (name, value) in &self.peer.forwarded {
            put(name, value.as_bytes());
        }
        for (name, value) in self.told().iter().flat_map(|caller| &caller.upstream_fields) {
            put(name, value);
        }
        for (name, value) in self.consent.iter().flat_map(|consent| &consent.fields) {
            put(name, value);
        }
    }

    /// Calls `put` with the other fields that the gateway sets itself.
    fn own_fields(&self, worker: &Worker, mut put: impl FnMut(&str, &[u8])) -> Result<(), Refusal> {
        put("x-forwarded-host", self.permit.request().authority().as_bytes());
        put("via", self.inbound.via.as_bytes());
        if let Some((name, token)) = access_token(self.route, self.caller) {
            put(name, token.as_bytes());
        }
        let now = worker.clock.at(self.record.started);
        if let Some((name, token)) = self.running.assertion(self.route, self.caller, now)? {
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

    /// Whether the gateway replaces this trace field of the client.
    fn replaces_trace(&self, name: &str) -> bool {
        self.record.trace.is_some()
            && (name.eq_ignore_ascii_case("traceparent") || name.eq_ignore_ascii_case("tracestate"))
    }

    fn http1(&self, worker: &Worker) -> Result<ForwardedHead, Refusal> {
        let request = self.permit.request();
        let mut out = borrow_vec();
        out.extend_from_slice(request.method().as_bytes());
        out.push(b' ');
        request.write_target(&mut out);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let host_at = if self.route.preserve_host {
            put_field(&mut out, "host", request.authority().as_bytes());
            None
        } else {
            Some(out.len())
        };
        for field in self.inbound.fields {
            if !self.replaces_trace(field.name)
                && let Some(value) = self.sieve.passed(field)
            {
                put_field(&mut out, field.name, &value);
            }
        }
        out.extend_from_slice(&self.peer.forwarded_http1);
        if let Some(caller) = self.told() {
            out.extend_from_slice(&caller.http1_block);
        }
        if let Some(consent) = self.consent {
            out.extend_from_slice(&consent.http1_block);
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

    fn http2(&self, worker: &Worker) -> Result<ForwardedHead, Refusal> {
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
            if let Some(value) = self.sieve.passed(field) {
                append(field.name, &value);
            } else if field.name.eq_ignore_ascii_case("te") && field.value.eq_ignore_ascii_case(b"trailers") {
                append("te", b"trailers"); // HTTP/2 keeps only this value (RFC 9113 §8.2.2)
            }
        }
        self.standing_fields(&mut append);
        self.own_fields(worker, &mut append)?;
        if let Framing::Length(n) = self.inbound.framing
            && (n > 0 || self.inbound.has_length)
        {
            append("content-length", n.to_string().as_bytes());
        }
        let upstream = self.running.config.upstream_of(self.route);
        let mut target = Vec::new();
        canonical.write_target(&mut target);
        let tls = upstream.is_some_and(|upstream| upstream.tls.is_some());
        let uri = http2_uri(tls, canonical.authority(), target)?;
        let mut request = Request::new(());
        *request.method_mut() =
            canonical.method().parse().map_err(|_| Refusal::Head(HeadFault::FirstLine))?;
        *request.uri_mut() = uri;
        *request.headers_mut() = fields;
        Ok(ForwardedHead::Http2 { request: Box::new(request), own_host: !self.route.preserve_host })
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

/// Sends a permitted request and relays its response. Returns a refusal as long as no part of the
/// upstream's response was passed on.
pub(crate) async fn exchange<D: Downstream>(
    outbound: ForwardedRequest,
    down: &mut D,
    deadline: &Deadline,
    record: &mut RequestRecord,
) -> Result<Relayed, Refusal> {
    let Some(place) = outbound.pool.enter() else { return Err(Refusal::Overloaded) };
    record.let_through();
    let lease = match outbound.pool.lease_idle() {
        Some(lease) => Ok(lease),
        None => awaited(&outbound.pool, IdleConnections::Reuse, &outbound.terms, record).await,
    };
    let result = match lease {
        Ok(lease) => over(lease, place, outbound, down, deadline, record).await,
        Err(refusal) => Err(refusal),
    };
    record.exchanged(result.as_ref().is_ok_and(|relayed| relayed.status.is_some()));
    result
}

/// Waits for a connection, then checks again: the credential may have been revoked meanwhile.
async fn awaited(
    pool: &Rc<Pool>,
    idle: IdleConnections,
    terms: &Terms,
    record: &RequestRecord,
) -> Result<Lease, Refusal> {
    let lease = pool.lease(idle).await.map_err(|e| unreachable(&e))?;
    // Boxed, as connecting is: this happens once per connection.
    Box::pin(may_be_sent(record, terms.expiry.as_ref())).await.map_err(Refusal::unfit)?;
    Ok(lease)
}

fn unreachable(e: &ConnectError) -> Refusal {
    tracing::debug!(error = %e, "upstream unreachable");
    Refusal::UpstreamUnreachable
}

async fn over<D: Downstream>(
    lease: Lease,
    _place: RequestSlot,
    outbound: ForwardedRequest,
    down: &mut D,
    deadline: &Deadline,
    record: &mut RequestRecord,
) -> Result<Relayed, Refusal> {
    // Recorded now: an exchange that is cut never reaches `settle`.
    record.endpoint = Some(lease.endpoint);
    let exchange = Exchange { deadline, terms: &outbound.terms, record };
    match outbound.head {
        ForwardedHead::Http1 { bytes, host_at } => {
            let (framing, head_request) = (outbound.framing, outbound.head_request);
            let plan = Http1Plan { head: bytes, host_at, framing, head_request };
            over_http1(lease, outbound.pool, plan, down, exchange).await
        }
        ForwardedHead::Http2 { request, own_host } => {
            let plan = Http2Plan { request, own_host, end: outbound.framing == Framing::Length(0) };
            over_http2(lease, outbound.pool, plan, down, exchange).await
        }
    }
}

struct Http1Plan {
    head: Vec<u8>,
    host_at: Option<usize>,
    framing: Framing,
    head_request: bool,
}

struct Http2Plan {
    request: Box<Request<()>>,
    own_host: bool,
    end: bool,
}

impl Http2Plan {
    /// Opens a stream with the request, for the endpoint of the lease.
    fn begin(&self, lease: &mut Lease) -> Result<Result<ClientStream, h2::Error>, Refusal> {
        let mut request = Request::clone(&self.request);
        if self.own_host {
            let mut uri = std::mem::take(request.uri_mut()).into_parts();
            uri.authority = Some(lease.host().parse().map_err(|_| Refusal::UpstreamUnreachable)?);
            *request.uri_mut() = Uri::from_parts(uri).map_err(|_| Refusal::UpstreamUnreachable)?;
        }
        let LeasedLink::Http2(stream) = &mut lease.link else { return Err(Refusal::UpstreamUnreachable) };
        let head_request = request.method() == Method::HEAD;
        let opened = stream.send.send_request(request, self.end);
        Ok(opened
            .map(|(response, body)| ClientStream::new(response, (!self.end).then_some(body), head_request)))
    }
}

fn host_line(lease: &Lease) -> String {
    format!("host: {}\r\n", lease.host())
}

/// An exchange on its upstream connection: its deadline, limits and record.
struct Exchange<'e> {
    deadline: &'e Deadline,
    terms: &'e Terms,
    record: &'e mut RequestRecord,
}

async fn over_http1<D: Downstream>(
    mut lease: Lease,
    pool: Rc<Pool>,
    mut plan: Http1Plan,
    down: &mut D,
    exchange: Exchange<'_>,
) -> Result<Relayed, Refusal> {
    let Exchange { deadline, terms, record } = exchange;
    if let Some(at) = plan.host_at {
        plan.head.splice(at..at, host_line(&lease).bytes());
    }
    let Some(connection) = lease.http1() else { return Err(Refusal::UpstreamUnreachable) };
    connection.put_head(plan.head);
    connection.frame_body(plan.framing);
    connection.head_request = plan.head_request;
    let mut progress = Progress::default();
    loop {
        let Some(connection) = lease.http1() else { return Err(Refusal::UpstreamUnreachable) };
        let relayed = relay(down, connection, deadline, terms, &mut progress, record).await;
        let stale =
            matches!(relayed.fault, Some(ExchangeError::UpstreamClosed(_))) && relayed.status.is_none();
        if stale && lease.reused && lease.http1().is_some_and(|c| !c.sent()) {
            // The peer closed an idle connection. No byte was sent, so this is not a repetition.
            lease.retried();
            let mut fresh = awaited(&pool, IdleConnections::Avoid, terms, record).await?;
            if let (Some(new), Some(old)) = (fresh.http1(), lease.http1())
                && new.take_over(old)
            {
                if let Some(at) = plan.host_at {
                    // The `Host` of the previous endpoint is wrong for this one.
                    let (old, host) = (at..at + host_line(&lease).len(), host_line(&fresh));
                    if let Some(new) = fresh.http1() {
                        new.out().splice(old, host.bytes());
                    }
                }
                lease = fresh;
                continue;
            }
        }
        return settle(lease, relayed, record);
    }
}

async fn over_http2<D: Downstream>(
    mut lease: Lease,
    pool: Rc<Pool>,
    plan: Http2Plan,
    down: &mut D,
    exchange: Exchange<'_>,
) -> Result<Relayed, Refusal> {
    let Exchange { deadline, terms, record } = exchange;
    let mut retry = true;
    loop {
        match plan.begin(&mut lease)? {
            Ok(mut up) => {
                let mut progress = Progress::default();
                let relayed = relay(down, &mut up, deadline, terms, &mut progress, record).await;
                let anew = relayed.status.is_none() && progress.is_untouched(plan.end);
                if !(anew && is_unprocessed(relayed.fault.as_ref()) && std::mem::take(&mut retry)) {
                    return settle(lease, relayed, record);
                }
                tracing::debug!(fault = ?relayed.fault, "upstream http/2 request was not processed");
                lease.retried();
                lease = awaited(&pool, IdleConnections::Avoid, terms, record).await?;
            }
            // The connection was going away (GOAWAY) before the stream was opened: nothing was
            // sent.
            Err(error) if lease.reused && std::mem::take(&mut retry) => {
                tracing::debug!(%error, "upstream http/2 connection went away");
                lease.retried();
                lease = awaited(&pool, IdleConnections::Avoid, terms, record).await?;
            }
            Err(error) => {
                tracing::debug!(endpoint = %lease.endpoint(), %error, "upstream http/2 request failed");
                lease.fail(ExchangeFailure::Broken, &error);
                return Err(Refusal::UpstreamClosed);
            }
        }
    }
}

/// Whether the upstream guarantees that it did not process the request (RFC 9113 §8.7). Either it
/// refused the stream, or it went away and announced a last stream below this one; a stream fails
/// of GOAWAY in no other way. A GOAWAY with an error does not count: the request itself may be the
/// reason.
fn is_unprocessed(fault: Option<&ExchangeError>) -> bool {
    let Some(ExchangeError::UpstreamClosed(HttpStreamError::Http2(e))) = fault else { return false };
    e.is_remote()
        && (e.is_reset() && e.reason() == Some(Reason::REFUSED_STREAM)
            || e.is_go_away() && e.reason() == Some(Reason::NO_ERROR))
}

/// Reports the result of an exchange to the endpoint, and returns a refusal when the client has no
/// response yet.
fn settle(lease: Lease, relayed: Relayed, record: &mut RequestRecord) -> Result<Relayed, Refusal> {
    record.endpoint = Some(lease.endpoint);
    let Some(fault) = &relayed.fault else {
        lease.release();
        return Ok(relayed);
    };
    match fault {
        ExchangeError::UpstreamClosed(error) | ExchangeError::UpstreamProtocol(error) => {
            tracing::debug!(endpoint = %lease.endpoint(), %error, "upstream exchange failed");
            lease.fail(ExchangeFailure::Broken, error);
        }
        // Event streams are idle by design, and their clients accept that: it says nothing about
        // the endpoint.
        ExchangeError::UpstreamTimeout if relayed.status.is_some() => lease.stalled(),
        ExchangeError::UpstreamTimeout => lease.fail(ExchangeFailure::TimedOut, &"no response in time"),
        ExchangeError::ClientBody(error) => tracing::debug!(%error, "request body refused"),
        ExchangeError::ClientGone
        | ExchangeError::ClientStalled
        | ExchangeError::BodyTooLarge
        | ExchangeError::RequestTimeout
        | ExchangeError::Unfit(_) => {}
    }
    match fault.refusal() {
        Some(refusal) if relayed.status.is_none() => Err(refusal),
        _ => Ok(relayed),
    }
}
