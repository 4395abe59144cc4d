//! Gateway configuration: the checked values that the data plane runs on.
//!
//! Owns: the types. Does not own: text, files, defaults of keys, error messages; those belong to
//! the `config` crate, which alone builds these values.
//!
//! Every value is valid: indices are in range, files were read, certificates parsed. A reload
//! builds a whole new [`Config`] or none.

mod authorizer;
mod destination;
mod listeners;
mod routing;

use std::sync::Arc;
use std::time::Duration;

use auth::headers::{IdentityHeaders, StripSet, ValueTemplate, is_same_alias_class};
use auth::policy::rule::Policy;
use auth::request::Scheme;
use credentials::authenticate::AuthenticatorSetup;
use credentials::config::{AssertionConfig, Authentication};
pub use credentials::config::{EventDelivery, Transmitter};
use http_engine::config::{Limits, ListenAddress, ListenerTimeouts, ServerConfig};
use http_engine::field_edits::FieldEdits;
use http_engine::tls::{ClientCas, ServerCertificates};
use ipnet::IpNet;
use login::config::LoginRedirect;
use telemetry::metrics::{GatewayRouteMetrics, ListenerMetrics};

use crate::error_page::ErrorPages;

pub use self::authorizer::{
    AuthorizerConfig, DEFAULT_SHOWN_FIELDS, QuestionForm, ShownField, ShownFields, UpstreamFields,
};
pub use self::destination::{
    ChosenDestination, Destination, MirrorConfig, MirrorShare, RouteRetries, WeightedTarget,
    WeightedUpstream, WeightedUpstreams,
};
pub use self::listeners::Listeners;
pub use self::routing::{FileRoutes, FirstFree, Routing, SocketId};

/// The configuration of one generation of the gateway. A clone shares its values.
#[derive(Clone)]
pub struct Config {
    /// Number of the configuration in this process; 1 is the one at start. Routes from other sources
    /// than the file do not change it.
    pub generation: u64,
    /// Listeners that accept requests.
    pub listeners: Listeners,
    /// Issuers, token authorities and client certificates that authenticate callers.
    pub authentication: Arc<Authentication>,
    /// The protected routes, and the upstreams that requests are forwarded to.
    pub routing: Routing,
    /// Login with a browser, where configured.
    pub login: Option<Arc<login::config::LoginConfig>>,
    /// The Kubernetes API server for access reviews, where some route needs them.
    pub kubernetes: Option<Arc<KubernetesConfig>>,
    /// External authorizers that routes may query.
    pub authorizers: Arc<[AuthorizerConfig]>,
    /// Request fields that never pass from a client to an upstream.
    pub strip: Arc<StripSet>,
    /// Header fields that carry the caller's identity to the upstream.
    pub identity_headers: Arc<IdentityHeaders>,
    /// The signed assertion of the caller's identity for the upstream, where configured.
    pub assertion: Option<Arc<AssertionConfig>>,
    /// Edits of responses that no route determines; `None`: none.
    pub response_headers: Option<ResponseHeaders>,
    /// Pages for browsers whose requests are refused.
    pub pages: Arc<ErrorPages>,
    /// Client networks whose responses get `Server-Timing` with the named phases; empty: none.
    pub server_timing: Arc<[IpNet]>,
    /// Whether routes that other sources than the file add later may forward the access token of a
    /// session, so that sessions keep it from the beginning.
    pub more_routes_forward_access_token: bool,
}

impl Config {
    /// A route by its number.
    #[track_caller]
    pub fn route(&self, at: usize) -> &Arc<Route> {
        self.routing.route(at)
    }
}

impl<'a> From<&'a Config> for AuthenticatorSetup<'a> {
    fn from(config: &'a Config) -> Self {
        Self {
            authentication: &config.authentication,
            identity_headers: &config.identity_headers,
            assertion: config.assertion.as_deref(),
        }
    }
}

/// A socket that accepts requests.
#[derive(Clone)]
pub struct Listener {
    /// Name from the file, used in metrics and logs.
    pub name: Box<str>,
    /// What the listener does with its requests.
    pub service: ListenerService,
    /// The socket of a Gateway that this is; `None`: a listener of the file.
    pub socket: Option<SocketId>,
    /// Metrics of the connections of its Gateway; `None`: a listener of the file, whose metrics are
    /// found by name.
    pub metrics: Option<Arc<ListenerMetrics>>,
    /// The address to listen on.
    pub address: ListenAddress,
    /// Permission bits of a Unix socket's file: a process with write permission may connect.
    pub mode: u32,
    /// TLS with its certificate; `None` is plain text (HTTP/1.1, and HTTP/2 with prior knowledge).
    pub tls: Option<ListenerTls>,
    /// Whether the listener accepts HTTP/1.1 (RFC 9112).
    pub http1: bool,
    /// Whether the listener accepts HTTP/2 (RFC 9113).
    pub http2: bool,
    /// Peers that must begin each connection with a PROXY protocol header (v1 or v2). Others must
    /// not.
    pub proxy_protocol: Vec<IpNet>,
    /// Whether requests without TLS are redirected to `https`.
    pub https_redirect: bool,
    /// Proxies that report where requests come from; `None`: none are believed.
    pub trusted_proxies: Option<TrustedProxies>,
    /// Resource limits of one connection.
    pub limits: Limits,
    /// Time limits of the steps of a connection.
    pub timeouts: ListenerTimeouts,
}

