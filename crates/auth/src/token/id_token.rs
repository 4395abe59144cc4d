//! Tokens of a login: ID tokens (`OpenID` Connect Core 1.0 §2) and logout tokens (`OpenID` Connect
//! Back-Channel Logout 1.0 §2.4), after their signature was verified.
//!
//! Owns: everything that distinguishes the two from each other and from all other tokens, and their
//! required content. Does not own: the signature ([`super::jwt::Unverified::signed`]), whether a
//! logout token was used before, what follows from either.

use std::time::Duration;

use super::claims::{self, check_audience};
use super::is_media_type;
use super::jwt::SignedClaims;
use crate::json::Value;
use crate::time::Timestamp;
use crate::token_error::{ClaimError, ClaimFault, TokenError};

/// The event type of a logout token.
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// Maximum age of a logout token. It is longer than any delivery takes, and short enough to keep a
/// list of used tokens.
pub const LOGOUT_LIFETIME: Duration = Duration::from_mins(5);

/// The expected issuer and recipient of a token.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedIdToken<'e> {
    /// The provider's exact `iss`.
    pub issuer: &'e str,
    /// The client that they must be issued to.
    pub client_id: &'e str,
    /// Tolerated difference between the provider's clock and this one.
    pub clock_skew: Duration,
}

/// Content of an ID token.
#[derive(Clone, Copy)]
pub struct IdToken<'t> {
    /// All claims, an object.
    pub claims: Value<'t>,
    /// The user, within the issuer.
    pub subject: &'t str,
    /// The provider's own session.
    pub sid: Option<&'t str>,
}

/// Content of a logout token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogoutToken<'t> {
    /// The user who is logged out; `None`: the user of the session.
    pub subject: Option<&'t str>,
    /// The provider's session that ended; `None`: all sessions of the subject.
    pub sid: Option<&'t str>,
    /// Identifies this token, which may be used once.
    pub jti: &'t str,
    /// When it was issued: sessions that began later are not ended.
    pub issued: Timestamp,
    /// From when on it is refused because of its age.
    pub expires: Timestamp,
}

/// Checks an ID token (§3.1.3.7). `nonce` is the one that was sent; `None` for a token from a
/// refresh, which need not have a nonce (§12.2).
///
/// # Errors
/// [`TokenError`] says what is wrong with the token.
pub fn id_token<'t>(
    signed: SignedClaims<'t>,
    expected: &ExpectedIdToken<'_>,
    nonce: Option<&str>,
    now: Timestamp,
) -> Result<IdToken<'t>, TokenError> {
    let claims = signed.claims;
    if !is_generic_type(signed.typ) {
        return Err(TokenError::WrongType);
    }
    for mark in ["events", "cnf"] {
        if claims.get(mark).is_some() {
            return Err(TokenError::NotAnIdToken(mark));
        }
    }
    // Keycloak distinguishes its kinds by one claim, Cognito by another.
    for (name, kind) in [("typ", "id"), ("token_use", "id")] {
        if let Some(value) = claims.get(name)
            && !value.as_str().is_some_and(|value| value.eq_ignore_ascii_case(kind))
        {
            return Err(TokenError::NotAnIdToken(name));
        }
    }
    check_issuer_and_audience(claims, expected)?;
    let party = claims::string(claims, "azp")?;
    let several = claims.get("aud").and_then(Value::items).is_some_and(|mut items| items.nth(1).is_some());
    match party {
        Some(party) if party != expected.client_id => return Err(TokenError::WrongAudience),
        None if several => return Err(ClaimError::new("azp", ClaimFault::Missing).into()),
        _ => {}
    }
    check_times(claims, expected, now)?;
    claims::expires(claims)?.ok_or_else(|| missing("exp"))?;
    if let Some(nonce) = nonce
        && claims::string(claims, "nonce")?.ok_or_else(|| missing("nonce"))? != nonce
    {
        return Err(TokenError::WrongNonce);
    }
    let subject = nonempty_text(claims, "sub")?.ok_or_else(|| missing("sub"))?;
    Ok(IdToken { claims, subject, sid: nonempty_text(claims, "sid")? })
}

/// Checks a logout token (§2.6), except whether it was used before.
///
/// # Errors
/// [`TokenError`] says what is wrong with the token.
pub fn logout_token<'t>(
    signed: SignedClaims<'t>,
    expected: &ExpectedIdToken<'_>,
    now: Timestamp,
) -> Result<LogoutToken<'t>, TokenError> {
    let claims = signed.claims;
    let declared = signed.typ.is_some_and(|typ| is_media_type(typ, "logout+jwt"));
    if !declared && !is_generic_type(signed.typ) {
        return Err(TokenError::WrongType);
    }
    if claims.get("nonce").is_some() {
        return Err(TokenError::NotALogoutToken("nonce"));
    }
    let event = claims.get("events").and_then(|events| events.get(LOGOUT_EVENT));
    if !event.is_some_and(Value::is_object) {
        return Err(TokenError::NotALogoutToken("events"));
    }
    check_issuer_and_audience(claims, expected)?;
    let issued = check_times(claims, expected, now)?;
    let oldest = issued.plus(LOGOUT_LIFETIME);
    let expires = claims::expires(claims)?.map_or(oldest, |expires| expires.min(oldest));
    let expires = expires.plus(expected.clock_skew);
    if now >= expires {
        return Err(TokenError::Expired);
    }
    let (subject, sid) = (nonempty_text(claims, "sub")?, nonempty_text(claims, "sid")?);
    if subject.is_none() && sid.is_none() {
        return Err(missing("sub").into());
    }
    let jti = nonempty_text(claims, "jti")?.ok_or_else(|| missing("jti"))?;
    Ok(LogoutToken { subject, sid, jti, issued, expires })
}

