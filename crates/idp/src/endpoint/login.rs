//! Login form: authenticates a user and continues the interaction that required the login.

pub mod new_password;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};

use super::authorize::{self, ParsedRequest};
use super::{account, device};
use crate::audit_draft::Subject;
use crate::authorization_state::{AuthorizationState, Intent};
use crate::endpoint::browser_request::BrowserRequest;
use crate::login::{LoginFault, LoginOrigin};
use crate::oauth::form::Form;
use crate::pages::{ErrorKind, LoginProblem};
use crate::passwords::Password;
use crate::provider::Provider;

/// Handles `POST /login`: verifies name and password.
pub async fn login(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let flow =
        form.get("flow").and_then(|sealed| AuthorizationState::open(&provider, &visit.browser, sealed));
    let Some(flow) = flow else { return visit.error(ErrorKind::Expired, &"page expired") };
    match try_login(&mut visit, &form, &flow).await {
        Ok(Ok(())) => continue_interaction(&mut visit, flow).await,
        Ok(Err(problem)) => login_page_with_problem(&mut visit, flow, form.get("username"), problem).await,
        Err(LoginFault::PasswordChangeRequired(user)) => {
            new_password::page(&mut visit, &flow.with_password_change(&user), &user.name, None).await
        }
        Err(fault) => visit.failed(&fault.into()),
    }
}

/// Handles `GET /login` and `GET /consent` with a sealed state: shows the page of the next step.
pub async fn resume(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let mut visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    match Form::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
        Ok(form) => resumed(&mut visit, form.get("flow").unwrap_or_default()).await,
        Err(fault) => visit.failed(&fault.into()),
    }
}

/// Continues the interaction of a sealed state.
async fn resumed(visit: &mut BrowserRequest<'_>, sealed: &str) -> Response {
    match AuthorizationState::open(visit.provider, &visit.browser, sealed) {
        Some(flow) => continue_interaction(visit, flow).await,
        None => visit.error(ErrorKind::Expired, &"page expired"),
    }
}

/// Logs a user in, or returns the problem that the page shows.
async fn try_login(
    visit: &mut BrowserRequest<'_>,
    form: &Form,
    flow: &AuthorizationState,
) -> Result<Result<(), LoginProblem>, LoginFault> {
    let provider = visit.provider;
    let (Some(name), Some(password)) = (form.get("username"), form.get("password")) else {
        return Ok(Err(LoginProblem::Incomplete));
    };
    // A password of this length was never set.
    let Ok(password) = Password::new(password.to_owned()) else { return Ok(Err(LoginProblem::Wrong)) };
    let (now, address) = (provider.now(), visit.browser.caller().0);
    let origin = LoginOrigin { address, client: started_by(provider, flow).await? };
    let place = (provider.store(), provider.secrets());
    let verified = provider.logins().verify(place, name, password, &origin, now).await;
    let user = match verified {
        Ok(user) => user,
        Err(LoginFault::Wrong) => return Ok(Err(LoginProblem::Wrong)),
        Err(LoginFault::Locked(after)) => return Ok(Err(LoginProblem::TooMany(after))),
        Err(fault) => return Err(fault),
    };
    match visit.browser.begin(provider, &user, &origin).await {
        Ok(true) => Ok(Ok(())),
        // The account was disabled or its password changed concurrently.
        Ok(false) => Ok(Err(LoginProblem::Wrong)),
        Err(fault) => Err(LoginFault::Session(fault.to_string())),
    }
}

/// The client whose request required the login, for the audit log.
async fn started_by(provider: &Provider, flow: &AuthorizationState) -> Result<Option<Subject>, LoginFault> {
    let Intent::Authorize(parameters) = &flow.intent else { return Ok(None) };
    let form = Form::parse(parameters.as_bytes()).ok();
    let Some(id) = form.as_ref().and_then(|form| form.get("client_id")) else { return Ok(None) };
    let client = provider.clients().find(provider.store(), id).await?;
    Ok(client.as_deref().map(Subject::of_client))
}

/// Continues the interaction that required the login.
async fn continue_interaction(visit: &mut BrowserRequest<'_>, flow: AuthorizationState) -> Response {
    match flow.intent.clone() {
        Intent::Authorize(parameters) => authorize::proceed(visit, flow, &parameters, None).await,
        Intent::Device(code) => device::confirm_page(visit, &code).await,
        Intent::Decided { client_id, allowed } => device::done_page(visit, &client_id, allowed).await,
        Intent::Account | Intent::Logout(_) => visit.redirect(&account::address(visit.provider)),
    }
}

/// Shows the login page again, with a problem.
async fn login_page_with_problem(
    visit: &mut BrowserRequest<'_>,
    flow: AuthorizationState,
    name: Option<&str>,
    problem: LoginProblem,
) -> Response {
    let parsed = match &flow.intent {
        Intent::Authorize(parameters) => match ParsedRequest::read(visit.provider, parameters).await {
            Ok(parsed) => Some(parsed),
            Err(unfit) => return authorize::error_response(visit, unfit),
        },
        Intent::Device(_) | Intent::Decided { .. } | Intent::Account | Intent::Logout(_) => None,
    };
    visit.select_language(parsed.as_ref().and_then(|parsed| parsed.request.ui_locales.as_deref()));
    authorize::login_page(visit, &flow, parsed.as_ref(), name, Some(problem))
}
