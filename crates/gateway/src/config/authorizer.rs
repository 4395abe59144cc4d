//! Who is asked, before a request is forwarded, whether it may be.

use std::time::Duration;

/// Fields of a client that an authorizer is shown where nothing else is configured. Whoever takes a cookie for a credential
/// has to know whose page opens a WebSocket with it: that takes the last two.
pub const SHOWN: [&str; 8] = [
    "authorization",
    "cookie",
    "x-request-id",
    "traceparent",
    "user-agent",
    "accept",
    "origin",
    "sec-websocket-version",
];

/// Fields that differ with each request and name it to whoever reads logs: no answer is kept under them.
const NAMES_OF_REQUESTS: [&str; 14] = [
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

/// Somebody who is asked whether a request may pass (Envoy's external authorization over HTTP, and what nginx, Traefik and
/// others ask likewise).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizerConfig {
    /// Names it in metrics, logs and `check`.
    pub name: Box<str>,
    /// Where it is: index into [`super::Config::upstreams`], whose limits, connections and health are those of questions.
    pub upstream: usize,
    /// How a question says which request it is about.
    pub question: QuestionForm,
    /// From asking to the whole answer, connecting included. Default 3 s.
    pub timeout: Duration,
    /// Fields of the client that it is shown. Default [`SHOWN`].
    pub shown: Box<[ShownField]>,
    /// Fields of its answer that the service is given, in lower case. No client's field of such a name passes anywhere.
    pub given: Box<[Box<str>]>,
    /// How long an answer is kept at most that nobody takes back; zero: not at all. Default 10 s.
    pub max_age: Duration,
    /// How long one is kept at most that an issuer takes back which is followed here. Default 60 s.
    pub max_age_followed: Duration,
    /// Bytes of answers kept, over all workers. Default 16 MiB.
    pub cache_bytes: usize,
}

/// A field of the client that an authorizer is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownField {
    /// In lower case.
    pub name: Box<str>,
    /// It names the request, and another one names the next.
    pub names_request: bool,
}

impl ShownField {
    /// A field of this name.
    pub fn new(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self { names_request: NAMES_OF_REQUESTS.contains(&&*name), name: name.into() }
    }
}

/// How a question says which request it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionForm {
    /// It has the method, host, path and query of that request, with a prefix before the path that may be empty (Envoy's HTTP
    /// service).
    Itself {
        /// In canonical form, without a slash at the end.
        prefix: Box<str>,
    },
    /// `GET` of one path; `X-Original-Method` and `X-Original-URI` say the rest (nginx).
    XOriginal {
        /// Path, and query if there is one.
        path: Box<str>,
    },
    /// `GET` of one path; `X-Forwarded-Method`, `-Proto`, `-Host` and `-Uri` say the rest (Traefik, Caddy).
    XForwarded {
        /// Path, and query if there is one.
        path: Box<str>,
    },
}

impl QuestionForm {
    /// Fields that say which request is meant, or would if they were there: whatever an answer depends on of them, it is kept under all of them.
    pub fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::Itself { .. } => &["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"],
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
