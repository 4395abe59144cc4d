//! Page for users who forgot their password: queues a mail with a reset link.
//!
//! Owns: the page, its form, and the limits of requests. Does not own: who gets a mail, and the mail
//! ([`crate::mail_delivery`]).
//!
//! ```text
//! GET  /forgot-password → form
//! POST /forgot-password → limits of the network and of the typed name → mail queued → 303
//! GET  /forgot-password?done=1 → the same text for everybody
//! ```
//!
//! Nothing here reads an account, so neither response nor time depends on whether there is one.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use store::mail_queue::{MailOrigin, MailRecipient, QueueMail, QueuedMail};

use super::authorize::{path, with_flow};
use crate::authorization_state::{AuthorizationState, Intent};
use crate::endpoint::browser_request::{BrowserRequest, with_retry_after};
use crate::login::{LoginFault, reset_subject};
use crate::mail_delivery::RESET_LIFETIME;
use crate::oauth::form::Form;
use crate::pages::{ErrorKind, ForgotPassword, ForgotPasswordStep, Form as PageForm, Page};
use crate::passwords::lockout::Network;
use crate::paths;
use crate::provider::Provider;
use crate::secrets::Purpose;

/// Most bytes of a typed name. No name and no address has more.
const MAX_TYPED: usize = 1024;

/// Handles `GET /forgot-password`.
pub async fn show(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let mut visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    let form = match Form::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
        Ok(form) => form,
        Err(fault) => return visit.failed(&fault.into()),
    };
    let step = if form.get("done").is_some() { ForgotPasswordStep::Done } else { ForgotPasswordStep::Ask };
    page(&mut visit, &form, step)
}

/// Handles `POST /forgot-password`: queues a mail.
pub async fn submit(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let typed = form.get("login").unwrap_or_default().trim();
    if typed.is_empty() || !is_offered(&provider) {
        return page(&mut visit, &form, ForgotPasswordStep::Incomplete);
    }
    let sealed = state(&visit, &form).map(|_| form.get("flow").unwrap_or_default());
    match queue(&visit, typed).await {
        Ok(()) => {
            let done = format!("{}?done=1", provider.issuer().endpoint(paths::FORGOT_PASSWORD));
            visit.redirect(&with_flow(done, sealed))
        }
        Err(LoginFault::Locked(after)) => {
            let page = visit.error(ErrorKind::TooMany(after), &"too many requests for a reset link");
            with_retry_after(page, Some(after))
        }
        Err(fault) => visit.failed(&fault.into()),
    }
}

fn is_offered(provider: &Provider) -> bool {
    provider.mailer().is_some_and(|mailer| mailer.self_service_reset)
}

/// The interaction that the sign-in page belonged to, if it goes on.
fn state(visit: &BrowserRequest<'_>, form: &Form) -> Option<AuthorizationState> {
    AuthorizationState::open(visit.provider, &visit.browser, form.get("flow")?)
}

/// Queues a mail for what was typed, whether or not it is the name of a user.
async fn queue(visit: &BrowserRequest<'_>, typed: &str) -> Result<(), LoginFault> {
    let (provider, now, address) = (visit.provider, visit.provider.now(), visit.browser.caller().0);
    let (logins, store) = (provider.logins(), provider.store());
    let network = format!("reset requests from {}", Network::of(address));
    let named = reset_subject(provider.secrets(), typed);
    logins.check_subject(store, &network, now).await?;
    logins.check_subject(store, &named, now).await?;
    logins.count_network_failure(store, network, now).await?;
    logins.count_failure(store, named, now).await?;
    if typed.len() > MAX_TYPED {
        return Ok(());
    }
    let failed = |error: crate::EntropyFailed| LoginFault::Session(error.to_string());
    let id = provider.draw_id().map_err(failed)?;
    let sealed =
        provider.secrets().seal(Purpose::ResetRequest, &id, typed.as_bytes(), now, provider.entropy());
    let mail = QueuedMail {
        id,
        recipient: MailRecipient::Typed(sealed.map_err(failed)?),
        origin: MailOrigin::User,
        language: visit.language().to_owned(),
        address: Some(address.to_string()),
        attempts: 0,
        expires_at: now.plus(RESET_LIFETIME),
    };
    Ok(store.write(QueueMail { mail, due_at: now }).await?)
}

fn page(visit: &mut BrowserRequest<'_>, form: &Form, step: ForgotPasswordStep) -> Response {
    if !is_offered(visit.provider) {
        return visit.error(ErrorKind::NotFound, &"reset links are not offered");
    }
    let state = state(visit, form);
    if let Some(Intent::Authorize(parameters)) = state.as_ref().map(|state| &state.intent)
        && let Ok(parameters) = Form::parse(parameters.as_bytes())
    {
        visit.select_language(parameters.get("ui_locales"));
    }
    let sealed = state.and(form.get("flow"));
    let back = match sealed {
        Some(_) => with_flow(path(visit.provider, paths::LOGIN), sealed),
        None => path(visit.provider, paths::ACCOUNT),
    };
    let hidden: Vec<(&str, &str)> = sealed.map(|sealed| ("flow", sealed)).into_iter().collect();
    let (proof, action) = (visit.proof(), path(visit.provider, paths::FORGOT_PASSWORD));
    visit.page(&Page::ForgotPassword(ForgotPassword {
        form: PageForm { action: &action, csrf: &proof, hidden: &hidden },
        step,
        back: &back,
    }))
}
