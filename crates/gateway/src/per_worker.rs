//! What a worker keeps for each upstream and each route, across the versions of the routing.
//!
//! Owns: the pools of the upstreams, and the counters of the routes. Those of the file exist as long
//! as the file is in force. Those of other routes are created by the first request that needs them,
//! so a version with one more route costs a worker nothing. Does not own: what a pool does
//! (`http_engine::upstream::pool`), what the counters count (`telemetry`).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use auth::policy::route::Scope;
use hashbrown::HashMap;
use http_engine::config::Upstream;
use http_engine::deadline::Deadlines;
use http_engine::endpoint_stats::EndpointStats;
use http_engine::upstream::endpoints::EndpointUpdates;
use http_engine::upstream::pool::Pool;
use telemetry::metrics::{Metrics, RouteMetrics, WorkerEndpoint, WorkerMetrics};

use crate::config::Routing;

/// Creates pools on a worker.
pub(crate) struct PoolMaker {
    pub(crate) metrics: Rc<WorkerMetrics>,
    pub(crate) deadlines: Rc<Deadlines>,
}

impl PoolMaker {
    /// A pool for an upstream, with the changes of its endpoints.
    pub(crate) fn make(&self, upstream: &Arc<Upstream>, updates: Option<EndpointUpdates>) -> Rc<Pool> {
        let all = self.metrics.metrics().clone();
        let (name, metrics) = (upstream.name.clone(), self.metrics.clone());
        let stats_of = move |endpoint: &str| {
            let counts = all.endpoint(&name, endpoint);
            Rc::new(WorkerEndpoint::new(metrics.clone(), counts)) as Rc<dyn EndpointStats>
        };
        Pool::new(upstream.clone(), updates, Box::new(stats_of), self.deadlines.clone())
    }
}

/// The pools of a worker. A clone shares them.
#[derive(Clone)]
pub(crate) struct Pools {
    /// Those of the file's upstreams, by number.
    in_file: Rc<[Rc<Pool>]>,
    others: Rc<Others>,
}

/// Pools of upstreams that are not in the file.
struct Others {
    /// By the address of the upstream, which the pool keeps in place; with its number.
    pools: RefCell<HashMap<usize, (usize, Rc<Pool>)>>,
    maker: PoolMaker,
}

impl Pools {
    /// The pools of the file's upstreams, and no others.
    pub(crate) fn new(in_file: Rc<[Rc<Pool>]>, maker: PoolMaker) -> Self {
        Self { in_file, others: Rc::new(Others { pools: RefCell::default(), maker }) }
    }

    /// The pools of another file, with the same others.
    pub(crate) fn with_file(&self, in_file: Rc<[Rc<Pool>]>) -> Self {
        Self { in_file, others: self.others.clone() }
    }

    /// Those of the file's upstreams.
    pub(crate) fn in_file(&self) -> &Rc<[Rc<Pool>]> {
        &self.in_file
    }

    /// Creates pools on this worker.
    pub(crate) fn maker(&self) -> &PoolMaker {
        &self.others.maker
    }

    /// The pool of an upstream.
    pub(crate) fn get(&self, routing: &Routing, upstream: usize) -> Rc<Pool> {
        match self.in_file.get(upstream) {
            Some(pool) => pool.clone(),
            None => self.others.get(routing, upstream),
        }
    }

    /// Closes connections that were idle for too long, and the pools of upstreams that are gone.
    pub(crate) fn sweep(&self, routing: &Routing) {
        self.in_file.iter().for_each(|pool| pool.close_expired());
        self.others.pools.borrow_mut().retain(|_, (number, pool)| {
            let is_current =
                routing.find_upstream(*number).is_some_and(|upstream| Arc::ptr_eq(upstream, &pool.config));
            if is_current {
                pool.close_expired();
            } else {
                pool.retire();
            }
            is_current
        });
    }
}

impl Others {
    fn get(&self, routing: &Routing, number: usize) -> Rc<Pool> {
        let upstream = routing.upstream(number);
        let mut pools = self.pools.borrow_mut();
        let make = || (number, self.maker.make(upstream, routing.updates(number).cloned()));
        let (known_as, pool) = pools.entry(Arc::as_ptr(upstream).addr()).or_insert_with(make);
        // Another file may give the same upstream another number.
        *known_as = number;
        pool.clone()
    }
}

/// The counters of the scopes of routes that are not in the file, with the name that they were found
/// by.
type ScopeCounts = HashMap<Scope, (Arc<str>, Arc<RouteMetrics>)>;

/// The counters of a worker's routes. A clone shares them.
#[derive(Clone)]
pub(crate) struct RouteCounts {
    /// Those of the file's routes, by number.
    in_file: Rc<[Arc<RouteMetrics>]>,
    scopes: Rc<RefCell<ScopeCounts>>,
    metrics: Arc<Metrics>,
}

impl RouteCounts {
    /// The counters of the routing.
    pub(crate) fn new(routing: &Routing, metrics: &Arc<Metrics>) -> Self {
        Self {
            in_file: routing.file_routes().map(|route| metrics.route(&route.name)).collect(),
            scopes: Rc::default(),
            metrics: metrics.clone(),
        }
    }

    /// Counts with the counters of a request's route, or else of its scope.
    pub(crate) fn of(
        &self,
        routing: &Routing,
        route: Option<usize>,
        scope: Option<Scope>,
        count: impl FnOnce(&Arc<RouteMetrics>),
    ) {
        if let Some(counts) = route.and_then(|route| self.in_file.get(route)) {
            return count(counts);
        }
        let named = scope.and_then(|scope| Some((scope, routing.scope_name(scope)?)));
        let Some((scope, name)) = named else { return count(self.metrics.unrouted()) };
        let mut scopes = self.scopes.borrow_mut();
        let (known, counts) = scopes.entry(scope).or_insert_with(|| (name.clone(), self.metrics.route(name)));
        // The number of a scope that is gone may have a new name.
        if !Arc::ptr_eq(known, name) {
            (*known, *counts) = (name.clone(), self.metrics.route(name));
        }
        count(counts);
    }
}
