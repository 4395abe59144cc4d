//! Authorizer question: the query about a request, and the cache key of its answer.
//!
//! Owns: the head of the query, which client fields it shows, and the cache key. Does not own:
//! sending it.
//!
//! A query over gRPC has all of that in its message ([`crate::envoy_authz`]).
//!
//! The key covers everything that the authorizer sees: method, scheme, host, path and query, the
//! client's address, and each shown field, in the order of the configuration. Requests that could
//! be answered differently have different keys. The exception are fields that identify a single
//! request, such as `x-request-id`: the key leaves them out. Then an answer is cached only if its
//! `Vary` lists fields, and none of those ([`super::answer`]).

use std::borrow::Cow;
use std::net::IpAddr;

use auth::headers::{StripSet, first_ambiguous_list, is_list, is_per_hop};
use auth::request::{Canonical, Field, Scheme};
use bytes::Bytes;
use credentials::cache::{CacheKey, CacheScope};
use credentials::cookies::{is_cookie, without_login_cookies};
use http_engine::http_stream::NominatedFields;
use prost::Message as _;
use telemetry::trace::TraceContext;

use crate::config::{AuthorizerConfig as Config, QuestionForm, ShownFields};
use crate::envoy_authz::message::{
    Address, AttributeContext, CheckRequest, Entry, HttpRequest, Peer, Request, SocketAddress,
};
use crate::envoy_authz::{CHECK, grpc};

/// `Host` of a query about a request without a host: a name that no server has (RFC 6761 §6.4).
const NO_HOST: &str = "host.invalid";

/// Names and values of the fields of a query.
type QueryFields = Vec<(Cow<'static, str>, Vec<u8>)>;

/// A request about which an authorizer may be queried.
pub(crate) struct QuestionInput<'a> {
    /// The request in canonical form, as decided and forwarded.
    pub(crate) request: &'a Canonical<'a>,
    /// Header fields as received.
    pub(crate) fields: &'a [Field<'a>],
    /// `X-Forwarded-For` and `X-Forwarded-Proto` of the connection.
    pub(crate) forwarded: &'a [(&'static str, String)],
    /// The fields that no client may set.
    pub(crate) strip: &'a StripSet,
    /// The client's address; `None`: unknown.
    pub(crate) client: Option<IpAddr>,
    /// Whether this gateway has a login: then its cookies are removed from what is shown.
    pub(crate) hides_login_cookies: bool,
    /// The trace of the request, when traces are exported.
    pub(crate) trace: Option<&'a TraceContext>,
}

/// Method and target of a query.
fn method_and_target<'r>(config: &Config, request: &'r Canonical<'_>) -> (&'r str, Vec<u8>) {
    match &config.question {
        QuestionForm::SameRequest { prefix } => {
            let mut target = prefix.as_bytes().to_vec();
            request.write_target(&mut target);
            (request.method(), target)
        }
        QuestionForm::XOriginal { path } | QuestionForm::XForwarded { path } => {
            ("GET", path.as_bytes().to_vec())
        }
        QuestionForm::Grpc => ("POST", CHECK.as_bytes().to_vec()),
    }
}

/// Request line of the query about a request, for `check`, which explains it: method and target.
pub fn request_line(config: &Config, request: &Canonical<'_>) -> String {
    let (method, target) = method_and_target(config, request);
    format!("{method} {}", String::from_utf8_lossy(&target))
}

/// A query that is ready to be sent. It outlives the request's buffer.
pub(crate) struct AuthorizerQuestion {
    authorizer: usize,
    key: CacheKey,
    has_request_id: bool,
    method: Box<str>,
    target: Vec<u8>,
    authority: Box<str>,
    fields: QueryFields,
    body: Bytes,
}

impl AuthorizerQuestion {
    /// Index of the authorizer to query.
    pub(crate) fn authorizer(&self) -> usize {
        self.authorizer
    }

    /// Cache key of the answer.
    pub(crate) fn key(&self) -> CacheKey {
        self.key
    }

    /// Whether the query shows fields that the key leaves out.
    pub(crate) fn has_request_id(&self) -> bool {
        self.has_request_id
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Path and query of the request line.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// Value of `Host`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The body; empty except over gRPC.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }
}

impl std::fmt::Debug for AuthorizerQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Question of {}", self.authorizer)
    }
}

