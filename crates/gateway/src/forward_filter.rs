//! What the configuration alone says of a request beside its decision: which document is ours, what a rewrite
//! leads to and who else has a say in that, which switches of protocol and which fields pass, and whose pages may
//! open a WebSocket.
//!
//! Owns: these answers, for serving and for whoever explains what serving would do. Does not own: the decision
//! (`auth::decide`), what the gateway sets itself ([`crate::forward`]).

use std::borrow::Cow;
use std::cell::Cell;

use auth::decide::explain::Trace;
use auth::decide::{Denial, Permit};
use auth::headers::{is_per_hop, may_be_nominated};
use auth::identity::CredentialKind;
use auth::policy::route::Disputed;
use auth::request::{Canonical, Field};
use auth::time::Timestamp;
use credentials::authenticate::Verified;
use credentials::cookies::{is_cookie, without_ours};
use http_engine::http_stream::Nominated;

use crate::config::{Config, Rewrite, Route};

/// Whether the gateway answers the request itself, whatever the routes say: the keys of its assertions.
pub fn is_own_document(config: &Config, request: &Canonical<'_>) -> bool {
    let path = config.assertion.as_ref().map(|assertion| &*assertion.jwks_path);
    path == Some(request.path()) && request.right() == "GET"
}

/// Exchanges the path where the route says so; its policy decides again about the new one.
///
/// # Errors
/// As [`Permit::rewrite`].
pub fn rewrite<'r>(
    config: &Config,
    permit: Permit<'r>,
    now: Timestamp,
    trace: &mut impl Trace,
) -> Result<Permit<'r>, Denial> {
    let route = &config.routes[permit.route()];
    match route.rewrite.as_ref().and_then(|rewrite| rewrite.apply(permit.request())) {
        Some(path) => permit.rewrite(&route.policy, &path, now, trace),
        None => Ok(permit),
    }
}

/// The routes beside the permit's own that guard what it leads to: after a rewrite, those that serve the new
/// path on the same upstream, for this host or another. A prefix that is taken off must not lead around the
/// rules that guard what is behind it. Their policies are to be asked with [`Permit::confirm`].
///
/// # Errors
/// When nobody can say who guards the new path; it must not be forwarded then.
pub fn guards(config: &Config, permit: &Permit<'_>, fields: &[Field<'_>]) -> Result<Vec<usize>, Disputed> {
    let own = permit.route();
    let upstream = config.routes[own].upstream.filter(|_| permit.is_rewritten());
    let guards = upstream.and_then(|upstream| config.guards[upstream].as_ref());
    let Some(guards) = guards else { return Ok(Vec::new()) };
    let mut found = guards.of(permit.request(), fields)?;
    found.retain(|route| *route != own);
    Ok(found)
}

/// Whether the route lets its clients switch to this protocol.
pub fn may_switch(route: &Route, protocol: &[u8]) -> bool {
    route.upgrades.iter().any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(protocol))
}

/// Whether the answer to an upgrade (101) is to a protocol that was offered. Protocols are compared with their versions
/// and without regard to case (RFC 9110 §7.8); of several, each must have been offered.
pub(crate) fn is_offered(offered: &[u8], answer: &[Field<'_>]) -> bool {
    let chosen = answer.iter().filter(|field| field.name.eq_ignore_ascii_case("upgrade"));
    let mut chosen = chosen.flat_map(|field| protocols(field.value)).peekable();
    chosen.peek().is_some()
        && chosen.all(|protocol| protocols(offered).any(|known| known.eq_ignore_ascii_case(protocol)))
}

/// The members of the value of an `Upgrade` field.
fn protocols(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|protocol| !protocol.is_empty())
}

