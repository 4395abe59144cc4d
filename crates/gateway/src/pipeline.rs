//! One request on its way to a decision: canonical form, route, credential, permit.
//!
//! Owns: the order of the steps and what each refusal of theirs becomes. Both codecs enter here with what
//! they parsed and leave with an [`Admission`]. Does not own: the grammar (codecs), verification
//! ([`crate::authenticate`]), the decision (`auth::decide`), what is sent upstream ([`crate::forward`]).
//!
//! Flow: `admit → Forward | Answer | Authenticate`; the last is answered by `Authenticator::authenticate` and
//! another `admit` of the same bytes, so that a cached decision takes one synchronous call without a future.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::credential;
use auth::decide::explain::NoTrace;
use auth::decide::{Permit, decide};
use auth::policy::route::Disputed;
use auth::policy::rule::Policy;
use auth::request::{Canonical, Field, RawRequest, Scheme};
use rustls::pki_types::CertificateDer;

use crate::answer::{Answer, Refusal};
use crate::authenticate::{Lookup, Outcome, Rejection, Verified};
use crate::clock::Now;
use crate::config::{Config, Listener, Route};
use crate::forward::Outbound;
use crate::http1::head::Framing;
use crate::passage::{self, is_own_document};
use crate::phases::{CacheUse, Phase};
use crate::record::Record;
use crate::tls::ClientAuthorities;
use crate::worker::{Running, Worker};

/// A request head as a codec parsed it.
pub(crate) struct Inbound<'a> {
    pub(crate) method: &'a str,
    /// `:authority`, or the authority of an absolute-form target.
    pub(crate) authority: Option<&'a [u8]>,
    /// The one `Host` field.
    pub(crate) host: Option<&'a [u8]>,
    /// Path and query.
    pub(crate) target: &'a [u8],
    pub(crate) fields: &'a [Field<'a>],
    pub(crate) framing: Framing,
    /// The head said how long the body is, even if that is 0.
    pub(crate) has_length: bool,
    /// Protocol to switch to (`Upgrade`), when the connection asks for it.
    pub(crate) upgrade: Option<&'a [u8]>,
    /// A `Connection` field nominates fields beyond the standard ones.
    pub(crate) nominates: bool,
    /// For `Via` (RFC 9110 §7.6.3): the protocol the request came in on.
    pub(crate) via: &'static str,
}

/// Who is at the other end of a connection.
pub(crate) struct Peer {
    /// The client's address, from the PROXY header where one was given.
    pub(crate) address: SocketAddr,
    pub(crate) scheme: Scheme,
    /// The client certificate, when one was presented.
    pub(crate) certificate: Option<Box<Certificate>>,
    /// `X-Forwarded-For` and `-Proto`: the same for every request of the connection.
    pub(crate) forwarded: Vec<(&'static str, String)>,
    /// The same as lines of an HTTP/1 head.
    pub(crate) forwarded_http1: Vec<u8>,
    pub(crate) listener: Arc<Config>,
    pub(crate) listener_index: usize,
    /// May see `Server-Timing`.
    pub(crate) sees_timing: bool,
    /// Nanoseconds that the connection's PROXY header and handshake took, until its first request has them.
    pub(crate) accept_nanos: Cell<Option<u64>>,
}

impl Peer {
    /// The listener the connection came in on, as configured when it was accepted.
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener.listeners[self.listener_index]
    }
}

