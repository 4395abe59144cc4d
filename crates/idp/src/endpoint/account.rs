//! Account page: attributes, sessions, consents and tokens of a user, and the password change.

mod attributes;

use std::sync::Arc;

use auth::time::Timestamp;
use axum::{
    Router,
    extract::{Request, State},
    response::Response,
    routing::{get, post},
};
use store::{
    audit::{AuditEntry, Audited},
    consents::{Consent as Given, WithdrawConsent},
    families::{Family, RevokeFamily},
    sessions::SessionRow,
    users::{ChangeOwnPassword, UserRow},
};

use super::answer::allow_only;
use super::{authorize, logout as signing_out};
use crate::audit_draft::{AuditDraft, Subject};
use crate::authorization_state::{AuthorizationState, Intent};
use crate::endpoint::browser_request::{BrowserRequest, with_retry_after};
use crate::endpoint::password_problem::password_problem;
use crate::login::{LoginFault, LoginOrigin};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::scope::ScopeSet;
use crate::pages::{
    Account, AccountDone, AccountPaths, AttributeField, ConsentRow, ErrorKind, Page, PasswordForm,
    PasswordProblem, Scope, SessionEntry, TokenRow,
};
use crate::passwords::Password;
use crate::paths;
use crate::provider::Provider;
use crate::{audit_trail, revocations, session};

/// Most rows of one kind on the page.
const MAX_ROWS: u32 = 100;

/// Routes of the page and of its forms.
pub(crate) fn routes(page: &str) -> Router<Arc<Provider>> {
    Router::new()
        .route(page, allow_only(get(show)))
        .route(&format!("{page}/logout"), allow_only(post(logout)))
        .route(&format!("{page}/end-session"), allow_only(post(end_session)))
        .route(&format!("{page}/end-others"), allow_only(post(end_others)))
        .route(&format!("{page}/withdraw"), allow_only(post(withdraw)))
        .route(&format!("{page}/withdraw-all"), allow_only(post(withdraw_all)))
        .route(&format!("{page}/revoke"), allow_only(post(revoke)))
        .route(&format!("{page}/revoke-all"), allow_only(post(revoke_all)))
        .route(&format!("{page}/password"), allow_only(post(password)))
        .route(&format!("{page}/attributes"), allow_only(post(attributes::change)))
}

/// URL of the account page.
pub(super) fn address(provider: &Provider) -> String {
    provider.issuer().endpoint(paths::ACCOUNT)
}

/// Handles `GET /account`: shows the page, or the login page.
async fn show(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    let done = match parts.uri.query() {
        Some("done=session") => Some(AccountDone::SessionEnded),
        Some("done=others") => Some(AccountDone::OthersEnded),
        Some("done=consent") => Some(AccountDone::ConsentWithdrawn),
        Some("done=consents") => Some(AccountDone::ConsentsWithdrawn),
        Some("done=token") => Some(AccountDone::TokenRevoked),
        Some("done=tokens") => Some(AccountDone::TokensRevoked),
        Some("done=password") => Some(AccountDone::PasswordChanged),
        Some("done=attributes") => Some(AccountDone::AttributesChanged),
        _ => None,
    };
    page(&visit, done, None).await
}

/// Content of the page.
struct AccountData {
    user: UserRow,
    this: SessionRow,
    sessions: Vec<SessionRow>,
    consents: Vec<Given>,
    families: Vec<Family>,
    /// Families that end with a session.
    session_bound: Vec<Family>,
}

async fn account_data(visit: &BrowserRequest<'_>) -> Result<Option<AccountData>, OAuthFault> {
    let (store, now) = (visit.provider.store(), visit.provider.now());
    let Some(this) = visit.browser.session().cloned() else { return Ok(None) };
    let Some(user) = store.user(&this.user_id).await? else { return Ok(None) };
    let families = store.offline_families_of(&user.id, now, MAX_ROWS).await?;
    let passing = store.session_families_of(&user.id, visit.provider.sessions_at(), MAX_ROWS).await?;
    let mut sessions = store.sessions_of(&user.id, now).await?;
    // The session of this browser comes first; the others stay ordered, newest first.
    sessions.sort_by_key(|session| session.sid != this.sid);
    let consents = store.consents_of(&user.id).await?;
    Ok(Some(AccountData { user, this, sessions, consents, families, session_bound: passing }))
}

