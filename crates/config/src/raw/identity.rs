//! What the upstream is told of the caller.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{FieldName, Timespan};
use super::default::secs;

/// What the upstream is told of the caller, as request headers. Whatever a client sends under these names, in
/// any spelling, is removed first, on public routes too.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityHeaders {
    /// Which set of names is used. `-User` carries the user name, or the subject where there is none;
    /// `-Preferred-Username` the user name alone. What is not known of a caller is left out.
    pub style: HeaderStyle,
    /// Further headers, by name: `user` (the subject where there is no user name), `preferred_username`, `subject`, `issuer`, `email`, `client`,
    /// `groups`, `scopes`, or `claims.PATH` for a claim, which is then kept without being asked for in `keep`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
    /// Further header names that never pass from a client, in any spelling. A `*` at the end, behind at least
    /// three characters, stands for any ending. What the request itself needs, such as `Content-Type`, stays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<FieldName>,
}

/// A set of header names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderStyle {
    /// `X-Forwarded-User`, `X-Forwarded-Email`, `X-Forwarded-Groups`, `X-Forwarded-Preferred-Username`.
    #[default]
    XForwarded,
    /// `X-Auth-Request-User`, `X-Auth-Request-Email`, `X-Auth-Request-Groups`,
    /// `X-Auth-Request-Preferred-Username`.
    XAuthRequest,
    /// None are set; clients' are removed all the same.
    None,
}

/// A short-lived signed statement of who calls (JWT, ES256).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// PEM file with the ES256 private key (PKCS#8). Make one with
    /// `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`.
    pub key: PathBuf,
    /// The statement's `iss`.
    pub issuer: String,
    /// The statement's `aud`. Absent: the name of the upstream, or of the route where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Request header that carries it. None that has a meaning of its own, nor one that carries an identity.
    #[serde(default = "header")]
    pub header: FieldName,
    /// How long a statement is valid. From 1s to 5m.
    #[serde(default = "secs::<60>")]
    pub lifetime: Timespan,
    /// Path that answers the public key as a key set (JWKS), on every listener without `authorization`, for every host. No route can
    /// have it as its exact path.
    #[serde(default = "jwks_path")]
    pub jwks_path: String,
}

fn header() -> FieldName {
    FieldName("X-Postern-Assertion".into())
}

fn jwks_path() -> String {
    "/.well-known/postern/jwks.json".into()
}
