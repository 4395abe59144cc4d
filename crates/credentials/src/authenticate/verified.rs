//! Verified credential as the cache stores it: the facts, and the fields for the upstream, ready to
//! copy.

use std::sync::Arc;

use auth::headers::IdentityHeaders;
use auth::identity::{Facts, Identity};
use http_engine::clock::Now;

use crate::assertion::{AssertionError, AssertionMinter, Assertions};
use crate::cache::{CacheEntryBasis, Weigh};
use crate::open_session::OpenSession;
use crate::revocation::RevocableToken;

/// A verified credential. Shared by all requests that present it.
#[derive(Debug)]
pub struct Verified {
    /// Identity and validity. Rules are evaluated on these for each request.
    pub facts: Facts,
    /// The identity header fields for the upstream, in configured order.
    pub upstream_fields: Vec<(Box<str>, Box<[u8]>)>,
    /// The same as lines of an HTTP/1.1 head: `Name: value\r\n` each, one after the other.
    pub http1_block: Box<[u8]>,
    /// Index into [`crate::config::Authentication::issuers`]; `None` for a client certificate. For
    /// metrics only: after a reload it may be an index of the previous configuration.
    pub issuer: Option<usize>,
    /// What can revoke the credential at any time, for exchanges that last.
    pub revocable: Option<RevocableToken>,
    /// Session data; `None` for every other credential.
    pub session: Option<Box<SessionCredential>>,
    /// Assertions for upstreams, created on first use.
    pub(crate) assertions: Assertions,
    /// Bytes reserved for those assertions.
    assertion_reserve: usize,
}

/// Additional data of a credential that is a session.
pub struct SessionCredential {
    /// The checks whether the session is over.
    pub open_session: OpenSession,
    /// The `Set-Cookie` for a client that still sends the cookie before a renewal.
    pub renewed: Option<Box<str>>,
    /// The access token, for upstreams that receive it.
    pub access_token: Option<zeroize::Zeroizing<String>>,
    /// The ID token, likewise.
    pub id_token: Option<zeroize::Zeroizing<String>>,
}

impl std::fmt::Debug for SessionCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfSession").field("renewed", &self.renewed.is_some()).finish_non_exhaustive()
    }
}

impl SessionCredential {
    /// Bytes behind its pointers.
    pub(crate) fn weight(&self) -> usize {
        self.renewed.as_ref().map_or(0, |text| text.len())
            + self.access_token.as_ref().map_or(0, |text| text.len())
            + self.id_token.as_ref().map_or(0, |text| text.len())
    }
}

impl Verified {
    pub(super) fn new(
        facts: Facts,
        headers: &IdentityHeaders,
        issuer: Option<usize>,
        reserve: usize,
    ) -> Self {
        let upstream_fields = headers.render(&facts.identity);
        let mut block = Vec::new();
        for (name, value) in &upstream_fields {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                block.extend_from_slice(part);
            }
        }
        let http1_block = block.into();
        let assertions = Assertions::default();
        Self {
            facts,
            upstream_fields,
            http1_block,
            issuer,
            revocable: None,
            session: None,
            assertions,
            assertion_reserve: reserve,
        }
    }
}

impl Verified {
    /// Attaches what can revoke the credential.
    #[must_use]
    pub fn until_revoked(self, revocable: Option<RevocableToken>) -> Self {
        Self { revocable, ..self }
    }

    /// The assertion for `upstream`, valid for at least half its lifetime (less only when the
    /// credential itself expires sooner).
    ///
    /// # Errors
    /// When the cryptographic library fails; nothing is kept then.
    pub fn assertion(
        &self,
        minter: &AssertionMinter,
        upstream: &str,
        now: Now,
    ) -> Result<Arc<str>, AssertionError> {
        minter.mint(&self.assertions, &self.facts, upstream, now)
    }

    /// Attaches the data of a session.
    pub(super) fn with_session(self, session: SessionCredential) -> Self {
        Self { session: Some(Box::new(session)), ..self }
    }
}

impl Weigh for Verified {
    fn weight(&self) -> usize {
        let field = |(name, value): &(Box<str>, Box<[u8]>)| {
            size_of::<(Box<str>, Box<[u8]>)>() + name.len() + value.len()
        };
        // The `Arc` adds its two counters.
        size_of::<Self>() + 2 * size_of::<usize>() + self.facts.identity.heap_size() - size_of::<Identity>()
            + self.upstream_fields.iter().map(field).sum::<usize>()
            + self.http1_block.len()
            + self.session.as_ref().map_or(0, |session| size_of::<SessionCredential>() + session.weight())
            // The basis of the cache entry is a separate allocation.
            + self.revocable.as_ref().map_or(0, |revocable| revocable.weight() + size_of::<CacheEntryBasis>())
            + self.assertion_reserve
    }
}
