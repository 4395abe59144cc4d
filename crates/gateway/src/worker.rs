//! Worker state: everything that a request needs without asking another thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use auth::credential;
use auth::headers::TemplateValues;
use auth::request::{Canonical, Field};
use credentials::assertion::AssertionMinter;
use credentials::authenticate::{Authenticator, Verified};
use credentials::events;
use http_engine::clock::{CoarseClock, Now};
use http_engine::deadline::Deadlines;
use http_engine::labels::{Consulted, Protocol};
use http_engine::parsed_request::ParsedRequest;
use http_engine::upstream::pool::Pool;
use login::Login;
use telemetry::access_log;
use telemetry::metrics::{self, ListenerMetrics};
use telemetry::phases::nanos_between;
use telemetry::trace::{FinishedRequest, Incoming, Tracer};
use telemetry::trace_context::{IdGenerator, TraceId};

use crate::authorizer::routed::{ActiveAuthorizer, RoutedAuthorizers};
use crate::config::{Config, Route};
use crate::forwarded_fields::ForwardedFields;
use crate::peer::Peer;
use crate::per_worker::{Pools, RequestCounts, RouteCounts};
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::review::Reviewer;

/// The state of one worker thread.
pub(crate) struct Worker {
    /// This worker's shard of the metrics.
    pub(crate) metrics: Rc<metrics::WorkerMetrics>,
    /// Deadlines of all its connections.
    pub(crate) deadlines: Rc<Deadlines>,
    /// Wall and monotonic time; shared with the timed requests.
    pub(crate) clock: Rc<CoarseClock>,
    /// Access log lines that are not yet passed to the log's writer.
    pub(crate) log: RefCell<Option<access_log::Buffer>>,
    /// Trace exporter, when traces are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Generates the identifiers of spans.
    ids: RefCell<IdGenerator>,
    /// The current configuration, with this thread's state for it.
    pub(crate) active_config: RefCell<Rc<ActiveConfig>>,
    /// Number of slots that idle connections were told to free and that no new connection has taken
    /// yet.
    pub(crate) freed_slots: Cell<usize>,
    /// Set while draining: milliseconds since the worker's start when idle connections close.
    pub(crate) draining: Cell<Option<u64>>,
    /// Open connections of this worker; the others read it to balance new ones.
    pub(crate) open: Arc<AtomicUsize>,
    /// Counts requests, to time the phases of every n-th.
    sample: Cell<u32>,
}

/// The access token of a session, for a route that forwards it, with the name of the field that
/// carries it.
pub(crate) fn access_token<'v>(
    route: &Route,
    caller: Option<&'v Verified>,
) -> Option<(&'static str, &'v str)> {
    let session = caller.filter(|_| route.forward_access_token)?.session.as_ref()?;
    Some((ACCESS_TOKEN, session.access_token.as_ref()?.as_str()))
}

/// What the placeholders of field values stand for in a request.
pub(crate) fn template_values<'v>(
    caller: Option<&'v Verified>,
    inbound: &'v ParsedRequest<'_>,
    request: &Canonical<'_>,
    forwarded: &ForwardedFields,
) -> TemplateValues<'v> {
    let session = caller.and_then(|caller| caller.session.as_ref());
    let presented = || {
        let bearer = credential::bearer(inbound.fields, request.query()).ok().flatten()?;
        str::from_utf8(bearer.checked().ok()?).ok()
    };
    let access_token = match (caller, session) {
        (Some(_), Some(session)) => session.access_token.as_ref().map(|token| token.as_str()),
        // On a public route nobody has verified the token.
        (Some(_), None) => presented(),
        (None, _) => None,
    };
    TemplateValues {
        identity: caller.map(|caller| &caller.facts.identity),
        access_token,
        id_token: session.and_then(|session| Some(session.id_token.as_ref()?.as_str())),
        client_address: forwarded.client,
    }
}

/// Field that carries the access token of a session, with the name that oauth2-proxy uses.
pub(crate) const ACCESS_TOKEN: &str = "x-forwarded-access-token";

