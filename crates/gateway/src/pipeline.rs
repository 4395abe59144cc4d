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
mod caller;
pub(crate) mod lookups;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::credential;
use auth::decide::Denial;
use auth::headers::TemplateValues;
use auth::policy::route::Scope;
use auth::request::Canonical;
use credentials::authenticate::Verified;
use credentials::events::{self, EventPush};
use http_engine::head::Framing;
use http_engine::local_reply::LocalReply;
use http_engine::parsed_request::ParsedRequest;
use login::Login;
use login::auth_conditions;
use login::call::{AccountAddresses, LoginCall, MAX_BODY};
use telemetry::phases::Phase;

use crate::auth_response;
use crate::auth_response::{AuthResponse, ResponseCaching, find_look_alike};
use crate::config::{AuthorizationService, BasicAuthUse, Config, QuestionSource, Route};
use crate::cors;
use crate::error_page::SignedInUser;
use crate::foreign_page;
use crate::forward::{ForwardedRequest, Incoming};
use crate::forward_auth::{self, OriginalRequestError};
use crate::forward_filter;
use crate::forward_filter::is_own_document;
use crate::forwarded_fields::ForwardedFields;
use crate::local_action;
use crate::mirror;
use crate::peer::Peer;
use crate::pipeline::authorize::RouteAuthorizer;
use crate::pipeline::caller::{Arrival, Caller, authenticate};
use crate::pipeline::lookups::{LookupNeeded, Lookups};
use crate::record::RequestRecord;
use crate::refusal::{Refusal, challenge_basic};
use crate::refusal_reply::refusal_reply;
use crate::response_edits;
use crate::trusted_proxy;
use crate::worker::{ActiveConfig, Worker, template_values};

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
    fn deny_over_http(self, source: &QuestionSource) -> Self {
        match self {
            Self::Answer(answer) => Self::Answer(Box::new(auth_response::deny_over_http(source, *answer))),
            Self::Serve(mut served) => {
                served.check_source = Some(source.clone());
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
            Some(source) => auth_response::deny_over_http(source, answer),
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
    lookups: &Lookups,
    record: &mut RequestRecord,
) -> Admission {
    let admission = if peer.listener().service.authorization().is_none() {
        admit_from_client(worker, running, peer, inbound, lookups, record)
    } else if let Some(admission) = login_passthrough(worker, running, peer, inbound, record) {
        Ok(admission)
    } else {
        original_request(running, peer, inbound).and_then(|original| {
            record.client = original.client;
            if is_status_only(running, peer) {
                record.wants_page = None;
            }
            let admission = try_admit(worker, running, peer, (&original, &peer.forwarded), lookups, record)?;
            // Over gRPC a reply is a denial regardless of its status.
            let source = authorization(running, peer).and_then(|service| service.http.as_ref());
            let source = source.filter(|_| !inbound.is_original);
            Ok(match source {
                Some(source) => admission.deny_over_http(source),
                None => admission,
            })
        })
    };
    match admission {
        Ok(admission) => admission,
        Err(refusal) => {
            if let Refusal::AmbiguousPath(other) = &refusal {
                record.read_differently(other);
            }
            let mut answer = refusal_reply(&refusal, worker, running, record);
            if answer.status == 401
                && let Some(realm) = basic_challenge(&running.config, record.route)
            {
                challenge_basic(&mut answer, realm);
            }
            Admission::Answer(Box::new(answer))
        }
    }
}

/// Whether checks come from a proxy that reads only the status of a denial (nginx): a page would be
/// rendered for nobody.
fn is_status_only(running: &ActiveConfig, peer: &Peer) -> bool {
    let source = authorization(running, peer).and_then(|service| service.http.as_ref());
    matches!(source, Some(QuestionSource::XOriginal))
}

/// The realm of the challenge for HTTP Basic, on a route that asks for it.
fn basic_challenge(config: &Config, route: Option<usize>) -> Option<&str> {
    let asks = route.is_some_and(|at| config.route(at).basic_auth == Some(BasicAuthUse::Challenge));
    config.authentication.basic.as_ref().filter(|_| asks).map(|basic| &*basic.realm)
}

/// The authorization service that a peer may use, by the current configuration: a connection may
/// outlive the configuration it was accepted under.
pub(crate) fn authorization<'r>(running: &'r ActiveConfig, peer: &Peer) -> Option<&'r AuthorizationService> {
    let listener = running.config.listeners.named(&peer.listener().name)?;
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
    let source = authorization(running, peer)?.http.as_ref()?;
    if inbound.is_original || forward_auth::is_check(source, inbound) {
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
    let source = service.http.as_ref().ok_or(Refusal::NoRoute)?;
    // Over HTTP the proxy cannot be told to remove a field.
    if let Some(name) = find_look_alike(&running.config, inbound.fields) {
        return Err(Refusal::LookAlike(name.into()));
    }
    if let Some(login) =
        running.login.as_ref().filter(|_| !matches!(source, QuestionSource::SameRequest { .. }))
    {
        refuse_at_login_path(login, inbound)?;
    }
    let client = service.client_address_header.as_deref();
    forward_auth::original(source, client, inbound).map_err(Refusal::UnclearCheck)
}

/// Refuses a check that may have arrived through the location that passes on the login's pages. A
/// client could send checks itself there, and read what is meant for a service. The proxy chooses
/// the location by its own reading of the address. So a check at an address that can be read in
/// more than one way is refused.
fn refuse_at_login_path(login: &Login, check: &ParsedRequest<'_>) -> Result<(), Refusal> {
    let at = Canonical::parse(&check.raw()).map_err(Refusal::Malformed)?;
    let unclear = if login.is_below(&at) {
        OriginalRequestError::LoginPath
    } else if at.path().contains(['%', ';']) || !at.other_readings().is_empty() {
        OriginalRequestError::Address
    } else {
        return Ok(());
    };
    Err(Refusal::UnclearCheck(unclear))
}

/// Admits a request to forward. Where a trusted proxy passed it on, it is the request that the
/// client sent to that proxy.
fn admit_from_client(
    worker: &Worker,
    running: &Rc<ActiveConfig>,
    peer: &Peer,
    inbound: &ParsedRequest<'_>,
    lookups: &Lookups,
    record: &mut RequestRecord,
) -> Result<Admission, Refusal> {
    let reported = if peer.may_report { trusted_proxy::reported(running, peer, inbound)? } else { None };
    let Some(reported) = reported else {
        return try_admit(worker, running, peer, (inbound, &peer.forwarded), lookups, record);
    };
    let timing = &running.config.server_timing;
    let address = reported.forwarded.client;
    record.shows_timing = address.is_some_and(|address| timing.iter().any(|net| net.contains(&address)));
    record.client = address.filter(|address| *address != peer.address.ip().to_canonical());
    let request = ParsedRequest { scheme: reported.scheme, ..*inbound };
    try_admit(worker, running, peer, (&request, &reported.forwarded), lookups, record)
}

fn try_admit(
    worker: &Worker,
    running: &Rc<ActiveConfig>,
    peer: &Peer,
    (inbound, forwarded): (&ParsedRequest<'_>, &ForwardedFields),
    lookups: &Lookups,
    record: &mut RequestRecord,
) -> Result<Admission, Refusal> {
    let config = &*running.config;
    worker.begin_trace(inbound.fields, record);
    // The host of an original request may be in any field.
    let block = inbound.block.filter(|_| !inbound.is_original && inbound.authority.is_none());
    let host = peer.block_results.host(block);
    let request = match &host {
        Some(host) => inbound.canonical_with_known_host(host),
        None => inbound.canonical(),
    };
    let request = request.map_err(Refusal::Malformed)?;
    if host.is_none()
        && let Some(block) = block.filter(|_| inbound.host.is_some())
    {
        peer.block_results.remember_host(block, &request);
    }
    record.describe(&request);
    record.end(Phase::Parse);
    let scope = config.routing.scope_of(peer.listener().socket, request.host());
    record.scope = scope;
    if peer.misdirects(config, request.host(), scope) {
        return Err(Refusal::Misdirected);
    }
    let forwards = peer.listener().service.authorization().is_none();
    if forwards {
        record.response_edits = response_edits::without_route(config, request.scheme());
        if peer.listener().https_redirect
            && let Some(redirect) = local_action::https_redirect(&request)?
        {
            return Ok(Admission::Answer(Box::new(redirect)));
        }
    }
    if let Some(admission) = admit_to_gateway(running, scope, forwards, inbound, &request, record) {
        return Ok(admission);
    }
    let index = route_of(config, scope, inbound, &request)?;
    let route = config.route(index);
    record.route = Some(index);
    if route.is_closed {
        return Err(Refusal::NoPolicy);
    }
    if forwards && (route.response_headers.is_some() || route.cors.is_some()) {
        let unknown = TemplateValues::default();
        record.response_edits = response_edits::of_route(route, request.scheme(), inbound.fields, &unknown);
    }
    forward_filter::check_path(route, &request).map_err(Refusal::Malformed)?;
    record.end(Phase::Match);
    let began = worker.clock.at(record.started);
    let arrival = Arrival { running, peer, inbound, lookups, began };
    let verified = match authenticate(&arrival, route, &request, record)? {
        Caller::Known(verified) => verified,
        Caller::Unknown(needed) => return Ok(Admission::Wait(needed)),
    };
    record.end(Phase::Authenticate);
    // Skipped for most requests: without an upgrade, a client's own request opens no WebSocket, and
    // sessions are seldom for frames.
    if (inbound.upgrade.is_some() || inbound.is_original || running.is_framed)
        && let Some(caller) = &verified
        && let Some(action) = foreign_page::foreign_action(
            config,
            route,
            &request,
            (inbound.fields, inbound.upgrade),
            inbound.is_original,
            caller,
        )
    {
        record.caller = verified;
        return Err(Refusal::ForeignOrigin(action));
    }
    // Waiting makes the first clock reading stale.
    let now = if lookups.waited { worker.clock.refresh() } else { began };
    let client = client_address(inbound, forwarded, record);
    let bench = RouteAuthorizer { running, peer, inbound, forwarded, lookups, now, client };
    let admission = decide(&bench, worker, index, &request, verified.as_ref(), record);
    // The log also names the caller of a refused request.
    record.caller = verified;
    admission
}

/// Admits a request for the gateway itself: a document, a security event, the login, a preflight.
fn admit_to_gateway(
    running: &ActiveConfig,
    scope: Option<Scope>,
    forwards: bool,
    inbound: &ParsedRequest<'_>,
    request: &Canonical<'_>,
    record: &mut RequestRecord,
) -> Option<Admission> {
    let config = &*running.config;
    if forwards && let Some(document) = own_document(running, request) {
        return Some(Admission::Answer(Box::new(document)));
    }
    if forwards
        && let Some(events) = &running.events
        && let Some(push) = events.match_push(request, inbound.fields)
    {
        return Some(match push {
            Ok(push) => Admission::Serve(Box::new(ServedHere {
                handler: LocalHandler::Event(push),
                check_source: None,
            })),
            Err(answer) => Admission::Answer(Box::new(answer)),
        });
    }
    if let Some(login) = &running.login
        && let Some(call) = login_call(login, config, scope, inbound, request)
    {
        return Some(match call {
            Ok(call) => ServedHere::login(login, call),
            Err(answer) => Admission::Answer(Box::new(answer)),
        });
    }
    if forwards && config.routing.has_cors() {
        let (index, reply) = cors::preflight(config, scope?, inbound, request)?;
        record.route = Some(index);
        return Some(Admission::Answer(Box::new(reply)));
    }
    None
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
    let RouteAuthorizer { running, peer, inbound, forwarded, lookups, now, .. } = *bench;
    let route = running.config.route(index);
    let verified = caller.map(|caller| &**caller);
    let permit = match bench.decide(index, request, verified.map(|verified| &verified.facts)) {
        Err(Denial::ReviewPending(questions)) if !lookups.review_failed => {
            return Ok(Admission::Wait(LookupNeeded::Reviews(questions)));
        }
        Err(ref denial)
            if login_would_help(denial, verified)
                && let Some(invitation) = login_redirect(running, route, inbound, request) =>
        {
            return Ok(Admission::Answer(Box::new(invitation)));
        }
        other => other.map_err(|denial| {
            record_user(running, request, verified, record);
            Refusal::Denied(denial)
        })?,
    };
    if peer.listener().service.authorization().is_some() {
        // The proxy that sent the check would have to query the authorizer itself.
        if route.has_authorizer() {
            return Err(Refusal::NoRoute);
        }
        let keeping = authorization(running, peer).and_then(|service| service.caching.as_ref());
        let token = credential::bearer(inbound.fields, request.query()).ok().flatten();
        let until = token.and_then(|token| running.authenticator.valid_until(token.unchecked(), now));
        let caching =
            keeping.and_then(|keeping| ResponseCaching::new(keeping, running, route, verified, until, now));
        let voucher = AuthResponse::new(permit, running, caller, inbound.fields, now)?.with_caching(caching);
        record.end(Phase::Decide);
        return Ok(Admission::PermitCheck(Box::new(voucher)));
    }
    let trace = record.trace.as_ref().map(|(trace, _)| trace);
    if route.has_authorizer() {
        match bench.query_authorizers(index, permit.request(), trace) {
            Ok((consents, other_readings)) => {
                record.route_consents = consents;
                record.guard_consents = other_readings;
            }
            Err(barred) => return barred.conclude(lookups),
        }
    }
    let permit = if route.rewrite.is_some() {
        match bench.rewrite(permit, trace) {
            Ok((permit, guards)) => {
                record.guard_consents.extend(guards);
                permit
            }
            Err(barred) => return barred.conclude(lookups),
        }
    } else {
        permit
    };
    record.end(Phase::Decide);
    if route.is_login_auth
        && let Some(verified) = verified
        && !auth_conditions::are_met(request, &verified.facts.identity)
    {
        return Err(Refusal::Denied(Denial::Forbidden { deny_rule: None }));
    }
    if route.response_headers.as_ref().is_some_and(|headers| !headers.from_caller.is_empty()) {
        let values = template_values(verified, inbound, request, forwarded);
        record.response_edits = response_edits::of_route(route, request.scheme(), inbound.fields, &values);
    }
    if let Some(action) = &route.action {
        // The permit ends here: nothing is forwarded.
        return local_action::reply(action, request).map(|reply| Admission::Answer(Box::new(reply)));
    }
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
    let incoming = Incoming { running, peer, inbound, forwarded };
    let forwarded = ForwardedRequest::new(permit, worker, incoming, verified, record)?;
    Ok(Admission::Forward(mirror::prepare(forwarded, worker, running, (route, caller), record)))
}

/// The address of the request's client, for rules; `None`: unknown. The connection of a check
/// belongs to the proxy that sent it, so there only what the proxy reports is the client's.
fn client_address(
    inbound: &ParsedRequest<'_>,
    forwarded: &ForwardedFields,
    record: &RequestRecord,
) -> Option<IpAddr> {
    if inbound.is_original { record.client.map(|address| address.to_canonical()) } else { forwarded.client }
}

/// Finds the route of a request. Without a scope there is none.
fn route_of(
    config: &Config,
    scope: Option<Scope>,
    inbound: &ParsedRequest<'_>,
    request: &Canonical<'_>,
) -> Result<usize, Refusal> {
    let Some(scope) = scope else { return Err(Refusal::NoRoute) };
    let matched = config.routing.table().lookup(scope, request, inbound.fields, inbound.repeats);
    let matched = matched.map_err(Refusal::disputed)?;
    // `ok_or` would build a refusal for each request, only to drop it.
    match matched {
        Some(index) => Ok(index),
        None => Err(Refusal::NoRoute),
    }
}

/// The request for an address of the login. A route may answer in place of the login's `auth`; the
/// checks of other proxies have no use for that.
fn login_call(
    login: &Login,
    config: &Config,
    scope: Option<Scope>,
    inbound: &ParsedRequest<'_>,
    request: &Canonical<'_>,
) -> Option<Result<LoginCall, LocalReply>> {
    let call = login.call(request, inbound.fields, inbound.is_original)?;
    let is_taken = !inbound.is_original
        && matches!(route_of(config, scope, inbound, request), Ok(index) if config.route(index).is_login_auth);
    (!is_taken).then_some(call)
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
    login.login_redirect(request, inbound.fields, inbound.upgrade.is_some(), route.login_redirect)
}

/// Records the user of a refused browser session, and where to sign in as another one, for the page.
fn record_user(
    running: &ActiveConfig,
    request: &Canonical<'_>,
    caller: Option<&Verified>,
    record: &mut RequestRecord,
) {
    let caller = caller.filter(|caller| record.wants_page.is_some() && caller.session.is_some());
    let Some(caller) = caller else { return };
    let addresses = running.login.as_ref().and_then(|login| login.account_addresses(request));
    let Some(addresses) = addresses else { return };
    let identity = &caller.facts.identity;
    let user = identity.user.as_deref().or(identity.email.as_deref()).unwrap_or(&identity.subject);
    let AccountAddresses { sign_out, other_account } = addresses;
    record.rare_mut().signed_in = Some(SignedInUser { user: user.into(), sign_out, other_account });
}

/// Documents that the gateway serves itself: the key set of its assertions.
fn own_document(running: &ActiveConfig, request: &Canonical<'_>) -> Option<LocalReply> {
    let minter = running.minter.as_ref().filter(|_| is_own_document(&running.config, request))?;
    Some(LocalReply::document("application/jwk-set+json", "public, max-age=300", minter.jwks().to_vec()))
}
