//! Who elsewhere is told of what happens at the provider.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::Name;

/// Somebody elsewhere who is told of sessions that end, and of credentials and claims that change (`OpenID` Shared Signals Framework
/// 1.0). Events are pushed to `endpoint`, or fetched below the issuer at `/ssf/poll/NAME`. See `docs/security-events.md`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventReceiver {
    /// What logs and metrics call it, and what it has heard is kept by: under another name it begins anew.
    pub name: Name,
    /// The `aud` of its tokens.
    pub audience: String,
    /// What it is told of.
    #[serde(default = "all")]
    #[schemars(length(min = 1))]
    pub events: Vec<EventType>,
    /// Where events are pushed to (RFC 8935). Absent: they are fetched (RFC 8936).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// File with the bearer token that is shown there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_token_file: Option<PathBuf>,
    /// File with the bearer token that the receiver shows when it fetches. At least 16 characters, and nobody else's to read.
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

/// A type of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventType {
    /// A session ended, a token was revoked, what a user allowed a client was taken back, or all of a user's ended (CAEP 1.0).
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
