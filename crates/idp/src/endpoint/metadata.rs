//! Public documents: discovery metadata and the key set.

use std::sync::Arc;

use axum::{extract::State, response::Response};

use super::answer;
use crate::provider::Provider;

/// Handles `GET /.well-known/openid-configuration`.
pub async fn openid(State(provider): State<Arc<Provider>>) -> Response {
    answer::document(provider.openid_document(), provider.document_cache())
}

/// Handles `GET /.well-known/oauth-authorization-server`.
pub async fn oauth(State(provider): State<Arc<Provider>>) -> Response {
    answer::document(provider.oauth_document(), provider.document_cache())
}

/// Handles `GET /jwks` (RFC 7517 §5). A new key is published for longer than any cache stores the
/// response before it signs anything.
pub async fn jwks(State(provider): State<Arc<Provider>>) -> Response {
    answer::document(provider.jwks(), provider.document_cache())
}
