//! Pool: the connections of one upstream on one worker, and the choice of the endpoint for each
//! request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::Semaphore;

use super::connect::{ConnectError, MAX_STREAMS, handshake_http2, open_stream};
use crate::config::{Upstream, UpstreamProtocol};
use crate::deadline::Deadlines;
use crate::endpoint_stats::{EndpointStats, OpenConnection};
use crate::http1::connection::Connection;

/// Maximum number of HTTP/2 connections per endpoint and worker. Another is opened when all streams
/// of the open ones are in use.
const MAX_HTTP2_CONNECTIONS: usize = 8;

/// The connections of one upstream on one worker.
pub struct Pool {
    /// The configuration it was created for.
    pub config: Arc<Upstream>,
    endpoints: Vec<EndpointState>,
    in_flight: Cell<usize>,
    /// Whether the pool was replaced by a reload. Running exchanges finish; no connection is kept.
    retired: Cell<bool>,
    /// Position for round robin among equally loaded endpoints.
    next_endpoint: Cell<usize>,
    deadlines: Rc<Deadlines>,
}

struct EndpointState {
    idle: RefCell<Vec<Idle>>,
    http2: RefCell<Vec<Http2Connection>>,
    /// Allows one HTTP/2 handshake at a time; requests that arrive meanwhile share the new
    /// connection.
    connecting: Semaphore,
    in_flight: Cell<usize>,
    failures: Cell<u32>,
    /// End of the ejection in milliseconds since the worker started; 0: not ejected.
    ejected_until: Cell<u64>,
    stats: Rc<dyn EndpointStats>,
}

struct Idle {
    connection: Box<Connection>,
    since: u64,
}

/// An HTTP/2 connection that accepts further streams.
struct Http2Connection {
    send: SendRequest<Bytes>,
    /// Number of leased streams. Its address also identifies the connection.
    streams: Rc<Cell<usize>>,
    /// When a stream was last seen in use.
    since: u64,
}

/// A slot for a request in flight; freed on drop.
pub struct RequestSlot {
    pool: Rc<Pool>,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.pool.in_flight.set(self.pool.in_flight.get() - 1);
    }
}

/// A connection for one exchange with one endpoint.
pub struct Lease {
    pool: Rc<Pool>,
    /// Index of the endpoint.
    pub endpoint: usize,
    /// The leased connection or stream.
    pub link: LeasedLink,
    /// Whether the connection comes from the pool, so the peer may have closed it meanwhile.
    pub reused: bool,
}

/// The leased connection or stream.
pub enum LeasedLink {
    /// An exclusive HTTP/1 connection.
    Http1(Option<Box<Connection>>),
    /// A slot for a stream on a shared HTTP/2 connection.
    Http2(Http2Stream),
}

/// A slot for a stream of a connection; freed on drop.
pub struct Http2Stream {
    /// Handle that opens the stream.
    pub send: SendRequest<Bytes>,
    streams: Rc<Cell<usize>>,
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.streams.set(self.streams.get() - 1);
    }
}

impl Http2Connection {
    fn stream(&self) -> Http2Stream {
        self.streams.set(self.streams.get() + 1);
        Http2Stream { send: self.send.clone(), streams: self.streams.clone() }
    }

    /// Whether the connection was closed or is shutting down (GOAWAY).
    fn is_closed(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        matches!(self.send.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }
}

/// Whether a lease may use a connection that was idle. Its peer may have closed it meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleConnections {
    /// Use an idle connection if there is one.
    Reuse,
    /// Open an HTTP/1 connection. A shared HTTP/2 connection is still used.
    Avoid,
}

/// How an exchange failed through its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeFailure {
    /// The endpoint broke the connection or the protocol.
    Broken,
    /// The endpoint did not answer in time.
    TimedOut,
}

