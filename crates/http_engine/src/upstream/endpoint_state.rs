//! Endpoint state: what one worker knows about an endpoint, and its connections to it.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::Semaphore;

use super::connect::MAX_STREAMS;
use super::endpoints::{ActiveEndpoint, Health};
use super::rendezvous::hash_of;
use crate::config::{Endpoint, Upstream};
use crate::deadline::Deadlines;
use crate::endpoint_stats::EndpointStats;
use crate::http1::connection::Connection;

/// How long an idle connection remembers the last response, in milliseconds.
const MEMORY: u64 = 1000;

/// Maximum number of HTTP/2 connections per endpoint and worker. Another is opened when all streams
/// of the open ones are in use.
const MAX_HTTP2_CONNECTIONS: usize = 8;

/// What the endpoints of a pool share.
pub(super) struct PoolState {
    pub(super) config: Arc<Upstream>,
    pub(super) in_flight: Cell<usize>,
    /// Whether the pool was replaced by a reload. Running exchanges finish; no connection is kept.
    pub(super) retired: Cell<bool>,
    pub(super) deadlines: Rc<Deadlines>,
}

/// An endpoint of a pool. Exchanges keep it when it is removed from the pool.
pub(super) struct EndpointState {
    pub(super) pool: Rc<PoolState>,
    pub(super) endpoint: ActiveEndpoint,
    /// Its name in logs.
    pub(super) label: Rc<str>,
    /// Hash of its name, the same in every process.
    pub(super) hash: u64,
    pub(super) idle: RefCell<Vec<Idle>>,
    pub(super) http2: RefCell<Vec<Http2Connection>>,
    /// Allows one HTTP/2 handshake at a time; requests that arrive meanwhile share the new
    /// connection.
    pub(super) connecting: Semaphore,
    pub(super) in_flight: Cell<usize>,
    /// Share of the requests; 0: none.
    pub(super) weight: u32,
    /// Where weighted round robin continues: the sum of the shares that it has used.
    pub(super) turn: Cell<u64>,
    pub(super) health: Cell<Health>,
    failures: Cell<u32>,
    /// End of the ejection in milliseconds since the worker started; 0: not ejected.
    pub(super) ejected_until: Cell<u64>,
    /// Whether it was removed. Running exchanges finish; no connection is kept.
    removed: Cell<bool>,
    pub(super) stats: Rc<dyn EndpointStats>,
}

pub(super) struct Idle {
    pub(super) connection: Box<Connection>,
    /// When it became idle, in milliseconds since the worker started.
    pub(super) since: u64,
}

/// An HTTP/2 connection that accepts further streams.
pub(super) struct Http2Connection {
    pub(super) send: SendRequest<Bytes>,
    /// Number of leased streams. Its address also identifies the connection.
    pub(super) streams: Rc<Cell<usize>>,
    /// When a stream was last seen in use, in milliseconds since the worker started.
    pub(super) since: u64,
}

/// A slot for a stream of a connection; freed on drop.
pub struct Http2Stream {
    /// Handle that opens the stream.
    pub send: SendRequest<Bytes>,
    pub(super) streams: Rc<Cell<usize>>,
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.streams.set(self.streams.get() - 1);
    }
}

impl Http2Connection {
    pub(super) fn stream(&self) -> Http2Stream {
        self.streams.set(self.streams.get() + 1);
        Http2Stream { send: self.send.clone(), streams: self.streams.clone() }
    }

    /// Whether the connection was closed or is shutting down (GOAWAY).
    fn is_closed(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        matches!(self.send.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }
}

impl EndpointState {
    /// An endpoint without connections.
    pub(super) fn new(
        pool: &Rc<PoolState>,
        (endpoint, health): (&ActiveEndpoint, Health),
        stats: Rc<dyn EndpointStats>,
    ) -> Self {
        let label = endpoint.label(&pool.config);
        // Ejections by a previous pool do not carry over.
        stats.readmitted();
        Self {
            pool: pool.clone(),
            hash: hash_of(&label),
            label: label.into(),
            idle: RefCell::default(),
            http2: RefCell::default(),
            connecting: Semaphore::new(1),
            in_flight: Cell::new(0),
            weight: pool.config.endpoints[endpoint.configured].weight,
            turn: Cell::new(0),
            health: Cell::new(health),
            failures: Cell::new(0),
            ejected_until: Cell::new(0),
            removed: Cell::new(false),
            endpoint: endpoint.clone(),
            stats,
        }
    }

    /// The endpoint as configured.
    pub(super) fn configured(&self) -> &Endpoint {
        &self.pool.config.endpoints[self.endpoint.configured].address
    }

    /// Whether its connections are kept after an exchange.
    pub(super) fn keeps_connections(&self) -> bool {
        !self.pool.retired.get() && !self.removed.get()
    }

    /// Closes idle connections. An HTTP/2 connection closes itself once its last handle and all its
    /// streams are gone.
    pub(super) fn close_idle(&self) {
        self.idle.borrow_mut().clear();
        self.http2.borrow_mut().clear();
    }

    /// Sends no further requests to the endpoint, because the upstream no longer has it.
    pub(super) fn remove(&self) {
        self.removed.set(true);
        self.stats.readmitted();
        self.close_idle();
    }

    pub(super) fn record_failure(&self, why: &dyn Display) {
        self.failures.set(self.failures.get().saturating_add(1));
        let config = &self.pool.config;
        // Nothing is expected of an endpoint that was removed.
        if self.failures.get() >= config.unhealthy_after && !self.removed.get() {
            if self.ejected_until.get() == 0 && !self.pool.retired.get() {
                self.stats.ejected();
            }
            self.stats.unhealthy(why);
            let rest = u64::try_from(config.unhealthy_for.as_millis()).unwrap_or(u64::MAX);
            self.ejected_until.set(self.pool.deadlines.now_millis().saturating_add(rest).max(1));
        }
    }

    pub(super) fn record_success(&self) {
        self.failures.set(0);
        if self.ejected_until.replace(0) != 0 && !self.pool.retired.get() {
            self.stats.readmitted();
        }
        self.stats.healthy();
    }

    /// Closes connections that were idle too long or that the peer has closed. Others give memory free
    /// that only helps while requests follow each other.
    pub(super) fn close_expired(&self) {
        let now = self.pool.deadlines.now_millis();
        let limit = u64::try_from(self.pool.config.timeouts.idle.as_millis()).unwrap_or(u64::MAX);
        self.idle.borrow_mut().retain_mut(|idle| {
            let rested = now.saturating_sub(idle.since);
            if rested >= MEMORY {
                idle.connection.forget_block();
            }
            rested < limit && idle.connection.is_reusable()
        });
        self.http2.borrow_mut().retain_mut(|connection| {
            if connection.streams.get() > 0 {
                connection.since = now;
            }
            // Without its last handle a connection closes itself.
            now.saturating_sub(connection.since) < limit && !connection.is_closed()
        });
    }

    pub(super) fn pop_idle(&self) -> Option<Box<Connection>> {
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
    pub(super) fn http2_stream(&self) -> Option<Http2Stream> {
        let mut open = self.http2.borrow_mut();
        open.retain_mut(|connection| !connection.is_closed());
        let room = |c: &Http2Connection| c.send.current_max_send_streams().min(MAX_STREAMS);
        let free = open.iter().find(|c| c.streams.get() < room(c));
        let emptiest =
            || open.iter().min_by_key(|c| c.streams.get()).filter(|_| open.len() >= MAX_HTTP2_CONNECTIONS);
        free.or_else(emptiest).map(Http2Connection::stream)
    }
}
