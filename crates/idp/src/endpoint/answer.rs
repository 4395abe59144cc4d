//! Responses: JSON without caching, and the one place that logs and sends an [`OAuthFault`].
//!
//! Owns: headers of every response ([`add_security_headers`]), success and error bodies, and the
//! response to an unsupported method (`only`). Does not own: the meaning of faults
//! ([`crate::oauth::error`]).

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, PRAGMA, REFERRER_POLICY, RETRY_AFTER,
            WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    response::Response,
    routing::MethodRouter,
};
use serde::Serialize;

use crate::{
    oauth::error::{LogLevel, OAuthFault},
    provider::Provider,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A JSON response that caches do not store (RFC 6749 §5.1).
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let Ok(body) = serde_json::to_vec(body) else {
        // Serialization of our own types does not fail; if it does, the response has no body.
        return with_headers(StatusCode::INTERNAL_SERVER_ERROR, Body::empty(), &[(CACHE_CONTROL, NO_STORE)]);
    };
    let no_cache = HeaderValue::from_static("no-cache");
    with_headers(
        status,
        Body::from(body),
        &[(CONTENT_TYPE, JSON), (CACHE_CONTROL, NO_STORE), (PRAGMA, no_cache)],
    )
}

/// A public JSON document with this `Cache-Control`.
pub fn document(body: Bytes, cache: &HeaderValue) -> Response {
    with_headers(StatusCode::OK, Body::from(body), &[(CONTENT_TYPE, JSON), (CACHE_CONTROL, cache.clone())])
}

#[derive(Serialize)]
struct ErrorBody {
    error: &'static str,
    error_description: Cow<'static, str>,
}

/// The response to a refused request; also writes its log line. `challenge` is sent with 401 (RFC
/// 9110 §15.5.2); `client` is the authenticated client, only for the log.
pub fn refuse(fault: &OAuthFault, challenge: &HeaderValue, client: Option<&str>) -> Response {
    let row = fault.response();
    log(fault, row.level, client);
    let mut response = json(row.status, &ErrorBody { error: row.code, error_description: row.text });
    if let Some(after) = row.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after(after)));
    }
    if row.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge.clone());
    }
    response
}

/// Whole seconds, rounded up, at least one.
pub(crate) fn retry_after(after: Duration) -> u64 {
    after.as_millis().div_ceil(1000).max(1).try_into().unwrap_or(u64::MAX)
}

fn log(fault: &OAuthFault, loudness: LogLevel, client: Option<&str>) {
    let error = fault.response().code;
    match loudness {
        LogLevel::Debug => tracing::debug!(error, reason = %fault, client, "request refused"),
        LogLevel::Info => tracing::info!(error, reason = %fault, client, "request refused"),
        LogLevel::Warn => tracing::warn!(error, reason = %fault, client, "request refused"),
        LogLevel::Error => tracing::error!(error, reason = %fault, client, "request failed"),
    }
}

/// Adds the headers of every response: no content sniffing, no framing, no referrer. Unless the
/// endpoint sets them, also no caching and a policy that loads nothing; pages allow their style
/// sheet.
pub async fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let policy = "default-src 'none'; frame-ancestors 'none'";
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(policy));
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    response
}

fn with_headers(status: StatusCode, body: Body, fields: &[(HeaderName, HeaderValue)]) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in fields {
        headers.insert(name, value.clone());
    }
    response
}

/// Responds to other methods with 405; axum derives `Allow` from the routes (`GET` includes
/// `HEAD`).
pub(crate) fn allow_only(methods: MethodRouter<Arc<Provider>>) -> MethodRouter<Arc<Provider>> {
    methods.fallback(method_not_allowed)
}

async fn method_not_allowed(State(provider): State<Arc<Provider>>) -> Response {
    refuse(&OAuthFault::MethodNotAllowed, provider.challenge(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_say_otherwise_is_not_stored() {
        let bare = add_security_headers(Response::new(Body::empty())).await;
        assert_eq!(bare.headers()[CACHE_CONTROL], "no-store");
        let public = add_security_headers(document(Bytes::new(), &HeaderValue::from_static("public"))).await;
        assert_eq!(public.headers()[CACHE_CONTROL], "public");
        assert_eq!(public.headers().get_all(CACHE_CONTROL).iter().count(), 1);
    }

    #[tokio::test]
    async fn a_page_keeps_its_own_policy_and_everything_else_may_load_nothing() {
        let bare = add_security_headers(Response::new(Body::empty())).await;
        assert_eq!(bare.headers()[CONTENT_SECURITY_POLICY], "default-src 'none'; frame-ancestors 'none'");
        let mut page = Response::new(Body::empty());
        page.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'"));
        let page = add_security_headers(page).await;
        assert_eq!(page.headers().get_all(CONTENT_SECURITY_POLICY).iter().count(), 1);
        assert_eq!(page.headers()[CONTENT_SECURITY_POLICY], "default-src 'self'");
    }
}
