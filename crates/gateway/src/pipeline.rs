//! Request pipeline: canonical form, route, credential, permit.
//!
//! Owns: the order of the steps, and what each refusal becomes. Our own decision comes first, then
//! that of an authorizer where the route has one. Both codecs enter here with a parsed request and
//! leave with an [`Admission`]. Does not own: the grammar (codecs), verification
//! ([`credentials::authenticate`]), the decision (`auth::decide`), authorizers
//! ([`crate::authorizer`]), the upstream's request ([`crate::forward`]).
//!
//! Flow: `admit → Forward | Vouch | Answer | Serve | Wait`. After `Wait` the codec runs
//! [`lookups::Lookups::resolve`] and calls `admit` again with the same bytes. So a cached decision
//! takes one synchronous call without a future. The listener determines what a permit becomes: it
//! forwards, or permits a check of another proxy that forwards itself.

mod authorize;
pub(crate) mod lookups;

use std::rc::Rc;
use std::sync::Arc;

use auth::credential;
use auth::decide::Denial;
use auth::policy::rule::Policy;
use auth::request::Canonical;
use credentials::authenticate::Verified;
use credentials::authenticate::outcome::{CredentialLookup, Rejection};
use credentials::cookies::Cookie;
use credentials::events::{self, EventPush};
use http_engine::clock::Now;
use http_engine::head::Framing;
use http_engine::local_reply::LocalReply;
use http_engine::parsed_request::ParsedRequest;
use login::call::{LoginCall, MAX_BODY};
use login::{Login, SessionRejected};
use telemetry::phases::{CacheUse, Phase};

use crate::auth_response;
use crate::auth_response::{AuthResponse, ResponseCaching, find_look_alike};
use crate::config::{AuthorizationService, Config, QuestionSource, Route};
use crate::forward::{ForwardedRequest, Incoming};
use crate::forward_auth::{self, OriginalRequestError};
use crate::forward_filter;
use crate::forward_filter::is_own_document;
use crate::peer::Peer;
use crate::pipeline::authorize::RouteAuthorizer;
use crate::pipeline::lookups::{LookupNeeded, Lookups};
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::worker::{ActiveConfig, Worker};

/// The result of admitting a request.
pub(crate) enum Admission {
    /// Permitted: forward this request.
    Forward(Box<ForwardedRequest>),
    /// Permitted: send this response to the proxy that asked and forwards itself.
    PermitCheck(Box<AuthResponse>),
    /// Answered with this local reply.
    Answer(Box<LocalReply>),
    /// A request for the login or with a security event: answered here, perhaps after its body was
    /// read.
    Serve(Box<ServedHere>),
    /// A lookup is needed; then admit the request again.
    Wait(LookupNeeded),
}

impl Admission {
    /// Converts local replies so that the proxy that sent the check does not take them for a
    /// permission.
    fn deny_over_http(self, asking: &QuestionSource) -> Self {
        match self {
            Self::Answer(answer) => Self::Answer(Box::new(auth_response::deny_over_http(asking, *answer))),
            Self::Serve(mut served) => {
                served.check_source = Some(asking.clone());
                Self::Serve(served)
            }
            other => other,
        }
    }
}

/// A request that the gateway answers itself, possibly after it has read the body.
pub(crate) struct ServedHere {
    handler: LocalHandler,
    /// The form of the check, if it came from a proxy that reads the status as the answer.
    check_source: Option<QuestionSource>,
}

/// The component that answers the request.
enum LocalHandler {
    /// A request for an address of the login.
    Login(Arc<Login>, LoginCall),
    /// A request that delivers a security event.
    Event(EventPush),
}

impl ServedHere {
    fn login(login: &Arc<Login>, call: LoginCall) -> Admission {
        Admission::Serve(Box::new(Self {
            handler: LocalHandler::Login(login.clone(), call),
            check_source: None,
        }))
    }

    /// Maximum bytes of the body to read first; `None`: the body is not needed.
    pub(crate) fn wants_body(&self) -> Option<usize> {
        match &self.handler {
            LocalHandler::Login(_, call) => call.wants_body().then_some(MAX_BODY),
            LocalHandler::Event(push) => push.wants_body().then_some(events::MAX_BODY),
        }
    }

    /// Produces the reply.
    pub(crate) async fn answer(self, body: Vec<u8>) -> LocalReply {
        let answer = match self.handler {
            LocalHandler::Login(login, call) => login.serve(call, body).await,
            LocalHandler::Event(push) => push.answer(body).await,
        };
        match &self.check_source {
            Some(asking) => auth_response::deny_over_http(asking, answer),
            None => answer,
        }
    }
}

