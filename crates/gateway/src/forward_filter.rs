//! Forward filter: what the configuration alone decides about a request, besides the authorization
//! decision.
//!
//! Owns: which document the gateway serves itself; where a rewrite leads, and which routes guard
//! the result; which protocol switches and fields pass. Serving and `check`, which explains it,
//! share this code. Does not own: the decision (`auth::decide`), the fields that the gateway sets
//! itself ([`crate::forward`]), which pages may send a request ([`crate::foreign_page`]).

use std::borrow::Cow;
use std::cell::Cell;

use auth::credential::without_websocket_bearer;
use auth::decide::explain::Trace;
use auth::decide::{Denial, Permit};
use auth::headers::{is_per_hop, is_same_alias_class, may_be_nominated};
use auth::policy::route::AmbiguousRoute;
use auth::request::{Canonical, Field, Malformed};
use auth::time::Timestamp;
use credentials::cookies::{is_cookie, without_login_cookies};
use http_engine::http_stream::NominatedFields;

use crate::config::{Config, RequestHeaders, Rewrite, Route};

/// Whether the gateway answers the request itself, regardless of the routes: the key set of its
/// assertions.
pub fn is_own_document(config: &Config, request: &Canonical<'_>) -> bool {
    let path = config.assertion.as_ref().map(|assertion| &*assertion.jwks_path);
    path == Some(request.path()) && request.required_method() == "GET"
}

/// Refuses a path that a route with strict paths does not serve.
///
/// # Errors
/// What servers could read differently in the path.
pub fn check_path(route: &Route, request: &Canonical<'_>) -> Result<(), Malformed> {
    let fault = if route.strict_paths { request.strict_fault() } else { None };
    fault.map_or(Ok(()), Err)
}

/// Rewrites the path where the route says so. The route's policy decides again about the new path.
///
/// # Errors
/// As [`Permit::rewrite`].
pub fn rewrite<'r>(
    config: &Config,
    permit: Permit<'r>,
    now: Timestamp,
    trace: &mut impl Trace,
) -> Result<Permit<'r>, Denial> {
    let route = config.route(permit.route());
    let Some(rewrite) = &route.rewrite else { return Ok(permit) };
    match rewrite.apply(permit.request()).map_err(Denial::Rewrite)? {
        Some(path) => permit.rewrite(&route.policy, &path, now, trace),
        None => Ok(permit),
    }
}

/// The other routes that guard the target of a permit. After a rewrite these are the routes that
/// serve the new path on the same upstreams, mirrors included, for this host or another: removing a
/// prefix must not bypass the rules of what is behind it. Evaluate their policies with [`Permit::check_policy`].
///
/// # Errors
/// When the guarding routes cannot be determined; the request must not be forwarded then.
pub fn guards(
    config: &Config,
    permit: &Permit<'_>,
    fields: &[Field<'_>],
) -> Result<Vec<usize>, AmbiguousRoute> {
    let own = permit.route();
    let mut found = Vec::new();
    if !permit.is_rewritten() {
        return Ok(found);
    }
    // Which of several upstreams the request goes to is not known yet, so all of them count.
    for upstream in config.route(own).reached_upstreams() {
        let Some(guards) = config.routing.guards(upstream) else { continue };
        for route in guards.for_request(permit.request(), fields)? {
            if route != own && !found.contains(&route) {
                found.push(route);
            }
        }
    }
    Ok(found)
}

/// Whether the route lets its clients switch to this protocol.
pub fn may_switch(route: &Route, protocol: &[u8]) -> bool {
    route.upgrades.iter().any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(protocol))
}

/// Whether a 101 response selects a protocol that was offered. Protocols are compared with their
/// versions and without regard to case (RFC 9110 §7.8); if there are several, each must have been
/// offered.
pub(crate) fn is_offered(offered: &[u8], answer: &[Field<'_>]) -> bool {
    let chosen = answer.iter().filter(|field| field.name.eq_ignore_ascii_case("upgrade"));
    let mut chosen = chosen.flat_map(|field| protocols(field.value)).peekable();
    chosen.peek().is_some()
        && chosen.all(|protocol| protocols(offered).any(|known| known.eq_ignore_ascii_case(protocol)))
}

/// The members of the value of an `Upgrade` field.
pub(crate) fn protocols(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|protocol| !protocol.is_empty())
}