/// What a listener does with its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerService {
    /// Requests are forwarded to upstreams.
    Proxy,
    /// Other proxies send authorization checks about their requests.
    Authorization(AuthorizationService),
}

impl ListenerService {
    /// The authorization service, if the listener is one.
    pub fn authorization(&self) -> Option<&AuthorizationService> {
        match self {
            Self::Proxy => None,
            Self::Authorization(service) => Some(service),
        }
    }
}

/// Proxies in front of a listener that report where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Their networks.
    pub networks: Vec<IpNet>,
    /// The fields that are believed.
    pub source: ForwardedSource,
}

/// The fields in which trusted proxies report where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "one per field")]
pub enum ForwardedSource {
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// The fields of the `X-Forwarded-` family that are `true`.
    XForwarded {
        /// `X-Forwarded-For`: the client's address.
        address: bool,
        /// `X-Forwarded-Proto`: the scheme.
        scheme: bool,
        /// `X-Forwarded-Host`: the host, which is passed on and decides nothing.
        host: bool,
        /// `X-Forwarded-Port`: the port, which is passed on and decides nothing.
        port: bool,
    },
}

/// How other proxies check whether a request may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationService {
    /// Networks of the proxies that may send checks: what they report about a request is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// How an HTTP check identifies the original request; `None`: checks come over gRPC.
    pub http: Option<QuestionSource>,
    /// Field of an HTTP check that names the client's address. `None`: `X-Forwarded-For`, and no
    /// rule reads the address.
    pub client_address_header: Option<Box<str>>,
    /// How proxies may cache responses over HTTP; `None`: not at all.
    pub caching: Option<ResponseCacheControl>,
}

/// How a proxy may cache auth responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseCacheControl {
    /// Maximum time to live: a changed rule takes effect at these proxies up to this much later.
    pub max_age: Duration,
    /// `Vary`: every field that a decision can depend on.
    pub vary: Arc<str>,
}

/// How an HTTP check identifies the original request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionSource {
    /// The check has the original method and path, with a prefix (which may be empty) before the
    /// path (Envoy's HTTP service).
    SameRequest {
        /// The prefix in canonical form, without a slash at the end.
        prefix: Box<str>,
    },
    /// `X-Original-Method`, and `X-Original-URL` or `X-Original-URI` (nginx).
    XOriginal,
    /// `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` (Traefik, Caddy, `HAProxy`).
    XForwarded,
}

/// TLS of a listener, ready for the acceptor.
#[derive(Clone)]
pub struct ListenerTls {
    /// Versions, ALPN and whether client certificates are required.
    pub server: Arc<rustls::ServerConfig>,
    /// The certificates that `server` presents.
    pub certificates: Arc<ServerCertificates>,
    /// CAs of client certificates, where they are requested: only then is a client certificate a
    /// credential.
    pub client_authorities: Option<ClientCas>,
}

/// The Kubernetes API server that answers `SubjectAccessReview`s.
#[derive(Debug, Clone)]
pub struct KubernetesConfig {
    /// Its URL, without a slash at the end.
    pub url: Box<str>,
    /// Connection, credential and limits for requests to it.
    pub server: ServerConfig,
    /// How long an allowed review is cached. Default 10 s.
    pub ttl: Duration,
    /// How long a denied review is cached. Default 5 s.
    pub deny_ttl: Duration,
    /// Maximum bytes of cached answers.
    pub cache_bytes: usize,
    /// Maximum number of cached denials.
    pub deny_entries: usize,
    /// Whether roles and bindings are watched, so that a change drops the cached answers it
    /// concerns at once. Default true.
    pub watch: bool,
    /// Whether reviews are about service accounts: then those are watched as well.
    pub watch_service_accounts: bool,
    /// Digest over everything that shapes a review or how it is sent.
    pub version: u64,
}

