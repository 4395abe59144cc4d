//! The checked configuration the data plane runs on.
//!
//! Owns: the types. Does not own: text, files, defaults of keys, fault messages; those are the binary's
//! `config` module, which alone builds these values. Nothing here can be wrong in itself: indices are in
//! range, files were read, certificates parsed. A reload builds a whole new [`Config`] or none.

mod authorizer;
mod events;
mod login;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use auth::authority::AuthorityConfig;
use auth::headers::{IdentityHeaders, StripSet, is_same};
use auth::mapping::CertificateMapping;
use auth::policy::review::ReviewTemplate;
use auth::policy::route::{Guards, RouteTable};
use auth::policy::rule::Policy;
use auth::token::IssuerConfig;
use ipnet::IpNet;

pub use self::authorizer::{Authorizer, SHOWN, Shown, Told};
pub use self::events::{EventsWay, Transmitter};
pub use self::login::{Login, LoginKind, LoginProvider, Origin};
use crate::tls::ClientAuthorities;
use crate::url::Url;

/// Everything one generation of the gateway runs on.
pub struct Config {
    /// Counts configurations applied by this process; 1 is the one it started with.
    pub generation: u64,
    /// Where requests come in.
    pub listeners: Vec<Listener>,
    /// Who may vouch for callers.
    pub authentication: Authentication,
    /// Finds the index into [`Config::routes`].
    pub table: RouteTable,
    /// For each of [`Config::upstreams`] that a rewriting route leads to: who guards what stands behind it.
    pub guards: Vec<Option<Guards>>,
    /// Logging in with a browser, where that is configured.
    pub login: Option<Arc<Login>>,
    /// Who answers reviews, where some route asks for them.
    pub kubernetes: Option<Kubernetes>,
    /// Who else is asked whether requests may pass.
    pub authorizers: Vec<Authorizer>,
    /// What is protected, in file order.
    pub routes: Vec<Route>,
    /// Where requests go.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Which request fields never pass from a client.
    pub strip: StripSet,
    /// Which request fields decisions rest on ([`fields_read`]).
    pub read: Box<[Box<str>]>,
    /// What the upstream is told of the caller.
    pub identity_headers: IdentityHeaders,
    /// A short-lived signed statement of the caller for the upstream.
    pub assertion: Option<Assertion>,
    /// Send `Server-Timing` with the named phases to these peers; empty: to nobody.
    pub server_timing: Vec<IpNet>,
}

impl Config {
    /// Where a route's requests go.
    pub fn upstream_of(&self, route: &Route) -> Option<&Arc<Upstream>> {
        route.upstream.map(|upstream| &self.upstreams[upstream])
    }

    /// Whether some decision reads request fields of this name, or of an alias of it.
    pub fn reads(&self, name: &str) -> bool {
        self.read.iter().any(|read| is_same(read, name))
    }
}

/// Names of the request fields that decisions read, each once: a route's, a review's, an authorizer's. For [`Config::read`].
pub fn fields_read(table: &RouteTable, routes: &[Route], authorizers: &[Authorizer]) -> Box<[Box<str>]> {
    let reviews = routes.iter().filter_map(|route| match &route.policy {
        Policy::Rules(rules) => rules.review(),
        Policy::Public => None,
    });
    let shown = authorizers.iter().flat_map(|authorizer| &authorizer.shown).map(|shown| &*shown.name);
    let names = table.fields_read().chain(reviews.flat_map(ReviewTemplate::fields_read)).chain(shown);
    let mut names: Vec<Box<str>> = names.map(|name| name.to_ascii_lowercase().into()).collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

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

/// A socket that accepts requests.
pub struct Listener {
    /// As in the file; names it in metrics and logs.
    pub name: Box<str>,
    /// What becomes of the requests.
    pub service: Service,
    /// Where.
    pub address: ListenAddress,
    /// Permission bits of the file of a Unix socket: who may write to it may connect.
    pub mode: u32,
    /// TLS with its certificate; `None` is plain text (HTTP/1.1, and HTTP/2 with prior knowledge).
    pub tls: Option<ListenerTls>,
    /// Accept HTTP/1.1 (RFC 9112).
    pub http1: bool,
    /// Accept HTTP/2 (RFC 9113).
    pub http2: bool,
    /// Peers that must begin each connection with a PROXY protocol header (v1 or v2). Others must not.
    pub proxy_protocol: Vec<IpNet>,
    /// Bounds on what one connection may hold.
    pub limits: Limits,
    /// How long each step may take.
    pub timeouts: ListenerTimeouts,
}

/// What becomes of a listener's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// They are forwarded to upstreams.
    Proxy,
    /// Other proxies ask whether theirs may pass.
    Authorization(Authorization),
}

