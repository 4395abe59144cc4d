//! What a worker keeps for each upstream and each route, across the versions of the routing.
//!
//! Owns: the pools of the upstreams, and the counters of the file's routes. Those of the file exist
//! as long as the file is in force. Pools of other upstreams are created by the first request that
//! needs them, and the counters of a cluster belong to the routing, so a version with one more route
//! costs a worker nothing. Does not own: what a pool does (`http_engine::upstream::pool`), what the
//! counters count (`telemetry`).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use auth::policy::route::Scope;
use hashbrown::HashMap;
use http_engine::config::Upstream;
use http_engine::deadline::Deadlines;
use http_engine::endpoint_stats::EndpointStats;
use http_engine::labels::MirrorResult;
use http_engine::upstream::endpoints::EndpointUpdates;
use http_engine::upstream::pool::Pool;
use telemetry::metrics::{
    GatewayListenerMetrics, GatewayRouteMetrics, Metrics, RouteMetrics, WorkerEndpoint, WorkerMetrics,
    WorkerServiceEndpoint,
};

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

    /// A pool for an upstream of a cluster, whose endpoints have no metrics of their own.
    fn make_for_service(&self, upstream: &Arc<Upstream>, updates: Option<EndpointUpdates>) -> Rc<Pool> {
        let (name, metrics) = (upstream.name.clone(), self.metrics.clone());
        let stats_of = move |endpoint: &str| {
            Rc::new(WorkerServiceEndpoint::new(metrics.clone(), &name, endpoint)) as Rc<dyn EndpointStats>
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
        let make = || (number, self.maker.make_for_service(upstream, routing.updates(number).cloned()));
        let (known_as, pool) = pools.entry(Arc::as_ptr(upstream).addr()).or_insert_with(make);
        // Another file may give the same upstream another number.
        *known_as = number;
        pool.clone()
    }
}

/// The counters of the routes that a worker serves. A clone shares them.
#[derive(Clone)]
pub(crate) struct RouteCounts {
    /// Those of the file's routes, by number.
    in_file: Rc<[Arc<RouteMetrics>]>,
    unrouted: Arc<RouteMetrics>,
}

/// The counters of a request.
#[derive(Clone, Copy)]
pub(crate) enum RequestCounts<'c> {
    /// Those of a route of the file, or of requests without a route.
    Route(&'c Arc<RouteMetrics>),
    /// Those of a listener of a Gateway, and of the route if it has its own.
    Listener(&'c Arc<GatewayListenerMetrics>, Option<&'c Arc<GatewayRouteMetrics>>),
}

/// The counters of copies for mirrors, which may end after the request and its configuration.
#[derive(Clone)]
pub(crate) enum MirrorCounts {
    /// Those of a route of the file.
    Route(Arc<RouteMetrics>),
    /// Those of a listener of a Gateway.
    Listener(Arc<GatewayListenerMetrics>),
}

impl RouteCounts {
    /// The counters of the routing.
    pub(crate) fn new(routing: &Routing, metrics: &Metrics) -> Self {
        Self {
            in_file: routing.file_routes().map(|route| metrics.route(&route.name)).collect(),
            unrouted: metrics.unrouted().clone(),
        }
    }

    /// The counters of a request's route, or else of its scope.
    #[inline]
    pub(crate) fn of<'c>(
        &'c self,
        routing: &'c Routing,
        route: Option<usize>,
        scope: Option<Scope>,
    ) -> RequestCounts<'c> {
        if let Some(counts) = route.and_then(|route| self.in_file.get(route)) {
            return RequestCounts::Route(counts);
        }
        match scope.and_then(|scope| routing.scope_metrics(scope)) {
            Some(listener) => {
                RequestCounts::Listener(listener, route.and_then(|route| routing.route_metrics(route)))
            }
            None => RequestCounts::Route(&self.unrouted),
        }
    }
}

impl RequestCounts<'_> {
    /// The counters of the request's copies.
    pub(crate) fn of_mirrors(self) -> MirrorCounts {
        match self {
            Self::Route(route) => MirrorCounts::Route(route.clone()),
            Self::Listener(listener, _) => MirrorCounts::Listener(listener.clone()),
        }
    }
}

impl MirrorCounts {
    /// Counts a copy that has ended.
    pub(crate) fn count(&self, worker: &WorkerMetrics, result: MirrorResult) {
        match self {
            Self::Route(route) => route.count_mirrored(worker, result),
            Self::Listener(listener) => listener.count_mirrored(worker, result),
        }
    }

    /// The name of the route or listener.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Route(route) => route.name().to_owned(),
            Self::Listener(listener) => listener.name().to_string(),
        }
    }
}
