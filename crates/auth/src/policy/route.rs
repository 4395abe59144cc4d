//! Routes: which route a request matches.
//!
//! Owns: [`RouteMatch`], the conditions of a route; [`RouteTable`], all routes, and
//! [`RouteTable::lookup`]. Does not own what happens on a route, nor that a request without a route
//! gets 404.
//!
//! Of all routes that match a request, the most specific one is chosen. The order is that of the
//! Gateway API (`HTTPRouteRule.matches`), with templates added:
//!
//! 1. an exact host before the longest wildcard before any host;
//! 2. an exact path before a template before the longest prefix before any path; among templates
//!    the one with more literal segments, then one without a tail, then one with more captures;
//! 3. a method list before none; then more header conditions; then more query conditions;
//! 4. the [`Order`]: that of the list, or the age and name of an object.
//!
//! If none of an exact host's own routes matches, less specific hosts are tried.
//!
//! Servers differ in how they read some paths: those with parameters (`/admin;v=1/users`), escaped
//! delimiters (`/a%2Fb`), empty segments or dot segments, among others. Such a path is looked up in
//! every reading. When two readings lead to different routes, there is no route.
//!
//! There is no route either when a header condition reads a field that the service could read
//! differently ([`first_ambiguous`](crate::headers::first_ambiguous)), or when a query condition
//! reads a parameter that is repeated or has another spelling. Otherwise a client could select the
//! route by one value and show the service another. That is true for each condition that was
//! evaluated, also on routes that did not match. A proxy such as Envoy joins fields of one name
//! before it asks. Then a list that contains the value of a condition may have been several fields,
//! and is ambiguous as well.
//!
//! A table has one or more [`Scope`]s, each with its own hosts: one for the routes of the file, and
//! one for each listener of a Gateway. A lookup searches one of them.
//!
//! A table is also built step by step, one route at a time ([`RouteTable::insert`]). A clone of a
//! table shares nearly everything with it, so the next version of a large one costs little.
//!
//! Lookups are hash probes: one for an exact host or path, and one for each distinct length of
//! wildcard or prefix at which the request has a boundary. For templates, the lookup walks down
//! their tree. Nothing is allocated.

mod build;
mod guards;
mod index;
mod scopes;
mod template;

use std::cell::Cell;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::headers::{Repeats, first_ambiguous, list_contains};
use crate::request::{Canonical, Field, pairs};
use crate::snapshot::Slots;

pub use build::{CheckedRoute, HostSet};
pub use guards::Guards;
use index::{Holds, HostIndex, Path};
pub use scopes::ScopeIndex;
pub use template::Captures;
use template::TemplateRank;

/// The conditions of a route on requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteMatch {
    /// The route's name, for messages.
    pub name: String,
    /// Host patterns without port, any of which suffices; empty means any host.
    ///
    /// `example.com` is that host, `*.example.com` every name that has one or more labels before it
    /// (not `example.com` itself), `*` any host. Internationalised names may be written in either
    /// form.
    pub hosts: Vec<String>,
    /// The condition on the path.
    pub path: PathMatch,
    /// Methods, any of which suffices; empty means any method. `GET` includes `HEAD`, unless
    /// `exact_methods`.
    pub methods: Vec<String>,
    /// Whether `GET` does not include `HEAD`, as the Gateway API has it.
    pub exact_methods: bool,
    /// Header conditions, all of which must hold.
    pub headers: Vec<HeaderMatch>,
    /// Conditions on the query, all of which must hold.
    pub query: Vec<QueryMatch>,
}

/// The paths that a route matches. Patterns are normalised like requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PathMatch {
    /// This path only; `/a` is not `/a/`. `*` is the target of `OPTIONS *`.
    Exact(String),
    /// This path and everything below it: `/a` matches `/a`, `/a/` and `/a/b`, and not `/ab`. A
    /// trailing slash has no meaning.
    Prefix(String),
    /// Segments that are literal text or `{name}` for one segment that is not empty, and at the end
    /// possibly `{name...}` for the rest, which may be empty: `/v1/{ns}/models/{id}`,
    /// `/files/{path...}`.
    Template(String),
    /// Every path, and the target `*`.
    #[default]
    Any,
}

/// A condition on a header field.
///
/// It chooses between routes and protects nothing: the client controls its own headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderMatch {
    /// The field name, in any letter case.
    pub name: String,
    /// The exact value, byte for byte, that every field of this name must have; `None` when the
    /// field only has to be present.
    pub value: Option<String>,
}

/// A condition on a parameter of the query.
///
/// The query is read as a form: `+` and `%20` are a space. Like a header, it chooses between routes
/// and protects nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryMatch {
    /// The parameter's name, decoded.
    pub name: String,
    /// The exact value, decoded; `None` when the parameter only has to be present.
    pub value: Option<String>,
    /// Names that differ from `name` in their letter case only, and that the author of the route
    /// distinguishes from it, because he has conditions on both. A parameter of any other such name
    /// makes the request ambiguous.
    pub distinct: Vec<String>,
}

