//! Authorization of administration requests.
//!
//! A request carries one access token of this provider in its `Authorization` field (RFC 6750
//! §2.1), JWT or opaque, that
//!
//! - is valid;
//! - is issued for the provider: the issuer is among its audiences. A client gets such a token if
//!   its `audiences` contain the issuer, which the provider's `audiences` must then contain too;
//! - speaks for the client itself, not for a user: scopes belong to a client, and every user who
//!   logs in there would share the right;
//! - belongs to an enabled client that authenticates and still has the scope.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION};

use crate::access_token;
use crate::admin::AdminFault;
use crate::client::ClientCredential;
use crate::client_authentication::split_scheme;
use crate::oauth::scope::ScopeSet;
use crate::provider::Provider;

/// Scope to read and to change everything.
pub const ADMIN_SCOPE: &str = "postern:admin";
/// Scope to read everything.
pub const ADMIN_READ_SCOPE: &str = "postern:admin.read";

/// Right that an operation requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
}

impl Right {
    /// The smallest scope that grants the right.
    pub(super) const fn scope(self) -> &'static str {
        match self {
            Self::Read => ADMIN_READ_SCOPE,
            Self::Write => ADMIN_SCOPE,
        }
    }

    fn is_in(self, scopes: &ScopeSet) -> bool {
        scopes.contains(ADMIN_SCOPE) || scopes.contains(self.scope())
    }
}

/// Authorizes a request. Returns the actor in the form of the audit log.
pub(super) async fn authorize(
    provider: &Provider,
    headers: &HeaderMap,
    right: Right,
) -> Result<String, AdminFault> {
    let text = bearer(headers)?;
    let token = access_token::look_up_valid(provider, text).await?.ok_or(AdminFault::TokenInvalid)?;
    if !token.audiences.split_ascii_whitespace().any(|audience| audience == provider.issuer().as_str()) {
        return Err(AdminFault::TokenNotForAdministration("the issuer is not among its audiences"));
    }
    if token.user_id.is_some() {
        return Err(AdminFault::TokenNotForAdministration(
            "it speaks for a user: use a token of the client itself",
        ));
    }
    let client = provider.clients().find(provider.store(), &token.client_id).await?;
    let client = client.ok_or(AdminFault::TokenInvalid)?;
    if matches!(client.proof, ClientCredential::Nothing) {
        return Err(AdminFault::TokenNotForAdministration("its client is public"));
    }
    let granted = ScopeSet::parse(&token.scopes).unwrap_or_default();
    if !right.is_in(&granted) || !right.is_in(&client.scopes) {
        return Err(AdminFault::ScopeMissing(right.scope()));
    }
    Ok(format!("client:{}", client.id()))
}

/// The token of a request, from its only `Authorization` field.
fn bearer(headers: &HeaderMap) -> Result<&str, AdminFault> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (field, None) = (fields.next(), fields.next()) else { return Err(AdminFault::TokenMalformed) };
    let field = field.ok_or(AdminFault::TokenMissing)?;
    let (scheme, token) = split_scheme(field.as_bytes());
    if !scheme.eq_ignore_ascii_case(b"Bearer") {
        return Err(AdminFault::TokenMissing);
    }
    match std::str::from_utf8(token) {
        Ok(token) if !token.is_empty() => Ok(token),
        _ => Err(AdminFault::TokenMalformed),
    }
}

/// `WWW-Authenticate` (RFC 6750 §3) for faults of the token.
pub(super) fn challenge(provider: &Provider, fault: &AdminFault) -> Option<HeaderValue> {
    let row = fault.response();
    if !matches!(row.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    let parameters = match fault {
        // Without a token the challenge has no error code (RFC 6750 §3.1).
        AdminFault::TokenMissing => String::new(),
        AdminFault::ScopeMissing(scope) => format!(", error=\"{}\", scope=\"{scope}\"", row.code),
        _ => format!(", error=\"{}\", error_description=\"{}\"", row.code, row.text),
    };
    // Texts of these faults are constants without quotes, and the issuer is checked.
    HeaderValue::try_from(format!("Bearer realm=\"{}\"{parameters}", provider.issuer().as_str())).ok()
}
