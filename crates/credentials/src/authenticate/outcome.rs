//! Outcomes of authentication: lookups, rejections, and keys that are not available.

use super::Verified;
use crate::cache::CacheKey;
use crate::revocation::RevocableToken;
use auth::identity::Facts;
use auth::token_error::TokenError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::phases::CacheUse;

/// The name of a credential in the cache of one configuration ([`super::Authenticator::name`]).
#[derive(Debug, Clone, Copy)]
pub struct CredentialName {
    /// Version and variant of what is cached: a name means nothing under another configuration.
    pub(super) scope: (u64, u64),
    pub(super) key: CacheKey,
}

/// Why a credential was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The token is invalid: 401 `invalid_token` (RFC 6750 section 3.1).
    #[error(transparent)]
    Invalid(TokenError),
    /// The issuer's keys are missing, so the token cannot be verified now: 503.
    #[error("the keys of issuer {issuer} are unavailable; check its key source and the log")]
    Unavailable {
        /// The issuer's configured name.
        issuer: Arc<str>,
        /// When to retry, at least 1 s.
        retry_after: Duration,
    },
    /// The user name or the password is wrong: 401.
    #[error("the user name or the password is wrong")]
    WrongPassword,
    /// Too many passwords wait for their comparison: 503.
    #[error("too many passwords wait for their comparison")]
    Busy {
        /// When to retry, at least 1 s.
        retry_after: Duration,
    },
    /// The token authority, or the issuer, gives no answer: 503.
    #[error("the token authority {authority} gives no answer about the token; see the log")]
    Silent {
        /// Configured name of the authority or issuer.
        authority: Arc<str>,
    },
}

impl Rejection {
    /// Error code of the response.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(error) => error.code(),
            Self::WrongPassword => "wrong_password",
            Self::Unavailable { .. } | Self::Silent { .. } | Self::Busy { .. } => "auth_unavailable",
        }
    }
}

/// The cached result for a token.
pub enum CredentialLookup {
    /// Verified earlier, and still valid.
    Hit(Arc<Verified>),
    /// Rejected a moment ago.
    Denied(Rejection),
    /// Not cached: call [`Authenticator::authenticate`].
    Unknown,
}

/// The result for a token, and how the cache contributed.
pub type AuthenticationOutcome = (Result<Arc<Verified>, Rejection>, CacheUse);

/// What prevents the verification of a token.
pub(super) enum VerificationObstacle {
    /// The token itself is invalid.
    Token(TokenError),
    /// Only a token authority can verify the token.
    Unknown { authority: usize },
    /// The log of its issuer is not current, so a revocation may be unknown here.
    Unheard(Box<UncheckedToken>),
    /// No usable key set, or one that may be older than the token's key: then `why` is its reason
    /// to reject the token.
    Keys { issuer: usize, seen: u64, why: Option<TokenError> },
}

/// A token with a valid signature, whose revocation state is unknown here.
pub(super) struct UncheckedToken {
    pub(crate) issuer: usize,
    pub(crate) facts: Facts,
    /// Until when its issuer's keys may be used.
    pub(crate) until: Instant,
    pub(crate) revocable: RevocableToken,
}

impl From<TokenError> for VerificationObstacle {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}
