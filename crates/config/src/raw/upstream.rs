//! Where requests go.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::{count, count32, secs};

/// A set of equivalent endpoints.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// What routes, logs and metrics call it.
    pub name: Name,
    /// `http://host:port`, `https://host:port` or `unix:/path`. The endpoint with the fewest requests under way
    /// is chosen.
    #[schemars(length(min = 1))]
    pub endpoints: Vec<String>,
    /// What is spoken to the endpoints.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// TLS to the endpoints. With `https` endpoints it may be absent: the system's authorities then decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTls>,
    /// How long each step may take.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// Idle connections kept per endpoint and worker.
    #[serde(default = "count::<128>")]
    #[schemars(range(max = 100_000))]
    pub idle_connections: usize,
    /// Requests under way at once per worker; more are answered 503 at once.
    #[serde(default = "count::<1024>")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests: usize,
    /// Failures in a row (connect, reset, timeout) that take an endpoint out.
    #[serde(default = "count32::<5>")]
    #[schemars(range(min = 1, max = 1000))]
    pub unhealthy_after: u32,
    /// How long an endpoint that was taken out is left alone.
    #[serde(default = "secs::<10>")]
    pub unhealthy_for: Timespan,
}

/// What is spoken to an upstream.
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
    /// PEM file with the authorities that the server certificate must come from. Absent: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Name that the server certificate must carry, sent as SNI too. Absent: the endpoint's host. Needed for
    /// Unix sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// PEM file with the certificate this gateway shows; `key` goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with that certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// How long each step of an exchange with an upstream may take.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTimeouts {
    /// Connecting, TLS handshake included.
    pub connect: Timespan,
    /// From the request sent to the head of the response.
    pub response_header: Timespan,
    /// No byte of a body moving. An event stream that rests longer is cut.
    pub stall: Timespan,
    /// A kept connection unused this long is closed.
    pub idle: Timespan,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self { connect: secs::<3>(), response_header: secs::<30>(), stall: secs::<300>(), idle: secs::<30>() }
    }
}