/// A configuration in use on one worker.
pub(crate) struct ActiveConfig {
    pub(crate) config: Arc<Config>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) reviewer: Option<Arc<Reviewer>>,
    /// Those of the file, by index.
    pub(crate) authorizers: Rc<[ActiveAuthorizer]>,
    /// Those of single routes.
    pub(crate) routed_authorizers: Arc<RoutedAuthorizers>,
    pub(crate) login: Option<Arc<Login>>,
    /// Whether browsers keep sessions in frames of other sites.
    pub(crate) is_framed: bool,
    pub(crate) events: Option<Arc<events::Receiver>>,
    pub(crate) minter: Option<Arc<AssertionMinter>>,
    /// The connections of each upstream.
    pub(crate) pools: Pools,
    /// The counts of each route.
    pub(crate) counts: RouteCounts,
}

impl ActiveConfig {
    /// The connections of an upstream.
    pub(crate) fn pool(&self, upstream: usize) -> Rc<Pool> {
        self.pools.get(&self.config.routing, upstream)
    }

    /// An authorizer by its number; `None`: its route is gone.
    pub(crate) fn authorizer(&self, at: usize) -> Option<ActiveAuthorizer> {
        let of_file = self.authorizers.get(at).cloned();
        of_file.or_else(|| Some(self.routed_authorizers.get(at, self.config.routing.authorizer(at)?)))
    }

    /// The signed assertion of the caller for an upstream of a route, with the name of the field
    /// that carries it. `None` for the upstream: another proxy forwards, and the audience is the
    /// route.
    pub(crate) fn assertion(
        &self,
        (route, upstream): (&Route, Option<usize>),
        caller: Option<&Verified>,
        now: impl FnOnce() -> Now,
    ) -> Result<Option<(&str, Arc<str>)>, Refusal> {
        let (Some(caller), Some(minter), Some(assertion)) = (caller, &self.minter, &self.config.assertion)
        else {
            return Ok(None);
        };
        let audience = upstream.map_or(&route.name, |upstream| &self.config.routing.upstream(upstream).name);
        // An upstream that is configured to get an assertion must not receive a request without
        // one.
        let token = caller.assertion(minter, audience, now()).map_err(|error| {
            tracing::error!(%error, "identity assertion cannot be signed, request refused");
            Refusal::AuthUnavailable { retry_after: 1 }
        })?;
        Ok(Some((&assertion.header, token)))
    }
}

/// The phases of one request in this many are timed: reading the clock seven times costs as much as
/// parsing.
const SAMPLE_EVERY: u32 = 16;

/// A request that is counted as in flight.
pub(crate) struct InFlight(Rc<metrics::WorkerMetrics>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.request_ended();
    }
}

/// Counts a connection by its protocol until dropped, even by a panic.
pub(crate) struct ConnectionProtocol {
    worker: Rc<metrics::WorkerMetrics>,
    counts: Arc<ListenerMetrics>,
    protocol: Protocol,
}

impl ConnectionProtocol {
    pub(crate) fn new(worker: &Worker, counts: Arc<ListenerMetrics>, protocol: Protocol) -> Self {
        counts.opened(&worker.metrics, protocol);
        Self { worker: worker.metrics.clone(), counts, protocol }
    }

    /// Changes the protocol that the connection counts under.
    pub(crate) fn switch(&mut self, protocol: Protocol) {
        self.counts.closed(&self.worker, std::mem::replace(&mut self.protocol, protocol));
        self.counts.opened(&self.worker, protocol);
    }
}

impl Drop for ConnectionProtocol {
    fn drop(&mut self) {
        self.counts.closed(&self.worker, self.protocol);
    }
}