/// Whether a client only offers other versions of the protocol in use. The request continues
/// without a switch (RFC 9110 §7.8). Some clients offer this with every request: `curl --http2`,
/// Java's `HttpClient`.
pub fn is_version_offer(protocols: &[u8]) -> bool {
    let version = |protocol: &[u8]| {
        let name = protocol.split(|b| *b == b'/').next().unwrap_or_default().trim_ascii();
        [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    protocols.split(|b| *b == b',').all(version)
}

/// Decides which client fields pass to the upstream.
pub struct ForwardFilter<'a> {
    config: &'a Config,
    route: &'a Route,
    /// The changes that apply: those of the route, or of one of its upstreams.
    changes: Option<&'a RequestHeaders>,
    passes_authorization: bool,
    /// Whether fields are removed besides those of every route.
    removes: bool,
    /// Whether parts of values are taken off: tokens in handshakes, cookies of the login.
    cuts: bool,
    nominated: NominatedFields<'a>,
    /// Names of fields that authorizers took off or replaced.
    without: Vec<&'a str>,
    removed: Cell<u32>,
}

impl<'a> ForwardFilter<'a> {
    /// Creates the filter for a request on a route. `changes` are those of the route, or of the one of
    /// its upstreams that receives the request. `nominates`: whether a `Connection` field names
    /// more than the standard options. `session`: whether the caller's credential is a session, so
    /// that an `Authorization` is not for the gateway.
    pub fn new(
        config: &'a Config,
        (route, changes): (&'a Route, Option<&'a RequestHeaders>),
        (fields, nominates): (&'a [Field<'a>], bool),
        session: bool,
    ) -> Self {
        let passes_authorization = route.forward_authorization || route.application_authorization && session;
        let by_connection =
            if nominates { NominatedFields::from_fields(fields) } else { NominatedFields::none() };
        Self {
            config,
            route,
            changes,
            passes_authorization,
            removes: changes.is_some(),
            cuts: route.websocket_bearer || config.login.is_some(),
            nominated: by_connection,
            without: Vec::new(),
            removed: Cell::new(0),
        }
    }

    /// The same, and no field with one of these names passes.
    #[must_use]
    pub fn without(mut self, names: impl Iterator<Item = &'a Box<str>>) -> Self {
        self.without.extend(names.map(|name| &**name));
        self.removes |= !self.without.is_empty();
        self
    }

    /// Number of fields removed so far because no client may set them.
    pub(crate) fn removed(&self) -> u32 {
        self.removed.get()
    }

    /// Counts fields that were removed from the same block before.
    pub(crate) fn add_removed(&self, count: u32) {
        self.removed.set(self.removed.get() + count);
    }

    /// Whether answers of authorizers say what passes, too.
    pub(crate) fn depends_on_answers(&self) -> bool {
        !self.without.is_empty()
    }

    /// The part of a field that passes; `None`: nothing. Cookies of the login never pass.
    #[inline]
    pub fn passing_value<'v>(&self, field: &Field<'v>) -> Option<Cow<'v, [u8]>> {
        if !self.passes(field.name) {
            None
        } else if self.cuts {
            self.cut_value(field)
        } else {
            Some(Cow::Borrowed(field.value))
        }
    }

    // Apart, so that the caller stays small for the other routes.
    #[inline(never)]
    fn cut_value<'v>(&self, field: &Field<'v>) -> Option<Cow<'v, [u8]>> {
        if self.route.websocket_bearer && is_same_alias_class(field.name, "sec-websocket-protocol") {
            return without_websocket_bearer(field.value).map(Cow::Owned);
        }
        if self.config.login.is_some() && is_cookie(field.name) {
            return without_login_cookies(field.value);
        }
        Some(Cow::Borrowed(field.value))
    }

    /// Whether a field of this name passes. `Host` and the framing fields do not: they are
    /// rewritten from the canonical request and the framing.
    pub fn passes(&self, name: &str) -> bool {
        if self.removes && self.is_removed(name) {
            return false;
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => return false,
            13 if name.eq_ignore_ascii_case("authorization") => return self.passes_authorization,
            _ => {}
        }
        if is_per_hop(name) {
            return false;
        }
        if self.config.strip.strips(name) {
            self.removed.set(self.removed.get() + 1);
            return false;
        }
        !self.is_nominated(name)
    }

    #[inline(never)]
    fn is_removed(&self, name: &str) -> bool {
        self.changes.is_some_and(|headers| headers.removes(name))
            || self.without.iter().any(|without| is_same_alias_class(without, name))
    }

    /// Whether the client limits the field to this hop. This is honoured for the client's own
    /// fields, never for ours, and never for those whose removal would change what was authorized.
    fn is_nominated(&self, name: &str) -> bool {
        self.nominated.contains(name) && may_be_nominated(name, &self.config.strip)
    }
}

