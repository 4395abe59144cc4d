//! Access tokens as JWTs (RFC 9068).
//!
//! Owns: the claims, their lifetime bounds and the minting. Does not own: what was granted
//! ([`crate::grants`]), the key and the signature ([`crate::keys`], `auth::token::jws`).

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;

use crate::{
    client::Client,
    oauth::{error::Fault, scope::ScopeSet},
    provider::Provider,
};

/// Longest lifetime of an access token. Retired keys stay published for at least as long.
pub const MAX_LIFETIME: Duration = Duration::from_hours(24);

/// The `typ` of the header (RFC 9068 §2.1).
pub const TYP: &str = "at+jwt";

/// Why a duration is not a token lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LifetimeFault {
    /// Less than a second or more than [`MAX_LIFETIME`].
    #[error("an access token lives from 1 second to 24 hours")]
    Range,
    /// Not whole seconds, which is all that `exp` and `expires_in` can say.
    #[error("an access token lives for whole seconds")]
    Fraction,
}

/// Checks a configured lifetime.
pub fn check_lifetime(lifetime: Duration) -> Result<(), LifetimeFault> {
    if !(Duration::from_secs(1)..=MAX_LIFETIME).contains(&lifetime) {
        return Err(LifetimeFault::Range);
    }
    if lifetime.subsec_nanos() != 0 {
        return Err(LifetimeFault::Fraction);
    }
    Ok(())
}

/// What a grant decided to put into a token.
#[derive(Debug)]
pub struct Granted<'r> {
    /// The client it is issued to.
    pub client: &'r Client,
    /// Who it speaks for.
    pub subject: &'r str,
    /// With these rights.
    pub scopes: ScopeSet,
    /// At these resource servers; at least one.
    pub audiences: Vec<&'r str>,
    /// As a member of these groups.
    pub groups: &'r [Box<str>],
}

/// A signed token.
pub struct Minted {
    /// The compact JWS.
    pub token: String,
    /// Its `jti`, which is no secret.
    pub id: String,
    /// How long it lives from now.
    pub lifetime: Duration,
}

/// The claims in the order they are written (RFC 9068 §2.2).
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: Audience<'a>,
    client_id: &'a str,
    iat: u64,
    exp: u64,
    jti: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [Box<str>],
}

/// One audience is a string, several are an array (RFC 7519 §4.1.3).
#[derive(Serialize)]
#[serde(untagged)]
enum Audience<'a> {
    One(&'a str),
    Many(&'a [&'a str]),
}

/// Signs an access token for what was granted, from now on.
pub fn mint(provider: &Provider, granted: &Granted<'_>) -> Result<Minted, Fault> {
    let id = draw_id(provider)?;
    let lifetime = granted.client.access_token_lifetime();
    let iat = provider.now().as_secs();
    let claims = Claims {
        iss: provider.issuer().as_str(),
        sub: granted.subject,
        aud: match granted.audiences.as_slice() {
            [one] => Audience::One(one),
            many => Audience::Many(many),
        },
        client_id: granted.client.id(),
        iat,
        exp: iat.saturating_add(lifetime.as_secs()),
        jti: &id,
        scope: granted.scopes.to_wire(),
        groups: granted.groups,
    };
    let token = provider.sign_access_token(TYP, &claims)?;
    Ok(Minted { token, id, lifetime })
}

/// 128 random bits: no two tokens of this provider share an identifier (RFC 7519 §4.1.7).
fn draw_id(provider: &Provider) -> Result<String, Fault> {
    let mut bytes = [0; 16];
    provider.entropy().fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_whole_seconds_up_to_a_day() {
        let check = |millis| check_lifetime(Duration::from_millis(millis));
        assert_eq!(check(1000), Ok(()));
        assert_eq!(check_lifetime(MAX_LIFETIME), Ok(()));
        assert_eq!(check(0), Err(LifetimeFault::Range));
        assert_eq!(check(999), Err(LifetimeFault::Range));
        assert_eq!(check(1500), Err(LifetimeFault::Fraction));
        assert_eq!(check_lifetime(MAX_LIFETIME + Duration::from_secs(1)), Err(LifetimeFault::Range));
    }
}
