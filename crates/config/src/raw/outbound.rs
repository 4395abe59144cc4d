//! Table `[outbound]`: the proxy for the requests of the process itself.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_default;

/// Requests that the process itself sends: discovery, keys, introspection, reviews, login, security
/// events, revocations, spans. Requests to upstreams never use a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Outbound {
    /// URL of the HTTP proxy for `http` and `https` URLs, such as `http://proxy.example:3128`;
    /// `"none"` for no proxy; or `"environment"` for the proxies in `HTTPS_PROXY`, `HTTP_PROXY` and
    /// `NO_PROXY` (or their lower-case names), as Go reads them. Both of the others make the
    /// environment count for nothing. Default: `"environment"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// File that contains the URL instead, because it has a user name and password:
    /// `http://user:password@proxy.example:3128`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_file: Option<PathBuf>,
    /// Servers that are reached without the proxy, written as in `NO_PROXY`: `"example.com"` (and
    /// all names below it), `".example.com"` (only those below it), `"10.1.2.3"`, `"10.0.0.0/8"`,
    /// each name or address also with a port, or `"*"`. This machine (`localhost`, loopback
    /// addresses) always is. Needs a proxy in this table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_proxy: Vec<String>,
    /// PEM file with the certificate authorities that verify an `https` proxy. Default: those of
    /// the system.
    #[serde(skip_serializing_if = "is_default")]
    pub ca: Option<PathBuf>,
}
