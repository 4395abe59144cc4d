//! What an authorizer is asked about a request, and what the answer is kept under.
//!
//! Owns: the head of the question, which fields of the client it shows, and the key of its answer. Does not own: sending it.
//!
//! The key is made of all that the authorizer is told: method, scheme, host, path and query, who sent it, and each field that is
//! shown, in the order of the configuration. What could be answered differently has another key. Fields that name the request
//! itself, of which no two are alike, are the one exception: they are left out, and an answer is kept only if it says by `Vary`
//! what it rests on, and not on them ([`super::answer`]).

use std::borrow::Cow;

use auth::headers::{first_ambiguous_in_full, is_list};
use auth::request::{Canonical, Field, Scheme};
use credentials::cache::{CacheKey, CacheScope};
use credentials::cookies::{is_cookie, without_ours};
use telemetry::trace::TraceContext;

use crate::config::{AuthorizerConfig as Config, QuestionForm};

/// A request about which an authorizer may be asked.
pub(crate) struct QuestionInput<'a> {
    /// It, in the form that is decided about and forwarded.
    pub(crate) request: &'a Canonical<'a>,
    /// Its fields as they came.
    pub(crate) fields: &'a [Field<'a>],
    /// `X-Forwarded-For` and `-Proto` of its connection.
    pub(crate) forwarded: &'a [(&'static str, String)],
    /// Cookies of a login of our own are nobody else's to see.
    pub(crate) logs_in: bool,
    /// The trace it belongs to, when traces are kept.
    pub(crate) trace: Option<&'a TraceContext>,
}

/// Method and target of a question.
fn asked_for<'r>(config: &Config, request: &'r Canonical<'_>) -> (&'r str, Vec<u8>) {
    match &config.question {
        QuestionForm::Itself { prefix } => {
            let mut target = prefix.as_bytes().to_vec();
            request.write_target(&mut target);
            (request.method(), target)
        }
        QuestionForm::XOriginal { path } | QuestionForm::XForwarded { path } => {
            ("GET", path.as_bytes().to_vec())
        }
    }
}

/// What an authorizer would be asked for about a request, for whoever explains it: method and target.
pub fn request_line(config: &Config, request: &Canonical<'_>) -> String {
    let (method, target) = asked_for(config, request);
    format!("{method} {}", String::from_utf8_lossy(&target))
}

/// A question ready to be asked, which outlives the request's buffer.
pub(crate) struct AuthorizerQuestion {
    authorizer: usize,
    key: CacheKey,
    names_request: bool,
    method: Box<str>,
    target: Vec<u8>,
    authority: Box<str>,
    fields: Vec<(Cow<'static, str>, Vec<u8>)>,
}

impl AuthorizerQuestion {
    /// Whom it is for: index among the configured ones.
    pub(crate) fn authorizer(&self) -> usize {
        self.authorizer
    }

    /// What its answer is kept under.
    pub(crate) fn key(&self) -> CacheKey {
        self.key
    }

    /// Whether it shows fields that the key leaves out.
    pub(crate) fn names_request(&self) -> bool {
        self.names_request
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// `Host`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl std::fmt::Debug for AuthorizerQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Question of {}", self.authorizer)
    }
}

/// The first field that whoever is asked could read otherwise than whoever is behind: of those that are shown, and a
/// credential that is there twice in any case. Nobody can have the credential taken off: the route says whether it
/// passes. Trace fields decide nothing, and are the gateway's own where it keeps traces. A list is shown whole, in however
/// many lines it came.
pub fn ambiguous<'c>(config: &'c Config, fields: &[Field<'_>]) -> Option<&'c str> {
    let credentials = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
    if credentials.count() > 1 {
        return Some("authorization");
    }
    let shown = config.shown.iter().map(|shown| &*shown.name);
    first_ambiguous_in_full(
        fields,
        shown.filter(|name| !matches!(*name, "authorization" | "traceparent" | "tracestate")),
    )
}

impl QuestionInput<'_> {
    /// What the answer is kept under. Allocates nothing, but where a cookie of our own has to be taken out.
    pub(crate) fn key(&self, config: &Config, scope: &CacheScope) -> CacheKey {
        let request = self.request;
        let mut key = scope.parts();
        key.add(request.method().as_bytes());
        key.mark(u8::from(request.scheme() == Scheme::Https));
        key.add(request.authority().as_bytes());
        key.add(request.path().as_bytes());
        // No query is another request than an empty one.
        key.mark(u8::from(request.query().is_some()));
        key.add(request.query().unwrap_or_default().as_bytes());
        for (_, value) in self.forwarded {
            key.mark(1);
            key.add(value.as_bytes());
        }
        key.mark(0);
        let mut names_request = false;
        for shown in &config.shown {
            for field in self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(&shown.name)) {
                names_request |= shown.names_request;
                if !shown.names_request
                    && let Some(value) = self.value(field)
                {
                    key.mark(1);
                    key.add(&value);
                }
            }
            // No more of this name.
            key.mark(0);
        }
        key.mark(u8::from(names_request));
        key.key()
    }

    /// The question that this key is of.
    pub(crate) fn question(&self, config: &Config, authorizer: usize, key: CacheKey) -> AuthorizerQuestion {
        let request = self.request;
        let (method, target) = asked_for(config, request);
        let mut fields: Vec<(Cow<'static, str>, Vec<u8>)> = Vec::with_capacity(16);
        for (name, value) in self.forwarded {
            fields.push(((*name).into(), value.as_bytes().to_vec()));
        }
        fields.push(("x-forwarded-host".into(), request.authority().as_bytes().to_vec()));
        let names = match &config.question {
            QuestionForm::Itself { .. } => None,
            QuestionForm::XOriginal { .. } => Some(("x-original-method", "x-original-uri")),
            QuestionForm::XForwarded { .. } => Some(("x-forwarded-method", "x-forwarded-uri")),
        };
        if let Some((method, uri)) = names {
            let mut whole = Vec::new();
            request.write_target(&mut whole);
            fields.push((method.into(), request.method().as_bytes().to_vec()));
            fields.push((uri.into(), whole));
        }
        let mut names_request = false;
        for shown in &config.shown {
            let first = fields.len();
            for field in self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(&shown.name)) {
                let Some(value) = self.shown(field) else { continue };
                names_request |= shown.names_request;
                match fields.get_mut(first).filter(|_| is_list(&shown.name)) {
                    Some((_, list)) => list.extend([&b", "[..], &value].concat()),
                    None => fields.push((shown.name.to_string().into(), value.into_owned())),
                }
            }
        }
        let (method, authority) = (method.into(), request.authority().into());
        AuthorizerQuestion { authorizer, key, names_request, method, target, authority, fields }
    }

    /// What is shown of a field, which is what the key is made of.
    fn value<'v>(&self, field: &Field<'v>) -> Option<Cow<'v, [u8]>> {
        if self.logs_in && is_cookie(field.name) {
            return without_ours(field.value);
        }
        Some(Cow::Borrowed(field.value))
    }

    /// The same, in our own trace where we keep one.
    fn shown<'v>(&self, field: &Field<'v>) -> Option<Cow<'v, [u8]>> {
        match self.trace {
            Some(trace) if field.name.eq_ignore_ascii_case("traceparent") => {
                let mut parent = Vec::with_capacity(64);
                trace.outgoing().write(&mut parent);
                Some(parent.into())
            }
            _ => self.value(field),
        }
    }
}
