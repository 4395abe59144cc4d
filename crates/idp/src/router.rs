//! Router: maps each path and method to an endpoint.
//!
//! Owns: the paths below the issuer, 404, the headers of every response, and which responses
//! scripts of other sites may read (CORS).
//!
//! Does not own: listening, TLS, limits on the head of a request, the response to other methods
//! ([`allow_only`]).

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{
        HeaderValue, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_MAX_AGE,
        },
    },
    middleware,
    response::Response,
    routing::{MethodRouter, get, post},
};

use crate::discovery;
use crate::endpoint::answer::{self, allow_only};
use crate::endpoint::{
    account, account_link, admin, authorize, device, forgot_password, introspect, login, logout, metadata,
    not_found, par, revoke, signals, token, userinfo,
};
use crate::paths;
use crate::provider::Provider;

/// The provider as a service. Paths begin with the issuer's path, except the well-known ones of RFC
/// 8414 §3.1 that precede it. Mount the router at the root of the issuer's host. Requests may carry
/// a [`Caller`](crate::session::Caller) as an extension.
pub fn router(provider: Arc<Provider>) -> Router {
    let issuer = provider.issuer().clone();
    // Endpoints that browser applications call by script, with a token or without credentials,
    // never with cookies.
    let mut shared = Router::new();
    for path in discovery::openid_paths(&issuer) {
        shared = shared.route(&path, with_preflight(get(metadata::openid)));
    }
    for path in discovery::oauth_paths(&issuer) {
        shared = shared.route(&path, with_preflight(get(metadata::oauth)));
    }
    for path in discovery::signals_paths(&issuer) {
        shared = shared.route(&path, with_preflight(get(signals::configuration)));
    }
    let below = |path: &str| format!("{}{path}", issuer.path());
    let shared = shared
        .route(&below(paths::JWKS), with_preflight(get(metadata::jwks)))
        .route(&below(paths::TOKEN), with_preflight(post(token::token)))
        .route(&below(paths::REVOKE), with_preflight(post(revoke::revoke)))
        .route(&below(paths::USERINFO), with_preflight(get(userinfo::userinfo).post(userinfo::userinfo)))
        .layer(middleware::map_response(allow_any_origin));
    // Endpoints that other programs call.
    let api = Router::new()
        .route(&below(paths::INTROSPECT), allow_only(post(introspect::introspect)))
        .route(&below(paths::PUSHED_REQUEST), allow_only(post(par::push)))
        .route(&below(paths::DEVICE_AUTHORIZATION), allow_only(post(device::begin)))
        .route(&below(paths::EVENTS), allow_only(post(signals::poll)));
    // Pages and their forms.
    let pages = Router::new()
        .route(&below(paths::AUTHORIZE), allow_only(get(authorize::get).post(authorize::post)))
        .route(&below(paths::LOGIN), allow_only(get(login::resume).post(login::login)))
        .route(&below(paths::NEW_PASSWORD), allow_only(post(login::new_password::submit)))
        .route(&below(paths::ACCOUNT_LINK), allow_only(get(account_link::show).post(account_link::submit)))
        .route(
            &below(paths::FORGOT_PASSWORD),
            allow_only(get(forgot_password::show).post(forgot_password::submit)),
        )
        .route(&below(paths::CONSENT), allow_only(get(login::resume).post(authorize::consent)))
        .route(&below(paths::END_SESSION), allow_only(get(logout::logout).post(logout::logout)))
        .route(&below(paths::LOGOUT_DECISION), allow_only(post(logout::decide)))
        .route(&below(paths::DEVICE), allow_only(get(device::show).post(device::submit_code)))
        .route(&below(paths::DEVICE_DECISION), allow_only(post(device::decide)))
        .merge(account::routes(&below(paths::ACCOUNT)));
    shared
        .merge(api)
        .merge(pages)
        .merge(admin::routes(&below(admin::PATH)))
        .fallback(not_found::not_found)
        .layer(middleware::map_response(answer::add_security_headers))
        .with_state(provider)
}

/// Refuses other methods, and answers preflight requests of scripts of other sites.
fn with_preflight(methods: MethodRouter<Arc<Provider>>) -> MethodRouter<Arc<Provider>> {
    allow_only(methods.options(preflight))
}

/// Lets scripts of any site read the response: its content does not depend on the browser's
/// cookies.
async fn allow_any_origin(mut response: Response) -> Response {
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

async fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}
