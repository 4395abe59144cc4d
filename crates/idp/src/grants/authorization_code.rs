//! Authorization codes (RFC 6749 §4.1.3, RFC 7636 §4.6, OpenID Connect Core 1.0 §3.1.3).
//!
//! What a code is bound to (client, redirect URI, challenge) is compared before it is redeemed, so that whoever found one
//! elsewhere cannot use it up. Redeeming is one conditional statement; a second time ends everything that came of the first.

use auth::token::opaque::OpaqueKind;
use store::{families::OwnedFamily, redeem::Once};

use super::{Grant, TokenResponse, audiences_of, presented, scopes_of, still_open};
use crate::{
    authorization::pkce::Challenge,
    client::authenticate::AuthenticatedClient,
    id_token::Authentication,
    oauth::{error::OAuthFault, form::Form},
    provider::Provider,
};

/// The tokens for a code.
pub(super) async fn redeem(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<TokenResponse, OAuthFault> {
    let digest = presented(provider, form, "code", OpaqueKind::Code)?;
    let Some((code, OwnedFamily { family, user })) = provider.store().code(&digest).await? else {
        return Err(OAuthFault::GrantInvalid("unknown code"));
    };
    if family.client_id != client.id() {
        return Err(OAuthFault::GrantInvalid("code of another client"));
    }
    let authentication = Authentication::read(&family.details);
    match form.get("redirect_uri") {
        Some(named) if named == code.redirect_uri => {}
        // where the request left it out, it may be left out here (RFC 6749 §4.1.3)
        None if authentication.redirect_omitted => {}
        _ => return Err(OAuthFault::GrantInvalid("redirect_uri is not that of the request")),
    }
    match (code.challenge.as_deref().map(Challenge::parse), form.get("code_verifier")) {
        (None, None) => {}
        (Some(Some(challenge)), Some(verifier)) if challenge.is_met_by(verifier) => {}
        // a verifier without a challenge: somebody took the challenge out of the request (RFC 9700 §2.1.1)
        _ => return Err(OAuthFault::GrantInvalid("code_verifier does not meet the code_challenge")),
    }
    let scopes = scopes_of(&family.scopes);
    let person = still_open(provider, user, authentication.told(&scopes)).await?;
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences: audiences_of(form, &family.audiences)?,
        family: Some((&family.id, family.expires_at)),
        sid: family.sid.as_deref(),
        outlives_session: family.outlives_session,
        nonce: code.nonce.as_deref(),
        authentication: &authentication,
    };
    grant.redeem(provider, Once::Code, digest).await
}
