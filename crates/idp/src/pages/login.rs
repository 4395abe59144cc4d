//! The login page.
//!
//! Owns: its view model. Does not own: checking a password, counting attempts.

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;

use super::address::FormTarget;
use super::text::unfit;
use super::{Form, Frame, Link};
use crate::pages::messages::{Filled, Words};

/// Most characters of a user name: that of an email address (RFC 5321 §4.5.3.1).
const MAX_HINT: usize = 254;

/// Asks for user name and password (fields `username` and `password`).
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// Where it is sent, and with what.
    pub form: Form<'a>,
    /// The name of the client that the user comes from.
    pub client: Option<&'a str>,
    /// `login_hint` (OpenID Connect Core 1.0 §3.1.2.1), or what was typed before; as sent.
    pub hint: Option<&'a str>,
    /// Why the last attempt did not succeed.
    pub problem: Option<LoginProblem>,
    /// The way back to the client.
    pub back: Option<Link<'a>>,
    /// Where the answer to the form may redirect.
    pub leads_to: &'a [FormTarget],
}

/// Why a login did not succeed: never whether the user exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginProblem {
    /// User name or password is wrong.
    Wrong,
    /// Too many attempts; and how long nothing is looked at.
    TooMany(Duration),
    /// The page was open for too long.
    Expired,
    /// A field was empty.
    Incomplete,
}

impl LoginProblem {
    /// Status and words: the table. Browsers take a success for one and offer to store the password.
    fn row(self, w: &Words) -> (StatusCode, Filled<'_>) {
        let l = &w.login;
        match self {
            Self::Wrong => (StatusCode::FORBIDDEN, l.wrong.filled()),
            Self::TooMany(after) => (StatusCode::TOO_MANY_REQUESTS, l.too_many.with("wait", w.wait(after))),
            Self::Expired => (StatusCode::BAD_REQUEST, l.expired.filled()),
            Self::Incomplete => (StatusCode::BAD_REQUEST, l.incomplete.filled()),
        }
    }
}

#[derive(Template)]
#[template(path = "pages/login.html")]
struct Markup<'a> {
    f: Frame<'a>,
    w: &'a Words,
    v: &'a Login<'a>,
    hint: &'a str,
    problem: Option<Filled<'a>>,
}

impl Login<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> (StatusCode, askama::Result<String>) {
        // a hint that would be shown other than it is sent is no help
        let hint = self.hint.filter(|h| h.chars().count() <= MAX_HINT && !h.chars().any(unfit));
        let (status, problem) = self.problem.map(|problem| problem.row(w)).unzip();
        let status = status.unwrap_or(StatusCode::OK);
        let markup =
            Markup { f: f.titled(&w.login.title), w, v: self, hint: hint.unwrap_or_default(), problem };
        (status, markup.render())
    }
}
