//! Device authorization (RFC 8628): the endpoint for devices, and the pages on which users decide.

use std::{sync::Arc, time::Duration};

use auth::token::opaque::OpaqueKind;
use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde::Serialize;
use store::{
    StoreError,
    audit::Audited,
    device_codes::{DecideDeviceCode, DeviceCode, IssueDeviceCode},
    sessions::SessionRow,
};

use super::answer;
use super::authorize::{self, path};
use super::client_request::ClientRequest;
use crate::audit_draft::Subject;
use crate::audit_trail;
use crate::authorization_state::{AuthorizationState, Intent};
use crate::client::Client;
use crate::client_authentication::AuthenticatedClient;
use crate::device::{Decision, draw_user_code, read_user_code};
use crate::endpoint::browser_request::{BrowserRequest, with_retry_after};
use crate::failure_log::{Failure, LOGIN_LOCK};
use crate::id_token::Authentication;
use crate::login::LoginFault;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::oauth::scope::ScopeSet;
use crate::pages::{
    DeviceCode as CodePage, DeviceConfirm, DeviceDone, DeviceProblem, ErrorKind, Form as PageForm, Page,
    Scope,
};
use crate::paths;
use crate::provider::Provider;

/// Interval at which a device may poll.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long an expired code is stored, to detect a second use.
const CODE_RETENTION: Duration = Duration::from_mins(10);
/// Attempts to draw a user code that is not in use.
const MAX_DRAWS: usize = 5;

#[derive(Serialize)]
struct DeviceAuthorizationResponse {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: String,
    /// Lifetime of the codes in seconds.
    expires_in: u64,
    /// Polling interval in seconds.
    interval: u64,
}

/// Handles `POST /device_authorization` (RFC 8628 §3.1).
pub async fn begin(State(provider): State<Arc<Provider>>, request: ClientRequest) -> Response {
    let begun = issue(&provider, &request.client, &request.form).await;
    request.answered(&provider, begun.map(|begun| answer::json(StatusCode::OK, &begun)))
}

