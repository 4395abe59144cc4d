//! Authorization endpoint (RFC 6749 §3.1, OpenID Connect Core 1.0 §3.1.2).
//!
//! Owns: the flow of a request from its parameters to the response, through the necessary pages.
//! Does not own: the meaning of the parameters and the decision about the next step
//! ([`crate::authorization`]).
//!
//! ```text
//! GET /authorize ─┐                                        ┌─ a login page      → POST /login   ─┐
//! POST /login    ─┼→ ParsedRequest::read → next_step ──────┼─ a consent page    → POST /consent ─┤→ again
//! POST /consent  ─┘                                        ├─ a refusal → the client
//!                                                          └─ a code    → the client
//! ```
//!
//! After a form, the next page is shown at its own URL (`GET /login?flow=…`,
//! `GET /consent?flow=…`), which runs the same steps again.
//!
//! Each step parses the parameters again, because the client's rights may have changed meanwhile.

use std::sync::Arc;

use auth::{
    time::Timestamp,
    token::opaque::{self, OpaqueKind},
};
use axum::{
    extract::{Request, State},
    response::Response,
};
use store::{
    StoredDigest,
    audit::Audited,
    codes::{Code, IssueCode, Issued},
    consents::{Consent as Given, GiveConsent},
    families::Family,
    sessions::SessionRow,
};

use super::form;
use crate::access_token::origins;
use crate::audit_draft::Subject;
use crate::audit_trail;
use crate::authorization::next_step::{DecisionInput, Next, Person as Present, Refused, next_step};
use crate::authorization::request::READ_AT;
use crate::authorization::request::{AuthorizationRequest, ClientRights, Refusal, read};
use crate::authorization::response::{AuthorizationResponse, ReturnAddress};
use crate::authorization_state::{AuthorizationState, Intent};
use crate::claims::scope_of;
use crate::client::Client;
use crate::endpoint::browser_request::{BrowserRequest, MAX_URL, with_retry_after};
use crate::id_token::{Authentication, read_hint};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::oauth::request_fault::RequestFault;
use crate::oauth::scope::ScopeSet;
use crate::pages::{Consent, ErrorKind, Form as PageForm, Login, LoginProblem, Page, Scope};
use crate::paths;
use crate::provider::Provider;
use ::pages::{FormTarget, Href, Link};

/// Prefix of the `request_uri` of a pushed request (RFC 9126 §2.2).
pub(super) const PUSHED_URN: &str = "urn:ietf:params:oauth:request_uri:";
/// How long an expired code is stored, to detect a second use.
const CODE_RETENTION: std::time::Duration = std::time::Duration::from_mins(10);
/// Attempts to write a consent that changes concurrently.
const MAX_ATTEMPTS: usize = 8;

/// Handles `GET /authorize`: begins an authorization request.
pub async fn get(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let mut visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let flow = AuthorizationState::begin(&provider, Intent::Authorize(query.clone()));
    proceed(&mut visit, flow, &query, None).await
}

/// Handles `POST /authorize` (Core §3.1.2.1). The form comes from another site, and browsers send
/// no cookies with such a POST; so it is redirected to the equivalent GET.
pub async fn post(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    match form::read(&parts, body).await {
        Ok(form) => {
            let to = format!("{}?{}", provider.issuer().endpoint(paths::AUTHORIZE), form.to_query());
            visit.redirect(&to)
        }
        Err(fault) => visit.failed(&fault),
    }
}

/// A parsed authorization request with its client.
pub(super) struct ParsedRequest {
    pub(super) client: Arc<Client>,
    pub(super) request: AuthorizationRequest,
    audiences: String,
    pushed: Option<StoredDigest>,
    hinted_user: Option<String>,
}

/// Reason why a request cannot continue.
pub(super) enum RequestError {
    /// The error can only be shown to the user.
    Page(ErrorKind, String),
    /// The error is sent to the client.
    Answer(Arc<Client>, AuthorizationResponse, String),
    /// The provider failed.
    Fault(OAuthFault),
}