/// Reason why a form of the page was refused.
enum Problem {
    Password(PasswordProblem),
    /// The value of the form field with this name is not permitted.
    Attribute(String),
}

async fn page(visit: &BrowserRequest<'_>, done: Option<AccountDone>, problem: Option<Problem>) -> Response {
    let belongings = match account_data(visit).await {
        Ok(Some(belongings)) => belongings,
        Ok(None) => {
            let flow = AuthorizationState::begin(visit.provider, Intent::Account);
            return authorize::login_page(visit, &flow, None, None, None);
        }
        Err(fault) => return visit.failed(&fault),
    };
    let names = match client_names(visit.provider, &belongings).await {
        Ok(names) => names,
        Err(fault) => return visit.failed(&fault),
    };
    let name_of = |id: &str| names.iter().find(|(known, _)| known == id).map_or("", |(_, name)| name);
    let browsers: Vec<String> = belongings.sessions.iter().map(|s| browser_name(&s.user_agent)).collect();
    let sessions: Vec<SessionEntry<'_>> = session_entries(&belongings, &browsers);
    let granted: Vec<ScopeSet> =
        belongings.consents.iter().map(|c| ScopeSet::parse(&c.scopes).unwrap_or_default()).collect();
    let scopes: Vec<Vec<Scope<'_>>> = granted
        .iter()
        .map(|set| set.iter().map(|name| Scope { name, meaning: None, new: false }).collect())
        .collect();
    let consents: Vec<ConsentRow<'_>> = belongings
        .consents
        .iter()
        .zip(&scopes)
        .map(|(consent, scopes)| ConsentRow {
            client_id: &consent.client_id,
            client: name_of(&consent.client_id),
            scopes,
            since: consent.given_at,
        })
        .collect();
    let browser_of = |sid: &str| {
        let mut all = belongings.sessions.iter().zip(&browsers);
        all.find(|(session, _)| session.sid == sid).map_or("", |(_, browser)| browser.as_str())
    };
    let tokens: Vec<TokenRow<'_>> = belongings
        .families
        .iter()
        .map(|family| token_row(family, name_of(&family.client_id), None))
        .collect();
    let passing = belongings.session_bound.iter().map(|family| {
        let session = family.sid.as_deref().map(browser_of);
        token_row(family, name_of(&family.client_id), session)
    });
    let passing: Vec<TokenRow<'_>> = passing.collect();
    let forms = Forms::below(visit.provider);
    let proof = visit.proof();
    let fields = attributes::fields(visit.provider, &belongings.user, visit.language());
    let fields: Vec<AttributeField<'_>> = fields.iter().map(attributes::Field::view).collect();
    let (problem, refused, after) = match problem {
        Some(Problem::Password(problem @ PasswordProblem::TooMany(after))) => {
            (Some(problem), None, Some(after))
        }
        Some(Problem::Password(problem)) => (Some(problem), None, None),
        Some(Problem::Attribute(name)) => (None, Some(name), None),
        None => (None, None, None),
    };
    let page = visit.page(&Page::Account(Account {
        user: &belongings.user.name,
        csrf: &proof,
        paths: forms.paths(),
        attributes: &fields,
        refused_attribute: refused.as_deref(),
        sessions: &sessions,
        consents: &consents,
        tokens: &tokens,
        session_bound: &passing,
        password: Some(PasswordForm { min_length: visit.provider.logins().min_length(), problem }),
        done,
    }));
    with_retry_after(page, after)
}