impl Rewrite {
    /// The new path; `None` when the old one is not below the prefix and stays.
    ///
    /// # Errors
    /// When servers disagree on the prefix of the path ([`Canonical::forwarded_below`]).
    pub fn apply(&self, request: &Canonical<'_>) -> Result<Option<String>, Malformed> {
        match self {
            Self::ReplacePath(path) => Ok(Some(path.to_string())),
            Self::StripPrefix(prefix) => Ok(request.forwarded_below(prefix)?.map(str::to_owned)),
            Self::ReplacePrefix { from, to } => {
                let to = to.strip_suffix('/').unwrap_or(to);
                Ok(request.forwarded_below(from)?.map(|rest| {
                    if rest == "/" && !to.is_empty() && !request.forwarded_path().ends_with('/') {
                        to.to_owned()
                    } else {
                        format!("{to}{rest}")
                    }
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &'static str) -> Canonical<'static> {
        let raw = auth::request::RawRequest {
            method: "GET",
            scheme: auth::request::Scheme::Http,
            authority: None,
            host: Some(b"app.example"),
            target: target.as_bytes(),
        };
        Canonical::parse(&raw).unwrap()
    }

    /// The table of `ReplacePrefixMatch` in the Gateway API, version 1.6.
    #[test]
    fn a_prefix_is_replaced_as_the_gateway_api_says() {
        for (path, prefix, replacement, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            // Not in the table.
            ("/foo/bar", "/", "/xyz", "/xyz/foo/bar"),
            ("/foo/bar", "/", "/", "/foo/bar"),
            ("/", "/", "/xyz", "/xyz/"),
        ] {
            let rewrite = Rewrite::ReplacePrefix { from: prefix.into(), to: replacement.into() };
            let rewritten = rewrite.apply(&request(path)).unwrap();
            assert_eq!(rewritten.as_deref(), Some(expected), "{path} {prefix} {replacement:?}");
        }
        let whole = Rewrite::ReplacePath("/one".into());
        assert_eq!(whole.apply(&request("/full/one/two?a=b")).unwrap().as_deref(), Some("/one"));
    }

    #[test]
    fn an_upgrade_is_to_what_was_offered() {
        let answered = |offered: &str, answers: &[&str]| {
            let fields: Vec<_> =
                answers.iter().map(|value| Field { name: "Upgrade", value: value.as_bytes() }).collect();
            is_offered(offered.as_bytes(), &fields)
        };
        for (offered, answers) in [
            ("websocket", &["websocket"][..]),
            ("websocket", &["WebSocket"]),
            ("foo/2, bar", &["bar"]),
            ("foo/2, bar", &["FOO/2"]),
            ("foo/2,bar", &["bar , foo/2"]),
            ("foo/2, bar", &["bar", "foo/2"]),
        ] {
            assert!(answered(offered, answers), "{offered:?} {answers:?}");
        }
        for (offered, answers) in [
            ("websocket", &["h2c"][..]),
            ("websocket", &[]),
            ("websocket", &[""]),
            ("websocket", &[" , "]),
            ("websocket", &["websocket, h2c"]),
            ("websocket", &["websocket", "h2c"]),
            ("websocket", &["websocket/13"]),
            ("foo/2, bar", &["foo"]),
            ("foo/2, bar", &["foo/1"]),
            ("foo/2, bar", &["foo/2 bar"]),
        ] {
            assert!(!answered(offered, answers), "{offered:?} {answers:?}");
        }
    }
}
