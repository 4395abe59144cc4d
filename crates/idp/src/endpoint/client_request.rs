//! Client request: a form and client authentication in the same request.
//!
//! Owns: the common part of the endpoints that clients call. Does not own: the client's rights
//! there.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, Request},
    response::Response,
};

use super::{answer, form};
use crate::client_authentication::{AuthenticatedClient, authenticate};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::provider::Provider;

/// A request of an authenticated or public client.
pub struct ClientRequest {
    /// The client that sent the request.
    pub client: AuthenticatedClient,
    /// Parameters of the request.
    pub form: Form,
}

impl FromRequest<Arc<Provider>> for ClientRequest {
    /// The error response for any other request.
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
    /// A required parameter.
    ///
    /// # Errors
    /// [`OAuthFault::ParameterMissing`] when it is absent.
    pub fn required(&self, name: &'static str) -> Result<&str, OAuthFault> {
        self.form.get(name).ok_or(OAuthFault::ParameterMissing(name))
    }

    /// The response for an outcome; logs a fault with the client.
    pub fn answered(&self, provider: &Provider, outcome: Result<Response, OAuthFault>) -> Response {
        outcome.unwrap_or_else(|fault| answer::refuse(&fault, provider.challenge(), Some(self.client.id())))
    }
}
