//! Kubernetes `TokenReview` (`authentication.k8s.io/v1`).

use super::{AnswerUnclear, AuthorityConfig, AuthorityVerdict, object};
use crate::identity::{CredentialKind, Facts, Identity};
use crate::json::{Document, Value};
use crate::mapping::{checked_list, checked_text};
use crate::time::Timestamp;
use crate::token_error::{ClaimError, ClaimFault, TokenError};

/// Reads an answer: the review with its status.
///
/// The user name becomes subject and user; `uid` and `extra` are kept as the claims `uid` and
/// `extra.KEY`. A review does not say when a token expires.
///
/// # Errors
/// [`AnswerUnclear`] when the answer is not a review, or has no status.
pub fn read(answer: Vec<u8>, config: &AuthorityConfig) -> Result<AuthorityVerdict, AnswerUnclear> {
    let document = Document::parse(answer)?;
    let root = object(&document)?;
    if root.get("kind").and_then(Value::as_str) != Some("TokenReview") {
        return Err(AnswerUnclear::Member("kind"));
    }
    let status =
        root.get("status").filter(|status| status.is_object()).ok_or(AnswerUnclear::Member("status"))?;
    // Absent means false (`omitempty`); any type but a boolean is invalid.
    match status.get("authenticated") {
        None => return Ok(Err(TokenError::Inactive)),
        Some(value) => match value.as_bool() {
            Some(true) => {}
            Some(false) => return Ok(Err(TokenError::Inactive)),
            None => return Err(AnswerUnclear::Member("status.authenticated")),
        },
    }
    check_error(status)?;
    let user =
        status.get("user").filter(|user| user.is_object()).ok_or(AnswerUnclear::Member("status.user"))?;
    Ok(check_audience(status, config).and_then(|()| identity(user, config)).map(|identity| Facts {
        identity,
        expires: Timestamp::MAX,
        not_before: Timestamp::from_millis(0),
    }))
}

/// Checks `error`, which says that the token could not be checked. Beside a negative answer it is
/// the reason; beside a positive one it is a contradiction.
fn check_error(status: Value<'_>) -> Result<(), AnswerUnclear> {
    match status.get("error").map(Value::as_str) {
        None | Some(Some("")) => Ok(()),
        Some(Some(_)) => Err(AnswerUnclear::Contradictory),
        Some(None) => Err(AnswerUnclear::Member("status.error")),
    }
}

/// Checks the audiences. An authenticator without support for audiences returns none; then the
/// token is for the API server itself.
fn check_audience(status: Value<'_>, config: &AuthorityConfig) -> Result<(), TokenError> {
    let Some(ours) = &config.audiences else { return Ok(()) };
    let fault = || ClaimError::new("status.audiences", ClaimFault::NotA("an array of strings"));
    let Some(audiences) = status.get("audiences") else { return Err(TokenError::WrongAudience) };
    let mut found = false;
    for audience in audiences.items().ok_or_else(fault)? {
        let audience = audience.as_str().ok_or_else(fault)?;
        found |= ours.iter().any(|own| **own == *audience);
    }
    if found { Ok(()) } else { Err(TokenError::WrongAudience) }
}

