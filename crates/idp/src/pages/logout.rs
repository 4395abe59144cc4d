//! The pages of logout (OpenID Connect RP-Initiated Logout 1.0 §2).
//!
//! Owns: their view models. Does not own: ending a session.

use askama::Template;

use super::address::FormTarget;
use super::device::Message;
use super::{Form, Frame, Link};
use crate::pages::messages::Words;

/// Asks whether to sign out (field `decision`: `logout` or `stay`).
#[derive(Debug, Clone, Copy)]
pub struct Logout<'a> {
    /// Where it is sent, and with what.
    pub form: Form<'a>,
    /// Who is signed in.
    pub user: &'a str,
    /// The name of the client that asks for it.
    pub client: Option<&'a str>,
    /// Where the answer to the form may redirect.
    pub leads_to: &'a [FormTarget],
}

/// Says that it is done.
#[derive(Debug, Clone, Copy)]
pub struct LogoutDone<'a> {
    /// The way back to the client.
    pub back: Option<Link<'a>>,
}

#[derive(Template)]
#[template(path = "pages/logout.html")]
struct Markup<'a> {
    f: Frame<'a>,
    w: &'a Words,
    v: &'a Logout<'a>,
}

impl Logout<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> askama::Result<String> {
        Markup { f: f.titled(&w.logout.title), w, v: self }.render()
    }
}

impl LogoutDone<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> askama::Result<String> {
        let text = w.logout.done_text.filled();
        Message { f: f.titled(&w.logout.done_title), w, text, back: self.back }.render()
    }
}
