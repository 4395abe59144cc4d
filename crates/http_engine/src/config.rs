//! Connection configuration, already validated.
//!
//! Owns: the configuration types of listener sockets, upstreams, and servers to which the process
//! sends its own requests. Does not own: text, files, defaults and error messages, which belong to
//! the `config` crate.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::outbound_proxy::OutboundProxies;

/// An address on which the gateway listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// IP address and port; with port 0 the kernel chooses one.
    Ip(SocketAddr),
    /// Path of a Unix socket, at most [`MAX_PATH`](crate::listen::MAX_PATH) bytes.
    Unix(Arc<Path>),
}

impl ListenAddress {
    /// IP address and port; `None` for a Unix socket.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Whether the two addresses overlap, so that a connection to one could reach the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Some(ip), Some(other_ip)) = (self.ip(), other.ip()) else { return self == other };
        let any = other_ip.ip().is_unspecified() || ip.ip().is_unspecified();
        let covers = any && other_ip.is_ipv4() == ip.is_ipv4() && ip.port() != 0;
        other_ip.port() == ip.port() && (other_ip.ip() == ip.ip() || covers)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Limits on the resources of one connection, in number and in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of the listener, over all workers; further ones are closed at once. Default
    /// 50 000.
    pub connections: usize,
    /// Bytes of a request head (request line and fields), and of a trailer section with HTTP/2.
    /// With HTTP/1.1 a trailer section has at most 8 KiB. Default 32 KiB.
    pub header_bytes: usize,
    /// Fields of a request head; each `Cookie` field of HTTP/2 counts. At most 128, the size of the
    /// parser's array. Default 100.
    pub header_fields: usize,
    /// Bytes of the request target. Default 8 KiB.
    pub target_bytes: usize,
    /// Concurrent HTTP/2 streams on one connection. Default 128.
    pub concurrent_streams: u32,
}

/// Time limits for the steps of a downstream connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTimeouts {
    /// TLS handshake, and reception of the PROXY header. Default 10 s.
    pub handshake: Duration,
    /// From the first byte of a request to the end of its head. Default 10 s.
    pub header: Duration,
    /// Kept-alive connection without a request, or tunnel without data in either direction. Default
    /// 60 s.
    pub idle: Duration,
    /// Request or response body without progress although the peer should make some. Default 30 s.
    pub stall: Duration,
}

/// A server to which the gateway sends its own requests, and how the gateway authenticates there.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Trusted CAs and, if configured, a client certificate; `None` for `http`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Version of `tls`: changes with the files that `tls` was built from.
    pub tls_version: u64,
    /// Proxies between the gateway and the server.
    pub proxies: OutboundProxies,
    /// How the gateway authenticates.
    pub credential: ClientCredential,
    /// From sending a request to the end of the response. Default 3 s.
    pub timeout: Duration,
    /// Requests in flight; more are refused at once. Default 128.
    pub max_requests: usize,
    /// Requests started per second; more are refused at once. `None`: no limit.
    pub max_per_second: Option<u32>,
}

impl ServerConfig {
    /// A server that needs no credential: time limit 3 s, 128 requests in flight.
    pub fn anonymous(tls: Option<Arc<rustls::ClientConfig>>, proxies: OutboundProxies) -> Self {
        let credential = ClientCredential::None;
        let timeout = Duration::from_secs(3);
        Self { tls, tls_version: 0, proxies, credential, timeout, max_requests: 128, max_per_second: None }
    }

    /// Whether both reach the server in the same way: with the same TLS files, through the same
    /// proxies.
    pub fn has_same_path(&self, other: &Self) -> bool {
        self.tls_version == other.tls_version && self.proxies == other.proxies
    }
}

/// How the gateway authenticates to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCredential {
    /// Without credentials in the request; a client certificate may be used.
    None,
    /// `client_secret_basic` (RFC 6749 section 2.3.1).
    Basic {
        /// `client_id` of the gateway.
        id: Box<str>,
        /// File with the secret, read again at run time.
        secret: PathBuf,
    },
    /// `client_secret_post` (RFC 6749 section 2.3.1).
    Post {
        /// `client_id` of the gateway.
        id: Box<str>,
        /// File with the secret, read again at run time.
        secret: PathBuf,
    },
    /// `client_secret_basic` or `client_secret_post`, as
    /// [`set_secret_method`](crate::http_client::HttpClient::set_secret_method) last said; the former
    /// until then.
    Discovered {
        /// `client_id` of the gateway.
        id: Box<str>,
        /// File with the secret, read again at run time.
        secret: PathBuf,
    },
    /// A bearer token, such as that of a service account.
    Bearer {
        /// File with the token, read again at run time.
        token: PathBuf,
    },
}

