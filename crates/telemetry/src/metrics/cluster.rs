//! Metrics of a cluster: requests by listener of a Gateway, and by route where that is wanted.
//!
//! Owns: the shards of a listener and of a route, the methods that write them, and how they appear
//! in a scrape. Does not own: which of them exist. The configuration in force has them, so a scrape
//! asks it ([`ClusterMetrics`]), and what is gone from it is gone from the next scrape.
//!
//! A cluster has thousands of listeners, and tens of thousands of routes and endpoints. So a series
//! exists only once it has counted something, durations are by Gateway, and the endpoints of all
//! Services are one.

use std::fmt;
use std::sync::Arc;

use http_engine::labels::{MirrorResult, Outcome, StatusClass};

use super::encode::{Encoder, Family, FamilyKind};
use super::exponential::{ExponentialHistogram, ExponentialTotal};
use super::local::{LazyShards, LocalCounter, sum};
use super::series::{EndpointShard, ListenerMetrics};
use super::{Metrics, WorkerMetrics};

/// The names of a listener. Ordered by Gateway, then by ListenerSet, those of the Gateway itself
/// first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayListenerName {
    /// Namespace and name of the Gateway, such as `infra/public`.
    pub gateway: Box<str>,
    /// Namespace and name of the ListenerSet that has the listener. Empty: the Gateway has it.
    pub listener_set: Box<str>,
    /// The name of its section.
    pub listener: Box<str>,
}

impl GatewayListenerName {
    /// The labels of the object that has the listener.
    fn parent(&self) -> [(&str, &str); 2] {
        [("gateway", &*self.gateway), ("listener_set", &*self.listener_set)]
    }
}

impl fmt::Display for GatewayListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = if self.listener_set.is_empty() { &self.gateway } else { &self.listener_set };
        write!(f, "{parent}/{}", self.listener)
    }
}

#[derive(Debug, Default)]
struct GatewayListenerShard {
    requests: [[LocalCounter; StatusClass::COUNT]; Outcome::COUNT],
    duration: ExponentialHistogram,
    received: LocalCounter,
    sent: LocalCounter,
    headers_removed: LocalCounter,
    mirrored: [LocalCounter; MirrorResult::COUNT],
}

/// Metrics of the requests through one listener of a Gateway. They take memory from the first
/// request on.
#[derive(Debug)]
pub struct GatewayListenerMetrics {
    name: GatewayListenerName,
    shards: LazyShards<GatewayListenerShard>,
}

impl GatewayListenerMetrics {
    /// Metrics that have counted nothing yet.
    pub fn new(name: GatewayListenerName) -> Self {
        Self { name, shards: LazyShards::default() }
    }

    /// The names of the listener.
    pub fn name(&self) -> &GatewayListenerName {
        &self.name
    }

    /// Counts a finished request with its outcome, the status sent (0: none) and the nanoseconds
    /// from its head to the last byte of the response. Must be called exactly once per request,
    /// even if the client went away.
    #[inline]
    pub fn count_finished(&self, worker: &WorkerMetrics, outcome: Outcome, status: u16, total_nanos: u64) {
        let shard = self.shards.of(worker);
        shard.requests[outcome as usize][StatusClass::of(status) as usize].add(1);
        shard.duration.record(total_nanos);
    }

    /// Counts body bytes of a request and its response, without framing.
    #[inline]
    pub fn count_bytes(&self, worker: &WorkerMetrics, received: u64, sent: u64) {
        let shard = self.shards.of(worker);
        shard.received.add(received);
        shard.sent.add(sent);
    }

    /// Counts header fields that were removed from a client's request.
    pub fn headers_removed(&self, worker: &WorkerMetrics, count: u32) {
        self.shards.of(worker).headers_removed.add(count.into());
    }

    /// Counts the copy of a request for a mirror, when it has ended.
    pub fn count_mirrored(&self, worker: &WorkerMetrics, result: MirrorResult) {
        self.shards.of(worker).mirrored[result as usize].add(1);
    }

    fn sum(&self, read: impl Fn(&GatewayListenerShard) -> u64) -> u64 {
        sum(self.shards.all(), read)
    }
}

#[derive(Debug, Default)]
struct GatewayRouteShard {
    requests: [LocalCounter; StatusClass::COUNT],
    duration: ExponentialHistogram,
}

/// Metrics of one route of a cluster, beside those of its listeners. They take memory from the first
/// request on.
#[derive(Debug)]
pub struct GatewayRouteMetrics {
    name: Box<str>,
    shards: LazyShards<GatewayRouteShard>,
}

impl GatewayRouteMetrics {
    /// Metrics that have counted nothing yet. `name` is kind, namespace and name, such as
    /// `HTTPRoute team/app`.
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self { name: name.into(), shards: LazyShards::default() }
    }

    /// Counts a finished request with the status sent (0: none) and the nanoseconds from its head to
    /// the last byte of the response.
    #[inline]
    pub fn count_finished(&self, worker: &WorkerMetrics, status: u16, total_nanos: u64) {
        let shard = self.shards.of(worker);
        shard.requests[StatusClass::of(status) as usize].add(1);
        shard.duration.record(total_nanos);
    }
}

/// What the configuration in force has of a cluster. An element may be there more than once.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    /// The connections of each Gateway.
    pub gateways: Vec<Arc<ListenerMetrics>>,
    /// The requests through each listener.
    pub listeners: Vec<Arc<GatewayListenerMetrics>>,
    /// The requests of each route that has metrics of its own.
    pub routes: Vec<Arc<GatewayRouteMetrics>>,
}

