//! The configuration file as it is written: one type per table, one field per key.
//!
//! Owns: names of keys, their defaults, and their descriptions (the doc comments here become the JSON schema
//! and the reference in `docs/configuration.md`). Does not own: whether the values make sense together; that
//! is the parent's `check`. Nothing here reads a file.

mod authority;
mod authorizer;
mod coherence;
mod event_receiver;
mod events;
mod identity;
mod issuer;
mod kubernetes;
mod listener;
mod login;
mod provider;
mod route;
mod upstream;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use authority::{Authority, AuthorityKind, ClientAuthentication, Signed};
pub use authorizer::Authorizer;
pub use coherence::{Addressing, Coherence};
pub use event_receiver::{EventReceiver, EventType};
pub use events::{SecurityEvents, Transmitter};
pub use identity::{Assertion, HeaderStyle, IdentityHeaders};
pub use issuer::{Algorithm, CertificatePart, Claims, ClientCertificates, Issuer, SubjectPart, TokenTypes};
pub use kubernetes::{Kubernetes, Review, ReviewedName};
pub use listener::{
    Asking, Authorization, ClientCertificateDemand, Limits, Listener, ListenerTimeouts, ListenerTls, Protocol,
};
pub use login::{Login, LoginKind, LoginProvider};
pub use provider::{
    Brand, Client, Grant, Introspects, Lifetimes, Lockout, Passwords, Provider, ProviderTls,
    RememberVerified, SigningAlgorithm, Strength, TokenFormat,
};
pub use route::{
    Choice, Credential, HeaderValue, OnExpiry, Path, Policy, PolicyChoice, Present, ReplacePrefix, Route,
    Rule, Sets,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use upstream::{Upstream, UpstreamProtocol, UpstreamTimeouts, UpstreamTls};

use super::scalar::{Address, ByteSize, Network, Timespan, Workers};

/// Defaults of keys: `secs::<30>` is what serde calls when the key is absent.
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
    /// The process as a whole.
    pub server: Server,
    /// Where operators look: liveness, readiness, metrics, the effective configuration.
    pub admin: Admin,
    /// Where requests come in. At least one, unless the file is about a `[provider]` alone.
    pub listener: Vec<Listener>,
    /// Issuers of JSON Web Tokens that may vouch for callers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub issuer: Vec<Issuer>,
    /// Authorities that are asked about tokens which nobody can verify here: opaque ones, for the most part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authority: Vec<Authority>,
    /// TLS client certificates as a credential. Needs a listener that asks for them. A bearer token sent along wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<ClientCertificates>,
    /// How nodes tell each other what is revoked.
    #[serde(skip_serializing_if = "is_default")]
    pub coherence: Coherence,
    /// Security events, by which issuers elsewhere tell what they take back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_events: Option<SecurityEvents>,
    /// Logging in with a browser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// Others who are asked whether requests may pass, before they are forwarded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authorizer: Vec<Authorizer>,
    /// Where requests go.
    pub upstream: Vec<Upstream>,
    /// What is protected, and by whom it may be reached. The most specific match wins, whatever the order.
    pub route: Vec<Route>,
    /// Policies that several routes share: `[policies.NAME]`, named by a route's `policy = "NAME"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, Policy>,
    /// Kubernetes, where it is asked whether callers may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// What the upstream is told of the caller, as request headers.
    pub identity_headers: IdentityHeaders,
    /// A short-lived signed statement of who calls (JWT, ES256), so that an upstream can verify the caller
    /// without trusting the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assertion: Option<Assertion>,
    /// How long and how much is remembered of verified credentials.
    pub cache: Cache,
    /// An OpenID provider of this process's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// One line per request. Read at start only.
    pub access_log: AccessLog,
    /// Logs, traces and timing.
    pub telemetry: Telemetry,
}

/// The process as a whole.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Worker threads. `"auto"` follows the CPUs this process may use, its cgroup's CPU quota included.
    /// Read at start only.
    pub workers: Workers,
    /// On SIGTERM or SIGINT: how long requests under way may take to finish before they are cut off.
    pub drain_timeout: Timespan,
    /// Read the configuration again when it, or a file it names, changes. SIGHUP does so in any case.
    pub reload_on_change: bool,
    /// `realm` of the `WWW-Authenticate` challenge (RFC 6750 section 3) in 401 answers.
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

/// Where operators look.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Whether there is an admin listener. Read at start only.
    pub enabled: bool,
    /// IP address and port (`[::]` means IPv6 alone) of `/livez`, `/readyz`, `/metrics`, `/debug/config` and `/debug/followed`. It asks for no
    /// credentials: keep it on loopback, or behind a network policy. Read at start only.
    pub address: Address,
}

impl Default for Admin {
    fn default() -> Self {
        Self { enabled: true, address: Address(([127, 0, 0, 1], 9901).into()) }
    }
}

/// How long and how much is remembered of verified credentials. Remembered are facts (who, until when),
/// never decisions: rules are evaluated for every request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// Memory for verified credentials, over all workers.
    pub size: ByteSize,
    /// Longest time a credential is believed without verifying it again; never longer than its own expiry.
    pub ttl: Timespan,
    /// How long a refused credential is remembered as such.
    pub deny_ttl: Timespan,
    /// Refused credentials remembered at once.
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

/// One line per request. Never holds a token, a cookie or a query.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// How a line looks. Read at start only.
    pub format: AccessLogFormat,
    /// `"stdout"`, `"stderr"`, or the path of a file that is appended to, and opened anew on SIGHUP.
    /// Read at start only.
    pub output: PathBuf,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { format: AccessLogFormat::Json, output: "stdout".into() }
    }
}

/// How a line of the access log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
    /// No access log.
    Off,
}

/// Logs, traces and timing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// What the process's own log on standard error holds. Libraries are heard with `debug` and `trace` alone,
    /// and only their warnings and errors. Read at start only.
    pub log: LogLevel,
    /// How a line of that log looks. Read at start only.
    pub log_format: LogFormat,
    /// Where spans are sent: the URL of an OTLP/HTTP collector, such as `http://127.0.0.1:4318`; without a
    /// path `/v1/traces` is meant. Absent: nowhere. Read at start only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,
    /// File with headers for the collector, one `name: value` per line, such as its API key. Read at start only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_headers_file: Option<PathBuf>,
    /// PEM file with the authorities that the collector's certificate must come from. Absent: the system's.
    /// Read at start only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_ca: Option<PathBuf>,
    /// `service.name` of the spans. Read at start only.
    pub service: String,
    /// Which part of the requests without a `traceparent` of their own is traced, from 0.0 to 1.0. Read at
    /// start only.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub trace_ratio: f64,
    /// Peers whose answers carry `Server-Timing` with the named phases. Empty: nobody's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_timing_to: Vec<Network>,
    /// Says that a `server_timing_to` that covers every address is meant.
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

/// What the process's own log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What needs an operator.
    Error,
    /// And what may need one.
    Warn,
    /// And what changed: start, reload, drain, keys.
    Info,
    /// And what each connection does.
    Debug,
    /// And everything else.
    Trace,
}

/// How a line of the process's own log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
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
