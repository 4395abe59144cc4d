//! The pages that people see: server-rendered, plain CSS, no script needed.
//!
//! Owns: how each page looks ([`login`], [`consent`], [`device`], [`logout`], [`account`], [`form_post`], [`error`]), its
//! words in every language ([`words`], [`language`]), its brand and colours ([`brand`], [`colour`],
//! `style`), which addresses may stand on it ([`address`]), and the headers it is sent with (`answer`).
//!
//! Does not own: routes, sessions, stores, the making and checking of CSRF tokens. A page is told everything
//! by its view model, whose texts are borrowed and taken as hostile: all are escaped.
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

/// Where a form is sent, and what goes with it unseen. Rendered, it is the opening of the form.
#[derive(Debug, Clone, Copy, Template)]
#[template(path = "pages/form.html")]
pub struct Form<'a> {
    /// A path on the provider's host.
    pub action: &'a str,
    /// The CSRF token of the browser's session (field `csrf`).
    pub csrf: &'a str,
    /// More fields, name and value: what the next request has to know.
    pub hidden: &'a [(&'a str, &'a str)],
}

/// One page.
#[derive(Debug, Clone, Copy)]
pub enum Page<'a> {
    /// Asks for user name and password.
    Login(Login<'a>),
    /// Asks whether a client may have what it wants.
    Consent(Consent<'a>),
    /// Asks for a device's code.
    DeviceCode(DeviceCode<'a>),
    /// Asks whether a device may have what its client wants.
    DeviceConfirm(DeviceConfirm<'a>),
    /// Says what became of it.
    DeviceDone(DeviceDone<'a>),
    /// Asks whether to sign out.
    Logout(Logout<'a>),
    /// Says that it is done.
    LogoutDone(LogoutDone<'a>),
    /// What a user can see and end.
    Account(Account<'a>),
    /// Sends an answer to a client.
    FormPost(FormPost<'a>),
    /// Says that something did not work.
    Error(ErrorPage<'a>),
}

/// The pages of one provider.
#[derive(Debug, Clone)]
pub struct Pages {
    brand: Brand,
    style: Style,
    languages: Languages,
}

impl Pages {
    /// Pages under a brand in these languages.
    pub fn new(brand: Brand, languages: Languages) -> Self {
        let style = Style::of(&brand);
        Self { brand, style, languages }
    }

    /// The languages there are.
    pub fn languages(&self) -> &Languages {
        &self.languages
    }

    /// A page as an answer, with its status and every header it needs.
    pub fn answer(&self, language: &Language, page: &Page<'_>) -> Response {
        let w = language.words();
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
        // writing to a string does not fail; should it ever, the answer is an empty one that says so
        let (status, body) = match markup {
            Ok(body) => (status, body),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        };
        let sources = answer::Sources {
            style: self.style.source(),
            script: matches!(page, Page::FormPost(_)).then(form_post::script_source),
            leads_to: page.leads_to(),
        };
        answer::html(status, body, sources, language.tag())
    }
}

impl Page<'_> {
    /// Where the forms of the page may lead besides the provider itself.
    fn leads_to(&self) -> &[FormTarget] {
        match self {
            Self::Login(page) => page.leads_to,
            Self::Consent(page) => page.leads_to,
            Self::Logout(page) => page.leads_to,
            Self::FormPost(page) => page.leads_to,
            _ => &[],
        }
    }
}

/// What every page has around its own.
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
