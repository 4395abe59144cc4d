//! Routing: the routes of a configuration, with the upstreams that they lead to.
//!
//! Owns: numbers of routes and upstreams, and what follows from all routes together. Does not own:
//! what a route is (the parent), which route matches a request (`auth::policy::route`).
//!
//! The routes of the file have the numbers from 0, in its order, and so have its upstreams. Routes
//! of other sources have higher numbers, and change one at a time: a clone of a [`Routing`] shares
//! everything with it that does not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::headers::is_same_alias_class;
use auth::policy::review::ReviewSet;
use auth::policy::route::{CheckedRoute, Guards, HostSet, RouteTable, Scope, ScopeIndex};
use auth::policy::rule::Policy;
use auth::snapshot::Slots;
use http_engine::config::Upstream;
use http_engine::upstream::endpoints::EndpointUpdates;
use telemetry::metrics::{GatewayListenerMetrics, GatewayRouteMetrics};

use super::{AuthorizerConfig, Route};

/// All routes and upstreams.
#[derive(Clone, Default)]
pub struct Routing {
    table: RouteTable,
    routes: Slots<Arc<Route>>,
    upstreams: Slots<RoutedUpstream>,
    /// Authorizers of one route each; their numbers follow those of the file's authorizers.
    authorizers: Slots<Arc<AuthorizerConfig>>,
    /// How many of the routes, of the upstreams and of the authorizers are those of the file.
    in_file: FirstFree,
    guards: Arc<[Option<Guards>]>,
    decision_fields: DecisionFields,
    /// How many routes have a CORS policy.
    with_cors: usize,
    scopes: Slots<Arc<GatewayListenerMetrics>>,
    sockets: Slots<Arc<ScopeIndex>>,
}

/// Number of a socket of a Gateway. Its listeners are distinguished by host, and each has its own
/// routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

impl SocketId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An upstream with the changes of its endpoints, where another component than the discovery of the
/// file's upstreams finds them. The endpoints of its configuration then only name the service.
#[derive(Clone)]
struct RoutedUpstream {
    config: Arc<Upstream>,
    updates: Option<EndpointUpdates>,
}

/// The smallest numbers that are not of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FirstFree {
    /// Of routes.
    pub route: usize,
    /// Of upstreams.
    pub upstream: usize,
    /// Of authorizers.
    pub authorizer: usize,
}

/// The routes and upstreams of the file.
pub struct FileRoutes {
    /// The lookup table of the routes.
    pub table: RouteTable,
    /// The routes, in the order of the file.
    pub routes: Vec<Route>,
    /// The upstreams, in the order of the file.
    pub upstreams: Vec<Arc<Upstream>>,
    /// For each upstream that a rewriting route leads to: the routes that guard what is behind it.
    pub guards: Vec<Option<Guards>>,
}

impl Routing {
    /// The routing of the file, with the fields that authorizers are shown.
    pub fn of_file(file: FileRoutes, authorizers: &[AuthorizerConfig]) -> Self {
        let FileRoutes { table, routes, upstreams, guards } = file;
        let mut decision_fields = DecisionFields::default();
        for shown in authorizers.iter().flat_map(|authorizer| authorizer.shown_fields.named()) {
            decision_fields.add(&shown.name);
        }
        for (at, route) in routes.iter().enumerate() {
            fields_read(&table, at, route).for_each(|name| decision_fields.add(name));
        }
        let with_cors = routes.iter().filter(|route| route.cors.is_some()).count();
        let in_file =
            FirstFree { route: routes.len(), upstream: upstreams.len(), authorizer: authorizers.len() };
        let routes = routes.into_iter().map(Arc::new).collect();
        let upstreams =
            upstreams.into_iter().map(|config| RoutedUpstream { config, updates: None }).collect();
        Self {
            table,
            routes,
            upstreams,
            authorizers: Slots::default(),
            in_file,
            guards: guards.into(),
            decision_fields,
            with_cors,
            scopes: Slots::default(),
            sockets: Slots::default(),
        }
    }

    /// The lookup table.
    pub fn table(&self) -> &RouteTable {
        &self.table
    }

    /// A route by its number.
    #[track_caller]
    pub fn route(&self, at: usize) -> &Arc<Route> {
        &self.routes[at]
    }

