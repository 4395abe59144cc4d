//! The connections of one upstream on one worker, and which endpoint gets the next request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::Semaphore;

use super::connect::{ConnectError, MAX_STREAMS, handshake_http2, open};
use crate::config::{Upstream, UpstreamProtocol};
use crate::deadline::Deadlines;
use crate::endpoint_stats::{EndpointStats, OpenConnection};
use crate::http1::connection::Connection;

/// HTTP/2 connections per endpoint and worker; another is opened when those there are full.
const MAX_HTTP2_CONNECTIONS: usize = 8;

/// The connections of one upstream on one worker.
pub struct Pool {
    /// What it was made for.
    pub config: Arc<Upstream>,
    endpoints: Vec<EndpointState>,
    in_flight: Cell<usize>,
    /// Out of the configuration in force. What still runs on it finishes; nothing is kept for later.
    retired: Cell<bool>,
    /// Breaks ties so that equal endpoints take turns.
    turn: Cell<usize>,
    deadlines: Rc<Deadlines>,
}

struct EndpointState {
    idle: RefCell<Vec<Idle>>,
    http2: RefCell<Vec<Http2Connection>>,
    /// One HTTP/2 handshake at a time: the requests that arrive meanwhile share its connection.
    connecting: Semaphore,
    in_flight: Cell<usize>,
    failures: Cell<u32>,
    /// Resting until then, in milliseconds after the worker's start; 0 when in use.
    out_until: Cell<u64>,
    stats: Rc<dyn EndpointStats>,
}

struct Idle {
    connection: Box<Connection>,
    since: u64,
}

/// An HTTP/2 connection that takes further streams.
struct Http2Connection {
    send: SendRequest<Bytes>,
    /// Streams leased; also what tells one connection from another.
    streams: Rc<Cell<usize>>,
    /// When it was last seen in use.
    since: u64,
}

/// A place among the requests under way; given back on drop.
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
    /// What to speak over.
    pub link: LeasedLink,
    /// The connection was resting in the pool, so that the peer may have closed it meanwhile.
    pub reused: bool,
}

/// What to speak over.
pub enum LeasedLink {
    /// A whole HTTP/1 connection.
    Http1(Option<Box<Connection>>),
    /// A handle that opens a stream.
    Http2(Http2Stream),
}

/// A place among the streams of a connection; given back on drop.
pub struct Http2Stream {
    /// Opens the stream.
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