impl From<OAuthFault> for RequestError {
    fn from(fault: OAuthFault) -> Self {
        Self::Fault(fault)
    }
}

impl ParsedRequest {
    /// Reads the form-encoded parameters of a request.
    pub(super) async fn read(provider: &Provider, parameters: &str) -> Result<Self, RequestError> {
        let page = |kind, why: &dyn std::fmt::Display| RequestError::Page(kind, why.to_string());
        let form = Form::parse(parameters.as_bytes()).map_err(|fault| page(ErrorKind::BadRequest, &fault))?;
        let id = form.get("client_id").ok_or_else(|| page(ErrorKind::BadRequest, &"client_id is missing"))?;
        let client = provider.clients().find(provider.store(), id).await.map_err(OAuthFault::from)?;
        let client = client.ok_or_else(|| page(ErrorKind::UnknownClient, &OAuthFault::client_unknown(id)))?;
        let (form, pushed) = match form.get("request_uri").and_then(|uri| uri.strip_prefix(PUSHED_URN)) {
            Some(token) => {
                let (form, digest) = read_pushed_request(provider, &client, token).await?;
                (form, Some(digest))
            }
            None => (form, None),
        };
        let request = read(&form, rights(&client)).map_err(|refusal| match refusal {
            Refusal::Page(fault) => RequestError::Page(ErrorKind::RedirectMismatch, fault.to_string()),
            Refusal::Answer(address, fault) => refused(provider, &client, &address, fault.code(), &fault),
        })?;
        let address = &request.address;
        if !client.may_use(GrantType::AuthorizationCode) {
            return Err(refused(
                provider,
                &client,
                address,
                "unauthorized_client",
                &OAuthFault::GrantNotAllowed,
            ));
        }
        if client.requires_pushed_requests && pushed.is_none() {
            let why = "this client must push its authorization requests";
            return Err(refused(provider, &client, address, "invalid_request", &why));
        }
        let audiences = client.audiences_for(&form).map(|audiences| audiences.join(" "));
        let audiences =
            audiences.map_err(|fault| refused(provider, &client, address, fault.response().code, &fault))?;
        let hinted = match request.id_token_hint.as_deref() {
            None => None,
            Some(hint) => match read_hint(provider, hint).filter(|hint| hint.client_id == client.id()) {
                Some(hint) => Some(hint.user_id),
                None => {
                    let why = "id_token_hint is not an ID token of this client";
                    return Err(refused(provider, &client, address, "invalid_request", &why));
                }
            },
        };
        Ok(Self { client, request, audiences, pushed, hinted_user: hinted })
    }

    /// The error response with this code.
    pub(super) fn refuse(&self, provider: &Provider, code: &str) -> AuthorizationResponse {
        self.request.address.answer(provider.issuer().as_str(), &[("error", code)])
    }

    /// Targets outside the provider that the page's form may lead to.
    pub(super) fn form_targets(&self) -> Vec<FormTarget> {
        FormTarget::of_redirect(self.request.address.redirect_uri()).ok().into_iter().collect()
    }
}

/// Rights and settings of the client that limit its requests.
pub(super) fn rights(client: &Client) -> ClientRights<'_> {
    ClientRights {
        redirect_uris: &client.redirect_uris,
        scopes: &client.scopes,
        default_scopes: &client.default_scopes,
        needs_challenge: client.requires_pkce,
    }
}

fn refused(
    provider: &Provider,
    client: &Arc<Client>,
    address: &ReturnAddress,
    code: &str,
    why: &dyn std::fmt::Display,
) -> RequestError {
    let why = why.to_string();
    let fields = [("error", code), ("error_description", &*why)];
    let answer = address.answer(provider.issuer().as_str(), &fields);
    RequestError::Answer(client.clone(), answer, why)
}

