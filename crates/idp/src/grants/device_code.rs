//! Device codes (RFC 8628 §3.4 and §3.5): a device asks again and again, until a person elsewhere has decided.

use auth::{
    time::Timestamp,
    token::opaque::{self, Kind},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use store::{
    device_codes::{PollDeviceCode, Polled, RedeemDeviceCode},
    families::Family,
    redeem::Redeemed,
};

use super::{Grant, GrantType, TokenResponse, family_revocation, scopes_of, words};
use crate::{
    client::authenticate::AuthenticatedClient,
    device::Decision,
    oauth::{error::Fault, form::Form},
    person::Person,
    provider::Provider,
};

/// The tokens for a device code that a person has approved.
pub(super) async fn redeem(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<TokenResponse, Fault> {
    let text = form.get("device_code").ok_or(Fault::ParameterMissing("device_code"))?;
    if opaque::kind(text) != Some(Kind::Device) {
        return Err(Fault::GrantInvalid("this is no device code"));
    }
    let digest = provider.secrets().digest(text);
    let now = provider.now();
    let poll = PollDeviceCode { digest, client_id: client.id().to_owned(), now };
    let (user, sid, details) = match provider.store().write(poll).await? {
        Polled::Pending => return Err(Fault::AuthorizationPending),
        Polled::TooSoon => return Err(Fault::SlowDown),
        Polled::Denied => return Err(Fault::AccessDenied),
        Polled::Expired => return Err(Fault::DeviceCodeExpired),
        Polled::Unknown => return Err(Fault::GrantInvalid("unknown device code")),
        Polled::Approved { user_id, sid, details } => (user_id, sid, details),
    };
    let decision = Decision::read(&details).ok_or(Fault::GrantInvalid("the decision cannot be read"))?;
    let person = Person::find(provider.store(), &user).await?;
    let Some(person) = person else { return Err(Fault::GrantInvalid("the account is closed")) };
    let scopes = scopes_of(&decision.scopes);
    let family = Family {
        // a second redemption must name the family of the first
        id: family_id(provider, text),
        client_id: client.id().to_owned(),
        user_id: Some(user),
        // the session was the one of another device: signing out there does not end this one
        sid: None,
        scopes: decision.scopes.clone(),
        audiences: decision.audiences.clone(),
        details: decision.authentication.write(),
        outlives_session: true,
        created_at: Timestamp::from_millis(decision.at),
        expires_at: now.plus(if client.may_use(GrantType::RefreshToken) {
            provider.lifetimes().grant
        } else {
            client.access_token_lifetime()
        }),
        revoked_at: None,
    };
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences: words(&decision.audiences),
        family: Some((&family.id, family.expires_at)),
        sid: None,
        nonce: None,
        authentication: &decision.authentication,
    };
    let tokens = grant.mint(provider)?;
    let on_replay = family_revocation(provider, &family.id, "device code redeemed twice");
    let redeem = RedeemDeviceCode { digest, family, successors: tokens.successors, on_replay, now };
    match provider.store().write(redeem).await? {
        Redeemed::Now => {
            tracing::debug!(client = client.id(), session = sid, jti = tokens.jti, "device code redeemed");
            Ok(tokens.response)
        }
        Redeemed::Before => Err(Fault::Replayed("device code")),
        Redeemed::Dead => Err(Fault::GrantInvalid("device code expired, or the account ended")),
    }
}

/// The name of the family that a device code leads to.
fn family_id(provider: &Provider, code: &str) -> String {
    let digest = provider.secrets().digest_of(&["device family", code]);
    URL_SAFE_NO_PAD.encode(&digest.0[..16])
}
