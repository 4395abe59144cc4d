//! Page behind an invitation or a reset link: sets a password.
//!
//! Owns: the page, its form, and the count of guesses. Does not own: the creation of links
//! ([`crate::admin::links`]).
//!
//! ```text
//! GET  /set-password?token=…  → page; the link stays unused, because mail scanners follow links
//! POST /set-password          → password set, everything else of the account ended, link used → login
//! ```
//!
//! A link that is unknown, used, replaced or expired, and one of a disabled account, get the same
//! page.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use store::{
    account_links::{AccountLinkRow, LinkKind, UseAccountLink},
    audit::Audited,
};

use super::account;
use super::authorize::path;
use crate::audit_draft::{AuditDraft, Subject};
use crate::endpoint::browser_request::{BrowserRequest, with_retry_after};
use crate::endpoint::password_problem::password_problem;
use crate::login::LoginFault;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::pages::{ErrorKind, Form as PageForm, NewPassword, NewPasswordReason, Page, PasswordProblem};
use crate::passwords::Password;
use crate::passwords::lockout::Network;
use crate::paths;
use crate::provider::Provider;
use crate::revocations;

/// Handles `GET /set-password`: shows the page, and does not use the link.
pub async fn show(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    let form = match Form::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
        Ok(form) => form,
        Err(fault) => return visit.failed(&fault.into()),
    };
    let token = form.get("token").unwrap_or_default();
    match find(&visit, token).await {
        Ok(Some(link)) => page(&visit, &link, token, None),
        Ok(None) => invalid(&visit),
        Err(fault) => refused(&visit, fault),
    }
}

/// Handles `POST /set-password`: sets the password and uses the link.
pub async fn submit(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let token = form.get("token").unwrap_or_default();
    let link = match find(&visit, token).await {
        Ok(Some(link)) => link,
        Ok(None) => return invalid(&visit),
        Err(fault) => return refused(&visit, fault),
    };
    match try_set(&visit, &form, &link, token).await {
        Ok(Outcome::Set) => visit.redirect(&format!("{}?done=password", account::address(&provider))),
        Ok(Outcome::Problem(problem)) => page(&visit, &link, token, Some(problem)),
        Ok(Outcome::Invalid) => invalid(&visit),
        Err(fault) => visit.failed(&fault),
    }
}

/// Result of a submitted form.
enum Outcome {
    /// The password is set and the link is used.
    Set,
    /// The new password is not accepted; the link stays unused.
    Problem(PasswordProblem),
    /// The link was used or replaced, or the account was changed, meanwhile.
    Invalid,
}

/// The link with this secret, if it can be used. Other secrets are counted for the network.
async fn find(visit: &BrowserRequest<'_>, token: &str) -> Result<Option<AccountLinkRow>, LoginFault> {
    let (provider, now) = (visit.provider, visit.provider.now());
    if Provider::is_id(token)
        && let Some(link) = provider.store().account_link(&provider.account_link_digest(token), now).await?
    {
        return Ok(Some(link));
    }
    // A link that can be used always works: scanners of the same network may repeat old ones.
    let guesses = format!("account links from {}", Network::of(visit.browser.caller().0));
    provider.logins().check_subject(provider.store(), &guesses, now).await?;
    provider.logins().count_failure(provider.store(), guesses, now).await?;
    Ok(None)
}

fn invalid(visit: &BrowserRequest<'_>) -> Response {
    visit.error(ErrorKind::LinkInvalid, &"account link unknown, used or expired")
}

fn refused(visit: &BrowserRequest<'_>, fault: LoginFault) -> Response {
    match fault {
        LoginFault::Locked(after) => {
            let page = visit.error(ErrorKind::TooMany(after), &"too many unknown account links");
            with_retry_after(page, Some(after))
        }
        fault => visit.failed(&fault.into()),
    }
}

fn page(
    visit: &BrowserRequest<'_>,
    link: &AccountLinkRow,
    token: &str,
    problem: Option<PasswordProblem>,
) -> Response {
    let (proof, action) = (visit.proof(), path(visit.provider, paths::ACCOUNT_LINK));
    visit.page(&Page::NewPassword(NewPassword {
        reason: match link.kind {
            LinkKind::Invitation => NewPasswordReason::Invitation,
            LinkKind::Reset => NewPasswordReason::Reset,
        },
        form: PageForm { action: &action, csrf: &proof, hidden: &[("token", token)] },
        user: &link.user.name,
        min_length: visit.provider.logins().min_length(),
        problem,
        form_targets: &[],
    }))
}

/// Sets the password, uses the link, and ends all sessions and tokens of the user.
async fn try_set(
    visit: &BrowserRequest<'_>,
    form: &Form,
    link: &AccountLinkRow,
    token: &str,
) -> Result<Outcome, OAuthFault> {
    let (provider, user) = (visit.provider, &link.user);
    let [new, again] = ["new", "again"].map(|name| form.get(name).unwrap_or_default().to_owned());
    let (Ok(new), Ok(again)) = (Password::new(new), Password::new(again)) else {
        return Ok(Outcome::Problem(PasswordProblem::TooCommon));
    };
    if !new.same_form_as(&again) {
        return Ok(Outcome::Problem(PasswordProblem::Differ));
    }
    let logins = provider.logins();
    let stored = match logins.hash(&new, &user.name, user.email.as_deref(), provider.now()).await {
        Ok(stored) => stored,
        Err(fault) => return password_problem(fault).map(Outcome::Problem),
    };
    let end = revocations::change_password(provider, &user.id, stored);
    let target = format!("user:{}", user.id);
    let draft = AuditDraft::by_user(&Subject::of_user(user), "user.password", target, end.now);
    let entry = draft.with("link", true).finish();
    let change = UseAccountLink { digest: provider.account_link_digest(token), read_at: user.read_at, end };
    if !provider.store().write(Audited { change, entry }).await? {
        return Ok(Outcome::Invalid);
    }
    logins.forget(&user.id);
    Ok(Outcome::Set)
}
