//! Pool: the connections of one upstream on one worker, and the endpoint of each request.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::balance::{Position, choose};
use super::connect::{ConnectError, handshake_http2, open_stream};
use super::endpoint_state::{EndpointState, Http2Connection, Http2Stream, Idle, PoolState};
use super::endpoints::{EndpointList, EndpointUpdates, fixed};
use super::retry_budget::RetryBudget;
use crate::config::{Endpoint, Upstream, UpstreamProtocol};
use crate::deadline::Deadlines;
use crate::endpoint_stats::{EndpointStats, OpenConnection};
use crate::http1::connection::Connection;

/// Creates the statistics of an endpoint by its name in metrics.
pub type StatsOf = Box<dyn Fn(&str) -> Rc<dyn EndpointStats>>;

/// Maximum number of endpoints that one lease tries to connect to.
const MAX_ATTEMPTS: usize = 3;

/// The connections of one upstream on one worker.
pub struct Pool {
    /// The configuration it was created for.
    pub config: Arc<Upstream>,
    state: Rc<PoolState>,
    endpoints: RefCell<Vec<Rc<EndpointState>>>,
    /// Why there is no endpoint, as far as names were looked up.
    problem: RefCell<Option<Arc<str>>>,
    position: Position,
    stats_of: StatsOf,
    /// The changes of the endpoints; `None`: they are fixed.
    updates: Option<EndpointUpdates>,
    budget: RetryBudget,
}

/// What is known about a request when its endpoint is chosen.
#[derive(Default, Clone)]
pub struct Selection {
    /// Hash of the client, if its requests go to the same endpoint.
    pub affinity: Option<u64>,
    /// Endpoints that failed it before. They are chosen only if there is no other.
    avoided: Vec<Rc<EndpointState>>,
}

impl Selection {
    /// Avoids the endpoint of a lease for the next attempt.
    pub fn avoid(&mut self, lease: &Lease) {
        self.avoided.push(lease.endpoint.clone());
    }
}

/// A slot for a request in flight; freed on drop.
pub struct RequestSlot {
    pool: Rc<PoolState>,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.pool.in_flight.set(self.pool.in_flight.get() - 1);
    }
}

/// A connection for one exchange with one endpoint.
pub struct Lease {
    endpoint: Rc<EndpointState>,
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
    /// A pool without connections. Without `updates` the endpoints are those of the configuration.
    /// With `updates` they follow its changes; call it on the worker, in a local task set.
    pub fn new(
        config: Arc<Upstream>,
        updates: Option<EndpointUpdates>,
        stats_of: StatsOf,
        deadlines: Rc<Deadlines>,
    ) -> Rc<Self> {
        let state = PoolState {
            config: config.clone(),
            in_flight: Cell::new(0),
            retired: Cell::new(false),
            deadlines,
        };
        let pool = Rc::new(Self {
            state: Rc::new(state),
            endpoints: RefCell::default(),
            problem: RefCell::default(),
            position: Position::default(),
            stats_of,
            updates,
            budget: RetryBudget::default(),
            config,
        });
        match &pool.updates {
            None => pool.apply(&fixed(&pool.config).unwrap_or_default()),
            Some(updates) => {
                let mut updates = updates.clone();
                let list = updates.borrow_and_update().clone();
                pool.apply(&list);
                tokio::task::spawn_local(follow(Rc::downgrade(&pool), updates));
            }
        }
        pool
    }

    /// Replaces the endpoints. Those that stay keep their connections and their health. Exchanges
    /// with removed ones finish.
    fn apply(&self, list: &EndpointList) {
        if self.state.retired.get() {
            return;
        }
        let old = self.endpoints.take();
        let new: Vec<_> = list
            .endpoints
            .iter()
            .map(|(endpoint, health)| {
                if let Some(old) = old.iter().find(|old| old.endpoint == *endpoint) {
                    old.health.set(*health);
                    return old.clone();
                }
                let stats = (self.stats_of)(&endpoint.label(&self.config));
                Rc::new(EndpointState::new(&self.state, (endpoint, *health), stats))
            })
            .collect();
        for gone in old.iter().filter(|old| !new.iter().any(|kept| Rc::ptr_eq(kept, old))) {
            gone.remove();
        }
        self.problem.replace(list.problem.clone());
        self.position.begin(&new);
        self.endpoints.replace(new);
    }

    /// Closes idle connections and keeps none from now on. An exchange may hold the pool as long as
    /// a tunnel is open, but `sweep` is not called again. The successor reports the state of the
    /// endpoints.
    pub fn retire(&self) {
        self.state.retired.set(true);
        self.endpoints.borrow().iter().for_each(|state| state.close_idle());
    }

