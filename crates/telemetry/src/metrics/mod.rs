//! Metrics: counters of everything the gateway does. Writing them is cheap; a scrape sums them up.
//!
//! Owns: the registry of routes, listeners and endpoints by name, the shards per worker, samples of
//! other crates, and the formats of a scrape ([`Exposition`]). Does not own: the HTTP side of a scrape
//! (`gateway::admin`), or state that is sampled through closures.
//!
//! Flow: `Metrics::new(workers)` once. Each worker thread takes its [`WorkerMetrics`] and passes it
//! to every writing method. [`Metrics::render`] reads all shards.
//!
//! A writer uses plain 64-bit slots on cache lines that no other thread writes (see `local`): no
//! locked instruction, no shared line, no allocation. Names are resolved to handles when a
//! configuration is applied, never per request.

mod authorizer;
mod buckets;
mod cluster;
mod encode;
mod exponential;
mod histogram;
mod local;
mod protobuf;
mod provider;
mod scrape;
mod series;
mod sources;

use std::any::TypeId;
use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

pub use authorizer::AuthorizerMetrics;
pub use cluster::{ClusterMetrics, GatewayListenerMetrics, GatewayListenerName, GatewayRouteMetrics};
pub use encode::{Encoder, Exposition, Family, FamilyKind, Format, Labels, Number};
use histogram::Histogram;
pub use http_engine::labels::{Consulted, HandshakeFailure, Outcome, Protocol, Refusal, StatusClass};
use local::{LocalCounter, LocalGauge, Shard, shards};
use outage::Outage;
use parking_lot::{Mutex, RwLock};
pub use provider::{DatabaseState, ProviderStats};
pub use series::{EndpointMetrics, ListenerMetrics, RouteMetrics, WorkerEndpoint, WorkerServiceEndpoint};
use series::{EndpointShard, endpoint_outage};
pub use sources::{BuildInfo, CacheSample, IssuerSample, Reloads};
use sources::{CpuPerRequest, Sources};

use crate::access_log;
use crate::cgroup::Cgroup;
use crate::phases::{CacheUse, Phase, Recorder};
use crate::trace;

/// Metrics of a component, as families of a scrape. Each component implements this for its own
/// status type, so that this module depends on none of them.
pub trait Collect: Sized {
    /// Writes the families of `all`. May write none if `all` is empty.
    fn collect(all: &[Self], encoder: &mut Encoder);
}

/// Counters of a worker that do not depend on the route.
#[derive(Debug, Default)]
struct WorkerShard {
    phases: [Histogram; Phase::COUNT],
    requests: LocalGauge,
    cache: [LocalCounter; CacheUse::ALL.len()],
    /// The endpoints of all Services of a cluster.
    services: EndpointShard,
}

/// Metrics by name, kept while they are referenced. Workers find listeners here while a scrape reads
/// the list, so it is no lock that only one may have.
type ByName<K, T> = RwLock<BTreeMap<K, Arc<T>>>;

/// The metrics with a name, created if there are none.
fn find_or_create<K: Ord + Borrow<Q>, Q: Ord + ?Sized, T>(
    all: &ByName<K, T>,
    name: &Q,
    create: impl FnOnce() -> (K, T),
) -> Arc<T> {
    if let Some(known) = all.read().get(name) {
        return Arc::clone(known);
    }
    let (key, new) = create();
    Arc::clone(all.write().entry(key).or_insert_with(|| Arc::new(new)))
}

/// Outages of endpoints, by upstream and endpoint.
type Outages = BTreeMap<(Box<str>, Box<str>), Weak<Outage>>;

/// All metrics of a process.
pub struct Metrics {
    workers: Box<[Shard<WorkerShard>]>,
    shards_taken: Mutex<Box<[bool]>>,
    unrouted: Arc<RouteMetrics>,
    routes: ByName<Box<str>, RouteMetrics>,
    listeners: ByName<Box<str>, ListenerMetrics>,
    endpoints: ByName<(Box<str>, Box<str>), EndpointMetrics>,
    authorizers: ByName<Box<str>, AuthorizerMetrics>,
    service_outages: Mutex<Outages>,
    denials: Reasons,
    exchange_failures: Reasons,
    reloads: Reloads,
    sources: RwLock<Sources>,
    cpu_per_request: Mutex<CpuPerRequest>,
}

