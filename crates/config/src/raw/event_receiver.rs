//! Tables of `[[provider.event_receiver]]`: receivers of the provider's security events.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::Name;

/// Receiver of security events: it is informed of sessions that end, and of credentials and claims
/// that change (`OpenID` Shared Signals Framework 1.0). Events are pushed to `endpoint`, or polled
/// below the issuer at `/ssf/poll/NAME`. See `docs/guides/send-security-events.md`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventReceiver {
    /// Name of the receiver in logs and metrics. Its delivery position is stored under this name,
    /// so a new name starts anew.
    pub name: Name,
    /// `aud` of the tokens that the receiver gets.
    pub audience: String,
    /// Types of events that the receiver gets.
    #[serde(default = "all")]
    #[schemars(length(min = 1))]
    pub events: Vec<EventType>,
    /// URL that events are pushed to (RFC 8935). Default: the receiver polls (RFC 8936).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// File with the bearer token that is sent to `endpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_token_file: Option<PathBuf>,
    /// File with the bearer token that the receiver sends when it polls. At least 16 characters,
    /// and not readable by other users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_token_file: Option<PathBuf>,
}

fn all() -> Vec<EventType> {
    vec![
        EventType::SessionRevoked,
        EventType::CredentialChange,
        EventType::TokenClaimsChange,
        EventType::AccountDisabled,
        EventType::AccountPurged,
    ]
}

/// Type of a security event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventType {
    /// A session ended, a token was revoked, a user's consent for a client was withdrawn, or all
    /// sessions of a user ended (CAEP 1.0).
    SessionRevoked,
    /// A password was changed (CAEP 1.0).
    CredentialChange,
    /// A user's claims or groups changed (CAEP 1.0).
    TokenClaimsChange,
    /// An account was disabled (RISC 1.0).
    AccountDisabled,
    /// An account was deleted (RISC 1.0).
    AccountPurged,
}
