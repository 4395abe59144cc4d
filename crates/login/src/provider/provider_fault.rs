//! Faults of a provider: why it gave no usable answer.

use auth::algorithm::Algorithm;
use auth::token_error::TokenError;
use credentials::authenticate::SourceError;
use http_engine::http_client::CallError;

/// Why a provider gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderFault {
    /// The provider gives no answer.
    #[error("{context}: {fault}")]
    Call {
        /// The requested endpoint.
        context: &'static str,
        /// The error of the request.
        fault: CallError,
    },
    /// The answer cannot be interpreted.
    #[error("{context}: {why}")]
    InvalidAnswer {
        /// The requested endpoint.
        context: &'static str,
        /// What is wrong with the answer.
        why: String,
    },
    /// The metadata cannot be used.
    #[error("metadata: {0}")]
    Metadata(SourceError),
    /// The keys of its ID tokens are missing.
    #[error("the keys of its ID tokens are unavailable; see the log")]
    Keys,
    /// The provider refused: an error of RFC 6749 section 5.2.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// Its ID token is invalid.
    #[error("its ID token is invalid: {0}")]
    Token(TokenError),
    /// Its logout token has another algorithm than its ID tokens that were seen here.
    #[error("its logout token is signed with {}, unlike its ID tokens seen so far", .0.as_str())]
    UnexpectedAlgorithm(Algorithm),
    /// Its answer is about another user, or names no user.
    #[error("{0}")]
    Identity(String),
}

impl ProviderFault {
    /// Whether the grant is certainly invalid, and not only impossible to check now.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Refused(error) => error == "invalid_grant",
            // These errors may be due to old keys or a wrong clock.
            Self::Token(
                TokenError::UnknownKey
                | TokenError::KeyMismatch
                | TokenError::Expired
                | TokenError::NotYetValid
                | TokenError::InFuture(_),
            )
            | Self::Call { .. }
            | Self::InvalidAnswer { .. }
            | Self::Metadata(_)
            | Self::Keys => false,
            Self::Token(_) | Self::UnexpectedAlgorithm(_) | Self::Identity(_) => true,
        }
    }

    /// Whether the provider is unavailable or misconfigured, so that no single login is at fault.
    /// Its keys have an outage log of their own.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Call { .. } | Self::InvalidAnswer { .. } | Self::Metadata(_) | Self::Keys => true,
            Self::Refused(_) => !self.is_refusal_of_user(),
            Self::Token(_) | Self::UnexpectedAlgorithm(_) | Self::Identity(_) => false,
        }
    }

    /// Whether the provider refuses this user, and not us as a client, and did not report its own
    /// failure (RFC 6749 §4.1.2.1, §5.2).
    pub(crate) fn is_refusal_of_user(&self) -> bool {
        const NOT: [&str; 6] = [
            "server_error",
            "temporarily_unavailable",
            "invalid_client",
            "unauthorized_client",
            "unsupported_grant_type",
            "unsupported_response_type",
        ];
        matches!(self, Self::Refused(error) if !NOT.contains(&error.as_str()))
    }
}