/// Takes a request through all steps to its decision.
pub(crate) fn admit(
    worker: &Worker,
    running: &Rc<ActiveConfig>,
    peer: &Peer,
    inbound: &ParsedRequest<'_>,
    found: &Lookups,
    record: &mut RequestRecord,
) -> Admission {
    let admission = if peer.listener().service.authorization().is_none() {
        try_admit(worker, running, peer, inbound, found, record)
    } else if let Some(admission) = login_passthrough(worker, running, peer, inbound, record) {
        Ok(admission)
    } else {
        original_request(running, peer, inbound).and_then(|original| {
            record.client = original.client;
            let admission = try_admit(worker, running, peer, &original, found, record)?;
            // Over gRPC a reply is a denial regardless of its status.
            let asking = authorization(running, peer).and_then(|service| service.http.as_ref());
            let asking = asking.filter(|_| !inbound.is_original);
            Ok(match asking {
                Some(asking) => admission.deny_over_http(asking),
                None => admission,
            })
        })
    };
    match admission {
        Ok(admission) => admission,
        Err(refusal) => Admission::Answer(Box::new(refusal.answer(&running.config.authentication.realm))),
    }
}

/// The authorization service that a peer may use, by the current configuration: a connection may
/// outlive the configuration it was accepted under.
pub(crate) fn authorization<'r>(running: &'r ActiveConfig, peer: &Peer) -> Option<&'r AuthorizationService> {
    let listener = running.config.listeners.iter().find(|l| l.name == peer.listener().name)?;
    let address = peer.address.ip().to_canonical();
    let trusts =
        |service: &&AuthorizationService| service.trusted_proxies.iter().any(|net| net.contains(&address));
    listener.service.authorization().filter(trusts)
}

/// Handles a client's request for the login that a proxy passed on unchanged. Such proxies (nginx,
/// `HAProxy`) cannot pass on the login's redirects as answers to a check.
fn login_passthrough(
    worker: &Worker,
    running: &ActiveConfig,
    peer: &Peer,
    inbound: &ParsedRequest<'_>,
    record: &mut RequestRecord,
) -> Option<Admission> {
    let login = running.login.as_ref()?;
    let asking = authorization(running, peer)?.http.as_ref()?;
    if inbound.is_original || forward_auth::is_check(asking, inbound) {
        return None;
    }
    let request = Canonical::parse(&inbound.raw()).ok()?;
    worker.begin_trace(inbound.fields, record);
    record.describe(&request);
    Some(match login.call(&request, inbound.fields, false)? {
        Ok(call) => ServedHere::login(login, call),
        Err(answer) => Admission::Answer(Box::new(answer)),
    })
}

/// The original request of a check.
fn original_request<'a>(
    running: &ActiveConfig,
    peer: &Peer,
    inbound: &ParsedRequest<'a>,
) -> Result<ParsedRequest<'a>, Refusal> {
    let service = authorization(running, peer).ok_or(Refusal::UntrustedPeer)?;
    if inbound.is_original {
        return Ok(*inbound);
    }
    let asking = service.http.as_ref().ok_or(Refusal::NoRoute)?;
    // Over HTTP the proxy cannot be told to remove a field.
    if let Some(name) = find_look_alike(&running.config, inbound.fields) {
        return Err(Refusal::LookAlike(name.into()));
    }
    if let Some(login) =
        running.login.as_ref().filter(|_| !matches!(asking, QuestionSource::SameRequest { .. }))
    {
        refuse_at_login_path(login, inbound)?;
    }
    forward_auth::original(asking, inbound).map_err(Refusal::UnclearCheck)
}

/// Refuses a check that may have arrived through the location that passes on the login's pages. A
/// client could send checks itself there, and read what is meant for a service. The proxy chooses
/// the location by its own reading of the address. So a check at an address that can be read in
/// more than one way is refused.
fn refuse_at_login_path(login: &Login, asked: &ParsedRequest<'_>) -> Result<(), Refusal> {
    let at = Canonical::parse(&asked.raw()).map_err(Refusal::Malformed)?;
    let unclear = if login.is_below(&at) {
        OriginalRequestError::LoginPath
    } else if at.path().contains(['%', ';']) {
        OriginalRequestError::Address
    } else {
        return Ok(());
    };
    Err(Refusal::UnclearCheck(unclear))
}

