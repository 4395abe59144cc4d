//! Tables of `[[listener]]`: sockets that accept requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{ByteSize, EndpointAddress, FieldName, Mode, Name, Network, Timespan};
use super::default::{count, count32, kib, secs};
use super::listener_tls::ListenerTls;

/// Socket that accepts requests.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Name of the listener in metrics and logs.
    pub name: Name,
    /// IP address and port, or `unix:` and the path of a socket, relative to this file. `[::]`
    /// means IPv6 only. A socket file that another process left behind is replaced. Clients of a
    /// Unix socket have no IP address and count as 127.0.0.1.
    pub address: EndpointAddress,
    /// Permission bits of a Unix socket: users who may write to it may connect. Default: `"600"`,
    /// this user only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Certificate and settings for TLS. Default: plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// Protocols that the listener accepts. With TLS the client chooses by ALPN. In plain text,
    /// HTTP/2 needs prior knowledge. If both are accepted, a connection that does not begin like
    /// HTTP/2 is treated as HTTP/1.
    #[serde(default = "protocols")]
    #[schemars(length(min = 1))]
    pub protocols: Vec<Protocol>,
    /// Peers (load balancers) that begin each connection with a PROXY protocol header (version 1 or
    /// 2). They must send it, and no other peer may. If a version 2 header reports that the client
    /// uses TLS, as `HAProxy` sends with `send-proxy-v2-ssl`, requests count as `https`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxy_protocol_from: Vec<Network>,
    /// Confirms that a `proxy_protocol_from` that covers every address is intended. Any client can
    /// then claim any address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proxy_protocol_from_anyone: bool,
    /// Redirects requests without TLS to the same address with `https` at its default port (308),
    /// before anything else is decided. Behind a trusted proxy that ends TLS, the scheme that it
    /// reports counts. Not allowed with `authorization`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub https_redirect: bool,
    /// Proxies in front (load balancers that end TLS) that report where their requests come from.
    /// Default: forwarding fields are believed from nobody, and replaced. Not allowed with
    /// `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_proxies: Option<TrustedProxies>,
    /// Authorization service: other proxies query this listener whether their requests may pass:
    /// Envoy (`ext_authz`), nginx, Traefik, Caddy, `HAProxy`. Nothing that arrives on the listener
    /// is then forwarded. Default: requests are forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// Limits of one connection and of the listener.
    #[serde(default)]
    pub limits: Limits,
    /// Time limits of each step.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
}

pub(super) fn protocols() -> Vec<Protocol> {
    vec![Protocol::Http1, Protocol::Http2]
}

/// Proxies in front of a listener, and the fields that are believed from them. The client's address
/// is used in rules, logs and for `Server-Timing`, the scheme wherever a request's scheme is. Both
/// are passed on to the upstream. The same fields from other peers are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustedProxies {
    /// Their networks.
    #[schemars(length(min = 1))]
    pub from: Vec<Network>,
    /// Confirms that a `from` that covers every address is intended. Any client can then claim any
    /// address and `https`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_anyone: bool,
    /// Fields that each of these proxies sets or appends to. A field that a proxy passes on as the
    /// client sent it must not be listed: the client could then write it. `Forwarded` excludes the
    /// others.
    #[serde(default = "forwarded_headers")]
    #[schemars(length(min = 1))]
    pub headers: Vec<ForwardedHeader>,
}

fn forwarded_headers() -> Vec<ForwardedHeader> {
    vec![ForwardedHeader::XForwardedFor, ForwardedHeader::XForwardedProto]
}

/// Field in which a proxy reports where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ForwardedHeader {
    /// Address of the client: the right-most one that is not in `from`.
    #[serde(rename = "X-Forwarded-For")]
    XForwardedFor,
    /// Scheme of the client's request.
    #[serde(rename = "X-Forwarded-Proto")]
    XForwardedProto,
    /// Host of the client's request. It is passed on to the upstream and never selects a route, a
    /// redirect or a cookie.
    #[serde(rename = "X-Forwarded-Host")]
    XForwardedHost,
    /// Port of the client's request. It is passed on to the upstream.
    #[serde(rename = "X-Forwarded-Port")]
    XForwardedPort,
    /// All of these in one field (RFC 7239). The element that names the client also names scheme
    /// and host.
    Forwarded,
}

