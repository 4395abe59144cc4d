//! Tables of `[cors]`: which pages of other origins may read responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{FieldName, Method, Timespan};

/// Name of a CORS policy, or a policy itself.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CorsChoice {
    /// Name of a policy in `[cors]`.
    Named(String),
    /// A policy for this route only.
    Inline(Cors),
}

/// Which pages of other origins may read the responses of a route (CORS). Preflight requests are
/// answered without a credential. CORS headers of the upstream are removed. CORS protects nothing:
/// only browsers obey it, and a request still needs its credential.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cors {
    /// Origins, such as `https://app.example:8443`, `https://*.app.example` for all hosts below
    /// one, `https://*` for all hosts on the scheme's port, or `*` for all.
    #[schemars(length(min = 1))]
    pub origins: Vec<String>,
    /// Methods that the pages may use besides GET, HEAD and POST, which they always may. Default: all
    /// methods of the route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub methods: Vec<Method>,
    /// Request headers that the pages may set, or `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub headers: Vec<FieldName>,
    /// Response headers that the pages may read, besides those that every page may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub expose: Vec<FieldName>,
    /// Whether the pages may send what the browser adds by itself: cookies with a session, and
    /// client certificates. Excludes `*` in `origins`, unless `credentials_from_anywhere` is set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub credentials: bool,
    /// Permits `credentials` with `*` in `origins`: every page of the web may then read what the
    /// caller's session shows. For public data only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub credentials_from_anywhere: bool,
    /// How long browsers may keep the answer to a preflight request. Default: the browser's, 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Timespan>,
}
