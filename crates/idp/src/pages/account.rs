//! Account page: lists a user's sessions, consents and tokens, and changes the password.
//!
//! Owns: its view model. Does not own: sessions, consents, tokens, passwords. Each button is a form
//! of its own that is posted to one of [`AccountPaths`].

use std::time::Duration;

use askama::Template;
use auth::time::Timestamp;
use axum::http::StatusCode;

use ::pages::Filled;
use ::pages::text::Shown;

use super::messages::Words;
use super::{Form, Scope, View};

/// Paths on the provider's host that the forms of the page are posted to.
#[derive(Debug, Clone, Copy)]
pub struct AccountPaths<'a> {
    /// Logs out the user.
    pub logout: &'a str,
    /// Ends one session (field `session`).
    pub end_session: &'a str,
    /// Ends all sessions except the current one.
    pub end_others: &'a str,
    /// Withdraws a consent (field `client_id`).
    pub withdraw: &'a str,
    /// Withdraws all consents.
    pub withdraw_all: &'a str,
    /// Revokes one token family (field `token`).
    pub revoke: &'a str,
    /// Revokes all families that outlive sessions.
    pub revoke_all: &'a str,
    /// Changes the password (fields `current`, `new`, `again`).
    pub password: &'a str,
    /// Changes attributes (the fields' own names).
    pub attributes: &'a str,
}

/// How an attribute is shown or entered.
#[derive(Debug, Clone, Copy)]
pub enum AttributeInput<'a> {
    /// It is only shown.
    Shown,
    /// It is only shown, as yes or no.
    YesNoShown,
    /// A text.
    Text,
    /// A whole number.
    Number,
    /// Yes or no.
    YesNo,
    /// One of these texts.
    Choice(&'a [String]),
    /// Texts, separated by commas.
    List,
}

/// An attribute on the page.
#[derive(Debug, Clone, Copy)]
pub struct AttributeField<'a> {
    /// Its name for the user.
    pub label: &'a str,
    /// Name of the form field.
    pub name: &'a str,
    /// Its value; empty: none. `true` is yes.
    pub value: &'a str,
    /// How it is shown or entered.
    pub input: AttributeInput<'a>,
}

impl AttributeField<'_> {
    fn is_shown_only(&self) -> bool {
        matches!(self.input, AttributeInput::Shown | AttributeInput::YesNoShown)
    }
}

/// A session on the page.
#[derive(Debug, Clone, Copy)]
pub struct SessionEntry<'a> {
    /// Session id in forms; it is not the session's secret.
    pub id: &'a str,
    /// The browser, for example `Firefox on Linux`.
    pub browser: &'a str,
    /// Address of the browser at its login.
    pub address: &'a str,
    /// When the session was last used.
    pub last_seen: Timestamp,
    /// Whether it is the session of this browser.
    pub is_current: bool,
}

/// A consent on the page.
#[derive(Debug, Clone, Copy)]
pub struct ConsentRow<'a> {
    /// Id of the client.
    pub client_id: &'a str,
    /// Display name of the client.
    pub client: &'a str,
    /// The granted scopes.
    pub scopes: &'a [Scope<'a>],
    /// When the consent was given.
    pub since: Timestamp,
}

/// A token family on the page.
#[derive(Debug, Clone, Copy)]
pub struct TokenRow<'a> {
    /// Id of the family in forms; it is not a token.
    pub id: &'a str,
    /// Display name of the client that holds it.
    pub client: &'a str,
    /// When it was granted.
    pub issued: Timestamp,
    /// When it expires, if it does.
    pub expires: Option<Timestamp>,
    /// Browser of the session that it ends with; `None`: it outlives sessions.
    pub session: Option<&'a str>,
}

/// The form that changes a password.
#[derive(Debug, Clone, Copy)]
pub struct PasswordForm {
    /// Fewest characters of a new password.
    pub min_length: usize,
    /// Why the last attempt failed.
    pub problem: Option<PasswordProblem>,
}

/// Reason why a new password was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordProblem {
    /// The current password is wrong.
    WrongCurrent,
    /// The new password has too few characters.
    TooShort,
    /// The new password has a character that is not allowed.
    Characters,
    /// The new password is in a list of common ones.
    TooCommon,
    /// The two entries of the new password differ.
    Differ,
    /// The new password equals the current one.
    Same,
    /// Too many failures; holds how long attempts are refused.
    TooMany(Duration),
}

/// The operation that was just completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountDone {
    /// Attributes were changed.
    AttributesChanged,
    /// The password was changed.
    PasswordChanged,
    /// One session was ended.
    SessionEnded,
    /// All other sessions were ended.
    OthersEnded,
    /// One consent was withdrawn.
    ConsentWithdrawn,
    /// All consents were withdrawn.
    ConsentsWithdrawn,
    /// One token family was revoked.
    TokenRevoked,
    /// All families that outlive sessions were revoked.
    TokensRevoked,
}

