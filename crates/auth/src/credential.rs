//! Which credential a request carries, and whether it carries it the one way that is allowed.
//!
//! Owns: finding the bearer token (RFC 6750 §2). Does not own: what the token says ([`crate::token`]). A token
//! in a form body (§2.2) is not looked for: bodies pass through unread.

use crate::request::{Field, is_token, pairs};

/// A request whose credential cannot be told; answered with 400 `invalid_request` (RFC 6750 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    /// Several `Authorization` fields: the upstream might read another one than we do.
    #[error("request has more than one authorization header")]
    RepeatedAuthorization,
    /// The field does not start with an authentication scheme (RFC 9110 §11.4).
    #[error("authorization header has no authentication scheme")]
    NoScheme,
    /// `Bearer` with nothing after it.
    #[error("authorization header has the bearer scheme but no token")]
    EmptyToken,
    /// The token is no `b64token` (RFC 6750 §2.1).
    #[error("bearer token has characters outside the base64 alphabets")]
    IllegalToken,
    /// A query parameter `access_token`: queries end up in logs, histories and `Referer`.
    #[error("request has an access_token in its query; send it in the authorization header")]
    QueryToken,
    /// Tokens in the header and in the query at once (RFC 6750 §2).
    #[error("request carries tokens in its authorization header and in its query")]
    SeveralMethods,
}

impl CredentialFault {
    /// The `error` of the challenge (RFC 6750 §3.1): it is always the request that is wrong, before any token.
    pub const fn error(self) -> &'static str {
        "invalid_request"
    }

    /// A stable word for logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::RepeatedAuthorization => "repeated_authorization",
            Self::NoScheme => "no_auth_scheme",
            Self::EmptyToken => "empty_token",
            Self::IllegalToken => "illegal_token",
            Self::QueryToken => "query_token",
            Self::SeveralMethods => "several_methods",
        }
    }
}

/// A bearer token as it was presented: its place was checked, its characters are not looked at yet. Whoever
/// has seen the same bytes pass before need not look at them again; everyone else asks for [`Self::checked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presented<'a>(&'a [u8]);

impl<'a> Presented<'a> {
    /// The bytes, fit to be compared with tokens that were checked, and for nothing else.
    pub fn unchecked(self) -> &'a [u8] {
        self.0
    }

    /// The token, if it is one.
    ///
    /// # Errors
    /// [`CredentialFault::IllegalToken`] when it is no `b64token`.
    pub fn checked(self) -> Result<&'a [u8], CredentialFault> {
        let padding = self.0.iter().rev().take_while(|b| **b == b'=').count();
        let body = &self.0[..self.0.len() - padding];
        if body.is_empty() || !is_b64token(body) { Err(CredentialFault::IllegalToken) } else { Ok(self.0) }
    }
}

/// The bearer token of a request with these header `fields` and this raw `query` (without `?`).
///
/// `None` means that there is no bearer token: no `Authorization` at all, or one of another scheme.
///
/// # Errors
/// When the request does not say in the one allowed way which token it carries.
pub fn bearer<'a>(
    fields: &[Field<'a>],
    query: Option<&str>,
) -> Result<Option<Presented<'a>>, CredentialFault> {
    let mut found = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
    let token = match (found.next(), found.next()) {
        (None, _) => None,
        (Some(field), None) => bearer_token(field.value)?,
        (Some(_), Some(_)) => return Err(CredentialFault::RepeatedAuthorization),
    };
    match (token, query.is_some_and(has_access_token)) {
        (token, false) => Ok(token),
        (None, true) => Err(CredentialFault::QueryToken),
        (Some(_), true) => Err(CredentialFault::SeveralMethods),
    }
}

/// `credentials = auth-scheme 1*SP token68` (RFC 9110 §11.4, where the scheme ignores case).
fn bearer_token(value: &[u8]) -> Result<Option<Presented<'_>>, CredentialFault> {
    let end = value.iter().position(|b| *b == b' ').unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    if !std::str::from_utf8(scheme).is_ok_and(is_token) {
        return Err(CredentialFault::NoScheme);
    }
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(None);
    }
    let token = &rest[rest.iter().take_while(|b| **b == b' ').count()..];
    if token.is_empty() { Err(CredentialFault::EmptyToken) } else { Ok(Some(Presented(token))) }
}

/// RFC 6750 §2.1, without the trailing `=`.
fn is_b64token(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte))
}

/// Whether some framework would find a parameter `access_token`. `;` separates too, for a few.
fn has_access_token(query: &str) -> bool {
    query.split(';').flat_map(|part| pairs(Some(part))).any(|(name, _)| name.resembles("access_token"))
}
