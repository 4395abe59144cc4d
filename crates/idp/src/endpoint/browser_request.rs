//! Browser request: the browser, its language, and the response to it.
//!
//! Owns: [`BrowserRequest`], which every page begins with and every page response goes through:
//! cookies, language, the error page with its log line. Does not own: the content of pages
//! ([`crate::pages`]).

use std::time::Duration;

use axum::{
    Extension,
    body::Body,
    extract::{FromRequestParts as _, Request},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{ACCEPT_LANGUAGE, LOCATION, RETRY_AFTER},
        request::Parts,
    },
    response::Response,
};

use super::{answer, form};
use crate::authorization::response::AuthorizationResponse;
use crate::authorization_state::AuthorizationState;
use crate::client::Client;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::pages::{ErrorKind, ErrorPage, FormPost, Page};
use crate::provider::Provider;
use crate::session::{Browser, Caller};
use ::pages::{FormTarget, Language};

/// Longest URL with a sealed state: shorter than common limits of servers and proxies.
pub(super) const MAX_URL: usize = 6 * 1024;

/// One request of a browser.
pub(super) struct BrowserRequest<'p> {
    pub(super) provider: &'p Provider,
    pub(super) browser: Browser,
    /// Whether the request posts a form. A page in response to a POST cannot be reloaded or
    /// returned to without sending the form again.
    posted: bool,
    language: &'p Language,
    accept_language: Option<String>,
    /// Id that connects an error page with the log.
    id: String,
}

impl<'p> BrowserRequest<'p> {
    /// Begins with the head of a request.
    pub(super) async fn begin(provider: &'p Provider, parts: &mut Parts) -> Result<Self, Response> {
        let caller = Extension::<Caller>::from_request_parts(parts, &()).await;
        let caller = caller.map(|Extension(caller)| caller).unwrap_or_default();
        let accepts = accept_language(&parts.headers);
        let language = provider.pages().languages().choose(None, accepts.as_deref());
        let id = provider.draw_id().unwrap_or_default();
        match Browser::read(provider, (&parts.method, &parts.headers), caller).await {
            Ok(browser) => {
                let posted = parts.method == Method::POST;
                Ok(Self { provider, browser, posted, language, accept_language: accepts, id })
            }
            Err(fault) => Err(failed(provider, language, &id, &fault)),
        }
    }

    /// Begins with a request that must post a form of this provider, and reads the form.
    pub(super) async fn begin_form(
        provider: &'p Provider,
        request: Request,
    ) -> Result<(Self, Form), Response> {
        let (mut parts, body) = request.into_parts();
        let visit = Self::begin(provider, &mut parts).await?;
        let form = match form::read(&parts, body).await {
            Ok(form) => form,
            Err(fault) => return Err(visit.failed(&fault)),
        };
        if !visit.browser.is_own_form(provider, form.get("csrf")) {
            return Err(visit.error(ErrorKind::FormRejected, &"form proof invalid for this browser"));
        }
        Ok((visit, form))
    }

    /// Whether the request posts a form.
    pub(super) fn posted(&self) -> bool {
        self.posted
    }

    /// Tag of the language in which the user reads the pages.
    pub(super) fn language(&self) -> &str {
        self.language.tag()
    }

    /// Selects the first supported language that the client requests.
    pub(super) fn select_language(&mut self, ui_locales: Option<&str>) {
        self.language = self.provider.pages().languages().choose(ui_locales, self.accept_language.as_deref());
    }

    /// The proof for forms in the response.
    pub(super) fn proof(&self) -> String {
        self.browser.form_proof(self.provider)
    }

    /// The response with a page.
    pub(super) fn page(&self, page: &Page<'_>) -> Response {
        let mut response = self.provider.pages().answer(self.language, page);
        self.browser.set_cookies(response.headers_mut());
        response
    }