/// The parameters of a pushed request. Parameters sent beside `request_uri` are ignored (RFC 9126
/// §4, RFC 9101 §5).
async fn read_pushed_request(
    provider: &Provider,
    client: &Client,
    token: &str,
) -> Result<(Form, StoredDigest), RequestError> {
    let expired =
        || RequestError::Page(ErrorKind::Expired, "request_uri unknown, expired or already used".into());
    if opaque::parse_kind(token) != Some(OpaqueKind::Pushed) {
        return Err(expired());
    }
    let digest = provider.secrets().digest(token);
    let pushed = provider.store().pushed_request(&digest, client.id(), provider.now()).await;
    let parameters = pushed.map_err(OAuthFault::from)?.ok_or_else(expired)?;
    let form = Form::parse(parameters.as_bytes()).map_err(OAuthFault::from)?;
    Ok((form, digest))
}

/// Continues a request with the next step.
pub(super) async fn proceed(
    visit: &mut BrowserRequest<'_>,
    flow: AuthorizationState,
    parameters: &str,
    allowed_at: Option<Timestamp>,
) -> Response {
    let parsed = match ParsedRequest::read(visit.provider, parameters).await {
        Ok(parsed) => parsed,
        Err(unfit) => return error_response(visit, unfit),
    };
    visit.select_language(parsed.request.ui_locales.as_deref());
    let consented = match consented(visit, &parsed.client).await {
        Ok(consented) => consented,
        Err(fault) => return visit.failed(&fault),
    };
    let subject = |id: &str| parsed.client.subject(visit.provider.secrets(), id);
    let present = visit.browser.session().map(|session| (session, subject(&session.user_id)));
    let hinted = parsed.hinted_user.as_deref().map(subject);
    let situation = DecisionInput {
        person: present.as_ref().map(|(session, subject)| session_user(session, subject)),
        hinted: hinted.as_deref(),
        consented: consented.as_ref(),
        asks_consent: parsed.client.asks_consent,
        allowed_at,
        began_at: flow.began(),
        now: visit.provider.now(),
    };
    match next_step(&parsed.request, &situation) {
        Next::Login(_) => login_page(visit, &flow, Some(&parsed), None, None),
        Next::Consent(new) => consent_page(visit, flow, &parsed, &new).await,
        Next::Refuse(refused) => refuse(visit, &parsed, refused),
        Next::Issue(scopes) => issue(visit, &parsed, &scopes).await,
    }
}

/// The user of a session, by the `sub` that the client knows.
fn session_user<'s>(session: &'s SessionRow, subject: &'s str) -> Present<'s> {
    Present { subject, authenticated_at: session.authenticated_at, acr: session.acr.as_deref() }
}

fn refuse(visit: &BrowserRequest<'_>, parsed: &ParsedRequest, refused: Refused) -> Response {
    tracing::debug!(client = parsed.client.id(), error = refused.code(), "authorization refused");
    visit.answer(&parsed.client, parsed.refuse(visit.provider, refused.code()))
}

pub(super) fn error_response(visit: &BrowserRequest<'_>, unfit: RequestError) -> Response {
    match unfit {
        RequestError::Page(kind, why) => visit.error(kind, &why),
        RequestError::Answer(client, answer, why) => {
            tracing::info!(client = client.id(), reason = why, "authorization request refused");
            visit.answer(&client, answer)
        }
        RequestError::Fault(fault) => visit.failed(&fault),
    }
}

/// The scopes that the session's user has granted to this client. `None`: no session or no consent.
async fn consented(visit: &BrowserRequest<'_>, client: &Client) -> Result<Option<ScopeSet>, OAuthFault> {
    let Some(session) = visit.browser.session() else { return Ok(None) };
    let consent = visit.provider.store().consent(&session.user_id, client.id()).await?;
    Ok(consent.as_ref().map(allowed))
}

fn allowed(consent: &Given) -> ScopeSet {
    // A consent without scopes allows the client to learn the user's identity.
    ScopeSet::parse(&consent.scopes).unwrap_or_default()
}

