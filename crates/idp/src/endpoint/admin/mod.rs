//! Administration API: REST with JSON below `/admin/v1` of the issuer.
//!
//! Owns: the list of operations ([`table`]), from which the router and the document are built;
//! authorization ([`access`]); strict parsing of a request ([`call`]); the `OpenAPI` document
//! ([`document`]).
//!
//! Does not own: the operations themselves ([`crate::admin`], shared with the command line).
//!
//! ```text
//! Route → access: a token of this provider, made for it, of a client of its own, with the scope
//!       → call: exactly the query or the body that the operation takes → crate::admin → answer
//! ```
//!
//! Cookies are ignored, and scripts of other sites cannot call the API.

mod access;
mod call;
mod clients;
mod document;
mod groups;
mod security;
#[cfg(test)]
mod tests;
mod users;

use std::{future::Future, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderValue, Method, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::Response,
    routing::{MethodFilter, MethodRouter, get, on},
};
use serde::Serialize;

use self::{access::Right, call::Call};
use super::answer::{self, allow_only};
use crate::{
    admin::{AdminFault, Refused},
    oauth::error::LogLevel,
    provider::Provider,
};

pub use self::{
    access::{ADMIN_READ_SCOPE, ADMIN_SCOPE},
    document::document,
};

/// Path of the API below the issuer.
pub const PATH: &str = "/admin/v1";
/// Path of the `OpenAPI` document below [`PATH`].
const DOCUMENT: &str = "/openapi.json";

/// Input of an operation besides its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationInput {
    Nothing,
    Query,
    Body,
}

/// One operation of the API.
struct Route {
    method: Method,
    /// Path below [`PATH`], in the syntax of the router and the document.
    path: &'static str,
    right: Right,
    input: OperationInput,
    handler: MethodRouter<Arc<Provider>>,
}

impl Route {
    fn new<F, Answer>(method: Method, path: &'static str, right: Right, takes: OperationInput, run: F) -> Self
    where
        F: Fn(Call) -> Answer + Clone + Send + Sync + 'static,
        Answer: Future<Output = Result<Response, AdminFault>> + Send,
    {
        let handler = async move |State(provider): State<Arc<Provider>>, request: Request| {
            let response = match Call::read(&provider, request, right, takes).await {
                Ok(call) => run(call).await,
                Err(fault) => Err(fault),
            };
            response.unwrap_or_else(|fault| refuse(&provider, &fault))
        };
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::TRACE);
        Self { method, path, right, input: takes, handler: on(filter, handler) }
    }
}

/// All operations of the API.
fn table() -> Vec<Route> {
    let mut table = users::routes();
    table.extend(groups::routes());
    table.extend(clients::routes());
    table.extend(security::routes());
    table
}

/// Routes of the API, below a path prefix.
pub(crate) fn routes(below: &str) -> Router<Arc<Provider>> {
    let mut paths: Vec<(&'static str, MethodRouter<Arc<Provider>>)> = Vec::new();
    for Route { path, handler, .. } in table() {
        match paths.iter_mut().find(|(known, _)| *known == path) {
            Some((_, handlers)) => *handlers = std::mem::take(handlers).merge(handler),
            None => paths.push((path, handler)),
        }
    }
    let described = Router::new().route(&format!("{below}{DOCUMENT}"), allow_only(get(describe)));
    paths.into_iter().fold(described, |router, (path, handlers)| {
        router.route(&format!("{below}{path}"), allow_only(handlers))
    })
}

/// Handles `GET /admin/v1/openapi.json`. The document is public, so it needs no token.
async fn describe(State(provider): State<Arc<Provider>>) -> Response {
    answer::json(StatusCode::OK, &document(provider.issuer()))
}

/// Error response of the administration API.
#[derive(Serialize, utoipa::ToSchema)]
struct ErrorBody {
    /// Error code: `not_found`, `taken`, `conflict`, `configured`, `refused`, `invalid_request`,
    /// `invalid_token`, `insufficient_scope`, `temporarily_unavailable` or `server_error`.
    error: String,
    /// Human-readable description of the error.
    error_description: String,
    /// All refused values, if the error is `refused`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<Refused>,
}

/// The response to a refused request; also writes its log line.
fn refuse(provider: &Provider, fault: &AdminFault) -> Response {
    let row = fault.response();
    // A refused value is not logged: it may be a password in the wrong member.
    let reason = match fault {
        AdminFault::Refused(_) => "a value is refused".to_owned(),
        other => other.to_string(),
    };
    match row.level {
        LogLevel::Debug => tracing::debug!(error = row.code, reason, "administration refused"),
        LogLevel::Info => tracing::info!(error = row.code, reason, "administration refused"),
        LogLevel::Warn => tracing::warn!(error = row.code, reason, "administration refused"),
        LogLevel::Error => tracing::error!(error = row.code, reason, "administration failed"),
    }
    let faults = if let AdminFault::Refused(faults) = fault { faults.clone() } else { Vec::new() };
    let body = ErrorBody { error: row.code.to_owned(), error_description: row.text.to_string(), faults };
    let mut response = answer::json(row.status, &body);
    let headers = response.headers_mut();
    if let Some(after) = row.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(answer::retry_after(after)));
    }
    if let Some(challenge) = access::challenge(provider, fault) {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Response 200 with a JSON body.
fn ok(body: &impl Serialize) -> Response {
    answer::json(StatusCode::OK, body)
}

/// Response 201 with a JSON body.
fn created(body: &impl Serialize) -> Response {
    answer::json(StatusCode::CREATED, body)
}

/// Response 204 without a body.
fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