/// View model of the account page.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// Login name of the user.
    pub user: &'a str,
    /// The CSRF token of every form.
    pub csrf: &'a str,
    /// Paths that the forms are posted to.
    pub paths: AccountPaths<'a>,
    /// Attributes that the user may see.
    pub attributes: &'a [AttributeField<'a>],
    /// Name of the form field whose value was refused.
    pub refused_attribute: Option<&'a str>,
    /// Sessions of the user, the current one included.
    pub sessions: &'a [SessionEntry<'a>],
    /// Consents of the user.
    pub consents: &'a [ConsentRow<'a>],
    /// Token families that outlive sessions.
    pub tokens: &'a [TokenRow<'a>],
    /// Token families that end with a session.
    pub session_bound: &'a [TokenRow<'a>],
    /// The password form; `None` if the user has no password here.
    pub password: Option<PasswordForm>,
    /// The operation that was just completed, if any.
    pub done: Option<AccountDone>,
}

#[derive(Template)]
#[template(path = "pages/account.html")]
struct Markup<'a> {
    w: &'a Words,
    v: &'a Account<'a>,
    done: Option<Filled<'a>>,
    problem: Option<Filled<'a>>,
    at_current: bool,
    at_new: bool,
}

impl Markup<'_> {
    /// Helper for the template, which has no access to other names.
    fn shown(text: &str) -> Shown<'_> {
        Shown(text)
    }
}

impl Account<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let problem = self.password.and_then(|p| Some((p.problem?, p.min_length)));
        let kind = problem.map(|(kind, _)| kind);
        let at_current = matches!(kind, Some(PasswordProblem::WrongCurrent | PasswordProblem::TooMany(_)));
        let status = match kind {
            None => StatusCode::OK,
            Some(PasswordProblem::TooMany(_)) => StatusCode::TOO_MANY_REQUESTS,
            Some(PasswordProblem::WrongCurrent) => StatusCode::FORBIDDEN,
            Some(_) => StatusCode::BAD_REQUEST,
        };
        let status = if self.refused_attribute.is_some() { StatusCode::BAD_REQUEST } else { status };
        let markup = Markup {
            w,
            v: self,
            done: self.done.map(|done| done_message(done, w)),
            problem: problem.map(|(kind, min)| problem_message(kind, min, w)),
            at_current,
            at_new: kind.is_some() && !at_current,
        };
        View { wide: true, ..View::new(&w.account.title, &markup).with_status(status) }
    }

    /// Whether there are sessions besides the current one.
    fn others(&self) -> bool {
        self.sessions.iter().any(|s| !s.is_current)
    }

    /// Whether the user may change an attribute.
    fn changes_attributes(&self) -> bool {
        self.attributes.iter().any(|field| !field.is_shown_only())
    }

    /// Name for the user of the attribute whose value was refused.
    fn refused_label(&self) -> Option<&str> {
        self.attributes.iter().find(|field| self.is_refused(field)).map(|field| field.label)
    }

    fn is_refused(&self, field: &AttributeField<'_>) -> bool {
        self.refused_attribute == Some(field.name)
    }

    fn form<'f>(&'f self, action: &'f str) -> Form<'f> {
        Form { action, csrf: self.csrf, hidden: &[] }
    }
}

fn done_message(done: AccountDone, w: &Words) -> Filled<'_> {
    let a = &w.account;
    match done {
        AccountDone::AttributesChanged => &a.did_save,
        AccountDone::PasswordChanged => &a.did_change,
        AccountDone::SessionEnded => &a.did_end,
        AccountDone::OthersEnded => &a.did_end_others,
        AccountDone::ConsentWithdrawn => &a.did_withdraw,
        AccountDone::ConsentsWithdrawn => &a.did_withdraw_all,
        AccountDone::TokenRevoked => &a.did_revoke,
        AccountDone::TokensRevoked => &a.did_revoke_all,
    }
    .filled()
}

/// Why a new password was not accepted, in words.
pub(super) fn problem_message(problem: PasswordProblem, min: usize, w: &Words) -> Filled<'_> {
    let a = &w.account;
    match problem {
        PasswordProblem::WrongCurrent => a.wrong_current.filled(),
        PasswordProblem::TooShort => a.too_short.with("min", min),
        PasswordProblem::Characters => a.characters.filled(),
        PasswordProblem::TooCommon => a.too_common.filled(),
        PasswordProblem::Differ => a.differ.filled(),
        PasswordProblem::Same => a.same.filled(),
        PasswordProblem::TooMany(after) => a.too_many.with("wait", w.wait(after)),
    }
}