    /// A redirect to a URL of the provider or of a client. Status 303 does not repeat a posted form
    /// (RFC 9700 §4.12).
    pub(super) fn redirect(&self, to: &str) -> Response {
        let Ok(location) = HeaderValue::try_from(to) else {
            return self.error(ErrorKind::BadRequest, &"invalid redirect target");
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SEE_OTHER;
        response.headers_mut().insert(LOCATION, location);
        self.browser.set_cookies(response.headers_mut());
        response
    }

    /// Redirects a posted form to the page of the next step below `at`, which can be reloaded and
    /// returned to. `None`: the request does not post a form, or the sealed state is too long for a
    /// URL.
    pub(super) fn redirect_to_page(&self, at: &str, flow: &AuthorizationState) -> Option<Response> {
        let sealed = self.posted.then(|| flow.seal(self.provider, &self.browser).ok())??;
        let to = format!("{}?flow={sealed}", self.provider.issuer().endpoint(at));
        (to.len() <= MAX_URL).then(|| self.redirect(&to))
    }

    /// The authorization response to a client.
    pub(super) fn answer(&self, client: &Client, answer: AuthorizationResponse) -> Response {
        match answer {
            AuthorizationResponse::Redirect(url) => self.redirect(&url),
            AuthorizationResponse::FormPost { action, fields } => {
                let leads_to: Vec<FormTarget> = FormTarget::of_redirect(&action).ok().into_iter().collect();
                self.page(&Page::FormPost(FormPost {
                    action: &action,
                    fields: &fields,
                    client: client.name(),
                    form_targets: &leads_to,
                }))
            }
        }
    }

    /// An error page; `why` is logged.
    pub(super) fn error(&self, kind: ErrorKind, why: &dyn std::fmt::Display) -> Response {
        let (status, code) = kind.row();
        if status.is_server_error() {
            tracing::error!(error = code, reason = %why, request = self.id, "page failed");
        } else {
            tracing::info!(error = code, reason = %why, request = self.id, "page refused");
        }
        self.error_page(kind)
    }

    fn error_page(&self, kind: ErrorKind) -> Response {
        self.page(&Page::Error(ErrorPage { kind, request_id: &self.id, back: None }))
    }

    /// An error page for a fault.
    pub(super) fn failed(&self, fault: &OAuthFault) -> Response {
        let (kind, after) = error_kind(fault);
        if let OAuthFault::StoreUnavailable(reason) = fault {
            tracing::debug!(reason, request = self.id, "page failed");
            return with_retry_after(self.error_page(kind), after);
        }
        with_retry_after(self.error(kind, fault), after)
    }
}

/// The error page if the cookies could not be read.
fn failed(provider: &Provider, language: &Language, id: &str, fault: &OAuthFault) -> Response {
    let (kind, after) = error_kind(fault);
    if let OAuthFault::StoreUnavailable(reason) = fault {
        tracing::debug!(reason, request = id, "page failed");
    } else {
        tracing::error!(error = kind.row().1, reason = %fault, request = id, "page failed");
    }
    let page = Page::Error(ErrorPage { kind, request_id: id, back: None });
    with_retry_after(provider.pages().answer(language, &page), after)
}

/// Adds `Retry-After` to a response.
pub(super) fn with_retry_after(mut response: Response, after: Option<Duration>) -> Response {
    if let Some(after) = after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(answer::retry_after(after)));
    }
    response
}

/// The error page for a fault, and when to try again.
fn error_kind(fault: &OAuthFault) -> (ErrorKind, Option<Duration>) {
    let row = fault.response();
    let kind = match row.status {
        StatusCode::SERVICE_UNAVAILABLE => ErrorKind::Unavailable,
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::TooMany(row.retry_after.unwrap_or_default()),
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        status if status.is_server_error() => ErrorKind::Server,
        _ => ErrorKind::BadRequest,
    };
    (kind, row.retry_after)
}

fn accept_language(headers: &HeaderMap) -> Option<String> {
    headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
