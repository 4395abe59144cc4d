//! Forwarding: turns a permit into the upstream's request and sends it.
//!
//! Owns: the request that only a [`Permit`] can create, and that of an authorizer query, each with
//! its limits.
//! Does not own: the bytes of its head ([`head`]), the exchange that follows ([`exchange`]), which
//! client fields pass ([`crate::forward_filter`]), connections, the relay, whether the request may
//! still be sent ([`crate::stream_guard`]).

pub(crate) mod exchange;
pub(crate) mod head;

use std::rc::Rc;
use std::time::Duration;

use auth::decide::Permit;
use credentials::authenticate::Verified;
use http_engine::config::UpstreamProtocol;
use http_engine::head::Framing;
use http_engine::parsed_request::ParsedRequest;
use http_engine::upstream::pool::{Pool, Selection};

use crate::affinity;
use crate::config::{OnExpiry, Route};
use crate::external_path::ExternalPath;
use crate::forward::head::{Draft, ForwardedHead, QuestionHead};
use crate::forward_filter::ForwardFilter;
use crate::forwarded_fields::ForwardedFields;
use crate::peer::Peer;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::relay::Terms;
use crate::retry::RetryState;
use crate::stream_guard::Expiry;
use crate::worker::{ActiveConfig, Worker};

/// A permitted request, ready to be sent.
pub(crate) struct ForwardedRequest {
    pool: Rc<Pool>,
    head: ForwardedHead,
    framing: Framing,
    head_request: bool,
    terms: Terms,
    selection: Selection,
}

/// A request as it came in: the configuration that it holds, its connection, its head, and the
/// forwarding fields for its upstream.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) running: &'a Rc<ActiveConfig>,
    pub(crate) peer: &'a Peer,
    pub(crate) inbound: &'a ParsedRequest<'a>,
    pub(crate) forwarded: &'a ForwardedFields,
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
    ) -> Result<Box<Self>, Refusal> {
        let Incoming { running, peer, inbound, forwarded } = incoming;
        let consent = record.authorizer_answer();
        let route = running.config.route(permit.route());
        let Some(upstream) = route.upstream else { return Err(Refusal::NoRoute) };
        let pool = running.pool(upstream);
        let filter = ForwardFilter::new(
            &running.config,
            route,
            (inbound.fields, inbound.nominates),
            caller.is_some_and(|caller| caller.session.is_some()),
        );
        let draft = Draft {
            permit: &permit,
            running,
            route,
            forwarded,
            inbound,
            filter: &filter,
            caller,
            authorizer_answer: consent,
            record,
        };
        let head = match pool.config.protocol {
            UpstreamProtocol::Http1 => draft.http1(worker)?,
            UpstreamProtocol::Http2 => draft.http2(worker)?,
        };
        record.headers_removed = filter.removed();
        let timeouts = &pool.config.timeouts;
        // An authorizer sends an end only where its own configuration keeps nothing open beyond it.
        let own = caller.filter(|_| route.on_expiry == OnExpiry::Close);
        let expiry = Expiry::new(record.expires_at(own), &worker.clock);
        let method = permit.request().method();
        let (retry, head_request) = (RetryState::new(&pool, method, inbound.framing), method == "HEAD");
        let mut selection = Selection::default();
        if let Some(affinity) = &route.affinity {
            let scheme = permit.request().scheme();
            if let Some(client) = affinity::client(affinity, inbound.fields, scheme, caller) {
                selection.affinity = Some(client.hash);
                if client.cookie.is_some() {
                    record.rare_mut().affinity_cookie = client.cookie;
                }
            }
        }
        let terms = Terms {
            response_header: route.response_header_timeout.unwrap_or(timeouts.response_header),
            upstream_stall: timeouts.stall,
            response_idle: route.idle_timeout.unwrap_or(timeouts.stall),
            client_stall: peer.listener().timeouts.stall,
            tunnel_idle: route.idle_timeout.unwrap_or(peer.listener().timeouts.idle),
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
            external_path: if route.rewrite_responses { external_path(route, &permit, &pool) } else { None },
            route: Some(permit.route()),
            retry,
        };
        Ok(Box::new(Self { selection, pool, head, framing: inbound.framing, head_request, terms }))
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
            response_idle: timeout,
            client_stall: timeout,
            tunnel_idle: timeout,
            until: None,
            body_bytes: None,
            offered: None,
            expiry: None,
            running: running.clone(),
            external_path: None,
            route: None,
            retry: RetryState::new(&pool, question.method, Framing::Length(0)),
        };
        let selection = Selection::default();
        Ok(Self {
            selection,
            pool,
            head,
            framing: Framing::Length(0),
            head_request: question.method == "HEAD",
            terms,
        })
    }
}

/// How paths in the response change.
#[inline(never)]
fn external_path(route: &Route, permit: &Permit<'_>, pool: &Pool) -> Option<Box<ExternalPath>> {
    let request = permit.request();
    let origin = format!("{}://{}", request.scheme().as_str(), request.authority());
    let endpoints = pool.config.endpoints.iter().map(|endpoint| endpoint.address.authority());
    let authorities = std::iter::once(request.authority().to_owned()).chain(endpoints);
    Some(Box::new(ExternalPath::new(route.rewrite.as_ref()?, origin, authorities.collect())))
}