fn session_entries<'a>(data: &'a AccountData, browsers: &'a [String]) -> Vec<SessionEntry<'a>> {
    let entry = |(session, browser): (&'a SessionRow, &'a String)| SessionEntry {
        id: &session.sid,
        browser,
        address: &session.address,
        last_seen: session.last_used_at,
        is_current: session.sid == data.this.sid,
    };
    data.sessions.iter().zip(browsers).map(entry).collect()
}

/// Paths of the forms of the account page.
struct Forms([String; 9]);

impl Forms {
    const NAMES: [&str; 9] = [
        "logout",
        "end-session",
        "end-others",
        "withdraw",
        "withdraw-all",
        "revoke",
        "revoke-all",
        "password",
        "attributes",
    ];

    fn below(provider: &Provider) -> Self {
        Self(Self::NAMES.map(|form| authorize::path(provider, &format!("{}/{form}", paths::ACCOUNT))))
    }

    fn paths(&self) -> AccountPaths<'_> {
        let [
            logout,
            end_session,
            end_others,
            withdraw,
            withdraw_all,
            revoke,
            revoke_all,
            password,
            attributes,
        ] = &self.0;
        AccountPaths {
            logout,
            end_session,
            end_others,
            withdraw,
            withdraw_all,
            revoke,
            revoke_all,
            password,
            attributes,
        }
    }
}

fn token_row<'r>(family: &'r Family, client: &'r str, session: Option<&'r str>) -> TokenRow<'r> {
    TokenRow { id: &family.id, client, issued: family.created_at, expires: Some(family.expires_at), session }
}

/// Ids and display names of the clients on the page; a deleted client is shown by its id.
async fn client_names(
    provider: &Provider,
    belongings: &AccountData,
) -> Result<Vec<(String, String)>, OAuthFault> {
    let of_consents = belongings.consents.iter().map(|c| &c.client_id);
    let mut names: Vec<(String, String)> = Vec::new();
    let families = belongings.families.iter().chain(&belongings.session_bound);
    for id in of_consents.chain(families.map(|f| &f.client_id)) {
        if names.iter().all(|(known, _)| known != id) {
            let client = provider.clients().find(provider.store(), id).await?;
            let name = client.map_or_else(|| id.clone(), |client| client.name().to_owned());
            names.push((id.clone(), name));
        }
    }
    Ok(names)
}

/// Reads a form of the account page; requires a session.
async fn begin_account_form(
    provider: &Provider,
    request: Request,
) -> Result<(BrowserRequest<'_>, Form, SessionRow), Response> {
    let (visit, form) = BrowserRequest::begin_form(provider, request).await?;
    match visit.browser.session().cloned() {
        Some(session) => Ok((visit, form, session)),
        None => Err(visit.redirect(&address(provider))),
    }
}

fn redirect_done(visit: &BrowserRequest<'_>, done: &str) -> Response {
    visit.redirect(&format!("{}?done={done}", address(visit.provider)))
}

/// Audit entry of what the user of the session does.
async fn entry(
    provider: &Provider,
    session: &SessionRow,
    action: &str,
    target: String,
    now: Timestamp,
) -> Result<AuditEntry, OAuthFault> {
    let user = audit_trail::user(provider, &session.user_id).await?;
    let client = match target.strip_prefix("client:") {
        Some(id) => provider.clients().find(provider.store(), id).await?,
        None => None,
    };
    let draft = AuditDraft::by_user(&user, action, target, now);
    Ok(draft.client(client.as_deref().map(Subject::of_client).as_ref()).finish())
}

/// Logs out. Works for an idle session too.
async fn logout(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, _) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    match visit.browser.end(&provider, None, "logout").await {
        Ok(()) => visit.redirect(&signing_out::signed_out(&provider, None)),
        Err(fault) => visit.failed(&fault),
    }
}

/// Ends one session of the user.
async fn end_session(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, form, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let sid = form.get("session").unwrap_or_default();
    match end_one(&provider, &session, sid).await {
        Ok(()) => redirect_done(&visit, "session"),
        Err(fault) => visit.failed(&fault),
    }
}

