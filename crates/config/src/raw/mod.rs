//! Raw configuration: one type per table of the file and one field per key.
//!
//! Owns: the names of keys, their defaults and their descriptions. The doc comments here become the
//! JSON schema and the reference in `docs/reference/configuration.md`. Does not own: whether the
//! values are consistent. The parent's `check` decides that. Nothing here reads a file.

mod audit;
mod authorizer;
mod basic_auth;
mod cors;
mod destination;
mod event_receiver;
mod events;
mod gateway_api;
mod headers;
mod identity;
mod issuer;
mod kubernetes;
mod listener;
mod listener_tls;
mod login;
mod mail;
mod outbound;
mod pages;
mod provider;
mod provider_claims;
mod revocation;
mod route;
mod token_authority;
mod upstream;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use audit::{Audit, AuditEvent, AuditFormat, AuditReceiver};
pub use authorizer::Authorizer;
pub use basic_auth::BasicAuth;
pub use cors::{Cors, CorsChoice};
pub use destination::{Fraction, Mirror, WeightedUpstream};
pub use event_receiver::{EventReceiver, EventType};
pub use events::{SecurityEvents, Transmitter};
pub use gateway_api::{
    DefaultPolicy, ExternalTrafficPolicy, GatewayApi, GatewayListener, GatewayService, GatewayTls,
    PolicyPermission, RouteMetrics,
};
pub use headers::{HeaderText, RequestHeaders, ResponseHeaders, SecurityHeaders, SecurityHeadersChoice};
pub use identity::{Assertion, HeaderStyle, IdentityHeaders};
pub use issuer::{
    Algorithm, CertificatePart, Claims, ClientCertificates, Issuer, IssuerRevocation, SubjectPart, TokenTypes,
};
pub use kubernetes::{AccessReview, AccessReviews, Kubernetes, ReviewedName};
pub use listener::{
    Asking, Authorization, ForwardedHeader, Limits, Listener, ListenerTimeouts, Protocol, TrustedProxies,
};
pub use listener_tls::{
    CipherSuite, ClientCertificateDemand, KeyExchangeGroup, ListenerTls, ServerCertificate, TlsProfile,
    TlsVersion,
};
pub use login::{Login, LoginClientAuthentication, LoginKind, LoginProvider, ResponseMode};
pub use mail::{Mail, MailTls};
pub use outbound::Outbound;
pub use pages::{Brand, Pages};
pub use provider::{
    AccessTokenTyp, Client, Grant, Introspects, Lifetimes, Lockout, Passwords, Provider, ProviderRevocation,
    ProviderTls, RememberVerified, SigningAlgorithm, Strength, SubjectType, TokenFormat,
};
pub use provider_claims::{
    Attribute, AttributeType, ClaimPath, ClaimTarget, ClaimValue, GroupValue, ProviderClaim, UserAccess,
};
pub use revocation::{Addressing, Revocation};
pub use route::{
    Affinity, BasicAuthUse, Choice, Credential, Day, HeaderValue, LoginRedirect, OnExpiry, Path, Paths,
    Policy, PolicyChoice, Present, Redirect, ReplacePrefix, Respond, Route, Rule, Sets, TimeWindow,
    UrlScheme,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use token_authority::{ClientAuthentication, Signed, TokenAuthority, TokenAuthorityKind};
pub use upstream::{
    HealthCheck, Retries, RetryCondition, Upstream, UpstreamEndpoint, UpstreamProtocol, UpstreamTimeouts,
    UpstreamTls, WeightedEndpoint,
};

use super::scalar::{Address, ByteSize, Network, Timespan, Workers};

/// Defaults of keys. For example, serde calls `secs::<30>` when the key is absent.
mod default {
    use super::super::scalar::{Bound, ByteSize, Timespan};
    use std::time::Duration;

    pub(super) fn secs<const N: u64>() -> Timespan {
        Timespan(Duration::from_secs(N))
    }
    pub(super) fn bound_secs<const N: u64>() -> Bound<Timespan> {
        Bound(Some(secs::<N>()))
    }
    pub(super) fn kib<const N: u64>() -> ByteSize {
        ByteSize(N << 10)
    }
    pub(super) fn mib<const N: u64>() -> ByteSize {
        ByteSize(N << 20)
    }
    pub(super) fn bound_mib<const N: u64>() -> Bound<ByteSize> {
        Bound(Some(ByteSize(N << 20)))
    }
    pub(super) fn count<const N: usize>() -> usize {
        N
    }
    pub(super) fn count32<const N: u32>() -> u32 {
        N
    }
    pub(super) fn yes() -> bool {
        true
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Configuration of the Postern access gateway.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Settings of the whole process.
    pub server: Server,
    /// Admin listener for operators: liveness, readiness, metrics, the effective configuration.
    pub admin: Admin,
    /// Sockets that accept requests. At least one, unless the file configures a `[provider]` only.
    pub listener: Vec<Listener>,
    /// Issuers of JSON Web Tokens that may authenticate callers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub issuer: Vec<Issuer>,
    /// Token authorities: services that validate tokens on request. Most of these tokens are
    /// opaque, so the gateway cannot verify them itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub token_authority: Vec<TokenAuthority>,
    /// TLS client certificates as a credential. Needs a listener that requests them. When a client
    /// also sends a bearer token, the token alone counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<ClientCertificates>,
    /// User names and passwords as a credential (HTTP Basic).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
    /// Revocation: how nodes exchange what is revoked.
    #[serde(skip_serializing_if = "is_default")]
    pub revocation: Revocation,
    /// Security events: other issuers report sessions and credentials that they revoke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_events: Option<SecurityEvents>,
    /// Login with a browser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// External authorization services that are queried before a request is forwarded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authorizer: Vec<Authorizer>,
    /// Upstreams that requests are forwarded to.
    pub upstream: Vec<Upstream>,
    /// Protected resources, and who may reach them. The most specific match wins, whatever the
    /// order.
    pub route: Vec<Route>,
    /// Policies that several routes share: `[policies.NAME]`, named by a route's `policy = "NAME"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, Policy>,
    /// CORS policies that several routes share: `[cors.NAME]`, named by a route's `cors = "NAME"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cors: BTreeMap<String, Cors>,
    /// Changes of request headers for all routes.
    #[serde(skip_serializing_if = "is_default")]
    pub request_headers: RequestHeaders,
    /// Changes of response headers for all routes, and for requests that no route matches.
    #[serde(skip_serializing_if = "is_default")]
    pub response_headers: ResponseHeaders,
    /// Security headers of all responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_headers: Option<SecurityHeadersChoice>,
    /// Kubernetes API server that authorizes callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// Gateway API: routes, listeners and policies from objects of a Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_api: Option<GatewayApi>,
    /// Request headers that tell the upstream who the caller is.
    pub identity_headers: IdentityHeaders,
    /// Signed, short-lived statement of the caller's identity (JWT, ES256). With it, an upstream
    /// can verify the caller without trusting the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assertion: Option<Assertion>,
    /// Cache of verified credentials: how long and how many.
    pub cache: Cache,
    /// OpenID provider in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Pages for people: errors of the gateway, the login, and the provider.
    #[serde(skip_serializing_if = "is_default")]
    pub pages: Pages,
    /// Requests that the process itself sends, and the proxy that they pass.
    #[serde(skip_serializing_if = "is_default")]
    pub outbound: Outbound,
    /// Access log with one line per request. Read at start only.
    pub access_log: AccessLog,
    /// Logs, traces and timing.
    pub telemetry: Telemetry,
}

/// Settings of the whole process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Number of worker threads. `"auto"` follows the CPUs that this process may use, including its
    /// cgroup's CPU quota. Read at start only.
    pub workers: Workers,
    /// On SIGTERM or SIGINT: how long requests in flight may take to finish before they are cut
    /// off.
    pub drain_timeout: Timespan,
    /// Whether the configuration is read again when it, or a file that it names, changes. SIGHUP
    /// reads it again in any case.
    pub reload_on_change: bool,
    /// `realm` of the `WWW-Authenticate` challenge (RFC 6750 section 3) in 401 responses.
    pub realm: String,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            workers: Workers(None),
            drain_timeout: default::secs::<30>(),
            reload_on_change: true,
            realm: "postern".into(),
        }
    }
}