/// Label value of requests that matched no route or were malformed.
const UNROUTED: &str = "(none)";

impl Metrics {
    /// New metrics for `workers` worker threads (at least one).
    pub fn new(workers: usize) -> Arc<Self> {
        let workers = workers.max(1);
        Arc::new(Self {
            workers: shards(workers),
            shards_taken: Mutex::new(vec![false; workers].into()),
            unrouted: Arc::new(RouteMetrics::new(UNROUTED, workers)),
            routes: RwLock::default(),
            listeners: RwLock::default(),
            endpoints: RwLock::default(),
            authorizers: RwLock::default(),
            service_outages: Mutex::default(),
            denials: Reasons::default(),
            exchange_failures: Reasons::default(),
            reloads: Reloads::default(),
            sources: RwLock::default(),
            cpu_per_request: Mutex::default(),
        })
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Exclusive write access to shard `index`, for one thread. `None`: there is no such shard, or
    /// another thread has it. Dropping the [`WorkerMetrics`] releases it.
    pub fn worker(self: &Arc<Self>, index: usize) -> Option<WorkerMetrics> {
        let mut taken = self.shards_taken.lock();
        let slot = taken.get_mut(index)?;
        if *slot {
            return None;
        }
        *slot = true;
        Some(WorkerMetrics { index, metrics: Arc::clone(self), one_thread: PhantomData })
    }

    /// Metrics of a route, created at first use and kept by name across reloads.
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        find_or_create(&self.routes, name, || (name.into(), RouteMetrics::new(name, self.workers())))
    }

    /// Metrics of requests without a route: malformed, or matched by none.
    pub fn unrouted(&self) -> &Arc<RouteMetrics> {
        &self.unrouted
    }

    /// Metrics of a listener, created at first use and kept by name across reloads.
    pub fn listener(&self, name: &str) -> Arc<ListenerMetrics> {
        find_or_create(&self.listeners, name, || (name.into(), ListenerMetrics::new(name)))
    }

    /// Metrics of an endpoint (`host:port` or a socket path) of an upstream, created at first use
    /// and kept by name across reloads.
    pub fn endpoint(&self, upstream: &str, endpoint: &str) -> Arc<EndpointMetrics> {
        let new = || Arc::new(EndpointMetrics::new(upstream, endpoint, self.workers()));
        Arc::clone(self.endpoints.write().entry((upstream.into(), endpoint.into())).or_insert_with(new))
    }

    /// Metrics of an authorizer, created at first use and kept by name across reloads.
    pub fn authorizer(&self, name: &str) -> Arc<AuthorizerMetrics> {
        find_or_create(&self.authorizers, name, || {
            (name.into(), AuthorizerMetrics::new(name, self.workers()))
        })
    }

    /// The outage of an endpoint of a Service, which all workers share.
    fn service_outage(&self, upstream: &str, endpoint: &str) -> Arc<Outage> {
        let mut outages = self.service_outages.lock();
        let known = outages.entry((upstream.into(), endpoint.into())).or_default();
        known.upgrade().unwrap_or_else(|| {
            let new = Arc::new(endpoint_outage(upstream, endpoint));
            *known = Arc::downgrade(&new);
            new
        })
    }

    /// Removes routes, listeners, authorizers and endpoints that are no longer referenced, so that
    /// memory does not grow when reloads change names for years. Call it some time after a reload,
    /// when the last request of the previous configuration has finished.
    pub fn remove_unused(&self) {
        self.routes.write().retain(|_, kept| Arc::strong_count(kept) > 1);
        self.listeners.write().retain(|_, kept| Arc::strong_count(kept) > 1);
        self.endpoints.write().retain(|_, kept| Arc::strong_count(kept) > 1);
        self.authorizers.write().retain(|_, kept| Arc::strong_count(kept) > 1);
        self.service_outages.lock().retain(|_, outage| outage.strong_count() > 0);
    }

