//! Series: metrics per route, listener and upstream endpoint.
//!
//! Owns: their shards and the methods that write them. Every writing method takes the
//! [`WorkerMetrics`] of the calling thread, and so uses only cache lines of that thread.

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use http_engine::endpoint_stats::{EndpointStats, HealthStats};
use http_engine::labels::{HandshakeFailure, MirrorResult, Outcome, Protocol, Refusal, StatusClass};
use outage::{Outage, RECOVERY_PERIOD};

use super::WorkerMetrics;
use super::histogram::Histogram;
use super::local::{LazyShards, LocalCounter, LocalGauge, Shard, shards, sum};

#[derive(Debug, Default)]
pub(super) struct RouteShard {
    pub(super) requests: [[LocalCounter; StatusClass::COUNT]; Outcome::COUNT],
    pub(super) duration: Histogram,
    pub(super) received: LocalCounter,
    pub(super) sent: LocalCounter,
    pub(super) headers_removed: LocalCounter,
    pub(super) mirrored: [LocalCounter; MirrorResult::COUNT],
}

/// Metrics of one route. Kept by name, so that a reload does not reset them.
#[derive(Debug)]
pub struct RouteMetrics {
    pub(super) name: Arc<str>,
    pub(super) shards: Box<[Shard<RouteShard>]>,
}

impl RouteMetrics {
    pub(super) fn new(name: &str, workers: usize) -> Self {
        Self { name: name.into(), shards: shards(workers) }
    }

    /// Name of the route.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts a finished request with its outcome, the status sent (0: none) and the nanoseconds
    /// from its head to the last byte of the response. Must be called exactly once per request,
    /// even if the client went away.
    #[inline]
    pub fn count_finished(&self, worker: &WorkerMetrics, outcome: Outcome, status: u16, total_nanos: u64) {
        let shard = &self.shards[worker.index()].0;
        shard.requests[outcome as usize][StatusClass::of(status) as usize].add(1);
        shard.duration.record(total_nanos);
    }

    /// Counts body bytes of a request and its response, without framing.
    #[inline]
    pub fn count_bytes(&self, worker: &WorkerMetrics, received: u64, sent: u64) {
        let shard = &self.shards[worker.index()].0;
        shard.received.add(received);
        shard.sent.add(sent);
    }

    /// Counts header fields that were removed from a client's request.
    pub fn headers_removed(&self, worker: &WorkerMetrics, count: u32) {
        self.shards[worker.index()].0.headers_removed.add(count.into());
    }

    /// Counts the copy of a request for a mirror, when it has ended.
    pub fn count_mirrored(&self, worker: &WorkerMetrics, result: MirrorResult) {
        self.shards[worker.index()].0.mirrored[result as usize].add(1);
    }
}

#[derive(Debug, Default)]
pub(super) struct ListenerShard {
    pub(super) accepted: LocalCounter,
    pub(super) accept_errors: LocalCounter,
    pub(super) open: [LocalGauge; Protocol::COUNT],
    pub(super) refused: [LocalCounter; Refusal::COUNT],
    pub(super) closed_for_room: LocalCounter,
    pub(super) handshake: [LocalCounter; HandshakeFailure::COUNT],
}

/// Metrics of the connections of one listener, or of all listeners of a Gateway.
#[derive(Debug)]
pub struct ListenerMetrics {
    pub(super) name: Arc<str>,
    shards: LazyShards<ListenerShard>,
}

impl ListenerMetrics {
    /// Metrics that have counted nothing yet. Those of a listener of the file are found by name
    /// ([`super::Metrics::listener`]); those of a Gateway belong to its listeners.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), shards: LazyShards::default() }
    }

    fn shard(&self, worker: &WorkerMetrics) -> &ListenerShard {
        self.shards.of(worker)
    }

    pub(super) fn sum(&self, read: impl Fn(&ListenerShard) -> u64) -> u64 {
        sum(self.shards.all(), read)
    }

    /// A connection was accepted.
    pub fn accepted(&self, worker: &WorkerMetrics) {
        self.shard(worker).accepted.add(1);
    }

    /// `accept` failed, for example for lack of file descriptors.
    pub fn accept_failed(&self, worker: &WorkerMetrics) {
        self.shard(worker).accept_errors.add(1);
    }

    /// An accepted connection was closed before its first request.
    pub fn refused(&self, worker: &WorkerMetrics, why: Refusal) {
        self.shard(worker).refused[why as usize].add(1);
    }

    /// Idle connections were asked to close, to make room for others.
    pub fn closed_for_room(&self, worker: &WorkerMetrics, how_many: usize) {
        self.shard(worker).closed_for_room.add(how_many as u64);
    }

    /// A TLS handshake failed.
    pub fn handshake_failed(&self, worker: &WorkerMetrics, why: HandshakeFailure) {
        self.shard(worker).handshake[why as usize].add(1);
    }

    /// A connection starts to use `protocol`. [`ListenerMetrics::closed`] must follow with the same
    /// protocol, on the same worker.
    pub fn opened(&self, worker: &WorkerMetrics, protocol: Protocol) {
        self.shard(worker).open[protocol as usize].begin();
    }

    /// A connection that used `protocol` was closed, or switched to another protocol.
    pub fn closed(&self, worker: &WorkerMetrics, protocol: Protocol) {
        self.shard(worker).open[protocol as usize].end();
    }
}