impl ClusterMetrics {
    /// Sorts by name, and removes what is there more than once.
    pub(super) fn sort(&mut self) {
        self.gateways.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.gateways.dedup_by(|a, b| Arc::ptr_eq(a, b));
        self.listeners.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.listeners.dedup_by(|a, b| Arc::ptr_eq(a, b));
        self.routes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.routes.dedup_by(|a, b| Arc::ptr_eq(a, b));
    }

    pub(super) fn write_requests(&self, family: &mut Family<'_>) {
        for listener in &self.listeners {
            for outcome in Outcome::ALL {
                for class in StatusClass::ALL {
                    let count = listener.sum(|shard| shard.requests[outcome as usize][class as usize].get());
                    if count > 0 {
                        let more = [("outcome", outcome.as_str()), ("class", class.as_str())];
                        family.sample(&listener_labels(&listener.name, more), count);
                    }
                }
            }
        }
    }

    pub(super) fn write_received(&self, family: &mut Family<'_>) {
        self.write_by_parent(family, |shard| shard.received.get());
    }

    pub(super) fn write_sent(&self, family: &mut Family<'_>) {
        self.write_by_parent(family, |shard| shard.sent.get());
    }

    pub(super) fn write_headers_removed(&self, family: &mut Family<'_>) {
        self.write_by_parent(family, |shard| shard.headers_removed.get());
    }

    pub(super) fn write_mirrored(&self, family: &mut Family<'_>) {
        for listeners in self.parents() {
            for result in MirrorResult::ALL {
                let counts = listeners
                    .iter()
                    .map(|listener| listener.sum(|shard| shard.mirrored[result as usize].get()));
                let count: u64 = counts.sum();
                if count > 0 {
                    let [gateway, set] = listeners[0].name.parent();
                    family.sample(&[gateway, set, ("result", result.as_str())], count);
                }
            }
        }
    }

    /// Writes the durations by Gateway, and everything by route.
    pub(super) fn write_own_families(&self, e: &mut Encoder) {
        if !self.listeners.is_empty() {
            let mut family = e.family(
                "postern_gateway_request_duration_seconds",
                FamilyKind::Histogram,
                "Time from the complete request head to the last byte of the response, by Gateway.",
            );
            for listeners in self.parents() {
                let mut total = ExponentialTotal::default();
                for listener in listeners {
                    listener.shards.all().iter().for_each(|shard| total.add(&shard.0.duration));
                }
                write_durations(&mut family, &listeners[0].name.parent(), &total);
            }
        }
        if self.routes.is_empty() {
            return;
        }
        let help = "Requests finished, of routes of the cluster with metrics of their own, by class of the status sent.";
        let mut family = e.family("postern_route_requests", FamilyKind::Counter, help);
        for route in &self.routes {
            for class in StatusClass::ALL {
                let count = sum(route.shards.all(), |shard| shard.requests[class as usize].get());
                if count > 0 {
                    family.sample(&[("route", &*route.name), ("class", class.as_str())], count);
                }
            }
        }
        let mut family = e.family(
            "postern_route_request_duration_seconds",
            FamilyKind::Histogram,
            "Time from the complete request head to the last byte of the response, of the same routes.",
        );
        for route in &self.routes {
            let mut total = ExponentialTotal::default();
            route.shards.all().iter().for_each(|shard| total.add(&shard.0.duration));
            write_durations(&mut family, &[("route", &*route.name)], &total);
        }
    }

    fn write_by_parent(&self, family: &mut Family<'_>, read: fn(&GatewayListenerShard) -> u64) {
        for listeners in self.parents() {
            let count: u64 = listeners.iter().map(|listener| listener.sum(read)).sum();
            if count > 0 {
                family.sample(&listeners[0].name.parent(), count);
            }
        }
    }

    /// The listeners of each Gateway, and of each ListenerSet at it. None is empty.
    fn parents(&self) -> impl Iterator<Item = &[Arc<GatewayListenerMetrics>]> {
        self.listeners.chunk_by(|a, b| a.name.parent() == b.name.parent())
    }
}

/// Writes a histogram, unless it is empty.
fn write_durations(family: &mut Family<'_>, labels: &[(&str, &str)], total: &ExponentialTotal) {
    if total.count() > 0 {
        family.exponential_histogram(labels, total);
    }
}

fn listener_labels<'n>(
    name: &'n GatewayListenerName,
    [first, second]: [(&'n str, &'n str); 2],
) -> [(&'n str, &'n str); 5] {
    let [gateway, set] = name.parent();
    [gateway, set, ("listener", &*name.listener), first, second]
}

/// Label value of the endpoints of all Services of the cluster.
pub(super) const ALL_SERVICES: [(&str, &str); 1] = [("upstream", "(cluster)")];

impl Metrics {
    /// Sets the source of what the configuration in force has of a cluster, called at each scrape.
    pub fn set_cluster(&self, sample: impl Fn() -> ClusterMetrics + Send + Sync + 'static) {
        self.sources.write().cluster = Some(Box::new(sample));
    }

    /// A number of the endpoints of all Services of the cluster.
    pub(super) fn of_services(&self, read: impl Fn(&EndpointShard) -> u64) -> u64 {
        sum(&self.workers, |shard| read(&shard.services))
    }

    /// Whether an endpoint of a Service was ever used.
    pub(super) fn has_services(&self) -> bool {
        self.of_services(|shard| shard.requests.begun() + shard.connect_errors.get()) > 0
    }
}
