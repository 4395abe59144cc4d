//! Registered claims (RFC 7519 §4.1, RFC 9068 §2.2), checked by type and value after the signature.
//!
//! A claim of the wrong JSON type denies, including `null`: a library that read `"exp":"never"` as
//! "no `exp`" accepted tokens that never expired (CVE-2026-25537).

use std::time::Duration;

use super::{IssuerConfig, TokenTypes};
use crate::json::{Number, Value};
use crate::time::Timestamp;
use crate::token_error::{ClaimError, ClaimFault, TokenError};

/// The last second of the year 9999, in seconds since the Unix epoch.
const LAST_SECOND: u64 = 253_402_300_799;

/// Resolution of times in whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// The header's `typ`, as far as it matters (RFC 7515 §4.1.9: a media type, `application/`
/// optional).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Typ {
    AccessToken,
    Jwt,
    Absent,
    Other,
}

impl Typ {
    pub(super) fn from_header(typ: Option<&str>) -> Self {
        let Some(typ) = typ else { return Self::Absent };
        let subtype = match typ.split_at_checked("application/".len()) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case("application/") => rest,
            _ => typ,
        };
        if subtype.eq_ignore_ascii_case("at+jwt") {
            Self::AccessToken
        } else if subtype.eq_ignore_ascii_case("jwt") {
            Self::Jwt
        } else {
            Self::Other
        }
    }
}

/// Validity interval of the token, clock skew applied.
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) expires: Timestamp,
}

/// Checks everything that the mapping does not check.
pub(super) fn check(
    claims: Value<'_>,
    typ: Typ,
    config: &IssuerConfig,
    now: Timestamp,
) -> Result<Validity, TokenError> {
    check_kind(claims, typ, config)?;
    check_audience_in(claims, config.audience_claim(), config.audiences())?;
    for name in ["sub", "jti"] {
        string(claims, name)?;
    }
    let issued = issued(claims)?;
    if config.types() == TokenTypes::Rfc9068 {
        for name in ["sub", "client_id", "jti"] {
            string(claims, name)?.filter(|text| !text.is_empty()).ok_or_else(|| missing(name))?;
        }
        issued.ok_or_else(|| missing("iat"))?;
    }
    let expires = expires(claims)?.ok_or_else(|| missing("exp"))?.plus(config.clock_skew());
    let not_before = not_before(claims)?.minus(config.clock_skew());
    if now >= expires {
        return Err(TokenError::Expired);
    }
    if now < not_before {
        return Err(TokenError::NotYetValid);
    }
    check_issued(issued, now, config.clock_skew())?;
    Ok(Validity { not_before, expires })
}

/// Checks that `iat` is not in the future. Revocations of everything before a moment are compared
/// with it, so a token with a later `iat` would survive them. It usually has whole seconds, and
/// some issuers round it up, as Postern's own provider does after such a revocation: one second
/// ahead is permitted.
pub(crate) fn check_issued(
    issued: Option<Timestamp>,
    now: Timestamp,
    skew: Duration,
) -> Result<(), TokenError> {
    match issued {
        Some(issued) if issued > now.plus(skew.max(SECOND)) => Err(TokenError::InFuture("iat")),
        _ => Ok(()),
    }
}

/// `exp`, rounded down like `iat`: a fraction of a millisecond never lengthens the validity.
pub(crate) fn expires(claims: Value<'_>) -> Result<Option<Timestamp>, TokenError> {
    Ok(date(claims, "exp", f64::floor)?)
}

/// `iat`, rounded down.
pub(crate) fn issued(claims: Value<'_>) -> Result<Option<Timestamp>, ClaimError> {
    date(claims, "iat", f64::floor)
}

/// `iat`, or the earliest time if there is none.
pub(crate) fn issued_at(claims: Value<'_>) -> Timestamp {
    issued(claims).ok().flatten().unwrap_or(Timestamp::from_millis(0))
}

/// `read_at`, in milliseconds.
pub(crate) fn read_at(claims: Value<'_>) -> Option<Timestamp> {
    match claims.get("read_at")?.as_number()? {
        Number::Unsigned(millis) => Some(Timestamp::from_millis(millis)),
        Number::Negative(_) | Number::Float(_) => None,
    }
}

