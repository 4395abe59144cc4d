//! What another proxy is told of a request that may pass, so that whoever is behind it knows who calls.
//!
//! Owns: the voucher, which only a [`Permit`] can make, its form as an HTTP answer, and which of the client's fields must not
//! reach the service, for serving and for whoever explains it. Does not own: how the proxy asked ([`crate::forward_auth`],
//! [`crate::ext_authz`]), the decision, forwarding: that is the other proxy's.
//!
//! A voucher is for one request, unless the configuration lets whoever asks keep it. Then it says for how long, on which fields it
//! rests, and whose revocations end it. Kept or not, it says when the credential ends that it rests on.
//!
//! What a voucher does not set must not reach the service behind under our names either. A proxy that lets us say so is told
//! what to remove; the others are given every name of ours, those without a value empty. Some put that in place of what the
//! client sent, others do not: their configuration has to take the client's off first.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::decide::Permit;
use auth::headers::{is_of_the_front, is_per_hop, is_same};
use auth::policy::rule::Policy;
use auth::request::Field;
use auth::time::Timestamp;
use coherence::revocation_tags;
use coherence::revocation_tags::RevocationTags;
use credentials::authenticate::Verified;
use credentials::cookies::{is_cookie, without_ours};
use http_engine::clock::Now;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

use crate::authorizer::ENDS_IN;
use crate::config::{Config, OnExpiry, QuestionSource, ResponseCacheControl, Route};
use crate::refusal::Refusal;
use crate::worker::{ACCESS_TOKEN, ActiveConfig, access_token};

