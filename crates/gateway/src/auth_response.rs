//! Auth response: answers a check of another proxy for a request that is permitted, with the
//! caller's identity.
//!
//! Owns: the response, which only a [`Permit`] can create; its form over HTTP; which client fields
//! must not reach the service, both for serving and for `check`, which explains it. Does not own:
//! how the proxy asked ([`crate::forward_auth`], [`crate::ext_authz`]), the decision, forwarding
//! (the other proxy does that).
//!
//! A response is for one request, unless the configuration lets the proxy cache it. Then it carries
//! the time to live, the fields that it depends on, and the issuer and tags that can revoke it.
//! Cached or not, it carries the time left until the credential expires.
//!
//! Our field names that a response does not set must not reach the service from the client either.
//! A gRPC proxy receives a list of fields to remove. Other proxies receive every one of our names,
//! empty where there is no value. Some proxies replace the client's field with the empty one,
//! others do not: their configuration must remove the client's field first.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::decide::Permit;
use auth::headers::{is_per_hop, is_same_alias_class, is_set_by_front_proxy};
use auth::policy::rule::Policy;
use auth::request::Field;
use auth::time::Timestamp;
use coherence::revocation_tags;
use coherence::revocation_tags::RevocationTags;
use credentials::authenticate::Verified;
use credentials::cookies::{is_cookie, without_login_cookies};
use http_engine::clock::Now;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

use crate::authorizer::ENDS_IN;
use crate::config::{Config, Destination, OnExpiry, QuestionSource, ResponseCacheControl, Route};
use crate::refusal::Refusal;
use crate::worker::{ACCESS_TOKEN, ActiveConfig, access_token};