impl Pool {
    /// A pool without connections; `stats` has one element for each endpoint of `config`.
    pub fn new(
        config: Arc<Upstream>,
        stats: Vec<Rc<dyn EndpointStats>>,
        deadlines: Rc<Deadlines>,
    ) -> Rc<Self> {
        // Ejections by a previous pool do not carry over.
        for stats in &stats {
            stats.readmitted();
        }
        let endpoints = stats
            .into_iter()
            .map(|stats| EndpointState {
                idle: RefCell::default(),
                http2: RefCell::default(),
                connecting: Semaphore::new(1),
                in_flight: Cell::new(0),
                failures: Cell::new(0),
                ejected_until: Cell::new(0),
                stats,
            })
            .collect();
        Rc::new(Self {
            config,
            endpoints,
            in_flight: Cell::new(0),
            retired: Cell::new(false),
            next_endpoint: Cell::new(0),
            deadlines,
        })
    }

    /// Closes idle connections and keeps none from now on. An exchange may hold the pool as long as
    /// a tunnel is open, but `sweep` is not called again. The successor reports the state of the
    /// endpoints.
    pub fn retire(&self) {
        self.retired.set(true);
        for state in &self.endpoints {
            state.idle.borrow_mut().clear();
            // An HTTP/2 connection closes itself once its last handle and all its streams are gone.
            state.http2.borrow_mut().clear();
        }
    }

    /// A slot for a request in flight; `None`: the upstream's limit is reached.
    pub fn acquire_slot(self: &Rc<Self>) -> Option<RequestSlot> {
        let n = self.in_flight.get();
        if n >= self.config.max_requests {
            return None;
        }
        self.in_flight.set(n + 1);
        Some(RequestSlot { pool: self.clone() })
    }

    /// A connection to the endpoint with the fewest requests in flight. If the endpoint cannot be
    /// reached, that counts as its failure and the next one is tried: nothing was sent yet.
    pub async fn lease(self: &Rc<Self>, idle: IdleConnections) -> Result<Lease, ConnectError> {
        let mut tried = Vec::new();
        loop {
            let at = self.choose(&tried);
            match self.lease_from(at, idle).await {
                Ok(lease) => return Ok(lease),
                Err(e) => {
                    self.endpoints[at].stats.connect_failed();
                    self.record_failure(at, &e);
                    tried.push(at);
                    if tried.len() >= self.endpoints.len().min(3) {
                        return Err(e);
                    }
                    self.endpoints[at].stats.retried();
                }
            }
        }
    }

    /// An idle connection, or a stream on one with free streams, without waiting. The common case
    /// needs no future.
    pub fn lease_idle(self: &Rc<Self>) -> Option<Lease> {
        let at = self.choose(&[]);
        let state = &self.endpoints[at];
        let link = match self.config.protocol {
            UpstreamProtocol::Http1 => LeasedLink::Http1(Some(state.pop_idle()?)),
            UpstreamProtocol::Http2 => LeasedLink::Http2(state.http2_stream()?),
        };
        Some(self.leased(at, link, true))
    }

