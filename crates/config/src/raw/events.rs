//! Tables of `[security_events]`: events that other issuers send.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::{count32, secs};
use super::issuer::Algorithm;

/// Security events: other issuers report sessions that ended, and credentials and claims that
/// changed (`OpenID` Shared Signals Framework 1.0, CAEP 1.0). The tokens and sessions concerned are
/// refused at once, and not only when they expire. See `docs/guides/receive-security-events.md`.
/// Read at start only, except for the tokens that transmitters push with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecurityEvents {
    /// URL of the database that stores the events, so that they survive a restart and all processes
    /// that share it receive them. Like `login.database`. Default: the database of the login, or
    /// else the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// File with the URL of the database, for a URL that contains a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_file: Option<PathBuf>,
    /// Transmitters of events. At least one.
    pub transmitter: Vec<Transmitter>,
}

/// Transmitter of security events. It pushes them to `endpoint`, or they are polled from
/// `poll_url`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transmitter {
    /// Name of the transmitter in logs and metrics.
    pub name: Name,
    /// Exact `iss` of its security event tokens. Without `jwks_uri` and `jwks_file`, it is also the
    /// base URL for the discovery of its keys, as for an `[[issuer]]`.
    pub issuer: String,
    /// Audiences, one of which a token's `aud` must contain: the value that the stream is
    /// configured with.
    #[schemars(length(min = 1))]
    pub audiences: Vec<String>,
    /// Issuers whose tokens and sessions the transmitter reports: the `issuer` of an `[[issuer]]`,
    /// the `issuer` of an `[[token_authority]]`, or the `url` of a `[[login.provider]]`. Default:
    /// its own `issuer`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens_of: Vec<String>,
    /// Longest lifetime of the tokens that the events concern. Events are stored for this time. A
    /// token that was issued earlier than this is refused, whatever its `exp`.
    #[serde(default = "secs::<86400>")]
    pub max_token_lifetime: Timespan,
    /// URL that events are pushed to (RFC 8935), as configured at the transmitter:
    /// `https://app.example/events/id`. Every listener that forwards requests accepts them there,
    /// before it looks up a route. A listener with `authorization` does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// File with the bearer tokens that the transmitter may authenticate with, one per line. At
    /// least 16 characters each, and not readable by other users. Read again on a reload: a token
    /// that is no longer in the file is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_token_file: Option<PathBuf>,
    /// URL that events are polled from (RFC 8936).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_url: Option<String>,
    /// File with the bearer token that is sent to `poll_url`. Read again while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_token_file: Option<PathBuf>,
    /// Pause after a response that came at once and had no events. If the transmitter holds a poll
    /// until there is an event (long polling), the next poll follows at once.
    #[serde(default = "secs::<5>")]
    pub poll_interval: Timespan,
    /// Timeout of a poll. It must be longer than the transmitter holds a poll.
    #[serde(default = "secs::<90>")]
    pub poll_timeout: Timespan,
    /// Largest number of tokens in one response.
    #[serde(default = "count32::<100>")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_events: u32,
    /// URL of the transmitter's key set (JWKS), instead of discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// File with the transmitter's key set (JWKS), instead of discovery. Read again when it
    /// changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// PEM file with the certificate authorities that verify the transmitter's server certificate.
    /// Default: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Confirms that polling over plain `http` from another machine is intended. An attacker on the
    /// network can then suppress events, and have any caller refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Signature algorithms that are accepted.
    #[serde(default = "super::issuer::algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// Clock skew of the transmitter that is tolerated. At most 60s.
    #[serde(default = "secs::<30>")]
    pub clock_skew: Timespan,
}