/// One protected resource.
#[derive(Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a key of the file, and means nothing to the others"
)]
pub struct Route {
    /// Name of the route in metrics, logs and `check`.
    pub name: Box<str>,
    /// Metrics of a route of the cluster, where it has its own beside those of its listener. Rules of
    /// one object share them. `None` for routes of the file, whose metrics are found by name.
    pub metrics: Option<Arc<GatewayRouteMetrics>>,
    /// Whether every request is refused because no policy applies. Only routes from other sources
    /// than the file can lack one.
    pub is_closed: bool,
    /// The rules that decide who may access the route.
    pub policy: Policy,
    /// Text for those whom the policy forbids the route: the `detail` of the problem document, and
    /// a part of the page. `None`: a general text.
    pub denied_detail: Option<Box<str>>,
    /// Authorizer to query once the policy permits: index into [`Config::authorizers`].
    pub authorizer: Option<usize>,
    /// How often a request is sent again; `None`: as its upstream says.
    pub retries: Option<Arc<RouteRetries>>,
    /// Authorizer of this route alone, which is queried after `authorizer`: its number in the routing.
    pub external_auth: Option<usize>,
    /// Where requests go; `None` where the route has an action, or where other proxies forward and
    /// this gateway only answers their checks.
    pub destination: Option<Destination>,
    /// Further upstreams that get copies of requests.
    pub mirrors: Vec<MirrorConfig>,
    /// What the gateway answers itself, instead of forwarding.
    pub action: Option<LocalAction>,
    /// Whether paths that servers read in different ways are refused, even if all readings lead to
    /// the same decision. Default false.
    pub strict_paths: bool,
    /// How the path changes before it is forwarded.
    pub rewrite: Option<Rewrite>,
    /// Whether paths in the response are changed back. Default false.
    pub rewrite_responses: bool,
    /// Whether a browser's session is a credential on this route, and browsers without one are sent
    /// to log in.
    pub login: bool,
    /// Which clients without a credential are sent to log in, with `login`.
    pub login_redirect: LoginRedirect,
    /// Whether the route answers in place of the login's `auth`: for the conditions of its query,
    /// too.
    pub is_login_auth: bool,
    /// Whether a user name and a password are a credential on this route. `None`: they are not.
    pub basic_auth: Option<BasicAuthUse>,
    /// Whether the client's `Authorization` passes to the upstream. Default false.
    pub forward_authorization: bool,
    /// Whether the upstream receives a session's access token, as `X-Forwarded-Access-Token`.
    /// Default false.
    pub forward_access_token: bool,
    /// Maximum bytes of a request body; `None`: unbounded. Default 64 MiB.
    pub body_bytes: Option<u64>,
    /// Time limit from the decision to forward a request to the last byte of its response; `None`:
    /// unbounded (streams). Default 60 s.
    pub request_timeout: Option<Duration>,
    /// Time limit of one attempt at the upstream, from the request sent to the last byte of its
    /// response; `None`: only the limit of the whole request.
    pub attempt_timeout: Option<Duration>,
    /// Time limit from the request sent to the response head; [`Duration::MAX`]: none; `None`: the
    /// upstream's.
    pub response_header_timeout: Option<Duration>,
    /// How long no byte of a response or tunnel may move; [`Duration::MAX`]: without limit; `None`:
    /// the upstream's limit for responses, the listener's for tunnels.
    pub idle_timeout: Option<Duration>,
    /// Changes of the request's fields; `None`: none.
    pub request_headers: Option<RequestHeaders>,
    /// Changes of the response's fields; `None`: none.
    pub response_headers: Option<ResponseHeaders>,
    /// Which pages of other origins may read responses; `None`: the upstream decides.
    pub cors: Option<Arc<CorsPolicy>>,
    /// Whether a WebSocket handshake may carry its bearer token among its protocols, as Kubernetes'
    /// API server permits it. Default false.
    pub websocket_bearer: bool,
    /// Whether an `Authorization` that is not for the gateway passes to the upstream beside a
    /// session.
    pub application_authorization: bool,
    /// What happens to an exchange that outlasts the token or certificate that authorized it.
    /// Default: it is closed.
    pub on_expiry: OnExpiry,
    /// Protocol switches allowed (`websocket`, …, lower case). Default: websocket.
    pub upgrades: Vec<Box<str>>,
    /// Origins besides the request's own (RFC 6454) whose pages may open a WebSocket with a
    /// credential that the browser sends automatically, such as `https://app.example`. Default:
    /// none.
    pub websocket_origins: Vec<Box<str>>,
    /// Whether the upstream receives the client's `Host` instead of the endpoint's own. Default
    /// true.
    pub preserve_host: bool,
    /// `Host` that the upstream receives instead, with a port if there is one.
    pub rewrite_host: Option<Box<str>>,
    /// What identifies a client whose requests go to the same endpoint; `None`: requests go to the
    /// endpoint with the fewest in flight.
    pub affinity: Option<Affinity>,
}

