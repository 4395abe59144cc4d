//! Page that asks for a new password: during a login, because the current one is temporary, or behind
//! an invitation or a reset link.
//!
//! Owns: its view model. Does not own: passwords, the login before it, links.

use askama::Template;
use axum::http::StatusCode;

use ::pages::text::Shown;
use ::pages::{Filled, FormTarget, Phrase};

use super::account::problem_message;
use super::messages::Words;
use super::{Form, PasswordProblem, View};

/// Why the page asks for a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewPasswordReason {
    /// The current password is temporary.
    Temporary,
    /// The account is new.
    Invitation,
    /// The password is reset.
    Reset,
}

/// View model of the page (fields `new` and `again`).
#[derive(Debug, Clone, Copy)]
pub struct NewPassword<'a> {
    /// Why the page asks for a password.
    pub reason: NewPasswordReason,
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
    title: &'a Phrase,
    lead: &'a Phrase,
    submit: &'a Phrase,
    user: Shown<'a>,
    problem: Option<Filled<'a>>,
}

impl NewPassword<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let problem = self.problem.map(|problem| problem_message(problem, self.min_length, w));
        let status = if problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        let n = &w.new_password;
        let (title, lead, submit) = match self.reason {
            NewPasswordReason::Temporary => (&n.title, &n.lead, &n.submit),
            NewPasswordReason::Invitation => (&n.invited_title, &n.invited_lead, &n.set),
            NewPasswordReason::Reset => (&n.title, &n.reset_lead, &n.set),
        };
        let markup = Markup { w, v: self, title, lead, submit, user: Shown(self.user), problem };
        View::new(title, &markup).with_status(status)
    }
}