/// The login page for an unfinished interaction.
pub(super) fn login_page(
    visit: &BrowserRequest<'_>,
    flow: &AuthorizationState,
    parsed: Option<&ParsedRequest>,
    hint: Option<&str>,
    problem: Option<LoginProblem>,
) -> Response {
    if problem.is_none()
        && let Some(way) = visit.redirect_to_page(paths::LOGIN, flow)
    {
        return way;
    }
    let Ok(sealed) = flow.seal(visit.provider, &visit.browser) else {
        return visit.failed(&OAuthFault::EntropyFailed);
    };
    let leads_to = parsed.map(ParsedRequest::form_targets).unwrap_or_default();
    let hint = hint.or_else(|| parsed.and_then(|parsed| parsed.request.login_hint.as_deref()));
    let denied = parsed.and_then(|parsed| match parsed.refuse(visit.provider, "access_denied") {
        AuthorizationResponse::Redirect(url) => Href::parse(&url).ok(),
        AuthorizationResponse::FormPost { .. } => None,
    });
    let client = parsed.map(|parsed| parsed.client.name());
    let back = denied.as_ref().zip(client).map(|(href, name)| Link { href, name });
    let (proof, action) = (visit.proof(), path(visit.provider, paths::LOGIN));
    let after = match problem {
        Some(LoginProblem::TooMany(after)) => Some(after),
        _ => None,
    };
    let offers_reset = visit.provider.mailer().is_some_and(|mailer| mailer.self_service_reset);
    let forgot = offers_reset.then(|| with_flow(path(visit.provider, paths::FORGOT_PASSWORD), Some(&sealed)));
    let page = visit.page(&Page::Login(Login {
        forgot: forgot.as_deref(),
        form: PageForm { action: &action, csrf: &proof, hidden: &[("flow", &sealed)] },
        client,
        hint,
        problem,
        back,
        form_targets: &leads_to,
    }));
    with_retry_after(page, after)
}

async fn consent_page(
    visit: &BrowserRequest<'_>,
    flow: AuthorizationState,
    parsed: &ParsedRequest,
    new: &ScopeSet,
) -> Response {
    if let Some(way) = visit.redirect_to_page(paths::CONSENT, &flow) {
        return way;
    }
    let Some(session) = visit.browser.session() else {
        return visit.error(ErrorKind::Server, &"consent without a session");
    };
    let user = match visit.provider.store().user(&session.user_id).await {
        Ok(user) => user.map(|user| user.name).unwrap_or_default(),
        Err(error) => return visit.failed(&error.into()),
    };
    let flow = flow.for_user(&session.user_id);
    let Ok(sealed) = flow.seal(visit.provider, &visit.browser) else {
        return visit.failed(&OAuthFault::EntropyFailed);
    };
    let scopes: Vec<Scope<'_>> = parsed
        .request
        .consent_scopes
        .iter()
        .map(|name| Scope { name, meaning: None, new: new.contains(name) })
        .collect();
    let (proof, action) = (visit.proof(), path(visit.provider, paths::CONSENT));
    visit.page(&Page::Consent(Consent {
        form: PageForm { action: &action, csrf: &proof, hidden: &[("flow", &sealed)] },
        client: parsed.client.name(),
        user: &user,
        scopes: &scopes,
        returns_to: host(parsed.request.address.redirect_uri()),
        form_targets: &parsed.form_targets(),
    }))
}

/// Handles `POST /consent`: stores the decision and continues.
pub async fn consent(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let flow =
        form.get("flow").and_then(|sealed| AuthorizationState::open(&provider, &visit.browser, sealed));
    let Some(flow) = flow else { return visit.error(ErrorKind::Expired, &"page expired") };
    let Intent::Authorize(parameters) = flow.intent.clone() else {
        return visit.error(ErrorKind::FormRejected, &"form belongs to another page");
    };
    // Another user logged in meanwhile in another tab; that user must decide.
    let same = visit.browser.session().is_some_and(|session| flow.is_for_user(&session.user_id));
    if !same {
        return proceed(&mut visit, flow, &parameters, None).await;
    }
    let parsed = match ParsedRequest::read(&provider, &parameters).await {
        Ok(parsed) => parsed,
        Err(unfit) => return error_response(&visit, unfit),
    };
    if form.get("decision") != Some("allow") {
        if let Err(fault) = record_denial(&visit, &parsed).await {
            return visit.failed(&fault);
        }
        return visit.answer(&parsed.client, parsed.refuse(&provider, "access_denied"));
    }
    if let Err(fault) = store_consent(&visit, &parsed).await {
        return visit.failed(&fault);
    }
    let now = provider.now();
    proceed(&mut visit, flow, &parameters, Some(now)).await
}

