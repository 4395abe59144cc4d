//! Error page: tells the user what happened, in constant words.
//!
//! Owns: [`ErrorKind`] and its one table of status, code and words. Does not own: the log line,
//! which the request id on the page identifies. Nothing of the request is shown.

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;

use ::pages::text::Shown;
use ::pages::{Filled, Link, Phrase};

use super::View;
use super::messages::Words;

/// View model of the error page, for a user who cannot be sent back to the client.
#[derive(Debug, Clone, Copy)]
pub struct ErrorPage<'a> {
    /// What happened.
    pub kind: ErrorKind,
    /// Id of the request in the log.
    pub request_id: &'a str,
    /// Link back to the client, if the client is verified.
    pub back: Option<Link<'a>>,
}

/// Kind of error on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The client's request is malformed.
    BadRequest,
    /// There is no such client.
    UnknownClient,
    /// The redirect URI is not registered for the client.
    RedirectMismatch,
    /// A logout request has a redirect URI, but does not identify its client.
    NoLogoutHint,
    /// The interaction or its page has expired.
    Expired,
    /// An account link is unknown, used, replaced or expired.
    LinkInvalid,
    /// The CSRF token is missing, expired or of another browser.
    FormRejected,
    /// The user may not use this client.
    Denied,
    /// There is no such page.
    NotFound,
    /// Too many failures; holds how long attempts are refused.
    TooMany(Duration),
    /// The provider failed.
    Server,
    /// The provider is temporarily unavailable.
    Unavailable,
}

impl ErrorKind {
    /// All kinds of errors.
    pub const ALL: [Self; 12] = [
        Self::BadRequest,
        Self::UnknownClient,
        Self::RedirectMismatch,
        Self::NoLogoutHint,
        Self::Expired,
        Self::LinkInvalid,
        Self::FormRejected,
        Self::Denied,
        Self::NotFound,
        Self::TooMany(Duration::from_secs(10)),
        Self::Server,
        Self::Unavailable,
    ];

    /// The table: status, and the code that users quote. Constant, so nothing of the request is
    /// reflected.
    pub fn row(self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::UnknownClient => (StatusCode::BAD_REQUEST, "unknown_client"),
            Self::RedirectMismatch => (StatusCode::BAD_REQUEST, "redirect_mismatch"),
            Self::NoLogoutHint => (StatusCode::BAD_REQUEST, "id_token_hint_missing"),
            Self::Expired => (StatusCode::BAD_REQUEST, "expired"),
            Self::LinkInvalid => (StatusCode::BAD_REQUEST, "link_invalid"),
            Self::FormRejected => (StatusCode::FORBIDDEN, "form_rejected"),
            Self::Denied => (StatusCode::FORBIDDEN, "access_denied"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::TooMany(_) => (StatusCode::TOO_MANY_REQUESTS, "too_many_attempts"),
            Self::Server => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        }
    }

    fn messages(self, w: &Words) -> (&Phrase, Filled<'_>) {
        let e = &w.error;
        match self {
            Self::BadRequest => (&e.bad_request_title, e.bad_request_text.filled()),
            Self::UnknownClient => (&e.unknown_client_title, e.unknown_client_text.filled()),
            Self::RedirectMismatch => (&e.redirect_title, e.redirect_text.filled()),
            Self::NoLogoutHint => (&e.redirect_title, e.no_logout_hint_text.filled()),
            Self::Expired => (&e.expired_title, e.expired_text.filled()),
            Self::LinkInvalid => (&e.link_title, e.link_text.filled()),
            Self::FormRejected => (&e.form_title, e.form_text.filled()),
            Self::Denied => (&e.denied_title, e.denied_text.filled()),
            Self::NotFound => (&e.not_found_title, e.not_found_text.filled()),
            Self::TooMany(after) => (&e.too_many_title, e.too_many_text.with("wait", w.wait(after))),
            Self::Server => (&e.server_title, e.server_text.filled()),
            Self::Unavailable => (&e.unavailable_title, e.unavailable_text.filled()),
        }
    }
}

#[derive(Template)]
#[template(path = "pages/error.html")]
struct Markup<'a> {
    title: &'a Phrase,
    w: &'a Words,
    v: &'a ErrorPage<'a>,
    text: Filled<'a>,
    code: &'static str,
    request: Shown<'a>,
}

impl ErrorPage<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let (status, code) = self.kind.row();
        let (title, text) = self.kind.messages(w);
        let markup = Markup { title, w, v: self, text, code, request: Shown(self.request_id) };
        View::new(title, &markup).with_status(status)
    }
}
