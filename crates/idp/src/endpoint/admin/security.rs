//! Keys, tokens, who follows, the audit log.

use axum::{http::Method, response::Response};

use super::{ErrorBody, Route, Takes, access::Right, call::Call, done, found};
use crate::admin::{
    AdminFault, Page,
    audit::{AuditEntry, AuditVerdict, ListEntries},
    followers::{FollowerList, InForce},
    keys::{KeyList, RotateKey},
    tokens::{FamilyView, ListFamilies, RevokeAll, Revoked, RevokedTokens, TokenList, TokenText, TokenView},
};

pub(super) fn routes() -> Vec<Route> {
    use Right::{Read, Write};
    use Takes::{Body, Nothing, Query};
    vec![
        Route::new(Method::GET, "/keys", Read, Nothing, list_keys),
        Route::new(Method::POST, "/keys/rotate", Write, Body, rotate_key),
        Route::new(Method::DELETE, "/keys/{kid}", Write, Nothing, revoke_key),
        Route::new(Method::POST, "/tokens/look", Read, Body, look_at_token),
        Route::new(Method::POST, "/tokens/revoke", Write, Body, revoke_token),
        Route::new(Method::POST, "/tokens/revoke-list", Write, Body, revoke_tokens),
        Route::new(Method::POST, "/tokens/revoke-all", Write, Body, revoke_all),
        Route::new(Method::GET, "/families", Read, Query, list_families),
        Route::new(Method::DELETE, "/families/{id}", Write, Nothing, revoke_family),
        Route::new(Method::GET, "/followers", Read, Nothing, list_followers),
        Route::new(Method::POST, "/followers/wait", Read, Nothing, wait_for_followers),
        Route::new(Method::GET, "/audit", Read, Query, list_entries),
        Route::new(Method::GET, "/audit/verdict", Read, Nothing, verify_entries),
    ]
}

/// Signing keys: those that sign, the next ones, those that retired.
#[utoipa::path(get, path = "/keys", tag = "keys",
    responses((status = 200, description = "all keys", body = KeyList)))]
async fn list_keys(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().keys().await?))
}

/// The next key of an algorithm takes over.
#[utoipa::path(post, path = "/keys/rotate", tag = "keys", request_body = RotateKey,
    responses((status = 200, description = "all keys as they are now", body = KeyList),
        (status = 409, description = "caches may not have the next key yet", body = ErrorBody)))]
async fn rotate_key(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().rotate_key(&call.body::<RotateKey>()?).await?))
}

/// A key leaked: it is no longer published, what it signed is void, its successor signs at once.
#[utoipa::path(delete, path = "/keys/{kid}", tag = "keys",
    params(("kid" = String, Path, description = "identifier of the key")),
    responses((status = 200, description = "all keys as they are now", body = KeyList),
        (status = 404, description = "there is none", body = ErrorBody),
        (status = 409, description = "others change the keys at the same time", body = ErrorBody)))]
async fn revoke_key(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().revoke_key(call.part("kid")).await?))
}

/// What a token is worth.
#[utoipa::path(post, path = "/tokens/look", tag = "tokens", request_body = TokenText,
    responses((status = 200, description = "what it is worth", body = TokenView)))]
async fn look_at_token(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().token(&call.body::<TokenText>()?).await?))
}

/// Revokes a token: an access token alone, a refresh token with its family.
#[utoipa::path(post, path = "/tokens/revoke", tag = "tokens", request_body = TokenText,
    responses((status = 200, description = "revoked", body = Revoked),
        (status = 404, description = "it is unknown or over", body = ErrorBody)))]
async fn revoke_token(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().revoke_token(&call.body::<TokenText>()?).await?))
}

/// Revokes tokens that leaked, by their text or by their names (`jti`), all of them in one transaction. A body has 64 KiB at most: a hundred JWTs.
#[utoipa::path(post, path = "/tokens/revoke-list", tag = "tokens", request_body = TokenList,
    responses((status = 200, description = "revoked", body = RevokedTokens)))]
async fn revoke_tokens(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().revoke_tokens(&call.body::<TokenList>()?).await?))
}

/// Revokes everything a client has, or what it has on behalf of one user.
#[utoipa::path(post, path = "/tokens/revoke-all", tag = "tokens", request_body = RevokeAll,
    responses((status = 200, description = "revoked", body = Revoked),
        (status = 404, description = "there is no such client or user", body = ErrorBody)))]
async fn revoke_all(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().revoke_all(&call.body::<RevokeAll>()?).await?))
}

/// Families that are alive: what each authorization led to.
#[utoipa::path(get, path = "/families", tag = "tokens", params(ListFamilies),
    responses((status = 200, description = "a page of families", body = Page<FamilyView>)))]
async fn list_families(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().families(&call.query::<ListFamilies>()?).await?))
}

/// Revokes a family with all its tokens.
#[utoipa::path(delete, path = "/families/{id}", tag = "tokens",
    params(("id" = String, Path, description = "of the family")),
    responses((status = 204, description = "revoked"), (status = 404, description = "there is none", body = ErrorBody)))]
async fn revoke_family(call: Call) -> Result<Response, AdminFault> {
    call.admin().revoke_family(call.part("id")).await?;
    Ok(done())
}

/// Who follows what is revoked, and how far each has got.
#[utoipa::path(get, path = "/followers", tag = "followers",
    responses((status = 200, description = "everybody", body = FollowerList)))]
async fn list_followers(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().followers().await?))
}

/// Waits until everything that is revoked by now is refused everywhere: milliseconds while all is well, a lease at most.
#[utoipa::path(post, path = "/followers/wait", tag = "followers",
    responses((status = 200, description = "it is", body = InForce)))]
async fn wait_for_followers(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().in_force().await?))
}

/// The audit log, the oldest entries first.
#[utoipa::path(get, path = "/audit", tag = "audit", params(ListEntries),
    responses((status = 200, description = "a page of entries", body = Page<AuditEntry>)))]
async fn list_entries(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().audit_log(&call.query::<ListEntries>()?).await?))
}

/// Whether the audit log is as it was written. Reads all of it.
#[utoipa::path(get, path = "/audit/verdict", tag = "audit",
    responses((status = 200, description = "the verdict", body = AuditVerdict)))]
async fn verify_entries(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().verify_audit_log().await?))
}
