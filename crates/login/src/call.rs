//! Which of the login's own addresses a request asks for, and what is kept of it while it is answered; and what somebody is
//! answered who has to log in first. The configuration alone says so, here and to whoever explains it ([`super::preview`]).

use std::borrow::Cow;

use auth::request::{Canonical, Field};
use credentials::cookies::Cookie;
use http_engine::http_client::form_encoded;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

use super::Login;
use super::navigation::{self, Navigation};
use super::pages;
use super::redirect;

/// Largest body that is read: a logout token and its name.
pub const MAX_BODY: usize = 32 << 10;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginAction {
    /// Begin to log in.
    Start,
    /// Come back from the provider.
    Callback,
    /// Choose a provider.
    SignIn,
    /// Log out.
    SignOut,
    /// The page after logging out.
    SignedOut,
    /// The page after logging in in a tab of its own.
    Done,
    /// Whether there is a session.
    Auth,
    /// Whose session it is.
    UserInfo,
    /// A provider says that somebody logged out there.
    BackChannelLogout,
    /// Nothing that is there.
    Unknown,
}

impl LoginAction {
    /// What is asked for by what follows the login's path, and the provider that it names.
    fn of(rest: &str) -> (Self, Option<&str>) {
        if let Some(provider) = rest.strip_prefix("/callback/") {
            return (Self::Callback, Some(provider));
        }
        let action = match rest {
            "/start" => Self::Start,
            "/callback" => Self::Callback,
            "/sign_in" => Self::SignIn,
            "/sign_out" => Self::SignOut,
            "/signed_out" => Self::SignedOut,
            "/done" => Self::Done,
            "/auth" => Self::Auth,
            "/userinfo" => Self::UserInfo,
            "/backchannel_logout" => Self::BackChannelLogout,
            _ => Self::Unknown,
        };
        (action, None)
    }

    /// The method that may not be used, as `Allow` says which may.
    fn allows(self) -> &'static [&'static str] {
        match self {
            Self::SignOut => &["GET", "POST"],
            // It changes something, so whoever only looks must not bring it about.
            Self::Callback => &["GET"],
            Self::BackChannelLogout => &["POST"],
            _ => &["GET", "HEAD"],
        }
    }
}

/// A request for one of the login's own addresses.
pub struct LoginCall {
    pub(super) origin: usize,
    pub(crate) action: LoginAction,
    /// The provider in the address of a callback.
    pub(super) provider: Option<String>,
    /// The value of each cookie of ours.
    pub(super) session: Option<Vec<u8>>,
    pub(super) browser: Option<Vec<u8>>,
    /// Another site made the browser ask.
    pub(super) from_elsewhere: bool,
    /// Query parameters, decoded, in order.
    pub(super) query: Vec<(&'static str, String)>,
    /// The content type of its body.
    pub(super) content_type: Option<Vec<u8>>,
}

/// Parameters that are read.
const PARAMETERS: [&str; 9] = [
    "rd",
    "provider",
    "code",
    "state",
    "iss",
    "error",
    "allowed_groups",
    "allowed_emails",
    "allowed_email_domains",
];

impl LoginCall {
    /// The one value of a parameter; one that is there twice is not believed (RFC 6749 §3.1).
    pub(super) fn one(&self, name: &'static str) -> Option<&str> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    }

    /// All values of a parameter.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(found, _)| *found == name).map(|(_, value)| &**value)
    }

    /// Whether its body has to be read before it is answered.
    pub fn wants_body(&self) -> bool {
        self.action == LoginAction::BackChannelLogout
    }
}

impl Login {
    /// As [`crate::config::Login::call`].
    pub fn call(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        asked: bool,
    ) -> Option<Result<LoginCall, LocalReply>> {
        self.config.call(request, fields, asked)
    }

    /// As [`crate::config::Login::address`].
    pub(super) fn address(&self, origin: usize, what: &str, parameters: &[(&str, &str)]) -> String {
        self.config.address(origin, what, parameters)
    }

    /// Whether a request is for the login's path or below, at whatever host.
    pub fn is_below(&self, request: &Canonical<'_>) -> bool {
        request.path_below(&self.config.path).is_some()
    }

