//! Client assertions: `private_key_jwt` (OpenID Connect Core 1.0 §9, RFC 7523 §2.2 and §3).
//!
//! Owns: the required claims of an assertion, and the check that it is used once. Does not own: the
//! client's keys ([`crate::client::config`]).

use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use auth::json::{Number, Value};
use auth::keyset::KeySet;
use auth::time::Timestamp;
use auth::token::jwt;
use store::replay_guard::UseOnce;

use crate::client::Client;
use crate::paths;
use crate::{
    oauth::{error::OAuthFault, form::Form},
    provider::Provider,
};

/// The supported `client_assertion_type`.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Longest time until an assertion expires; its identifier is stored that long.
const MAX_LIFETIME: Duration = Duration::from_hours(1);
/// Largest accepted difference between clocks.
const SKEW: Duration = Duration::from_secs(30);
/// Longest `jti` in bytes.
const MAX_ID: usize = 256;

/// Reads the assertion and the client that it names, both unverified.
pub(super) fn read(form: &Form) -> Result<(String, String), OAuthFault> {
    let refused = OAuthFault::AssertionRefused;
    if form.get("client_assertion_type") != Some(ASSERTION_TYPE) {
        return Err(OAuthFault::AuthenticationUnsupported);
    }
    let assertion = form.get("client_assertion").ok_or(refused("client_assertion is missing"))?;
    let unverified = jwt::parse(assertion.as_bytes()).map_err(|_| refused("not a JWT"))?;
    let id = unverified.issuer().to_owned();
    match form.get("client_id") {
        Some(named) if named != id => Err(OAuthFault::ClientIdMismatch),
        _ => Ok((id, assertion.to_owned())),
    }
}

/// Verifies an assertion and marks it as used.
pub(super) async fn verify(
    provider: &Provider,
    client: &Client,
    keys: &KeySet,
    assertion: &str,
) -> Result<(), OAuthFault> {
    let now = provider.now();
    let (id, expires) = check(provider, client, keys, assertion, now)?;
    let digest = provider.secrets().digest_of(&["client assertion", client.id(), &id]);
    let once = UseOnce { digest, until: expires.plus(SKEW) };
    if provider.store().write(once).await? {
        Ok(())
    } else {
        Err(OAuthFault::AssertionRefused("already used"))
    }
}

fn check(
    provider: &Provider,
    client: &Client,
    keys: &KeySet,
    assertion: &str,
    now: Timestamp,
) -> Result<(String, Timestamp), OAuthFault> {
    let refused = OAuthFault::AssertionRefused;
    let unverified = jwt::parse(assertion.as_bytes()).map_err(|_| refused("not a JWT"))?;
    let signed = unverified
        .signed(AlgorithmSet::ALL, keys)
        .map_err(|_| refused("not signed by a key of the client"))?;
    let claims = signed.claims;
    let text = |name| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(client.id()) || text("sub") != Some(client.id()) {
        return Err(refused("iss and sub are not the client's id"));
    }
    if !audience_matches(provider, claims) {
        return Err(refused("aud is neither the issuer nor the token endpoint"));
    }
    let expires = date(claims, "exp", f64::floor).ok_or(refused("exp is not a time"))?;
    if now >= expires.plus(SKEW) {
        return Err(refused("expired"));
    }
    if expires > now.plus(MAX_LIFETIME) {
        return Err(refused("exp is more than an hour ahead"));
    }
    let is_ahead = |nbf: Timestamp| now.plus(SKEW) < nbf;
    if claims.get("nbf").is_some() && date(claims, "nbf", f64::ceil).is_none_or(is_ahead) {
        return Err(refused("not valid yet"));
    }
    let id = text("jti").filter(|id| (1..=MAX_ID).contains(&id.len())).ok_or(refused("jti is missing"))?;
    Ok((id.to_owned(), expires))
}

/// Whether the audience is the issuer, the token endpoint or the PAR endpoint, which clients
/// commonly use.
fn audience_matches(provider: &Provider, claims: Value<'_>) -> bool {
    let issuer = provider.issuer();
    let ours = |text: &str| {
        text == issuer.as_str()
            || [paths::TOKEN, paths::PUSHED_REQUEST].iter().any(|path| text == issuer.endpoint(path))
    };
    let Some(audience) = claims.get("aud") else { return false };
    match (audience.as_str(), audience.items()) {
        (Some(text), _) => ours(text),
        (None, Some(mut items)) => items.any(|item| item.as_str().is_some_and(ours)),
        (None, None) => false,
    }
}

/// A `NumericDate`: seconds since the Unix epoch, possibly with a fraction (RFC 7519 §2).
fn date(claims: Value<'_>, name: &str, round: fn(f64) -> f64) -> Option<Timestamp> {
    match claims.get(name)?.as_number()? {
        Number::Unsigned(seconds) => Some(Timestamp::from_secs(seconds)),
        Number::Negative(_) => Some(Timestamp::from_millis(0)),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast itself takes negative values to zero and too large ones to the largest"
        )]
        Number::Float(seconds) => Some(Timestamp::from_millis(round(seconds * 1000.0) as u64)),
    }
}
