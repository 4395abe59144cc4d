//! A person's visit: the browser, its language, and how it is answered.
//!
//! Owns: [`BrowserRequest`], which every page begins with and every answer of a page goes through: cookies, language, the error page
//! with its line in the log. Does not own: what a page says ([`crate::pages`]).

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
use crate::authorization::response::Response as Answer;
use crate::authorization_state::AuthorizationState;
use crate::client::Client;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::pages::{ErrorKind, ErrorPage, FormPost, FormTarget, Language, Page};
use crate::provider::Provider;
use crate::session::{Browser, Caller};

/// Longest address of a page of what is under way: shorter than what servers and proxies take.
const MAX_ADDRESS: usize = 6 * 1024;

/// A person in front of a browser.
pub(super) struct BrowserRequest<'p> {
    pub(super) provider: &'p Provider,
    pub(super) browser: Browser,
    /// It is a form that is answered: a page shown in answer could be neither gone back to nor loaded again without sending it anew.
    posted: bool,
    language: &'p Language,
    accepts: Option<String>,
    /// What leads from an error page to the log.
    id: String,
}

impl<'p> BrowserRequest<'p> {
    /// Begins with the head of a request.
    pub(super) async fn begin(provider: &'p Provider, parts: &mut Parts) -> Result<Self, Response> {
        let caller = Extension::<Caller>::from_request_parts(parts, &()).await;
        let caller = caller.map(|Extension(caller)| caller).unwrap_or_default();
        let accepts = accepted(&parts.headers);
        let language = provider.pages().languages().choose(None, accepts.as_deref());
        let id = provider.draw_id().unwrap_or_default();
        match Browser::read(provider, (&parts.method, &parts.headers), caller).await {
            Ok(browser) => {
                let posted = parts.method == Method::POST;
                Ok(Self { provider, browser, posted, language, accepts, id })
            }
            Err(fault) => Err(failed(provider, language, &id, &fault)),
        }
    }

    /// Begins with a whole request that must be a form of ours, and reads it.
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
            return Err(visit.error(ErrorKind::FormRejected, &"the form's proof is not this browser's"));
        }
        Ok((visit, form))
    }

    /// Whether it is a form that is answered.
    pub(super) fn posted(&self) -> bool {
        self.posted
    }

    /// Speaks another language from here on, if the client asked for one there is.
    pub(super) fn speak(&mut self, ui_locales: Option<&str>) {
        self.language = self.provider.pages().languages().choose(ui_locales, self.accepts.as_deref());
    }

    /// What a form of this visit carries.
    pub(super) fn proof(&self) -> String {
        self.browser.form_proof(self.provider)
    }

    /// A page.
    pub(super) fn page(&self, page: &Page<'_>) -> Response {
        let mut response = self.provider.pages().answer(self.language, page);
        self.browser.set_cookies(response.headers_mut());
        response
    }

    /// Another address of ours, or of a client. 303: whatever was posted to us stays with us (RFC 9700 §4.12).
    pub(super) fn redirect(&self, to: &str) -> Response {
        let Ok(location) = HeaderValue::try_from(to) else {
            return self.error(ErrorKind::BadRequest, &"the address to go to is none");
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SEE_OTHER;
        response.headers_mut().insert(LOCATION, location);
        self.browser.set_cookies(response.headers_mut());
        response
    }

    /// The way to a page of what is under way that comes next in answer to a form: to an address of its own, below `at`, where the page can be
    /// gone back to and loaded again. `None`: it is no form that is answered, or what is under way is too long for an address.
    pub(super) fn by_address(&self, at: &str, flow: &AuthorizationState) -> Option<Response> {
        let sealed = self.posted.then(|| flow.seal(self.provider, &self.browser).ok())??;
        let to = format!("{}?flow={sealed}", self.provider.issuer().endpoint(at));
        (to.len() <= MAX_ADDRESS).then(|| self.redirect(&to))
    }

    /// An answer to a client.
    pub(super) fn answer(&self, client: &Client, answer: Answer) -> Response {
        match answer {
            Answer::Redirect(url) => self.redirect(&url),
            Answer::FormPost { action, fields } => {
                let leads_to: Vec<FormTarget> = FormTarget::of_redirect(&action).ok().into_iter().collect();
                self.page(&Page::FormPost(FormPost {
                    action: &action,
                    fields: &fields,
                    client: client.name(),
                    leads_to: &leads_to,
                }))
            }
        }
    }

    /// An error page; `why` goes to the log.
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
        let (kind, after) = shown(fault);
        if let OAuthFault::StoreAway(reason) = fault {
            tracing::debug!(reason, request = self.id, "page failed");
            return waiting(self.error_page(kind), after);
        }
        waiting(self.error(kind, fault), after)
    }
}

/// Where not even a browser could be made out.
fn failed(provider: &Provider, language: &Language, id: &str, fault: &OAuthFault) -> Response {
    let (kind, after) = shown(fault);
    if let OAuthFault::StoreAway(reason) = fault {
        tracing::debug!(reason, request = id, "page failed");
    } else {
        tracing::error!(error = kind.row().1, reason = %fault, request = id, "page failed");
    }
    let page = Page::Error(ErrorPage { kind, request_id: id, back: None });
    waiting(provider.pages().answer(language, &page), after)
}

/// An answer that says when to try again.
pub(super) fn waiting(mut response: Response, after: Option<Duration>) -> Response {
    if let Some(after) = after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(answer::retry_after(after)));
    }
    response
}

/// What a person is shown of a fault, and when to try again.
fn shown(fault: &OAuthFault) -> (ErrorKind, Option<Duration>) {
    let row = fault.row();
    let kind = match row.status {
        StatusCode::SERVICE_UNAVAILABLE => ErrorKind::Unavailable,
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::TooMany(row.retry_after.unwrap_or_default()),
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        status if status.is_server_error() => ErrorKind::Server,
        _ => ErrorKind::BadRequest,
    };
    (kind, row.retry_after)
}

fn accepted(headers: &HeaderMap) -> Option<String> {
    headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