impl Service {
    /// The authorization service, if it is one.
    pub fn authorization(&self) -> Option<&Authorization> {
        match self {
            Self::Proxy => None,
            Self::Authorization(service) => Some(service),
        }
    }
}

/// How other proxies ask whether a request may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// Who may ask: what they say of a request is believed.
    pub from: Vec<IpNet>,
    /// How an HTTP request says which request it is about; `None`: they ask over gRPC.
    pub http: Option<Asking>,
    /// Whether answers over HTTP may be kept, and how.
    pub keeping: Option<Keeping>,
}

/// How answers may be kept by those who ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeping {
    /// For how long at most: as late a changed rule is in force with them.
    pub max_age: Duration,
    /// `Vary`: every field that a decision can depend on.
    pub vary: Arc<str>,
}

/// How an HTTP request says which request it asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asking {
    /// It is that request, with a prefix before its path that may be empty (Envoy's HTTP service).
    Itself {
        /// In canonical form, without a slash at the end.
        prefix: Box<str>,
    },
    /// `X-Original-Method`, and `X-Original-URL` or `X-Original-URI` (nginx).
    XOriginal,
    /// `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` (Traefik, Caddy, `HAProxy`).
    XForwarded,
}

/// TLS of a listener, ready for the acceptor.
pub struct ListenerTls {
    /// Certificate chain, ALPN and client-certificate demand are all in here.
    pub server: Arc<rustls::ServerConfig>,
    /// Who vouches for client certificates, where they are asked for: only then is one a credential.
    pub client_authorities: Option<ClientAuthorities>,
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

/// Who may vouch for callers.
pub struct Authentication {
    /// JWT issuers.
    pub issuers: Vec<Issuer>,
    /// Authorities that are asked about tokens which nobody can verify here.
    pub authorities: Vec<Authority>,
    /// Client certificates as a credential.
    pub certificates: Option<CertificateMapping>,
    /// Bounds of the decision cache.
    pub cache: CacheLimits,
    /// `realm` of the RFC 6750 challenge.
    pub realm: Box<str>,
    /// Digest over all that shapes a cached fact (issuers, mappings): part of every cache key, so that a
    /// fact mapped under an older configuration is never found under a newer one.
    pub version: u64,
}

/// A JWT issuer and where its keys come from.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// Claim checks and mapping.
    pub config: Arc<IssuerConfig>,
    /// Where its keys come from.
    pub keys: KeySource,
    /// How often to fetch keys without being asked. Default 5 min.
    pub refresh: Duration,
    /// How long the last good key set may be used while fetching fails. Default 1 h.
    pub max_stale: Duration,
    /// CA choice for fetching; `None`: system roots. Ignored for `http://` and files.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Somebody who is asked what a token is worth.
#[derive(Debug, Clone)]
pub struct Authority {
    /// What is expected of its answers.
    pub config: Arc<AuthorityConfig>,
    /// How it is asked.
    pub question: Question,
    /// About which tokens.
    pub selection: Selection,
    /// Whose signature introspections must bear (RFC 9701); its audience is whom they must be for. `None`: they are plain JSON.
    pub signed: Option<Issuer>,
    /// How it is reached.
    pub server: Server,
    /// How long an answer is believed; the cache's own bound holds as well. Default 10 s.
    pub ttl: Duration,
    /// The API server where deletions are watched, without a slash at the end, so that answers about what is deleted are
    /// dropped at once. `None`: nothing is watched.
    pub watch: Option<Box<str>>,
}

/// How an authority is asked about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// RFC 7662, at this URL.
    Introspection {
        /// Of the endpoint.
        url: Url,
    },
    /// Kubernetes `TokenReview`, below the API server's URL.
    TokenReview {
        /// Of the review endpoint.
        url: Url,
    },
    /// `OpenShift` `users/~`, with the token itself as the credential.
    OpenShiftUser {
        /// Of the user.
        url: Url,
    },
}

/// Which tokens an authority is asked about. Each token is asked of one authority at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those that begin so. Of several prefixes that fit, the longest counts.
    pub prefixes: Vec<Box<str>>,
    /// JWTs whose `iss` is one of these, which no configured issuer has.
    pub issuers: Vec<Box<str>>,
}

impl Selection {
    /// Whether every token is meant that is nobody else's and no JWT.
    pub fn is_rest(&self) -> bool {
        self.prefixes.is_empty() && self.issuers.is_empty()
    }
}

/// A server that the gateway asks by itself, and as whom.
#[derive(Debug, Clone)]
pub struct Server {
    /// Trusted authorities and, where there is one, a client certificate; `None` for `http`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Changes with what `tls` was made from.
    pub tls_version: u64,
    /// As whom.
    pub credential: Credential,
    /// From asking to the whole answer. Default 3 s.
    pub timeout: Duration,
    /// Requests under way at once; more are refused at once. Default 128.
    pub max_requests: usize,
    /// Requests begun within a second; more are refused at once. `None`: as many as there are.
    pub max_per_second: Option<u32>,
}

