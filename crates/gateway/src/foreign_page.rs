//! Foreign page: whether a page of another site made the browser send a request with a credential
//! that browsers add by themselves: a session, a client certificate, a password.
//!
//! Owns: that decision, for a WebSocket and, where browsers keep sessions in frames of other sites,
//! for all requests. Serving and `check`, which explains it, share this code. Does not own: what
//! becomes of such a request, CORS ([`crate::cors`]).
//!
//! Browsers let any page open a WebSocket anywhere, so only `Origin` tells the pages apart. Other
//! requests of other sites have no session, because its cookie is `SameSite=Lax`. A cookie for
//! frames has `SameSite=None`; there this module decides what the attribute decides elsewhere, by
//! the fields that browsers alone set (W3C Fetch Metadata, RFC 6454).

use auth::identity::CredentialKind;
use auth::request::{Canonical, Field};
use credentials::authenticate::Verified;

use crate::config::{Config, Route};
use crate::forward_filter::protocols;

/// What a page of another site makes the browser do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignAction {
    /// It opens a WebSocket.
    WebSocket,
    /// It sends a request that could change something, or that is no navigation.
    Request,
}

/// What a page of another site does with this request, if the caller's credential does not permit
/// it that. `upgrade` is the protocol that the client wants; `is_original` means that the request
/// comes from another proxy's check.
pub fn foreign_action(
    config: &Config,
    route: &Route,
    request: &Canonical<'_>,
    (fields, upgrade): (&[Field<'_>], Option<&[u8]>),
    is_original: bool,
    caller: &Verified,
) -> Option<ForeignAction> {
    let is_session = caller.session.is_some();
    let login = config.login.as_ref().filter(|_| is_session);
    // The configured origin has the scheme that browsers use, regardless of where TLS ends.
    let scheme = login.and_then(|login| Some(login.scheme(login.origin(request.authority())?)));
    let own = [scheme.unwrap_or(request.scheme()).as_str(), "://", request.authority()];
    if is_websocket(fields, upgrade, is_original) {
        let kind = caller.facts.identity.kind;
        let is_sent_by_browsers =
            is_session || matches!(kind, CredentialKind::Certificate | CredentialKind::Basic);
        let is_foreign = is_sent_by_browsers && has_foreign_origin(route, fields, own);
        return is_foreign.then_some(ForeignAction::WebSocket);
    }
    let is_foreign = is_framed(config) && is_session && is_foreign_request(route, request, fields, own);
    is_foreign.then_some(ForeignAction::Request)
}

/// Whether browsers keep sessions in frames of other sites.
pub fn is_framed(config: &Config) -> bool {
    config.login.as_ref().is_some_and(|login| login.frame_ancestors.is_some())
}

/// Whether a request opens a WebSocket (RFC 6455 §4.1). Some proxies remove `Upgrade` before they
/// send a check; then the WebSocket key or version shows it.
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

/// Whether a WebSocket is opened by a page of another origin than `own`, which the route does not
/// list. A client that sends no origin is not a browser.
fn has_foreign_origin(route: &Route, fields: &[Field<'_>], own: [&str; 3]) -> bool {
    let mut origins = values(fields, "origin");
    let (Some(origin), more) = (origins.next(), origins.next()) else { return false };
    let is_named = || route.websocket_origins.iter().any(|named| named.as_bytes() == origin);
    more.is_some() || !(is_own(origin, own) || is_named())
}

/// Whether a request other than a WebSocket's is from a page of another site, and is not one that a
/// cookie with `SameSite=Lax` would go with, or that the route's CORS policy permits with
/// credentials.
fn is_foreign_request(route: &Route, request: &Canonical<'_>, fields: &[Field<'_>], own: [&str; 3]) -> bool {
    let is_safe = matches!(request.method(), "GET" | "HEAD");
    let mut origins = values(fields, "origin");
    let (origin, more) = (origins.next(), origins.next());
    if more.is_some() {
        return true;
    }
    if origin.is_some_and(|origin| is_own(origin, own) || permits_credentials(route, origin)) {
        return false;
    }
    let mut sites = values(fields, "sec-fetch-site");
    match (sites.next(), sites.next()) {
        // Typed, a bookmark, or a page of the same site. `Origin` may be `null` with the latter.
        (Some(b"same-origin" | b"same-site" | b"none"), None) => false,
        (Some(_), _) => !(is_safe && is_page_navigation(fields)),
        // An old browser sends `Origin` at least with what is not safe; a program can.
        (None, _) => origin.is_some() || !is_safe,
    }
}

/// Whether a page is opened, in a tab or in a frame.
fn is_page_navigation(fields: &[Field<'_>]) -> bool {
    let mode = values(fields, "sec-fetch-mode").next();
    let destination = values(fields, "sec-fetch-dest").next();
    mode == Some(b"navigate") && !matches!(destination, Some(b"object" | b"embed"))
}

fn is_own(origin: &[u8], own: [&str; 3]) -> bool {
    own.iter().flat_map(|part| part.bytes()).eq(origin.iter().copied())
}

/// Whether the route lets pages of this origin send what the browser adds by itself.
fn permits_credentials(route: &Route, origin: &[u8]) -> bool {
    let policy = route.cors.as_ref().filter(|policy| policy.credentials);
    policy.is_some_and(|policy| str::from_utf8(origin).is_ok_and(|origin| policy.allows(origin)))
}

fn values<'f>(fields: &'f [Field<'_>], name: &'f str) -> impl Iterator<Item = &'f [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}
