//! What programs of clients ask: a form, and a client that proves itself in the same request.
//!
//! Owns: the path common to the endpoints that clients call. Does not own: what a client may do there.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, Request},
    response::Response,
};

use super::{answer, form};
use crate::{
    client::authenticate::{AuthenticatedClient, authenticate},
    oauth::{error::OAuthFault, form::Form},
    provider::Provider,
};

/// A request of a client that proved itself, or has nothing to prove.
pub struct ClientRequest {
    /// Who asks.
    pub client: AuthenticatedClient,
    /// What.
    pub form: Form,
}

impl FromRequest<Arc<Provider>> for ClientRequest {
    /// The answer to what is no such request.
    type Rejection = Response;

    async fn from_request(request: Request, provider: &Arc<Provider>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let read = async {
            let form = form::read(&parts, body).await?;
            let client = authenticate(provider, &parts.headers, &form).await?;
            Ok(Self { client, form })
        };
        read.await.map_err(|fault: OAuthFault| answer::refuse(&fault, provider.challenge(), None))
    }
}

impl ClientRequest {
    /// A parameter that must be there.
    pub fn required(&self, name: &'static str) -> Result<&str, OAuthFault> {
        self.form.get(name).ok_or(OAuthFault::ParameterMissing(name))
    }

    /// The answer to it: what came of it, or why nothing did.
    pub fn answered(&self, provider: &Provider, outcome: Result<Response, OAuthFault>) -> Response {
        outcome.unwrap_or_else(|fault| answer::refuse(&fault, provider.challenge(), Some(self.client.id())))
    }
}