/// Admin listener for operators.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Whether there is an admin listener. Read at start only.
    pub enabled: bool,
    /// IP address and port (`[::]` means IPv6 only) of `/livez`, `/readyz`, `/metrics`,
    /// `/debug/config` and `/debug/revocation`. It requires no credentials, so keep it on loopback
    /// or behind a network policy. Read at start only.
    pub address: Address,
}

impl Default for Admin {
    fn default() -> Self {
        Self { enabled: true, address: Address(([127, 0, 0, 1], 9901).into()) }
    }
}

/// Cache of verified credentials. It stores facts (who, until when) and never decisions: rules are
/// evaluated for every request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// Memory for verified credentials, over all workers.
    pub size: ByteSize,
    /// Longest time that a verified credential is valid without a new verification, and never
    /// longer than its own expiry.
    pub ttl: Timespan,
    /// How long a refused credential stays cached as refused.
    pub deny_ttl: Timespan,
    /// Largest number of cached refused credentials.
    #[schemars(range(max = 1_000_000))]
    pub deny_entries: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            size: ByteSize(64 << 20),
            ttl: default::secs::<60>(),
            deny_ttl: default::secs::<2>(),
            deny_entries: 4096,
        }
    }
}

/// Access log with one line per request. It never contains a token, a cookie or a query.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// Format of a line. Read at start only.
    pub format: AccessLogFormat,
    /// `"stdout"`, `"stderr"`, or the path of a file. Lines are appended to the file, and SIGHUP
    /// opens it again. Read at start only.
    pub output: PathBuf,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { format: AccessLogFormat::Json, output: "stdout".into() }
    }
}

