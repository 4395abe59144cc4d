//! Pages of device authorization (RFC 8628 §3.3).
//!
//! Owns: their view models. Does not own: the codes, or the limit of attempts.

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;

use ::pages::text::{Shown, is_unprintable};
use ::pages::{Filled, Link, Phrase};

use super::messages::Words;
use super::{Form, Scope, View};

/// View model of the page that asks for the user code (field `user_code`).
#[derive(Debug, Clone, Copy)]
pub struct DeviceCode<'a> {
    /// Target and hidden fields of the form.
    pub form: Form<'a>,
    /// The code of `verification_uri_complete`, or the one entered before; as received.
    pub code: Option<&'a str>,
    /// Why the last code was not accepted.
    pub problem: Option<DeviceProblem>,
}

/// Reason why a user code was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceProblem {
    /// No device waits with this code.
    Unknown,
    /// The code has expired.
    Expired,
    /// Too many failures; holds how long attempts are refused.
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

/// View model of the page that asks to allow a device (field `decision`: `allow` or `deny`).
#[derive(Debug, Clone, Copy)]
pub struct DeviceConfirm<'a> {
    /// Target and hidden fields of the form.
    pub form: Form<'a>,
    /// The code, as the device shows it.
    pub code: &'a str,
    /// Display name of the client.
    pub client: &'a str,
    /// Login name of the user.
    pub user: &'a str,
    /// The requested scopes.
    pub scopes: &'a [Scope<'a>],
}

/// View model of the page that confirms the decision.
#[derive(Debug, Clone, Copy)]
pub struct DeviceDone<'a> {
    /// Display name of the client.
    pub client: &'a str,
    /// Whether the user allowed it.
    pub allowed: bool,
}

#[derive(Template)]
#[template(path = "pages/device_code.html")]
struct CodeMarkup<'a> {
    w: &'a Words,
    v: &'a DeviceCode<'a>,
    code: &'a str,
    problem: Option<Filled<'a>>,
}

#[derive(Template)]
#[template(path = "pages/device_confirm.html")]
struct ConfirmMarkup<'a> {
    w: &'a Words,
    v: &'a DeviceConfirm<'a>,
    code: Shown<'a>,
    scopes: Vec<Filled<'a>>,
}

/// A page with one message.
#[derive(Template)]
#[template(path = "pages/message.html")]
pub(super) struct Message<'a> {
    pub(super) title: &'a Phrase,
    pub(super) w: &'a Words,
    pub(super) text: Filled<'a>,
    pub(super) back: Option<Link<'a>>,
}

impl DeviceCode<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let (status, problem) = self.problem.map(|problem| problem.row(w)).unzip();
        let markup = CodeMarkup {
            w,
            v: self,
            code: self.code.filter(|c| c.len() <= 32 && !c.chars().any(is_unprintable)).unwrap_or_default(),
            problem,
        };
        View::new(&w.device.title, &markup).with_status(status.unwrap_or(StatusCode::OK))
    }
}

impl DeviceConfirm<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let scopes = self.scopes.iter().map(|s| s.description(w)).collect();
        let markup = ConfirmMarkup { w, v: self, code: Shown(self.code), scopes };
        View::new(&w.device.confirm_title, &markup)
    }
}

impl DeviceDone<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let d = &w.device;
        let (title, text) =
            if self.allowed { (&d.done_title, &d.done_text) } else { (&d.denied_title, &d.denied_text) };
        View::new(title, &Message { title, w, text: text.with("client", self.client), back: None })
    }
}