/// Whether a request opens a WebSocket (RFC 6455 §4.1). Of one that a proxy asks about, some take `Upgrade` off before
/// they ask: what is left is its key, or its version.
fn is_websocket(fields: &[Field<'_>], upgrade: Option<&[u8]>, is_original: bool) -> bool {
    let upgrades =
        |value: &[u8]| protocols(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
    let tells = |field: &Field<'_>| match field.name.len() {
        7 => field.name.eq_ignore_ascii_case("upgrade") && upgrades(field.value),
        17 => field.name.eq_ignore_ascii_case("sec-websocket-key"),
        21 => field.name.eq_ignore_ascii_case("sec-websocket-version"),
        _ => false,
    };
    if is_original { fields.iter().any(tells) } else { upgrade.is_some_and(upgrades) }
}

/// Whether a page of another origin opens a WebSocket with a credential that its browser sends by itself: a session, or
/// the certificate of the connection. `upgrade` is what the connection is asked to switch to; `is_original` says that
/// another proxy asks about the request.
pub fn is_foreign_page(
    config: &Config,
    route: &Route,
    request: &Canonical<'_>,
    (fields, upgrade): (&[Field<'_>], Option<&[u8]>),
    is_original: bool,
    caller: &Verified,
) -> bool {
    if !is_websocket(fields, upgrade, is_original) {
        return false;
    }
    if caller.session.is_some() {
        // Its scheme is the one that browsers come by, wherever TLS ends.
        let login = config.login.as_ref();
        let own = login.and_then(|login| Some(&*login.origins[login.origin(request.authority())?].text));
        return is_of_a_foreign_page(route, fields, &[own.unwrap_or_default()]);
    }
    let own = [request.scheme().as_str(), "://", request.authority()];
    caller.facts.identity.kind == CredentialKind::Certificate && is_of_a_foreign_page(route, fields, &own)
}

/// Whether a request comes from a page of another origin than `own` (RFC 6454), and the route does not name that page's.
/// Browsers let any page open a WebSocket anywhere, send along what they have for the place (cookies, certificates), and
/// say whose page it is. Who names no origin is no browser.
fn is_of_a_foreign_page(route: &Route, fields: &[Field<'_>], own: &[&str]) -> bool {
    let mut origins = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("origin"));
    let (Some(origin), more) = (origins.next(), origins.next()) else { return false };
    let is_own = own.iter().flat_map(|part| part.bytes()).eq(origin.value.iter().copied());
    let is_named = || route.websocket_origins.iter().any(|named| named.as_bytes() == origin.value);
    more.is_some() || !(is_own || is_named())
}

/// Whether a client merely offers other versions of what is spoken already. It goes on without (RFC 9110 §7.8), and
/// some do so with every request: `curl --http2`, Java's `HttpClient`.
pub fn is_offer(protocols: &[u8]) -> bool {
    let version = |protocol: &[u8]| {
        let name = protocol.split(|b| *b == b'/').next().unwrap_or_default().trim_ascii();
        [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    protocols.split(|b| *b == b',').all(version)
}

/// Which of the client's fields pass to the upstream.
pub struct ForwardFilter<'a> {
    config: &'a Config,
    route: &'a Route,
    nominated: Nominated<'a>,
    removed: Cell<u32>,
}

impl<'a> ForwardFilter<'a> {
    /// For a request on a route. `nominates` tells whether a `Connection` field names more than the standard
    /// options.
    pub fn new(config: &'a Config, route: &'a Route, fields: &'a [Field<'a>], nominates: bool) -> Self {
        let by_connection = if nominates { Nominated::by(fields) } else { Nominated::none() };
        Self { config, route, nominated: by_connection, removed: Cell::new(0) }
    }

    /// How many fields were held back so far because they say what no client may say of itself.
    pub(crate) fn removed(&self) -> u32 {
        self.removed.get()
    }

    /// What passes of a field; `None`: nothing. Cookies of the login's stay here.
    pub fn passed<'v>(&self, field: &Field<'v>) -> Option<Cow<'v, [u8]>> {
        if !self.passes(field.name) {
            return None;
        }
        if self.config.login.is_some() && is_cookie(field.name) {
            return without_ours(field.value);
        }
        Some(Cow::Borrowed(field.value))
    }

    /// Whether a field of this name passes. `Host` does not, nor what frames the message: they are written anew from
    /// the canonical request and the framing.
    pub fn passes(&self, name: &str) -> bool {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => return false,
            13 if name.eq_ignore_ascii_case("authorization") => return self.route.forward_authorization,
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

    /// Whether the client asks to keep the field to this hop. Honoured for fields of its own making, never
    /// for ours and never for those whose removal would change what was authorized.
    fn is_nominated(&self, name: &str) -> bool {
        self.nominated.has(name) && may_be_nominated(name, &self.config.strip)
    }
}

impl Rewrite {
    /// The new path; `None` when the old one is not below the prefix and stays.
    pub fn apply(&self, request: &Canonical<'_>) -> Option<String> {
        match self {
            Self::StripPrefix(prefix) => request.path_below(prefix).map(str::to_owned),
            Self::ReplacePrefix { from, to } => {
                let rest = request.path_below(from)?;
                let to = to.strip_suffix('/').unwrap_or(to);
                Some(if rest == "/" && !to.is_empty() && !request.path().ends_with('/') {
                    to.to_owned()
                } else {
                    format!("{to}{rest}")
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