/// No type, or the generic one (RFC 7519 §5.1).
fn is_generic_type(typ: Option<&str>) -> bool {
    typ.is_none_or(|typ| is_media_type(typ, "jwt"))
}

fn check_issuer_and_audience(claims: Value<'_>, expected: &ExpectedIdToken<'_>) -> Result<(), TokenError> {
    if claims::string(claims, "iss")?.ok_or_else(|| missing("iss"))? != expected.issuer {
        return Err(TokenError::WrongIssuer);
    }
    check_audience(claims, &[expected.client_id.into()])
}

/// Checks that the token is valid at `now`; returns when it was issued.
fn check_times(
    claims: Value<'_>,
    expected: &ExpectedIdToken<'_>,
    now: Timestamp,
) -> Result<Timestamp, TokenError> {
    let skew = expected.clock_skew;
    if claims::expires(claims)?.is_some_and(|expires| now >= expires.plus(skew)) {
        return Err(TokenError::Expired);
    }
    let issued = claims::issued(claims)?.ok_or_else(|| missing("iat"))?;
    if now < claims::not_before(claims)?.minus(skew) {
        return Err(TokenError::NotYetValid);
    }
    claims::check_issued(Some(issued), now, skew)?;
    Ok(issued)
}

/// A text that identifies a user or a thing; an empty one is an error.
fn nonempty_text<'t>(claims: Value<'t>, name: &str) -> Result<Option<&'t str>, TokenError> {
    let Some(text) = claims::string(claims, name)? else { return Ok(None) };
    if text.is_empty() {
        return Err(missing(name).into());
    }
    if text.len() > crate::mapping::MAX_VALUE_BYTES {
        return Err(ClaimError::new(name, ClaimFault::TooLong).into());
    }
    Ok(Some(text))
}