/// Format of a line in the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One JSON object per line.
    Json,
    /// Text for human readers.
    Text,
    /// No access log.
    Off,
}

/// Logs, traces and timing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Lowest level of the process log on standard error. Libraries write to it at `debug` and
    /// `trace` only, and only their warnings and errors. Read at start only.
    pub log: LogLevel,
    /// Format of a line in the process log. Read at start only.
    pub log_format: LogFormat,
    /// URL of the OTLP/HTTP collector that receives spans, such as `http://127.0.0.1:4318`. Without
    /// a path, `/v1/traces` is used. Default: spans are not exported. Read at start only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,
    /// File with headers for the collector, one `name: value` per line, such as its API key. Read
    /// at start only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_headers_file: Option<PathBuf>,
    /// PEM file with the certificate authorities that verify the collector's certificate. Default:
    /// those of the system. Read at start only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_ca: Option<PathBuf>,
    /// `service.name` of the spans. Read at start only.
    pub service: String,
    /// Share of the requests without a `traceparent` header that is traced, from 0.0 to 1.0. Read
    /// at start only.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub trace_ratio: f64,
    /// Client networks that receive `Server-Timing` with the named phases in responses. Empty:
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_timing_to: Vec<Network>,
    /// Confirms that a `server_timing_to` that covers every address is intended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub server_timing_to_anyone: bool,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: LogLevel::Info,
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            otlp_headers_file: None,
            otlp_ca: None,
            service: "postern".into(),
            trace_ratio: 0.01,
            server_timing_to: Vec::new(),
            server_timing_to_anyone: false,
        }
    }
}

/// Level of the process log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Problems that need an operator.
    Error,
    /// Also problems that may need an operator.
    Warn,
    /// Also changes: start, reload, drain, keys.
    Info,
    /// Also events of each connection.
    Debug,
    /// Everything else too.
    Trace,
}

/// Format of a line in the process log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Text for human readers.
    Text,
}

impl Serialize for Workers {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(count) => s.serialize_u16(count),
            None => s.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Count(u16),
            Word(String),
        }
        match Form::deserialize(d)? {
            Form::Count(count) if count > 0 => Ok(Self(Some(count))),
            Form::Word(word) if word == "auto" => Ok(Self(None)),
            _ => Err(serde::de::Error::custom("expected \"auto\" or a number from 1")),
        }
    }
}

impl JsonSchema for Workers {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Workers".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "type": "string", "enum": ["auto"] }, { "type": "integer", "minimum": 1, "maximum": 1024 }]
        })
    }
}