async fn issue(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
) -> Result<DeviceAuthorizationResponse, OAuthFault> {
    if !client.may_use(GrantType::DeviceCode) {
        return Err(OAuthFault::GrantNotAllowed);
    }
    let scopes = client.scopes_for(form.get("scope"))?;
    let audiences = client.audiences_for(form)?.join(" ");
    let token = provider.draw_token(OpaqueKind::Device)?;
    let (now, lifetime) = (provider.now(), provider.lifetimes().device_code);
    for _ in 0..MAX_DRAWS {
        let user_code = draw_user_code(provider.entropy())?;
        let code = DeviceCode {
            digest: provider.secrets().digest(&token),
            user_code: user_code_digest(provider, &user_code),
            client_id: client.id().to_owned(),
            scopes: scopes.to_wire().unwrap_or_default(),
            audiences: audiences.clone(),
            interval: INTERVAL,
            issued_at: now,
            expires_at: now.plus(lifetime),
            kept_until: now.plus(lifetime).plus(CODE_RETENTION),
        };
        match provider.store().write(IssueDeviceCode(code)).await {
            Ok(()) => {
                let verification_uri = provider.issuer().endpoint(paths::DEVICE);
                return Ok(DeviceAuthorizationResponse {
                    device_code: token.to_string(),
                    verification_uri_complete: format!("{verification_uri}?user_code={user_code}"),
                    user_code,
                    verification_uri,
                    expires_in: lifetime.as_secs(),
                    interval: INTERVAL.as_secs(),
                });
            }
            Err(StoreError::Taken(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(OAuthFault::Store("no unused user code found".into()))
}

fn user_code_digest(provider: &Provider, code: &str) -> store::StoredDigest {
    provider.secrets().digest_of(&["device user code", code])
}

/// Handles `GET /device`: asks for the user code, or continues a sealed state.
pub async fn show(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let mut visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    let form = Form::parse(parts.uri.query().unwrap_or_default().as_bytes());
    if let Some(sealed) = form.as_ref().ok().and_then(|form| form.get("flow")) {
        return resumed(&mut visit, sealed).await;
    }
    let code = form.as_ref().ok().and_then(|form| form.get("user_code"));
    code_page(&visit, code, None)
}

/// The page of a sealed state: the code was entered, or the decision was made.
async fn resumed(visit: &mut BrowserRequest<'_>, sealed: &str) -> Response {
    match AuthorizationState::open(visit.provider, &visit.browser, sealed).map(|state| state.intent) {
        Some(Intent::Device(code)) => confirm_page(visit, &code).await,
        Some(Intent::Decided { client_id, allowed }) => done_page(visit, &client_id, allowed).await,
        _ => visit.error(ErrorKind::Expired, &"page expired"),
    }
}

/// Handles `POST /device`: a user code was entered.
pub async fn submit_code(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    confirm_page(&mut visit, form.get("user_code").unwrap_or_default()).await
}

fn code_page(visit: &BrowserRequest<'_>, code: Option<&str>, problem: Option<DeviceProblem>) -> Response {
    let (proof, action) = (visit.proof(), path(visit.provider, paths::DEVICE));
    let form = PageForm { action: &action, csrf: &proof, hidden: &[] };
    let after = match problem {
        Some(DeviceProblem::TooMany(after)) => Some(after),
        _ => None,
    };
    with_retry_after(visit.page(&Page::DeviceCode(CodePage { form, code, problem })), after)
}

/// Asks the user to allow or deny the device with this code; requires a session.
pub(super) async fn confirm_page(visit: &mut BrowserRequest<'_>, typed: &str) -> Response {
    let Some(session) = visit.browser.session().cloned() else {
        let flow = AuthorizationState::begin(visit.provider, Intent::Device(typed.to_owned()));
        return authorize::login_page(visit, &flow, None, None, None);
    };
    match find_pending(visit, &session, typed).await {
        Ok(PendingDevice::Waiting(user_code, code, client)) => {
            let flow = AuthorizationState::begin(visit.provider, Intent::Device(user_code.clone()));
            if let Some(way) = visit.redirect_to_page(paths::DEVICE, &flow) {
                return way;
            }
            show_confirm(visit, &session, &user_code, &code, &client).await
        }
        Ok(PendingDevice::Nothing(problem)) => code_page(visit, Some(typed), Some(problem)),
        Err(fault) => visit.failed(&fault),
    }
}

enum PendingDevice {
    Waiting(String, Box<DeviceCode>, Arc<Client>),
    Nothing(DeviceProblem),
}

/// Finds the pending device with a code. A wrong code counts as a failure of the account, because
/// otherwise codes could be guessed.
async fn find_pending(
    visit: &BrowserRequest<'_>,
    session: &SessionRow,
    typed: &str,
) -> Result<PendingDevice, OAuthFault> {
    let (provider, now) = (visit.provider, visit.provider.now());
    let guesses = format!("device codes of {}", session.user_id);
    match provider.logins().check_subject(provider.store(), &guesses, now).await {
        Ok(()) => {}
        Err(LoginFault::Locked(after)) => return Ok(PendingDevice::Nothing(DeviceProblem::TooMany(after))),
        Err(fault) => return Err(fault.into()),
    }
    if let Some(user_code) = read_user_code(typed) {
        let digest = user_code_digest(provider, &user_code);
        if let Some(code) = provider.store().device_code(&digest, now).await?
            && let Some(client) = provider.clients().find(provider.store(), &code.client_id).await?
        {
            return Ok(PendingDevice::Waiting(user_code, Box::new(code), client));
        }
    }
    if provider.logins().count_failure(provider.store(), guesses, now).await? {
        let failure = Failure {
            action: LOGIN_LOCK,
            reason: "user_codes_locked",
            user: Some(audit_trail::user(provider, &session.user_id).await?),
            client: None,
            address: visit.browser.caller().0,
        };
        provider.failures().record(failure, now);
    }
    Ok(PendingDevice::Nothing(DeviceProblem::Unknown))
}

async fn show_confirm(
    visit: &BrowserRequest<'_>,
    session: &SessionRow,
    user_code: &str,
    code: &DeviceCode,
    client: &Client,
) -> Response {
    let user = match visit.provider.store().user(&session.user_id).await {
        Ok(user) => user.map(|user| user.name).unwrap_or_default(),
        Err(error) => return visit.failed(&error.into()),
    };
    let flow = AuthorizationState::begin(visit.provider, Intent::Device(user_code.to_owned()))
        .for_user(&session.user_id);
    let Ok(sealed) = flow.seal(visit.provider, &visit.browser) else {
        return visit.failed(&OAuthFault::EntropyFailed);
    };
    let scopes = ScopeSet::parse(&code.scopes).unwrap_or_default();
    let scopes: Vec<Scope<'_>> = scopes.iter().map(|name| Scope { name, meaning: None, new: true }).collect();
    let (proof, action) = (visit.proof(), path(visit.provider, paths::DEVICE_DECISION));
    visit.page(&Page::DeviceConfirm(DeviceConfirm {
        form: PageForm { action: &action, csrf: &proof, hidden: &[("flow", &sealed)] },
        code: user_code,
        client: client.name(),
        user: &user,
        scopes: &scopes,
    }))
}

/// Handles `POST /device/decision`: stores the decision.
pub async fn decide(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let flow =
        form.get("flow").and_then(|sealed| AuthorizationState::open(&provider, &visit.browser, sealed));
    let Some(flow) = flow else { return visit.error(ErrorKind::Expired, &"page expired") };
    let Intent::Device(user_code) = &flow.intent else {
        return visit.error(ErrorKind::FormRejected, &"form belongs to another page");
    };
    let session = visit.browser.session().cloned().filter(|session| flow.is_for_user(&session.user_id));
    let Some(session) = session else { return confirm_page(&mut visit, user_code).await };
    let (code, client) = match find_pending(&visit, &session, user_code).await {
        Ok(PendingDevice::Waiting(_, code, client)) => (code, client),
        Ok(PendingDevice::Nothing(problem)) => return code_page(&visit, None, Some(problem)),
        Err(fault) => return visit.failed(&fault),
    };
    let allowed = form.get("decision") == Some("allow");
    match store_decision(&provider, &session, (&code, &client), allowed).await {
        Ok(true) => {
            let decided = Intent::Decided { client_id: client.id().to_owned(), allowed };
            let way = visit.redirect_to_page(paths::DEVICE, &AuthorizationState::begin(&provider, decided));
            way.unwrap_or_else(|| visit.failed(&OAuthFault::EntropyFailed))
        }
        Ok(false) => code_page(&visit, None, Some(DeviceProblem::Expired)),
        Err(fault) => visit.failed(&fault),
    }
}

/// The page that confirms the decision.
pub(super) async fn done_page(visit: &BrowserRequest<'_>, client_id: &str, allowed: bool) -> Response {
    let client = match visit.provider.clients().find(visit.provider.store(), client_id).await {
        Ok(client) => client,
        Err(error) => return visit.failed(&error.into()),
    };
    let client = client.as_deref().map_or(client_id, Client::name);
    visit.page(&Page::DeviceDone(DeviceDone { client, allowed }))
}

async fn store_decision(
    provider: &Provider,
    session: &SessionRow,
    (code, client): (&DeviceCode, &Client),
    approved: bool,
) -> Result<bool, OAuthFault> {
    let now = provider.now();
    let decision = Decision {
        at: now.as_millis(),
        read_at: Some(session.read_at.as_millis()),
        scopes: code.scopes.clone(),
        audiences: code.audiences.clone(),
        authentication: Authentication {
            at: session.authenticated_at.as_secs(),
            acr: session.acr.clone(),
            amr: session.methods.split_ascii_whitespace().map(str::to_owned).collect(),
            ..Authentication::default()
        },
    };
    let decide = DecideDeviceCode {
        user_code: code.user_code,
        approved,
        user_id: session.user_id.clone(),
        sid: session.sid.clone(),
        details: decision.write(),
        now,
    };
    if !provider.audit_events().consents {
        return Ok(provider.store().write(decide).await?);
    }
    let user = audit_trail::user(provider, &session.user_id).await?;
    let action = if approved { "device.approve" } else { "device.deny" };
    let entry = audit_trail::decision(&user, &Subject::of_client(client), action, &code.scopes, now);
    Ok(provider.store().write(Audited { change: decide, entry }).await?)
}
