//! A verified credential as the cache keeps it: the facts, and what is sent upstream of them, ready to copy.

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
    /// Who, and for how long to believe it. Rules are evaluated on these for each request.
    pub facts: Facts,
    /// The identity header fields for the upstream, in configured order.
    pub upstream_fields: Vec<(Box<str>, Box<[u8]>)>,
    /// The same as lines of an HTTP/1.1 head: `Name: value\r\n` each, one after the other.
    pub http1_block: Box<[u8]>,
    /// Index into [`crate::config::Authentication::issuers`]; `None` for a client certificate. Metrics only:
    /// after a reload it may be an index of the configuration before.
    pub issuer: Option<usize>,
    /// What may take it back at any moment, for those who let its holder in for longer than a moment.
    pub revocable: Option<RevocableToken>,
    /// What a session has to tell beside; `None` for every other credential.
    pub session: Option<Box<SessionCredential>>,
    /// Signed statements for upstreams, made when first needed.
    pub(crate) assertions: Assertions,
    /// Bytes set aside for those statements.
    reserve: usize,
}

/// What a fact has to tell that came from a session.
pub struct SessionCredential {
    /// What shows that it is over.
    pub lasting: OpenSession,
    /// The `Set-Cookie` for whoever still presents the cookie before.
    pub renewed: Option<Box<str>>,
    /// For upstreams that are given it.
    pub access_token: Option<zeroize::Zeroizing<String>>,
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
            reserve,
        }
    }
}

impl Verified {
    /// The same, until it is taken back.
    #[must_use]
    pub fn until_revoked(self, revocable: Option<RevocableToken>) -> Self {
        Self { revocable, ..self }
    }

    /// The signed statement of it for `upstream`, valid for at least half its lifetime (less only when the credential itself ends sooner).
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

    /// The same, from a session.
    pub(super) fn of_session(self, session: SessionCredential) -> Self {
        Self { session: Some(Box::new(session)), ..self }
    }
}

impl Weigh for Verified {
    fn weight(&self) -> usize {
        let field = |(name, value): &(Box<str>, Box<[u8]>)| {
            size_of::<(Box<str>, Box<[u8]>)>() + name.len() + value.len()
        };
        // The `Arc` adds its two counts.
        size_of::<Self>() + 2 * size_of::<usize>() + self.facts.identity.weight() - size_of::<Identity>()
            + self.upstream_fields.iter().map(field).sum::<usize>()
            + self.http1_block.len()
            + self.session.as_ref().map_or(0, |session| size_of::<SessionCredential>() + session.weight())
            // What the fact is held by, in the cache, is its own.
            + self.revocable.as_ref().map_or(0, |revocable| revocable.weight() + size_of::<CacheEntryBasis>())
            + self.reserve
    }
}