/// The Kubernetes API server that answers `SubjectAccessReview`s.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    /// Its URL, without a slash at the end.
    pub url: Box<str>,
    /// How it is reached.
    pub server: Server,
    /// How long a yes is believed. Default 10 s.
    pub ttl: Duration,
    /// How long a no is believed. Default 5 s.
    pub deny_ttl: Duration,
    /// Bytes of answers kept.
    pub cache_bytes: usize,
    /// How many times no are kept.
    pub deny_entries: usize,
    /// Whether changes of roles and bindings are watched, so that answers they concern are dropped at once. Default true.
    pub watch: bool,
    /// Whether names of service accounts are asked about, which are watched then as well.
    pub accounts: bool,
    /// Digest over all that shapes a question or how it is asked.
    pub version: u64,
}

/// As whom the gateway asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
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

/// Where an issuer's keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// `{issuer}/.well-known/openid-configuration`, then RFC 8414's path, names the `jwks_uri`.
    Discovery,
    /// The JWKS document itself.
    Uri(Box<str>),
    /// A JWKS file, read again when it changes.
    File(PathBuf),
}

/// Bounds of the decision cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLimits {
    /// Bytes of cached facts over all workers. Default 64 MiB.
    pub bytes: usize,
    /// Longest time a fact is used without verifying again (jittered down by up to 10 %). Default 60 s.
    pub ttl: Duration,
    /// How long a denial is remembered. Default 2 s.
    pub deny_ttl: Duration,
    /// Denials remembered at once. Default 4096.
    pub deny_entries: usize,
}

/// One protected resource.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a key of the file, and means nothing to the others"
)]
pub struct Route {
    /// Names it in metrics, logs and `check`.
    pub name: Box<str>,
    /// Who may.
    pub policy: Policy,
    /// Who is asked as well, once the policy permits: index into [`Config::authorizers`].
    pub authorizer: Option<usize>,
    /// Index into [`Config::upstreams`]; `None` where no listener forwards: others do, and ask here.
    pub upstream: Option<usize>,
    /// How the path changes on its way up.
    pub rewrite: Option<Rewrite>,
    /// Whether a browser's session is a credential here, and whoever has none is sent to log in.
    pub login: bool,
    /// Whether the client's `Authorization` passes to the upstream. Default false.
    pub forward_authorization: bool,
    /// Whether the upstream is given the access token of a session, as `X-Forwarded-Access-Token`. Default false.
    pub forward_access_token: bool,
    /// Largest request body; `None`: unbounded. Default 64 MiB.
    pub body_bytes: Option<u64>,
    /// From the decision to forward a request to the last byte of its response; `None`: unbounded (streams).
    /// Default 60 s.
    pub request_timeout: Option<Duration>,
    /// What becomes of an exchange that outlasts the token or certificate that let it in. Default: it is closed.
    pub on_expiry: OnExpiry,
    /// Protocol switches allowed (`websocket`, …, lower case). Default: websocket.
    pub upgrades: Vec<Box<str>>,
    /// Origins beside the request's own whose pages may open a WebSocket with what a browser sends by itself (RFC 6454):
    /// `https://app.example`. Default: none.
    pub websocket_origins: Vec<Box<str>>,
    /// Whether the upstream sees the client's `Host` instead of the endpoint's own. Default true.
    pub preserve_host: bool,
}

/// What becomes of an exchange that outlasts the token or certificate that let it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExpiry {
    /// It is closed.
    Close,
    /// It goes on until the token is revoked.
    Keep,
}

/// How the path changes on its way up. The result is canonicalised and authorized again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// Remove a leading path on a segment boundary; the empty rest is `/`.
    StripPrefix(Box<str>),
    /// Replace a leading path by another.
    ReplacePrefix {
        /// What is taken off.
        from: Box<str>,
        /// What is put in its place.
        to: Box<str>,
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

/// The signed statement of the caller for the upstream (JWT, ES256).
pub struct Assertion {
    /// Request field that carries it. Default `X-Postern-Assertion`.
    pub header: Box<str>,
    /// `iss`.
    pub issuer: Box<str>,
    /// `aud`; `None`: the upstream's name.
    pub audience: Option<Box<str>>,
    /// Lifetime, at most 5 min. Default 60 s.
    pub lifetime: Duration,
    /// Signs; its public half is served as a JWKS.
    pub signer: Arc<auth::token::jws::Signer>,
    /// Path on every listener that answers the JWKS. Default `/.well-known/postern/jwks.json`.
    pub jwks_path: Box<str>,
}