/// A client certificate whose chain the handshake verified. Who vouches for it, and whom it names, is the
/// configuration's to say, and a connection may outlive the one it began under.
pub(crate) struct Certificate {
    /// The end-entity certificate, then what it was shown with.
    chain: Box<[CertificateDer<'static>]>,
    /// Version of the authorities that the handshake asked.
    vouched: Box<[u8]>,
    /// Whom it names, and under which generation of the configuration.
    named: RefCell<(Option<u64>, Option<Arc<Verified>>)>,
}

impl Certificate {
    /// The chain a client has shown to these authorities; `None` when it has shown none.
    pub(crate) fn new(chain: &[CertificateDer<'_>], authorities: &ClientAuthorities) -> Option<Self> {
        let chain: Box<[_]> = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let vouched = authorities.version().into();
        (!chain.is_empty()).then(|| Self { chain, vouched, named: RefCell::default() })
    }

    /// Whom it names under the configuration in force; nobody when it is no credential there.
    fn verified(&self, running: &Running, peer: &Peer, now: Now) -> Option<Arc<Verified>> {
        let config = &running.config;
        let mut named = self.named.borrow_mut();
        if named.0 != Some(config.generation) {
            let listener = config.listeners.iter().find(|l| l.name == peer.listener().name);
            let authorities = listener.and_then(|l| l.tls.as_ref()?.client_authorities.as_ref());
            let vouched = authorities.is_some_and(|authorities| self.is_vouched_for(authorities, now));
            let [leaf, ..] = &*self.chain else { return None };
            let verified = vouched.then(|| running.authenticator.certificate(leaf, now));
            if let Some(Err(error)) = &verified {
                // The chain is good but names nobody we know how to name: no credential.
                tracing::debug!(peer = %peer.address, %error, "client certificate not mapped");
            }
            *named = (Some(config.generation), verified.and_then(Result::ok));
        }
        named.1.clone()
    }

    /// Whether these authorities, if others than the handshake's, vouch for it too. An authority that joins them
    /// changes nothing for those the others vouch for.
    fn is_vouched_for(&self, authorities: &ClientAuthorities, now: Now) -> bool {
        if *self.vouched == *authorities.version() {
            return true;
        }
        matches!(&*self.chain, [leaf, rest @ ..] if authorities.vouch_for(leaf, rest, now.wall))
    }
}

/// What authentication found for the token of a request, asked for by an earlier [`Admission::Authenticate`].
pub(crate) type Resolved = Outcome;

/// What becomes of a request.
pub(crate) enum Admission {
    /// It is permitted: here is what to send.
    Forward(Box<Outbound>),
    /// It is answered here.
    Answer(Box<Answer>),
    /// Its token is not known yet: verify it, then admit again.
    Authenticate(Vec<u8>),
}

/// Takes a request to its decision.
pub(crate) fn admit(
    worker: &Worker,
    running: &Rc<Running>,
    peer: &Peer,
    inbound: &Inbound<'_>,
    resolved: Option<Resolved>,
    record: &mut Record,
) -> Admission {
    match try_admit(worker, running, peer, inbound, resolved, record) {
        Ok(admission) => admission,
        Err(refusal) => Admission::Answer(Box::new(refusal.answer(&running.config.authentication.realm))),
    }
}

fn try_admit(
    worker: &Worker,
    running: &Rc<Running>,
    peer: &Peer,
    inbound: &Inbound<'_>,
    resolved: Option<Resolved>,
    record: &mut Record,
) -> Result<Admission, Refusal> {
    let config = &*running.config;
    let raw = RawRequest {
        method: inbound.method,
        scheme: peer.scheme,
        authority: inbound.authority,
        host: inbound.host,
        target: inbound.target,
    };
    worker.begin_trace(inbound.fields, record);
    let request = Canonical::parse(&raw).map_err(Refusal::Malformed)?;
    record.describe(&request);
    record.end(Phase::Parse);
    if let Some(document) = own_document(running, &request) {
        return Ok(Admission::Answer(Box::new(document)));
    }
    let index = config.table.find(&request, inbound.fields).ok_or(Refusal::NoRoute)?;
    let route = &config.routes[index];
    record.route = Some(index);
    record.end(Phase::Match);
    let verified = match credential(worker, running, peer, route, inbound, &request, resolved, record)? {
        Found::Known(verified) => verified,
        Found::Unknown(token) => return Ok(Admission::Authenticate(token)),
    };
    record.end(Phase::Authenticate);
    let facts = verified.as_ref().map(|v| &v.facts);
    let now = worker.clock.at(record.started).wall;
    let permit = decide(&route.policy, index, &request, facts, now, &mut NoTrace).map_err(Refusal::Denied);
    // Whom a refusal concerned belongs into the log as well.
    record.caller.clone_from(&verified);
    let permit = rewritten(config, permit?, inbound.fields, now)?;
    record.end(Phase::Decide);
    if let Some(protocol) = inbound.upgrade
        && !passage::may_switch(route, protocol)
    {
        return Err(Refusal::UpgradeRefused);
    }
    if let (Framing::Length(n), Some(max)) = (inbound.framing, route.body_bytes)
        && n > max
    {
        return Err(Refusal::BodyTooLarge);
    }
    let outbound = Outbound::new(permit, worker, running, peer, inbound, verified.as_deref(), record)?;
    Ok(Admission::Forward(Box::new(outbound)))
}

enum Found {
    Known(Option<Arc<Verified>>),
    Unknown(Vec<u8>),
}

/// What the request's credential proves: nothing on a public route, where nobody asks.
#[allow(clippy::too_many_arguments, reason = "one step of `try_admit`, split off for its length")]
fn credential(
    worker: &Worker,
    running: &Running,
    peer: &Peer,
    route: &Route,
    inbound: &Inbound<'_>,
    request: &Canonical<'_>,
    resolved: Option<Resolved>,
    record: &mut Record,
) -> Result<Found, Refusal> {
    if matches!(route.policy, Policy::Public) {
        return Ok(Found::Known(None));
    }
    let Some(token) = credential::bearer(inbound.fields, request.query())? else {
        let now = worker.clock.at(record.started);
        return Ok(Found::Known(peer.certificate.as_ref().and_then(|c| c.verified(running, peer, now))));
    };
    let (outcome, cache) = match resolved {
        Some(resolved) => resolved,
        // Whatever the cache knows passed the check of its characters when it was new.
        None => match running.authenticator.lookup(token.unchecked(), worker.clock.at(record.started)) {
            Lookup::Hit(verified) => (Ok(verified), CacheUse::Hit),
            Lookup::Denied(rejection) => (Err(rejection), CacheUse::Denied),
            Lookup::Unknown => return Ok(Found::Unknown(token.checked()?.to_vec())),
        },
    };
    record.cache = Some(cache);
    outcome.map(|verified| Found::Known(Some(verified))).map_err(|rejection| match rejection {
        Rejection::Invalid(fault) => {
            Refusal::Credential { error: "invalid_token", code: fault.code(), text: fault.to_string().into() }
        }
        Rejection::Unavailable { retry_after, .. } => {
            Refusal::AuthUnavailable { retry_after: retry_after.as_secs() }
        }
    })
}

/// Exchanges the path where the route says so, with the consent of all whom the new one concerns.
fn rewritten<'r>(
    config: &Config,
    permit: Permit<'r>,
    fields: &[Field<'_>],
    now: auth::time::Timestamp,
) -> Result<Permit<'r>, Refusal> {
    let mut permit = passage::rewrite(config, permit, now, &mut NoTrace).map_err(Refusal::Denied)?;
    for other in passage::guards(config, &permit, fields).map_err(|Disputed| Refusal::NoRoute)? {
        permit = permit.confirm(&config.routes[other].policy, now, &mut NoTrace).map_err(Refusal::Denied)?;
    }
    Ok(permit)
}

/// Documents the gateway serves itself: the keys of its assertions.
fn own_document(running: &Running, request: &Canonical<'_>) -> Option<Answer> {
    let minter = running.minter.as_ref().filter(|_| is_own_document(&running.config, request))?;
    Some(Answer::document("application/jwk-set+json", "public, max-age=300", minter.jwks().to_vec()))
}
