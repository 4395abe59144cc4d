//! Login call: detects requests for the login's own addresses, and redirects browsers that must log
//! in.
//!
//! The configuration alone decides both, for serving and for `check`, which explains it
//! ([`super::preview`]).

use std::borrow::Cow;

use ::pages::negotiation;
use auth::request::{Canonical, Field, form_pairs};
use credentials::cookies::Cookie;
use http_engine::http_client::form_encoded;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

use super::Login;
use super::config::LoginRedirect;
use super::login_state::{AccountChoice, AccountRequest};
use super::navigation::{self, Navigation};
use super::pages::PageNotice;
use super::redirect::RedirectTarget;
use crate::config::Origin;

/// Maximum bytes of a body: a logout token with its parameter name.
pub const MAX_BODY: usize = 32 << 10;

/// Maximum bytes of a `login_hint`: an e-mail address.
const MAX_HINT: usize = 320;

/// The requested action of the login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginAction {
    /// Start a login.
    Start,
    /// Return from the provider.
    Callback,
    /// Choose a provider.
    SignIn,
    /// Log out of the session.
    SignOut,
    /// The page after a logout.
    SignedOut,
    /// The page after a login in a separate tab.
    Done,
    /// Check whether there is a session.
    Auth,
    /// Return the session's user.
    UserInfo,
    /// A provider reports a logout (back-channel logout).
    BackChannelLogout,
    /// An address below the login's path without an action.
    Unknown,
}

impl LoginAction {
    /// The action for the rest of the path after the login's path, and the provider that it names.
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

    /// The allowed methods, as in the `Allow` field.
    fn allows(self) -> &'static [&'static str] {
        match self {
            // Both have an effect, so a HEAD request must not cause it. A provider may send a form to
            // the callback.
            Self::SignOut | Self::Callback => &["GET", "POST"],
            // So may a site that begins a login (OpenID Connect Core 1.0 §4).
            Self::Start => &["GET", "HEAD", "POST"],
            Self::BackChannelLogout => &["POST"],
            _ => &["GET", "HEAD"],
        }
    }
}

/// A request for one of the login's own addresses.
pub struct LoginCall {
    /// Index of its origin; the next field is the origin itself.
    pub(super) origin: usize,
    pub(super) here: Origin,
    pub(crate) action: LoginAction,
    /// The provider in the path of a callback.
    pub(super) provider: Option<String>,
    /// Value of the session cookie; the next field is that of the browser cookie.
    pub(super) session: Option<Vec<u8>>,
    pub(super) browser: Option<Vec<u8>>,
    /// Whether another site caused the request.
    pub(super) is_cross_site: bool,
    /// Query parameters, decoded, in order.
    pub(super) query: Vec<(&'static str, String)>,
    /// Whether the parameters are in its body.
    pub(super) is_post: bool,
    /// The content type of its body.
    pub(super) content_type: Option<Vec<u8>>,
    /// Its `Accept-Language`.
    pub(super) languages: Option<Vec<u8>>,
}

/// Addresses for a signed-in user to whom a page is forbidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountAddresses {
    /// Ends the session.
    pub sign_out: String,
    /// Starts a login with an account that the user chooses, and returns to the page.
    pub other_account: String,
}

/// The parameter with which a login asks for the account, as in an authorization request (OpenID
/// Connect Core 1.0 §3.1.2.1).
const PROMPT: (&str, &str) = ("prompt", "select_account");

