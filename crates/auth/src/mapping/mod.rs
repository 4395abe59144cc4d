//! Mapping: from the content of a credential to the identity of its holder.
//!
//! Owns: which claims become subject, user, e-mail, groups, scopes and client ([`ClaimMapping`]),
//! the same for client certificates ([`CertificateMapping`]), and the limits of every mapped text.
//! Does not own: whether the credential is genuine, and parsing X.509.
//!
//! A mapped text may become part of a header, a log line and a rule. So it has no control
//! character, no white space at its ends, and a limited length. Header parsers remove white space
//! at the ends, and `"root "` is not the same user as `"root"`. A claim that violates this denies
//! the whole token, since an incomplete identity is a wrong one. `null` and the empty string count
//! as absent.

mod certificate;
mod path;

pub use certificate::{CertificateField, CertificateIdentity, CertificateMapping, CertificateMappingError};
pub use path::{ClaimPath, ClaimPathError};

use std::borrow::Cow;

use crate::identity::{CredentialKind, Identity};
use crate::json::{Number, Value};
use crate::token_error::{ClaimError, ClaimFault};

/// Length of the longest mapped text, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024;
/// Most groups, most scopes, and most values of a kept claim.
pub const MAX_VALUES: usize = 512;

/// How an issuer's claims become an identity. Where several paths are given, a single value comes
/// from the first that is present, and lists are merged from all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimMapping {
    /// Stable identifier, required. Default: `sub`.
    pub subject: ClaimPath,
    /// User name. Default: `preferred_username`.
    pub user: Vec<ClaimPath>,
    /// E-mail address. Default: `email`.
    pub email: Option<ClaimPath>,
    /// Whether the e-mail address is accepted only when `email_verified` is `true` (`OpenID` Connect
    /// Core §5.1), or the text `"true"`. Otherwise an unverified address is left out. Default: on.
    pub email_must_be_verified: bool,
    /// Groups and roles. Default: `groups`. A string or a number is one; an array has several; the
    /// names of an object's members are groups, as Zitadel publishes roles. Values of other types
    /// are left out ([`Self::partial_groups`]).
    pub groups: Vec<ClaimPath>,
    /// OAuth scopes: space-separated strings (RFC 8693 §4.2) or arrays of strings. Default:
    /// `scope`, `scp`.
    pub scopes: Vec<ClaimPath>,
    /// OAuth client. Default: `client_id` (RFC 8693 §4.3), `azp`.
    pub client: Vec<ClaimPath>,
    /// Further claims to keep for rules and headers: a string, number or boolean, or an array of
    /// these.
    pub keep: Vec<ClaimPath>,
}

impl Default for ClaimMapping {
    fn default() -> Self {
        Self {
            subject: ClaimPath::member("sub"),
            user: vec![ClaimPath::member("preferred_username")],
            email: Some(ClaimPath::member("email")),
            email_must_be_verified: true,
            groups: vec![ClaimPath::member("groups")],
            scopes: vec![ClaimPath::member("scope"), ClaimPath::member("scp")],
            client: vec![ClaimPath::member("client_id"), ClaimPath::member("azp")],
            keep: Vec::new(),
        }
    }
}

impl ClaimMapping {
    /// Maps verified `claims` to an identity. `issuer` is the configured name of their issuer.
    pub fn identity(&self, issuer: &str, claims: Value<'_>) -> Result<Identity, ClaimError> {
        let subject = text_at(claims, &self.subject)?;
        Ok(Identity {
            kind: CredentialKind::Jwt,
            issuer: issuer.into(),
            subject: subject
                .ok_or_else(|| ClaimError::new(self.subject.as_str(), ClaimFault::Missing))?
                .into(),
            user: first_text(claims, &self.user)?,
            email: self.email(claims)?,
            client: first_text(claims, &self.client)?,
            groups: groups(claims, &self.groups)?,
            groups_elsewhere: self.names_groups_elsewhere(claims),
            scopes: scopes(claims, &self.scopes)?,
            claims: self.kept_claims(claims)?,
        })
    }

    fn names_groups_elsewhere(&self, claims: Value<'_>) -> bool {
        let elsewhere = |path: &ClaimPath| {
            let names = claims.get("_claim_names");
            names.is_some_and(|names| path.names().next().is_some_and(|name| names.get(name).is_some()))
        };
        self.groups.iter().any(elsewhere) || claims.get("hasgroups").and_then(Value::as_bool) == Some(true)
    }

