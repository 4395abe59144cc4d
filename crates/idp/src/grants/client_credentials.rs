//! Grant `client_credentials` (RFC 6749 §4.4): a program acts for itself.
//!
//! The client is the subject (RFC 9068 §2.2), within its own scopes, audiences and groups. There is
//! no refresh token (§4.4.3): the client can request another access token.

use store::{access_tokens::IssueAccessToken, audit::Audited};

use super::TokenResponse;
use crate::access_token::{self, Granted};
use crate::audit_trail::GrantTrail;
use crate::client_authentication::AuthenticatedClient;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::provider::Provider;
use crate::session::Caller;

/// Issues a token with the requested rights, if the client may have all of them.
pub(super) async fn grant(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
    caller: Caller,
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
    let trail = GrantTrail {
        scopes: scopes.to_wire(),
        address: Some(caller.0),
        ..GrantTrail::new(provider, GrantType::ClientCredentials, client)
    };
    match (minted.row.take(), trail.issued()) {
        (Some(token), Some(entry)) => {
            provider.store().write(Audited { change: IssueAccessToken(token), entry }).await?;
        }
        (Some(token), None) => {
            provider.store().write(IssueAccessToken(token)).await?;
        }
        (None, Some(entry)) => provider.store().write(entry).await?,
        (None, None) => {}
    }
    tracing::debug!(client = client.id(), jti = minted.id, "token issued to a client for itself");
    Ok(TokenResponse::new(&minted, &scopes))
}
