//! Routes: which route a request matches.
//!
//! Owns: [`RouteMatch`], the conditions of a route; [`RouteTable`], all routes of a listener, and
//! [`RouteTable::find`]. Does not own what happens on a route, nor that a request without a route
//! gets 404.
//!
//! Of all routes that match a request, the most specific one is chosen:
//!
//! 1. an exact host before the longest wildcard before any host;
//! 2. an exact path before a template before the longest prefix before any path; among templates
//!    the one with more literal segments, then one without a tail, then one with more captures;
//! 3. more conditions (header conditions, and one for a method list);
//! 4. the order of the list.
//!
//! If none of an exact host's own routes matches, less specific hosts are tried.
//!
//! Servers differ in how they read some paths: those with parameters (`/admin;v=1/users`), escaped
//! delimiters (`/a%2Fb`), empty segments or dot segments, among others. Such a path is looked up in
//! every reading. When two readings lead to different routes, there is no route.
//!
//! There is no route either when a header condition reads a field that the service could read
//! differently ([`first_ambiguous`](crate::headers::first_ambiguous)). Otherwise a client could
//! select the route by one value and show the service another. That is true for each condition that
//! was evaluated, also on routes that did not match. A proxy such as Envoy joins fields of one name
//! before it asks. Then a list that contains the value of a condition may have been several fields,
//! and is ambiguous as well.
//!
//! Lookups are hash probes: one for an exact host or path, and one for each distinct length of
//! wildcard or prefix at which the request has a boundary. For templates, the lookup walks down
//! their tree. Nothing is allocated.

mod build;
mod guards;
mod index;
mod template;

use std::cell::Cell;

use crate::headers::{Repeats, first_ambiguous, list_contains};
use crate::request::{Canonical, Field};

pub use guards::Guards;
use index::HostIndex;
pub use template::Captures;
use template::Template;

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
    /// Methods, any of which suffices; empty means any method. `GET` includes `HEAD`.
    pub methods: Vec<String>,
    /// Header conditions, all of which must hold.
    pub headers: Vec<HeaderMatch>,
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

/// All routes of a listener.
#[derive(Debug)]
pub struct RouteTable {
    routes: Box<[Conditions]>,
    hosts: HostIndex,
}

/// Conditions of a route that remain to be checked after host and path have matched.
#[derive(Debug)]
struct Conditions {
    methods: Box<[Box<str>]>,
    headers: Box<[HeaderCondition]>,
    template: Option<Template>,
}

/// A lower-case field name, and the value that the field must have.
type HeaderCondition = (Box<str>, Option<Box<[u8]>>);

/// The name of a field that a condition read and the service could read differently, once there is
/// one.
type Ambiguous<'t> = Cell<Option<&'t str>>;

impl Conditions {
    fn matches<'t>(
        &'t self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        repeats: Repeats,
        ambiguous: &Ambiguous<'t>,
    ) -> bool {
        let right = request.required_method();
        (self.methods.is_empty() || self.methods.iter().any(|method| **method == *right))
            && self.headers.iter().all(|header| header_matches(header, fields, repeats, ambiguous))
    }
}

fn header_matches<'t>(
    (name, value): &'t HeaderCondition,
    fields: &[Field<'_>],
    repeats: Repeats,
    ambiguous: &Ambiguous<'t>,
) -> bool {
    if let Some(name) = first_ambiguous(fields, [&**name]) {
        ambiguous.set(Some(name));
        return false;
    }
    // There is at most one field, otherwise it would be ambiguous.
    let found = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    match (found, value.as_deref()) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(field), Some(value)) => {
            let holds = field.value == value;
            if !holds && repeats == Repeats::Joined && list_contains(field.value, value) {
                ambiguous.set(Some(name));
            }
            holds
        }
    }
}

impl RouteTable {
    /// The index of the route that matches the request, in the order in which the table was built.
    /// `None` also when the route is [`AmbiguousRoute`].
    ///
    /// `fields` are the request's header fields; only header conditions read them.
    pub fn find(&self, request: &Canonical<'_>, fields: &[Field<'_>]) -> Option<usize> {
        self.lookup(request, fields, Repeats::Separate).ok().flatten()
    }

    /// [`RouteTable::find`] that distinguishes no route from a disputed one.
    ///
    /// # Errors
    /// [`AmbiguousRoute`] when the readings of the path lead to different routes, or a header that
    /// was read is ambiguous.
    pub fn lookup(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        repeats: Repeats,
    ) -> Result<Option<usize>, AmbiguousRoute> {
        let ambiguous = Cell::new(None);
        let holds = |route: u32| self.routes[route as usize].matches(request, fields, repeats, &ambiguous);
        let find = |path: &str| self.hosts.find(request.host(), path, &holds);
        let found = single_result(request, find, &ambiguous);
        found.map(|route| route.map(|route| route as usize))
    }

    /// For every host pattern that does not match the request's host: the route that would match
    /// the request there.
    ///
    /// # Errors
    /// As [`RouteTable::lookup`].
    fn on_other_hosts(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
    ) -> Result<Vec<usize>, AmbiguousRoute> {
        let ambiguous = Cell::new(None);
        let holds =
            |route: u32| self.routes[route as usize].matches(request, fields, Repeats::Separate, &ambiguous);
        let find = |path: &str| self.hosts.on_other_hosts(request.host(), path, &holds);
        let found = single_result(request, find, &ambiguous);
        found.map(|routes| routes.into_iter().map(|route| route as usize).collect())
    }

    /// Names of the fields that header conditions read.
    pub fn fields_read(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().flat_map(|route| &route.headers).map(|(name, _)| &**name)
    }

    /// Captures of the route's template in the request's path; empty for a route without a
    /// template, and for a request that the template does not match.
    pub fn captures<'t>(&'t self, route: usize, request: &'t Canonical<'_>) -> Captures<'t> {
        let template = self.routes.get(route).and_then(|route| route.template.as_ref());
        template.map_or_else(Captures::none, |template| template.captures(request.path()))
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
}

/// What `find` returns for the path, if it returns the same for all readings of it and read no
/// `ambiguous` field.
fn single_result<T: PartialEq>(
    request: &Canonical<'_>,
    find: impl Fn(&str) -> T,
    ambiguous: &Ambiguous<'_>,
) -> Result<T, AmbiguousRoute> {
    let found = find(request.path());
    let elsewhere = request.other_readings().iter().find(|reading| find(reading) != found);
    match (ambiguous.get(), elsewhere) {
        (Some(name), _) => Err(AmbiguousRoute::Header(name.into())),
        (None, None) => Ok(found),
        (None, Some(other)) => {
            Err(AmbiguousRoute::Path { received: request.path().into(), other: other.clone() })
        }
    }
}