/// A set of hosts with their routes, which a lookup searches by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(u32);

impl Scope {
    /// The routes of the configuration file.
    pub const FILE: Self = Self(0);
    /// The scope of hosts that nothing is served for: no route is ever in it.
    pub const RESERVED: Self = Self(u32::MAX);

    /// A scope by its number; 0 is [`Scope::FILE`].
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which of two routes with equal conditions is chosen: the smaller one.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// Milliseconds since 1970 at which the object with the route was created; 0 for a route of the
    /// file.
    pub created: u64,
    /// Namespace and name of that object; empty for a route of the file.
    pub object: Arc<str>,
    /// Position in the object, or in the file.
    pub position: u32,
}

impl Order {
    /// That of the n-th route of the file.
    pub fn in_file(position: usize) -> Self {
        // More than four thousand million routes do not fit into memory.
        Self { position: u32::try_from(position).unwrap_or(u32::MAX), ..Self::default() }
    }
}

/// Position of a route among those with the same host and kind of path: the smallest is tried
/// first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    template: Option<TemplateRank>,
    method: Reverse<bool>,
    headers: Reverse<usize>,
    query: Reverse<usize>,
    order: Order,
}

/// All routes.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// By number of the route.
    routes: Slots<Arc<PlacedRoute>>,
    /// By number of the scope.
    scopes: Slots<HostIndex>,
}

/// A route of the table.
#[derive(Debug)]
struct PlacedRoute {
    conditions: Conditions,
    path: Path,
    rank: Rank,
    /// Where it is in the index.
    places: Box<[(Scope, HostSet)]>,
}

/// Conditions of a route that remain to be checked after host and path have matched.
#[derive(Debug)]
struct Conditions {
    methods: Box<[Box<str>]>,
    exact_methods: bool,
    headers: Box<[HeaderCondition]>,
    query: Box<[QueryMatch]>,
}

/// A lower-case field name, and the value that the field must have.
type HeaderCondition = (Box<str>, Option<Box<[u8]>>);

/// What a condition read and the service could read differently.
#[derive(Debug, Clone, Copy)]
enum Doubt<'t> {
    Header(&'t str),
    Parameter(&'t str),
}

/// The request of a lookup, with the doubt that a condition had, if one had.
struct Probe<'t, 'r> {
    table: &'t RouteTable,
    request: &'r Canonical<'r>,
    fields: &'r [Field<'r>],
    repeats: Repeats,
    doubt: Cell<Option<Doubt<'t>>>,
}

impl<'t> Holds<'t> for Probe<'t, '_> {
    fn holds(&self, route: u32) -> bool {
        let conditions = &self.table.routes[route as usize].conditions;
        let (request, exact) = (self.request, conditions.exact_methods);
        let right = if exact { request.method() } else { request.required_method() };
        (conditions.methods.is_empty() || conditions.methods.iter().any(|method| **method == *right))
            && conditions.headers.iter().all(|header| self.header_matches(header))
            && conditions.query.iter().all(|parameter| self.parameter_matches(parameter))
    }

    fn rank(&self, route: u32) -> &'t Rank {
        &self.table.routes[route as usize].rank
    }
}

impl<'t> Probe<'t, '_> {
    fn header_matches(&self, (name, value): &'t HeaderCondition) -> bool {
        if let Some(name) = first_ambiguous(self.fields, [&**name]) {
            self.doubt.set(Some(Doubt::Header(name)));
            return false;
        }
        // There is at most one field, otherwise it would be ambiguous.
        let found = self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        match (found, value.as_deref()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(field), Some(value)) => {
                let holds = field.value == value;
                if !holds && self.repeats == Repeats::Joined && list_contains(field.value, value) {
                    self.doubt.set(Some(Doubt::Header(name)));
                }
                holds
            }
        }
    }

    fn parameter_matches(&self, QueryMatch { name, value, distinct }: &'t QueryMatch) -> bool {
        let query = self.request.query();
        // As for the parameters that rules read: servers take the first of two, or the last, ignore
        // case, take `a[]` for `a`, or split at `;`.
        let alike = pairs(query).filter(|(found, _)| found.resembles(name));
        let mut alike = alike.filter(|(found, _)| !distinct.iter().any(|other| found.decodes_to(other)));
        let (first, second) = (alike.next(), alike.next());
        let is_clear = match (first, second) {
            (None, _) => true,
            (Some((found, _)), None) => found.decodes_to(name),
            (Some(_), Some(_)) => false,
        };
        let is_split = query.is_some_and(|query| query.contains(';'));
        // Another reading of the path may have a query.
        if !is_clear || is_split || self.request.query_fault().is_some() {
            self.doubt.set(Some(Doubt::Parameter(name)));
            return false;
        }
        let Some((_, found)) = first else { return false };
        value.as_deref().is_none_or(|value| found.decodes_to(value))
    }

    /// What `find` returns for the path, if it returns the same for all readings of it and no
    /// condition was in doubt.
    fn single_result<T: PartialEq>(&self, find: impl Fn(&str) -> T) -> Result<T, AmbiguousRoute> {
        let found = find(self.request.path());
        let elsewhere = self.request.other_readings().iter().find(|reading| find(reading) != found);
        match (self.doubt.get(), elsewhere) {
            (Some(Doubt::Header(name)), _) => Err(AmbiguousRoute::Header(name.into())),
            (Some(Doubt::Parameter(name)), _) => Err(AmbiguousRoute::Parameter(name.into())),
            (None, None) => Ok(found),
            (None, Some(other)) => {
                Err(AmbiguousRoute::Path { received: self.request.path().into(), other: other.clone() })
            }
        }
    }
}

