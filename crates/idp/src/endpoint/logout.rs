//! End session endpoint (OpenID Connect RP-Initiated Logout 1.0).
//!
//! A request with an ID token of the browser's session ends it immediately. Otherwise the user is
//! asked first, because any site can send a browser here. Afterwards the browser is redirected only
//! to URIs that the client registered.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::Method,
    response::Response,
};

use super::authorize::path;
use super::form;
use crate::authorization_state::{AuthorizationState, Intent, PostLogout};
use crate::client::Client;
use crate::endpoint::browser_request::BrowserRequest;
use crate::id_token::{Hint, read_hint};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::{Form, escape};
use crate::pages::{ErrorKind, Form as PageForm, Logout, LogoutDone, Page};
use crate::paths;
use crate::provider::Provider;
use ::pages::{FormTarget, Href, Link};

/// Handles `GET` and `POST /logout`: ends the session, or asks the user.
pub async fn logout(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut visit = match BrowserRequest::begin(&provider, &mut parts).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    let form = if parts.method == Method::POST {
        form::read(&parts, body).await
    } else {
        Form::parse(parts.uri.query().unwrap_or_default().as_bytes()).map_err(OAuthFault::from)
    };
    let form = match form {
        Ok(form) => form,
        Err(fault) => return visit.failed(&fault),
    };
    // Browsers send no cookies with a POST from another site, but with the equivalent GET.
    if parts.method == Method::POST {
        let to = format!("{}?{}", provider.issuer().endpoint(paths::END_SESSION), form.to_query());
        return visit.redirect(&to);
    }
    visit.select_language(form.get("ui_locales"));
    let (client, hint, afterwards) = match read(&provider, &form).await {
        Ok(read) => read,
        Err(RequestError::Page(kind, why)) => return visit.error(kind, &why),
        Err(RequestError::Fault(fault)) => return visit.failed(&fault),
    };
    let Some(session) = visit.browser.session_to_end() else {
        return end_and_respond(&mut visit, client.as_deref(), &afterwards).await;
    };
    let meant = hint.is_some_and(|hint| match &hint.sid {
        Some(sid) => *sid == session.sid,
        None => hint.user_id == session.user_id,
    });
    if meant {
        end_and_respond(&mut visit, client.as_deref(), &afterwards).await
    } else {
        confirm_page(&visit, client.as_deref(), afterwards).await
    }
}

