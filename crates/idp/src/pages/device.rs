//! The pages of the device flow (RFC 8628 §3.3).
//!
//! Owns: their view models. Does not own: the codes, or how many may be tried.

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;

use super::text::{Shown, unfit};
use super::{Form, Frame, Link, Scope};
use crate::pages::messages::{Filled, Words};

/// Asks for the code that the device shows (field `user_code`).
#[derive(Debug, Clone, Copy)]
pub struct DeviceCode<'a> {
    /// Where it is sent, and with what.
    pub form: Form<'a>,
    /// The code of `verification_uri_complete`, or what was typed before; as sent.
    pub code: Option<&'a str>,
    /// Why the last code was not taken.
    pub problem: Option<DeviceProblem>,
}

/// Why a code was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceProblem {
    /// No device waits with it.
    Unknown,
    /// It is too old.
    Expired,
    /// Too many attempts; and how long nothing is looked at.
    TooMany(Duration),
}

impl DeviceProblem {
    fn row(self, w: &Words) -> (StatusCode, Filled<'_>) {
        let d = &w.device;
        match self {
            Self::Unknown => (StatusCode::BAD_REQUEST, d.unknown.filled()),
            Self::Expired => (StatusCode::BAD_REQUEST, d.expired.filled()),
            Self::TooMany(after) => (StatusCode::TOO_MANY_REQUESTS, d.too_many.with("wait", w.wait(after))),
        }
    }
}

/// Asks whether a device may have what its client wants (field `decision`: `allow` or `deny`).
#[derive(Debug, Clone, Copy)]
pub struct DeviceConfirm<'a> {
    /// Where it is sent, and with what.
    pub form: Form<'a>,
    /// The code, as the device shows it.
    pub code: &'a str,
    /// The client's name.
    pub client: &'a str,
    /// Who is signed in.
    pub user: &'a str,
    /// What it wants.
    pub scopes: &'a [Scope<'a>],
}

/// Says what became of it.
#[derive(Debug, Clone, Copy)]
pub struct DeviceDone<'a> {
    /// The client's name.
    pub client: &'a str,
    /// Whether the user allowed it.
    pub allowed: bool,
}

#[derive(Template)]
#[template(path = "pages/device_code.html")]
struct CodeMarkup<'a> {
    f: Frame<'a>,
    w: &'a Words,
    v: &'a DeviceCode<'a>,
    code: &'a str,
    problem: Option<Filled<'a>>,
}

#[derive(Template)]
#[template(path = "pages/device_confirm.html")]
struct ConfirmMarkup<'a> {
    f: Frame<'a>,
    w: &'a Words,
    v: &'a DeviceConfirm<'a>,
    code: Shown<'a>,
    scopes: Vec<Filled<'a>>,
}

/// A page that says one thing.
#[derive(Template)]
#[template(path = "pages/message.html")]
pub(super) struct Message<'a> {
    pub(super) f: Frame<'a>,
    pub(super) w: &'a Words,
    pub(super) text: Filled<'a>,
    pub(super) back: Option<Link<'a>>,
}

impl DeviceCode<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> (StatusCode, askama::Result<String>) {
        let (status, problem) = self.problem.map(|problem| problem.row(w)).unzip();
        let markup = CodeMarkup {
            f: f.titled(&w.device.title),
            w,
            v: self,
            code: self.code.filter(|c| c.len() <= 32 && !c.chars().any(unfit)).unwrap_or_default(),
            problem,
        };
        (status.unwrap_or(StatusCode::OK), markup.render())
    }
}

impl DeviceConfirm<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> askama::Result<String> {
        let scopes = self.scopes.iter().map(|s| s.told(w)).collect();
        let f = f.titled(&w.device.confirm_title);
        ConfirmMarkup { f, w, v: self, code: Shown(self.code), scopes }.render()
    }
}

impl DeviceDone<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> askama::Result<String> {
        let d = &w.device;
        let (title, text) =
            if self.allowed { (&d.done_title, &d.done_text) } else { (&d.denied_title, &d.denied_text) };
        Message { f: f.titled(title), w, text: text.with("client", self.client), back: None }.render()
    }
}