/// The query parameters that are read.
const PARAMETERS: [&str; 12] = [
    "rd",
    "target_link_uri",
    "login_hint",
    "prompt",
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
    /// The only value of a parameter; a repeated parameter is ignored (RFC 6749 §3.1).
    pub(super) fn single(&self, name: &'static str) -> Option<&str> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    }

    /// All values of a parameter.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(other, _)| *other == name).map(|(_, value)| &**value)
    }

    /// The parameters in the form of a body; `None`: it is not a form.
    pub(super) fn form<'b>(
        &self,
        body: &'b [u8],
    ) -> Option<impl Iterator<Item = (&'static str, Cow<'b, str>)>> {
        self.content_type.as_deref().filter(|text| is_form(text))?;
        let pairs = form_pairs(std::str::from_utf8(body).ok()?);
        let known = |name: &str| PARAMETERS.into_iter().find(|known| *known == name);
        Some(pairs.filter_map(move |(name, value)| Some((known(&name)?, value))))
    }

    /// Whether the user wants to choose the account.
    pub(super) fn account_choice(&self) -> AccountChoice {
        match self.single(PROMPT.0) {
            Some(value) if value == PROMPT.1 => AccountChoice::User,
            _ => AccountChoice::Provider,
        }
    }

    /// Which account the login is for.
    pub(super) fn account_request(&self) -> AccountRequest<'_> {
        let is_sane =
            |hint: &&str| !hint.is_empty() && hint.len() <= MAX_HINT && !hint.contains(char::is_control);
        AccountRequest { choice: self.account_choice(), hint: self.single("login_hint").filter(is_sane) }
    }

    /// The parameter that passes on this choice.
    pub(super) fn prompt(&self) -> Option<(&'static str, &'static str)> {
        (self.account_choice() == AccountChoice::User).then_some(PROMPT)
    }

    /// Whether its body must be read first.
    pub fn wants_body(&self) -> bool {
        match self.action {
            LoginAction::BackChannelLogout => true,
            LoginAction::Start | LoginAction::Callback => self.is_post,
            _ => false,
        }
    }
}

impl Login {
    /// As `LoginConfig::call`.
    pub fn call(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        is_check: bool,
    ) -> Option<Result<LoginCall, LocalReply>> {
        self.config.call(request, fields, is_check)
    }

    /// As `LoginConfig::address`.
    pub(super) fn address(&self, origin: &Origin, endpoint: &str, parameters: &[(&str, &str)]) -> String {
        self.config.address(origin, endpoint, parameters)
    }

    /// Whether a request is for the login's path or below, at any host.
    pub fn is_below(&self, request: &Canonical<'_>) -> bool {
        request.path_below(&self.config.path).is_some()
    }

    /// Addresses for the signed-in user of a request that is forbidden; `None`: there is no login at
    /// that host.
    pub fn account_addresses(&self, request: &Canonical<'_>) -> Option<AccountAddresses> {
        let here = self.config.named_origin(request.authority())?;
        // Only a page can be returned to.
        let target = match request.method() {
            "GET" | "HEAD" => self.config.page_of(request, &here),
            _ => self.config.target(None, &here),
        };
        let other_account = self.config.start_address(&here, &target, &[PROMPT]);
        Some(AccountAddresses { sign_out: self.address(&here, "sign_out", &[]), other_account })
    }

    /// As `LoginConfig::invite`.
    pub fn login_redirect(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        upgrades: bool,
        redirect: LoginRedirect,
    ) -> Option<LocalReply> {
        self.config.invite(request, fields, upgrades, redirect)
    }
}

impl crate::config::LoginConfig {
    /// Detects a request for the login; `None` for others. `Some(Err)` is an immediate reply.
    /// `is_check`: whether another proxy sent a check about the request.
    pub(crate) fn call(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        is_check: bool,
    ) -> Option<Result<LoginCall, LocalReply>> {
        let origin = self.origin(request.authority())?;
        let rest = match request.forwarded_below(&self.path) {
            Ok(rest) => rest?,
            Err(fault) => {
                return Some(Err(LocalReply::from_code(fault.status(), fault.code(), Outcome::Malformed)));
            }
        };
        let (action, provider) = LoginAction::of(rest);
        let allowed = action.allows();
        // These actions are for direct requests only, not for checks of another proxy.
        let direct_only =
            matches!(action, LoginAction::Auth | LoginAction::UserInfo | LoginAction::BackChannelLogout);
        if action == LoginAction::Unknown || (is_check && direct_only) {
            return Some(Err(self.no_page(fields)));
        }
        if !allowed.contains(&request.method()) {
            let mut answer = LocalReply::from_code(405, "method_not_allowed", Outcome::Malformed);
            answer.fields.push(("allow".into(), allowed.join(", ").into()));
            return Some(Err(answer));
        }
        let reach = self.cookie_reach(origin);
        let query = PARAMETERS.iter().flat_map(|name| {
            request.query_values(name).map(move |value| (*name, value.into_owned())).collect::<Vec<_>>()
        });
        let content_type = fields.iter().find(|field| field.name.eq_ignore_ascii_case("content-type"));
        let here = self.named_origin(request.authority())?;
        Some(Ok(LoginCall {
            origin,
            action,
            provider: provider.map(str::to_owned),
            session: Cookie::Session.find(reach, fields).map(Into::into),
            browser: Cookie::Browser.find(reach, fields).map(Into::into),
            is_cross_site: navigation::is_cross_site(fields, &here.text),
            here,
            query: query.collect(),
            is_post: request.method() == "POST",
            content_type: content_type.map(|field| field.value.into()),
            languages: accept_language(fields).map(Into::into),
        }))
    }