#[derive(Debug, Default)]
pub(super) struct EndpointShard {
    pub(super) requests: LocalGauge,
    pub(super) connections: LocalGauge,
    pub(super) connect_errors: LocalCounter,
    pub(super) retries: LocalCounter,
    pub(super) resets: LocalCounter,
    pub(super) timeouts: LocalCounter,
    pub(super) ejected: LocalCounter,
    pub(super) ejections: LocalCounter,
}

/// Metrics of one endpoint of an upstream.
#[derive(Debug)]
pub struct EndpointMetrics {
    pub(super) upstream: Arc<str>,
    pub(super) endpoint: Arc<str>,
    pub(super) shards: Box<[Shard<EndpointShard>]>,
    pub(super) down: AtomicBool,
    pub(super) down_count: AtomicU64,
    /// Active health checks that failed and that passed.
    pub(super) checks: [AtomicU64; 2],
    outage: Outage,
}

impl EndpointMetrics {
    pub(super) fn new(upstream: &str, endpoint: &str, workers: usize) -> Self {
        Self {
            upstream: upstream.into(),
            endpoint: endpoint.into(),
            shards: shards(workers),
            down: AtomicBool::new(false),
            down_count: AtomicU64::new(0),
            checks: Default::default(),
            outage: endpoint_outage(upstream, endpoint),
        }
    }

    fn shard(&self, worker: &WorkerMetrics) -> &EndpointShard {
        &self.shards[worker.index()].0
    }

    /// A request was assigned to the endpoint. [`EndpointMetrics::request_ended`] must follow, on
    /// the same worker.
    #[inline]
    pub fn request_begun(&self, worker: &WorkerMetrics) {
        self.shard(worker).requests.begin();
    }

    /// The exchange has ended, successfully or not.
    #[inline]
    pub fn request_ended(&self, worker: &WorkerMetrics) {
        self.shard(worker).requests.end();
    }

    /// A connection was established, TLS included. [`EndpointMetrics::disconnected`] must follow,
    /// on the same worker.
    pub fn connected(&self, worker: &WorkerMetrics) {
        self.shard(worker).connections.begin();
    }

    /// An established connection was closed, by either side.
    pub fn disconnected(&self, worker: &WorkerMetrics) {
        self.shard(worker).connections.end();
    }

    /// A connection could not be established.
    pub fn connect_failed(&self, worker: &WorkerMetrics) {
        self.shard(worker).connect_errors.add(1);
    }

    /// A request of which nothing was sent is retried; counted at the endpoint that failed.
    pub fn retried(&self, worker: &WorkerMetrics) {
        self.shard(worker).retries.add(1);
    }

    /// A connection broke or a stream was reset during an exchange.
    pub fn reset(&self, worker: &WorkerMetrics) {
        self.shard(worker).resets.add(1);
    }

    /// The endpoint did not answer in time, or stalled.
    pub fn timed_out(&self, worker: &WorkerMetrics) {
        self.shard(worker).timeouts.add(1);
    }

    /// This worker stops sending to the endpoint (`true`) or resumes; for health that each worker
    /// tracks itself.
    pub fn set_ejected(&self, worker: &WorkerMetrics, ejected: bool) {
        let shard = self.shard(worker);
        if ejected && shard.ejected.get() == 0 {
            shard.ejections.add(1);
        }
        shard.ejected.set(u64::from(ejected));
    }

    /// All workers stop sending to the endpoint (`true`) or may resume; for health that is tracked
    /// centrally. May be called from any thread.
    pub fn set_down(&self, down: bool) {
        if down && !self.down.swap(true, Relaxed) {
            self.down_count.fetch_add(1, Relaxed);
        } else if !down {
            self.down.store(false, Relaxed);
        }
    }

