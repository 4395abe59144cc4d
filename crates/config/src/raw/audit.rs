//! Tables of `[provider.audit]` and `[[provider.audit_receiver]]`: what the provider's audit log
//! contains, and who receives it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Bound, Name, Timespan};

/// How long the audit log of the provider is kept, and what is written to it, besides all changes by operators and users,
/// revocations, and codes and refresh tokens that are used twice. See
/// `docs/guides/provider-audit.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// Groups of entries. An empty list: none of them.
    pub events: Vec<AuditEvent>,
    /// How long entries are kept, at least `"1d"`, or `"unlimited"`. Older ones are deleted once a day,
    /// in the order of the log. An entry that a receiver does not have yet is kept twice as long.
    pub keep: Bound<Timespan>,
}

impl Default for Audit {
    fn default() -> Self {
        let events = vec![AuditEvent::Logins, AuditEvent::Consents, AuditEvent::Grants];
        Self { events, keep: Bound(None) }
    }
}

/// Group of entries of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// Sign-ins, failed sign-ins, lockouts, sign-outs.
    Logins,
    /// Consents that users give or deny, and decisions about devices.
    Consents,
    /// Grants that are issued to clients, and token requests that are refused.
    Grants,
    /// Each use of a refresh token. Refreshes then wait for each other's commits.
    Refreshes,
    /// Each token that a client gets for itself. Each then takes a write to the database.
    ClientCredentials,
}

/// Receiver of the audit log. It gets every entry at least once, in the order of the log, either in
/// a file or by POST requests. Entries wait for a receiver that does not answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditReceiver {
    /// Name of the receiver in logs and metrics. Its position is stored under this name, so a new
    /// name starts with the entries that are written from then on.
    pub name: Name,
    /// File that entries are appended to, one JSON object per line. It may be renamed at any time:
    /// the next entries go to a new file. Created with mode 0640. With several nodes, each entry is
    /// in the file of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// URL that entries are posted to, several in one request. Instead of `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// File with the bearer token that is sent to `endpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_token_file: Option<PathBuf>,
    /// Form of the body of requests to `endpoint`.
    #[serde(default)]
    pub format: AuditFormat,
}

/// Form of several entries in one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditFormat {
    /// One JSON object per line (`application/x-ndjson`).
    #[default]
    JsonLines,
    /// One JSON array (`application/json`).
    JsonArray,
}