    /// All routes, those of the file first.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter()
    }

    /// The routes of the file, in its order.
    pub fn file_routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().take(self.in_file.route)
    }

    /// An upstream by its number.
    #[track_caller]
    pub fn upstream(&self, at: usize) -> &Arc<Upstream> {
        &self.upstreams[at].config
    }

    /// An upstream by its number, if it is there.
    pub fn find_upstream(&self, at: usize) -> Option<&Arc<Upstream>> {
        Some(&self.upstreams.get(at)?.config)
    }

    /// The changes of an upstream's endpoints; `None` for an upstream of the file.
    pub fn updates(&self, at: usize) -> Option<&EndpointUpdates> {
        self.upstreams.get(at)?.updates.as_ref()
    }

    /// The upstreams of the file, in its order.
    pub fn file_upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.iter().take(self.in_file.upstream).map(|upstream| &upstream.config)
    }

    /// The smallest numbers that routes, upstreams and authorizers of other sources may have.
    pub fn first_free(&self) -> FirstFree {
        self.in_file
    }

    /// The routes that guard what is behind an upstream. Only rewriting routes of the file are
    /// guarded.
    pub fn guards(&self, upstream: usize) -> Option<&Guards> {
        self.guards.get(upstream)?.as_ref()
    }

    /// Whether some route has a CORS policy.
    pub fn has_cors(&self) -> bool {
        self.with_cors > 0
    }

    /// Whether some decision reads request fields of this name, or of an alias of it.
    pub fn reads(&self, name: &str) -> bool {
        self.decision_fields.contain(name)
    }

    /// The scope of a request for a host: that of the file, unless it came through a socket of a
    /// Gateway. `None`: no listener of the socket takes the host.
    pub fn scope_of(&self, socket: Option<SocketId>, host: &str) -> Option<Scope> {
        match socket {
            None => Some(Scope::FILE),
            Some(socket) => self.sockets.get(socket.index())?.find(host),
        }
    }

    /// The metrics of a scope; `None` for that of the file.
    pub fn scope_metrics(&self, scope: Scope) -> Option<&Arc<GatewayListenerMetrics>> {
        self.scopes.get(usize::try_from(scope.number()).ok()?)
    }

    /// The metrics of all scopes but that of the file.
    pub fn all_scope_metrics(&self) -> impl Iterator<Item = &Arc<GatewayListenerMetrics>> {
        self.scopes.iter()
    }

    /// The metrics of a route that has its own beside those of its scope.
    pub fn route_metrics(&self, route: usize) -> Option<&Arc<GatewayRouteMetrics>> {
        self.routes.get(route)?.metrics.as_ref()
    }

    /// Adds a route with the hosts that it has in each scope, or replaces the one with its number.
    pub fn insert_route(
        &mut self,
        at: usize,
        matcher: CheckedRoute,
        places: impl Into<Box<[(Scope, HostSet)]>>,
        route: Arc<Route>,
    ) {
        self.remove_route(at);
        self.table.insert(at, matcher, places);
        fields_read(&self.table, at, &route).for_each(|name| self.decision_fields.add(name));
        self.with_cors += usize::from(route.cors.is_some());
        self.routes.set(at, route);
    }

    /// Removes a route. There may be none with the number.
    pub fn remove_route(&mut self, at: usize) {
        let Some(route) = self.routes.take(at) else { return };
        fields_read(&self.table, at, &route).for_each(|name| self.decision_fields.remove(name));
        self.with_cors -= usize::from(route.cors.is_some());
        self.table.remove(at);
    }

    /// Adds an upstream with the changes of its endpoints, or replaces the one with its number.
    pub fn insert_upstream(&mut self, at: usize, config: Arc<Upstream>, updates: EndpointUpdates) {
        self.upstreams.set(at, RoutedUpstream { config, updates: Some(updates) });
    }

    /// Removes an upstream. No route may lead to it any more.
    pub fn remove_upstream(&mut self, at: usize) {
        self.upstreams.take(at);
    }

    /// An authorizer of one route, if it is there.
    pub fn authorizer(&self, at: usize) -> Option<&Arc<AuthorizerConfig>> {
        self.authorizers.get(at.checked_sub(self.in_file.authorizer)?)
    }

    /// Adds an authorizer of one route, or replaces the one with its number.
    pub fn insert_authorizer(&mut self, at: usize, config: Arc<AuthorizerConfig>) {
        self.remove_authorizer(at);
        let Some(slot) = at.checked_sub(self.in_file.authorizer) else { return };
        config.shown_fields.named().iter().for_each(|shown| self.decision_fields.add(&shown.name));
        self.authorizers.set(slot, config);
    }

    /// Removes an authorizer of one route. No route may have it any more.
    pub fn remove_authorizer(&mut self, at: usize) {
        let slot = at.checked_sub(self.in_file.authorizer);
        let Some(config) = slot.and_then(|slot| self.authorizers.take(slot)) else { return };
        config.shown_fields.named().iter().for_each(|shown| self.decision_fields.remove(&shown.name));
    }

    /// Adds a scope with its metrics, or replaces those of the one with its number.
    pub fn insert_scope(&mut self, scope: Scope, metrics: Arc<GatewayListenerMetrics>) {
        if let Ok(at) = usize::try_from(scope.number()) {
            self.scopes.set(at, metrics);
        }
    }

    /// Sets the listeners of a socket, by their hosts.
    pub fn set_socket(&mut self, socket: SocketId, listeners: Arc<ScopeIndex>) {
        self.sockets.set(socket.index(), listeners);
    }

    /// Removes a socket.
    pub fn remove_socket(&mut self, socket: SocketId) {
        self.sockets.take(socket.index());
    }

    /// Removes a scope. No route may be in it any more.
    pub fn remove_scope(&mut self, scope: Scope) {
        if let Ok(at) = usize::try_from(scope.number()) {
            self.scopes.take(at);
        }
    }
}

/// Names of the fields that the conditions and access reviews of a route read.
fn fields_read<'r>(table: &'r RouteTable, at: usize, route: &'r Route) -> impl Iterator<Item = &'r str> {
    let reviews = match &route.policy {
        Policy::Rules(rules) => rules.reviews(),
        Policy::Public => None,
    };
    table.fields_read_by(at).chain(reviews.into_iter().flat_map(ReviewSet::fields_read))
}

/// Names of the fields that decisions read, in lower case, with the number of times that they are
/// read.
#[derive(Clone, Default)]
struct DecisionFields(Arc<BTreeMap<Box<str>, usize>>);

impl DecisionFields {
    fn add(&mut self, name: &str) {
        *Arc::make_mut(&mut self.0).entry(name.to_ascii_lowercase().into()).or_default() += 1;
    }

    fn remove(&mut self, name: &str) {
        let (counts, name) = (Arc::make_mut(&mut self.0), name.to_ascii_lowercase());
        if let Some(count) = counts.get_mut(&*name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&*name);
            }
        }
    }

    fn contain(&self, name: &str) -> bool {
        self.0.keys().any(|read| is_same_alias_class(read, name))
    }
}
