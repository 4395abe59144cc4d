//! Client assertions: `private_key_jwt` (OpenID Connect Core 1.0 §9, RFC 7523 §2.2 and §3).
//!
//! Owns: what an assertion must say, and that it counts once. Does not own: the client's keys ([`super::config`]).

use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use auth::json::{Number, Value};
use auth::keyset::KeySet;
use auth::time::Timestamp;
use auth::token::jwt;
use store::replay_guard::UseOnce;

use super::Client;
use crate::{
    discovery,
    oauth::{error::OAuthFault, form::Form},
    provider::Provider,
};

/// The `client_assertion_type` there is.
const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Longest time until an assertion expires: so long its identifier is remembered.
const MAX_LIFETIME: Duration = Duration::from_hours(1);
/// How far clocks may differ.
const SKEW: Duration = Duration::from_secs(30);
/// Longest `jti` in bytes.
const MAX_ID: usize = 256;

/// The client that an assertion names, unverified, and the assertion.
pub(super) fn read(form: &Form) -> Result<(String, String), OAuthFault> {
    let refused = OAuthFault::AssertionRefused;
    if form.get("client_assertion_type") != Some(TYPE) {
        return Err(OAuthFault::AuthenticationUnsupported);
    }
    let assertion = form.get("client_assertion").ok_or(refused("there is none"))?;
    let unverified = jwt::parse(assertion.as_bytes()).map_err(|_| refused("it is no token"))?;
    let id = unverified.issuer().to_owned();
    match form.get("client_id") {
        Some(named) if named != id => Err(OAuthFault::ClientIdMismatch),
        _ => Ok((id, assertion.to_owned())),
    }
}

/// Checks an assertion and uses it up.
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
        Err(OAuthFault::AssertionRefused("it was used before"))
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
    let unverified = jwt::parse(assertion.as_bytes()).map_err(|_| refused("it is no token"))?;
    let signed = unverified
        .signed(AlgorithmSet::ALL, keys)
        .map_err(|_| refused("no key of the client's signed it"))?;
    let claims = signed.claims;
    let text = |name| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(client.id()) || text("sub") != Some(client.id()) {
        return Err(refused("iss and sub are not the client's id"));
    }
    if !names_us(provider, claims) {
        return Err(refused("aud is neither the issuer nor the token endpoint"));
    }
    let expires = seconds(claims, "exp").ok_or(refused("exp is no time"))?;
    if now >= expires.plus(SKEW) {
        return Err(refused("it has expired"));
    }
    if expires > now.plus(MAX_LIFETIME) {
        return Err(refused("exp is more than an hour ahead"));
    }
    if claims.get("nbf").is_some() && seconds(claims, "nbf").is_none_or(|nbf| now.plus(SKEW) < nbf) {
        return Err(refused("it is not valid yet"));
    }
    let id = text("jti").filter(|id| (1..=MAX_ID).contains(&id.len())).ok_or(refused("jti is missing"))?;
    Ok((id.to_owned(), expires))
}

/// The issuer, or the endpoint that clients have learnt to name.
fn names_us(provider: &Provider, claims: Value<'_>) -> bool {
    let issuer = provider.issuer();
    let ours = |text: &str| {
        text == issuer.as_str()
            || [discovery::TOKEN, discovery::PUSHED_REQUEST].iter().any(|path| text == issuer.endpoint(path))
    };
    let Some(audience) = claims.get("aud") else { return false };
    match (audience.as_str(), audience.items()) {
        (Some(text), _) => ours(text),
        (None, Some(mut items)) => items.any(|item| item.as_str().is_some_and(ours)),
        (None, None) => false,
    }
}

fn seconds(claims: Value<'_>, name: &str) -> Option<Timestamp> {
    match claims.get(name)?.as_number()? {
        Number::Unsigned(seconds) => Some(Timestamp::from_secs(seconds)),
        _ => None,
    }
}
