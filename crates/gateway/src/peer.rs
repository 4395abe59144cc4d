//! Who is at the other end of a connection, and what of that holds for all its requests.
//!
//! Owns: where the peer is, what it came in on, and its certificate: who vouches for that, and whom it names, is looked up once per
//! configuration. Does not own: the handshake ([`crate::server`]), how a certificate names somebody ([`credentials::authenticate`]).

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;

use auth::request::Scheme;
use credentials::authenticate::{Authenticator, Verified};
use http_engine::clock::Now;
use http_engine::tls::ClientAuthorities;
use rustls::pki_types::CertificateDer;

use crate::config::{Config, Listener};

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

    /// Whom its certificate names under the configuration in force; nobody when there is none, or it is no credential there.
    pub(crate) fn verified(
        &self,
        config: &Config,
        authenticator: &Authenticator,
        now: Now,
    ) -> Option<Arc<Verified>> {
        self.certificate.as_ref()?.verified(config, authenticator, self, now)
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
    fn verified(
        &self,
        config: &Config,
        authenticator: &Authenticator,
        peer: &Peer,
        now: Now,
    ) -> Option<Arc<Verified>> {
        let mut named = self.named.borrow_mut();
        if named.0 != Some(config.generation) {
            let listener = config.listeners.iter().find(|l| l.name == peer.listener().name);
            let authorities = listener.and_then(|l| l.tls.as_ref()?.client_authorities.as_ref());
            let vouched = authorities.is_some_and(|authorities| self.is_vouched_for(authorities, now));
            let [leaf, ..] = &*self.chain else { return None };
            let verified = vouched.then(|| authenticator.certificate(leaf, now));
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