    /// Connecting is boxed: it happens once per connection, and would enlarge the future of every
    /// request.
    async fn lease_from(self: &Rc<Self>, at: usize, idle: IdleConnections) -> Result<Lease, ConnectError> {
        let (state, endpoint) = (&self.endpoints[at], &self.config.endpoints[at]);
        match self.config.protocol {
            UpstreamProtocol::Http1 => {
                if idle == IdleConnections::Reuse
                    && let Some(connection) = state.pop_idle()
                {
                    return Ok(self.leased(at, LeasedLink::Http1(Some(connection)), true));
                }
                let stream = Box::pin(open_stream(&self.config, endpoint)).await?;
                let connection =
                    Box::new(Connection::new(stream, &[]).with_open_count(self.count_connection(at)));
                Ok(self.leased(at, LeasedLink::Http1(Some(connection)), false))
            }
            UpstreamProtocol::Http2 => {
                if let Some(stream) = state.http2_stream() {
                    return Ok(self.leased(at, LeasedLink::Http2(stream), true));
                }
                // A request waits for one handshake here, not for the timeouts of all requests
                // before it.
                let limit = self.config.timeouts.connect;
                let turn = Box::pin(tokio::time::timeout(limit, state.connecting.acquire()));
                let Ok(_one_at_a_time) = turn.await else {
                    return Err(ConnectError::Timeout { endpoint: endpoint.to_string(), limit });
                };
                if let Some(stream) = state.http2_stream() {
                    return Ok(self.leased(at, LeasedLink::Http2(stream), true));
                }
                let plain = Box::pin(open_stream(&self.config, endpoint)).await?;
                let send = Box::pin(handshake_http2(plain, endpoint, self.count_connection(at))).await?;
                let since = self.deadlines.now_millis();
                let connection = Http2Connection { send, streams: Rc::default(), since };
                let stream = connection.stream();
                if !self.retired.get() {
                    state.http2.borrow_mut().push(connection);
                }
                Ok(self.leased(at, LeasedLink::Http2(stream), false))
            }
        }
    }

    fn leased(self: &Rc<Self>, at: usize, link: LeasedLink, reused: bool) -> Lease {
        let state = &self.endpoints[at];
        self.next_endpoint.set(at + 1);
        state.in_flight.set(state.in_flight.get() + 1);
        state.stats.request_begun();
        Lease { pool: self.clone(), endpoint: at, link, reused }
    }

    /// The endpoint with the fewest requests in flight among those not ejected. If all are ejected,
    /// the one whose ejection ends first: trying it is better than a certain refusal.
    fn choose(&self, tried: &[usize]) -> usize {
        let n = self.endpoints.len();
        if n == 1 {
            return 0;
        }
        let now = self.deadlines.now_millis();
        let first = self.next_endpoint.get() % n;
        let order = (first..n).chain(0..first).filter(|at| !tried.contains(at));
        let in_use = order.clone().filter(|at| self.endpoints[*at].ejected_until.get() <= now);
        in_use
            .min_by_key(|at| self.endpoints[*at].in_flight.get())
            .or_else(|| order.min_by_key(|at| self.endpoints[*at].ejected_until.get()))
            .unwrap_or(first)
    }

    fn record_failure(&self, at: usize, why: &dyn std::fmt::Display) {
        let state = &self.endpoints[at];
        state.failures.set(state.failures.get().saturating_add(1));
        if state.failures.get() >= self.config.unhealthy_after {
            if state.ejected_until.get() == 0 && !self.retired.get() {
                state.stats.ejected();
            }
            state.stats.unhealthy(why);
            let rest = u64::try_from(self.config.unhealthy_for.as_millis()).unwrap_or(u64::MAX);
            state.ejected_until.set(self.deadlines.now_millis().saturating_add(rest).max(1));
        }
    }

    fn record_success(&self, at: usize) {
        let state = &self.endpoints[at];
        state.failures.set(0);
        if state.ejected_until.replace(0) != 0 && !self.retired.get() {
            state.stats.readmitted();
        }
        state.stats.healthy();
    }

    /// Closes connections that were idle too long or that the peer has closed.
    pub fn close_expired(&self) {
        let now = self.deadlines.now_millis();
        let limit = u64::try_from(self.config.timeouts.idle.as_millis()).unwrap_or(u64::MAX);
        for state in &self.endpoints {
            state
                .idle
                .borrow_mut()
                .retain_mut(|idle| now.saturating_sub(idle.since) < limit && idle.connection.is_reusable());
            state.http2.borrow_mut().retain_mut(|connection| {
                if connection.streams.get() > 0 {
                    connection.since = now;
                }
                // Without its last handle a connection closes itself.
                now.saturating_sub(connection.since) < limit && !connection.is_closed()
            });
        }
    }