/// An upstream: a set of equivalent endpoints.
pub struct Upstream {
    /// Name in metrics and logs.
    pub name: Box<str>,
    /// Endpoints as configured, at least one. The addresses of a host name are an endpoint each.
    pub endpoints: Vec<UpstreamEndpoint>,
    /// How often host names are looked up; `None`: as their time to live says.
    pub resolve_every: Option<Duration>,
    /// Protocol used with the endpoints.
    pub protocol: UpstreamProtocol,
    /// TLS to the endpoints; `None`: plaintext.
    pub tls: Option<UpstreamTls>,
    /// Time limits for the steps of an exchange.
    pub timeouts: UpstreamTimeouts,
    /// Idle connections kept per endpoint and worker. Default 128.
    pub idle_connections: usize,
    /// Requests in flight per worker; more are answered 503 at once. Default 1024.
    pub max_requests: usize,
    /// Consecutive failures (connect, reset, timeout) after which an endpoint is ejected. Default
    /// 5.
    pub unhealthy_after: u32,
    /// How long an ejected endpoint gets no requests. Default 10 s.
    pub unhealthy_for: Duration,
    /// Active health checks; `None`: none.
    pub health_check: Option<HealthCheck>,
    /// Retries of idempotent requests; `None`: none.
    pub retries: Option<Retries>,
}

/// When a request is sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// Attempts of a request, including the first; at least 2.
    pub attempts: u32,
    /// Whether connecting is tried again after it failed.
    pub on_connect_failure: bool,
    /// Whether a request is sent again if the connection broke before the response.
    pub on_reset: bool,
    /// Statuses of responses that are dropped for another attempt.
    pub on_statuses: Vec<u16>,
    /// Maximum number of retries, in percent of the requests of the last 10 s on a worker.
    pub budget_percent: u32,
    /// Retries per second and worker that are allowed whatever the share.
    pub min_per_second: u32,
    /// Time limit of an attempt, from the request sent to the head of the response.
    pub per_try_timeout: Option<Duration>,
}

/// How endpoints are asked whether they can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path and query that are requested with `GET`.
    pub path: Box<str>,
    /// `Host` of the request; `None`: that of the endpoint.
    pub host: Option<Box<str>>,
    /// Time between two checks. Default 10 s.
    pub interval: Duration,
    /// From connecting to the head of the response. Default 2 s.
    pub timeout: Duration,
    /// Consecutive successes after which an unhealthy endpoint is healthy. Default 2.
    pub healthy_after: u32,
    /// Consecutive failures after which a healthy endpoint is unhealthy. Default 3.
    pub unhealthy_after: u32,
    /// Statuses of a healthy endpoint; none: 200 to 299.
    pub statuses: Vec<u16>,
}

impl Upstream {
    /// Whether connections made for one configuration may be used with the other.
    pub fn is_compatible_with(&self, other: &Self) -> bool {
        let tls = |u: &Self| u.tls.as_ref().map(|t| (t.version, t.server_name.clone()));
        let protocol = |u: &Self| matches!(u.protocol, UpstreamProtocol::Http2);
        self.name == other.name
            && self.endpoints == other.endpoints
            && self.resolve_every == other.resolve_every
            && protocol(self) == protocol(other)
            && tls(self) == tls(other)
            && self.timeouts == other.timeouts
            && (self.idle_connections, self.max_requests) == (other.idle_connections, other.max_requests)
            && (self.unhealthy_after, self.unhealthy_for) == (other.unhealthy_after, other.unhealthy_for)
            && (&self.health_check, &self.retries) == (&other.health_check, &other.retries)
    }
}

/// An endpoint as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamEndpoint {
    /// Where it is.
    pub address: Endpoint,
    /// Its share of the requests relative to the others, for each of its addresses. 0: it receives
    /// none. Default 1.
    pub weight: u32,
}

impl fmt::Display for UpstreamEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Address of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Host and port.
    Tcp {
        /// DNS name or IP literal, without brackets.
        host: Box<str>,
        /// TCP port number.
        port: u16,
    },
    /// Path of a Unix stream socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// Host and port, if the host is a name that has to be looked up.
    pub fn name(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp { host, port } if host.parse::<IpAddr>().is_err() => Some((host, *port)),
            Self::Tcp { .. } | Self::Unix(_) => None,
        }
    }

    /// The address, if the host is one.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp { host, port } => Some(SocketAddr::new(host.parse().ok()?, *port)),
            Self::Unix(_) => None,
        }
    }

    /// The authority in URLs that mean this endpoint (RFC 9110 §4.2); `localhost` for a Unix socket,
    /// by convention.
    pub fn authority(&self) -> String {
        match self {
            Self::Tcp { .. } => self.to_string(),
            Self::Unix(_) => "localhost".into(),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Protocol used with an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1 with keep-alive.
    Http1,
    /// HTTP/2: by ALPN over TLS, by prior knowledge without TLS.
    Http2,
}

/// TLS settings of an upstream.
pub struct UpstreamTls {
    /// Root certificates, client certificate and ALPN.
    pub client: Arc<rustls::ClientConfig>,
    /// Name to verify and to send as SNI; `None`: the endpoint's host.
    pub server_name: Option<rustls::pki_types::ServerName<'static>>,
    /// Digest of the configuration this was built from, so that a reload can keep pooled
    /// connections.
    pub version: u64,
}

/// Time limits for the steps of an upstream exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Connecting, TLS handshake included. Default 3 s.
    pub connect: Duration,
    /// From the end of the request to the response head. Default 30 s.
    pub response_header: Duration,
    /// Body without progress. Default 30 s.
    pub stall: Duration,
    /// Time after which an idle pooled connection is closed. Default 30 s.
    pub idle: Duration,
}
