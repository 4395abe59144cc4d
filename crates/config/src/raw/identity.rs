//! Tables of `[identity_headers]` and `[assertion]`: what the upstream receives about the caller.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{FieldName, Timespan};
use super::default::secs;

/// Request headers that tell the upstream who the caller is. A header with one of these names in
/// the client's request, in any spelling, is removed first, also on public routes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityHeaders {
    /// Set of header names. `-User` contains the user name, or the subject if there is none.
    /// `-Preferred-Username` contains the user name only. A header without a value is left out.
    pub style: HeaderStyle,
    /// Further headers, by name: `user` (the subject if there is no user name),
    /// `preferred_username`, `subject`, `issuer`, `email`, `client`, `groups`, `scopes`, or
    /// `claims.PATH` for a claim. Such a claim is kept, also when `keep` does not list it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
    /// Further header names that are removed from the client's request, in any spelling. A `*` at
    /// the end, after at least three characters, stands for any ending. Headers that the request
    /// itself needs, such as `Content-Type`, cannot be removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<FieldName>,
}

/// Set of header names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderStyle {
    /// `X-Forwarded-User`, `X-Forwarded-Email`, `X-Forwarded-Groups`,
    /// `X-Forwarded-Preferred-Username`.
    #[default]
    XForwarded,
    /// `X-Auth-Request-User`, `X-Auth-Request-Email`, `X-Auth-Request-Groups`,
    /// `X-Auth-Request-Preferred-Username`.
    XAuthRequest,
    /// No header is set. Headers of the client with these names are still removed.
    None,
}

/// Signed, short-lived statement of the caller's identity (JWT, ES256).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// PEM file with the ES256 private key (PKCS#8). Create one with `openssl genpkey -algorithm EC
    /// -pkeyopt ec_paramgen_curve:P-256`.
    pub key: PathBuf,
    /// `iss` of the assertion.
    pub issuer: String,
    /// `aud` of the assertion. Default: the name of the upstream, or of the route if it has no
    /// upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Request header that contains the assertion. It may not be a header with another meaning, nor
    /// an identity header.
    #[serde(default = "header")]
    pub header: FieldName,
    /// Lifetime of an assertion. From 1s to 5m.
    #[serde(default = "secs::<60>")]
    pub lifetime: Timespan,
    /// Path of the public key as a key set (JWKS), on every listener without `authorization`, for
    /// every host. No route may have it as its exact path.
    #[serde(default = "jwks_path")]
    pub jwks_path: String,
}

fn header() -> FieldName {
    FieldName("X-Postern-Assertion".into())
}

fn jwks_path() -> String {
    "/.well-known/postern/jwks.json".into()
}
