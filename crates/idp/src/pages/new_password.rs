//! Page of a login that asks for a new password, because the current one is temporary.
//!
//! Owns: its view model. Does not own: passwords, and the login before it.

use askama::Template;
use axum::http::StatusCode;

use ::pages::text::Shown;
use ::pages::{Filled, FormTarget};

use super::account::problem_message;
use super::messages::Words;
use super::{Form, PasswordProblem, View};

/// View model of the page (fields `new` and `again`).
#[derive(Debug, Clone, Copy)]
pub struct NewPassword<'a> {
    /// Target and hidden fields of the form.
    pub form: Form<'a>,
    /// Login name of the user, for password managers.
    pub user: &'a str,
    /// Fewest characters of a new password.
    pub min_length: usize,
    /// Why the last attempt failed.
    pub problem: Option<PasswordProblem>,
    /// Targets to which the response to the form may redirect.
    pub form_targets: &'a [FormTarget],
}

#[derive(Template)]
#[template(path = "pages/new_password.html")]
struct Markup<'a> {
    w: &'a Words,
    v: &'a NewPassword<'a>,
    user: Shown<'a>,
    problem: Option<Filled<'a>>,
}

impl NewPassword<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let problem = self.problem.map(|problem| problem_message(problem, self.min_length, w));
        let status = if problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        let markup = Markup { w, v: self, user: Shown(self.user), problem };
        View::new(&w.new_password.title, &markup).with_status(status)
    }
}