/// `nbf`, rounded up; the earliest time if there is none.
pub(crate) fn not_before(claims: Value<'_>) -> Result<Timestamp, TokenError> {
    Ok(date(claims, "nbf", f64::ceil)?.unwrap_or(Timestamp::from_millis(0)))
}

/// Checks that the token is an access token and not one of a similar kind.
fn check_kind(claims: Value<'_>, typ: Typ, config: &IssuerConfig) -> Result<(), TokenError> {
    match (typ, config.types()) {
        (Typ::AccessToken, _)
        | (Typ::Jwt, TokenTypes::Jwt | TokenTypes::Untyped)
        | (Typ::Absent, TokenTypes::Untyped) => {}
        _ => return Err(TokenError::WrongType),
    }
    if config.accepts_id_tokens() {
        check_marks_of(claims, true, Kinds::AccessAndIdTokens)
    } else {
        check_marks(claims, typ == Typ::AccessToken)
    }
}

/// Refuses claims that have the marks of something other than an access token. `declared`: another
/// part of the token says that it is one.
pub(crate) fn check_marks(claims: Value<'_>, declared: bool) -> Result<(), TokenError> {
    check_marks_of(claims, declared, Kinds::AccessTokens)
}

/// Kinds of tokens that are accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    AccessTokens,
    AccessAndIdTokens,
}

fn check_marks_of(claims: Value<'_>, mut declared: bool, kinds: Kinds) -> Result<(), TokenError> {
    // Security events and logout tokens; request objects (RFC 9101 §4). No access token needs these.
    let other = ["events", "response_type"];
    // ID tokens (OpenID Connect Core §3.1.3.6, §3.3.2.11).
    let of_id_tokens = ["at_hash", "c_hash", "s_hash"];
    let of_id_tokens = of_id_tokens.iter().filter(|_| kinds == Kinds::AccessTokens);
    for mark in other.iter().chain(of_id_tokens) {
        if claims.get(mark).is_some() {
            return Err(TokenError::NotAnAccessToken(mark));
        }
    }
    // Keycloak distinguishes its kinds by a claim `typ` (Bearer, ID, Refresh, Logout …), Cognito by
    // `token_use`.
    for (name, access, id) in
        [("typ", &["bearer"][..], "id"), ("token_use", &["access", "access_token"], "id")]
    {
        if let Some(value) = claims.get(name) {
            let is = |kind: &str| value.as_str().is_some_and(|v| v.eq_ignore_ascii_case(kind));
            let is_id_token = kinds == Kinds::AccessAndIdTokens && is(id);
            if !is_id_token && !access.iter().any(|kind| is(kind)) {
                return Err(TokenError::NotAnAccessToken(name));
            }
            declared = true;
        }
    }
    // A nonce belongs to an ID token, but older versions of Keycloak copy it into access tokens.
    // Then the token itself has to state that it is an access token.
    if !declared && claims.get("nonce").is_some() {
        return Err(TokenError::NotAnAccessToken("nonce"));
    }
    if claims.get("cnf").is_some() {
        return Err(TokenError::SenderConstrained);
    }
    Ok(())
}

/// Checks `aud`: a string or an array of strings (RFC 7519 §4.1.3), one of which is an accepted
/// audience.
pub(crate) fn check_audience(claims: Value<'_>, audiences: &[Box<str>]) -> Result<(), TokenError> {
    check_audience_in(claims, "aud", audiences)
}

/// The same with another claim than `aud`.
fn check_audience_in(claims: Value<'_>, claim: &str, audiences: &[Box<str>]) -> Result<(), TokenError> {
    let fault = || ClaimError::new(claim, ClaimFault::NotA("a string or an array of strings"));
    let ours = |audience: &str| audiences.iter().any(|a| **a == *audience);
    let aud = claims.get(claim).ok_or_else(|| missing(claim))?;
    let found = if let Some(audience) = aud.as_str() {
        ours(audience)
    } else {
        // Every element is checked, even after a match: one of the wrong type makes the claim
        // invalid.
        let mut found = false;
        for item in aud.items().ok_or_else(fault)? {
            found |= ours(item.as_str().ok_or_else(fault)?);
        }
        found
    };
    if found { Ok(()) } else { Err(TokenError::WrongAudience) }
}