/// Finds the first field that the authorizer and the upstream could read differently: a repeated
/// `authorization`, or an ambiguous field among those shown.
///
/// A single `authorization` is exempt from the second check, because the route alone decides
/// whether it passes. Trace fields are exempt too: they decide nothing, and the gateway replaces
/// them where it exports traces. A list field is shown whole, even if it arrives in several lines.
pub fn ambiguous<'c>(config: &'c Config, fields: &'c [Field<'_>], strip: &StripSet) -> Option<&'c str> {
    let credentials = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
    if credentials.count() > 1 {
        return Some("authorization");
    }
    let exempt = ["authorization", "traceparent", "tracestate"];
    let is_checked = |name: &&str| !exempt.iter().any(|exempt| exempt.eq_ignore_ascii_case(name));
    match &config.shown_fields {
        ShownFields::Named(shown) => {
            first_ambiguous_list(fields, shown.iter().map(|shown| &*shown.name).filter(is_checked))
        }
        ShownFields::All => {
            let names = all_fields(fields, strip).map(|field| field.name);
            first_ambiguous_list(fields, names.filter(is_checked))
        }
    }
}

/// The client's fields, without those of the connection and those that no client may set.
fn all_fields<'f>(fields: &'f [Field<'f>], strip: &StripSet) -> impl Iterator<Item = &'f Field<'f>> {
    let nominated = NominatedFields::from_fields(fields);
    fields.iter().filter(move |field| {
        let name = field.name;
        let is_of_connection =
            is_per_hop(name) || name.eq_ignore_ascii_case("host") || nominated.contains(name);
        !is_of_connection && !strip.strips(name)
    })
}

