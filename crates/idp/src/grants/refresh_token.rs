//! Grant `refresh_token` (RFC 6749 §6). Each refresh token is valid once; the response contains the
//! next one (RFC 9700 §4.14.2).

use auth::token::opaque::OpaqueKind;
use store::{families::OwnedFamily, redeem::SecretKind};

use super::{
    Grant, TokenResponse, allowed_scopes, enabled_user, narrowed_audiences, secret_digest, stored_scopes,
};
use crate::client_authentication::AuthenticatedClient;
use crate::id_token::Authentication;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::scope::ScopeSet;
use crate::provider::Provider;
use crate::session::Caller;

/// Issues the tokens for a refresh token: all granted scopes, or those that the client requests.
/// Scopes that the client may no longer have are left out of both: many clients always request what
/// they were granted first.
pub(super) async fn redeem(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
    caller: Caller,
) -> Result<TokenResponse, OAuthFault> {
    let digest = secret_digest(provider, form, "refresh_token", OpaqueKind::Refresh)?;
    let Some((_, OwnedFamily { family, user })) = provider.store().refresh_token(&digest).await? else {
        return Err(OAuthFault::GrantInvalid("unknown refresh token"));
    };
    if family.client_id != client.id() {
        return Err(OAuthFault::GrantInvalid("refresh token of another client"));
    }
    let granted = stored_scopes(&family.scopes);
    let requested = match form.get("scope").map(ScopeSet::parse).transpose()? {
        None => granted,
        Some(requested) => match requested.first_outside(&granted) {
            Some(scope) => return Err(OAuthFault::ScopeNotAllowed(scope.into())),
            None => requested,
        },
    };
    let scopes = allowed_scopes(client, &requested)?;
    let authentication = Authentication::read(&family.details);
    let person = enabled_user(provider, user, authentication.claim_selection(client, &scopes)).await?;
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences: narrowed_audiences(client, form, &family.audiences)?,
        family: Some((&family.id, family.expires_at)),
        sid: family.sid.as_deref(),
        outlives_session: family.outlives_session,
        // The nonce belongs only to the first ID token (Core §12.2).
        nonce: None,
        authentication: &authentication,
    };
    grant.redeem(provider, (SecretKind::RefreshToken, digest), caller).await
}
