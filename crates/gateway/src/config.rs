//! The checked configuration the data plane runs on.
//!
//! Owns: the types. Does not own: text, files, defaults of keys, fault messages; those are the binary's
//! `config` module, which alone builds these values. Nothing here can be wrong in itself: indices are in
//! range, files were read, certificates parsed. A reload builds a whole new [`Config`] or none.

mod authorizer;

use std::sync::Arc;
use std::time::Duration;

use auth::headers::{IdentityHeaders, StripSet, is_same};
use auth::policy::review::ReviewTemplate;
use auth::policy::route::{Guards, RouteTable};
use auth::policy::rule::Policy;
use credentials::authenticate::AuthenticatorSetup;
use credentials::config::{AssertionConfig, Authentication};
pub use credentials::config::{EventDelivery, Transmitter};
use http_engine::config::{Limits, ListenAddress, ListenerTimeouts, ServerConfig, Upstream};
use http_engine::tls::ClientAuthorities;
use ipnet::IpNet;

pub use self::authorizer::{AuthorizerConfig, QuestionForm, SHOWN, ShownField};

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
    pub login: Option<Arc<login::config::LoginConfig>>,
    /// Who answers reviews, where some route asks for them.
    pub kubernetes: Option<KubernetesConfig>,
    /// Who else is asked whether requests may pass.
    pub authorizers: Vec<AuthorizerConfig>,
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
    pub assertion: Option<AssertionConfig>,
    /// Send `ServerConfig-Timing` with the named phases to these peers; empty: to nobody.
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

impl<'a> From<&'a Config> for AuthenticatorSetup<'a> {
    fn from(config: &'a Config) -> Self {
        Self {
            authentication: &config.authentication,
            identity_headers: &config.identity_headers,
            assertion: config.assertion.as_ref(),
        }
    }
}

/// Names of the request fields that decisions read, each once: a route's, a review's, an authorizer's. For [`Config::read`].
pub fn fields_read(
    table: &RouteTable,
    routes: &[Route],
    authorizers: &[AuthorizerConfig],
) -> Box<[Box<str>]> {
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

/// A socket that accepts requests.
pub struct Listener {
    /// As in the file; names it in metrics and logs.
    pub name: Box<str>,
    /// What becomes of the requests.
    pub service: ListenerService,
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
pub enum ListenerService {
    /// They are forwarded to upstreams.
    Proxy,
    /// Other proxies ask whether theirs may pass.
    Authorization(AuthorizationService),
}

impl ListenerService {
    /// The authorization service, if it is one.
    pub fn authorization(&self) -> Option<&AuthorizationService> {
        match self {
            Self::Proxy => None,
            Self::Authorization(service) => Some(service),
        }
    }
}

/// How other proxies ask whether a request may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationService {
    /// Who may ask: what they say of a request is believed.
    pub from: Vec<IpNet>,
    /// How an HTTP request says which request it is about; `None`: they ask over gRPC.
    pub http: Option<QuestionSource>,
    /// Whether answers over HTTP may be kept, and how.
    pub keeping: Option<ResponseCacheControl>,
}

/// How answers may be kept by those who ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseCacheControl {
    /// For how long at most: as late a changed rule is in force with them.
    pub max_age: Duration,
    /// `Vary`: every field that a decision can depend on.
    pub vary: Arc<str>,
}

/// How an HTTP request says which request it asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionSource {
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

/// The Kubernetes API server that answers `SubjectAccessReview`s.
#[derive(Debug, Clone)]
pub struct KubernetesConfig {
    /// Its URL, without a slash at the end.
    pub url: Box<str>,
    /// How it is reached.
    pub server: ServerConfig,
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
