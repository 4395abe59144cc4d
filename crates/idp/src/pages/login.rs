//! Login page: asks for user name and password.
//!
//! Owns: its view model. Does not own: verification of passwords, counting of failures.

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;

use ::pages::text::is_unprintable;
use ::pages::{Filled, FormTarget, Link};

use super::messages::Words;
use super::{Form, View};

/// Most characters of a user name in the form: as of an email address (RFC 5321 §4.5.3.1).
const MAX_HINT: usize = 254;

/// View model of the login page (fields `username` and `password`).
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// Target and hidden fields of the form.
    pub form: Form<'a>,
    /// Display name of the client that requires the login.
    pub client: Option<&'a str>,
    /// The `login_hint` (OpenID Connect Core 1.0 §3.1.2.1), or the name entered before; as
    /// received.
    pub hint: Option<&'a str>,
    /// Why the last attempt failed.
    pub problem: Option<LoginProblem>,
    /// Path of the page for users who forgot their password, if there is one.
    pub forgot: Option<&'a str>,
    /// Link back to the client.
    pub back: Option<Link<'a>>,
    /// Targets to which the response to the form may redirect.
    pub form_targets: &'a [FormTarget],
}

/// Reason why a login failed. It never discloses whether the user exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginProblem {
    /// The user name or the password is wrong.
    Wrong,
    /// Too many failures; holds how long attempts are refused.
    TooMany(Duration),
    /// The page has expired.
    Expired,
    /// A field is empty.
    Incomplete,
}

impl LoginProblem {
    /// The table of status and text. After a success status browsers would offer to store the
    /// password.
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
    w: &'a Words,
    v: &'a Login<'a>,
    hint: &'a str,
    problem: Option<Filled<'a>>,
}

impl Login<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        // A hint that would not be shown as sent is dropped.
        let hint = self.hint.filter(|h| h.chars().count() <= MAX_HINT && !h.chars().any(is_unprintable));
        let (status, problem) = self.problem.map(|problem| problem.row(w)).unzip();
        let status = status.unwrap_or(StatusCode::OK);
        let markup = Markup { w, v: self, hint: hint.unwrap_or_default(), problem };
        View::new(&w.login.title, &markup).with_status(status)
    }
}
