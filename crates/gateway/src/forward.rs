//! Forwarding: turns a permit into the upstream's request and sends it.
//!
//! Owns: the request that only a [`Permit`] can create, and that of an authorizer query, each with
//! its limits, the choice of one of several upstreams, and the copies for mirrors.
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
use crate::config::{ChosenDestination, MirrorConfig, OnExpiry, Route};
use crate::external_path::ExternalPath;
use crate::forward::head::{Draft, ForwardedHead, QuestionHead};
use crate::forward_filter::ForwardFilter;
use crate::forwarded_fields::ForwardedFields;
use crate::mirror_body::BodyCopies;
use crate::peer::Peer;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::relay::Terms;
use crate::response_edits;
use crate::retry::RetryState;
use crate::stream_guard::Expiry;
use crate::worker::{ActiveConfig, Worker, template_values};

/// A permitted request, ready to be sent.
pub(crate) struct ForwardedRequest {
    pool: Rc<Pool>,
    head: ForwardedHead,
    framing: Framing,
    head_request: bool,
    terms: Terms,
    selection: Selection,
    /// Sends the copies; called once, when the request has its slot.
    begin_copies: Option<Box<dyn FnOnce()>>,
    copies: Vec<Option<PreparedCopy>>,
}

/// A copy of a request for a mirror, and how many bytes of its body may be held back. (`None` in
/// its place: it cannot be made.)
pub(crate) type PreparedCopy = (Box<ForwardedRequest>, usize);

/// Time limit of a copy where the request itself has none. Mirrors of streams would otherwise read
/// without end.
const MIRROR_LIMIT: Duration = Duration::from_mins(1);

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
    /// Turns a permit into a request, and its copies for mirrors. The forwarded request is the
    /// permit's, byte for byte what was matched and decided. Only the fields and the body framing
    /// come from `inbound`.
    #[allow(clippy::needless_pass_by_value, reason = "a permit is used up by what it permits")]
    pub(crate) fn new(
        permit: Permit<'_>,
        worker: &Worker,
        incoming: Incoming<'_>,
        caller: Option<&Verified>,
        record: &mut RequestRecord,
    ) -> Result<Box<Self>, Refusal> {
        let Incoming { running, inbound, forwarded, .. } = incoming;
        let route = running.config.route(permit.route());
        let Chosen { upstream, entry, selection } =
            choose(route, &permit, worker, incoming, (caller, record))?;
        let changes = route.request_headers_of(entry);
        let is_session = caller.is_some_and(|caller| caller.session.is_some());
        let nominated = (inbound.fields, inbound.nominates);
        let filter = ForwardFilter::new(&running.config, (route, changes), nominated, is_session)
            .without(record.authorizer_answers().flat_map(|answer| &answer.replaced));
        let draft = Draft {
            permit: &permit,
            running,
            peer: incoming.peer,
            route,
            entry,
            upstream,
            changes,
            forwarded,
            inbound,
            filter: &filter,
            caller,
            record,
        };
        let mut request = Self::from_draft(&draft, worker, incoming, entry)?;
        request.selection = selection;
        if !route.mirrors.is_empty() && inbound.upgrade.is_none() {
            request.copies = copies(&draft, worker, incoming);
        }
        let removed = filter.removed();
        drop(filter);
        record.headers_removed = removed;
        Ok(request)
    }

    /// The request of a draft. `entry`: the index of its upstream among several.
    fn from_draft(
        draft: &Draft<'_, '_>,
        worker: &Worker,
        Incoming { running, peer, inbound, .. }: Incoming<'_>,
        entry: Option<usize>,
    ) -> Result<Box<Self>, Refusal> {
        let Draft { permit, route, caller, record, .. } = *draft;
        let pool = running.pool(draft.upstream);
        let head = match pool.config.protocol {
            UpstreamProtocol::Http1 => draft.http1(worker)?,
            UpstreamProtocol::Http2 => draft.http2(worker)?,
        };
        let timeouts = &pool.config.timeouts;
        // An authorizer sends an end only where its own configuration keeps nothing open beyond it.
        let own = caller.filter(|_| route.on_expiry == OnExpiry::Close);
        let expiry = Expiry::new(record.expires_at(own), &worker.clock);
        let (method, framing) = (permit.request().method(), inbound.framing);
        let terms = Terms {
            response_header: route.response_header_timeout.unwrap_or(timeouts.response_header),
            upstream_stall: timeouts.stall,
            response_idle: route.idle_timeout.unwrap_or(timeouts.stall),
            client_stall: peer.listener().timeouts.stall,
            tunnel_idle: route.idle_timeout.unwrap_or(peer.listener().timeouts.idle),
            until: route.request_timeout.map(|limit| ends_after(limit, worker)),
            attempt: route.attempt_timeout,
            body_bytes: route.body_bytes,
            // HTTP/2 has no 101 (RFC 9113 §8.6).
            offered: inbound
                .upgrade
                .filter(|_| pool.config.protocol == UpstreamProtocol::Http1)
                .map(Box::from),
            expiry,
            running: running.clone(),
            external_path: if route.rewrite_responses { external_path(route, permit, &pool) } else { None },
            route: Some(permit.route()),
            entry,
            copies: None,
            retry: RetryState::new(&pool, (method, framing), route.attempt_timeout, route.retries.as_ref()),
        };
        Ok(Box::new(Self {
            selection: Selection::default(),
            pool,
            head,
            framing,
            head_request: method == "HEAD",
            terms,
            begin_copies: None,
            copies: Vec::new(),
        }))
    }

    /// Whether the client sends a body with it.
    pub(crate) fn has_body(&self) -> bool {
        self.framing != Framing::Length(0)
    }

    /// The copies for mirrors, which are not sent yet.
    pub(crate) fn take_copies(&mut self) -> Vec<Option<PreparedCopy>> {
        std::mem::take(&mut self.copies)
    }

    /// Calls `begin` when the request has its slot at its upstream, and copies its body to `bodies`.
    pub(crate) fn mirror(&mut self, begin: Box<dyn FnOnce()>, bodies: Option<BodyCopies>) {
        self.begin_copies = Some(begin);
        self.terms.copies = bodies;
    }

    /// An authorizer query. It needs no permit, because a request waits for it to get one.
    pub(crate) fn question(
        pool: Rc<Pool>,
        question: &QuestionHead<'_>,
        timeout: Duration,
        running: &Rc<ActiveConfig>,
    ) -> Result<Self, Refusal> {
        let head = match pool.config.protocol {
            UpstreamProtocol::Http1 => question.http1(),
            UpstreamProtocol::Http2 => question.http2(pool.config.tls.is_some())?,
        };
        let framing = Framing::Length(question.body_bytes as u64);
        let terms = Terms {
            response_header: timeout,
            upstream_stall: timeout,
            response_idle: timeout,
            client_stall: timeout,
            tunnel_idle: timeout,
            until: None,
            attempt: None,
            body_bytes: None,
            offered: None,
            expiry: None,
            running: running.clone(),
            external_path: None,
            route: None,
            entry: None,
            copies: None,
            retry: RetryState::new(&pool, (question.method, framing), None, None),
        };
        let selection = Selection::default();
        Ok(Self {
            selection,
            pool,
            head,
            framing,
            head_request: question.method == "HEAD",
            terms,
            begin_copies: None,
            copies: Vec::new(),
        })
    }
}

