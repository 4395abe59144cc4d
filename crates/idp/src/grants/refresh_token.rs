//! Refresh tokens (RFC 6749 §6), each good once: the next one comes with the answer (RFC 9700 §4.14.2).

use auth::token::opaque::{self, Kind};
use store::redeem::{Once, Redeem, Redeemed};

use super::{Grant, TokenResponse, family_revocation, scopes_of, words};
use crate::{
    client::authenticate::AuthenticatedClient,
    id_token::Authentication,
    oauth::{error::Fault, form::Form, scope::ScopeSet},
    person::Person,
    provider::Provider,
};

/// The tokens for a refresh token: all of what was granted, or the part the client asks for.
pub(super) async fn redeem(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<TokenResponse, Fault> {
    let text = form.get("refresh_token").ok_or(Fault::ParameterMissing("refresh_token"))?;
    if opaque::kind(text) != Some(Kind::Refresh) {
        return Err(Fault::GrantInvalid("this is no refresh token"));
    }
    let digest = provider.secrets().digest(text);
    let Some((_, family)) = provider.store().refresh_token(&digest).await? else {
        return Err(Fault::GrantInvalid("unknown refresh token"));
    };
    if family.client_id != client.id() {
        return Err(Fault::GrantInvalid("refresh token of another client"));
    }
    let granted = scopes_of(&family.scopes);
    let scopes = match form.get("scope").map(ScopeSet::parse).transpose()? {
        None => granted,
        Some(asked) => match asked.first_outside(&granted) {
            Some(scope) => return Err(Fault::ScopeNotAllowed(scope.into())),
            None => asked,
        },
    };
    let user = family.user_id.as_deref().unwrap_or_default();
    let person = Person::find(provider.store(), user).await?;
    let Some(person) = person else { return Err(Fault::GrantInvalid("the account is closed")) };
    let authentication = Authentication::read(&family.details);
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences: words(&family.audiences),
        family: Some((&family.id, family.expires_at)),
        sid: family.sid.as_deref(),
        // the nonce was for the first one (Core §12.2)
        nonce: None,
        authentication: &authentication,
    };
    let tokens = grant.mint(provider)?;
    let redeem = Redeem {
        what: Once::RefreshToken,
        digest,
        successors: tokens.successors,
        on_replay: family_revocation(provider, &family.id, "refresh token redeemed twice"),
        now: provider.now(),
    };
    match provider.store().write(redeem).await? {
        Redeemed::Now => {
            tracing::debug!(client = client.id(), user, jti = tokens.jti, "refresh token redeemed");
            Ok(tokens.response)
        }
        Redeemed::Before => Err(Fault::Replayed("refresh token")),
        Redeemed::Dead => Err(Fault::GrantInvalid("refresh token expired, or its family is revoked")),
    }
}
