//! Grant `client_credentials` (RFC 6749 §4.4): a program acts for itself.
//!
//! The client is the subject (RFC 9068 §2.2), within its own scopes, audiences and groups. There is
//! no refresh token (§4.4.3): the client can request another access token.

use store::access_tokens::IssueAccessToken;

use super::TokenResponse;
use crate::access_token::{self, Granted};
use crate::client_authentication::AuthenticatedClient;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::provider::Provider;

/// Issues a token with the requested rights, if the client may have all of them.
pub(super) async fn grant(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<TokenResponse, OAuthFault> {
    let scopes = client.scopes_for(form.get("scope"))?;
    let read_at = match client.read_at {
        Some(read_at) => read_at,
        // A client of the configuration cannot be disabled, but its tokens can be revoked.
        None => provider.store().log_time().await?,
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
