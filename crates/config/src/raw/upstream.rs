//! Tables of `[[upstream]]`: servers that requests are forwarded to.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::{count, count32, secs};

/// Set of equivalent endpoints.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Name of the upstream in routes, logs and metrics.
    pub name: Name,
    /// Addresses: `http://host:port`, `https://host:port` or `unix:/path`. The endpoint with the
    /// fewest requests in flight is chosen.
    #[schemars(length(min = 1))]
    pub endpoints: Vec<String>,
    /// Protocol that the endpoints use.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// TLS to the endpoints. Not needed for `https` endpoints whose certificates the system's
    /// certificate authorities verify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTls>,
    /// Time limits of each step.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// Idle connections kept per endpoint and worker.
    #[serde(default = "count::<128>")]
    #[schemars(range(max = 100_000))]
    pub idle_connections: usize,
    /// Largest number of requests in flight per worker. Further requests get 503 at once.
    #[serde(default = "count::<1024>")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests: usize,
    /// Number of consecutive failures (connect, reset, timeout) after which an endpoint is marked
    /// unhealthy.
    #[serde(default = "count32::<5>")]
    #[schemars(range(min = 1, max = 1000))]
    pub unhealthy_after: u32,
    /// How long an unhealthy endpoint receives no requests.
    #[serde(default = "secs::<10>")]
    pub unhealthy_for: Timespan,
}

/// Protocol of an upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpstreamProtocol {
    /// HTTP/1.1 with keep-alive.
    #[default]
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2: by ALPN over TLS, with prior knowledge in plain text. Needed for gRPC.
    #[serde(rename = "h2")]
    Http2,
}

/// TLS to an upstream. Its files are read again when they change.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTls {
    /// PEM file with the certificate authorities that verify the server certificate. Default: those
    /// of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Name that the server certificate must have, also sent as SNI. Default: the host of the
    /// endpoint. Needed for Unix sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// PEM file with the client certificate of this gateway. Needs `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// Time limits of each step of an exchange with an upstream.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTimeouts {
    /// Connecting, including the TLS handshake.
    pub connect: Timespan,
    /// From the end of the request to the head of the response.
    pub response_header: Timespan,
    /// How long no byte of a body may move. An event stream that is silent for longer is cut.
    pub stall: Timespan,
    /// How long a connection may stay unused before it is closed.
    pub idle: Timespan,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self { connect: secs::<3>(), response_header: secs::<30>(), stall: secs::<300>(), idle: secs::<30>() }
    }
}