/// Where a request goes.
struct Chosen {
    upstream: usize,
    /// Index among the several upstreams of the route.
    entry: Option<usize>,
    selection: Selection,
}

/// Chooses the upstream of a request, and its endpoint if the client keeps one. What depends on the
/// choice is recorded.
fn choose(
    route: &Route,
    permit: &Permit<'_>,
    worker: &Worker,
    Incoming { inbound, forwarded, .. }: Incoming<'_>,
    (caller, record): (Option<&Verified>, &mut RequestRecord),
) -> Result<Chosen, Refusal> {
    let Some(destination) = &route.destination else { return Err(Refusal::NoRoute) };
    let scheme = permit.request().scheme();
    let mut selection = Selection::default();
    if let Some(affinity) = &route.affinity
        && let Some(client) = affinity::client(affinity, inbound.fields, scheme, caller)
    {
        selection.affinity = Some(client.hash);
        if client.cookie.is_some() {
            record.rare_mut().affinity_cookie = client.cookie;
        }
    }
    let chosen = destination.choose(|| match selection.affinity {
        Some(hash) => affinity::point(hash),
        None => worker.random(),
    });
    let (upstream, entry) = match chosen {
        ChosenDestination::Upstream(upstream, entry) => (upstream, entry),
        ChosenDestination::Refused(status) => return Err(Refusal::NoBackend(status)),
    };
    record.upstream = Some(upstream);
    if let Some(changes) = entry.and_then(|entry| route.response_headers_of(entry)) {
        let values = template_values(caller, inbound, permit.request(), forwarded);
        record.response_edits =
            response_edits::with_changes((route, Some(changes)), scheme, inbound.fields, &values);
    }
    Ok(Chosen { upstream, entry, selection })
}

/// The copies of a request for the mirrors of its route, as far as it belongs to their shares. They
/// contain what the route sends to its upstream, but for changes that are for one of several
/// upstreams only. An assertion is for the mirror that receives it.
fn copies(draft: &Draft<'_, '_>, worker: &Worker, incoming: Incoming<'_>) -> Vec<Option<PreparedCopy>> {
    let Draft { running, route, caller, inbound, record, .. } = *draft;
    let changes = route.request_headers.as_ref();
    let is_session = caller.is_some_and(|caller| caller.session.is_some());
    let nominated = (inbound.fields, inbound.nominates);
    let copy = |mirror: &MirrorConfig| {
        let filter = ForwardFilter::new(&running.config, (route, changes), nominated, is_session)
            .without(record.authorizer_answers().flat_map(|answer| &answer.replaced));
        let draft = Draft { upstream: mirror.upstream, entry: None, changes, filter: &filter, ..*draft };
        let mut request = ForwardedRequest::from_draft(&draft, worker, incoming, None).ok()?;
        let terms = &mut request.terms;
        // The body is copied once, and nobody reads the response.
        (terms.retry, terms.external_path) = (None, None);
        terms.until.get_or_insert_with(|| ends_after(MIRROR_LIMIT, worker));
        Some((request, mirror.buffer))
    };
    route.mirrors.iter().filter(|mirror| mirror.share.takes(|| worker.random())).map(copy).collect()
}

/// The time after this limit, in milliseconds since the worker's start.
fn ends_after(limit: Duration, worker: &Worker) -> u64 {
    let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    worker.deadlines.now_millis().saturating_add(millis)
}

/// How paths in the response change.
#[inline(never)]
fn external_path(route: &Route, permit: &Permit<'_>, pool: &Pool) -> Option<Box<ExternalPath>> {
    let request = permit.request();
    let origin = format!("{}://{}", request.scheme().as_str(), request.authority());
    let endpoints = pool.config.endpoints.iter().map(|endpoint| endpoint.address.authority());
    let authorities = std::iter::once(request.authority().to_owned()).chain(endpoints);
    let authorities = authorities.chain(route.rewrite_host.as_deref().map(str::to_owned));
    ExternalPath::new(route.rewrite.as_ref()?, origin, authorities.collect()).map(Box::new)
}