    /// Whether it is going away, or was closed.
    fn is_over(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        matches!(self.send.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }
}

impl Pool {
    /// No connections yet; `stats` has one for each endpoint of `config`.
    pub fn new(
        config: Arc<Upstream>,
        stats: Vec<Rc<dyn EndpointStats>>,
        deadlines: Rc<Deadlines>,
    ) -> Rc<Self> {
        // Whether a pool before this one had taken them out is forgotten with it.
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
                out_until: Cell::new(0),
                stats,
            })
            .collect();
        Rc::new(Self {
            config,
            endpoints,
            in_flight: Cell::new(0),
            retired: Cell::new(false),
            turn: Cell::new(0),
            deadlines,
        })
    }

    /// Closes what rests and keeps nothing from now on. An exchange may hold the pool for as long as a tunnel is
    /// open, and nobody sweeps it any more; the state of its endpoints is its successor's to tell.
    pub fn retire(&self) {
        self.retired.set(true);
        for state in &self.endpoints {
            state.idle.borrow_mut().clear();
            // Without its last handle a connection closes by itself, after the streams that are open.
            state.http2.borrow_mut().clear();
        }
    }

    /// A place among the requests under way, or `None` when the upstream has all it may have.
    pub fn enter(self: &Rc<Self>) -> Option<RequestSlot> {
        let n = self.in_flight.get();
        if n >= self.config.max_requests {
            return None;
        }
        self.in_flight.set(n + 1);
        Some(RequestSlot { pool: self.clone() })
    }

    /// A connection to the endpoint with the fewest requests under way. An endpoint that cannot be reached
    /// costs it its health and the next one is tried: nothing was sent yet.
    pub async fn lease(self: &Rc<Self>, fresh: bool) -> Result<Lease, ConnectError> {
        let mut tried = Vec::new();
        loop {
            let at = self.choose(&tried);
            match self.lease_from(at, fresh).await {
                Ok(lease) => return Ok(lease),
                Err(e) => {
                    self.endpoints[at].stats.connect_failed();
                    self.failed(at, &e);
                    tried.push(at);
                    if tried.len() >= self.endpoints.len().min(3) {
                        return Err(e);
                    }
                    self.endpoints[at].stats.retried();
                }
            }
        }
    }

    /// A connection resting in the pool, or a stream on one that has room, without waiting: the common case costs no future.
    pub fn lease_idle(self: &Rc<Self>) -> Option<Lease> {
        let at = self.choose(&[]);
        let state = &self.endpoints[at];
        let link = match self.config.protocol {
            UpstreamProtocol::Http1 => LeasedLink::Http1(Some(state.pop_idle()?)),
            UpstreamProtocol::Http2 => LeasedLink::Http2(state.http2_stream()?),
        };
        Some(self.leased(at, link, true))
    }

    /// What connects is boxed: it happens once per connection and would be room in every connection's future.
    async fn lease_from(self: &Rc<Self>, at: usize, fresh: bool) -> Result<Lease, ConnectError> {
        let (state, endpoint) = (&self.endpoints[at], &self.config.endpoints[at]);
        match self.config.protocol {
            UpstreamProtocol::Http1 => {
                if !fresh && let Some(connection) = state.pop_idle() {
                    return Ok(self.leased(at, LeasedLink::Http1(Some(connection)), true));
                }
                let stream = Box::pin(open(&self.config, endpoint)).await?;
                let connection = Box::new(Connection::new(stream, &[]).counted(self.counted(at)));
                Ok(self.leased(at, LeasedLink::Http1(Some(connection)), false))
            }
            UpstreamProtocol::Http2 => {
                if let Some(stream) = state.http2_stream() {
                    return Ok(self.leased(at, LeasedLink::Http2(stream), true));
                }
                // Whoever waits here waits for one connection, not for the failure of all who came before.
                let limit = self.config.timeouts.connect;
                let turn = Box::pin(tokio::time::timeout(limit, state.connecting.acquire()));
                let Ok(_one_at_a_time) = turn.await else {
                    return Err(ConnectError::Timeout { endpoint: endpoint.to_string(), limit });
                };
                if let Some(stream) = state.http2_stream() {
                    return Ok(self.leased(at, LeasedLink::Http2(stream), true));
                }
                let plain = Box::pin(open(&self.config, endpoint)).await?;
                let send = Box::pin(handshake_http2(plain, endpoint, self.counted(at))).await?;
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
        self.turn.set(at + 1);
        state.in_flight.set(state.in_flight.get() + 1);
        state.stats.request_begun();
        Lease { pool: self.clone(), endpoint: at, link, reused }
    }

    /// Least requests under way among the endpoints in use; when all rest, the one that has rested longest
    /// (a doubtful endpoint is better than a certain refusal).
    fn choose(&self, tried: &[usize]) -> usize {
        let n = self.endpoints.len();
        if n == 1 {
            return 0;
        }
        let now = self.deadlines.now_millis();
        let first = self.turn.get() % n;
        let order = (first..n).chain(0..first).filter(|at| !tried.contains(at));
        let in_use = order.clone().filter(|at| self.endpoints[*at].out_until.get() <= now);
        in_use
            .min_by_key(|at| self.endpoints[*at].in_flight.get())
            .or_else(|| order.min_by_key(|at| self.endpoints[*at].out_until.get()))
            .unwrap_or(first)
    }

    fn failed(&self, at: usize, why: &dyn std::fmt::Display) {
        let state = &self.endpoints[at];
        state.failures.set(state.failures.get().saturating_add(1));
        if state.failures.get() >= self.config.unhealthy_after {
            if state.out_until.get() == 0 && !self.retired.get() {
                state.stats.ejected();
            }
            state.stats.unhealthy(why);
            let rest = u64::try_from(self.config.unhealthy_for.as_millis()).unwrap_or(u64::MAX);
            state.out_until.set(self.deadlines.now_millis().saturating_add(rest).max(1));
        }
    }

    fn succeeded(&self, at: usize) {
        let state = &self.endpoints[at];
        state.failures.set(0);
        if state.out_until.replace(0) != 0 && !self.retired.get() {
            state.stats.readmitted();
        }
        state.stats.healthy();
    }

    /// Closes connections that rested too long or that their peer has closed.
    pub fn sweep(&self) {
        let now = self.deadlines.now_millis();
        let limit = u64::try_from(self.config.timeouts.idle.as_millis()).unwrap_or(u64::MAX);
        for state in &self.endpoints {
            state
                .idle
                .borrow_mut()
                .retain_mut(|idle| now.saturating_sub(idle.since) < limit && idle.connection.is_quiet());
            state.http2.borrow_mut().retain_mut(|connection| {
                if connection.streams.get() > 0 {
                    connection.since = now;
                }
                // Without its last handle a connection closes by itself.
                now.saturating_sub(connection.since) < limit && !connection.is_over()
            });
        }
    }

    /// Counts a connection to an endpoint until dropped.
    fn counted(&self, at: usize) -> OpenConnection {
        OpenConnection::new(self.endpoints[at].stats.clone())
    }
}

impl EndpointState {
    fn pop_idle(&self) -> Option<Box<Connection>> {
        // The one used last is the likeliest to be alive, and lets the surplus age.
        loop {
            let mut idle = self.idle.borrow_mut().pop()?;
            if idle.connection.is_quiet() {
                return Some(idle.connection);
            }
        }
    }

    /// A stream on a connection that has room for one; on the emptiest when there may be no more connections.
    fn http2_stream(&self) -> Option<Http2Stream> {
        let mut open = self.http2.borrow_mut();
        open.retain_mut(|connection| !connection.is_over());
        let room = |c: &Http2Connection| c.send.current_max_send_streams().min(MAX_STREAMS);
        let free = open.iter().find(|c| c.streams.get() < room(c));
        let emptiest =
            || open.iter().min_by_key(|c| c.streams.get()).filter(|_| open.len() >= MAX_HTTP2_CONNECTIONS);
        free.or_else(emptiest).map(Http2Connection::stream)
    }
}

impl Lease {
    /// Tells that the exchange ended well: the endpoint is healthy, and the connection rests in the pool if
    /// it can carry another request.
    pub fn release(mut self) {
        self.pool.succeeded(self.endpoint);
        if let LeasedLink::Http1(connection) = &mut self.link
            && let Some(mut connection) = connection.take()
            && connection.persists
            && connection.body_read()
            && connection.is_quiet()
            && !self.pool.retired.get()
        {
            let state = &self.pool.endpoints[self.endpoint];
            let mut idle = state.idle.borrow_mut();
            if idle.len() < self.pool.config.idle_connections {
                connection.next_message();
                connection.rest();
                idle.push(Idle { connection, since: self.pool.deadlines.now_millis() });
            }
        }
    }

    /// Tells that the exchange failed by the endpoint's fault: it broke off, or did not answer in time.
    pub fn fail(self, timed_out: bool, why: &dyn std::fmt::Display) {
        self.pool.failed(self.endpoint, why);
        let state = &self.pool.endpoints[self.endpoint];
        if !timed_out {
            return state.stats.reset();
        }
        state.stats.timed_out();
        if let LeasedLink::Http2(stream) = &self.link {
            // Slow or dead cannot be told apart: its streams may end, new ones go elsewhere.
            state.http2.borrow_mut().retain(|c| !Rc::ptr_eq(&c.streams, &stream.streams));
        }
    }

    /// Tells that an answer rested for too long in its middle.
    pub fn stalled(self) {
        self.pool.endpoints[self.endpoint].stats.timed_out();
    }

    /// Counts that the request is sent again because nothing had been sent, or nothing processed.
    pub fn retried(&self) {
        self.pool.endpoints[self.endpoint].stats.retried();
    }

    /// The HTTP/1 connection, when that is what is leased.
    pub fn http1(&mut self) -> Option<&mut Connection> {
        match &mut self.link {
            LeasedLink::Http1(connection) => connection.as_deref_mut(),
            LeasedLink::Http2(_) => None,
        }
    }

    /// `Host` of the endpoint itself; `localhost` for a Unix socket, as is customary.
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