impl QuestionInput<'_> {
    /// Cache key of the answer. Allocates nothing, unless it has to remove a cookie of ours.
    pub(crate) fn key(&self, config: &Config, scope: &CacheScope) -> CacheKey {
        let request = self.request;
        let mut key = scope.parts();
        key.add(request.method().as_bytes());
        key.add_marker(u8::from(request.scheme() == Scheme::Https));
        key.add(request.authority().as_bytes());
        key.add(request.forwarded_path().as_bytes());
        // An absent query differs from an empty one.
        key.add_marker(u8::from(request.query().is_some()));
        key.add(request.query().unwrap_or_default().as_bytes());
        for (_, value) in self.forwarded {
            key.add_marker(1);
            key.add(value.as_bytes());
        }
        key.add_marker(0);
        let mut names_request = false;
        if config.shown_fields == ShownFields::All {
            for field in all_fields(self.fields, self.strip) {
                if let Some(value) = self.key_value(field) {
                    key.add_marker(1);
                    key.add(field.name.to_ascii_lowercase().as_bytes());
                    key.add(&value);
                }
            }
            key.add_marker(0);
        }
        for shown in config.shown_fields.named() {
            for field in self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(&shown.name)) {
                names_request |= shown.is_request_id;
                if !shown.is_request_id
                    && let Some(value) = self.key_value(field)
                {
                    key.add_marker(1);
                    key.add(&value);
                }
            }
            // End of the values of this name.
            key.add_marker(0);
        }
        key.add_marker(u8::from(names_request));
        key.key()
    }

    /// The query for this key.
    pub(crate) fn question(&self, config: &Config, authorizer: usize, key: CacheKey) -> AuthorizerQuestion {
        let (method, target) = method_and_target(config, self.request);
        let (shown, has_request_id) = self.shown(&config.shown_fields);
        let (fields, body) = match &config.question {
            QuestionForm::Grpc => {
                let fields = [("content-type", &b"application/grpc"[..]), ("te", b"trailers")];
                let fields = fields.map(|(name, value)| (name.into(), value.to_vec()));
                (fields.to_vec(), grpc::framed(&self.check_request(shown).encode_to_vec().into()))
            }
            form => (self.head_fields(form, shown), Bytes::new()),
        };
        let authority = self.request.authority();
        let authority = if authority.is_empty() { NO_HOST } else { authority }.into();
        AuthorizerQuestion {
            authorizer,
            key,
            has_request_id,
            method: method.into(),
            target,
            authority,
            fields,
            body,
        }
    }

    /// The fields of a query without a body.
    fn head_fields(&self, form: &QuestionForm, shown: QueryFields) -> QueryFields {
        let request = self.request;
        let mut fields: QueryFields = Vec::with_capacity(16);
        for (name, value) in self.forwarded {
            fields.push(((*name).into(), value.as_bytes().to_vec()));
        }
        let authority = request.authority();
        if !authority.is_empty() {
            fields.push(("x-forwarded-host".into(), authority.as_bytes().to_vec()));
        }
        let names = match form {
            QuestionForm::SameRequest { .. } | QuestionForm::Grpc => None,
            QuestionForm::XOriginal { .. } => Some(("x-original-method", "x-original-uri")),
            QuestionForm::XForwarded { .. } => Some(("x-forwarded-method", "x-forwarded-uri")),
        };
        if let Some((method, uri)) = names {
            let mut whole = Vec::new();
            request.write_target(&mut whole);
            fields.push((method.into(), request.method().as_bytes().to_vec()));
            fields.push((uri.into(), whole));
        }
        fields.extend(shown);
        fields
    }

    /// The fields that the authorizer is shown, each name once unless its values cannot be joined,
    /// and whether one of them identifies this request.
    fn shown(&self, fields: &ShownFields) -> (QueryFields, bool) {
        let mut out: QueryFields = Vec::new();
        let mut names_request = false;
        let mut add = |name: &str, field: &Field<'_>| {
            let Some(value) = self.query_value(field) else { return false };
            match out.iter_mut().find(|(known, _)| known == name).filter(|_| is_list(name)) {
                Some((_, list)) => list.extend([&b", "[..], &value].concat()),
                None => out.push((name.to_owned().into(), value.into_owned())),
            }
            true
        };
        match fields {
            ShownFields::Named(fields) => {
                for shown in fields {
                    let of_name = |field: &&Field<'_>| {
                        field.name.eq_ignore_ascii_case(&shown.name) && !self.strip.strips(field.name)
                    };
                    for field in self.fields.iter().filter(of_name) {
                        names_request |= add(&shown.name, field) && shown.is_request_id;
                    }
                }
            }
            ShownFields::All => {
                for field in all_fields(self.fields, self.strip) {
                    add(&field.name.to_ascii_lowercase(), field);
                }
            }
        }
        (out, names_request)
    }

    /// The message of a query over gRPC.
    fn check_request(&self, shown: QueryFields) -> CheckRequest {
        let request = self.request;
        let mut path = Vec::new();
        request.write_target(&mut path);
        let own = self.forwarded.iter().map(|(name, value)| ((*name).into(), value.as_bytes().to_vec()));
        let entry = |(name, value): (Cow<'static, str>, Vec<u8>)| Entry {
            key: name.into_owned().into_bytes().into(),
            value: value.into(),
        };
        let scheme = if request.scheme() == Scheme::Https { "https" } else { "http" };
        let http = HttpRequest {
            method: request.method().to_owned().into_bytes().into(),
            headers: own.chain(shown).map(entry).collect(),
            header_map: None,
            path: path.into(),
            host: request.authority().to_owned().into_bytes().into(),
            scheme: Bytes::from_static(scheme.as_bytes()),
        };
        let source = self.client.map(|client| Peer {
            address: Some(Address {
                socket_address: Some(SocketAddress { address: client.to_string().into_bytes().into() }),
            }),
        });
        CheckRequest {
            attributes: Some(AttributeContext { source, request: Some(Request { http: Some(http) }) }),
        }
    }

    /// The shown value of a field, as the key includes it.
    fn key_value<'v>(&self, field: &Field<'v>) -> Option<Cow<'v, [u8]>> {
        if self.hides_login_cookies && is_cookie(field.name) {
            return without_login_cookies(field.value);
        }
        Some(Cow::Borrowed(field.value))
    }

    /// The shown value of a field, with our own `traceparent` where the gateway exports traces.
    fn query_value<'v>(&self, field: &Field<'v>) -> Option<Cow<'v, [u8]>> {
        match self.trace {
            Some(trace) if field.name.eq_ignore_ascii_case("traceparent") => {
                let mut parent = Vec::with_capacity(64);
                trace.outgoing().write(&mut parent);
                Some(parent.into())
            }
            _ => self.key_value(field),
        }
    }
}