    /// Coarse time, in milliseconds since the worker's start.
    pub fn now_millis(&self) -> u64 {
        self.state.deadlines.now_millis()
    }

    /// A slot for a request in flight; `None`: the upstream's limit is reached.
    pub fn acquire_slot(&self) -> Option<RequestSlot> {
        let n = self.state.in_flight.get();
        if n >= self.config.max_requests {
            return None;
        }
        self.state.in_flight.set(n + 1);
        if self.config.retries.is_some() {
            self.budget.count_request(self.state.deadlines.now_millis());
        }
        Some(RequestSlot { pool: self.state.clone() })
    }

    /// A connection to the endpoint with the fewest requests in flight. If the endpoint cannot be
    /// reached, that counts as its failure and the next one is tried: nothing was sent yet.
    pub async fn lease(&self, idle: IdleConnections, selection: &Selection) -> Result<Lease, ConnectError> {
        let mut tried = selection.avoided.clone();
        let mut unreachable = Vec::new();
        let mut failed = None;
        if self.endpoints.borrow().is_empty() {
            self.await_endpoints().await;
        }
        loop {
            // Without another endpoint, the avoided ones have their turn again.
            let chosen = self
                .choose(selection.affinity, &tried)
                .or_else(|| self.choose(selection.affinity, &unreachable));
            let Some((at, endpoint)) = chosen else {
                return Err(failed.unwrap_or_else(|| self.no_endpoint()));
            };
            match self.lease_from(&endpoint, idle).await {
                Ok((link, reused)) => return Ok(self.leased(at, endpoint, link, reused)),
                Err(e) => {
                    endpoint.stats.connect_failed();
                    endpoint.record_failure(&e);
                    tried.push(endpoint.clone());
                    unreachable.push(endpoint.clone());
                    if unreachable.len() >= self.endpoints.borrow().len().min(MAX_ATTEMPTS) {
                        return Err(e);
                    }
                    failed = Some(e);
                    endpoint.stats.retried();
                }
            }
        }
    }

    /// An idle connection, or a stream on one with free streams, without waiting. The common case
    /// needs no future.
    pub fn lease_idle(&self, selection: &Selection) -> Option<Lease> {
        let (at, endpoint) = self.choose(selection.affinity, &[])?;
        let link = match self.config.protocol {
            UpstreamProtocol::Http1 => LeasedLink::Http1(Some(endpoint.pop_idle()?)),
            UpstreamProtocol::Http2 => LeasedLink::Http2(endpoint.http2_stream()?),
        };
        Some(self.leased(at, endpoint, link, true))
    }

    /// Whether a request that may be sent again is within the budget of retries; counts the retry
    /// then.
    pub fn take_retry(&self) -> bool {
        let now = self.state.deadlines.now_millis();
        self.config.retries.as_ref().is_some_and(|retries| self.budget.take(now, retries))
    }

    /// Whether an endpoint that is not avoided may receive the request.
    pub fn has_other(&self, selection: &Selection) -> bool {
        self.choose(None, &selection.avoided).is_some()
    }

    /// Waits for the first lookup of a name, as long as connecting may take.
    async fn await_endpoints(&self) {
        let Some(mut updates) = self.updates.clone() else { return };
        let found = updates.wait_for(|list| !list.endpoints.is_empty() || !list.is_pending);
        if let Ok(Ok(list)) = tokio::time::timeout(self.config.timeouts.connect, found).await {
            let list = list.clone();
            self.apply(&list);
        }
    }

    /// Why no endpoint may receive a request.
    fn no_endpoint(&self) -> ConnectError {
        let upstream = self.config.name.clone();
        if !self.endpoints.borrow().is_empty() {
            return ConnectError::Unhealthy { upstream };
        }
        let problem = self.problem.borrow().clone();
        let is_known = self.updates.as_ref().is_some_and(|updates| !updates.borrow().is_pending);
        if problem.is_none() && is_known {
            return ConnectError::Unhealthy { upstream };
        }
        ConnectError::NoAddress { upstream, why: problem.unwrap_or_else(|| "not looked up yet".into()) }
    }

