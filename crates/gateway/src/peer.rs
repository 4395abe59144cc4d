//! Peer: the other end of a connection, with everything that is the same for all its requests.
//!
//! Owns: the peer's address, its listener, the host that it opened the connection for, and its client
//! certificate. Whether the certificate is trusted, and its identity, is looked up once per
//! configuration, and again when a revocation list or an intermediate expires. Does not own: the
//! handshake ([`crate::server`]), the mapping from certificate to identity
//! ([`credentials::authenticate`]).

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;

use auth::policy::route::Scope;
use auth::request::Scheme;
use auth::time::Timestamp;
use credentials::authenticate::{Authenticator, Verified};
use http_engine::clock::Now;
use http_engine::tls::ClientCas;
use rustls::HandshakeKind;
use rustls::pki_types::CertificateDer;

use crate::block_results::BlockResults;
use crate::config::{Config, Listener};
use crate::forwarded_fields::ForwardedFields;

/// The other end of a connection.
pub(crate) struct Peer {
    /// The client's address, from the PROXY header where one was given.
    pub(crate) address: SocketAddr,
    pub(crate) scheme: Scheme,
    /// The client certificate, when one was presented.
    pub(crate) certificate: Option<Box<Certificate>>,
    /// The host that the client opened the connection for (SNI, in lower case; empty: it named none).
    /// `None` where requests for any host may come: without TLS, on a listener of the file, and from a
    /// trusted proxy, whose connection is for the requests of many clients.
    pub(crate) opened_for: Option<Box<str>>,
    /// The forwarding fields for an upstream: the same for every request of the connection, unless
    /// the peer is a trusted proxy.
    pub(crate) forwarded: ForwardedFields,
    /// Whether the peer was a trusted proxy when it connected, which reports where its requests
    /// come from.
    pub(crate) may_report: bool,
    /// What followed from the header block of the last requests.
    pub(crate) block_results: BlockResults,
    /// The listener of the connection, as configured when it was accepted.
    pub(crate) listener: Arc<Listener>,
    /// Whether the client may see `Server-Timing`. Behind a trusted proxy: whether some client may.
    pub(crate) sees_timing: bool,
    /// Nanoseconds of the PROXY header and the handshake, until the first request takes the value.
    pub(crate) accept_nanos: Cell<Option<u64>>,
}

impl Peer {
    /// The listener of the connection, as configured when it was accepted.
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Whether a request for `host`, which the listener `scope` takes, came over a connection for
    /// another listener (RFC 9110 section 15.5.20; Gateway API, `Listener.hostname`).
    pub(crate) fn misdirects(&self, config: &Config, host: &str, scope: Option<Scope>) -> bool {
        let Some(opened_for) = self.opened_for.as_deref() else { return false };
        // Nearly always it is the same host.
        host != opened_for
            && scope.is_some()
            && scope != config.routing.scope_of(self.listener.socket, opened_for)
    }

    /// The identity of its certificate under the current configuration; `None` without a
    /// certificate, or where it is not a credential.
    pub(crate) fn verified(
        &self,
        config: &Config,
        authenticator: &Authenticator,
        now: Now,
    ) -> Option<Arc<Verified>> {
        self.certificate.as_ref()?.verified(config, authenticator, self, now)
    }
}

/// A client certificate of the handshake. The current configuration decides whether it is trusted and
/// which identity it has, because a connection may outlive the configuration it began under.
pub(crate) struct Certificate {
    /// The end-entity certificate, then the other certificates presented with it.
    chain: Box<[CertificateDer<'static>]>,
    /// Version of the CAs that the handshake used.
    ca_version: [u8; 32],
    /// Until when these CAs trust the chain.
    trusted_until: Timestamp,
    identity: RefCell<Option<FoundIdentity>>,
}

/// The identity of a certificate, with what produced it.
struct FoundIdentity {
    basis: IdentityBasis,
    /// When the chain must be verified again.
    until: Timestamp,
    verified: Option<Arc<Verified>>,
}

/// What an identity depends on: the generation of the configuration, and the CAs of the listener.
type IdentityBasis = (u64, Option<[u8; 32]>);

impl Certificate {
    /// The chain that a client presented to these CAs; `None` when it presented none that they vouch
    /// for. A handshake that resumes a session has the chain of an earlier one, and does not verify it.
    pub(crate) fn new(
        chain: &[CertificateDer<'_>],
        authorities: &ClientCas,
        handshake: Option<HandshakeKind>,
        now: Now,
    ) -> Option<Self> {
        let [leaf, intermediates @ ..] = chain else { return None };
        let is_verified = !authorities.admits_others() && handshake != Some(HandshakeKind::Resumed);
        if !is_verified && !authorities.accepts(leaf, intermediates, now.wall) {
            return None;
        }
        Some(Self {
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            ca_version: *authorities.version(),
            trusted_until: authorities.holds_until(intermediates, now.wall),
            identity: RefCell::default(),
        })
    }

    /// The identity under the current configuration; `None` when the certificate is not a
    /// credential there.
    fn verified(
        &self,
        config: &Config,
        authenticator: &Authenticator,
        peer: &Peer,
        now: Now,
    ) -> Option<Arc<Verified>> {
        let mut found = self.identity.borrow_mut();
        let listener = config.listeners.named(&peer.listener().name);
        let authorities = listener.and_then(|l| l.tls.as_ref()?.client_authorities.as_ref());
        let basis = (config.generation, authorities.map(|authorities| *authorities.version()));
        if let Some(found) = &*found
            && found.basis == basis
            && now.wall < found.until
        {
            return found.verified.clone();
        }
        let [leaf, intermediates @ ..] = &*self.chain else { return None };
        let verified = authorities
            .is_some_and(|authorities| self.is_trusted_by(authorities, now))
            .then(|| authenticator.certificate(leaf, now));
        if let Some(Err(error)) = &verified {
            // The chain is valid but maps to no identity: it is not a credential.
            tracing::debug!(peer = %peer.address, %error, "client certificate not mapped");
        }
        let until = authorities.map(|authorities| authorities.holds_until(intermediates, now.wall));
        let until = until.unwrap_or(Timestamp::MAX);
        found.insert(FoundIdentity { basis, until, verified: verified.and_then(Result::ok) }).verified.clone()
    }

    /// Whether these CAs trust the certificate. What the handshake found holds for the same CAs until a
    /// revocation list or an intermediate expires.
    fn is_trusted_by(&self, authorities: &ClientCas, now: Now) -> bool {
        if self.ca_version == *authorities.version() && now.wall < self.trusted_until {
            return true;
        }
        matches!(&*self.chain, [leaf, rest @ ..] if authorities.accepts(leaf, rest, now.wall))
    }
}
