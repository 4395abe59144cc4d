//! Caller: finds the credential of a request and authenticates it, as far as that needs no wait.
//!
//! Owns: which credential counts where a request has several, and what a rejected one becomes. Does
//! not own: verification ([`credentials::authenticate`], [`login`]), the lookups that need a wait
//! ([`super::lookups`]).

use std::sync::Arc;

use auth::credential::{self, CredentialFault, PresentedToken};
use auth::policy::rule::Policy;
use auth::request::Canonical;
use credentials::authenticate::Verified;
use credentials::authenticate::outcome::{CredentialLookup, Rejection};
use credentials::cookies::Cookie;
use http_engine::clock::Now;
use http_engine::parsed_request::ParsedRequest;
use login::SessionRejected;
use telemetry::phases::CacheUse;

use super::lookups::{LookupNeeded, Lookups};
use crate::config::Route;
use crate::peer::Peer;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::worker::ActiveConfig;

/// A request with everything that its caller is found from.
pub(super) struct Arrival<'a> {
    pub(super) running: &'a ActiveConfig,
    pub(super) peer: &'a Peer,
    pub(super) inbound: &'a ParsedRequest<'a>,
    /// Results of the lookups that the request has waited for.
    pub(super) lookups: &'a Lookups,
    /// When the request began.
    pub(super) began: Now,
}

/// The caller of a request.
pub(super) enum Caller {
    /// Authenticated; `None`: there is no credential.
    Known(Option<Arc<Verified>>),
    /// A lookup is needed first.
    Unknown(LookupNeeded),
}

/// Authenticates the request's credential. A public route needs none.
pub(super) fn authenticate(
    arrival: &Arrival<'_>,
    route: &Route,
    request: &Canonical<'_>,
    record: &mut RequestRecord,
) -> Result<Caller, Refusal> {
    let Arrival { running, peer, inbound, lookups, began } = *arrival;
    if matches!(route.policy, Policy::Public) {
        return Ok(Caller::Known(None));
    }
    let presented = credential::bearer(inbound.fields, request.query())?;
    let presented = presented
        .filter(|token| !route.application_authorization || running.authenticator.claims(token.unchecked()));
    let of_websocket = if route.websocket_bearer && inbound.upgrade.is_some() {
        credential::websocket_bearer(inbound.fields)?
    } else {
        None
    };
    let presented = match (presented, &of_websocket) {
        (Some(_), Some(_)) => return Err(CredentialFault::SeveralMethods.into()),
        (None, Some(token)) => Some(PresentedToken::of_websocket(token)),
        (presented, None) => presented,
    };
    let Some(token) = presented else {
        if route.basic_auth.is_some()
            && let Some(encoded) = credential::basic(inbound.fields)
        {
            return password(arrival, encoded, record);
        }
        if let Some(session) = session(arrival, route, request, record)? {
            return Ok(session);
        }
        // The certificate of a connection that carries checks belongs to the proxy.
        if inbound.is_original {
            return Ok(Caller::Known(None));
        }
        return Ok(Caller::Known(peer.verified(&running.config, &running.authenticator, began)));
    };
    // A token of a WebSocket is decoded from its field.
    let block = inbound.block.filter(|_| of_websocket.is_none());
    let name = || peer.block_results.credential_name(block, &running.authenticator, token.unchecked());
    let (outcome, cache) = match &lookups.outcome {
        Some(outcome) => outcome.clone(),
        // The cache contains only tokens whose characters were checked when they were new.
        None => match running.authenticator.lookup(token.unchecked(), name, began) {
            CredentialLookup::Hit(verified) => (Ok(verified), CacheUse::Hit),
            CredentialLookup::Denied(rejection) => (Err(rejection), CacheUse::Denied),
            CredentialLookup::Unknown => {
                return Ok(Caller::Unknown(LookupNeeded::Caller(token.checked()?.to_vec())));
            }
        },
    };
    record.cache = Some(cache);
    outcome.map(|verified| Caller::Known(Some(verified))).map_err(rejected)
}

/// Authenticates a user name and a password.
fn password(arrival: &Arrival<'_>, encoded: &[u8], record: &mut RequestRecord) -> Result<Caller, Refusal> {
    let Arrival { running, lookups, began, .. } = *arrival;
    let (outcome, cache) = match &lookups.outcome {
        Some(outcome) => outcome.clone(),
        None => match running.authenticator.lookup_basic(encoded, began) {
            CredentialLookup::Hit(verified) => (Ok(verified), CacheUse::Hit),
            CredentialLookup::Denied(rejection) => (Err(rejection), CacheUse::Denied),
            CredentialLookup::Unknown => {
                return Ok(Caller::Unknown(LookupNeeded::Password(encoded.to_vec().into())));
            }
        },
    };
    record.cache = Some(cache);
    outcome.map(|verified| Caller::Known(Some(verified))).map_err(rejected)
}

fn rejected(rejection: Rejection) -> Refusal {
    match rejection {
        Rejection::Invalid(fault) => Refusal::invalid_token(&fault),
        Rejection::WrongPassword => Refusal::WrongPassword,
        Rejection::Unavailable { retry_after, .. } | Rejection::Busy { retry_after } => {
            Refusal::AuthUnavailable { retry_after: retry_after.as_secs() }
        }
        Rejection::Silent { .. } => Refusal::AuthUnavailable { retry_after: 1 },
    }
}

/// Looks up the request's session, on a route where a session is a credential; `None`: there is no
/// session.
fn session(
    arrival: &Arrival<'_>,
    route: &Route,
    request: &Canonical<'_>,
    record: &mut RequestRecord,
) -> Result<Option<Caller>, Refusal> {
    let Arrival { running, peer, inbound, lookups, began } = *arrival;
    let Some(login) = running.login.as_ref().filter(|_| route.login) else { return Ok(None) };
    let Some(origin) = login.origin(request.authority()) else { return Ok(None) };
    let Some(cookie) = Cookie::Session.find(login.cookie_reach(origin), inbound.fields) else {
        return Ok(None);
    };
    let name = || peer.block_results.session_name(inbound.block, login, origin, cookie);
    let (outcome, cache) = match &lookups.session {
        Some(outcome) => outcome.clone(),
        None => match login.lookup(cookie, name, began) {
            login::SessionLookup::Hit(verified) => (Ok(verified), CacheUse::Hit),
            login::SessionLookup::Denied(rejected) => (Err(rejected), CacheUse::Denied),
            login::SessionLookup::Unknown => {
                return Ok(Some(Caller::Unknown(LookupNeeded::Session(origin, cookie.to_vec()))));
            }
        },
    };
    record.cache = Some(cache);
    match outcome {
        Ok(verified) => Ok(Some(Caller::Known(Some(verified)))),
        // As without a session: the user can log in again, or present a certificate.
        Err(SessionRejected::Over) => Ok(None),
        Err(SessionRejected::Unavailable) => Err(Refusal::AuthUnavailable { retry_after: 1 }),
    }
}