async fn end_one(provider: &Provider, session: &SessionRow, sid: &str) -> Result<(), OAuthFault> {
    let change = session::end_change(provider, &session.user_id, sid, "session ended by its user");
    let entry = entry(provider, session, "session.end", format!("session:{sid}"), change.now).await?;
    provider.store().write(Audited { change, entry }).await?;
    Ok(())
}

/// Ends all sessions of the user except the current one.
async fn end_others(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, _, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let others = match provider.store().sessions_of(&session.user_id, provider.now()).await {
        Ok(sessions) => sessions.into_iter().filter(|other| other.sid != session.sid),
        Err(error) => return visit.failed(&error.into()),
    };
    for other in others {
        if let Err(fault) = end_one(&provider, &session, &other.sid).await {
            return visit.failed(&fault);
        }
    }
    redirect_done(&visit, "others")
}

/// Withdraws the consent to one client.
async fn withdraw(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, form, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    match withdraw_one(&provider, &session, form.get("client_id").unwrap_or_default()).await {
        Ok(()) => redirect_done(&visit, "consent"),
        Err(fault) => visit.failed(&fault),
    }
}

/// Withdraws all consents of the user.
async fn withdraw_all(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, _, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let consents = match provider.store().consents_of(&session.user_id).await {
        Ok(consents) => consents,
        Err(error) => return visit.failed(&error.into()),
    };
    for consent in consents {
        if let Err(fault) = withdraw_one(&provider, &session, &consent.client_id).await {
            return visit.failed(&fault);
        }
    }
    redirect_done(&visit, "consents")
}

async fn withdraw_one(provider: &Provider, session: &SessionRow, client_id: &str) -> Result<(), OAuthFault> {
    let now = provider.now();
    let change = WithdrawConsent {
        user_id: session.user_id.clone(),
        client_id: client_id.to_owned(),
        revocation: revocations::consent(provider, (&session.user_id, client_id), "consent withdrawn", now),
        now,
    };
    let entry = entry(provider, session, "consent.withdraw", format!("client:{client_id}"), now).await?;
    provider.store().write(Audited { change, entry }).await?;
    Ok(())
}

/// Revokes one token family that outlives sessions.
async fn revoke(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, form, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let id = form.get("token").unwrap_or_default();
    match provider.store().family(id).await {
        Ok(family) if family.as_ref().is_some_and(|f| f.user_id.as_deref() == Some(&*session.user_id)) => {}
        Ok(_) => return visit.error(ErrorKind::NotFound, &"token family not found"),
        Err(error) => return visit.failed(&error.into()),
    }
    match revoke_one(&provider, &session, id).await {
        Ok(()) => redirect_done(&visit, "token"),
        Err(fault) => visit.failed(&fault),
    }
}

/// Revokes all token families that outlive sessions.
async fn revoke_all(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, _, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    loop {
        let some = provider.store().offline_families_of(&session.user_id, provider.now(), MAX_ROWS).await;
        let families = match some {
            Ok(families) if families.is_empty() => return redirect_done(&visit, "tokens"),
            Ok(families) => families,
            Err(error) => return visit.failed(&error.into()),
        };
        for family in families {
            if let Err(fault) = revoke_one(&provider, &session, &family.id).await {
                return visit.failed(&fault);
            }
        }
    }
}

/// Revokes a token family of the session's user.
async fn revoke_one(provider: &Provider, session: &SessionRow, id: &str) -> Result<(), OAuthFault> {
    let revocation = revocations::family(provider, id, "access revoked by its user");
    let change = RevokeFamily { id: id.to_owned(), revocation, now: provider.now() };
    let entry = entry(provider, session, "family.revoke", format!("family:{id}"), change.now).await?;
    provider.store().write(Audited { change, entry }).await?;
    Ok(())
}

