//! Authorizer configuration: the external services that are queried before a request is forwarded.

use std::time::Duration;

/// Client fields that an authorizer is shown by default. The last two let an authorizer that
/// accepts cookies see which page opens a WebSocket.
pub const DEFAULT_SHOWN_FIELDS: [&str; 8] = [
    "authorization",
    "cookie",
    "x-request-id",
    "traceparent",
    "user-agent",
    "accept",
    "origin",
    "sec-websocket-version",
];

/// Fields that identify a single request, for example in logs: the cache key of an answer leaves
/// them out.
const REQUEST_ID_FIELDS: [&str; 14] = [
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "correlation-id",
    "traceparent",
    "tracestate",
    "baggage",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
];

/// An external authorizer (Envoy's external authorization over HTTP, or what nginx, Traefik and
/// others query in the same way).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizerConfig {
    /// Name of the authorizer in metrics, logs and `check`.
    pub name: Box<str>,
    /// Index into [`super::Config::upstreams`]: its limits, connections and health apply to
    /// queries.
    pub upstream: usize,
    /// How a query identifies the request it is about.
    pub question: QuestionForm,
    /// Time limit of a query from its start to the complete answer, connecting included. Default 3
    /// s.
    pub timeout: Duration,
    /// Client fields that the authorizer is shown. Default [`DEFAULT_SHOWN_FIELDS`].
    pub shown_fields: ShownFields,
    /// Fields of its answer for the upstream.
    pub upstream_fields: UpstreamFields,
    /// Maximum time to cache an answer that cannot be revoked; zero: not at all. Default 10 s.
    pub max_age: Duration,
    /// Maximum time to cache an answer that a followed issuer can revoke. Default 60 s.
    pub max_age_with_revocation: Duration,
    /// Maximum bytes of cached answers, over all workers. Default 16 MiB.
    pub cache_bytes: usize,
}

/// The client fields that an authorizer is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownFields {
    /// These.
    Named(Box<[ShownField]>),
    /// All that a service could get, without those of the connection and of the body.
    All,
}

impl ShownFields {
    /// The names, where there is a list of them.
    pub fn named(&self) -> &[ShownField] {
        match self {
            Self::Named(fields) => fields,
            Self::All => &[],
        }
    }
}

/// The fields of an authorizer's answer that the upstream gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamFields {
    /// These, in lower case. The operator trusts the authorizer with them, so that they may name the
    /// caller. A client's field of such a name passes on no route.
    Trusted(Box<[Box<str>]>),
    /// These, in lower case, as far as a client could send them itself. A client's field of such a
    /// name does not pass on this route.
    Named(Box<[Box<str>]>),
    /// All that a client could send itself, without those that describe the answer.
    All,
}

impl UpstreamFields {
    /// The names, where there is a list of them.
    pub fn names(&self) -> &[Box<str>] {
        match self {
            Self::Trusted(names) | Self::Named(names) => names,
            Self::All => &[],
        }
    }
}

/// A client field that an authorizer is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownField {
    /// Field name in lower case.
    pub name: Box<str>,
    /// Whether the field identifies a single request, so that it differs in the next one.
    pub is_request_id: bool,
}

impl ShownField {
    /// A field of this name.
    pub fn new(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self { is_request_id: REQUEST_ID_FIELDS.contains(&&*name), name: name.into() }
    }
}

/// How a query identifies the request it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionForm {
    /// The query has the method, host, path and query of that request, with a prefix (which may be
    /// empty) before the path (Envoy's HTTP service).
    SameRequest {
        /// The prefix in canonical form, without a slash at the end.
        prefix: Box<str>,
    },
    /// `GET` of a fixed path; `X-Original-Method` and `X-Original-URI` carry the rest (nginx).
    XOriginal {
        /// The path to query, with a query string if there is one.
        path: Box<str>,
    },
    /// `GET` of a fixed path; `X-Forwarded-Method`, `-Proto`, `-Host` and `-Uri` carry the rest
    /// (Traefik, Caddy).
    XForwarded {
        /// The path to query, with a query string if there is one.
        path: Box<str>,
    },
    /// A `CheckRequest` over gRPC (`envoy.service.auth.v3.Authorization`). Its upstream speaks HTTP/2.
    Grpc,
}

impl QuestionForm {
    /// Fields that identify the request, sent or not. The cache key covers all of them, so an
    /// answer's `Vary` may name any.
    pub fn fields(&self) -> &'static [&'static str] {
        match self {
            // The answer has no `Vary`.
            Self::Grpc => &[],
            Self::SameRequest { .. } => &["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"],
            Self::XOriginal { .. } => &[
                "host",
                "x-forwarded-for",
                "x-forwarded-proto",
                "x-forwarded-host",
                "x-original-method",
                "x-original-uri",
                "x-original-url",
            ],
            Self::XForwarded { .. } => &[
                "host",
                "x-forwarded-for",
                "x-forwarded-proto",
                "x-forwarded-host",
                "x-forwarded-method",
                "x-forwarded-uri",
            ],
        }
    }
}