impl RouteTable {
    /// The number of the file's route that matches the request. `None` also when the route is
    /// [`AmbiguousRoute`].
    ///
    /// `fields` are the request's header fields; only header conditions read them.
    pub fn find(&self, request: &Canonical<'_>, fields: &[Field<'_>]) -> Option<usize> {
        self.lookup(Scope::FILE, request, fields, Repeats::Separate).ok().flatten()
    }

    /// The number of the route of a scope that matches the request.
    ///
    /// # Errors
    /// [`AmbiguousRoute`] when the readings of the path lead to different routes, or a header or
    /// parameter that was read is ambiguous.
    pub fn lookup(
        &self,
        scope: Scope,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        repeats: Repeats,
    ) -> Result<Option<usize>, AmbiguousRoute> {
        let Some(hosts) = self.scopes.get(scope.index()) else { return Ok(None) };
        let probe = Probe { table: self, request, fields, repeats, doubt: Cell::new(None) };
        let found = probe.single_result(|path| hosts.find(request.host(), path, &probe))?;
        Ok(found.map(|route| route as usize))
    }

    /// For every host pattern of the file that does not match the request's host: the route that
    /// would match the request there.
    ///
    /// # Errors
    /// As [`RouteTable::lookup`].
    fn on_other_hosts(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
    ) -> Result<Vec<usize>, AmbiguousRoute> {
        let Some(hosts) = self.scopes.get(Scope::FILE.index()) else { return Ok(Vec::new()) };
        let probe =
            Probe { table: self, request, fields, repeats: Repeats::Separate, doubt: Cell::new(None) };
        let found = probe.single_result(|path| hosts.on_other_hosts(request.host(), path, &probe))?;
        Ok(found.into_iter().map(|route| route as usize).collect())
    }

    /// Adds a route, with the hosts that it has in each scope. It replaces the route that has the
    /// number.
    pub fn insert(&mut self, at: usize, route: CheckedRoute, places: impl Into<Box<[(Scope, HostSet)]>>) {
        self.remove(at);
        let Ok(number) = u32::try_from(at) else { return };
        let route = Arc::new(route.placed(places.into()));
        self.routes.set(at, route.clone());
        let (routes, scopes) = (&self.routes, &mut self.scopes);
        let rank = |route: u32| &routes[route as usize].rank;
        for (scope, hosts) in &route.places {
            let index = scopes.get_or_default(scope.index());
            for host in &hosts.keys {
                index.insert(host, &route.path, number, &rank);
            }
        }
    }

    /// Removes a route. There may be none with the number.
    pub fn remove(&mut self, at: usize) {
        let (Some(placed), Ok(number)) = (self.routes.take(at), u32::try_from(at)) else { return };
        for (scope, hosts) in &placed.places {
            let index = self.scopes.get_or_default(scope.index());
            for host in &hosts.keys {
                index.remove(host, &placed.path, number);
            }
            if index.is_empty() {
                self.scopes.take(scope.index());
            }
        }
    }

    /// Names of the fields that the header conditions of a route read.
    pub fn fields_read_by(&self, route: usize) -> impl Iterator<Item = &str> {
        let route = self.routes.get(route);
        route.into_iter().flat_map(|route| &route.conditions.headers).map(|(name, _)| &**name)
    }

    /// Captures of the route's template in the request's path; empty for a route without a
    /// template, and for a request that the template does not match.
    pub fn captures<'t>(&'t self, route: usize, request: &'t Canonical<'_>) -> Captures<'t> {
        match self.routes.get(route).map(|route| &route.path) {
            Some(Path::Template(template)) => template.captures(request.path()),
            _ => Captures::none(),
        }
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

/// Why it is undefined which route protects a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousRoute {
    /// Its path has readings that lead to different routes.
    #[error("the path may be read as {received:?} and as {other:?}, which lead to different routes")]
    Path {
        /// The path in normal form.
        received: Box<str>,
        /// A reading of it that leads elsewhere.
        other: Box<str>,
    },
    /// A header condition read a field that the service could read differently.
    #[error(
        "the header {0}, which selects a route, is repeated, has another spelling, or is named in Connection"
    )]
    Header(Box<str>),
    /// A query condition read a parameter that the service could read differently.
    #[error(
        "the query parameter {0}, which selects a route, is repeated or has another spelling, or the query is malformed"
    )]
    Parameter(Box<str>),
}