    /// A claim with groups, of which some are neither text nor number; an identity lacks these.
    pub fn partial_groups(&self, claims: Value<'_>) -> Option<&str> {
        let left_out = |path: &&ClaimPath| match path.find(claims) {
            Ok(Some(claim)) => match claim.items() {
                Some(mut items) => items.any(|item| group_text(path, item).is_ok_and(|text| text.is_none())),
                None => !claim.is_object() && group_text(path, claim).is_ok_and(|text| text.is_none()),
            },
            _ => false,
        };
        self.groups.iter().find(left_out).map(ClaimPath::as_str)
    }

    fn email(&self, claims: Value<'_>) -> Result<Option<Box<str>>, ClaimError> {
        let Some(path) = &self.email else { return Ok(None) };
        // Apple and Amazon Cognito write the boolean as a text.
        let is_true = |claim: Value<'_>| claim.as_bool() == Some(true) || claim.as_str() == Some("true");
        if self.email_must_be_verified && !claims.get("email_verified").is_some_and(is_true) {
            return Ok(None);
        }
        text_at(claims, path)?.map(|email| check_email(path.as_str(), email)).transpose()
    }

    fn kept_claims(&self, claims: Value<'_>) -> Result<KeptClaims, ClaimError> {
        let mut kept = KeptClaims::with_capacity(self.keep.len());
        for path in &self.keep {
            let Some(value) = path.find(claims)? else { continue };
            let mut values = Vec::new();
            match value.items() {
                Some(items) => {
                    items.map(|item| scalar_text(path, item)).try_for_each(|v| push(path, &mut values, v?))
                }
                None => push(path, &mut values, scalar_text(path, value)?),
            }?;
            if let (false, Err(at)) =
                (values.is_empty(), kept.binary_search_by(|(p, _)| (**p).cmp(path.as_str())))
            {
                kept.insert(at, (path.as_str().into(), values));
            }
        }
        Ok(kept)
    }
}

/// Kept claims, as in [`Identity::claims`].
type KeptClaims = Vec<(Box<str>, Vec<Box<str>>)>;

/// The text at `path`; `None` when it is absent, `null` or empty.
fn text_at<'d>(claims: Value<'d>, path: &ClaimPath) -> Result<Option<&'d str>, ClaimError> {
    let Some(value) = path.find(claims)? else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| ClaimError::new(path.as_str(), ClaimFault::NotA("a string")))?;
    check_text(path.as_str(), text)
}

/// The text at the first of `paths` that has one.
fn first_text(claims: Value<'_>, paths: &[ClaimPath]) -> Result<Option<Box<str>>, ClaimError> {
    for path in paths {
        if let Some(text) = text_at(claims, path)? {
            return Ok(Some(text.into()));
        }
    }
    Ok(None)
}

/// The groups at all of `paths`, in order, without duplicates.
fn groups(claims: Value<'_>, paths: &[ClaimPath]) -> Result<Vec<Box<str>>, ClaimError> {
    let mut groups = Vec::new();
    for path in paths {
        let Some(claim) = path.find(claims)? else { continue };
        let mut add = |text: Option<Cow<'_, str>>| match text {
            Some(text) => add_text(path, &mut groups, &text),
            None => Ok(()),
        };
        if let Some(items) = claim.items() {
            for item in items {
                add(group_text(path, item)?)?;
            }
        } else if let Some(members) = claim.members() {
            for (name, _) in members {
                add(Some(name.into()))?;
            }
        } else {
            add(group_text(path, claim)?)?;
        }
    }
    Ok(groups)
}

/// A group as text; `None`: it is neither text nor number.
fn group_text<'d>(path: &ClaimPath, value: Value<'d>) -> Result<Option<Cow<'d, str>>, ClaimError> {
    Ok(match (value.as_str(), value.as_number()) {
        (Some(text), _) => Some(text.into()),
        (None, Some(_)) => Some(String::from(scalar_text(path, value)?).into()),
        (None, None) => None,
    })
}

/// The scopes at all of `paths`, in order, without duplicates.
fn scopes(claims: Value<'_>, paths: &[ClaimPath]) -> Result<Vec<Box<str>>, ClaimError> {
    let mut scopes = Vec::new();
    for path in paths {
        let Some(claim) = path.find(claims)? else { continue };
        let fault = || ClaimError::new(path.as_str(), ClaimFault::NotA("a string or an array of strings"));
        let mut add = |text: &str| text.split(' ').try_for_each(|scope| add_text(path, &mut scopes, scope));
        if let Some(text) = claim.as_str() {
            add(text)?;
        } else {
            for item in claim.items().ok_or_else(fault)? {
                add(item.as_str().ok_or_else(fault)?)?;
            }
        }
    }
    Ok(scopes)
}