fn identity(user: Value<'_>, config: &AuthorityConfig) -> Result<Identity, TokenError> {
    let name =
        checked_text(user, "username")?.ok_or_else(|| ClaimError::new("username", ClaimFault::Missing))?;
    let mut claims = Vec::new();
    if let Some(uid) = checked_text(user, "uid")? {
        claims.push(("uid".into(), vec![uid.into()]));
    }
    if let Some(extra) = user.get("extra") {
        let fault = || ClaimError::new("extra", ClaimFault::NotA("an object"));
        for (key, values) in extra.members().ok_or_else(fault)? {
            let values = checked_list("extra", values)?;
            if !values.is_empty() {
                claims.push((format!("extra.{key}").into(), values));
            }
        }
    }
    claims.sort_unstable_by(|(a, _): &(Box<str>, _), (b, _)| a.cmp(b));
    Ok(Identity {
        kind: CredentialKind::Opaque,
        issuer: config.name.clone(),
        subject: name.into(),
        user: Some(name.into()),
        email: None,
        client: None,
        groups: user.get("groups").map_or(Ok(Vec::new()), |groups| checked_list("groups", groups))?,
        groups_elsewhere: false,
        scopes: Vec::new(),
        claims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::ClaimMapping;

    fn config(audiences: Option<&[&str]>) -> AuthorityConfig {
        AuthorityConfig {
            name: "cluster".into(),
            audiences: audiences.map(|list| list.iter().map(|a| (*a).into()).collect()),
            issuer: None,
            mapping: ClaimMapping::default(),
        }
    }

    fn verdict_of(status: &str, audiences: Option<&[&str]>) -> Result<AuthorityVerdict, AnswerUnclear> {
        let answer =
            format!(r#"{{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{status}}}"#);
        read(answer.into_bytes(), &config(audiences))
    }

    const ADA: &str = r#""user":{"username":"ada","uid":"7","groups":["dev","system:authenticated"],"extra":{"scopes.x/y":["a","b"]}}"#;

    #[test]
    fn a_review_names_the_user() {
        let facts = verdict_of(&format!(r#"{{"authenticated":true,{ADA}}}"#), None).unwrap().unwrap();
        let identity = facts.identity;
        assert_eq!((&*identity.subject, identity.user.as_deref()), ("ada", Some("ada")));
        assert_eq!(identity.groups, ["dev".into(), "system:authenticated".into()]);
        assert_eq!(identity.claim("extra.scopes.x/y"), ["a".into(), "b".into()]);
        assert_eq!(identity.claim("uid"), ["7".into()]);
        assert_eq!(facts.expires, Timestamp::MAX);
    }

    #[test]
    fn whoever_is_not_authenticated_is_nobody() {
        for status in
            ["{}", r#"{"authenticated":false}"#, r#"{"authenticated":false,"error":"token expired"}"#]
        {
            assert_eq!(verdict_of(status, None), Ok(Err(TokenError::Inactive)), "{status}");
        }
        for status in [
            r#"{"authenticated":"true"}"#,
            r#"{"authenticated":true}"#,
            "[]",
            "null",
            r#"{"authenticated":1}"#,
        ] {
            assert!(matches!(verdict_of(status, None), Err(AnswerUnclear::Member(_))), "{status}");
        }
        let with =
            |error: &str| verdict_of(&format!(r#"{{"authenticated":true,{ADA},"error":{error}}}"#), None);
        assert_eq!(with(r#""the webhook timed out""#), Err(AnswerUnclear::Contradictory));
        for odd in ["true", "null", "{}"] {
            assert_eq!(with(odd), Err(AnswerUnclear::Member("status.error")), "{odd}");
        }
        assert!(with(r#""""#).unwrap().is_ok(), "none");
        let other = br#"{"kind":"Status","status":"Failure"}"#.to_vec();
        assert_eq!(read(other, &config(None)), Err(AnswerUnclear::Member("kind")));
    }

    #[test]
    fn a_token_for_somebody_else_is_refused() {
        let with = |audiences: &str| {
            verdict_of(&format!(r#"{{"authenticated":true,{ADA}{audiences}}}"#), Some(&["postern"])).unwrap()
        };
        assert!(with(r#","audiences":["x","postern"]"#).is_ok());
        assert_eq!(with(r#","audiences":["x"]"#).unwrap_err(), TokenError::WrongAudience);
        assert_eq!(with("").unwrap_err(), TokenError::WrongAudience);
        assert!(matches!(with(r#","audiences":"postern""#).unwrap_err(), TokenError::Claim(_)));
    }

    #[test]
    fn an_identity_that_cannot_be_written_down_is_refused() {
        for user in [
            r#"{"username":""}"#,
            r"{}",
            r#"{"username":7}"#,
            r#"{"username":"a\nb"}"#,
            r#"{"username":"ada","groups":"dev"}"#,
            r#"{"username":"ada","groups":["a\u0000"]}"#,
            r#"{"username":"ada","extra":["x"]}"#,
        ] {
            let verdict = verdict_of(&format!(r#"{{"authenticated":true,"user":{user}}}"#), None).unwrap();
            assert!(matches!(verdict, Err(TokenError::Claim(_))), "{user}: {verdict:?}");
        }
    }
}
