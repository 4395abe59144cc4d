//! Administration endpoints for users and sessions.

use axum::{http::Method, response::Response};

use super::{ErrorBody, OperationInput, Route, access::Right, call::Call, created, no_content, ok};
use crate::admin::{
    AdminFault, Page,
    links::{LinkView, NewLink},
    sessions::{ListSessions, SessionView},
    users::{AddUser, ListUsers, PasswordSet, SetPassword, UserAdded, UserChange, UserDetails, UserView},
};

pub(super) fn routes() -> Vec<Route> {
    use OperationInput::{Body, Nothing, Query};
    use Right::{Read, Write};
    vec![
        Route::new(Method::GET, "/users", Read, Query, list_users),
        Route::new(Method::POST, "/users", Write, Body, add_user),
        Route::new(Method::GET, "/users/{id}", Read, Nothing, show_user),
        Route::new(Method::PATCH, "/users/{id}", Write, Body, change_user),
        Route::new(Method::DELETE, "/users/{id}", Write, Nothing, delete_user),
        Route::new(Method::POST, "/users/{id}/password", Write, Body, set_password),
        Route::new(Method::POST, "/users/{id}/invitation", Write, Body, invite_user),
        Route::new(Method::POST, "/users/{id}/reset-link", Write, Body, create_reset_link),
        Route::new(Method::POST, "/users/{id}/disable", Write, Nothing, disable_user),
        Route::new(Method::POST, "/users/{id}/enable", Write, Nothing, enable_user),
        Route::new(Method::POST, "/users/{id}/unlock", Write, Nothing, unlock_user),
        Route::new(Method::POST, "/users/{id}/revoke", Write, Nothing, end_user),
        Route::new(Method::GET, "/sessions", Read, Query, list_sessions),
        Route::new(Method::GET, "/sessions/{sid}", Read, Nothing, show_session),
        Route::new(Method::DELETE, "/sessions/{sid}", Write, Nothing, end_session),
    ]
}

/// Lists accounts, ordered by name.
#[utoipa::path(get, path = "/users", tag = "users", params(ListUsers),
    responses((status = 200, description = "a page of accounts", body = Page<UserView>)))]
async fn list_users(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().users(&call.query::<ListUsers>()?).await?))
}

/// Creates an account.
#[utoipa::path(post, path = "/users", tag = "users", request_body = AddUser,
    responses((status = 201, description = "created", body = UserAdded),
        (status = 409, description = "name or address already in use", body = ErrorBody)))]
async fn add_user(call: Call) -> Result<Response, AdminFault> {
    Ok(created(&call.admin().add_user(call.body::<AddUser>()?).await?))
}

/// Returns an account with its groups and login state.
#[utoipa::path(get, path = "/users/{id}", tag = "users", params(("id" = String, Path, description = "id, name or email address of the user")),
    responses((status = 200, description = "the account", body = UserDetails),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn show_user(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().user(&call.user("id").await?).await?))
}

/// Changes name, address or claims. Absent members stay unchanged; the user's tokens stay valid.
#[utoipa::path(patch, path = "/users/{id}", tag = "users", params(("id" = String, Path, description = "id, name or email address of the user")),
    request_body = UserChange,
    responses((status = 200, description = "changed", body = UserView),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "name or address already in use", body = ErrorBody)))]
async fn change_user(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().change_user(&call.user("id").await?, call.body::<UserChange>()?).await?))
}

/// Deletes an account with everything that belongs to it.
#[utoipa::path(delete, path = "/users/{id}", tag = "users", params(("id" = String, Path, description = "id, name or email address of the user")),
    responses((status = 204, description = "deleted"), (status = 404, description = "not found", body = ErrorBody)))]
async fn delete_user(call: Call) -> Result<Response, AdminFault> {
    call.admin().delete_user(&call.user("id").await?).await?;
    Ok(no_content())
}