fn missing(name: &str) -> ClaimError {
    ClaimError::new(name, ClaimFault::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Document;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const EXPECTED: ExpectedIdToken<'static> = ExpectedIdToken {
        issuer: "https://id.example",
        client_id: "app",
        clock_skew: Duration::from_secs(30),
    };

    /// The members of `base`, replaced by those of `changes`; `null` removes one.
    fn with(base: &str, changes: &str) -> Document {
        let mut object: serde_json::Map<_, _> = serde_json::from_str(base).unwrap();
        let changes: serde_json::Map<_, _> = serde_json::from_str(changes).unwrap();
        for (name, value) in changes {
            if value.is_null() {
                object.remove(&name);
            } else {
                object.insert(name, value);
            }
        }
        Document::parse(serde_json::to_vec(&object).unwrap()).unwrap()
    }

    const ID: &str = r#"{"iss":"https://id.example","sub":"u1","aud":"app","exp":1800000300,"iat":1800000000,
        "nonce":"n","sid":"s1"}"#;
    const OUT: &str = r#"{"iss":"https://id.example","aud":["app"],"iat":1800000000,"exp":1800000120,"jti":"j1","sid":"s1",
        "events":{"http://schemas.openid.net/event/backchannel-logout":{}}}"#;

    fn id(typ: Option<&str>, changes: &str, nonce: Option<&str>) -> Result<String, TokenError> {
        let document = with(ID, changes);
        let token =
            id_token(SignedClaims { typ, key: None, claims: document.root() }, &EXPECTED, nonce, NOW)?;
        Ok(format!("{} {}", token.subject, token.sid.unwrap_or("-")))
    }

    fn out(typ: Option<&str>, changes: &str) -> Result<String, TokenError> {
        let document = with(OUT, changes);
        let token = logout_token(SignedClaims { typ, key: None, claims: document.root() }, &EXPECTED, NOW)?;
        let end = token.expires.as_secs() - NOW.as_secs();
        Ok(format!("{:?} {:?} {} {end}", token.subject, token.sid, token.jti))
    }

    #[test]
    fn an_id_token_says_who_logged_in() {
        for typ in [None, Some("JWT"), Some("application/jwt")] {
            assert_eq!(id(typ, "{}", Some("n")).unwrap(), "u1 s1");
        }
        assert_eq!(id(None, r#"{"nonce":null,"sid":null}"#, None).unwrap(), "u1 -");
        assert_eq!(id(None, r#"{"aud":["app","other"],"azp":"app"}"#, Some("n")).unwrap(), "u1 s1");
        assert_eq!(id(None, r#"{"typ":"ID","iat":1800000029}"#, Some("n")).unwrap(), "u1 s1");
    }

    #[test]
    fn nothing_else_is_an_id_token() {
        let wrong = |changes: &str| id(None, changes, Some("n")).unwrap_err();
        for typ in ["at+jwt", "logout+jwt", "application/at+jwt", "token-introspection+jwt", ""] {
            assert_eq!(id(Some(typ), "{}", Some("n")), Err(TokenError::WrongType), "{typ}");
        }
        assert_eq!(wrong(r#"{"iss":"https://evil.example"}"#), TokenError::WrongIssuer);
        assert_eq!(wrong(r#"{"iss":"https://id.example/"}"#), TokenError::WrongIssuer);
        assert_eq!(wrong(r#"{"aud":"other"}"#), TokenError::WrongAudience);
        assert_eq!(wrong(r#"{"aud":["app","other"],"azp":"other"}"#), TokenError::WrongAudience);
        assert_eq!(wrong(r#"{"azp":"other"}"#), TokenError::WrongAudience);
        assert_eq!(wrong(r#"{"nonce":"m"}"#), TokenError::WrongNonce);
        assert_eq!(wrong(r#"{"exp":1799999970}"#), TokenError::Expired);
        assert_eq!(wrong(r#"{"iat":1800000031}"#), TokenError::InFuture("iat"));
        assert_eq!(wrong(r#"{"nbf":1800000031}"#), TokenError::NotYetValid);
        assert_eq!(wrong(r#"{"events":{}}"#), TokenError::NotAnIdToken("events"));
        assert_eq!(wrong(r#"{"typ":"Bearer"}"#), TokenError::NotAnIdToken("typ"));
        assert_eq!(wrong(r#"{"token_use":"access"}"#), TokenError::NotAnIdToken("token_use"));
        for needed in ["iss", "aud", "exp", "iat", "sub", "nonce"] {
            let error = wrong(&format!(r#"{{"{needed}":null}}"#));
            assert!(
                matches!(&error, TokenError::Claim(fault) if *fault.claim == *needed),
                "{needed}: {error}"
            );
        }
        assert!(matches!(wrong(r#"{"aud":["app","other"]}"#), TokenError::Claim(_)), "for which of them?");
        for odd in
            [r#"{"exp":"never"}"#, r#"{"sub":7}"#, r#"{"sub":""}"#, r#"{"sid":["s"]}"#, r#"{"iat":"x"}"#]
        {
            assert!(matches!(wrong(odd), TokenError::Claim(_)), "{odd}");
        }
    }

    #[test]
    fn a_logout_token_says_whose_session_ended() {
        assert_eq!(out(Some("logout+jwt"), "{}").unwrap(), r#"None Some("s1") j1 150"#);
        assert_eq!(out(None, r#"{"sub":"u1","sid":null}"#).unwrap(), r#"Some("u1") None j1 150"#);
        assert_eq!(
            out(Some("JWT"), r#"{"exp":1800009999}"#).unwrap(),
            r#"None Some("s1") j1 330"#,
            "not longer"
        );
        assert_eq!(
            out(None, r#"{"exp":null}"#).unwrap(),
            r#"None Some("s1") j1 330"#,
            "older providers say none"
        );
    }

    #[test]
    fn nothing_else_is_a_logout_token() {
        let wrong = |changes: &str| out(Some("logout+jwt"), changes).unwrap_err();
        assert_eq!(out(Some("at+jwt"), "{}"), Err(TokenError::WrongType));
        assert_eq!(wrong(r#"{"nonce":"n"}"#), TokenError::NotALogoutToken("nonce"));
        for events in
            ["null", "{}", r#""http://schemas.openid.net/event/backchannel-logout""#, r#"{"other":{}}"#]
        {
            assert_eq!(wrong(&format!(r#"{{"events":{events}}}"#)), TokenError::NotALogoutToken("events"));
        }
        let no_object = r#"{"events":{"http://schemas.openid.net/event/backchannel-logout":true}}"#;
        assert_eq!(wrong(no_object), TokenError::NotALogoutToken("events"));
        assert_eq!(wrong(r#"{"iss":"https://evil.example"}"#), TokenError::WrongIssuer);
        assert_eq!(wrong(r#"{"aud":"other"}"#), TokenError::WrongAudience);
        assert_eq!(wrong(r#"{"exp":1799999970}"#), TokenError::Expired);
        assert_eq!(
            wrong(r#"{"exp":null,"iat":1799999670}"#),
            TokenError::Expired,
            "older than five minutes and skew"
        );
        assert_eq!(wrong(r#"{"iat":1800000031}"#), TokenError::InFuture("iat"));
        for needed in ["iss", "aud", "iat", "jti"] {
            let error = wrong(&format!(r#"{{"{needed}":null}}"#));
            assert!(
                matches!(&error, TokenError::Claim(fault) if *fault.claim == *needed),
                "{needed}: {error}"
            );
        }
        assert!(matches!(wrong(r#"{"sid":null}"#), TokenError::Claim(_)), "of nobody");
    }
}
