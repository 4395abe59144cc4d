//! Page for users who forgot their password: takes a name or an address.
//!
//! Owns: its view model. Does not own: who gets a mail. The page never says whether there is such a
//! user.

use askama::Template;
use axum::http::StatusCode;

use ::pages::Filled;

use super::messages::Words;
use super::{Form, View};

/// View model of the page (field `login`).
#[derive(Debug, Clone, Copy)]
pub struct ForgotPassword<'a> {
    /// Target and hidden fields of the form.
    pub form: Form<'a>,
    /// What the page shows.
    pub step: ForgotPasswordStep,
    /// Path to the sign-in page.
    pub back: &'a str,
}

/// What the page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgotPasswordStep {
    /// The form.
    Ask,
    /// The form again, because nothing was entered.
    Incomplete,
    /// A mail is on its way, if there is such a user.
    Done,
}

#[derive(Template)]
#[template(path = "pages/forgot_password.html")]
struct Markup<'a> {
    w: &'a Words,
    v: &'a ForgotPassword<'a>,
    is_done: bool,
    problem: Option<Filled<'a>>,
}

impl ForgotPassword<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let f = &w.forgot_password;
        let is_done = self.step == ForgotPasswordStep::Done;
        let problem = (self.step == ForgotPasswordStep::Incomplete).then(|| f.incomplete.filled());
        let status = if problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        let title = if is_done { &f.done_title } else { &f.title };
        View::new(title, &Markup { w, v: self, is_done, problem }).with_status(status)
    }
}