/// Records that the user denied the client's request.
async fn record_denial(visit: &BrowserRequest<'_>, parsed: &ParsedRequest) -> Result<(), OAuthFault> {
    let provider = visit.provider;
    let Some(session) = visit.browser.session() else { return Ok(()) };
    if provider.audit_events().consents {
        let (user, client) =
            (audit_trail::user(provider, &session.user_id).await?, Subject::of_client(&parsed.client));
        let scopes = parsed.request.consent_scopes.to_wire().unwrap_or_default();
        let entry = audit_trail::decision(&user, &client, "consent.deny", &scopes, provider.now());
        provider.store().write(entry).await?;
    }
    Ok(())
}

/// Stores the consent: adds the allowed scopes to those granted before.
async fn store_consent(visit: &BrowserRequest<'_>, parsed: &ParsedRequest) -> Result<(), OAuthFault> {
    let Some(session) = visit.browser.session() else { return Ok(()) };
    let (store, client_id) = (visit.provider.store(), parsed.client.id());
    let trail = if visit.provider.audit_events().consents {
        let user = audit_trail::user(visit.provider, &session.user_id).await?;
        Some((user, Subject::of_client(&parsed.client)))
    } else {
        None
    };
    for _ in 0..MAX_ATTEMPTS {
        let before = store.consent(&session.user_id, client_id).await?;
        let mut scopes = before.as_ref().map(allowed).unwrap_or_default();
        for scope in parsed.request.consent_scopes.iter() {
            scopes.insert(scope)?;
        }
        let consent = Given {
            user_id: session.user_id.clone(),
            client_id: client_id.to_owned(),
            scopes: scopes.to_wire().unwrap_or_default(),
            given_at: visit.provider.now(),
        };
        // If another tab withdrew or gave a consent meanwhile, the new state is the base.
        let (scopes, at) = (consent.scopes.clone(), consent.given_at);
        let change = GiveConsent { consent, previous_scopes: before.map(|before| before.scopes) };
        let given = match &trail {
            Some((user, client)) => {
                let entry = audit_trail::decision(user, client, "consent.give", &scopes, at);
                store.write(Audited { change, entry }).await?
            }
            None => store.write(change).await?,
        };
        if given {
            return Ok(());
        }
    }
    Err(OAuthFault::Store("consent changed concurrently".into()))
}

/// Issues a code and sends it to the client.
async fn issue(visit: &BrowserRequest<'_>, parsed: &ParsedRequest, scopes: &ScopeSet) -> Response {
    match issue_code(visit, parsed, scopes).await {
        Ok(Ok(code)) => {
            let issuer = visit.provider.issuer().as_str();
            visit.answer(&parsed.client, parsed.request.address.answer(issuer, &[("code", &code)]))
        }
        Ok(Err(Issued::RequestUsed)) => visit.error(ErrorKind::Expired, &"pushed request already used"),
        Ok(Err(_)) => visit.error(ErrorKind::Expired, &"session ended during authorization"),
        Err(fault) => visit.failed(&fault),
    }
}