/// Sets a password, or generates one and returns it once. Revokes everything that began with the
/// old password.
#[utoipa::path(post, path = "/users/{id}/password", tag = "users",
    params(("id" = String, Path, description = "id, name or email address of the user")), request_body = SetPassword,
    responses((status = 200, description = "set", body = PasswordSet),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn set_password(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().set_password(&call.user("id").await?, call.body::<SetPassword>()?).await?))
}

/// Creates a link with which the user of a new account sets the first password, and returns it once.
#[utoipa::path(post, path = "/users/{id}/invitation", tag = "users",
    params(("id" = String, Path, description = "id, name or email address of the user")), request_body = NewLink,
    responses((status = 201, description = "created; it replaces an earlier link of the user", body = LinkView),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "the account has a password or is disabled", body = ErrorBody)))]
async fn invite_user(call: Call) -> Result<Response, AdminFault> {
    Ok(created(&call.admin().invite_user(&call.user("id").await?, &call.body::<NewLink>()?).await?))
}

/// Creates a link with which the user sets another password, and returns it once.
#[utoipa::path(post, path = "/users/{id}/reset-link", tag = "users",
    params(("id" = String, Path, description = "id, name or email address of the user")), request_body = NewLink,
    responses((status = 201, description = "created; it replaces an earlier link of the user", body = LinkView),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "the account is disabled", body = ErrorBody)))]
async fn create_reset_link(call: Call) -> Result<Response, AdminFault> {
    Ok(created(&call.admin().create_reset_link(&call.user("id").await?, &call.body::<NewLink>()?).await?))
}

/// Disables an account, ends its sessions and revokes its tokens.
#[utoipa::path(post, path = "/users/{id}/disable", tag = "users",
    params(("id" = String, Path, description = "id, name or email address of the user")),
    responses((status = 200, description = "disabled", body = UserView),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn disable_user(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().disable_user(&call.user("id").await?).await?))
}

/// Enables a disabled account. Revoked tokens stay revoked.
#[utoipa::path(post, path = "/users/{id}/enable", tag = "users",
    params(("id" = String, Path, description = "id, name or email address of the user")),
    responses((status = 200, description = "enabled", body = UserView),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn enable_user(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().enable_user(&call.user("id").await?).await?))
}

/// Deletes the failure record of an account, so the user can log in immediately.
#[utoipa::path(post, path = "/users/{id}/unlock", tag = "users",
    params(("id" = String, Path, description = "id, name or email address of the user")),
    responses((status = 200, description = "unlocked", body = UserView),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn unlock_user(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().unlock_user(&call.user("id").await?).await?))
}

/// Ends all sessions of a user and revokes all tokens: logout everywhere.
#[utoipa::path(post, path = "/users/{id}/revoke", tag = "users",
    params(("id" = String, Path, description = "id, name or email address of the user")),
    responses((status = 200, description = "sessions ended and tokens revoked", body = UserView),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn end_user(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().end_user(&call.user("id").await?).await?))
}

/// Lists sessions that have not ended, ordered by `sid`.
#[utoipa::path(get, path = "/sessions", tag = "sessions", params(ListSessions),
    responses((status = 200, description = "a page of sessions", body = Page<SessionView>)))]
async fn list_sessions(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().sessions(&call.query::<ListSessions>()?).await?))
}

/// Returns a session, ended or not.
#[utoipa::path(get, path = "/sessions/{sid}", tag = "sessions",
    params(("sid" = String, Path, description = "sid of the session")),
    responses((status = 200, description = "the session", body = SessionView),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn show_session(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().session(call.path_parameter("sid")).await?))
}

/// Ends a session, revokes what was granted in it and notifies its clients.
#[utoipa::path(delete, path = "/sessions/{sid}", tag = "sessions",
    params(("sid" = String, Path, description = "sid of the session")),
    responses((status = 204, description = "ended"), (status = 404, description = "not found", body = ErrorBody)))]
async fn end_session(call: Call) -> Result<Response, AdminFault> {
    call.admin().end_session(call.path_parameter("sid")).await?;
    Ok(no_content())
}