    /// Counts a refused request by reason: a constant code, never text of a peer.
    pub fn count_denial(&self, reason: &'static str) {
        self.denials.count(reason);
    }

    /// Counts an authorized request whose exchange failed, by reason: a constant code as well.
    pub fn count_exchange_failure(&self, reason: &'static str) {
        self.exchange_failures.count(reason);
    }

    /// Results of configuration reloads.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// Sets the source of the decision cache's values, called at each scrape.
    pub fn set_cache(&self, sample: impl Fn() -> CacheSample + Send + Sync + 'static) {
        self.sources.write().cache = Some(Box::new(sample));
    }

    /// Sets the source of the state of all issuers' keys, called at each scrape. A reload sets it
    /// anew.
    pub fn set_issuers(&self, sample: impl Fn() -> Vec<IssuerSample> + Send + Sync + 'static) {
        self.sources.write().issuers = Some(Box::new(sample));
    }

    /// Sets a source of values of type `T`, called at each scrape; `T` writes its families. There
    /// is one source per type: a later one replaces it.
    pub fn register<T: Collect + 'static>(&self, sample: impl Fn() -> Vec<T> + Send + Sync + 'static) {
        let of = TypeId::of::<T>();
        let write: sources::RegisteredSource = Box::new(move |encoder| T::collect(&sample(), encoder));
        let registered = &mut self.sources.write().registered;
        match registered.iter_mut().find(|(known, _)| *known == of) {
            Some(known) => known.1 = write,
            None => registered.push((of, write)),
        }
    }

    /// Adds the access log's counts of written and dropped lines.
    pub fn set_access_log(&self, stats: Arc<access_log::AccessLogStats>) {
        self.sources.write().access_log = Some(stats);
    }

    /// Adds the span exporter's counts.
    pub fn set_trace(&self, stats: Arc<trace::TraceStats>) {
        self.sources.write().trace = Some(stats);
    }

    /// Adds the counts of the provider in the same process.
    pub fn set_provider(&self, stats: Arc<ProviderStats>) {
        self.sources.write().provider = Some(stats);
    }

    /// Adds the CPU limit of the process's cgroup and its throttling.
    pub fn set_cgroup(&self, cgroup: Cgroup) {
        self.sources.write().cgroup = Some(cgroup);
    }

    /// Adds version and commit of the program.
    pub fn set_build(&self, build: BuildInfo) {
        self.sources.write().build = Some(build);
    }

    /// Number of finished requests, over all routes and workers.
    pub fn requests_finished(&self) -> u64 {
        self.workers.iter().map(|shard| shard.0.requests.finished()).fold(0, u64::wrapping_add)
    }
}