/// The parts of a worker.
pub(crate) struct WorkerParts {
    pub(crate) metrics: Rc<metrics::WorkerMetrics>,
    pub(crate) clock: CoarseClock,
    pub(crate) log: Option<access_log::Buffer>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) running: ActiveConfig,
    pub(crate) deadlines: Rc<Deadlines>,
    /// Its open connections, as the other workers see them.
    pub(crate) open: Arc<AtomicUsize>,
}

impl Worker {
    /// A worker made of its parts.
    pub(crate) fn new(parts: WorkerParts) -> Rc<Self> {
        let WorkerParts { metrics, clock, log, tracer, running, deadlines, open } = parts;
        let random = aws_lc_rs::rand::SystemRandom::new();
        let mut seed = [0; 32];
        // Identifiers of spans need not be secret; without entropy they start at a fixed value.
        let _ = aws_lc_rs::rand::SecureRandom::fill(&random, &mut seed);
        Rc::new(Self {
            metrics,
            deadlines,
            clock: Rc::new(clock),
            log: RefCell::new(log),
            tracer,
            ids: RefCell::new(IdGenerator::from_seed(seed)),
            active_config: RefCell::new(Rc::new(running)),
            freed_slots: Cell::new(0),
            draining: Cell::new(None),
            open,
            sample: Cell::new(0),
        })
    }

    /// The current configuration. A request keeps the one it began with.
    pub(crate) fn active_config(&self) -> Rc<ActiveConfig> {
        self.active_config.borrow().clone()
    }

    /// Whether the phases of the request that begins now are timed.
    pub(crate) fn times_phases(&self) -> bool {
        let n = self.sample.get();
        self.sample.set(if n + 1 == SAMPLE_EVERY { 0 } else { n + 1 });
        n == 0 || self.tracer.as_ref().is_some_and(|tracer| tracer.is_recording())
    }

    /// Whether requests are described for a log or a span.
    pub(crate) fn needs_description(&self) -> bool {
        self.tracer.is_some() || self.log.borrow().is_some()
    }

