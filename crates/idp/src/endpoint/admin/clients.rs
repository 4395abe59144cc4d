//! Clients.

use axum::{http::Method, response::Response};

use super::{ErrorBody, Route, Takes, access::Right, call::Call, done, found, made};
use crate::admin::{
    AdminFault, Page,
    clients::{AddClient, ClientChanged, ClientView, ListClients, ReplaceClient},
};

pub(super) fn routes() -> Vec<Route> {
    use Right::{Read, Write};
    use Takes::{Body, Nothing, Query};
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

/// Clients: those of the configuration, then the others, each in the order of their ids.
#[utoipa::path(get, path = "/clients", tag = "clients", params(ListClients),
    responses((status = 200, description = "a page of clients", body = Page<ClientView>)))]
async fn list_clients(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().clients(&call.query::<ListClients>()?).await?))
}

/// Registers a client. Unless it has keys or is public a secret is made and answered, once.
#[utoipa::path(post, path = "/clients", tag = "clients", request_body = AddClient,
    responses((status = 201, description = "registered", body = ClientChanged),
        (status = 409, description = "there is one of this id", body = ErrorBody)))]
async fn add_client(call: Call) -> Result<Response, AdminFault> {
    Ok(made(&call.admin().add_client(call.body::<AddClient>()?).await?))
}

/// A client.
#[utoipa::path(get, path = "/clients/{id}", tag = "clients",
    params(("id" = String, Path, description = "of the client")),
    responses((status = 200, description = "the client", body = ClientView),
        (status = 404, description = "there is none", body = ErrorBody)))]
async fn show_client(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().client(call.part("id")).await?))
}

/// Gives a client other settings, if it still has the version that they were made from. What it holds goes on.
#[utoipa::path(put, path = "/clients/{id}", tag = "clients",
    params(("id" = String, Path, description = "of the client")), request_body = ReplaceClient,
    responses((status = 200, description = "changed", body = ClientChanged),
        (status = 404, description = "there is none", body = ErrorBody),
        (status = 409, description = "it has another version, or stands in the configuration", body = ErrorBody)))]
async fn replace_client(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().replace_client(call.part("id"), call.body::<ReplaceClient>()?).await?))
}

/// Deletes a client, revokes what it holds, and forgets what people allowed it.
#[utoipa::path(delete, path = "/clients/{id}", tag = "clients",
    params(("id" = String, Path, description = "of the client")),
    responses((status = 204, description = "deleted"), (status = 404, description = "there is none", body = ErrorBody),
        (status = 409, description = "it stands in the configuration", body = ErrorBody)))]
async fn delete_client(call: Call) -> Result<Response, AdminFault> {
    call.admin().delete_client(call.part("id")).await?;
    Ok(done())
}

/// Makes another secret and answers it, once. The one before counts until the next time.
#[utoipa::path(post, path = "/clients/{id}/secret", tag = "clients",
    params(("id" = String, Path, description = "of the client")),
    responses((status = 200, description = "made", body = ClientChanged),
        (status = 404, description = "there is none", body = ErrorBody),
        (status = 409, description = "it stands in the configuration", body = ErrorBody)))]
async fn rotate_secret(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().rotate_secret(call.part("id")).await?))
}

/// Closes a client, and revokes what it holds.
#[utoipa::path(post, path = "/clients/{id}/disable", tag = "clients",
    params(("id" = String, Path, description = "of the client")),
    responses((status = 200, description = "closed", body = ClientView),
        (status = 404, description = "there is none", body = ErrorBody),
        (status = 409, description = "it stands in the configuration", body = ErrorBody)))]
async fn disable_client(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().disable_client(call.part("id")).await?))
}

/// Opens a closed client again. Nothing that was revoked comes back.
#[utoipa::path(post, path = "/clients/{id}/enable", tag = "clients",
    params(("id" = String, Path, description = "of the client")),
    responses((status = 200, description = "open", body = ClientView),
        (status = 404, description = "there is none", body = ErrorBody),
        (status = 409, description = "it stands in the configuration", body = ErrorBody)))]
async fn enable_client(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().enable_client(call.part("id")).await?))
}