fn try_admit(
    worker: &Worker,
    running: &Rc<ActiveConfig>,
    peer: &Peer,
    inbound: &ParsedRequest<'_>,
    found: &Lookups,
    record: &mut RequestRecord,
) -> Result<Admission, Refusal> {
    let config = &*running.config;
    worker.begin_trace(inbound.fields, record);
    let request = Canonical::parse(&inbound.raw()).map_err(Refusal::Malformed)?;
    record.describe(&request);
    record.end(Phase::Parse);
    let forwards = peer.listener().service.authorization().is_none();
    if forwards && let Some(document) = own_document(running, &request) {
        return Ok(Admission::Answer(Box::new(document)));
    }
    if forwards
        && let Some(events) = &running.events
        && let Some(push) = events.match_push(&request, inbound.fields)
    {
        return Ok(match push {
            Ok(push) => Admission::Serve(Box::new(ServedHere {
                handler: LocalHandler::Event(push),
                check_source: None,
            })),
            Err(answer) => Admission::Answer(Box::new(answer)),
        });
    }
    if let Some(login) = &running.login
        && let Some(call) = login.call(&request, inbound.fields, inbound.is_original)
    {
        return Ok(match call {
            Ok(call) => ServedHere::login(login, call),
            Err(answer) => Admission::Answer(Box::new(answer)),
        });
    }
    let index = route_of(config, inbound, &request)?;
    let route = &config.routes[index];
    record.route = Some(index);
    record.end(Phase::Match);
    let began = worker.clock.at(record.started);
    let arrival = Arrival { running, peer, inbound, found, began };
    let verified = match credential(&arrival, route, &request, record)? {
        Caller::Known(verified) => verified,
        Caller::Unknown(wanted) => return Ok(Admission::Wait(wanted)),
    };
    record.end(Phase::Authenticate);
    // Skipped for most requests: without an upgrade, a client's own request opens no WebSocket.
    if (inbound.upgrade.is_some() || inbound.is_original)
        && let Some(caller) = &verified
        && forward_filter::is_foreign_page(
            config,
            route,
            &request,
            (inbound.fields, inbound.upgrade),
            inbound.is_original,
            caller,
        )
    {
        record.caller = verified;
        return Err(Refusal::ForeignOrigin);
    }
    // Waiting makes the first clock reading stale.
    let now = if found.waited { worker.clock.refresh() } else { began };
    let bench = RouteAuthorizer { running, peer, inbound, found, now };
    let admission = decide(&bench, worker, index, &request, verified.as_ref(), record);
    // The log also names the caller of a refused request.
    record.caller = verified;
    admission
}

/// Decides whether a request with a known caller passes, and what follows.
fn decide(
    bench: &RouteAuthorizer<'_>,
    worker: &Worker,
    index: usize,
    request: &Canonical<'_>,
    caller: Option<&Arc<Verified>>,
    record: &mut RequestRecord,
) -> Result<Admission, Refusal> {
    let RouteAuthorizer { running, peer, inbound, found, now } = *bench;
    let route = &running.config.routes[index];
    let verified = caller.map(|caller| &**caller);
    let permit = match bench.decide(index, request, verified.map(|verified| &verified.facts)) {
        Err(Denial::ReviewPending(questions)) if !found.review_failed => {
            return Ok(Admission::Wait(LookupNeeded::Reviews(questions)));
        }
        Err(ref denial)
            if login_would_help(denial, verified)
                && let Some(invitation) = login_redirect(running, route, inbound, request) =>
        {
            return Ok(Admission::Answer(Box::new(invitation)));
        }
        other => other.map_err(Refusal::Denied)?,
    };
    if peer.listener().service.authorization().is_some() {
        // The proxy that sent the check would have to query the authorizer itself.
        if route.authorizer.is_some() {
            return Err(Refusal::NoRoute);
        }
        let keeping = authorization(running, peer).and_then(|service| service.caching.as_ref());
        let token = credential::bearer(inbound.fields, request.query()).ok().flatten();
        let until = token.and_then(|token| running.authenticator.valid_until(token.unchecked(), now));
        let kept =
            keeping.and_then(|keeping| ResponseCaching::new(keeping, running, route, verified, until, now));
        let voucher = AuthResponse::new(permit, running, caller, inbound.fields, now)?.with_caching(kept);
        record.end(Phase::Decide);
        return Ok(Admission::PermitCheck(Box::new(voucher)));
    }
    let concluded =
        bench.query_authorizer(index, permit.request(), record.trace.as_ref().map(|(trace, _)| trace));
    let concluded = concluded.and_then(|consent| {
        record.consent = consent;
        bench.rewrite(permit, record.trace.as_ref().map(|(trace, _)| trace))
    });
    let (permit, guards) = match concluded {
        Ok(concluded) => concluded,
        Err(barred) => return barred.conclude(found),
    };
    record.guard_consents = guards;
    record.end(Phase::Decide);
    if let Some(protocol) = inbound.upgrade
        && !forward_filter::may_switch(route, protocol)
    {
        return Err(Refusal::UpgradeRefused);
    }
    if let (Framing::Length(n), Some(max)) = (inbound.framing, route.body_bytes)
        && n > max
    {
        return Err(Refusal::BodyTooLarge);
    }
    let incoming = Incoming { running, peer, inbound };
    let outbound = ForwardedRequest::new(permit, worker, incoming, verified, record)?;
    Ok(Admission::Forward(Box::new(outbound)))
}

