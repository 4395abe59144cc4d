//! Client credentials (RFC 6749 §4.4): a program acts for itself.
//!
//! The client is the subject (RFC 9068 §2.2), within its own scopes, audiences and groups. There is no
//! refresh token (§4.4.3): the client can ask again.

use store::access_tokens::IssueAccessToken;

use super::TokenResponse;
use crate::{
    access_token::{self, Granted},
    client::authenticate::AuthenticatedClient,
    oauth::{error::OAuthFault, form::Form},
    provider::Provider,
};

/// What the client asked for, if it may have all of it.
pub(super) async fn grant(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<TokenResponse, OAuthFault> {
    let scopes = client.scopes_for(form.get("scope"))?;
    let read_at = match client.read_at {
        Some(read_at) => read_at,
        // those of the configuration are never closed: what they had so far may be revoked all the same
        None => provider.store().read_at().await?,
    };
    let granted = Granted {
        client,
        person: None,
        scopes: &scopes,
        audiences: client.audiences_for(form)?,
        family: None,
        sid: None,
        userinfo: &[],
        read_at,
    };
    let mut minted = access_token::mint(provider, &granted)?;
    if let Some(token) = minted.row.take() {
        provider.store().write(IssueAccessToken(token)).await?;
    }
    tracing::debug!(client = client.id(), jti = minted.id, "token issued to a client for itself");
    Ok(TokenResponse::new(&minted, &scopes))
}
