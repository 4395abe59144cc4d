//! The account page: what a user can see and end.
//!
//! Owns: its view model. Does not own: sessions, consents, tokens, passwords; every button is a form of its
//! own that is sent to one of [`AccountPaths`].

use std::time::Duration;

use askama::Template;
use auth::time::Timestamp;
use axum::http::StatusCode;

use super::text::Shown;
use super::{Form, Frame, Scope};
use crate::pages::messages::{Filled, Words};

/// Where the forms of the account page are sent: paths on the provider's host.
#[derive(Debug, Clone, Copy)]
pub struct AccountPaths<'a> {
    /// Signs out.
    pub logout: &'a str,
    /// Ends one session (field `session`).
    pub end_session: &'a str,
    /// Ends all sessions but this one.
    pub end_others: &'a str,
    /// Withdraws a consent (field `client_id`).
    pub withdraw: &'a str,
    /// Withdraws all consents.
    pub withdraw_all: &'a str,
    /// Revokes access, lasting or not (field `token`).
    pub revoke: &'a str,
    /// Revokes all that lasts.
    pub revoke_all: &'a str,
    /// Changes the password (fields `current`, `new`, `again`).
    pub password: &'a str,
}

/// A session.
#[derive(Debug, Clone, Copy)]
pub struct SessionEntry<'a> {
    /// What names it in a form; not the session's secret.
    pub id: &'a str,
    /// The browser, for example `Firefox on Linux`.
    pub browser: &'a str,
    /// The address it was last seen from.
    pub address: &'a str,
    /// When.
    pub last_seen: Timestamp,
    /// Whether it is the one that looks at the page.
    pub this_one: bool,
}

/// A consent.
#[derive(Debug, Clone, Copy)]
pub struct ConsentRow<'a> {
    /// The client.
    pub client_id: &'a str,
    /// Its name.
    pub client: &'a str,
    /// What it may have.
    pub scopes: &'a [Scope<'a>],
    /// Since when.
    pub since: Timestamp,
}

/// Access that a client renews by itself: a refresh token's family.
#[derive(Debug, Clone, Copy)]
pub struct TokenRow<'a> {
    /// What names it in a form; not the token.
    pub id: &'a str,
    /// The name of the client that holds it.
    pub client: &'a str,
    /// Since when.
    pub issued: Timestamp,
    /// Until when, if it ends by itself.
    pub expires: Option<Timestamp>,
    /// The browser of the session that it ends with; `None`: it lasts without the user.
    pub session: Option<&'a str>,
}

/// The form that changes a password.
#[derive(Debug, Clone, Copy)]
pub struct PasswordForm {
    /// Fewest characters of a new one.
    pub min_length: usize,
    /// Why the last one was not taken.
    pub problem: Option<PasswordProblem>,
}

/// Why a new password was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordProblem {
    /// The current one is wrong.
    WrongCurrent,
    /// Under the fewest characters.
    TooShort,
    /// A character that a password may not have.
    Characters,
    /// Known from lists.
    TooCommon,
    /// Not twice the same.
    Differ,
    /// The current one again.
    Same,
    /// Too many attempts; and how long nothing is looked at.
    TooMany(Duration),
}

/// What was done just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountDone {
    /// The password is changed.
    PasswordChanged,
    /// A session is ended.
    SessionEnded,
    /// All others are ended.
    OthersEnded,
    /// A consent is withdrawn.
    ConsentWithdrawn,
    /// All are.
    ConsentsWithdrawn,
    /// Access is revoked.
    TokenRevoked,
    /// All that lasts is.
    TokensRevoked,
}

/// Shows a user's sessions, consents and lasting access, and changes the password.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// The user.
    pub user: &'a str,
    /// The CSRF token of every form.
    pub csrf: &'a str,
    /// Where the forms are sent.
    pub paths: AccountPaths<'a>,
    /// Sessions, this one among them.
    pub sessions: &'a [SessionEntry<'a>],
    /// Consents.
    pub consents: &'a [ConsentRow<'a>],
    /// Lasting access.
    pub tokens: &'a [TokenRow<'a>],
    /// Access that ends with a session.
    pub passing: &'a [TokenRow<'a>],
    /// The password, for users who have one here.
    pub password: Option<PasswordForm>,
    /// What was done just now.
    pub done: Option<AccountDone>,
}

#[derive(Template)]
#[template(path = "pages/account.html")]
struct Markup<'a> {
    f: Frame<'a>,
    w: &'a Words,
    v: &'a Account<'a>,
    done: Option<Filled<'a>>,
    problem: Option<Filled<'a>>,
    at_current: bool,
    at_new: bool,
}

impl Markup<'_> {
    /// For the template, which sees no other names than its own.
    fn shown(text: &str) -> Shown<'_> {
        Shown(text)
    }
}

impl Account<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> (StatusCode, askama::Result<String>) {
        let problem = self.password.and_then(|p| Some((p.problem?, p.min_length)));
        let kind = problem.map(|(kind, _)| kind);
        let at_current = matches!(kind, Some(PasswordProblem::WrongCurrent | PasswordProblem::TooMany(_)));
        let status = match kind {
            None => StatusCode::OK,
            Some(PasswordProblem::TooMany(_)) => StatusCode::TOO_MANY_REQUESTS,
            Some(PasswordProblem::WrongCurrent) => StatusCode::FORBIDDEN,
            Some(_) => StatusCode::BAD_REQUEST,
        };
        let markup = Markup {
            f: f.titled(&w.account.title).wide(),
            w,
            v: self,
            done: self.done.map(|done| said(done, w)),
            problem: problem.map(|(kind, min)| told(kind, min, w)),
            at_current,
            at_new: kind.is_some() && !at_current,
        };
        (status, markup.render())
    }

    /// Whether there are sessions besides this one.
    fn others(&self) -> bool {
        self.sessions.iter().any(|s| !s.this_one)
    }

    fn form<'f>(&'f self, action: &'f str) -> Form<'f> {
        Form { action, csrf: self.csrf, hidden: &[] }
    }
}

fn said(done: AccountDone, w: &Words) -> Filled<'_> {
    let a = &w.account;
    match done {
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

fn told(problem: PasswordProblem, min: usize, w: &Words) -> Filled<'_> {
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