/// Finds the route of a request.
fn route_of(config: &Config, inbound: &ParsedRequest<'_>, request: &Canonical<'_>) -> Result<usize, Refusal> {
    let found = config.table.lookup(request, inbound.fields, inbound.repeats).map_err(Refusal::disputed)?;
    // `ok_or` would build a refusal for each request, only to drop it.
    match found {
        Some(index) => Ok(index),
        None => Err(Refusal::NoRoute),
    }
}

/// A request with everything that its caller is found from.
struct Arrival<'a> {
    running: &'a ActiveConfig,
    peer: &'a Peer,
    inbound: &'a ParsedRequest<'a>,
    /// Results of the lookups that the request has waited for.
    found: &'a Lookups,
    /// When the request began.
    began: Now,
}

enum Caller {
    Known(Option<Arc<Verified>>),
    Unknown(LookupNeeded),
}

/// Authenticates the request's credential. A public route needs none.
#[allow(clippy::too_many_arguments, reason = "one step of `try_admit`, split off for its length")]
fn credential(
    arrival: &Arrival<'_>,
    route: &Route,
    request: &Canonical<'_>,
    record: &mut RequestRecord,
) -> Result<Caller, Refusal> {
    let Arrival { running, peer, inbound, found, began } = *arrival;
    if matches!(route.policy, Policy::Public) {
        return Ok(Caller::Known(None));
    }
    let Some(token) = credential::bearer(inbound.fields, request.query())? else {
        if let Some(session) = session(arrival, route, request, record)? {
            return Ok(session);
        }
        // The certificate of a connection that carries checks belongs to the proxy.
        if inbound.is_original {
            return Ok(Caller::Known(None));
        }
        return Ok(Caller::Known(peer.verified(&running.config, &running.authenticator, began)));
    };
    let (outcome, cache) = match &found.outcome {
        Some(outcome) => outcome.clone(),
        // The cache contains only tokens whose characters were checked when they were new.
        None => match running.authenticator.lookup(token.unchecked(), began) {
            CredentialLookup::Hit(verified) => (Ok(verified), CacheUse::Hit),
            CredentialLookup::Denied(rejection) => (Err(rejection), CacheUse::Denied),
            CredentialLookup::Unknown => {
                return Ok(Caller::Unknown(LookupNeeded::Caller(token.checked()?.to_vec())));
            }
        },
    };
    record.cache = Some(cache);
    outcome.map(|verified| Caller::Known(Some(verified))).map_err(|rejection| match rejection {
        Rejection::Invalid(fault) => Refusal::invalid_token(&fault),
        Rejection::Unavailable { retry_after, .. } => {
            Refusal::AuthUnavailable { retry_after: retry_after.as_secs() }
        }
        Rejection::Silent { .. } => Refusal::AuthUnavailable { retry_after: 1 },
    })
}

/// Looks up the request's session, on a route where a session is a credential; `None`: there is no
/// session.
fn session(
    arrival: &Arrival<'_>,
    route: &Route,
    request: &Canonical<'_>,
    record: &mut RequestRecord,
) -> Result<Option<Caller>, Refusal> {
    let Arrival { running, inbound, found, began, .. } = *arrival;
    let Some(login) = running.login.as_ref().filter(|_| route.login) else { return Ok(None) };
    let Some(origin) = login.origin(request.authority()) else { return Ok(None) };
    let Some(cookie) = Cookie::Session.find(login.scheme(origin), inbound.fields) else { return Ok(None) };
    let (outcome, cache) = match &found.session {
        Some(outcome) => outcome.clone(),
        None => match login.lookup(origin, cookie, began) {
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

/// Whether a login would help: there is no credential, or the session has expired just now.
fn login_would_help(denial: &Denial, caller: Option<&Verified>) -> bool {
    match denial {
        Denial::Unauthenticated => true,
        Denial::Expired => caller.is_some_and(|caller| caller.session.is_some()),
        _ => false,
    }
}

/// The reply that sends a browser to log in; `None`: the client is not a browser that a page would
/// help.
fn login_redirect(
    running: &ActiveConfig,
    route: &Route,
    inbound: &ParsedRequest<'_>,
    request: &Canonical<'_>,
) -> Option<LocalReply> {
    let login = running.login.as_ref().filter(|_| route.login)?;
    login.login_redirect(request, inbound.fields, inbound.upgrade.is_some())
}

/// Documents that the gateway serves itself: the key set of its assertions.
fn own_document(running: &ActiveConfig, request: &Canonical<'_>) -> Option<LocalReply> {
    let minter = running.minter.as_ref().filter(|_| is_own_document(&running.config, request))?;
    Some(LocalReply::document("application/jwk-set+json", "public, max-age=300", minter.jwks().to_vec()))
}
