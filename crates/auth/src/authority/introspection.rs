//! Token introspection (RFC 7662 §2.2).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{AnswerUnclear, AuthorityConfig, AuthorityVerdict, object};
use crate::identity::{CredentialKind, Facts};
use crate::json::{Document, Value};
use crate::time::Timestamp;
use crate::token::MAX_CLOCK_SKEW;
use crate::token::claims;
use crate::token::jwt::Lineage;
use crate::token_error::TokenError;

/// Reads an introspection response.
///
/// `active` must be the boolean `true`. An active token is still refused if it has expired, is not
/// valid yet, is for another audience, or is not an access token. So is one with an `iat` in the
/// future. Without `exp` the token is valid until it is queried again.
///
/// # Errors
/// [`AnswerUnclear`] when the answer does not say whether the token is active.
pub fn read(
    answer: Vec<u8>,
    config: &AuthorityConfig,
    now: Timestamp,
) -> Result<AuthorityVerdict, AnswerUnclear> {
    let document = Document::parse(answer)?;
    verdict(object(&document)?, config, now)
}

/// What a token depends on, from an answer that [`read`] or
/// [`signed_introspection::read`](super::signed_introspection::read) accepted; `None` when the
/// answer does not have it.
pub fn lineage<T>(answer: &[u8], read: impl FnOnce(&Lineage<'_>) -> T) -> Option<T> {
    let signed = !answer.trim_ascii_start().starts_with(b"{");
    let text = if signed {
        URL_SAFE_NO_PAD.decode(answer.split(|byte| *byte == b'.').nth(1)?).ok()?
    } else {
        answer.to_vec()
    };
    let document = Document::parse(text).ok()?;
    let root = if signed { document.root().get("token_introspection")? } else { document.root() };
    Some(read(&Lineage::from_claims(root, None)))
}

/// The verdict in the members of an introspection, `root`.
pub(super) fn verdict(
    root: Value<'_>,
    config: &AuthorityConfig,
    now: Timestamp,
) -> Result<AuthorityVerdict, AnswerUnclear> {
    match root.get("active").and_then(Value::as_bool) {
        Some(true) => Ok(check_active_token(root, config, now)),
        Some(false) => Ok(Err(TokenError::Inactive)),
        None => Err(AnswerUnclear::Member("active")),
    }
}

fn check_active_token(root: Value<'_>, config: &AuthorityConfig, now: Timestamp) -> AuthorityVerdict {
    let issuer = claims::string(root, "iss")?;
    if let (Some(expected), Some(found)) = (&config.issuer, issuer)
        && **expected != *found
    {
        return Err(TokenError::WrongIssuer);
    }
    // Refresh tokens are active as well, and some servers distinguish them only by these marks.
    claims::check_marks(root, false)?;
    if let Some(kind) = claims::string(root, "token_type")?
        && !kind.eq_ignore_ascii_case("bearer")
        && !kind.eq_ignore_ascii_case("access_token")
    {
        return Err(TokenError::NotAnAccessToken("token_type"));
    }
    if let Some(audiences) = &config.audiences {
        claims::check_audience(root, audiences)?;
    }
    let (not_before, expires) = (claims::not_before(root)?, claims::expires(root)?);
    let expires = expires.unwrap_or(Timestamp::MAX);
    if now >= expires {
        return Err(TokenError::Expired);
    }
    if now < not_before {
        return Err(TokenError::NotYetValid);
    }
    claims::check_issued(claims::issued(root)?, now, MAX_CLOCK_SKEW)?;
    let mut identity = config.mapping.identity(&config.name, root)?;
    identity.kind = CredentialKind::Opaque;
    Ok(Facts { identity, expires, not_before })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::ClaimMapping;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn config() -> AuthorityConfig {
        AuthorityConfig {
            name: "id".into(),
            audiences: Some(vec!["api".into(), "other".into()]),
            issuer: Some("https://id.example".into()),
            mapping: ClaimMapping::default(),
        }
    }

    fn verdict_of(answer: &str) -> Result<AuthorityVerdict, AnswerUnclear> {
        read(answer.as_bytes().to_vec(), &config(), NOW)
    }

    const GOOD: &str =
        r#""iss":"https://id.example","sub":"u1","aud":"api","exp":1800000060,"token_type":"Bearer""#;

    fn active(further: &str) -> AuthorityVerdict {
        verdict_of(&format!(r#"{{"active":true,{GOOD}{further}}}"#)).unwrap()
    }

    #[test]
    fn an_active_token_says_who_holds_it() {
        let facts =
            active(r#","username":"ada","groups":["dev"],"scope":"read write","client_id":"cli""#).unwrap();
        assert_eq!(&*facts.identity.subject, "u1");
        assert_eq!(facts.identity.kind, CredentialKind::Opaque);
        assert_eq!(&*facts.identity.issuer, "id");
        assert_eq!(facts.identity.groups, ["dev".into()]);
        assert_eq!(facts.identity.scopes, ["read".into(), "write".into()]);
        assert_eq!(facts.expires, Timestamp::from_secs(1_800_000_060));
    }

    #[test]
    fn only_the_boolean_true_is_active() {
        assert_eq!(verdict_of(r#"{"active":false}"#), Ok(Err(TokenError::Inactive)));
        assert_eq!(verdict_of(r#"{"active":false,"sub":"u1"}"#), Ok(Err(TokenError::Inactive)));
        for unclear in
            ["{}", r#"{"active":"true"}"#, r#"{"active":1}"#, r#"{"active":null}"#, r#"{"Active":true}"#]
        {
            assert_eq!(verdict_of(unclear), Err(AnswerUnclear::Member("active")), "{unclear}");
        }
        assert_eq!(verdict_of("[]"), Err(AnswerUnclear::NotAnObject));
        for broken in
            ["", "<html>", r#"{"active":true"#, r#"{"active":true}x"#, r#"{"active":true,"active":false}"#]
        {
            assert!(matches!(verdict_of(broken), Err(AnswerUnclear::Json(_))), "{broken}");
        }
    }

    #[test]
    fn what_is_active_is_judged_all_the_same() {
        let with = |answer: &str| verdict_of(answer).unwrap().unwrap_err();
        let wrong = |member: &str, value: &str| {
            let mut members: Vec<String> = GOOD.split(',').map(str::to_owned).collect();
            members.retain(|m| !m.starts_with(&format!("\"{member}\"")));
            if !value.is_empty() {
                members.push(format!("\"{member}\":{value}"));
            }
            with(&format!("{{\"active\":true,{}}}", members.join(",")))
        };
        assert_eq!(wrong("iss", r#""https://evil.example""#), TokenError::WrongIssuer);
        assert_eq!(wrong("aud", r#""somebody""#), TokenError::WrongAudience);
        assert_eq!(wrong("aud", r#"["somebody","else"]"#), TokenError::WrongAudience);
        assert!(matches!(wrong("aud", ""), TokenError::Claim(_)), "for nobody in particular");
        assert_eq!(wrong("exp", "1800000000"), TokenError::Expired);
        assert!(matches!(wrong("exp", r#""soon""#), TokenError::Claim(_)));
        assert_eq!(wrong("nbf", "1800000001"), TokenError::NotYetValid);
        assert_eq!(wrong("iat", "1800000061"), TokenError::InFuture("iat"));
        assert!(active(r#","iat":1800000060"#).is_ok(), "a clock may be a minute ahead");
        assert!(matches!(wrong("sub", ""), TokenError::Claim(_)));
        assert_eq!(wrong("token_type", r#""refresh_token""#), TokenError::NotAnAccessToken("token_type"));
        assert_eq!(wrong("token_use", r#""refresh_token""#), TokenError::NotAnAccessToken("token_use"));
        assert_eq!(wrong("typ", r#""Refresh""#), TokenError::NotAnAccessToken("typ"));
        assert_eq!(wrong("cnf", r#"{"jkt":"x"}"#), TokenError::SenderConstrained);
    }

    #[test]
    fn without_an_end_it_has_none() {
        let open = verdict_of(r#"{"active":true,"iss":"https://id.example","sub":"u1","aud":["x","other"]}"#);
        assert_eq!(open.unwrap().unwrap().expires, Timestamp::MAX);
        let any = AuthorityConfig { audiences: None, issuer: None, ..config() };
        let verdict = read(br#"{"active":true,"sub":"u1"}"#.to_vec(), &any, NOW);
        assert!(verdict.unwrap().is_ok());
    }
}
