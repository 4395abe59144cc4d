//! New password at login: a user whose password is temporary chooses one before any session begins.
//!
//! Owns: the page and its form. Does not own: the check of the password that precedes it, and the
//! interaction that continues after it ([`super`]).
//!
//! ```text
//! POST /login: right, but temporary → page, with the user in the sealed state
//!   → POST /login/password: rules, not the same → password, session → the interaction continues
//! ```
//!
//! The state proves that this browser sent the right password. It becomes worthless when the
//! password is changed elsewhere or the account is revoked or disabled.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use store::{audit::Audited, users::ChangeOwnPassword};

use crate::audit_draft::{AuditDraft, Subject};
use crate::authorization_state::{AuthorizationState, Intent, PendingPasswordChange};
use crate::endpoint::authorize::{self, ParsedRequest};
use crate::endpoint::browser_request::BrowserRequest;
use crate::endpoint::password_problem::password_problem;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::pages::{ErrorKind, Form as PageForm, NewPassword, NewPasswordReason, Page, PasswordProblem};
use crate::passwords::{Password, Verdict};
use crate::paths;
use crate::provider::Provider;
use crate::revocations;

/// Result of a submitted form.
enum Submitted {
    /// The password is changed and a session has begun.
    Changed,
    /// The new password is not accepted; holds the name of the user for the page.
    Problem(String, PasswordProblem),
    /// The account has changed since the old password was verified.
    Stale,
}

/// The page that asks for a new password.
pub(super) async fn page(
    visit: &mut BrowserRequest<'_>,
    flow: &AuthorizationState,
    user: &str,
    problem: Option<PasswordProblem>,
) -> Response {
    let parsed = match &flow.intent {
        Intent::Authorize(parameters) => match ParsedRequest::read(visit.provider, parameters).await {
            Ok(parsed) => Some(parsed),
            Err(unfit) => return authorize::error_response(visit, unfit),
        },
        Intent::Device(_) | Intent::Decided { .. } | Intent::Account | Intent::Logout(_) => None,
    };
    visit.select_language(parsed.as_ref().and_then(|parsed| parsed.request.ui_locales.as_deref()));
    let Ok(sealed) = flow.seal(visit.provider, &visit.browser) else {
        return visit.failed(&OAuthFault::EntropyFailed);
    };
    let leads_to = parsed.as_ref().map(ParsedRequest::form_targets).unwrap_or_default();
    let (proof, action) = (visit.proof(), authorize::path(visit.provider, paths::NEW_PASSWORD));
    visit.page(&Page::NewPassword(NewPassword {
        reason: NewPasswordReason::Temporary,
        form: PageForm { action: &action, csrf: &proof, hidden: &[("flow", &sealed)] },
        user,
        min_length: visit.provider.logins().min_length(),
        problem,
        form_targets: &leads_to,
    }))
}

/// Handles `POST /login/password`: sets the new password and continues the interaction.
pub async fn submit(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let flow =
        form.get("flow").and_then(|sealed| AuthorizationState::open(&provider, &visit.browser, sealed));
    let Some(flow) = flow else { return visit.error(ErrorKind::Expired, &"page expired") };
    let Some(pending) = flow.password_change().cloned() else {
        return visit.error(ErrorKind::FormRejected, &"form belongs to another page");
    };
    match try_change(&mut visit, &form, &pending).await {
        Ok(Submitted::Changed) => {
            super::continue_interaction(&mut visit, flow.without_password_change()).await
        }
        Ok(Submitted::Problem(user, problem)) => page(&mut visit, &flow, &user, Some(problem)).await,
        Ok(Submitted::Stale) => visit.error(ErrorKind::Expired, &"account changed since the login"),
        Err(fault) => visit.failed(&fault),
    }
}

/// Sets the new password, ends everything that began with the old one, and begins a session.
async fn try_change(
    visit: &mut BrowserRequest<'_>,
    form: &Form,
    pending: &PendingPasswordChange,
) -> Result<Submitted, OAuthFault> {
    let (provider, store) = (visit.provider, visit.provider.store());
    let Some(user) = store.user(&pending.user_id).await? else { return Ok(Submitted::Stale) };
    let problem = |problem| Ok(Submitted::Problem(user.name.clone(), problem));
    let [new, again] = ["new", "again"].map(|name| form.get(name).unwrap_or_default().to_owned());
    let (Ok(new), Ok(again)) = (Password::new(new), Password::new(again)) else {
        return problem(PasswordProblem::TooCommon);
    };
    if !new.same_form_as(&again) {
        return problem(PasswordProblem::Differ);
    }
    let logins = provider.logins();
    let login = store.user_by_login(&user.name).await?.filter(|(found, _)| found.id == user.id);
    let current = login.and_then(|(_, password)| password).map(|password| password.phc);
    if matches!(logins.pool().verify(new.clone(), current).await?, Verdict::Right { .. }) {
        return problem(PasswordProblem::Same);
    }
    let stored = match logins.hash(&new, &user.name, user.email.as_deref(), provider.now()).await {
        Ok(stored) => stored,
        Err(fault) => return problem(password_problem(fault)?),
    };
    let (session, token) = visit.browser.draw_session(provider, &user)?;
    let end = revocations::change_password(provider, &user.id, stored);
    let target = format!("user:{}", user.id);
    let entry = AuditDraft::by_user(&Subject::of_user(&user), "user.password", target, end.now).finish();
    let sid = session.sid.clone();
    let change = ChangeOwnPassword { end, read_at: pending.read_at(), session };
    if !store.write(Audited { change, entry }).await? {
        return Ok(Submitted::Stale);
    }
    logins.forget(&user.id);
    // Read again: grants in this session are based on the account after the change.
    let Some(session) = store.session_by_sid(&sid).await? else { return Ok(Submitted::Stale) };
    visit.browser.attach(session, token);
    Ok(Submitted::Changed)
}