    /// Share of workers that send to the endpoint: 1 all, 0 none.
    pub(super) fn healthy_share(&self) -> f64 {
        if self.down.load(Relaxed) || self.shards.is_empty() {
            return 0.0;
        }
        let ejected = self.shards.iter().filter(|shard| shard.0.ejected.get() != 0).count();
        (self.shards.len() - ejected) as f64 / self.shards.len() as f64
    }
}

impl HealthStats for EndpointMetrics {
    fn checked(&self, passed: bool) {
        self.checks[usize::from(passed)].fetch_add(1, Relaxed);
    }

    fn set_down(&self, down: bool) {
        Self::set_down(self, down);
    }
}

/// Metrics of an endpoint, written by one worker.
pub struct WorkerEndpoint {
    metrics: Rc<WorkerMetrics>,
    endpoint: Arc<EndpointMetrics>,
}

impl WorkerEndpoint {
    /// Metrics of `endpoint` for the worker of `metrics`.
    pub fn new(metrics: Rc<WorkerMetrics>, endpoint: Arc<EndpointMetrics>) -> Self {
        Self { metrics, endpoint }
    }
}

impl EndpointStats for WorkerEndpoint {
    fn request_begun(&self) {
        self.endpoint.request_begun(&self.metrics);
    }

    fn request_ended(&self) {
        self.endpoint.request_ended(&self.metrics);
    }

    fn connected(&self) {
        self.endpoint.connected(&self.metrics);
    }

    fn disconnected(&self) {
        self.endpoint.disconnected(&self.metrics);
    }

    fn connect_failed(&self) {
        self.endpoint.connect_failed(&self.metrics);
    }

    fn retried(&self) {
        self.endpoint.retried(&self.metrics);
    }

    fn reset(&self) {
        self.endpoint.reset(&self.metrics);
    }

    fn timed_out(&self) {
        self.endpoint.timed_out(&self.metrics);
    }

    fn ejected(&self) {
        self.endpoint.set_ejected(&self.metrics, true);
    }

    fn readmitted(&self) {
        self.endpoint.set_ejected(&self.metrics, false);
    }

    // Each worker detects a failure itself; the outage is logged once for all.
    fn unhealthy(&self, why: &dyn Display) {
        self.endpoint.outage.failed(why);
    }

    fn healthy(&self) {
        self.endpoint.outage.succeeded();
    }
}

/// Metrics of the endpoint of a Service of a cluster, written by one worker. All endpoints of all
/// Services are counted together: they are many, and come and go.
pub struct WorkerServiceEndpoint {
    metrics: Rc<WorkerMetrics>,
    /// Shared by the workers, so that an outage is logged once.
    outage: Arc<Outage>,
}

impl WorkerServiceEndpoint {
    /// Metrics of an endpoint of the upstream for the worker of `metrics`.
    pub fn new(metrics: Rc<WorkerMetrics>, upstream: &str, endpoint: &str) -> Self {
        let outage = metrics.metrics().service_outage(upstream, endpoint);
        Self { metrics, outage }
    }

    fn shard(&self) -> &EndpointShard {
        self.metrics.services()
    }
}

impl EndpointStats for WorkerServiceEndpoint {
    fn request_begun(&self) {
        self.shard().requests.begin();
    }

    fn request_ended(&self) {
        self.shard().requests.end();
    }

    fn connected(&self) {
        self.shard().connections.begin();
    }

    fn disconnected(&self) {
        self.shard().connections.end();
    }

    fn connect_failed(&self) {
        self.shard().connect_errors.add(1);
    }

    fn retried(&self) {
        self.shard().retries.add(1);
    }

    fn reset(&self) {
        self.shard().resets.add(1);
    }

    fn timed_out(&self) {
        self.shard().timeouts.add(1);
    }

    fn ejected(&self) {
        self.shard().ejections.add(1);
    }

    fn readmitted(&self) {}

    fn unhealthy(&self, why: &dyn Display) {
        self.outage.failed(why);
    }

    fn healthy(&self) {
        self.outage.succeeded();
    }
}

/// The outage of an endpoint, for the log.
pub(super) fn endpoint_outage(upstream: &str, endpoint: &str) -> Outage {
    Outage::new(format!("endpoint {endpoint} of upstream {upstream}")).with_recovery_period(RECOVERY_PERIOD)
}