/// Handles the password form.
async fn password(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    match try_password(&mut visit, &form, &session).await {
        Ok(None) => redirect_done(&visit, "password"),
        Ok(Some(problem)) => page(&visit, None, Some(Problem::Password(problem))).await,
        Err(fault) => visit.failed(&fault),
    }
}

/// Changes the password. `None` means success: everything that began with the old password is
/// revoked, except in this browser.
async fn try_password(
    visit: &mut BrowserRequest<'_>,
    form: &Form,
    session: &SessionRow,
) -> Result<Option<PasswordProblem>, OAuthFault> {
    let provider = visit.provider;
    let [current, new, again] = ["current", "new", "again"].map(|name| form.get(name).unwrap_or_default());
    let [current, new, again] = [current, new, again].map(|text| Password::new(text.to_owned()));
    let Ok(current) = current else { return Ok(Some(PasswordProblem::WrongCurrent)) };
    let (Ok(new), Ok(again)) = (new, again) else { return Ok(Some(PasswordProblem::TooCommon)) };
    if !new.same_form_as(&again) {
        return Ok(Some(PasswordProblem::Differ));
    }
    if new.same_form_as(&current) {
        return Ok(Some(PasswordProblem::Same));
    }
    let user = provider.store().user(&session.user_id).await?.ok_or(OAuthFault::LoginFailed)?;
    let origin = LoginOrigin { address: visit.browser.caller().0, client: None };
    let logins = provider.logins();
    let place = (provider.store(), provider.secrets());
    let user = match logins.verify(place, &user.name, current, &origin, provider.now()).await {
        Ok(user) => user,
        Err(LoginFault::PasswordChangeRequired(user)) => *user,
        Err(LoginFault::Wrong) => return Ok(Some(PasswordProblem::WrongCurrent)),
        Err(LoginFault::Locked(after)) => return Ok(Some(PasswordProblem::TooMany(after))),
        Err(fault) => return Err(fault.into()),
    };
    let stored = match logins.hash(&new, &user.name, user.email.as_deref(), provider.now()).await {
        Ok(stored) => stored,
        Err(fault) => return password_problem(fault).map(Some),
    };
    // This browser stays logged in, with a new session.
    let (begins, token) = visit.browser.draw_session(provider, &user)?;
    let end = revocations::change_password(provider, &user.id, stored);
    let entry =
        AuditDraft::by_user(&Subject::of_user(&user), "user.password", format!("user:{}", user.id), end.now)
            .with("session", begins.sid.as_str())
            .with("address", origin.address.to_string())
            .finish();
    let change = ChangeOwnPassword { end, read_at: user.read_at, session: begins.clone() };
    if !provider.store().write(Audited { change, entry }).await? {
        // A concurrent change replaced the password or revoked everything. The user can try again
        // with the current password.
        return Ok(Some(PasswordProblem::WrongCurrent));
    }
    logins.forget(&user.id);
    visit.browser.attach(begins, token);
    Ok(None)
}

/// Display name of a browser, for example `Firefox on Linux`; otherwise the start of its
/// `User-Agent`.
fn browser_name(agent: &str) -> String {
    let first = |names: &[(&str, &'static str)]| {
        names.iter().find(|(mark, _)| agent.contains(mark)).map(|(_, name)| *name)
    };
    // Browsers whose `User-Agent` also contains another browser's name come first.
    let browser = first(&[
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
        ("curl/", "curl"),
    ]);
    let system = first(&[
        ("Android", "Android"),
        ("iPhone", "iOS"),
        ("iPad", "iPadOS"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("Linux", "Linux"),
    ]);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(browser), None) => browser.to_owned(),
        (None, _) => agent.chars().take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_told_by_what_people_call_them() {
        for (agent, name) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/156.0 Safari/537.36 Edg/156.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605 Version/18.0 Safari/604.1",
                "Safari on iOS",
            ),
            ("curl/8.9", "curl"),
            ("something else", "something else"),
            ("", ""),
        ] {
            assert_eq!(browser_name(agent), name);
        }
    }
}