    /// As [`crate::config::Login::invite`].
    pub fn invite(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        upgrades: bool,
    ) -> Option<LocalReply> {
        self.config.invite(request, fields, upgrades)
    }
}

impl crate::config::LoginConfig {
    /// The origin that a request is at, by its canonical authority; `None`: nobody logs in there.
    pub fn origin(&self, authority: &str) -> Option<usize> {
        self.origins.iter().position(|origin| *origin.authority == *authority)
    }

    /// The call that a request is, if it asks for something of the login's; or what it is answered at once.
    /// `asked` says that another proxy asks about it.
    pub(crate) fn call(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        asked: bool,
    ) -> Option<Result<LoginCall, LocalReply>> {
        let origin = self.origin(request.authority())?;
        let rest = request.path_below(&self.path)?;
        let (action, provider) = LoginAction::of(rest);
        let allowed = action.allows();
        // These are for whoever comes to us itself.
        let not_asked =
            matches!(action, LoginAction::Auth | LoginAction::UserInfo | LoginAction::BackChannelLogout);
        if action == LoginAction::Unknown || (asked && not_asked) {
            return Some(Err(LocalReply::plain(404, "no_route", Outcome::NoRoute)));
        }
        if !allowed.contains(&request.method()) {
            let mut answer = LocalReply::plain(405, "method_not_allowed", Outcome::Malformed);
            answer.fields.push(("allow".into(), allowed.join(", ").into()));
            return Some(Err(answer));
        }
        let https = self.origins[origin].https;
        let query = PARAMETERS.iter().flat_map(|name| {
            request.query_values(name).map(move |value| (*name, value.into_owned())).collect::<Vec<_>>()
        });
        let content_type = fields.iter().find(|field| field.name.eq_ignore_ascii_case("content-type"));
        Some(Ok(LoginCall {
            origin,
            action,
            provider: provider.map(str::to_owned),
            session: Cookie::Session.find(https, fields).map(Into::into),
            browser: Cookie::Browser.find(https, fields).map(Into::into),
            from_elsewhere: navigation::is_from_elsewhere(fields),
            query: query.collect(),
            content_type: content_type.map(|field| field.value.into()),
        }))
    }

    /// What somebody without a session is answered whom a redirect, or a page, helps; `None`: whoever it is, it does not.
    pub(crate) fn invite(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        upgrades: bool,
    ) -> Option<LocalReply> {
        let origin = self.origin(request.authority())?;
        match navigation::judge(request.method(), fields, upgrades) {
            Navigation::Program => None,
            Navigation::Visit => {
                let mut target = Vec::new();
                request.write_target(&mut target);
                // What is too long to be kept must not make an address that is too long to be read.
                let target = redirect::target(std::str::from_utf8(&target).ok(), &self.origins[origin]);
                let mut answer = redirect_to(302, self.address(origin, "start", &[("rd", &target)]));
                answer.code = "login_required";
                answer.outcome = Outcome::Unauthenticated;
                Some(answer)
            }
            // The browser keeps the form, and sends it again when the page is loaded again.
            Navigation::Submission => {
                let done = format!("{}/done", self.path);
                Some(pages::expired(&self.address(origin, "start", &[("rd", &done)])))
            }
        }
    }

    /// An address of the login's own, in full: of the configuration, never of a request.
    pub(super) fn address(&self, origin: usize, what: &str, parameters: &[(&str, &str)]) -> String {
        let mut text = format!("{}{}/{what}", self.origins[origin].text, self.path);
        for (at, (name, value)) in parameters.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(&form_encoded(value));
        }
        text
    }
}

/// A redirect; nothing keeps it.
pub(super) fn redirect_to(status: u16, location: String) -> LocalReply {
    let mut answer = LocalReply::plain(status, "redirect", Outcome::Local);
    answer.fields.push(("location".into(), location.into()));
    answer.fields.push(("referrer-policy".into(), "no-referrer".into()));
    answer.body = Cow::Borrowed(b"");
    answer
}
