//! Who may administer.
//!
//! A request carries one access token of this provider in its `Authorization` field (RFC 6750 §2.1), JWT or opaque, that
//!
//! - is active;
//! - is meant for the provider: the issuer is among its audiences. A client gets such a token when its `audiences` have the
//!   issuer, which the provider's `audiences` must then have too;
//! - speaks for the client itself, not for a person: a scope is a client's, and whoever logs in at it would share the right;
//! - was got by a client that proves who it is, is still open, and still has the scope.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION};

use crate::{
    access_token,
    admin::AdminFault,
    client::{Proof, authenticate::split_scheme},
    oauth::scope::ScopeSet,
    provider::Provider,
};

/// The scope to change things, and to look at them.
pub const ADMIN_SCOPE: &str = "postern:admin";
/// The scope to look at things.
pub const ADMIN_READ_SCOPE: &str = "postern:admin.read";

/// What an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
}

impl Right {
    /// The least scope that gives it.
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

/// Who calls, as the audit log says it.
pub(super) async fn admit(
    provider: &Provider,
    headers: &HeaderMap,
    right: Right,
) -> Result<String, AdminFault> {
    let text = bearer(headers)?;
    let token = access_token::present(provider, text).await?.ok_or(AdminFault::TokenInvalid)?;
    if !token.audiences.split_ascii_whitespace().any(|audience| audience == provider.issuer().as_str()) {
        return Err(AdminFault::TokenForeign("the issuer is not among its audiences"));
    }
    if token.user_id.is_some() {
        return Err(AdminFault::TokenForeign(
            "it speaks for a person: take one that the client got for itself",
        ));
    }
    let client = provider.clients().find(provider.store(), &token.client_id).await?;
    let client = client.ok_or(AdminFault::TokenInvalid)?;
    if matches!(client.proof, Proof::Nothing) {
        return Err(AdminFault::TokenForeign("its client is public"));
    }
    let granted = ScopeSet::parse(&token.scopes).unwrap_or_default();
    if !right.is_in(&granted) || !right.is_in(&client.scopes) {
        return Err(AdminFault::ScopeMissing(right.scope()));
    }
    Ok(format!("client:{}", client.id()))
}

/// The one token of a request.
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

/// `WWW-Authenticate` (RFC 6750 §3) of whatever is about the token.
pub(super) fn challenge(provider: &Provider, fault: &AdminFault) -> Option<HeaderValue> {
    let row = fault.row();
    if !matches!(row.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    let told = match fault {
        // RFC 6750 §3.1: who sent none is told nothing more
        AdminFault::TokenMissing => String::new(),
        AdminFault::ScopeMissing(scope) => format!(", error=\"{}\", scope=\"{scope}\"", row.code),
        _ => format!(", error=\"{}\", error_description=\"{}\"", row.code, row.text),
    };
    // texts of this kind are constants without quotes, and the issuer was checked
    HeaderValue::try_from(format!("Bearer realm=\"{}\"{told}", provider.issuer().as_str())).ok()
}
