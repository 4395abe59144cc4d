//! Pushed authorization requests (RFC 9126): the client sends its request directly, not through the
//! browser.

use std::sync::Arc;

use auth::token::opaque::OpaqueKind;
use axum::{extract::State, http::StatusCode, response::Response};
use serde::Serialize;
use store::pushed_requests::PushRequest;

use super::{
    answer,
    authorize::{NESTED, PUSHED_URN, refusal, rights},
    client_request::ClientRequest,
};
use crate::authorization::request::read;
use crate::client_authentication::AuthenticatedClient;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::provider::Provider;

#[derive(Serialize)]
struct PushResponse {
    request_uri: String,
    /// Lifetime of the request in seconds.
    expires_in: u64,
}

/// Handles `POST /par`: checks and stores a request.
pub async fn push(State(provider): State<Arc<Provider>>, request: ClientRequest) -> Response {
    let pushed = store_request(&provider, &request.client, &request.form).await;
    request.answered(&provider, pushed.map(|pushed| answer::json(StatusCode::CREATED, &pushed)))
}

async fn store_request(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<PushResponse, OAuthFault> {
    if !client.may_use(GrantType::AuthorizationCode) {
        return Err(OAuthFault::GrantNotAllowed);
    }
    if form.get("request_uri").is_some() {
        return Err(OAuthFault::Request(NESTED));
    }
    read(form, rights(client)).map_err(|refused| refusal(&refused))?;
    client.audiences_for(form)?;
    let token = provider.draw_token(OpaqueKind::Pushed)?;
    let lifetime = provider.lifetimes().pushed_request;
    let push = PushRequest {
        digest: provider.secrets().digest(&token),
        client_id: client.id().to_owned(),
        // Credentials of the client are not stored.
        parameters: form.without(&["client_secret", "client_assertion", "client_assertion_type"]).to_query(),
        expires_at: provider.now().plus(lifetime),
    };
    provider.store().write(push).await?;
    Ok(PushResponse { request_uri: format!("{PUSHED_URN}{}", &**token), expires_in: lifetime.as_secs() })
}