    /// Counts a connection to an endpoint until dropped.
    fn count_connection(&self, at: usize) -> OpenConnection {
        OpenConnection::new(self.endpoints[at].stats.clone())
    }
}

impl EndpointState {
    fn pop_idle(&self) -> Option<Box<Connection>> {
        // The last used connection is the most likely to be open, and this lets surplus ones
        // expire.
        loop {
            let mut idle = self.idle.borrow_mut().pop()?;
            if idle.connection.is_reusable() {
                return Some(idle.connection);
            }
        }
    }

    /// A stream on a connection with free streams. If none is free and no more connections are
    /// allowed, on the least loaded one.
    fn http2_stream(&self) -> Option<Http2Stream> {
        let mut open = self.http2.borrow_mut();
        open.retain_mut(|connection| !connection.is_closed());
        let room = |c: &Http2Connection| c.send.current_max_send_streams().min(MAX_STREAMS);
        let free = open.iter().find(|c| c.streams.get() < room(c));
        let emptiest =
            || open.iter().min_by_key(|c| c.streams.get()).filter(|_| open.len() >= MAX_HTTP2_CONNECTIONS);
        free.or_else(emptiest).map(Http2Connection::stream)
    }
}

impl Lease {
    /// Ends a successful exchange: the endpoint is healthy, and the connection returns to the pool
    /// if it can carry another request.
    pub fn release(mut self) {
        self.pool.record_success(self.endpoint);
        if let LeasedLink::Http1(connection) = &mut self.link
            && let Some(mut connection) = connection.take()
            && connection.persists
            && connection.is_body_read()
            && connection.is_reusable()
            && !self.pool.retired.get()
        {
            let state = &self.pool.endpoints[self.endpoint];
            let mut idle = state.idle.borrow_mut();
            if idle.len() < self.pool.config.idle_connections {
                connection.next_message();
                connection.release_buffers();
                idle.push(Idle { connection, since: self.pool.deadlines.now_millis() });
            }
        }
    }

    /// Ends an exchange that failed through the endpoint: it broke the connection, or did not
    /// answer in time.
    pub fn fail(self, how: ExchangeFailure, why: &dyn std::fmt::Display) {
        self.pool.record_failure(self.endpoint, why);
        let state = &self.pool.endpoints[self.endpoint];
        if how == ExchangeFailure::Broken {
            return state.stats.reset();
        }
        state.stats.timed_out();
        if let LeasedLink::Http2(stream) = &self.link {
            // Slow or dead cannot be distinguished: running streams may finish, new ones use
            // another connection.
            state.http2.borrow_mut().retain(|c| !Rc::ptr_eq(&c.streams, &stream.streams));
        }
    }

    /// Ends an exchange whose response stalled.
    pub fn stalled(self) {
        self.pool.endpoints[self.endpoint].stats.timed_out();
    }

    /// Counts a retry of the request, which was either not sent or not processed.
    pub fn retried(&self) {
        self.pool.endpoints[self.endpoint].stats.retried();
    }

    /// The leased HTTP/1 connection; `None` with HTTP/2.
    pub fn http1(&mut self) -> Option<&mut Connection> {
        match &mut self.link {
            LeasedLink::Http1(connection) => connection.as_deref_mut(),
            LeasedLink::Http2(_) => None,
        }
    }

    /// `Host` value for the endpoint itself; `localhost` for a Unix socket, by convention.
    pub fn host(&self) -> String {
        match self.endpoint() {
            crate::config::Endpoint::Unix(_) => "localhost".into(),
            tcp @ crate::config::Endpoint::Tcp { .. } => tcp.to_string(),
        }
    }

    /// The endpoint, for logs.
    pub fn endpoint(&self) -> &crate::config::Endpoint {
        &self.pool.config.endpoints[self.endpoint]
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = &self.pool.endpoints[self.endpoint];
        state.in_flight.set(state.in_flight.get() - 1);
        state.stats.request_ended();
    }
}