/// Authorization service for other proxies: over HTTP in the form that `http` selects, otherwise
/// Envoy over gRPC.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// Proxies that may query. Their description of the request, such as its client and target, is
    /// trusted. All other clients get 403.
    #[schemars(length(min = 1))]
    pub from: Vec<Network>,
    /// Confirms that a `from` that covers every address is intended. Any client that reaches the
    /// listener may then query any request, and learns the identity behind a token that it holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_anyone: bool,
    /// How HTTP queries describe the original request. Default: Envoy queries over gRPC, and no
    /// queries over HTTP are accepted. One listener serves one or the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Asking>,
    /// Header in which a query over HTTP names the client's address, such as `X-Real-IP`. Of
    /// `X-Forwarded-For` the last address counts. The proxy must set the header, or append to
    /// `X-Forwarded-For`: a proxy that passes the client's value on lets clients choose their
    /// address. Needed for rules with `addresses`. Default: `X-Forwarded-For`, for the log only.
    /// Over gRPC Envoy states the address itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_address_header: Option<FieldName>,
    /// How long a proxy may cache a response that authorizes a request. A changed rule takes effect
    /// there only after this time. Each such response states its own `max-age`, never longer than
    /// its credential stays valid here, and the headers that it depends on. If the issuer of the
    /// credential is followed here, the response also states which revocations end it. Another
    /// Postern then drops it. A response by a rule with `time` is cached at most until the rule may
    /// change its result. Responses for a route with access reviews or a rule with `addresses`, or
    /// based on a session of `[login]` or a user name and a password, may never be cached. At least
    /// 1s. Default: no response may be cached. Needs `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Timespan>,
    /// Prefix that Envoy's `path_prefix` adds to the path of the original request. Needs
    /// `http = "envoy"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
}

/// How an HTTP query describes the original request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Asking {
    /// The query has the method, host, path and headers of the original request (Envoy's
    /// `http_service`).
    Envoy,
    /// `X-Original-Method` with `X-Original-URL` or `X-Original-URI` (nginx).
    XOriginal,
    /// `X-Forwarded-Method`, `-Proto`, `-Host` and `-Uri` (Traefik, Caddy, `HAProxy`).
    XForwarded,
}

/// Protocol that a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112).
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2 (RFC 9113).
    #[serde(rename = "h2")]
    Http2,
}

/// Limits of one connection and of the listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open connections on the listener, over all workers. Further ones are closed at once. The
    /// process as a whole accepts connections up to half of its open file limit. Above that, it
    /// closes connections that have been idle for a second.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: usize,
    /// Size of one request head (request line and fields). From 1KiB to 1MiB. A trailer section has
    /// at most 64 fields. Over HTTP/2 it may be as large as a head, over HTTP/1.1 it has at most
    /// 8KiB.
    pub header_size: ByteSize,
    /// Number of fields in one request head, including each part of a split cookie.
    #[schemars(range(min = 1, max = 128))]
    pub header_fields: usize,
    /// Size of the request target (path and query). From 64B to 64KiB, and no larger than
    /// `header_size`, because the target is part of the head. Default: 8KiB, or `header_size` if
    /// that is smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_size: Option<ByteSize>,
    /// HTTP/2 streams that may be open at the same time on one connection.
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
    /// The value of `target_size`, or its default.
    pub fn target(&self) -> ByteSize {
        self.target_size.unwrap_or_else(|| kib::<8>().min(self.header_size))
    }
}

/// Time limits of each step of a client connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerTimeouts {
    /// TLS handshake and PROXY protocol header.
    pub handshake: Timespan,
    /// From the first byte of a request to the end of its head.
    pub header: Timespan,
    /// How long a keep-alive connection may have no request, or a tunnel (WebSocket) no byte in
    /// either direction.
    pub idle: Timespan,
    /// How long no byte of a request or response body may move although the client should read or
    /// write.
    pub stall: Timespan,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self { handshake: secs::<10>(), header: secs::<10>(), idle: secs::<60>(), stall: secs::<30>() }
    }
}
