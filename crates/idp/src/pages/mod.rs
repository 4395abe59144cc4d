//! Pages for users: server-rendered, with plain CSS, usable without scripts.
//!
//! Owns: the view of each page ([`login`], [`consent`], [`device`], [`logout`], [`account`],
//! [`form_post`], [`error`]), its messages in every language ([`messages`], [`language`]), its
//! brand and colours ([`brand`], [`colour`], `style`), the addresses on it ([`address`]), and its
//! response headers (`answer`).
//!
//! Does not own: routes, sessions, stores, creation and verification of CSRF tokens. A page gets
//! all data from its view model. Its texts are borrowed and untrusted: all are escaped.
//!
//! Flow:
//!
//! ```text
//! Languages::choose  ui_locales, Accept-Language → Language
//! Pages::answer  view model → template (askama, escaped) → answer::html  status, policy, headers
//! ```

pub mod account;
pub mod address;
mod answer;
pub mod brand;
pub mod colour;
pub mod consent;
pub mod device;
pub mod error;
pub mod form_post;
pub mod language;
pub mod login;
pub mod logout;
pub mod messages;
#[cfg(test)]
mod samples;
mod style;
#[cfg(test)]
mod tests;
mod text;

pub use account::{
    Account, AccountDone, AccountPaths, ConsentRow, PasswordForm, PasswordProblem, SessionEntry, TokenRow,
};
pub use address::{FormTarget, Href, Link};
use askama::Template;
use axum::{http::StatusCode, response::Response};
pub use brand::{Brand, BrandConfig};
pub use consent::{Consent, Scope};
pub use device::{DeviceCode, DeviceConfirm, DeviceDone, DeviceProblem};
pub use error::{ErrorKind, ErrorPage};
pub use form_post::FormPost;
pub use language::{Language, Languages};
pub use login::{Login, LoginProblem};
pub use logout::{Logout, LogoutDone};
use messages::Phrase;
use style::Style;

/// Target and hidden fields of a form. It renders as the opening tag with the hidden fields.
#[derive(Debug, Clone, Copy, Template)]
#[template(path = "pages/form.html")]
pub struct Form<'a> {
    /// A path on the provider's host.
    pub action: &'a str,
    /// The CSRF token of the browser (field `csrf`).
    pub csrf: &'a str,
    /// Further fields, name and value: state for the next request.
    pub hidden: &'a [(&'a str, &'a str)],
}

/// A page with its view model.
#[derive(Debug, Clone, Copy)]
pub enum Page<'a> {
    /// Asks for user name and password.
    Login(Login<'a>),
    /// Asks whether the client may have the requested scopes.
    Consent(Consent<'a>),
    /// Asks for a user code.
    DeviceCode(DeviceCode<'a>),
    /// Asks whether a device may have the requested scopes.
    DeviceConfirm(DeviceConfirm<'a>),
    /// Confirms the decision about a device.
    DeviceDone(DeviceDone<'a>),
    /// Asks whether to log out.
    Logout(Logout<'a>),
    /// Confirms the logout.
    LogoutDone(LogoutDone<'a>),
    /// Shows sessions, consents and tokens of a user.
    Account(Account<'a>),
    /// Posts an authorization response to a client.
    FormPost(FormPost<'a>),
    /// Shows an error.
    Error(ErrorPage<'a>),
}

/// Renderer for the pages of one provider.
#[derive(Debug, Clone)]
pub struct Pages {
    brand: Brand,
    style: Style,
    languages: Languages,
}

impl Pages {
    /// Creates the renderer for a brand and languages.
    pub fn new(brand: Brand, languages: Languages) -> Self {
        let style = Style::from_brand(&brand);
        Self { brand, style, languages }
    }

    /// The supported languages.
    pub fn languages(&self) -> &Languages {
        &self.languages
    }

    /// Renders a page as an HTTP response, with status and all headers.
    pub fn answer(&self, language: &Language, page: &Page<'_>) -> Response {
        let w = language.messages();
        let frame = Frame {
            lang: language.tag(),
            direction: &w.language.direction,
            title: &w.login.title,
            brand: &self.brand,
            style: self.style.text(),
            wide: false,
        };
        let ok = |markup| (StatusCode::OK, markup);
        let (status, markup) = match page {
            Page::Login(page) => page.render(frame, w),
            Page::Consent(page) => ok(page.render(frame, w)),
            Page::DeviceCode(page) => page.render(frame, w),
            Page::DeviceConfirm(page) => ok(page.render(frame, w)),
            Page::DeviceDone(page) => ok(page.render(frame, w)),
            Page::Logout(page) => ok(page.render(frame, w)),
            Page::LogoutDone(page) => ok(page.render(frame, w)),
            Page::Account(page) => page.render(frame, w),
            Page::FormPost(page) => ok(page.render(frame, w)),
            Page::Error(page) => page.render(frame, w),
        };
        // Writing to a string does not fail; if it does, the response is empty with status 500.
        let (status, body) = match markup {
            Ok(body) => (status, body),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        };
        let sources = answer::Sources {
            style: self.style.source(),
            script: matches!(page, Page::FormPost(_)).then(form_post::script_source),
            form_targets: page.form_targets(),
        };
        answer::html(status, body, sources, language.tag())
    }
}

impl Page<'_> {
    /// Targets of the page's forms besides the provider itself.
    fn form_targets(&self) -> &[FormTarget] {
        match self {
            Self::Login(page) => page.form_targets,
            Self::Consent(page) => page.form_targets,
            Self::Logout(page) => page.form_targets,
            Self::FormPost(page) => page.form_targets,
            _ => &[],
        }
    }
}

/// Common parts of every page.
#[derive(Debug, Clone, Copy)]
struct Frame<'a> {
    lang: &'a str,
    direction: &'a Phrase,
    title: &'a Phrase,
    brand: &'a Brand,
    style: &'a str,
    wide: bool,
}

impl<'a> Frame<'a> {
    fn titled(self, title: &'a Phrase) -> Self {
        Self { title, ..self }
    }

    fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}