/// Somebody may pass, and this is who it is.
pub(crate) struct AuthResponse {
    /// Fields for the service, each in place of whatever the client sent under that name.
    pub(crate) set: Vec<(Box<str>, Cow<'static, str>)>,
    /// Names that the service must not hear from the client, besides those in `set`.
    pub(crate) absent: Vec<Box<str>>,
    /// The route that permits it.
    pub(crate) route: usize,
    /// Who; `None` on a public route.
    pub(crate) caller: Option<Arc<Verified>>,
    /// What the service is to be shown of the client's cookies, when some are ours.
    pub(crate) cookies: Option<String>,
    /// How long the credential that it rests on lasts; `None`: it has no end, or the route keeps open what it let in.
    ends_in: Option<Duration>,
    /// How whoever asked may keep it; `None`: not at all.
    kept: Option<ResponseCaching>,
}

/// How somebody who asked may keep a voucher.
///
/// Only what rests on nothing else than the request and its credential is kept: not what Kubernetes was asked for, nor what a
/// session says, whose cookie may have to be exchanged.
pub(crate) struct ResponseCaching {
    max_age: u64,
    vary: Arc<str>,
    /// Who may take it back, and by what.
    statement: Option<(Box<str>, RevocationTags)>,
}

impl ResponseCaching {
    /// What is believed of a caller until an instant; `None` when that may not be kept.
    pub(crate) fn new(
        keeping: &ResponseCacheControl,
        running: &ActiveConfig,
        route: &Route,
        caller: Option<&Verified>,
        until: Option<Instant>,
        now: Now,
    ) -> Option<Self> {
        if matches!(&route.policy, Policy::Rules(rules) if rules.review().is_some()) {
            return None;
        }
        let mut max_age = keeping.max_age;
        let mut statement = None;
        if let Some(caller) = caller {
            // A session has none; of what was pushed out of the cache meanwhile it is not known.
            max_age = max_age.min(until?.saturating_duration_since(now.monotonic));
            let left = caller.facts.expires.as_millis().saturating_sub(now.wall.as_millis());
            max_age = max_age.min(Duration::from_millis(left));
            // At least half of its life is left, and half of that is for the service.
            if let Some(assertion) = &running.config.assertion {
                max_age = max_age.min(assertion.lifetime / 4);
            }
            if let Some(revocable) = &caller.revocable {
                statement = Some(revocable.statement()?);
            }
            if caller.session.is_some() {
                return None;
            }
        }
        let vary = keeping.vary.clone();
        Some(Self { max_age: max_age.as_secs(), vary, statement }).filter(|kept| kept.max_age > 0)
    }
}

impl AuthResponse {
    /// Vouches for what a permit permits.
    #[allow(clippy::needless_pass_by_value, reason = "a permit is used up by what it permits")]
    pub(crate) fn new(
        permit: Permit<'_>,
        running: &ActiveConfig,
        caller: Option<&Arc<Verified>>,
        fields: &[Field<'_>],
        now: Now,
    ) -> Result<Self, Refusal> {
        let route = &running.config.routes[permit.route()];
        let mut set: Vec<(Box<str>, Cow<'static, str>)> = Vec::new();
        for (name, value) in caller.iter().flat_map(|caller| &caller.upstream_fields) {
            // Rendered as visible ASCII.
            set.push((name.clone(), String::from_utf8_lossy(value).into_owned().into()));
        }
        if let Some((name, token)) = running.assertion(route, caller.map(|c| &**c), now)? {
            set.push((name.into(), token.to_string().into()));
        }
        if let Some((name, token)) = access_token(route, caller.map(|c| &**c)) {
            set.push((name.into(), token.to_owned().into()));
        }
        let names = set.iter().map(|(name, _)| &**name).collect::<Vec<_>>();
        let absent = absent(&running.config, &names).map(Box::from).collect();
        let cookies = running.login.as_ref().and_then(|_| cookies_left(fields));
        let ends_in = ends_in(route, caller.map(|caller| &**caller), now);
        Ok(Self { set, absent, route: permit.route(), caller: caller.cloned(), cookies, ends_in, kept: None })
    }

    /// The same, to be kept.
    pub(crate) fn kept(self, kept: Option<ResponseCaching>) -> Self {
        Self { kept, ..self }
    }

    /// For a proxy that asked over HTTP.
    pub(crate) fn answer(self) -> LocalReply {
        let mut fields = match &self.kept {
            None => vec![("cache-control".into(), "no-store".into())],
            Some(ResponseCaching { max_age, vary, statement }) => {
                let mut fields: Vec<(Cow<'static, str>, Cow<'static, str>)> = vec![
                    ("cache-control".into(), format!("max-age={max_age}, must-revalidate").into()),
                    ("vary".into(), vary.to_string().into()),
                ];
                if let Some((issuer, said)) = statement {
                    fields.push((revocation_tags::FIELD.into(), said.to_string().into()));
                    fields.push((revocation_tags::ISSUER.into(), issuer.to_string().into()));
                }
                fields
            }
        };
        if let Some(ends_in) = self.ends_in {
            fields.push((ENDS_IN.into(), ends_in.as_millis().to_string().into()));
        }
        fields.extend(self.set.into_iter().map(|(name, value)| (String::from(name).into(), value)));
        fields.extend(self.absent.into_iter().map(|name| (String::from(name).into(), Cow::Borrowed(""))));
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

/// How long what a caller was let in by lasts: a session to the end of its lifetime, whatever the route says.
fn ends_in(route: &Route, caller: Option<&Verified>, now: Now) -> Option<Duration> {
    let caller = caller?;
    let ends = match (&caller.session, route.on_expiry) {
        (Some(session), _) => session.lasting.ends(),
        (None, OnExpiry::Close) => caller.facts.expires,
        (None, OnExpiry::Keep) => return None,
    };
    (ends < Timestamp::MAX).then(|| ends.since(now.wall))
}

/// An answer of ours in place of a voucher, for a proxy that asked over HTTP. To it a success is leave to forward, so what
/// would be a page is refused, with the same content; and nginx knows yes and no alone, so a redirect is 401 there, which
/// its configuration can make one of: `Location` is beside it.
pub(crate) fn refusing(asking: &QuestionSource, answer: LocalReply) -> LocalReply {
    let status = match (answer.status, asking) {
        (200..=299, _) => 403,
        (300..=399, QuestionSource::XOriginal) => 401,
        (status, _) => status,
    };
    LocalReply { status, ..answer }
}

/// All cookies but ours; `None` when none is ours.
fn cookies_left(fields: &[Field<'_>]) -> Option<String> {
    let mut ours = false;
    let mut left: Vec<Cow<'_, [u8]>> = Vec::new();
    for field in fields.iter().filter(|field| is_cookie(field.name)) {
        let others = without_ours(field.value);
        ours |= !matches!(others, Some(Cow::Borrowed(_)));
        left.extend(others);
    }
    ours.then(|| left.iter().map(|value| String::from_utf8_lossy(value)).collect::<Vec<_>>().join("; "))
}

/// The fields that tell a service who calls, set or not.
pub fn names_of_ours(config: &Config) -> impl Iterator<Item = &str> {
    let assertion = config.assertion.iter().map(|assertion| &*assertion.header);
    let tokens = config.routes.iter().any(|route| route.forward_access_token);
    config.identity_headers.names().chain(assertion).chain(tokens.then_some(ACCESS_TOKEN))
}

/// Those of them that a voucher does not set; `set` are the names of those that it does.
pub fn absent<'c>(config: &'c Config, set: &'c [&str]) -> impl Iterator<Item = &'c str> {
    names_of_ours(config).filter(|name| set.iter().all(|known| known != name))
}

/// What a proxy that can be told so takes off before it forwards, in lower case: whatever of the client's fields a service could
/// take for ours, what says who calls in somebody else's words, and the names known beforehand, for it may not have shown us all. And
/// how many of the client's fields are among them because they say what no client may say of itself.
pub fn removed(config: &Config, route: &Route, set: &[&str], fields: &[Field<'_>]) -> (Vec<String>, u32) {
    let claimed = Cell::new(0);
    let token = (!route.forward_authorization).then_some("authorization");
    let mut remove: Vec<String> = Vec::new();
    for name in to_remove(config, fields, &claimed).chain(absent(config, set)).chain(token) {
        let name = name.to_ascii_lowercase();
        if !set.iter().any(|set| set.eq_ignore_ascii_case(&name)) && !remove.contains(&name) {
            remove.push(name);
        }
    }
    (remove, claimed.get())
}

/// The names among the client's fields that the proxy must take off before it forwards; `claimed` counts those that say what no
/// client may say of itself.
fn to_remove<'f>(
    config: &'f Config,
    fields: &'f [Field<'f>],
    claimed: &'f Cell<u32>,
) -> impl Iterator<Item = &'f str> {
    // Its own the proxy writes or takes off by itself, and none that only looks like one.
    const LEFT: [&str; 7] = [
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
        let ours = names_of_ours(config).any(|own| is_same(own, name));
        ours || is_per_hop(name) && !LEFT.iter().any(|own| own.eq_ignore_ascii_case(name))
    };
    fields.iter().map(|field| field.name).filter(move |name| is_to_go(name))
}

/// Whether a field says what no client may say of itself, and the proxy has not put it there.
fn is_claimed(config: &Config, name: &str) -> bool {
    config.strip.strips(name) && !is_of_the_front(name)
}

/// A field that a service could take for one of ours although the proxy, which replaces fields by name, would let it pass.
pub fn look_alike<'f>(config: &Config, fields: &'f [Field<'f>]) -> Option<&'f str> {
    let mut names = fields.iter().map(|field| field.name);
    let is_alias = |name: &str, own: &str| is_same(own, name) && !own.eq_ignore_ascii_case(name);
    names.find(|name| names_of_ours(config).any(|own| is_alias(name, own)))
}
