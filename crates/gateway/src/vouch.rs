//! What another proxy is told of a request that may pass, so that whoever is behind it knows who calls.
//!
//! Owns: [`Voucher`], which only a [`Permit`] can make, and its form as an HTTP answer. Does not own: how the proxy asked
//! ([`crate::forward_auth`], [`crate::ext_authz`]), the decision, forwarding: that is the other proxy's.
//!
//! What a voucher does not set must not reach the service behind under our names either. A proxy that lets us say so is told
//! what to remove; the others are given every name of ours, those without a value empty. Some put that in place of what the
//! client sent, others do not: their configuration has to take the client's off first.

use std::borrow::Cow;
use std::sync::Arc;

use auth::decide::Permit;
use auth::headers::{is_hop_by_hop, is_of_the_front, is_same};
use auth::request::Field;

use crate::answer::{Answer, Refusal};
use crate::authenticate::Verified;
use crate::clock::Now;
use crate::config::Asking;
use crate::login::cookies::{is_cookie, without_ours};
use crate::metrics::Outcome;
use crate::worker::{Running, access_token};

/// Somebody may pass, and this is who it is.
pub(crate) struct Voucher {
    /// Fields for the service, each in place of whatever the client sent under that name.
    pub(crate) set: Vec<(Box<str>, Cow<'static, str>)>,
    /// Names that the service must not hear from the client, besides those in `set`.
    pub(crate) absent: Vec<Box<str>>,
    /// Who; `None` on a public route.
    pub(crate) caller: Option<Arc<Verified>>,
    /// What the service is to be shown of the client's cookies, when some are ours.
    pub(crate) cookies: Option<String>,
}

impl Voucher {
    /// Vouches for what a permit permits.
    #[allow(clippy::needless_pass_by_value, reason = "a permit is used up by what it permits")]
    pub(crate) fn new(
        permit: Permit<'_>,
        running: &Running,
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
        let absent = running.names_of_ours().filter(|name| set.iter().all(|(known, _)| **known != **name));
        let absent = absent.map(Box::from).collect();
        let cookies = running.login.as_ref().and_then(|_| cookies_left(fields));
        Ok(Self { set, absent, caller: caller.cloned(), cookies })
    }

    /// For a proxy that asked over HTTP.
    pub(crate) fn answer(self) -> Answer {
        let mut fields = vec![("cache-control".into(), "no-store".into())];
        fields.extend(self.set.into_iter().map(|(name, value)| (String::from(name).into(), value)));
        fields.extend(self.absent.into_iter().map(|name| (String::from(name).into(), Cow::Borrowed(""))));
        Answer {
            status: 200,
            code: "allowed",
            outcome: Outcome::Allowed,
            fields,
            body: Cow::Borrowed(b""),
            close: false,
        }
    }
}

/// An answer of ours in place of a voucher, for a proxy that asked over HTTP. To it a success is leave to forward, so what
/// would be a page is refused, with the same content; and nginx knows yes and no alone, so a redirect is 401 there, which
/// its configuration can make one of: `Location` is beside it.
pub(crate) fn refusing(asking: &Asking, answer: Answer) -> Answer {
    let status = match (answer.status, asking) {
        (200..=299, _) => 403,
        (300..=399, Asking::XOriginal) => 401,
        (status, _) => status,
    };
    Answer { status, ..answer }
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

/// The names among the client's fields that the proxy must take off before it forwards: whatever a service could take for
/// ours, and what says who calls in somebody else's words.
pub(crate) fn to_remove<'f>(running: &'f Running, fields: &'f [Field<'f>]) -> impl Iterator<Item = &'f str> {
    // Its own the proxy takes off by itself, and none that only looks like one.
    const LEFT: [&str; 6] =
        ["connection", "keep-alive", "te", "transfer-encoding", "upgrade", "proxy-connection"];
    let is_to_go = move |name: &str| {
        let ours = running.names_of_ours().any(|own| is_same(own, name));
        let claimed = || running.config.strip.strips(name) && !is_of_the_front(name);
        let of_the_hop = || is_hop_by_hop(name) && !LEFT.iter().any(|own| own.eq_ignore_ascii_case(name));
        ours || claimed() || of_the_hop()
    };
    fields.iter().map(|field| field.name).filter(move |name| is_to_go(name))
}

/// A field that a service could take for one of ours although the proxy, which replaces fields by name, would let it pass.
pub(crate) fn look_alike<'f>(running: &Running, fields: &'f [Field<'f>]) -> Option<&'f str> {
    let names = fields.iter().map(|field| field.name);
    let is_alias = |name: &str, own: &str| is_same(own, name) && !own.eq_ignore_ascii_case(name);
    names.into_iter().find(|name| running.names_of_ours().any(|own| is_alias(name, own)))
}
