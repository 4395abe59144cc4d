//! Assertion: a short-lived signed JWT (RFC 7519, ES256) that states the caller's identity to the
//! upstream.
//!
//! Owns: its claims and lifetime, storing it beside the facts so that signing stays off the hot
//! path, the key set document with which upstreams verify it. Does not own: the key, the header
//! field, serving the document.
//!
//! It contains no data of the request, so that one assertion serves all requests of a credential to
//! an audience. It is used for at most half its lifetime: an upstream sees at least the other half.
//!
//! Claims: `iss`, `aud`, `sub`, `idp` (the configured name of the issuer, because two issuers may
//! use equal subjects), `iat`, `exp`, `jti`, and where known `preferred_username`, `email`,
//! `groups`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::identity::{Facts, Identity};
use auth::time::Timestamp;
use auth::token::jws::{self, Signer, SignerError};
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use bytes::Bytes;
use http_engine::clock::Now;
use parking_lot::Mutex;
use serde::Serialize;

/// Maximum assertions kept beside one credential, one for each audience; the oldest is evicted
/// first.
const MAX_PER_CREDENTIAL: usize = 4;

/// Why no assertion could be made. The request must not be forwarded without one.
#[derive(Debug, thiserror::Error)]
pub enum AssertionError {
    /// The system gave no randomness for `jti`.
    #[error("no randomness for the assertion's jti")]
    Random,
    /// The cryptographic library failed to sign.
    #[error("the assertion could not be signed: {0}")]
    Sign(#[from] SignerError),
}

/// Creates assertions under one configuration. Shared by all workers.
pub struct AssertionMinter {
    signer: Arc<Signer>,
    issuer: Box<str>,
    audience: Option<Box<str>>,
    lifetime: Duration,
    jwks: Bytes,
    random: SystemRandom,
    /// Identity of this minter: assertions of another minter are not used.
    seal: Arc<()>,
}

/// Bytes to reserve in the cache for the assertions of one credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssertionReserve {
    audiences: usize,
}

impl AssertionReserve {
    /// The reserve under this configuration; zero without assertions.
    pub fn of(config: Option<&crate::config::AssertionConfig>) -> Self {
        let audiences =
            config.map_or(0, |config| if config.audience.is_some() { 1 } else { MAX_PER_CREDENTIAL });
        Self { audiences }
    }

    pub(crate) fn bytes(self, identity: &Identity) -> usize {
        // A third more in base64; plus header, signature and the fixed claims.
        self.audiences * (identity.heap_size() * 4 / 3 + 512 + size_of::<CachedAssertion>())
    }
}

/// The assertions created for one credential.
#[derive(Debug, Default)]
pub(crate) struct Assertions(Mutex<Vec<CachedAssertion>>);

#[derive(Debug)]
struct CachedAssertion {
    minter: Arc<()>,
    audience: Box<str>,
    token: Arc<str>,
    at: Instant,
    expires: Timestamp,
}

/// The signed claims. Field order is the order on the wire.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    idp: &'a str,
    iat: u64,
    exp: u64,
    jti: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_username: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [Box<str>],
}

impl AssertionMinter {
    /// Creates a minter from the checked configuration; `random` draws the `jti` values.
    pub fn new(config: &crate::config::AssertionConfig, random: SystemRandom) -> Self {
        let jwks = jws::public_jwks([&*config.signer]);
        Self {
            signer: config.signer.clone(),
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            lifetime: config.lifetime,
            jwks: jwks.to_string().into(),
            random,
            seal: Arc::new(()),
        }
    }

    /// The key set document (RFC 7517 section 5), `application/jwk-set+json`.
    pub fn jwks(&self) -> Bytes {
        self.jwks.clone()
    }

    /// Returns an assertion of these facts for `upstream`: an earlier one if it fits, otherwise a
    /// new one. It is valid for at least half its lifetime (less only when the credential itself
    /// expires sooner).
    ///
    /// # Errors
    /// When the cryptographic library fails; nothing is kept then.
    pub(crate) fn mint(
        &self,
        made: &Assertions,
        facts: &Facts,
        upstream: &str,
        now: Now,
    ) -> Result<Arc<str>, AssertionError> {
        let audience = self.audience.as_deref().unwrap_or(upstream);
        // Signing (some 30 µs) happens under the lock: concurrent requests need the same assertion.
        let mut made = made.0.lock();
        let known =
            made.iter().position(|made| Arc::ptr_eq(&made.minter, &self.seal) && *made.audience == *audience);
        if let Some(known) = known.map(|at| &made[at])
            && now.monotonic.duration_since(known.at) < self.lifetime / 2
            && now.wall < known.expires
        {
            return Ok(known.token.clone());
        }
        let expires = now.wall.plus(self.lifetime).min(facts.expires);
        let token: Arc<str> = self.sign(&facts.identity, audience, (now.wall, expires))?.into();
        if let Some(outdated) = known.or((made.len() == MAX_PER_CREDENTIAL).then_some(0)) {
            made.remove(outdated);
        }
        let minter = self.seal.clone();
        made.push(CachedAssertion {
            minter,
            audience: audience.into(),
            token: token.clone(),
            at: now.monotonic,
            expires,
        });
        Ok(token)
    }

    fn sign(
        &self,
        identity: &Identity,
        audience: &str,
        (issued, expires): (Timestamp, Timestamp),
    ) -> Result<String, AssertionError> {
        let mut id = [0; 16];
        self.random.fill(&mut id).map_err(|_| AssertionError::Random)?;
        let claims = Claims {
            iss: &self.issuer,
            aud: audience,
            sub: &identity.subject,
            idp: &identity.issuer,
            iat: issued.as_secs(),
            exp: expires.as_secs(),
            jti: &format!("{:032x}", u128::from_be_bytes(id)),
            preferred_username: identity.user.as_deref(),
            email: identity.email.as_deref(),
            groups: &identity.groups,
        };
        Ok(self.signer.sign(&[("typ", "JWT")], &claims)?)
    }
}

impl std::fmt::Debug for AssertionMinter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AssertionMinter")
            .field("issuer", &self.issuer)
            .field("kid", &self.signer.kid())
            .finish_non_exhaustive()
    }
}
