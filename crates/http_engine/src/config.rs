//! What a connection is configured by, checked.
//!
//! Owns: the types of listeners' sockets, upstreams and servers that the process asks. Does not own: text, files, defaults of keys,
//! messages about faults: those are the `config` crate's.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where requests are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// IP and port; port 0 asks the kernel for one.
    Ip(SocketAddr),
    /// Path of a Unix socket, of at most [`MAX_PATH`](crate::listen::MAX_PATH) bytes.
    Unix(Arc<Path>),
}

impl ListenAddress {
    /// IP and port, if it has them.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Whether connections to one could end up at the other.
    pub fn clashes(&self, other: &Self) -> bool {
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

/// Bounds on what one connection may hold; counts as well as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open connections on the listener, over all workers; further ones are closed at once. Default 50 000.
    pub connections: usize,
    /// Bytes of one request head (line and fields), and of a trailer section over HTTP/2 (over HTTP/1.1 that has
    /// at most 8 KiB). Default 32 KiB.
    pub header_bytes: usize,
    /// Fields of one request head, cookie crumbs included. At most 128, which is what there is room for. Default 100.
    pub header_fields: usize,
    /// Bytes of the request target. Default 8 KiB.
    pub target_bytes: usize,
    /// HTTP/2 streams open at once on one connection. Default 128.
    pub concurrent_streams: u32,
}

/// How long each step of a downstream connection may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTimeouts {
    /// TLS handshake, and PROXY header. Default 10 s.
    pub handshake: Duration,
    /// First byte of a request to the end of its head. Default 10 s.
    pub header: Duration,
    /// No request on a kept-alive connection; no byte either way through a tunnel. Default 60 s.
    pub idle: Duration,
    /// No byte of a request or response body moving, although the peer should. Default 30 s.
    pub stall: Duration,
}

/// A server that the gateway asks by itself, and as whom.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Trusted authorities and, where there is one, a client certificate; `None` for `http`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Changes with what `tls` was made from.
    pub tls_version: u64,
    /// As whom.
    pub credential: ClientCredential,
    /// From asking to the whole answer. Default 3 s.
    pub timeout: Duration,
    /// Requests under way at once; more are refused at once. Default 128.
    pub max_requests: usize,
    /// Requests begun within a second; more are refused at once. `None`: as many as there are.
    pub max_per_second: Option<u32>,
}

/// As whom the gateway asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCredential {
    /// As nobody, or by the client certificate.
    None,
    /// `client_secret_basic` (RFC 6749 section 2.3.1).
    Basic {
        /// Client.
        id: Box<str>,
        /// File with its secret, read again while it is in use.
        secret: PathBuf,
    },
    /// `client_secret_post`.
    Post {
        /// Client.
        id: Box<str>,
        /// File with its secret, read again while it is in use.
        secret: PathBuf,
    },
    /// A bearer token, such as a service account's.
    Bearer {
        /// File with the token, read again while it is in use.
        token: PathBuf,
    },
}

/// A set of equivalent endpoints.
pub struct Upstream {
    /// Names it in metrics and logs.
    pub name: Box<str>,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// Spoken to the endpoints.
    pub protocol: UpstreamProtocol,
    /// TLS to the endpoints, with CA choice and optional client certificate.
    pub tls: Option<UpstreamTls>,
    /// How long each step may take.
    pub timeouts: UpstreamTimeouts,
    /// Idle connections kept per endpoint and worker. Default 128.
    pub idle_connections: usize,
    /// Requests under way at once per worker; more get 503 at once. Default 1024.
    pub max_requests: usize,
    /// Consecutive failures (connect, reset, timeout) that take an endpoint out. Default 5.
    pub unhealthy_after: u32,
    /// How long an endpoint that was taken out is left alone. Default 10 s.
    pub unhealthy_for: Duration,
}

impl Upstream {
    /// Whether connections made for one may be used for the other.
    pub fn serves_like(&self, other: &Self) -> bool {
        let tls = |u: &Self| u.tls.as_ref().map(|t| (t.version, t.server_name.clone()));
        let protocol = |u: &Self| matches!(u.protocol, UpstreamProtocol::Http2);
        self.name == other.name
            && self.endpoints == other.endpoints
            && protocol(self) == protocol(other)
            && tls(self) == tls(other)
            && self.timeouts == other.timeouts
            && (self.idle_connections, self.max_requests) == (other.idle_connections, other.max_requests)
            && (self.unhealthy_after, self.unhealthy_for) == (other.unhealthy_after, other.unhealthy_for)
    }
}

/// Where an endpoint listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Host (name or literal, resolved at connect) and port.
    Tcp {
        /// DNS name or IP literal.
        host: Box<str>,
        /// Port.
        port: u16,
    },
    /// A Unix stream socket.
    Unix(PathBuf),
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

/// What is spoken to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1 with keep-alive.
    Http1,
    /// HTTP/2: ALPN over TLS, prior knowledge without.
    Http2,
}

/// TLS to an upstream.
pub struct UpstreamTls {
    /// Roots, client certificate, ALPN.
    pub client: Arc<rustls::ClientConfig>,
    /// Name to verify and send as SNI; `None`: the endpoint's host.
    pub server_name: Option<rustls::pki_types::ServerName<'static>>,
    /// Digest of the configuration that made this, so that a reload can keep pooled connections.
    pub version: u64,
}

/// How long each step of an upstream exchange may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Connecting, TLS handshake included. Default 3 s.
    pub connect: Duration,
    /// Request sent to response head. Default 30 s.
    pub response_header: Duration,
    /// No body byte moving. Default 30 s.
    pub stall: Duration,
    /// A pooled connection unused this long is closed. Default 30 s.
    pub idle: Duration,
}
