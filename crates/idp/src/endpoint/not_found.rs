//! Addresses without an endpoint: a page for people, an error for programs.

use std::sync::Arc;

use ::pages::negotiation;
use axum::{
    body::Body,
    extract::State,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{ACCEPT_LANGUAGE, LOCATION},
    },
    response::Response,
};

use super::answer;
use crate::oauth::error::OAuthFault;
use crate::pages::{ErrorKind, ErrorPage, Page};
use crate::paths;
use crate::provider::Provider;

/// Answers a request for an address without an endpoint. A person who opens the address of the
/// provider itself gets to the account page.
pub async fn not_found(
    State(provider): State<Arc<Provider>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let fields = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    if !negotiation::wants_page(fields) {
        return answer::refuse(&OAuthFault::NotFound, provider.challenge(), None);
    }
    let issuer = provider.issuer();
    let is_home = uri.path().trim_end_matches('/') == issuer.path();
    if is_home
        && matches!(method, Method::GET | Method::HEAD)
        && let Ok(location) = HeaderValue::try_from(issuer.endpoint(paths::ACCOUNT))
    {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SEE_OTHER;
        response.headers_mut().insert(LOCATION, location);
        return response;
    }
    let accepted = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    let language = provider.pages().languages().choose(None, accepted);
    let id = provider.draw_id().unwrap_or_default();
    tracing::debug!(request = id, "no page at this address");
    let page = Page::Error(ErrorPage { kind: ErrorKind::NotFound, request_id: &id, back: None });
    provider.pages().answer(language, &page)
}