/// A request is permitted: the identity and the fields that the proxy passes on.
pub(crate) struct AuthResponse {
    /// Fields for the service. Each replaces the client's field of that name.
    pub(crate) set: Vec<(Box<str>, Cow<'static, str>)>,
    /// Field names besides those in `set` that must not reach the service from the client.
    pub(crate) unset_fields: Vec<Box<str>>,
    /// Index of the route that permits the request.
    pub(crate) route: usize,
    /// The authenticated caller; `None` on a public route.
    pub(crate) caller: Option<Arc<Verified>>,
    /// The client's cookies without ours. `None`: the client sent none of ours.
    pub(crate) cookies: Option<String>,
    /// Time until the credential expires. `None`: it does not expire, or the route keeps exchanges
    /// open beyond it.
    ends_in: Option<Duration>,
    /// How the proxy may cache the response; `None`: not at all.
    caching: Option<ResponseCaching>,
}

/// How a proxy may cache an [`AuthResponse`].
///
/// Only a response that depends on nothing but the request and its token may be cached. A response
/// that needed a Kubernetes access review may not, nor one for a session, whose cookie may have to
/// be replaced, nor one by rules on the client's address, which the cache would have to know. One
/// by rules on the time is cached until the time may change it.
pub(crate) struct ResponseCaching {
    max_age: u64,
    vary: Arc<str>,
    /// The issuer that may revoke it, and the tags to revoke it by.
    revocation: Option<(Box<str>, RevocationTags)>,
}

impl ResponseCaching {
    /// Caching of a response for `caller`, whose cache entry is valid until `until`. Returns `None`
    /// when the response may not be cached.
    pub(crate) fn new(
        keeping: &ResponseCacheControl,
        running: &ActiveConfig,
        route: &Route,
        caller: Option<&Verified>,
        until: Option<Instant>,
        now: Now,
    ) -> Option<Self> {
        let mut max_age = keeping.max_age;
        if let Policy::Rules(rules) = &route.policy {
            if rules.reviews().is_some() || rules.reads_client_address() {
                return None;
            }
            max_age = max_age.min(rules.next_change(now.wall).since(now.wall));
        }
        let mut statement = None;
        if let Some(caller) = caller {
            // A session has no `until`; nor does a token that was evicted from the cache meanwhile.
            max_age = max_age.min(until?.saturating_duration_since(now.monotonic));
            let left = caller.facts.expires.as_millis().saturating_sub(now.wall.as_millis());
            max_age = max_age.min(Duration::from_millis(left));
            // An assertion here has at least half of its lifetime left; half of that is for the
            // service.
            if let Some(assertion) = &running.config.assertion {
                max_age = max_age.min(assertion.lifetime / 4);
            }
            if let Some(revocable) = &caller.revocable {
                statement = Some(revocable.revocation_tags()?);
            }
            if caller.session.is_some() {
                return None;
            }
        }
        let vary = keeping.vary.clone();
        Some(Self { max_age: max_age.as_secs(), vary, revocation: statement })
            .filter(|caching| caching.max_age > 0)
    }
}

impl AuthResponse {
    /// Builds the response from a permit.
    #[allow(clippy::needless_pass_by_value, reason = "a permit is used up by what it permits")]
    pub(crate) fn new(
        permit: Permit<'_>,
        running: &ActiveConfig,
        caller: Option<&Arc<Verified>>,
        fields: &[Field<'_>],
        now: Now,
    ) -> Result<Self, Refusal> {
        let route = running.config.route(permit.route());
        let mut set: Vec<(Box<str>, Cow<'static, str>)> = Vec::new();
        for (name, value) in caller.iter().flat_map(|caller| &caller.upstream_fields) {
            // Rendered as visible ASCII.
            set.push((name.clone(), String::from_utf8_lossy(value).into_owned().into()));
        }
        // Which of several upstreams the proxy chooses is not known here.
        let upstream = route.destination.as_ref().and_then(Destination::single);
        if let Some((name, token)) = running.assertion((route, upstream), caller.map(|c| &**c), || now)? {
            set.push((name.into(), token.to_string().into()));
        }
        if let Some((name, token)) = access_token(route, caller.map(|c| &**c)) {
            set.push((name.into(), token.to_owned().into()));
        }
        let names = set.iter().map(|(name, _)| &**name).collect::<Vec<_>>();
        let absent = unset_identity_fields(&running.config, &names).map(Box::from).collect();
        let cookies = running.login.as_ref().and_then(|_| foreign_cookies(fields));
        let ends_in = ends_in(route, caller.map(|caller| &**caller), now);
        Ok(Self {
            set,
            unset_fields: absent,
            route: permit.route(),
            caller: caller.cloned(),
            cookies,
            ends_in,
            caching: None,
        })
    }

    /// Sets how the proxy may cache the response.
    pub(crate) fn with_caching(self, caching: Option<ResponseCaching>) -> Self {
        Self { caching, ..self }
    }

    /// The response for a proxy that asked over HTTP.
    pub(crate) fn answer(self) -> LocalReply {
        let mut fields = match &self.caching {
            None => vec![("cache-control".into(), "no-store".into())],
            Some(ResponseCaching { max_age, vary, revocation: statement }) => {
                let mut fields: Vec<(Cow<'static, str>, Cow<'static, str>)> = vec![
                    ("cache-control".into(), format!("max-age={max_age}, must-revalidate").into()),
                    ("vary".into(), vary.to_string().into()),
                ];
                if let Some((issuer, tags)) = statement {
                    fields.push((revocation_tags::REVOCATION_FIELD.into(), tags.to_string().into()));
                    fields.push((revocation_tags::ISSUER_FIELD.into(), issuer.to_string().into()));
                }
                fields
            }
        };
        if let Some(ends_in) = self.ends_in {
            fields.push((ENDS_IN.into(), ends_in.as_millis().to_string().into()));
        }
        fields.extend(self.set.into_iter().map(|(name, value)| (String::from(name).into(), value)));
        fields
            .extend(self.unset_fields.into_iter().map(|name| (String::from(name).into(), Cow::Borrowed(""))));
        LocalReply {
            status: 200,
            code: "allowed",
            outcome: Outcome::Allowed,
            fields,
            body: Cow::Borrowed(b""),
            close: false,
        }
    }
}

/// Time until the caller's credential expires. For a session this is the end of its lifetime,
/// regardless of the route.
fn ends_in(route: &Route, caller: Option<&Verified>, now: Now) -> Option<Duration> {
    let caller = caller?;
    let ends = match (&caller.session, route.on_expiry) {
        (Some(session), _) => session.open_session.ends(),
        (None, OnExpiry::Close) => caller.facts.expires,
        (None, OnExpiry::Keep) => return None,
    };
    (ends < Timestamp::MAX).then(|| ends.since(now.wall))
}

/// Converts a local reply for a proxy that asked over HTTP and reads only the status. Such a proxy
/// forwards on success, so a page (2xx) becomes 403 with the same content. nginx knows only allow
/// and deny, so a redirect becomes 401; the nginx configuration can turn it back into a redirect
/// with the `Location` beside it.
pub(crate) fn deny_over_http(source: &QuestionSource, answer: LocalReply) -> LocalReply {
    let status = match (answer.status, source) {
        (200..=299, _) => 403,
        (300..=399, QuestionSource::XOriginal) => 401,
        (status, _) => status,
    };
    LocalReply { status, ..answer }
}

/// All cookies of the request except ours; `None` when it has none of ours.
fn foreign_cookies(fields: &[Field<'_>]) -> Option<String> {
    let mut ours = false;
    let mut left: Vec<Cow<'_, [u8]>> = Vec::new();
    for field in fields.iter().filter(|field| is_cookie(field.name)) {
        let others = without_login_cookies(field.value);
        ours |= !matches!(others, Some(Cow::Borrowed(_)));
        left.extend(others);
    }
    ours.then(|| left.iter().map(|value| String::from_utf8_lossy(value)).collect::<Vec<_>>().join("; "))
}

/// Names of the fields that carry the caller's identity to a service, set or not.
pub fn identity_field_names(config: &Config) -> impl Iterator<Item = &str> {
    let assertion = config.assertion.iter().map(|assertion| &*assertion.header);
    let tokens = config.routing.routes().any(|route| route.forward_access_token);
    config.identity_headers.names().chain(assertion).chain(tokens.then_some(ACCESS_TOKEN))
}

/// The identity fields that a response does not set; `set` holds the names that it sets.
pub fn unset_identity_fields<'c>(config: &'c Config, set: &'c [&str]) -> impl Iterator<Item = &'c str> {
    identity_field_names(config).filter(|name| set.iter().all(|known| known != name))
}

/// Names in lower case that a proxy must remove before it forwards, for proxies that accept such a
/// list:
///
/// - client fields that a service could take for ours, or that claim an identity;
/// - all our names that are not in `set`, because the proxy may not have sent us every field;
/// - `authorization`, unless the route forwards it.
///
/// The second value is the number of client fields that are among them because no client may set
/// them.
pub fn fields_to_remove(
    config: &Config,
    route: &Route,
    set: &[&str],
    fields: &[Field<'_>],
) -> (Vec<String>, u32) {
    let claimed = Cell::new(0);
    let token = (!route.forward_authorization).then_some("authorization");
    let mut remove: Vec<String> = Vec::new();
    for name in client_fields_to_remove(config, fields, &claimed)
        .chain(unset_identity_fields(config, set))
        .chain(token)
    {
        let name = name.to_ascii_lowercase();
        if !set.iter().any(|set| set.eq_ignore_ascii_case(&name)) && !remove.contains(&name) {
            remove.push(name);
        }
    }
    (remove, claimed.get())
}

/// Names among the client's fields that the proxy must remove before it forwards. `claimed` counts
/// those that no client may set.
fn client_fields_to_remove<'f>(
    config: &'f Config,
    fields: &'f [Field<'f>],
    claimed: &'f Cell<u32>,
) -> impl Iterator<Item = &'f str> {
    // The proxy itself writes or removes these hop-by-hop fields, but not fields that only look
    // like them.
    const MANAGED_BY_PROXY: [&str; 7] = [
        "connection",
        "content-length",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "proxy-connection",
    ];
    let is_to_go = move |name: &str| {
        if is_claimed(config, name) {
            claimed.set(claimed.get() + 1);
            return true;
        }
        let ours = identity_field_names(config).any(|own| is_same_alias_class(own, name));
        ours || is_per_hop(name) && !MANAGED_BY_PROXY.iter().any(|own| own.eq_ignore_ascii_case(name))
    };
    fields.iter().map(|field| field.name).filter(move |name| is_to_go(name))
}

/// Whether no client may set this field, and the front proxy does not set it either.
fn is_claimed(config: &Config, name: &str) -> bool {
    config.strip.strips(name) && !is_set_by_front_proxy(name)
}

/// Finds a client field that a service could take for an identity field, although its name differs.
/// A proxy replaces fields by exact name, so it would pass this one on.
pub fn find_look_alike<'f>(config: &Config, fields: &'f [Field<'f>]) -> Option<&'f str> {
    let mut names = fields.iter().map(|field| field.name);
    let is_alias = |name: &str, own: &str| is_same_alias_class(own, name) && !own.eq_ignore_ascii_case(name);
    names.find(|name| identity_field_names(config).any(|own| is_alias(name, own)))
}
