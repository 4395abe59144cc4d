//! Pages for users: server-rendered, with plain CSS, usable without scripts.
//!
//! Owns: the view of each page ([`login`], [`new_password`], [`forgot_password`], [`consent`], [`device`], [`logout`], [`account`],
//! [`form_post`], [`error`]), the texts of mails (`link_mail`), and their messages ([`messages`]).
//!
//! Does not own: the document around a view, brand, languages and response headers (crate
//! [`pages`](::pages)); routes, sessions, stores, creation and verification of CSRF tokens. A page
//! gets all data from its view model. Its texts are borrowed and untrusted: all are escaped.
//!
//! Flow:
//!
//! ```text
//! Languages::choose  ui_locales, Accept-Language → Language
//! Pages::answer  view model → view (askama, escaped) → Shell::page  document, policy, headers
//! ```

pub mod account;
pub mod consent;
pub mod device;
pub mod error;
pub mod forgot_password;
pub mod form_post;
mod link_mail;
pub mod login;
pub mod logout;
pub mod messages;
pub mod new_password;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use ::pages::{
    Catalog, Content, FormTarget, Language, LanguageFault, Languages, Phrase, PolicySources, Shell, ShellPage,
};
pub use account::{
    Account, AccountDone, AccountPaths, AttributeField, AttributeInput, ConsentRow, PasswordForm,
    PasswordProblem, SessionEntry, TokenRow,
};
use askama::Template;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
pub use consent::{Consent, Scope};
pub use device::{DeviceCode, DeviceConfirm, DeviceDone, DeviceProblem};
pub use error::{ErrorKind, ErrorPage};
pub use forgot_password::{ForgotPassword, ForgotPasswordStep};
pub use form_post::FormPost;
pub(crate) use link_mail::LinkMail;
pub use login::{Login, LoginProblem};
pub use logout::{Logout, LogoutDone};
use messages::Words;
pub use new_password::{NewPassword, NewPasswordReason};

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
    /// Asks for a new password: before a login continues, or behind a link.
    NewPassword(NewPassword<'a>),
    /// Takes the name of a user who forgot the password.
    ForgotPassword(ForgotPassword<'a>),
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
    shell: Arc<Shell>,
    messages: Catalog<Words>,
}

impl Pages {
    /// Creates the renderer for a shell.
    ///
    /// # Errors
    /// Every fault in the messages of a language.
    pub fn new(shell: Arc<Shell>) -> Result<Self, Vec<LanguageFault>> {
        let messages = Catalog::read(shell.languages(), &messages::BUILTIN)?;
        Ok(Self { shell, messages })
    }

    /// The supported languages.
    pub fn languages(&self) -> &Languages {
        self.shell.languages()
    }

    /// Renders a page as an HTTP response, with status and all headers.
    pub fn answer(&self, language: &Language, page: &Page<'_>) -> Response {
        let view = page.view(self.messages.of(language));
        let Ok(main) = view.main else { return failed() };
        let sources = PolicySources {
            script: matches!(page, Page::FormPost(_)).then(form_post::script_source),
            form_targets: Some(page.form_targets()),
            frame_ancestors: None,
        };
        let (status, wide) = (view.status.as_u16(), view.wide);
        response(self.shell.page(language, &Content { status, title: view.title, wide, main, sources }))
    }
}

/// A page as a response of axum. A page is never sent without one of its fields.
fn response(page: ShellPage) -> Response {
    let Ok(status) = StatusCode::from_u16(page.status) else { return failed() };
    let mut response = Response::new(Body::from(page.body));
    *response.status_mut() = status;
    for (name, value) in page.fields {
        let value = match value {
            Cow::Borrowed(value) => Ok(HeaderValue::from_static(value)),
            Cow::Owned(value) => HeaderValue::try_from(value),
        };
        let Ok(value) = value else { return failed() };
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
    response
}

fn failed() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// A page without the document around it.
struct View<'a> {
    status: StatusCode,
    title: &'a Phrase,
    wide: bool,
    /// Fails only when a string cannot be written to.
    main: askama::Result<String>,
}

impl<'a> View<'a> {
    /// A narrow page with status 200.
    fn new(title: &'a Phrase, markup: &impl Template) -> Self {
        Self { status: StatusCode::OK, title, wide: false, main: markup.render() }
    }

    fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl Page<'_> {
    fn view<'w>(&self, w: &'w Words) -> View<'w> {
        match self {
            Self::Login(page) => page.view(w),
            Self::NewPassword(page) => page.view(w),
            Self::ForgotPassword(page) => page.view(w),
            Self::Consent(page) => page.view(w),
            Self::DeviceCode(page) => page.view(w),
            Self::DeviceConfirm(page) => page.view(w),
            Self::DeviceDone(page) => page.view(w),
            Self::Logout(page) => page.view(w),
            Self::LogoutDone(page) => page.view(w),
            Self::Account(page) => page.view(w),
            Self::FormPost(page) => page.view(w),
            Self::Error(page) => page.view(w),
        }
    }

    /// Targets of the page's forms besides the provider itself.
    fn form_targets(&self) -> &[FormTarget] {
        match self {
            Self::Login(page) => page.form_targets,
            Self::NewPassword(page) => page.form_targets,
            Self::Consent(page) => page.form_targets,
            Self::Logout(page) => page.form_targets,
            Self::FormPost(page) => page.form_targets,
            _ => &[],
        }
    }
}
