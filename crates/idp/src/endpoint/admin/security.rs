//! Administration endpoints for keys, tokens, consumers of the revocation log, and the audit log.

use axum::{http::Method, response::Response};

use super::{ErrorBody, OperationInput, Route, access::Right, call::Call, no_content, ok};
use crate::admin::{
    AdminFault, Page,
    audit::{AuditEntry, AuditVerdict, ListEntries},
    followers::{FollowerList, InForce, ListFollowers},
    keys::{KeyList, KeyView, ListKeys, RotateKey},
    tokens::{FamilyView, ListFamilies, RevokeAll, Revoked, RevokedTokens, TokenList, TokenText, TokenView},
};

pub(super) fn routes() -> Vec<Route> {
    use OperationInput::{Body, Nothing, Query};
    use Right::{Read, Write};
    vec![
        Route::new(Method::GET, "/keys", Read, Query, list_keys),
        Route::new(Method::POST, "/keys/rotate", Write, Body, rotate_key),
        Route::new(Method::DELETE, "/keys/{kid}", Write, Nothing, revoke_key),
        Route::new(Method::POST, "/tokens/inspect", Read, Body, inspect_token),
        Route::new(Method::POST, "/tokens/revoke", Write, Body, revoke_token),
        Route::new(Method::POST, "/tokens/revoke-list", Write, Body, revoke_tokens),
        Route::new(Method::POST, "/tokens/revoke-all", Write, Body, revoke_all),
        Route::new(Method::GET, "/families", Read, Query, list_families),
        Route::new(Method::DELETE, "/families/{id}", Write, Nothing, revoke_family),
        Route::new(Method::GET, "/revocation/consumers", Read, Query, list_followers),
        Route::new(Method::POST, "/revocation/wait", Read, Nothing, wait_for_followers),
        Route::new(Method::GET, "/audit", Read, Query, list_entries),
        Route::new(Method::GET, "/audit/verdict", Read, Nothing, verify_entries),
    ]
}

/// Lists the signing keys: first active, then next, then retired ones.
#[utoipa::path(get, path = "/keys", tag = "keys", params(ListKeys),
    responses((status = 200, description = "a page of keys", body = Page<KeyView>)))]
async fn list_keys(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().list_keys(&call.query::<ListKeys>()?).await?))
}

/// Activates the next key of an algorithm.
#[utoipa::path(post, path = "/keys/rotate", tag = "keys", request_body = RotateKey,
    responses((status = 200, description = "all keys after the change", body = KeyList),
        (status = 409, description = "the next key is too recent: caches may lack it", body = ErrorBody)))]
async fn rotate_key(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().rotate_key(&call.body::<RotateKey>()?).await?))
}

/// Revokes a leaked key: it is no longer published, its tokens become invalid, and its successor
/// signs immediately.
#[utoipa::path(delete, path = "/keys/{kid}", tag = "keys",
    params(("kid" = String, Path, description = "identifier of the key")),
    responses((status = 200, description = "all keys after the change", body = KeyList),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "keys changed concurrently", body = ErrorBody)))]
async fn revoke_key(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().revoke_key(call.path_parameter("kid")).await?))
}

/// Returns the status of a token.
#[utoipa::path(post, path = "/tokens/inspect", tag = "tokens", request_body = TokenText,
    responses((status = 200, description = "the status of the token", body = TokenView)))]
async fn inspect_token(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().token(&call.body::<TokenText>()?).await?))
}

/// Revokes a token: an access token alone, a refresh token with its family.
#[utoipa::path(post, path = "/tokens/revoke", tag = "tokens", request_body = TokenText,
    responses((status = 200, description = "revoked", body = Revoked),
        (status = 404, description = "the token is unknown, expired or revoked", body = ErrorBody)))]
async fn revoke_token(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().revoke_token(&call.body::<TokenText>()?).await?))
}

/// Revokes leaked tokens, given as text or as `jti`, in one transaction. A body has at most 64 KiB:
/// about a hundred JWTs.
#[utoipa::path(post, path = "/tokens/revoke-list", tag = "tokens", request_body = TokenList,
    responses((status = 200, description = "revoked", body = RevokedTokens)))]
async fn revoke_tokens(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().revoke_tokens(&call.body::<TokenList>()?).await?))
}

/// Revokes everything that a client holds, or holds on behalf of one user.
#[utoipa::path(post, path = "/tokens/revoke-all", tag = "tokens", request_body = RevokeAll,
    responses((status = 200, description = "revoked", body = Revoked),
        (status = 404, description = "client or user not found", body = ErrorBody)))]
async fn revoke_all(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().revoke_all(&call.body::<RevokeAll>()?).await?))
}

/// Lists valid token families: all tokens that follow from one authorization.
#[utoipa::path(get, path = "/families", tag = "tokens", params(ListFamilies),
    responses((status = 200, description = "a page of token families", body = Page<FamilyView>)))]
async fn list_families(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().families(&call.query::<ListFamilies>()?).await?))
}

/// Revokes a family with all its tokens.
#[utoipa::path(delete, path = "/families/{id}", tag = "tokens",
    params(("id" = String, Path, description = "id of the token family")),
    responses((status = 204, description = "revoked"), (status = 404, description = "not found", body = ErrorBody)))]
async fn revoke_family(call: Call) -> Result<Response, AdminFault> {
    call.admin().revoke_family(call.path_parameter("id")).await?;
    Ok(no_content())
}

/// Lists the consumers of the revocation log and how far each has applied it.
#[utoipa::path(get, path = "/revocation/consumers", tag = "revocation", params(ListFollowers),
    responses((status = 200, description = "a page of consumers", body = FollowerList)))]
async fn list_followers(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().list_followers(&call.query::<ListFollowers>()?).await?))
}

/// Waits until everything revoked so far is refused everywhere: normally milliseconds, at most one
/// lease.
#[utoipa::path(post, path = "/revocation/wait", tag = "revocation",
    responses((status = 200, description = "everything revoked so far is refused everywhere", body = InForce)))]
async fn wait_for_followers(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().in_force().await?))
}

/// Lists the audit log, the oldest entries first.
#[utoipa::path(get, path = "/audit", tag = "audit", params(ListEntries),
    responses((status = 200, description = "a page of entries", body = Page<AuditEntry>)))]
async fn list_entries(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().audit_log(&call.query::<ListEntries>()?).await?))
}

/// Verifies the whole audit log.
#[utoipa::path(get, path = "/audit/verdict", tag = "audit",
    responses((status = 200, description = "the result", body = AuditVerdict)))]
async fn verify_entries(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().verify_audit_log().await?))
}