async fn issue_code(
    visit: &BrowserRequest<'_>,
    parsed: &ParsedRequest,
    scopes: &ScopeSet,
) -> Result<Result<String, Issued>, OAuthFault> {
    let provider = visit.provider;
    let Some(session) = visit.browser.session() else { return Ok(Err(Issued::GrantEnded)) };
    let (now, lifetimes, request) = (provider.now(), provider.lifetimes(), &parsed.request);
    let names = |claims: &[crate::authorization::request::ClaimRequest]| -> Vec<String> {
        let about_people =
            |name: &str| scope_of(name).is_some_and(|scope| parsed.client.scopes.contains(scope));
        claims.iter().filter(|c| about_people(&c.name)).map(|c| c.name.clone()).collect()
    };
    let authentication = Authentication {
        at: session.authenticated_at.as_secs(),
        acr: session.acr.clone(),
        amr: session.methods.split_ascii_whitespace().map(str::to_owned).collect(),
        id_token: names(&request.claims.id_token),
        userinfo: names(&request.claims.userinfo),
        // `read_at` is a property of the token, not of the user, so every client that requests it
        // gets it.
        read_at: request.claims.id_token.iter().any(|claim| claim.name == READ_AT),
        redirect_omitted: request.redirect_uri.is_none(),
    };
    let outlives_session = scopes.contains("offline_access");
    let expires_at = if outlives_session {
        // Long enough for the code and the first access token.
        let shortest = now.plus(lifetimes.code).plus(parsed.client.access_token_lifetime());
        now.plus(lifetimes.grant).max(shortest)
    } else {
        session.expires_at
    };
    let token = provider.draw_token(OpaqueKind::Code)?;
    let family = Family {
        id: provider.draw_id()?,
        client_id: parsed.client.id().to_owned(),
        user_id: Some(session.user_id.clone()),
        sid: Some(session.sid.clone()),
        scopes: scopes.to_wire().unwrap_or_default(),
        audiences: parsed.audiences.clone(),
        details: authentication.write(),
        outlives_session,
        created_at: now,
        expires_at,
        revoked_at: None,
        read_at: parsed.client.earliest_read_at(session.read_at),
    };
    let code_ends = now.plus(lifetimes.code);
    let code = Code {
        digest: provider.secrets().digest(&token),
        redirect_uri: request.address.redirect_uri().to_owned(),
        challenge: request.challenge.as_ref().map(|c| c.as_str().to_owned()),
        nonce: request.nonce.as_deref().map(str::to_owned),
        issued_at: now,
        expires_at: code_ends,
        kept_until: code_ends.plus(CODE_RETENTION),
    };
    let needed =
        parsed.client.asks_consent.then(|| request.consent_scopes.iter().map(str::to_owned).collect());
    let origins = origins(provider, parsed.client.id(), Some(&session.user_id));
    match provider
        .store()
        .write(IssueCode { family, origins, code, required_consent: needed, pushed_request: parsed.pushed })
        .await?
    {
        Issued::Stored => {
            tracing::debug!(client = parsed.client.id(), user = session.user_id, "code issued");
            Ok(Ok(token.to_string()))
        }
        other => Ok(Err(other)),
    }
}

/// Appends a sealed state to the URL of a page, if the URL does not become too long.
pub(super) fn with_flow(url: String, sealed: Option<&str>) -> String {
    match sealed {
        Some(sealed) if url.len() + sealed.len() < MAX_URL => {
            let mark = if url.contains('?') { '&' } else { '?' };
            format!("{url}{mark}flow={sealed}")
        }
        _ => url,
    }
}

/// Path of a page, as its form names it.
pub(super) fn path(provider: &Provider, below: &str) -> String {
    format!("{}{below}", provider.issuer().path())
}

/// The host of a redirect URI, or its scheme if it has no host.
fn host(uri: &str) -> &str {
    let Some((scheme, rest)) = uri.split_once(':') else { return uri };
    let Some(authority) = rest.strip_prefix("//") else { return scheme };
    &authority[..authority.find(['/', '?']).unwrap_or(authority.len())]
}

/// The OAuth error for a pushed request that is refused before it is stored.
pub(super) fn refusal(refusal: &Refusal) -> OAuthFault {
    match *refusal {
        Refusal::Page(fault) => OAuthFault::Address(fault),
        Refusal::Answer(_, fault) => OAuthFault::Request(fault),
    }
}

/// Fault of a pushed request that contains a `request_uri` (RFC 9126 §2.1).
pub(super) const NESTED: RequestFault = RequestFault::RequestUri;
