//! Administration endpoints for clients.

use axum::{http::Method, response::Response};

use super::{ErrorBody, OperationInput, Route, access::Right, call::Call, created, no_content, ok};
use crate::admin::{
    AdminFault, Page,
    clients::{AddClient, ClientChanged, ClientView, ListClients, ReplaceClient},
};

pub(super) fn routes() -> Vec<Route> {
    use OperationInput::{Body, Nothing, Query};
    use Right::{Read, Write};
    vec![
        Route::new(Method::GET, "/clients", Read, Query, list_clients),
        Route::new(Method::POST, "/clients", Write, Body, add_client),
        Route::new(Method::GET, "/clients/{id}", Read, Nothing, show_client),
        Route::new(Method::PUT, "/clients/{id}", Write, Body, replace_client),
        Route::new(Method::DELETE, "/clients/{id}", Write, Nothing, delete_client),
        Route::new(Method::POST, "/clients/{id}/secret", Write, Nothing, rotate_secret),
        Route::new(Method::POST, "/clients/{id}/disable", Write, Nothing, disable_client),
        Route::new(Method::POST, "/clients/{id}/enable", Write, Nothing, enable_client),
    ]
}

/// Lists clients: those of the configuration, then the registered ones, each ordered by id.
#[utoipa::path(get, path = "/clients", tag = "clients", params(ListClients),
    responses((status = 200, description = "a page of clients", body = Page<ClientView>)))]
async fn list_clients(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().clients(&call.query::<ListClients>()?).await?))
}

/// Registers a client. A secret is generated and returned once, unless the client has keys or is
/// public.
#[utoipa::path(post, path = "/clients", tag = "clients", request_body = AddClient,
    responses((status = 201, description = "registered", body = ClientChanged),
        (status = 409, description = "id already in use", body = ErrorBody)))]
async fn add_client(call: Call) -> Result<Response, AdminFault> {
    Ok(created(&call.admin().add_client(call.body::<AddClient>()?).await?))
}

/// Returns one client.
#[utoipa::path(get, path = "/clients/{id}", tag = "clients",
    params(("id" = String, Path, description = "id or name of the client")),
    responses((status = 200, description = "the client", body = ClientView),
        (status = 404, description = "not found", body = ErrorBody)))]
async fn show_client(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().client(&call.client("id").await?).await?))
}

/// Replaces the settings of a client if it still has the given version. Its tokens stay valid.
#[utoipa::path(put, path = "/clients/{id}", tag = "clients",
    params(("id" = String, Path, description = "id or name of the client")), request_body = ReplaceClient,
    responses((status = 200, description = "changed", body = ClientChanged),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "the version differs, or the client is defined in the configuration", body = ErrorBody)))]
async fn replace_client(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().replace_client(&call.client("id").await?, call.body::<ReplaceClient>()?).await?))
}

/// Deletes a client, revokes its tokens and deletes users' consents to it.
#[utoipa::path(delete, path = "/clients/{id}", tag = "clients",
    params(("id" = String, Path, description = "id or name of the client")),
    responses((status = 204, description = "deleted"), (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "the client is defined in the configuration", body = ErrorBody)))]
async fn delete_client(call: Call) -> Result<Response, AdminFault> {
    call.admin().delete_client(&call.client("id").await?).await?;
    Ok(no_content())
}

/// Generates a new secret and returns it once. The previous secret stays valid until the next
/// rotation.
#[utoipa::path(post, path = "/clients/{id}/secret", tag = "clients",
    params(("id" = String, Path, description = "id or name of the client")),
    responses((status = 200, description = "secret generated", body = ClientChanged),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "the client is defined in the configuration", body = ErrorBody)))]
async fn rotate_secret(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().rotate_secret(&call.client("id").await?).await?))
}

/// Disables a client and revokes its tokens.
#[utoipa::path(post, path = "/clients/{id}/disable", tag = "clients",
    params(("id" = String, Path, description = "id or name of the client")),
    responses((status = 200, description = "disabled", body = ClientView),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "the client is defined in the configuration", body = ErrorBody)))]
async fn disable_client(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().disable_client(&call.client("id").await?).await?))
}

/// Enables a disabled client. Revoked tokens stay revoked.
#[utoipa::path(post, path = "/clients/{id}/enable", tag = "clients",
    params(("id" = String, Path, description = "id or name of the client")),
    responses((status = 200, description = "enabled", body = ClientView),
        (status = 404, description = "not found", body = ErrorBody),
        (status = 409, description = "the client is defined in the configuration", body = ErrorBody)))]
async fn enable_client(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().enable_client(&call.client("id").await?).await?))
}