    /// The reply for an address below the login's path that does not exist.
    fn no_page(&self, fields: &[Field<'_>]) -> LocalReply {
        if negotiation::wants_page(fields.iter().map(|field| (field.name, field.value))) {
            return self.pages.in_language(accept_language(fields)).problem(&PageNotice::NoPage, None);
        }
        LocalReply::from_code(404, "no_route", Outcome::NoRoute)
    }

    /// The reply that leads a browser without a session to log in; `None`: the client is not a
    /// browser that it would help.
    pub(crate) fn invite(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
        upgrades: bool,
        redirect: LoginRedirect,
    ) -> Option<LocalReply> {
        let here = self.named_origin(request.authority())?;
        match navigation::classify(request.method(), fields, upgrades, redirect) {
            Navigation::Program => None,
            Navigation::Navigate => {
                // Shortens or drops a target that is too long, or the address would become too
                // long.
                let target = self.page_of(request, &here);
                let mut answer = redirect_to(302, self.start_address(&here, &target, &[]));
                answer.code = "login_required";
                answer.outcome = Outcome::Unauthenticated;
                Some(answer)
            }
            // The browser keeps the form, and sends it again when the page is reloaded.
            Navigation::FormSubmission => {
                let done = self.target(Some(&format!("{}/done", self.path)), &here);
                let start = self.start_address(&here, &done, &[]);
                Some(self.pages.in_language(accept_language(fields)).expired(&start))
            }
        }
    }

    /// The page of a request, as a target to return to.
    fn page_of(&self, request: &Canonical<'_>, here: &Origin) -> RedirectTarget {
        let mut target = Vec::new();
        request.write_target(&mut target);
        self.target(std::str::from_utf8(&target).ok(), here)
    }

    /// The address at which a user at `here` begins a login that leads to a target.
    pub(super) fn start_address(
        &self,
        here: &Origin,
        target: &RedirectTarget,
        more: &[(&str, &str)],
    ) -> String {
        let login = self.login_origin(here);
        let target = target.seen_from(login);
        let parameters: Vec<_> = [("rd", &*target)].into_iter().chain(more.iter().copied()).collect();
        self.address(login, "start", &parameters)
    }

    /// A full address of the login. Only the configuration says which origins there are, never a
    /// request.
    pub(super) fn address(&self, origin: &Origin, endpoint: &str, parameters: &[(&str, &str)]) -> String {
        let mut text = format!("{}{}/{endpoint}", origin.text, self.path);
        for (at, (name, value)) in parameters.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(&form_encoded(value));
        }
        text
    }
}

/// Whether a content type is that of a form (RFC 9110 §8.3).
pub(super) fn is_form(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

fn accept_language<'f>(fields: &'f [Field<'_>]) -> Option<&'f [u8]> {
    fields.iter().find(|field| field.name.eq_ignore_ascii_case("accept-language")).map(|field| field.value)
}

/// A redirect that is not cached.
pub(super) fn redirect_to(status: u16, location: String) -> LocalReply {
    let mut answer = LocalReply::from_code(status, "redirect", Outcome::Local);
    answer.fields.push(("location".into(), location.into()));
    answer.fields.push(("referrer-policy".into(), "no-referrer".into()));
    answer.body = Cow::Borrowed(b"");
    answer
}
