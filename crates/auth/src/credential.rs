//! Credential of a request in `Authorization`: finds it, and checks that it is carried in the one
//! permitted way.
//!
//! Owns: finding the bearer token (RFC 6750 §2) or the user name and password (RFC 7617). Does not own: what the token says
//! ([`crate::token`]). A token in a form body (§2.2) is not searched for: bodies pass through
//! unread.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::request::{Field, is_token, pairs};

/// Why a request's credential is ambiguous or invalid; answered with 400 `invalid_request` (RFC
/// 6750 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    /// The request has several `Authorization` fields: the upstream might read another one than the
    /// gateway.
    #[error("request has more than one authorization header")]
    RepeatedAuthorization,
    /// The field does not start with an authentication scheme (RFC 9110 §11.4).
    #[error("authorization header has no authentication scheme")]
    NoScheme,
    /// Nothing follows `Bearer`.
    #[error("authorization header has the bearer scheme but no token")]
    EmptyToken,
    /// The token is not a `b64token` (RFC 6750 §2.1).
    #[error("bearer token has characters outside the base64 alphabets")]
    IllegalToken,
    /// The query has a parameter `access_token`: queries end up in logs, histories and `Referer`.
    #[error("request has an access_token in its query; send it in the authorization header")]
    QueryToken,
    /// The request has several tokens: in the header, in the query, or among the protocols of a
    /// WebSocket (RFC 6750 §2).
    #[error("request carries more than one token: send one, in the authorization header")]
    SeveralMethods,
}

impl CredentialFault {
    /// The `error` of the challenge (RFC 6750 §3.1): always `invalid_request`, since the request is
    /// wrong before any token is read.
    pub const fn error(self) -> &'static str {
        "invalid_request"
    }

    /// A stable identifier for logs and metrics.
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

/// A bearer token as it was presented: its place was checked, its characters were not. A caller
/// that has accepted the same bytes before need not check them again; all others use
/// [`Self::checked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentedToken<'a>(&'a [u8]);

impl<'a> PresentedToken<'a> {
    /// A token that [`websocket_bearer`] found.
    pub fn of_websocket(token: &'a [u8]) -> Self {
        Self(token)
    }

    /// The bytes. Use them only for comparison with tokens that were checked.
    pub fn unchecked(self) -> &'a [u8] {
        self.0
    }

    /// The token, if its characters are valid.
    ///
    /// # Errors
    /// [`CredentialFault::IllegalToken`] when it is not a `b64token`.
    pub fn checked(self) -> Result<&'a [u8], CredentialFault> {
        let padding = self.0.iter().rev().take_while(|b| **b == b'=').count();
        let body = &self.0[..self.0.len() - padding];
        if body.is_empty() || !is_b64token(body) { Err(CredentialFault::IllegalToken) } else { Ok(self.0) }
    }
}

/// The bearer token of a request with these header `fields` and this raw `query` (without `?`).
///
/// `None` means that there is no bearer token: there is no `Authorization` field, or it has another
/// scheme.
///
/// # Errors
/// [`CredentialFault`] when the request does not carry exactly one token in the one permitted way.
pub fn bearer<'a>(
    fields: &[Field<'a>],
    query: Option<&str>,
) -> Result<Option<PresentedToken<'a>>, CredentialFault> {
    let mut authorization_fields =
        fields.iter().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
    let token = match (authorization_fields.next(), authorization_fields.next()) {
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

/// Beginning of the WebSocket protocol that carries a bearer token, in Kubernetes' convention: pages
/// cannot set `Authorization` for a WebSocket.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The bearer token among the protocols of a WebSocket handshake (`Sec-WebSocket-Protocol`), in
/// base64url without padding.
///
/// # Errors
/// [`CredentialFault`] for several tokens, and for one that is not valid.
pub fn websocket_bearer(fields: &[Field<'_>]) -> Result<Option<Vec<u8>>, CredentialFault> {
    let named = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("sec-websocket-protocol"));
    let protocols = named.flat_map(|field| field.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut tokens = protocols.filter_map(|protocol| protocol.strip_prefix(WEBSOCKET_PREFIX.as_bytes()));
    let Some(encoded) = tokens.next() else { return Ok(None) };
    if tokens.next().is_some() {
        return Err(CredentialFault::SeveralMethods);
    }
    let token = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| CredentialFault::IllegalToken)?;
    PresentedToken(&token).checked()?;
    Ok(Some(token))
}

/// The protocols of a WebSocket handshake without those that carry a token; `None`: no other is
/// left.
pub fn without_websocket_bearer(value: &[u8]) -> Option<Vec<u8>> {
    let protocols = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let others: Vec<&[u8]> =
        protocols.filter(|protocol| !protocol.starts_with(WEBSOCKET_PREFIX.as_bytes())).collect();
    (!others.is_empty()).then(|| others.join(&b", "[..]))
}

/// The encoded user name and password of a request that was searched for a [`bearer`] token before;
/// `None`: it has none (RFC 7617 §2). Neither the encoding nor its content was checked.
pub fn basic<'a>(fields: &[Field<'a>]) -> Option<&'a [u8]> {
    let value = fields.iter().find(|field| field.name.eq_ignore_ascii_case("authorization"))?.value;
    let end = value.iter().position(|b| *b == b' ').unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    scheme.eq_ignore_ascii_case(b"basic").then(|| rest.trim_ascii())
}

/// The scheme of a bearer token (RFC 6750 §2.1).
const BEARER: &[u8] = b"bearer";

/// `credentials = auth-scheme 1*SP token68` (RFC 9110 §11.4; the scheme is case-insensitive).
fn bearer_token(value: &[u8]) -> Result<Option<PresentedToken<'_>>, CredentialFault> {
    // Most values, without a search for the end of the scheme and a check of its characters.
    let rest = match value.split_at_checked(BEARER.len()) {
        Some((scheme, rest)) if rest.starts_with(b" ") && scheme.eq_ignore_ascii_case(BEARER) => rest,
        _ => {
            let end = value.iter().position(|b| *b == b' ').unwrap_or(value.len());
            let (scheme, rest) = value.split_at(end);
            if !std::str::from_utf8(scheme).is_ok_and(is_token) {
                return Err(CredentialFault::NoScheme);
            }
            if !scheme.eq_ignore_ascii_case(BEARER) {
                return Ok(None);
            }
            rest
        }
    };
    let token = &rest[rest.iter().take_while(|b| **b == b' ').count()..];
    if token.is_empty() { Err(CredentialFault::EmptyToken) } else { Ok(Some(PresentedToken(token))) }
}

/// Whether the text is a `b64token` of RFC 6750 §2.1, without the trailing `=`.
fn is_b64token(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte))
}

/// Whether some framework would find a parameter `access_token`. For a few of them, `;` is a
/// separator too.
fn has_access_token(query: &str) -> bool {
    query.split(';').flat_map(|part| pairs(Some(part))).any(|(name, _)| name.resembles("access_token"))
}
