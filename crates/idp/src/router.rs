//! The routes: which path and method reaches which endpoint.
//!
//! Owns: the paths below the issuer, 405 with `Allow` for other methods, 404, and the headers of every answer.
//! Does not own: listening, TLS, limits on the head of a request.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    middleware,
    response::Response,
    routing::{MethodRouter, get, post},
};

use crate::{
    discovery,
    endpoint::{answer, documents, token},
    oauth::error::Fault,
    provider::Provider,
};

/// The provider as a service. Paths begin with the issuer's path, except the well-known ones of RFC 8414
/// §3.1 that precede it; mount the router at the root of the issuer's host.
pub fn router(provider: Arc<Provider>) -> Router {
    let issuer = provider.issuer().clone();
    let mut router = Router::new();
    for path in discovery::openid_paths(&issuer) {
        router = router.route(&path, only(get(documents::openid)));
    }
    for path in discovery::oauth_paths(&issuer) {
        router = router.route(&path, only(get(documents::oauth)));
    }
    let below = |path: &str| format!("{}{path}", issuer.path());
    router
        .route(&below(discovery::JWKS), only(get(documents::jwks)))
        .route(&below(discovery::TOKEN), only(post(token::token)))
        .fallback(not_found)
        .layer(middleware::map_response(answer::harden))
        .with_state(provider)
}

/// Other methods get 405; axum writes `Allow` from the methods there are (`GET` brings `HEAD`).
fn only(methods: MethodRouter<Arc<Provider>>) -> MethodRouter<Arc<Provider>> {
    methods.fallback(method_not_allowed)
}

async fn method_not_allowed(State(provider): State<Arc<Provider>>) -> Response {
    answer::refuse(&Fault::MethodNotAllowed, provider.challenge(), None)
}

async fn not_found(State(provider): State<Arc<Provider>>) -> Response {
    answer::refuse(&Fault::NotFound, provider.challenge(), None)
}
