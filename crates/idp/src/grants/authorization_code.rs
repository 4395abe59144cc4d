//! Grant `authorization_code` (RFC 6749 §4.1.3, RFC 7636 §4.6, OpenID Connect Core 1.0 §3.1.3).
//!
//! The binding of a code (client, redirect URI, challenge) is checked before redemption, so an
//! attacker with a stolen code cannot use it up. Redemption is one conditional statement; a second
//! attempt revokes the family of the first.

use auth::token::opaque::OpaqueKind;
use store::{families::OwnedFamily, redeem::SecretKind};

use super::{
    Grant, TokenResponse, allowed_scopes, enabled_user, narrowed_audiences, secret_digest, stored_scopes,
};
use crate::authorization::pkce::Challenge;
use crate::client_authentication::AuthenticatedClient;
use crate::id_token::Authentication;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::provider::Provider;
use crate::session::Caller;

/// Issues the tokens for a code.
pub(super) async fn redeem(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
    caller: Caller,
) -> Result<TokenResponse, OAuthFault> {
    let digest = secret_digest(provider, form, "code", OpaqueKind::Code)?;
    let Some((code, OwnedFamily { family, user })) = provider.store().code(&digest).await? else {
        return Err(OAuthFault::GrantInvalid("unknown code"));
    };
    if family.client_id != client.id() {
        return Err(OAuthFault::GrantInvalid("code of another client"));
    }
    let authentication = Authentication::read(&family.details);
    match form.get("redirect_uri") {
        Some(named) if named == code.redirect_uri => {}
        // If the authorization request omitted it, the token request may omit it too (RFC 6749
        // §4.1.3).
        None if authentication.redirect_omitted => {}
        _ => {
            return Err(OAuthFault::GrantInvalid(
                "redirect_uri differs from that of the authorization request",
            ));
        }
    }
    match (code.challenge.as_deref().map(Challenge::parse), form.get("code_verifier")) {
        (None, None) => {}
        (Some(Some(challenge)), Some(verifier)) if challenge.verifies(verifier) => {}
        // A verifier without a challenge: an attacker may have removed the challenge from the
        // request (RFC 9700 §2.1.1).
        _ => return Err(OAuthFault::GrantInvalid("code_verifier does not meet the code_challenge")),
    }
    let scopes = allowed_scopes(client, &stored_scopes(&family.scopes))?;
    let person = enabled_user(provider, user, authentication.claim_selection(client, &scopes)).await?;
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences: narrowed_audiences(client, form, &family.audiences)?,
        family: Some((&family.id, family.expires_at)),
        sid: family.sid.as_deref(),
        outlives_session: family.outlives_session,
        nonce: code.nonce.as_deref(),
        authentication: &authentication,
    };
    grant.redeem(provider, (SecretKind::Code, digest), caller).await
}
