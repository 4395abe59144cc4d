//! The token endpoint (RFC 6749 §3.2).
//!
//! Owns: what a token request is as HTTP: a form, and a client that proves itself.
//! Does not own: the meaning of its parameters ([`crate::client`], [`crate::grants`]).

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};

use super::{answer, form};
use crate::{
    client::authenticate::authenticate,
    grants::{self, GrantType},
    oauth::error::Fault,
    provider::Provider,
    session::Caller,
};

/// `POST /token`.
pub async fn token(
    State(provider): State<Arc<Provider>>,
    caller: Option<Extension<Caller>>,
    request: Request,
) -> Response {
    let caller = caller.map(|Extension(caller)| caller).unwrap_or_default();
    let (parts, body) = request.into_parts();
    let refuse = |fault: Fault, client| answer::refuse(&fault, provider.challenge(), client);
    let form = match form::read(&parts, body).await {
        Ok(form) => form,
        Err(fault) => return refuse(fault, None),
    };
    let Some(grant) = form.get("grant_type").map(GrantType::from_wire) else {
        return refuse(Fault::GrantTypeMissing, None);
    };
    let client = match authenticate(&provider, &parts.headers, &form).await {
        Ok(client) => client,
        Err(fault) => return refuse(fault, None),
    };
    // that a grant does not exist is told to authenticated clients only
    let issued = match grant {
        Ok(grant) => grants::issue(&provider, &client, grant, &form, caller).await,
        Err(fault) => Err(fault),
    };
    match issued {
        Ok(response) => answer::json(StatusCode::OK, &response),
        Err(fault) => refuse(fault, Some(client.id())),
    }
}