/// Adds a text that is not there yet.
fn add_text(path: &ClaimPath, values: &mut Vec<Box<str>>, text: &str) -> Result<(), ClaimError> {
    match check_text(path.as_str(), text)? {
        Some(text) if !values.iter().any(|value| **value == *text) => push(path, values, text.into()),
        _ => Ok(()),
    }
}

/// A kept value as text: a string unchanged, booleans and numbers in their JSON spelling.
fn scalar_text(path: &ClaimPath, value: Value<'_>) -> Result<Box<str>, ClaimError> {
    /// Beyond 2^53, neighbouring integers have the same float, and a rule could confuse them.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let fault = |fault| ClaimError::new(path.as_str(), fault);
    if let Some(text) = value.as_str() {
        return Ok(check_text(path.as_str(), text)?.unwrap_or_default().into());
    }
    if let Some(truth) = value.as_bool() {
        return Ok(if truth { "true" } else { "false" }.into());
    }
    match value.as_number() {
        Some(Number::Unsigned(n)) => Ok(n.to_string().into()),
        Some(Number::Negative(n)) => Ok(n.to_string().into()),
        Some(Number::Float(n)) if n.abs() < EXACT => Ok(serde_json::Value::from(n).to_string().into()),
        Some(Number::Float(_)) => Err(fault(ClaimFault::Inexact)),
        None => Err(fault(ClaimFault::NotA("a string, number or boolean, or an array of these"))),
    }
}

/// The text of a member, if it may be part of an identity; `None` when it is absent, `null` or
/// empty.
pub(crate) fn checked_text<'d>(object: Value<'d>, member: &str) -> Result<Option<&'d str>, ClaimError> {
    let Some(value) = object.get(member).filter(|value| !value.is_null()) else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| ClaimError::new(member, ClaimFault::NotA("a string")))?;
    check_text(member, text)
}

/// The texts of an array, in order, without duplicates and empty ones.
pub(crate) fn checked_list(claim: &str, array: Value<'_>) -> Result<Vec<Box<str>>, ClaimError> {
    let fault = |fault| ClaimError::new(claim, fault);
    let wrong = || fault(ClaimFault::NotA("an array of strings"));
    let mut texts: Vec<Box<str>> = Vec::new();
    for item in array.items().ok_or_else(wrong)? {
        let Some(text) = check_text(claim, item.as_str().ok_or_else(wrong)?)? else { continue };
        if texts.iter().any(|known| **known == *text) {
            continue;
        }
        if texts.len() == MAX_VALUES {
            return Err(fault(ClaimFault::TooMany));
        }
        texts.push(text.into());
    }
    Ok(texts)
}

/// Appends `value`; an empty one counts as absent.
fn push(path: &ClaimPath, values: &mut Vec<Box<str>>, value: Box<str>) -> Result<(), ClaimError> {
    if value.is_empty() {
        return Ok(());
    }
    if values.len() == MAX_VALUES {
        return Err(ClaimError::new(path.as_str(), ClaimFault::TooMany));
    }
    values.push(value);
    Ok(())
}

/// Checks that `text` may be part of an identity; `None` when it is empty.
fn check_text<'d>(claim: &str, text: &'d str) -> Result<Option<&'d str>, ClaimError> {
    let fault = if text.len() > MAX_VALUE_BYTES {
        ClaimFault::TooLong
    } else if text.contains(char::is_control) {
        ClaimFault::Control
    } else if text.trim().len() != text.len() {
        ClaimFault::Padded
    } else {
        return Ok(Some(text).filter(|text| !text.is_empty()));
    };
    Err(ClaimError::new(claim, fault))
}

/// Checks for `local@domain` with exactly one `@`, so that every reader finds the same domain.
fn check_email(claim: &str, email: &str) -> Result<Box<str>, ClaimError> {
    match email.split_once('@') {
        Some((local, domain))
            if !local.is_empty()
                && !domain.is_empty()
                && !domain.contains('@')
                && !email.contains(char::is_whitespace) =>
        {
            Ok(email.into())
        }
        _ => Err(ClaimError::new(claim, ClaimFault::NotAnAddress)),
    }
}