/// What identifies a client whose requests go to the same endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affinity {
    /// A cookie that the gateway sets.
    Cookie {
        /// Its name.
        name: Box<str>,
        /// How long browsers keep it; `None`: until they are closed.
        ttl: Option<Duration>,
    },
    /// The values of this header field.
    Header(Box<str>),
    /// The authenticated caller.
    User,
}

/// How a route uses HTTP Basic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BasicAuthUse {
    /// The credential is accepted, and 401 does not ask for it.
    Accept,
    /// The credential is accepted, and 401 asks for it: a browser shows its password dialog.
    Challenge,
}

/// What happens to an exchange that outlasts the token or certificate that authorized it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExpiry {
    /// The gateway closes the exchange.
    Close,
    /// The exchange continues until the token is revoked.
    Keep,
}

/// How the path changes before it is forwarded. The result is canonicalised and authorized again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// Remove a leading path on a segment boundary; an empty rest becomes `/`.
    StripPrefix(Box<str>),
    /// Replace a leading path by another.
    ReplacePrefix {
        /// The leading path to remove.
        from: Box<str>,
        /// The path to insert instead.
        to: Box<str>,
    },
    /// Replace the whole path.
    ReplacePath(Box<str>),
}

/// What the gateway answers itself on a route, once the request is permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAction {
    /// Sends the client to another URL.
    Redirect(Redirect),
    /// Sends a fixed response.
    Respond(FixedResponse),
}

/// A redirect: parts that are absent are those of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Status: 301, 302, 303, 307 or 308 (RFC 9110 §15.4).
    pub status: u16,
    /// Scheme of the target.
    pub scheme: Option<Scheme>,
    /// Host of the target.
    pub host: Option<Box<str>>,
    /// Port of the target. If it is absent and scheme or host are replaced, the scheme's default.
    pub port: Option<u16>,
    /// Path of the target.
    pub path: RedirectPath,
    /// Whether the target may be the request itself. Default false.
    pub may_loop: bool,
}

/// Path of a redirect's target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectPath {
    /// That of the request.
    Same,
    /// This one.
    Whole(Box<str>),
    /// That of the request with another beginning, on a segment boundary.
    Prefix {
        /// The beginning to remove.
        from: Box<str>,
        /// The beginning to insert instead.
        to: Box<str>,
    },
}

/// A fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedResponse {
    /// Status, from 200 to 599.
    pub status: u16,
    /// `Content-Type`, where there is a body.
    pub content_type: Option<Box<str>>,
    /// The body.
    pub body: Arc<[u8]>,
}

/// Changes of a request's fields on its way to the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaders {
    /// Names of the fields that are removed, in any alias, from those of the client and of authorizers.
    pub removed: Box<[Box<str>]>,
    /// Fields that are appended, where their value is known.
    pub values: Box<[(Box<str>, ValueTemplate)]>,
}

impl RequestHeaders {
    /// Whether a field of the client or of an authorizer with this name is removed.
    pub fn removes(&self, name: &str) -> bool {
        self.removed.iter().any(|removed| is_same_alias_class(removed, name))
    }
}

/// Changes of a response's fields on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHeaders {
    /// Edits of responses to requests without TLS, as far as they are the same for every request.
    pub http: Arc<FieldEdits>,
    /// Edits of responses to requests with TLS, likewise.
    pub https: Arc<FieldEdits>,
    /// Fields whose values depend on the caller.
    pub from_caller: Arc<[(FieldOperation, Box<str>, ValueTemplate)]>,
}

/// How a field is written beside others of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOperation {
    /// It replaces them.
    Set,
    /// It is added to them.
    Add,
}

/// Which pages of other origins may read the responses of a route (CORS, the Fetch standard).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsPolicy {
    /// Origins of the pages; at least one.
    pub origins: Vec<CorsOrigin>,
    /// Methods that the pages may use besides GET, HEAD and POST; empty: every method that the route
    /// has.
    pub methods: Vec<Box<str>>,
    /// Request fields that the pages may set.
    pub headers: CorsHeaders,
    /// Response fields that the pages may read: the list as it is sent.
    pub expose: Box<str>,
    /// Whether the pages may send cookies, client certificates and `Authorization` of the browser.
    pub credentials: bool,
    /// How long browsers may keep the answer to a preflight; `None`: their own default.
    pub max_age: Option<Duration>,
}

/// Origins of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorsOrigin {
    /// Every origin.
    Any,
    /// This one, as browsers write it.
    Exact(Box<str>),
    /// Every host below a domain, such as `https://*.example.com`.
    Below {
        /// Scheme with its separator: `https://`.
        scheme: Box<str>,
        /// The domain with its dot, and the port if there is one: `.example.com:8443`. For every
        /// host, only the port, or empty.
        suffix: Box<str>,
    },
}

/// Request fields that pages of other origins may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorsHeaders {
    /// All.
    Any,
    /// These: the list as it is sent.
    Listed(Box<str>),
}
