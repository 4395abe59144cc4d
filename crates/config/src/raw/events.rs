//! What others tell of what happened at their place.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::{count32, secs};
use super::issuer::Algorithm;

/// Security events: what issuers elsewhere tell of their own accord of sessions that ended, credentials and claims that changed
/// (`OpenID` Shared Signals Framework 1.0, CAEP 1.0). Their tokens and sessions are then refused at once, and not when they expire.
/// See `docs/security-events.md`. Read at start only, but for what transmitters push with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecurityEvents {
    /// Where what was told is kept, so that no restart loses it, and heard by all processes that share it: a database, as in
    /// `login.database`. Absent: that of the login, or else the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// File with that URL instead, for one that holds a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_file: Option<PathBuf>,
    /// Who tells. At least one.
    pub transmitter: Vec<Transmitter>,
}

/// A transmitter of security events. They are pushed to `endpoint`, or fetched from `poll_url`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transmitter {
    /// What logs and metrics call it.
    pub name: Name,
    /// Exact `iss` of its security event tokens. Without `jwks_uri` and `jwks_file` also where discovery of its keys starts, as for
    /// an `[[issuer]]`.
    pub issuer: String,
    /// A token's `aud` must contain one of these: what the stream was told to put there.
    #[schemars(length(min = 1))]
    pub audiences: Vec<String>,
    /// Of whose tokens and sessions it speaks: the `issuer` of an `[[issuer]]`, the `issuer` of an `[[authority]]`, or the `url` of
    /// a `[[login.provider]]`. Absent: its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens_of: Vec<String>,
    /// The longest that these tokens are valid. What was told is remembered for as long; a token that was made earlier is not
    /// believed, whatever its `exp` says.
    #[serde(default = "secs::<86400>")]
    pub max_token_lifetime: Timespan,
    /// Where events are pushed to (RFC 8935), as the transmitter is told: `https://app.example/events/id`. Every listener that forwards
    /// takes them there, before any route; one with `authorization` does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// File with the bearer token that the transmitter shows there; one on each line, of which any will do. At least 16 characters,
    /// and nobody else's to read. Read again on a reload: one that is taken out lets nobody in any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_token_file: Option<PathBuf>,
    /// Where events are fetched (RFC 8936).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_url: Option<String>,
    /// File with the bearer token that is shown there. Read again while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_token_file: Option<PathBuf>,
    /// The pause after an answer that came at once and had nothing. A transmitter that keeps the question until there is something
    /// is asked again at once.
    #[serde(default = "secs::<5>")]
    pub poll_interval: Timespan,
    /// How long an answer may take. Longer than the transmitter keeps a question.
    #[serde(default = "secs::<90>")]
    pub poll_timeout: Timespan,
    /// Tokens of one answer, at most.
    #[serde(default = "count32::<100>")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_events: u32,
    /// URL of the transmitter's key set (JWKS), instead of discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// File with the transmitter's key set (JWKS), instead of discovery. Read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// PEM file with the authorities that the transmitter's server certificate must come from. Absent: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Says that fetching over plain `http` from another machine is meant: whoever sits in between can keep events from this
    /// gateway, and have anybody refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Signature algorithms that are accepted.
    #[serde(default = "super::issuer::algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// How far the transmitter's clock may be off. At most 60s.
    #[serde(default = "secs::<30>")]
    pub clock_skew: Timespan,
}
