//! Authorization codes (RFC 6749 §4.1.3, RFC 7636 §4.6, OpenID Connect Core 1.0 §3.1.3).
//!
//! What a code is bound to (client, redirect URI, challenge) is compared before it is redeemed, so that whoever found one
//! elsewhere cannot use it up. Redeeming is one conditional statement; a second time ends everything that came of the first.

use auth::token::opaque::{self, Kind};
use store::redeem::{Once, Redeem, Redeemed};

use super::{Grant, TokenResponse, family_revocation, scopes_of, words};
use crate::{
    authorization::pkce::Challenge,
    client::authenticate::AuthenticatedClient,
    id_token::Authentication,
    oauth::{error::Fault, form::Form},
    person::Person,
    provider::Provider,
};

/// The tokens for a code.
pub(super) async fn redeem(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<TokenResponse, Fault> {
    let text = form.get("code").ok_or(Fault::ParameterMissing("code"))?;
    if opaque::kind(text) != Some(Kind::Code) {
        return Err(Fault::GrantInvalid("this is no code"));
    }
    let digest = provider.secrets().digest(text);
    let Some((code, family)) = provider.store().code(&digest).await? else {
        return Err(Fault::GrantInvalid("unknown code"));
    };
    if family.client_id != client.id() {
        return Err(Fault::GrantInvalid("code of another client"));
    }
    let authentication = Authentication::read(&family.details);
    match form.get("redirect_uri") {
        Some(named) if named == code.redirect_uri => {}
        // where the request left it out, it may be left out here (RFC 6749 §4.1.3)
        None if authentication.redirect_omitted => {}
        _ => return Err(Fault::GrantInvalid("redirect_uri is not that of the request")),
    }
    match (code.challenge.as_deref().map(Challenge::parse), form.get("code_verifier")) {
        (None, None) => {}
        (Some(Some(challenge)), Some(verifier)) if challenge.is_met_by(verifier) => {}
        // a verifier without a challenge: somebody took the challenge out of the request (RFC 9700 §2.1.1)
        _ => return Err(Fault::GrantInvalid("code_verifier does not meet the code_challenge")),
    }
    let user = family.user_id.as_deref().unwrap_or_default();
    let person = Person::find(provider.store(), user).await?;
    let Some(person) = person else { return Err(Fault::GrantInvalid("the account is closed")) };
    let scopes = scopes_of(&family.scopes);
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences: words(&family.audiences),
        family: Some((&family.id, family.expires_at)),
        sid: family.sid.as_deref(),
        nonce: code.nonce.as_deref(),
        authentication: &authentication,
    };
    let tokens = grant.mint(provider)?;
    let redeem = Redeem {
        what: Once::Code,
        digest,
        successors: tokens.successors,
        on_replay: family_revocation(provider, &family.id, "code redeemed twice"),
        now: provider.now(),
    };
    match provider.store().write(redeem).await? {
        Redeemed::Now => {
            tracing::debug!(client = client.id(), user, jti = tokens.jti, "code redeemed");
            Ok(tokens.response)
        }
        Redeemed::Before => Err(Fault::Replayed("code")),
        Redeemed::Dead => Err(Fault::GrantInvalid("code expired, or its session ended")),
    }
}
