//! Pages of logout (OpenID Connect RP-Initiated Logout 1.0 §2).
//!
//! Owns: their view models. Does not own: ending a session.

use askama::Template;

use ::pages::{FormTarget, Link};

use super::device::Message;
use super::messages::Words;
use super::{Form, View};

/// View model of the page that asks to log out (field `decision`: `logout` or `stay`).
#[derive(Debug, Clone, Copy)]
pub struct Logout<'a> {
    /// Target and hidden fields of the form.
    pub form: Form<'a>,
    /// Login name of the user.
    pub user: &'a str,
    /// Display name of the client that requests the logout.
    pub client: Option<&'a str>,
    /// Targets to which the response to the form may redirect.
    pub form_targets: &'a [FormTarget],
}

/// View model of the page that confirms the logout.
#[derive(Debug, Clone, Copy)]
pub struct LogoutDone<'a> {
    /// Link back to the client.
    pub back: Option<Link<'a>>,
}

#[derive(Template)]
#[template(path = "pages/logout.html")]
struct Markup<'a> {
    w: &'a Words,
    v: &'a Logout<'a>,
}

impl Logout<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        View::new(&w.logout.title, &Markup { w, v: self })
    }
}

impl LogoutDone<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let (title, text) = (&w.logout.done_title, w.logout.done_text.filled());
        View::new(title, &Message { title, w, text, back: self.back })
    }
}