    /// Passes the lines of the access log to its writer.
    pub(crate) fn flush_log(&self) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.flush();
        }
    }

    /// Counts a new request as in flight until the returned value is dropped.
    pub(crate) fn in_flight(&self) -> InFlight {
        self.metrics.request_begun();
        InFlight(self.metrics.clone())
    }

    /// Updates the coarse time with a reading that was made anyway.
    pub(crate) fn note_time(&self, now: Instant) {
        self.deadlines.set_now(now);
    }

    /// Assigns the request to a trace, when traces are exported.
    pub(crate) fn begin_trace(&self, fields: &[Field<'_>], record: &mut RequestRecord) {
        let Some(tracer) = &self.tracer else { return };
        if record.trace.is_some() {
            return; // the second pass of a request whose token was not cached
        }
        let incoming = Incoming::from_fields(fields.iter().map(|f| (f.name, f.value)));
        let trace = tracer.begin(incoming.as_ref().map(|i| &i.parent), &mut self.ids.borrow_mut());
        let state = incoming.and_then(|i| i.state).map(|s| s.as_str().to_owned());
        record.trace = Some((trace, state));
    }

    /// A random number, which is not secret.
    pub(crate) fn random(&self) -> u64 {
        self.ids.borrow_mut().next_number()
    }

    /// The id of a refused request: that of its trace, if there is one.
    pub(crate) fn request_id(&self, record: &mut RequestRecord) -> TraceId {
        let trace = record.trace.as_ref().map(|(trace, _)| trace.trace_id());
        let id = record.request_id.or(trace);
        *record.request_id.insert(id.unwrap_or_else(|| self.ids.borrow_mut().next_trace_id()))
    }

    /// Counts and logs a request that has ended. Also called during unwinding: nothing here may
    /// panic.
    pub(crate) fn finish(&self, running: &ActiveConfig, peer: &Peer, record: &RequestRecord) {
        let total = nanos_between(record.started, self.clock.monotonic());
        match running.counts.of(&running.config.routing, record.route, record.scope) {
            RequestCounts::Route(counts) => {
                counts.count_finished(&self.metrics, record.outcome, record.status, total);
                counts.count_bytes(&self.metrics, record.bytes_up, record.bytes_down);
                if record.headers_removed > 0 {
                    counts.headers_removed(&self.metrics, record.headers_removed);
                }
            }
            RequestCounts::Listener(counts, route) => {
                counts.count_finished(&self.metrics, record.outcome, record.status, total);
                counts.count_bytes(&self.metrics, record.bytes_up, record.bytes_down);
                if record.headers_removed > 0 {
                    counts.headers_removed(&self.metrics, record.headers_removed);
                }
                if let Some(route) = route {
                    route.count_finished(&self.metrics, record.status, total);
                }
            }
        }
        match record.reason {
            Some(reason) if record.was_forwarded => self.metrics.metrics().count_exchange_failure(reason),
            Some(reason) => self.metrics.metrics().count_denial(reason),
            None => {}
        }
        if let Some(cache_use) = record.cache {
            self.metrics.count_cache_lookup(cache_use);
        }
        for consent in record.consents().filter(|consent| consent.from_cache) {
            if let Some(active) = running.authorizer(consent.authorizer) {
                active.counts.count_result(&self.metrics, Consulted::Hit);
            }
        }
        if let Some(phases) = &record.phases {
            self.metrics.record_phases(phases);
        }
        if record.text.is_some() {
            self.log_and_trace(running, peer, record, total);
        }
    }

    /// Writes the log line and the spans of a request.
    fn log_and_trace(&self, running: &ActiveConfig, peer: &Peer, record: &RequestRecord, total: u64) {
        let route = record.route.map(|at| running.config.route(at));
        let upstream = record.upstream.map(|at| running.config.routing.upstream(at));
        let forwarded = upstream.zip(record.endpoint.as_deref()).map(|(upstream, endpoint)| {
            let nanos =
                record.forwarded.map_or(0, |at| total.saturating_sub(nanos_between(record.started, at)));
            let retries = record.retries;
            access_log::ForwardedTo { upstream: &upstream.name, endpoint, duration_nanos: nanos, retries }
        });
        let target = record.text.as_ref().filter(|t| !t.method.is_empty());
        let time = self.clock.at(record.started).wall;
        let line = access_log::AccessRecord {
            time,
            listener: &peer.listener().name,
            peer: peer.address,
            client: record.client,
            protocol: record.protocol,
            target: target.map(|t| access_log::RequestTarget {
                method: &t.method,
                host: &t.host,
                path: &t.path,
                other_path: t.other_path.as_deref(),
            }),
            status: record.status,
            outcome: record.outcome,
            reason: record.reason,
            upstream_fault: record.rare().and_then(|rare| rare.upstream_fault.as_deref()),
            route: route.map(|r| &*r.name),
            identity: record.caller.as_ref().map(|c| &c.facts.identity),
            forwarded,
            bytes_in: record.bytes_up,
            bytes_out: record.bytes_down,
            total_nanos: total,
            cache_result: record.cache,
            request_id: record.request_id,
            trace: record.trace.as_ref().map(|(trace, _)| trace.trace_id()),
        };
        if let (Some(tracer), Some((trace, state)), Some(phases)) =
            (&self.tracer, &record.trace, &record.phases)
        {
            let start_unix_nanos = time.as_millis().saturating_mul(1_000_000);
            tracer.finish(&FinishedRequest {
                trace,
                state: state.as_deref(),
                start_unix_nanos,
                phases,
                record: &line,
            });
        }
        // Borrowed already only when a panic inside the log unwinds.
        if let Ok(mut log) = self.log.try_borrow_mut()
            && let Some(log) = &mut *log
        {
            log.append(&line);
        }
    }

    /// Begins to drain: responses ask to close the connection, and idle connections close after
    /// `grace`.
    pub(crate) fn drain(&self, grace: Duration) {
        let millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.draining.set(Some(self.deadlines.now_millis().saturating_add(millis)));
        self.deadlines.wake_all();
    }
}