/// Counters by constant codes, a few dozen, created at first use.
#[derive(Default)]
struct Reasons(RwLock<Vec<(&'static str, AtomicU64)>>);

impl Reasons {
    fn count(&self, reason: &'static str) {
        if let Some((_, count)) = self.0.read().iter().find(|(known, _)| *known == reason) {
            count.fetch_add(1, Relaxed);
            return;
        }
        let mut counts = self.0.write();
        match counts.iter().find(|(known, _)| *known == reason) {
            Some((_, count)) => drop(count.fetch_add(1, Relaxed)),
            None => counts.push((reason, AtomicU64::new(1))),
        }
    }

    /// All counters, in the order of their codes.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts: Vec<_> =
            self.0.read().iter().map(|(reason, count)| (*reason, count.load(Relaxed))).collect();
        counts.sort_unstable();
        counts
    }
}

/// Exclusive write access of one thread to its shard: every counting method requires it.
///
/// It can move to the thread that uses it, but is not `Sync`, and there is one per shard. So each
/// slot has a single writer, which allows counting without locked instructions.
pub struct WorkerMetrics {
    index: usize,
    metrics: Arc<Metrics>,
    one_thread: PhantomData<Cell<()>>,
}

impl WorkerMetrics {
    /// Index of its shard: from 0 to [`Metrics::workers`], exclusive.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The metrics it belongs to.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    fn shard(&self) -> &WorkerShard {
        &self.metrics.workers[self.index].0
    }

    fn services(&self) -> &EndpointShard {
        &self.shard().services
    }

    /// A request's head arrived. [`WorkerMetrics::request_ended`] must follow exactly once.
    #[inline]
    pub fn request_begun(&self) {
        self.shard().requests.begin();
    }

    /// The request has ended.
    #[inline]
    pub fn request_ended(&self) {
        self.shard().requests.end();
    }

    /// Counts a lookup in the decision cache by its result.
    #[inline]
    pub fn count_cache_lookup(&self, result: CacheUse) {
        self.shard().cache[result as usize].add(1);
    }

    /// Records nanoseconds spent in one phase.
    #[inline]
    pub fn record_phase(&self, phase: Phase, nanos: u64) {
        self.shard().phases[phase as usize].record(nanos);
    }

    /// Records all phases of a request.
    #[inline]
    pub fn record_phases(&self, recorder: &Recorder) {
        let shard = self.shard();
        recorder.for_each_slot(|slot, nanos| shard.phases[slot].record(nanos));
    }
}

impl Drop for WorkerMetrics {
    fn drop(&mut self) {
        self.metrics.shards_taken.lock()[self.index] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_one_writer_at_a_time() {
        let metrics = Metrics::new(2);
        let first = metrics.worker(0).unwrap();
        assert!(metrics.worker(0).is_none(), "taken");
        assert!(metrics.worker(2).is_none(), "no such shard");
        assert_eq!(metrics.worker(1).unwrap().index(), 1);
        drop(first);
        assert!(metrics.worker(0).is_some(), "given back");
    }

    #[test]
    fn names_are_kept_while_somebody_holds_them() {
        let metrics = Metrics::new(1);
        let worker = metrics.worker(0).unwrap();
        let api = metrics.route("api");
        api.count_finished(&worker, Outcome::Allowed, 200, 1_000);
        assert!(Arc::ptr_eq(&api, &metrics.route("api")), "the next configuration finds the same counts");
        let gone = metrics.endpoint("app", "10.0.0.1:80");
        drop(gone);
        metrics.remove_unused();
        assert!(metrics.endpoints.read().is_empty());
        assert!(Arc::ptr_eq(&api, &metrics.route("api")));
    }

    #[test]
    fn many_threads_may_deny_for_many_reasons() {
        let metrics = Metrics::new(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        metrics.count_denial("expired");
                        metrics.count_denial("bad_signature");
                    }
                });
            }
        });
        let counts = metrics.denials.counts();
        assert_eq!(counts.len(), 2);
        assert!(counts.iter().all(|(_, n)| *n == 4000), "{counts:?}");
    }

    #[test]
    fn an_endpoint_is_as_healthy_as_the_workers_that_use_it() {
        let metrics = Metrics::new(2);
        let (a, b) = (metrics.worker(0).unwrap(), metrics.worker(1).unwrap());
        let endpoint = metrics.endpoint("app", "10.0.0.1:80");
        let share = || (endpoint.healthy_share() * 2.0).to_string();
        assert_eq!(share(), "2");
        endpoint.set_ejected(&a, true);
        endpoint.set_ejected(&a, true);
        assert_eq!((share().as_str(), endpoint.shards[0].0.ejections.get()), ("1", 1));
        endpoint.set_ejected(&b, true);
        assert_eq!(share(), "0");
        endpoint.set_ejected(&a, false);
        endpoint.set_ejected(&b, false);
        endpoint.set_down(true);
        endpoint.set_down(true);
        assert_eq!((share().as_str(), endpoint.down_count.load(Relaxed)), ("0", 1));
        endpoint.set_down(false);
        assert_eq!(share(), "2");
    }
}
