//! `OpenShift` user of a token, as the API returns it to the token's holder
//! (`user.openshift.io/v1`, `users/~`).
//!
//! The token itself authenticates the query: status 200 with a `User` is a valid token, 401 an
//! invalid one.

use super::{AnswerUnclear, AuthorityConfig, AuthorityVerdict, object};
use crate::identity::{CredentialKind, Facts, Identity};
use crate::json::{Document, Value};
use crate::mapping::{checked_list, checked_text};
use crate::time::Timestamp;
use crate::token_error::{ClaimError, ClaimFault, TokenError};

/// Reads the answer to a query with status 200.
///
/// The name becomes subject and user; `uid` and `fullName` are kept as claims.
///
/// # Errors
/// [`AnswerUnclear`] when the answer is not a user.
pub fn read(answer: Vec<u8>, config: &AuthorityConfig) -> Result<AuthorityVerdict, AnswerUnclear> {
    let document = Document::parse(answer)?;
    let root = object(&document)?;
    if root.get("kind").and_then(Value::as_str) != Some("User") {
        return Err(AnswerUnclear::Member("kind"));
    }
    let metadata = root.get("metadata").filter(|m| m.is_object()).ok_or(AnswerUnclear::Member("metadata"))?;
    Ok(identity(root, metadata, config).map(|identity| Facts {
        identity,
        expires: Timestamp::MAX,
        not_before: Timestamp::from_millis(0),
    }))
}

fn identity(root: Value<'_>, metadata: Value<'_>, config: &AuthorityConfig) -> Result<Identity, TokenError> {
    let name = checked_text(metadata, "name")?.ok_or_else(|| ClaimError::new("name", ClaimFault::Missing))?;
    let mut claims = Vec::new();
    for (claim, value) in
        [("fullName", checked_text(root, "fullName")?), ("uid", checked_text(metadata, "uid")?)]
    {
        if let Some(value) = value {
            claims.push((claim.into(), vec![value.into()]));
        }
    }
    let groups = root.get("groups").filter(|groups| !groups.is_null());
    Ok(Identity {
        kind: CredentialKind::Opaque,
        issuer: config.name.clone(),
        subject: name.into(),
        user: Some(name.into()),
        email: None,
        client: None,
        groups: groups.map_or(Ok(Vec::new()), |groups| checked_list("groups", groups))?,
        groups_elsewhere: false,
        scopes: Vec::new(),
        claims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::ClaimMapping;

    fn verdict_of(answer: &str) -> Result<AuthorityVerdict, AnswerUnclear> {
        let config = AuthorityConfig {
            name: "ocp".into(),
            audiences: None,
            issuer: None,
            mapping: ClaimMapping::default(),
        };
        read(answer.as_bytes().to_vec(), &config)
    }

    #[test]
    fn a_user_has_a_name_and_groups() {
        let answer = r#"{"kind":"User","metadata":{"name":"ada","uid":"u-1"},"fullName":"Ada L","groups":["dev"],"identities":["x:ada"]}"#;
        let identity = verdict_of(answer).unwrap().unwrap().identity;
        assert_eq!((&*identity.subject, identity.user.as_deref()), ("ada", Some("ada")));
        assert_eq!(identity.groups, ["dev".into()]);
        assert_eq!(identity.claim("uid"), ["u-1".into()]);
        assert_eq!(identity.claim("fullName"), ["Ada L".into()]);
        let bare =
            verdict_of(r#"{"kind":"User","metadata":{"name":"b:admin"},"groups":null}"#).unwrap().unwrap();
        assert_eq!(bare.identity.groups, []);
    }

    #[test]
    fn anything_else_is_nobody() {
        assert_eq!(verdict_of(r#"{"kind":"Status","code":200}"#), Err(AnswerUnclear::Member("kind")));
        assert_eq!(verdict_of(r#"{"kind":"User"}"#), Err(AnswerUnclear::Member("metadata")));
        for answer in [
            r#"{"kind":"User","metadata":{}}"#,
            r#"{"kind":"User","metadata":{"name":""}}"#,
            r#"{"kind":"User","metadata":{"name":"ada"},"groups":[7]}"#,
        ] {
            assert!(matches!(verdict_of(answer), Ok(Err(TokenError::Claim(_)))), "{answer}");
        }
    }
}
