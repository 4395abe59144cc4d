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
    /// Addresses: `http://host:port`, `https://host:port` or `unix:/path`. Each address of a host
    /// name is an endpoint of its own. The endpoint with the fewest requests in flight is chosen.
    #[schemars(length(min = 1))]
    pub endpoints: Vec<UpstreamEndpoint>,
    /// How often host names are looked up. Default: when their time to live in DNS ends, after 1
    /// second at the earliest and 5 minutes at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolve_every: Option<Timespan>,
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
    /// Active health checks. An endpoint that fails them receives no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Retries of requests that failed. Only requests with an idempotent method (`GET`, `HEAD`,
    /// `OPTIONS`, `PUT`, `DELETE`) and without a body are sent again, and only while the client has
    /// received nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
}

/// When a request is sent again, to another endpoint if there is one. A request of which nothing
/// could be sent is sent to another endpoint without this table.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retries {
    /// Attempts of a request, including the first.
    #[schemars(range(min = 2, max = 10))]
    pub attempts: u32,
    /// Failures after which a request is sent again.
    #[schemars(length(min = 1))]
    pub on: Vec<RetryCondition>,
    /// Largest number of retries, in percent of the requests of the last 10 seconds on a worker.
    #[schemars(range(max = 100))]
    pub budget_percent: u32,
    /// Retries per second and worker that are allowed beyond the percentage, for upstreams with few
    /// requests.
    #[schemars(range(max = 1000))]
    pub min_per_second: u32,
    /// Time limit of an attempt, from the request sent to the head of the response. The request is
    /// sent again after that. Default: no limit but `timeouts.response_header`, after which nothing
    /// is sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<Timespan>,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: 2,
            on: vec![RetryCondition::Connect, RetryCondition::Reset],
            budget_percent: 20,
            min_per_second: 1,
            per_try_timeout: None,
        }
    }
}

/// A failure after which a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RetryCondition {
    /// No endpoint could be connected to.
    #[serde(rename = "connect")]
    Connect,
    /// The connection broke before the response.
    #[serde(rename = "reset")]
    Reset,
    /// A response with status 502.
    #[serde(rename = "502")]
    BadGateway,
    /// A response with status 503.
    #[serde(rename = "503")]
    ServiceUnavailable,
    /// A response with status 504.
    #[serde(rename = "504")]
    GatewayTimeout,
}

/// Active health checks: requests by which each endpoint is asked whether it can serve. One process
/// sends them once for all its workers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// Path, with a query if needed, that is requested with `GET`.
    pub path: String,
    /// `Host` of the request. Default: that of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Time between two checks of an endpoint, varied by a tenth.
    #[serde(default = "secs::<10>")]
    pub interval: Timespan,
    /// Time limit of a check, from connecting to the head of the response.
    #[serde(default = "secs::<2>")]
    pub timeout: Timespan,
    /// Number of consecutive successes after which an unhealthy endpoint receives requests again.
    #[serde(default = "count32::<2>")]
    #[schemars(range(min = 1, max = 1000))]
    pub healthy_after: u32,
    /// Number of consecutive failures after which an endpoint receives no requests. The first check
    /// of a new endpoint decides alone.
    #[serde(default = "count32::<3>")]
    #[schemars(range(min = 1, max = 1000))]
    pub unhealthy_after: u32,
    /// Statuses of a healthy endpoint. Default: 200 to 299.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 200, max = 599)))]
    pub statuses: Vec<u16>,
}

/// Address of an endpoint, alone or with its weight.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum UpstreamEndpoint {
    /// The address. The weight is 1.
    Address(String),
    /// The address and the weight.
    Weighted(WeightedEndpoint),
}

/// Endpoint with a weight.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedEndpoint {
    /// Address: `http://host:port`, `https://host:port` or `unix:/path`.
    pub address: String,
    /// Share of the requests relative to the other endpoints. Each address of a host name has this
    /// weight. With 0 the endpoint receives no new requests.
    #[serde(default = "count32::<1>")]
    #[schemars(range(max = 1000))]
    pub weight: u32,
}

impl UpstreamEndpoint {
    /// The address as the file has it, and the weight.
    pub fn parts(&self) -> (&str, u32) {
        match self {
            Self::Address(address) => (address, 1),
            Self::Weighted(endpoint) => (&endpoint.address, endpoint.weight),
        }
    }
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
    /// PEM file with the certificate authorities that verify the server certificate, or with the
    /// server's own self-signed certificate, which is then accepted for exactly itself. Default:
    /// the authorities of the system.
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