enum RequestError {
    Page(ErrorKind, &'static str),
    Fault(OAuthFault),
}

/// Reads the client, the ID token hint, and where the browser goes afterwards.
async fn read(
    provider: &Provider,
    form: &Form,
) -> Result<(Option<Arc<Client>>, Option<Hint>, PostLogout), RequestError> {
    let bad = |why| RequestError::Page(ErrorKind::BadRequest, why);
    let hint = match form.get("id_token_hint") {
        Some(text) => {
            Some(read_hint(provider, text).ok_or(bad("id_token_hint is not an ID token of this provider"))?)
        }
        None => None,
    };
    let named = form.get("client_id");
    if let (Some(hint), Some(named)) = (&hint, named)
        && hint.client_id != named
    {
        return Err(bad("client_id differs from that of the ID token"));
    }
    let id = named.map(str::to_owned).or_else(|| hint.as_ref().map(|hint| hint.client_id.clone()));
    let client = match &id {
        Some(id) => {
            let found = provider.clients().find(provider.store(), id).await;
            let found = found.map_err(|error| RequestError::Fault(error.into()))?;
            Some(found.ok_or(RequestError::Page(ErrorKind::UnknownClient, "unknown client"))?)
        }
        None => None,
    };
    let redirect_uri = form.get("post_logout_redirect_uri").map(str::to_owned);
    match (&redirect_uri, &client) {
        (Some(_), None) => {
            let why = "post_logout_redirect_uri without id_token_hint or client_id";
            return Err(RequestError::Page(ErrorKind::NoLogoutHint, why));
        }
        (Some(uri), Some(client)) if !client.allows_post_logout_redirect(uri) => {
            let why = "post_logout_redirect_uri is not registered for this client";
            return Err(RequestError::Page(ErrorKind::RedirectMismatch, why));
        }
        _ => {}
    }
    let state = form.get("state").map(str::to_owned);
    Ok((client, hint, PostLogout { client_id: id, redirect_uri, state }))
}

async fn confirm_page(
    visit: &BrowserRequest<'_>,
    client: Option<&Client>,
    afterwards: PostLogout,
) -> Response {
    let Some(session) = visit.browser.session_to_end() else {
        return visit.error(ErrorKind::Server, &"logout confirmation without a session");
    };
    let user = match visit.provider.store().user(&session.user_id).await {
        Ok(user) => user.map(|user| user.name).unwrap_or_default(),
        Err(error) => return visit.failed(&error.into()),
    };
    let leads_to: Vec<FormTarget> =
        afterwards.redirect_uri.iter().filter_map(|uri| FormTarget::of_redirect(uri).ok()).collect();
    let flow =
        AuthorizationState::begin(visit.provider, Intent::Logout(afterwards)).for_user(&session.user_id);
    let Ok(sealed) = flow.seal(visit.provider, &visit.browser) else {
        return visit.failed(&OAuthFault::EntropyFailed);
    };
    let (proof, action) = (visit.proof(), path(visit.provider, paths::LOGOUT_DECISION));
    visit.page(&Page::Logout(Logout {
        form: PageForm { action: &action, csrf: &proof, hidden: &[("flow", &sealed)] },
        user: &user,
        client: client.map(Client::name),
        form_targets: &leads_to,
    }))
}

/// Handles `POST /logout/decision`: ends the session if the user confirmed.
pub async fn decide(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (mut visit, form) = match BrowserRequest::begin_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let flow =
        form.get("flow").and_then(|sealed| AuthorizationState::open(&provider, &visit.browser, sealed));
    let Some(AuthorizationState { intent: Intent::Logout(afterwards), .. }) = flow else {
        return visit.error(ErrorKind::Expired, &"page expired");
    };
    if form.get("decision") != Some("logout") {
        return visit.redirect(&provider.issuer().endpoint(paths::ACCOUNT));
    }
    let client = match &afterwards.client_id {
        Some(id) => match provider.clients().find(provider.store(), id).await {
            Ok(client) => client,
            Err(error) => return visit.failed(&error.into()),
        },
        None => None,
    };
    end_and_respond(&mut visit, client.as_deref(), &afterwards).await
}

/// URL of the page that confirms the logout: this endpoint, which has no session to ask about then.
pub(super) fn signed_out(provider: &Provider, client: Option<&Client>) -> String {
    let mut to = provider.issuer().endpoint(paths::END_SESSION);
    if let Some(client) = client {
        to.push_str("?client_id=");
        escape(client.id(), &mut to);
    }
    to
}

/// Ends the session, then redirects to the client's URI or shows the confirmation page.
async fn end_and_respond(
    visit: &mut BrowserRequest<'_>,
    client: Option<&Client>,
    afterwards: &PostLogout,
) -> Response {
    if let Err(fault) = visit.browser.end(visit.provider, client, "logout").await {
        return visit.failed(&fault);
    }
    if let Some(uri) = &afterwards.redirect_uri {
        let mut to = uri.clone();
        if let Some(state) = &afterwards.state {
            to.push(if uri.contains('?') { '&' } else { '?' });
            to.push_str("state=");
            escape(state, &mut to);
        }
        return visit.redirect(&to);
    }
    if visit.posted() {
        return visit.redirect(&signed_out(visit.provider, client));
    }
    let first = client.and_then(|client| client.post_logout_redirect_uris.first());
    let href = first.and_then(|uri| Href::parse(uri.as_str()).ok());
    let back = href.as_ref().zip(client).map(|(href, client)| Link { href, name: client.name() });
    visit.page(&Page::LogoutDone(LogoutDone { back }))
}