    /// Connecting is boxed: it happens once per connection, and would enlarge the future of every
    /// request.
    async fn lease_from(
        &self,
        state: &Rc<EndpointState>,
        idle: IdleConnections,
    ) -> Result<(LeasedLink, bool), ConnectError> {
        let endpoint = state.configured();
        let open = || Box::pin(open_stream(&self.config, endpoint, &state.endpoint.addresses));
        match self.config.protocol {
            UpstreamProtocol::Http1 => {
                if idle == IdleConnections::Reuse
                    && let Some(connection) = state.pop_idle()
                {
                    return Ok((LeasedLink::Http1(Some(connection)), true));
                }
                let stream = open().await?;
                let open_count = OpenConnection::new(state.stats.clone());
                let connection = Box::new(Connection::new(stream, &[]).with_open_count(open_count));
                Ok((LeasedLink::Http1(Some(connection)), false))
            }
            UpstreamProtocol::Http2 => {
                if let Some(stream) = state.http2_stream() {
                    return Ok((LeasedLink::Http2(stream), true));
                }
                // A request waits for one handshake here, not for the timeouts of all requests
                // before it.
                let limit = self.config.timeouts.connect;
                let turn = Box::pin(tokio::time::timeout(limit, state.connecting.acquire()));
                let Ok(_one_at_a_time) = turn.await else {
                    return Err(ConnectError::Timeout { endpoint: endpoint.to_string(), limit });
                };
                if let Some(stream) = state.http2_stream() {
                    return Ok((LeasedLink::Http2(stream), true));
                }
                let plain = open().await?;
                let open_count = OpenConnection::new(state.stats.clone());
                let send = Box::pin(handshake_http2(plain, endpoint, open_count)).await?;
                let since = self.state.deadlines.now_millis();
                let connection = Http2Connection { send, streams: Rc::default(), since };
                let stream = connection.stream();
                if state.keeps_connections() {
                    state.http2.borrow_mut().push(connection);
                }
                Ok((LeasedLink::Http2(stream), false))
            }
        }
    }

    fn choose(
        &self,
        affinity: Option<u64>,
        tried: &[Rc<EndpointState>],
    ) -> Option<(usize, Rc<EndpointState>)> {
        let endpoints = self.endpoints.borrow();
        let at = choose(&endpoints, &self.position, affinity, tried)?;
        Some((at, endpoints[at].clone()))
    }

    fn leased(&self, at: usize, endpoint: Rc<EndpointState>, link: LeasedLink, reused: bool) -> Lease {
        self.position.used(at, &endpoint);
        endpoint.in_flight.set(endpoint.in_flight.get() + 1);
        endpoint.stats.request_begun();
        Lease { endpoint, link, reused }
    }

    /// Closes connections that were idle too long or that the peer has closed.
    pub fn close_expired(&self) {
        self.endpoints.borrow().iter().for_each(|state| state.close_expired());
    }
}

/// Applies the changes of the endpoints to a pool as long as it is used.
async fn follow(pool: Weak<Pool>, mut updates: EndpointUpdates) {
    while updates.changed().await.is_ok() {
        let Some(pool) = pool.upgrade() else { return };
        let list = updates.borrow_and_update().clone();
        pool.apply(&list);
    }
}

impl Lease {
    /// Ends a successful exchange: the endpoint is healthy, and the connection returns to the pool
    /// if it can carry another request.
    pub fn release(mut self) {
        let state = &self.endpoint;
        state.record_success();
        if let LeasedLink::Http1(connection) = &mut self.link
            && let Some(mut connection) = connection.take()
            && connection.persists
            && connection.is_body_read()
            && connection.is_reusable()
            && state.keeps_connections()
        {
            let mut idle = state.idle.borrow_mut();
            if idle.len() < state.pool.config.idle_connections {
                connection.next_message();
                connection.release_buffers();
                idle.push(Idle { connection, since: state.pool.deadlines.now_millis() });
            }
        }
    }

    /// Ends an exchange that failed through the endpoint: it broke the connection, or did not
    /// answer in time.
    pub fn fail(self, how: ExchangeFailure, why: &dyn std::fmt::Display) {
        let state = &self.endpoint;
        state.record_failure(why);
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
        self.endpoint.stats.timed_out();
    }

    /// Counts a retry of the request, which was either not sent or not processed.
    pub fn retried(&self) {
        self.endpoint.stats.retried();
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
        self.configured().authority()
    }

    /// The endpoint as configured.
    pub fn configured(&self) -> &Endpoint {
        self.endpoint.configured()
    }

    /// The endpoint in logs: its address.
    pub fn label(&self) -> &Rc<str> {
        &self.endpoint.label
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.endpoint.in_flight.set(self.endpoint.in_flight.get() - 1);
        self.endpoint.stats.request_ended();
    }
}