fn missing(name: &str) -> ClaimError {
    ClaimError::new(name, ClaimFault::Missing)
}

pub(crate) fn string<'d>(claims: Value<'d>, name: &str) -> Result<Option<&'d str>, ClaimError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    value.as_str().map(Some).ok_or_else(|| ClaimError::new(name, ClaimFault::NotA("a string")))
}

/// A `NumericDate`: seconds since the Unix epoch, possibly with a fraction (RFC 7519 §2).
pub(crate) fn date(
    claims: Value<'_>,
    name: &str,
    round: fn(f64) -> f64,
) -> Result<Option<Timestamp>, ClaimError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let number = value.as_number().ok_or_else(|| ClaimError::new(name, ClaimFault::NotA("a number")))?;
    instant(number, round).map(Some).ok_or_else(|| ClaimError::new(name, ClaimFault::OutOfRange))
}

/// The same with milliseconds instead of seconds, rounded down.
pub(crate) fn date_in_millis(claims: Value<'_>, name: &str) -> Result<Option<Timestamp>, ClaimError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let number = value.as_number().ok_or_else(|| ClaimError::new(name, ClaimFault::NotA("a number")))?;
    let seconds = match number {
        Number::Unsigned(millis) if millis / 1000 <= LAST_SECOND => {
            return Ok(Some(Timestamp::from_millis(millis)));
        }
        Number::Unsigned(_) => return Err(ClaimError::new(name, ClaimFault::OutOfRange)),
        Number::Negative(millis) => Number::Negative(millis),
        Number::Float(millis) => Number::Float(millis / 1000.0),
    };
    instant(seconds, f64::floor).map(Some).ok_or_else(|| ClaimError::new(name, ClaimFault::OutOfRange))
}

fn instant(number: Number, round: fn(f64) -> f64) -> Option<Timestamp> {
    match number {
        Number::Unsigned(secs) => (secs <= LAST_SECOND).then(|| Timestamp::from_secs(secs)),
        Number::Negative(_) => Some(Timestamp::from_millis(0)),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded above by the year 9999; the cast itself takes negative values to zero"
        )]
        Number::Float(secs) => {
            (secs <= LAST_SECOND as f64).then(|| Timestamp::from_millis(round(secs * 1000.0) as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_exact_and_bounded() {
        let at = |n| instant(n, f64::floor).map(Timestamp::as_millis);
        assert_eq!(at(Number::Unsigned(1_700_000_000)), Some(1_700_000_000_000));
        assert_eq!(at(Number::Float(1_700_000_000.25)), Some(1_700_000_000_250));
        assert_eq!(at(Number::Float(1.000_9)), Some(1_000));
        assert_eq!(instant(Number::Float(1.000_1), f64::ceil), Some(Timestamp::from_millis(1_001)));
        assert_eq!(at(Number::Negative(-1)), Some(0));
        assert_eq!(at(Number::Float(-1e300)), Some(0));
        assert_eq!(at(Number::Unsigned(LAST_SECOND)), Some(LAST_SECOND * 1000));
        assert_eq!(at(Number::Unsigned(LAST_SECOND + 1)), None);
        assert_eq!(at(Number::Unsigned(1_700_000_000_000)), None, "milliseconds by mistake");
        assert_eq!(at(Number::Unsigned(u64::MAX)), None);
        assert_eq!(at(Number::Float(1e300)), None);
    }

    #[test]
    fn typ_is_a_media_type() {
        for typ in ["at+jwt", "AT+JWT", "application/at+jwt", "Application/At+Jwt"] {
            assert_eq!(Typ::from_header(Some(typ)), Typ::AccessToken, "{typ}");
        }
        for typ in ["JWT", "jwt", "application/jwt"] {
            assert_eq!(Typ::from_header(Some(typ)), Typ::Jwt, "{typ}");
        }
        for typ in ["", "logout+jwt", "text/at+jwt", "at+jwt ", "at+jwt;x=y", "application/", "application/ü"]
        {
            assert_eq!(Typ::from_header(Some(typ)), Typ::Other, "{typ}");
        }
        assert_eq!(Typ::from_header(None), Typ::Absent);
    }
}
