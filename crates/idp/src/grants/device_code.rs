//! Grant `device_code` (RFC 8628 §3.4 and §3.5): a device polls until the user has decided on
//! another device.

use auth::{time::Timestamp, token::opaque::OpaqueKind};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use store::{
    audit::AuditedBy,
    device_codes::{PollDeviceCode, PollResult, RedeemDeviceCode},
    families::Family,
    redeem::RedeemResult,
};

use super::{
    Grant, TokenResponse, allowed_scopes, enabled_user, narrowed_audiences, secret_digest, stored_scopes,
};
use crate::access_token::origins;
use crate::client_authentication::AuthenticatedClient;
use crate::device::Decision;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::provider::Provider;
use crate::revocations;
use crate::session::Caller;

/// Issues the tokens for a device code that a user approved.
pub(super) async fn redeem(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
    caller: Caller,
) -> Result<TokenResponse, OAuthFault> {
    let digest = secret_digest(provider, form, "device_code", OpaqueKind::Device)?;
    let now = provider.now();
    let poll = PollDeviceCode { digest, client_id: client.id().to_owned(), now };
    let (user, sid, details) = match provider.store().write(poll).await? {
        PollResult::Pending => return Err(OAuthFault::AuthorizationPending),
        PollResult::TooSoon => return Err(OAuthFault::SlowDown),
        PollResult::Denied => return Err(OAuthFault::AccessDenied),
        PollResult::Expired => return Err(OAuthFault::DeviceCodeExpired),
        PollResult::Unknown => return Err(OAuthFault::GrantInvalid("unknown device code")),
        PollResult::Approved { user_id, sid, details } => (user_id, sid, details),
    };
    let decision =
        Decision::read(&details).ok_or(OAuthFault::GrantInvalid("stored decision is malformed"))?;
    let scopes = allowed_scopes(client, &stored_scopes(&decision.scopes))?;
    let account = provider.store().user(&user).await?;
    let selection = decision.authentication.claim_selection(client, &scopes);
    let person = enabled_user(provider, account, selection).await?;
    let family = Family {
        // The id is derived from the code, so that a second redemption revokes the family of the
        // first.
        id: family_id(provider, form.get("device_code").unwrap_or_default()),
        client_id: client.id().to_owned(),
        user_id: Some(user),
        // The session belongs to another device: its logout does not end this family.
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
        read_at: Timestamp::from_millis(decision.read_at.unwrap_or(decision.at)),
    };
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences: narrowed_audiences(client, form, &decision.audiences)?,
        family: Some((&family.id, family.expires_at)),
        sid: None,
        outlives_session: true,
        nonce: None,
        authentication: &decision.authentication,
    };
    let (tokens, successors) = grant.mint(provider)?;
    let on_replay = revocations::family(provider, &family.id, "device code redeemed twice");
    let origins = origins(provider, client.id(), Some(person.id()));
    let trail = grant.trail(provider, GrantType::DeviceCode, caller);
    let change = RedeemDeviceCode { digest, family, origins, successors, on_replay, now };
    let entries = move |result: &RedeemResult| trail.redeemed(*result);
    let redeemed = provider.store().write(AuditedBy { change, entries }).await?;
    tracing::debug!(approved_in = sid, ?redeemed, "device code redemption attempted");
    tokens.into_response(client, redeemed, "device code")
}

/// Id of the family that follows from a device code.
fn family_id(provider: &Provider, code: &str) -> String {
    let digest = provider.secrets().digest_of(&["device family", code]);
    URL_SAFE_NO_PAD.encode(&digest.0[..16])
}
