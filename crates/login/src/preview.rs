//! Preview: describes what the login does with a request, without doing it; for `check`.
//!
//! Owns: the descriptions of its addresses. Does not own: which request is for which address, and
//! which client is sent to log in (`call`, `navigation`): the code that serves decides that.

use auth::decide::Denial;
use auth::request::{Canonical, Field};
use credentials::cookies::Cookie;
use http_engine::local_reply::LocalReply;

use super::call::LoginAction;
use super::config::LoginRedirect;

/// A predicted response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// Its status. If only serving can determine it, the status of the successful case.
    pub status: u16,
    /// Code for logs and metrics.
    pub code: &'static str,
    /// Description of the response.
    pub description: &'static str,
    /// Its `Location`, if it is known.
    pub location: Option<String>,
}

/// The login's own response, before a route is looked up; `None`: the request is not for the login.
/// `is_check`: whether another proxy sent a check about the request.
pub fn own_response(
    login: &crate::config::LoginConfig,
    request: &Canonical<'_>,
    fields: &[Field<'_>],
    is_check: bool,
) -> Option<Preview> {
    Some(match login.call(request, fields, is_check)? {
        Err(answer) => Preview::of(
            &answer,
            "the login answers every address below its path, and this one does not exist",
        ),
        Ok(call) => {
            let elsewhere = *login.login_origin(&call.here) != call.here;
            let (status, description) = match call.action {
                LoginAction::Start if elsewhere => {
                    (302, "starts a login: redirect to `callback_origin`, where every login takes place")
                }
                LoginAction::Callback if elsewhere => {
                    (400, "providers return to `callback_origin`, so no login ends here")
                }
                action => describe(action, login),
            };
            Preview { status, code: "local", description, location: None }
        }
    })
}

/// The response of a route with `login = true` to a request without a credential; `None`: the plain
/// refusal.
pub fn login_redirect(
    (login, redirect): (&crate::config::LoginConfig, LoginRedirect),
    denial: &Denial,
    request: &Canonical<'_>,
    fields: &[Field<'_>],
    upgrades: bool,
) -> Option<Preview> {
    if !matches!(denial, Denial::Unauthenticated) {
        return None;
    }
    let answer = login.invite(request, fields, upgrades, redirect)?;
    let description = match answer.status {
        302 => "a browser that navigates to a page: redirected to log in, then back",
        _ => {
            "a browser that sends a form: a page asks the user to log in in a new tab and to send the form again"
        }
    };
    Some(Preview::of(&answer, description))
}

/// Whether a request has a cookie that could be a session's.
pub fn carries_session(
    login: &crate::config::LoginConfig,
    request: &Canonical<'_>,
    fields: &[Field<'_>],
) -> bool {
    let origin = login.origin(request.authority());
    origin.is_some_and(|origin| Cookie::Session.find(login.cookie_reach(origin), fields).is_some())
}

impl Preview {
    fn of(answer: &LocalReply, description: &'static str) -> Self {
        let location = answer.fields.iter().find(|(name, _)| name == "location");
        let location = location.map(|(_, value)| value.clone().into_owned());
        Self { status: answer.status, code: answer.code, description, location }
    }
}

fn describe(action: LoginAction, login: &crate::config::LoginConfig) -> (u16, &'static str) {
    let chosen = login.page || login.providers.len() > 1;
    match action {
        LoginAction::Start if chosen => (302, "starts a login: redirect to the page to choose a provider"),
        LoginAction::Start => (302, "starts a login: redirect to the provider"),
        LoginAction::Callback => {
            (303, "return from the provider: creates a session, or shows a page with the error")
        }
        LoginAction::SignIn => (200, "the page to choose a provider"),
        LoginAction::SignOut => {
            (303, "ends the session; asks for confirmation if another site sent the browser")
        }
        LoginAction::SignedOut => (200, "the page after signing out"),
        LoginAction::Done => (200, "the page after a login in a separate tab"),
        LoginAction::Auth => (
            202,
            "whether there is a session: 401 without one, 403 if it does not meet the conditions of the query",
        ),
        LoginAction::UserInfo => (200, "the user of the session: 401 without one"),
        LoginAction::BackChannelLogout => (200, "accepts a provider's logout token: 400 if it is invalid"),
        LoginAction::Unknown => (404, "nothing"),
    }
}
