//! Where requests come in.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{ByteSize, EndpointAddress, Mode, Name, Network, Timespan};
use super::default::{count, count32, kib, secs};

/// A socket that accepts requests.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Names it in metrics and logs.
    pub name: Name,
    /// IP address and port, or `unix:` and the path of a socket, relative to this file. `[::]` means IPv6 alone. A socket takes the
    /// place of one that a process left behind. Its peers have no address, and count as 127.0.0.1 wherever one is asked for.
    pub address: EndpointAddress,
    /// Permission bits of a Unix socket: who may write to it may connect. Absent: `"600"`, this user alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Speak TLS with this certificate. Absent: plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// What is spoken. With TLS the client chooses by ALPN. In plain text HTTP/2 needs prior knowledge; where both
    /// are spoken, a connection that does not begin like HTTP/2 is taken for HTTP/1 and answered so.
    #[serde(default = "protocols")]
    #[schemars(length(min = 1))]
    pub protocols: Vec<Protocol>,
    /// Peers (load balancers) that begin each connection with a PROXY protocol header, version 1 or 2. They
    /// must; nobody else may. Where one of version 2 says that their client speaks TLS with them, as `HAProxy` does with
    /// `send-proxy-v2-ssl`, requests count as `https`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxy_protocol_from: Vec<Network>,
    /// Says that a `proxy_protocol_from` that covers every address is meant: anyone may then claim to be any
    /// address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proxy_protocol_from_anyone: bool,
    /// Other proxies ask here whether their requests may pass: Envoy (`ext_authz`), nginx, Traefik, Caddy, `HAProxy`.
    /// Nothing that comes in on the listener is forwarded then. Absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// Bounds on what one connection may hold.
    #[serde(default)]
    pub limits: Limits,
    /// How long each step may take.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
}

fn protocols() -> Vec<Protocol> {
    vec![Protocol::Http1, Protocol::Http2]
}

/// How other proxies ask whether a request may pass: over HTTP in the way that `http` says, or else Envoy over gRPC.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// Proxies that may ask. What they say of a request, such as who sent it where, is believed; everybody else is
    /// answered 403.
    #[schemars(length(min = 1))]
    pub from: Vec<Network>,
    /// Says that a `from` that covers every address is meant: whoever reaches the listener may then ask about any request,
    /// and is told whose token it holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_anyone: bool,
    /// How HTTP requests say what they ask about. Absent: Envoy asks over gRPC, and nobody over HTTP. One listener is for one or
    /// the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Asking>,
    /// How long answers that let a request pass may be kept by those who ask: as late a changed rule is in force with them. Each says
    /// how long it may be (no longer than its credential is believed here) and what it depends on, and of credentials whose issuer
    /// is followed here, which revocations end it: another Postern drops it then. Answers of a route with a `review`, or that rest on
    /// a session of `[login]`, are never kept. At least 1s. Absent: none is. Needs `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Timespan>,
    /// What Envoy's `path_prefix` puts before the path of the request in question. Needs `http = "envoy"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
}

/// How an HTTP request says which request it asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Asking {
    /// It has the method, host, path and headers of that request (Envoy's `http_service`).
    Envoy,
    /// `X-Original-Method` with `X-Original-URL` or `X-Original-URI` (nginx).
    XOriginal,
    /// `X-Forwarded-Method`, `-Proto`, `-Host` and `-Uri` (Traefik, Caddy, `HAProxy`).
    XForwarded,
}

/// What is spoken on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112).
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2 (RFC 9113).
    #[serde(rename = "h2")]
    Http2,
}

/// TLS of a listener. Its files are read again when they change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerTls {
    /// PEM file: the certificate, then the chain up to the authority.
    pub certificate: PathBuf,
    /// PEM file with the certificate's private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
    /// PEM file with the authorities that client certificates must come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Whether clients are asked for a certificate.
    #[serde(default)]
    pub client_certificates: ClientCertificateDemand,
}

/// Whether clients are asked for a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificateDemand {
    /// Not asked.
    #[default]
    Off,
    /// Asked; a client without one may still bring a token.
    Optional,
    /// Asked; the handshake fails without one.
    Required,
}

/// Bounds on what one connection may hold; counts as well as bytes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open connections on the listener, over all workers; further ones are closed at once. The process as a whole
    /// takes half as many as it may open files; from there on those make room that have rested for a second.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: usize,
    /// Size of one request head (request line and fields). From 1KiB to 1MiB. A trailer section has at most 64
    /// fields; over HTTP/2 it may be as large as a head, over HTTP/1.1 it has at most 8KiB.
    pub header_size: ByteSize,
    /// Fields of one request head, cookie crumbs included.
    #[schemars(range(min = 1, max = 128))]
    pub header_fields: usize,
    /// Size of the request target (path and query). From 64B to 8KiB, and no larger than `header_size`, for the
    /// target is part of the head. Absent: 8KiB, or `header_size` where that is smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_size: Option<ByteSize>,
    /// HTTP/2 streams open at once on one connection.
    #[schemars(range(min = 1, max = 10_000))]
    pub concurrent_streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: count::<50_000>(),
            header_size: kib::<32>(),
            header_fields: count::<100>(),
            target_size: None,
            concurrent_streams: count32::<128>(),
        }
    }
}

impl Limits {
    /// `target_size`, or what its absence means.
    pub fn target(&self) -> ByteSize {
        self.target_size.unwrap_or_else(|| kib::<8>().min(self.header_size))
    }
}

/// How long each step of a client's connection may take.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerTimeouts {
    /// TLS handshake, and PROXY protocol header.
    pub handshake: Timespan,
    /// From the first byte of a request to the end of its head.
    pub header: Timespan,
    /// No request on a connection that is kept alive; no byte either way through a tunnel (WebSocket).
    pub idle: Timespan,
    /// No byte of a request or response body moving although the client should read or write.
    pub stall: Timespan,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self { handshake: secs::<10>(), header: secs::<10>(), idle: secs::<60>(), stall: secs::<30>() }
    }
}
