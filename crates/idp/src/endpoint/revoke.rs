//! Token revocation (RFC 7009). The response 200 is sent after the revocation is durable.
//!
//! With the extension `wait=true`, 200 also means that every gateway that follows the revocation
//! log refuses the token.
//!
//! An access token is revoked alone; a refresh token with everything that follows from the same
//! authorization (§2.1).
//!
//! An expired access token is revoked too: a gateway may keep an exchange open that it authorized.

use std::sync::Arc;

use auth::token::opaque::{self, OpaqueKind};
use axum::{body::Body, extract::State, response::Response};
use store::{
    access_tokens::{RevokeAccessToken, RevokeJwt},
    audit::Audited,
    families::RevokeFamily,
};
use tokio::time::Instant;

use super::client_request::ClientRequest;
use crate::admin::followers::wait_in_force;
use crate::audit_draft::{AuditDraft, Subject};
use crate::client_authentication::AuthenticatedClient;
use crate::oauth::error::OAuthFault;
use crate::provider::Provider;
use crate::secrets::TagSubject;
use crate::{access_token, revocations};

/// Reason in the log when a client revokes its access token.
const REVOKED_REASON: &str = "access token revoked";

/// Handles `POST /revoke`: revokes a token of the client.
pub async fn revoke(State(provider): State<Arc<Provider>>, request: ClientRequest) -> Response {
    let done = handle(&provider, &request).await;
    request.answered(&provider, done)
}

async fn handle(provider: &Provider, request: &ClientRequest) -> Result<Response, OAuthFault> {
    let wait = match request.form.get("wait") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(OAuthFault::WaitMalformed),
    };
    let revoked = revoke_token(provider, &request.client, request.required("token")?).await?;
    let durable = Instant::now();
    tracing::debug!(client = request.client.id(), revoked, "revocation requested");
    if wait {
        wait_in_force(provider, durable).await?;
    }
    Ok(Response::new(Body::empty()))
}

/// Revokes a token. Returns `false` if there was nothing to revoke: the token is unknown, expired,
/// already revoked or belongs to another client (§2.2: this is not an error).
async fn revoke_token(
    provider: &Provider,
    client: &AuthenticatedClient,
    text: &str,
) -> Result<bool, OAuthFault> {
    match opaque::parse_kind(text) {
        Some(OpaqueKind::Access) => revoke_opaque(provider, client, text).await,
        Some(OpaqueKind::Refresh) => revoke_family(provider, client, text).await,
        Some(_) => Ok(false),
        None => revoke_jwt(provider, client, text).await,
    }
}

async fn revoke_opaque(
    provider: &Provider,
    client: &AuthenticatedClient,
    text: &str,
) -> Result<bool, OAuthFault> {
    let digest = provider.secrets().digest(text);
    let Some(standing) = provider.store().access_token(&digest).await? else { return Ok(false) };
    let revoke = RevokeAccessToken {
        digest,
        client_id: client.id().to_owned(),
        revocation: revocations::access_token(
            provider,
            &standing.token.jti,
            standing.token.expires_at,
            REVOKED_REASON,
        ),
        now: provider.now(),
    };
    Ok(provider.store().write(revoke).await?)
}

async fn revoke_family(
    provider: &Provider,
    client: &AuthenticatedClient,
    text: &str,
) -> Result<bool, OAuthFault> {
    let digest = provider.secrets().digest(text);
    let Some((_, owned)) = provider.store().refresh_token(&digest).await? else { return Ok(false) };
    let family = owned.family;
    if family.client_id != client.id() {
        return Ok(false);
    }
    let revocation = revocations::family(provider, &family.id, "refresh token revoked");
    let now = provider.now();
    let user = owned.user.as_ref().map(Subject::of_user);
    let target = format!("family:{}", family.id);
    let entry = AuditDraft::by_client(&Subject::of_client(client), "family.revoke", target, now)
        .user(user.as_ref())
        .finish();
    let change = RevokeFamily { id: family.id, revocation, now };
    Ok(provider.store().write(Audited { change, entry }).await?)
}

async fn revoke_jwt(
    provider: &Provider,
    client: &AuthenticatedClient,
    text: &str,
) -> Result<bool, OAuthFault> {
    let claims = access_token::read_jwt(provider, text).filter(|claims| claims.client_id == client.id());
    let Some(claims) = claims else { return Ok(false) };
    let revocation = revocations::access_token(provider, &claims.jti, claims.expires_at, REVOKED_REASON);
    // A revoked token is not announced again; otherwise repeated requests would fill the log.
    let tag = provider.secrets().tag(TagSubject::Token(&claims.jti));
    Ok(provider.store().write(RevokeJwt { tag, revocation, now: provider.now() }).await?)
}
