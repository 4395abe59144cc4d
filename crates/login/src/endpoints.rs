//! Endpoints: serves the addresses below the login's path.
//!
//! Owns: the steps of a login through its addresses, logout, and the responses for proxies and
//! pages that query the session (`auth`, `userinfo`, compatible with oauth2-proxy). Does not own:
//! the pages' content ([`super::pages`]), the providers' answers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use auth::headers::IdentityHeaders;
use credentials::cookies::Cookie;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

use super::auth_conditions;
use super::call::{LoginAction, LoginCall, redirect_to};
use super::lifecycle::BeginFault;
use super::pages::{LocalizedPages, PageNotice};
use super::provider::LoginProviderClient;
use super::redirect::RedirectTarget;
use super::session::{BrowserSession, LONGEST_COOKIE, SealFault, subject_of};
use super::{Login, SessionRejected};
use crate::config::Origin;
use crate::login_state::{LOGIN_TIMEOUT, PendingLogin, is_browser, random_text};
use crate::provider::messages::sanitized;
use crate::provider::provider_fault::ProviderFault;

impl Login {
    /// Answers a call. Its processing continues when the request is dropped.
    pub async fn serve(self: &Arc<Self>, call: LoginCall, body: Vec<u8>) -> LocalReply {
        // The client is unauthenticated, and its processing continues without it: hence a limit.
        let Ok(place) = self.call_limit.clone().try_acquire_owned() else {
            return self.pages(&call).problem(&PageNotice::Unavailable, None);
        };
        let this = self.clone();
        let languages = call.languages.clone();
        let serving = self.control().spawn(async move {
            let answer = this.answer(call, body).await;
            drop(place);
            answer
        });
        serving.await.unwrap_or_else(|_| {
            self.config.pages.in_language(languages.as_deref()).problem(&PageNotice::Unavailable, None)
        })
    }

    /// The pages in the language of the browser.
    fn pages(&self, call: &LoginCall) -> LocalizedPages<'_> {
        self.config.pages.in_language(call.languages.as_deref())
    }

    async fn answer(self: &Arc<Self>, call: LoginCall, body: Vec<u8>) -> LocalReply {
        match call.action {
            LoginAction::Start | LoginAction::Callback if call.is_post => self.repeat_as_get(&call, &body),
            LoginAction::Start => self.start(&call).await,
            LoginAction::Callback => self.callback(&call).await,
            LoginAction::SignIn => self.sign_in(&call),
            LoginAction::SignOut => self.sign_out(&call).await,
            LoginAction::SignedOut => {
                self.pages(&call).signed_out(&self.address(&call.here, "start", &[("rd", "/")]))
            }
            LoginAction::Done => self.pages(&call).done(),
            LoginAction::Auth => self.auth(&call).await,
            LoginAction::UserInfo => self.user_info(&call).await,
            LoginAction::BackChannelLogout => self.backchannel_logout(&call, &body).await,
            LoginAction::Unknown => self.pages(&call).problem(&PageNotice::NoPage, None),
        }
    }

    /// Sends the browser to the same address again, with the parameters of its form in the address. A
    /// form of another site arrives without our cookies (`SameSite=Lax`), and the next request has
    /// them.
    fn repeat_as_get(&self, call: &LoginCall, body: &[u8]) -> LocalReply {
        let endpoint = match call.action {
            LoginAction::Start => Some("start".to_owned()),
            // Only where we asked for a form.
            _ => {
                let mut posts = self.providers.iter().filter(|provider| provider.config.form_post);
                let provider = posts.find(|provider| self.callback_name(provider) == call.provider);
                provider.map(|provider| self.callback_endpoint(provider))
            }
        };
        let (Some(endpoint), Some(form)) = (endpoint, call.form(body)) else {
            let home = self.address(&call.here, "start", &[("rd", "/")]);
            return self.pages(call).problem(&PageNotice::NotStarted, Some(&home));
        };
        let form: Vec<_> = form.collect();
        let parameters: Vec<_> = form.iter().map(|(name, value)| (*name, &**value)).collect();
        redirect_to(303, self.address(&call.here, &endpoint, &parameters))
    }

    /// Redirects the browser to a provider.
    async fn start(&self, call: &LoginCall) -> LocalReply {
        let requested = call.single("rd").or_else(|| call.single("target_link_uri"));
        let target = self.config.target(requested, &call.here);
        if *self.config.login_origin(&call.here) != call.here {
            return self.start_at_login_origin(call, &target);
        }
        let rd = target.seen_from(&call.here);
        let provider = match (call.single("provider"), call.single("iss")) {
            (Some(name), _) => self.providers.iter().find(|provider| *provider.config.name == *name),
            // A login that another site began names the provider (OpenID Connect Core 1.0 §4).
            (None, Some(issuer)) => self.providers.iter().find(|provider| provider.has_issuer(issuer)),
            (None, None) if self.config.page || self.providers.len() > 1 => {
                let parameters = [("rd", &*rd)].into_iter().chain(call.prompt());
                let parameters: Vec<_> = parameters.collect();
                return redirect_to(302, self.address(&call.here, "sign_in", &parameters));
            }
            (None, None) => self.providers.first(),
        };
        let Some(provider) = provider else {
            return self
                .pages(call)
                .problem(&PageNotice::NoProvider, Some(&self.address(&call.here, "sign_in", &[])));
        };
        let again = self.address(&call.here, "start", &[("rd", &rd)]);
        // The cookie of another tab serves this one as well.
        let browser = match call.browser.as_deref().filter(|browser| is_browser(browser)) {
            Some(browser) => String::from_utf8_lossy(browser).into_owned(),
            None => match random_text::<32>(&self.random) {
                Ok(browser) => browser,
                Err(_) => return self.pages(call).problem(&PageNotice::Unavailable, Some(&again)),
            },
        };
        let now = self.surroundings.clock.now().wall;
        let provider_binding = (&*provider.config.name, &*provider.binding);
        let question = PendingLogin::begin(provider_binding, rd, now, &self.random).and_then(|attempt| {
            let origin = &call.here.text;
            attempt.authorization_request(&self.config.keys, origin, browser.as_bytes(), &self.random)
        });
        let Ok(question) = question else {
            return self.pages(call).problem(&PageNotice::Unavailable, Some(&again));
        };
        let redirect_uri = self.callback_uri(&call.here, provider);
        match provider.authorization_url(&question, &redirect_uri, call.account_request()).await {
            Ok(url) => {
                let mut answer = redirect_to(302, url);
                let cookie =
                    Cookie::Browser.set(self.config.cookie_reach(call.origin), &browser, LOGIN_TIMEOUT);
                answer.fields.push(("set-cookie".into(), cookie.into()));
                answer
            }
            Err(fault) => self.login_failed(call, provider, &fault, &again),
        }
    }

    /// Sends the browser to the origin at which logins take place, with the parameters of its login.
    fn start_at_login_origin(&self, call: &LoginCall, target: &RedirectTarget) -> LocalReply {
        let passed = ["provider", "iss", "login_hint"];
        let passed = passed.into_iter().filter_map(|name| Some((name, call.single(name)?)));
        let more: Vec<_> = passed.chain(call.prompt()).collect();
        redirect_to(302, self.config.start_address(&call.here, target, &more))
    }

    /// Handles the browser's return from a provider.
    async fn callback(&self, call: &LoginCall) -> LocalReply {
        let origin = &call.here;
        let home = self.address(&call.here, "start", &[("rd", "/")]);
        let Some(browser) = call.browser.as_deref() else {
            return self.pages(call).problem(&PageNotice::NoCookie, Some(&home));
        };
        let opened = call
            .single("state")
            .and_then(|state| PendingLogin::open(&self.config.keys, &origin.text, browser, state));
        let Some((attempt, proofs)) = opened else {
            return self.pages(call).problem(&PageNotice::NotStarted, Some(&home));
        };
        let again =
            self.address(&call.here, "start", &[("rd", &attempt.target), ("provider", &attempt.provider)]);
        // The user left the provider's page open for too long and meant to log in: start again.
        if attempt.is_expired(self.surroundings.clock.now().wall) {
            return redirect_to(303, again);
        }
        // Checked again: the origins may have changed since.
        let target = self.config.target(Some(&attempt.target), origin).address();
        // A step back in the history, or a second click: redirect to the target of the first one.
        if !self.shared.used.mark_used(&attempt) {
            return redirect_to(303, target);
        }
        let is_his =
            |p: &&LoginProviderClient| *p.config.name == *attempt.provider && p.binding == attempt.binding;
        let Some(provider) = self.providers.iter().find(is_his) else {
            return self.pages(call).problem(&PageNotice::NoProvider, Some(&home));
        };
        // Each provider has a callback address of its own, so that one cannot pass off another's
        // answer as its own.
        if call.provider != self.callback_name(provider) {
            return self.pages(call).problem(&PageNotice::NotStarted, Some(&home));
        }
        if let Err(fault) = is_from(provider, call).await {
            return self.login_failed(call, provider, &fault, &again);
        }
        if let Some(error) = call.single("error") {
            return self.login_failed(call, provider, &ProviderFault::Refused(sanitized(error)), &again);
        }
        let Some(code) = call.single("code") else {
            return self.pages(call).problem(&PageNotice::NotStarted, Some(&home));
        };
        let tokens = match provider.exchange(code, &self.callback_uri(&call.here, provider), &proofs).await {
            Ok(tokens) => tokens,
            Err(fault) => return self.login_failed(call, provider, &fault, &again),
        };
        let subject = subject_of(&provider.config.name, &tokens.subject);
        match self.begin(call.origin, provider, tokens, attempt.began()).await {
            Ok(cookie) => {
                self.end_session_of_other_user(call.origin, call.session.as_deref(), &subject).await;
                self.shared.counts.logins.fetch_add(1, Relaxed);
                let mut answer = redirect_to(303, target);
                answer.fields.push(("set-cookie".into(), cookie.into()));
                answer
            }
            Err(BeginFault::Ended) => {
                self.shared.counts.login_refused.fetch_add(1, Relaxed);
                self.pages(call).problem(&PageNotice::Ended, Some(&again))
            }
            Err(BeginFault::Seal(fault @ SealFault::TooLong(bytes))) => {
                self.shared.counts.login_failed.fetch_add(1, Relaxed);
                let provider = &*provider.config.name;
                tracing::error!(provider, bytes, longest = LONGEST_COOKIE, %fault, "session too large for a cookie, login refused");
                self.pages(call).problem(&PageNotice::TooLarge, None)
            }
            // The owner of the store logs its outage.
            Err(BeginFault::Store(fault)) => {
                self.shared.counts.login_failed.fetch_add(1, Relaxed);
                tracing::debug!(provider = &*provider.config.name, %fault, "session could not be stored, login failed");
                self.pages(call).problem(&PageNotice::Unavailable, Some(&again))
            }
            Err(fault) => {
                self.shared.counts.login_failed.fetch_add(1, Relaxed);
                tracing::error!(provider = &*provider.config.name, %fault, "session could not be stored, login failed");
                self.pages(call).problem(&PageNotice::Unavailable, Some(&again))
            }
        }
    }

    fn sign_in(&self, call: &LoginCall) -> LocalReply {
        let target = self.config.target(call.single("rd"), &call.here).seen_from(&call.here);
        let choices = self.providers.iter().map(|provider| {
            let name = &*provider.config.name;
            let parameters = [("rd", &*target), ("provider", name)].into_iter().chain(call.prompt());
            let address = self.address(&call.here, "start", &parameters.collect::<Vec<_>>());
            (provider.config.display_name.to_string(), address)
        });
        self.pages(call).sign_in(&choices.collect::<Vec<_>>())
    }

    /// Ends a session here, then revokes its tokens at the provider, then, if configured, ends the
    /// provider's own session.
    async fn sign_out(&self, call: &LoginCall) -> LocalReply {
        // Another site must not log a user out. Neither a link of another site may, nor a form. A
        // form arrives without the cookie, but its response could still remove it.
        if call.is_cross_site {
            return self.pages(call).sign_out(&self.address(&call.here, "sign_out", &[]));
        }
        // The provider knows the address at the origin where logins take place.
        let signed_out = self.address(self.config.login_origin(&call.here), "signed_out", &[]);
        let session = match &call.session {
            Some(cookie) => match self.end(call.origin, cookie).await {
                Ok(session) => session,
                Err(fault) => {
                    tracing::debug!(%fault, "sign-out failed: the session could not be deleted");
                    let again = self.address(&call.here, "sign_out", &[]);
                    return self.pages(call).problem(&PageNotice::NotSignedOut, Some(&again));
                }
            },
            None => None,
        };
        let back = match call.single("rd") {
            Some(requested) => self.config.target(Some(requested), &call.here).address(),
            None => signed_out.clone(),
        };
        let mut location = back;
        if let Some(session) = session {
            self.shared.counts.logouts.fetch_add(1, Relaxed);
            if let Some(onward) = self.end_at_provider(&session, &signed_out).await {
                location = onward;
            }
        }
        let mut answer = redirect_to(303, location);
        for cookie in [Cookie::Session, Cookie::Browser] {
            answer
                .fields
                .push(("set-cookie".into(), cookie.clear(self.config.cookie_reach(call.origin)).into()));
        }
        answer
    }

    /// Revokes the tokens at the provider; returns the address at which the provider ends its own
    /// session.
    async fn end_at_provider(&self, session: &BrowserSession, signed_out: &str) -> Option<String> {
        let provider = self.provider_of(session)?;
        self.revoke_tokens(provider, session).await;
        let id_token = session.id_token.as_ref().map(|token| token.as_str());
        provider.end_session_url(id_token, signed_out).await
    }

    /// Whether there is a session, and whether it meets the conditions of the query.
    async fn auth(self: &Arc<Self>, call: &LoginCall) -> LocalReply {
        let verified = match self.session_of(call.origin, call.session.as_deref()).await {
            Some(Ok(verified)) => verified,
            Some(Err(SessionRejected::Unavailable)) => return unavailable(),
            Some(Err(SessionRejected::Over)) | None => {
                return LocalReply::from_code(401, "login_required", Outcome::Unauthenticated);
            }
        };
        let values = |name| call.all(name).map(str::to_owned).collect();
        let identity = &verified.facts.identity;
        if !auth_conditions::are_met_by(values, &identity.groups, identity.email.as_deref()) {
            return LocalReply::from_code(403, "forbidden", Outcome::Forbidden);
        }
        let mut answer = LocalReply::from_code(202, "allowed", Outcome::Allowed);
        answer.body = (&b""[..]).into();
        let identity_headers = IdentityHeaders::x_auth_request();
        let mut set = identity_headers.render(&verified.facts.identity);
        set.extend(verified.upstream_fields.iter().cloned());
        for (name, value) in set {
            // Rendered as visible ASCII.
            let value = String::from_utf8_lossy(&value).into_owned();
            if !answer.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                answer.fields.push((String::from(name).into(), value.into()));
            }
        }
        // A proxy that copies these fields must find each of them, or it would use the client's.
        for name in identity_headers.names() {
            if !answer.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                answer.fields.push((name.to_owned().into(), "".into()));
            }
        }
        let renewed = verified.session.as_ref().and_then(|session| session.renewed.as_deref());
        answer.fields.extend(renewed.map(|cookie| ("set-cookie".into(), cookie.to_owned().into())));
        answer
    }

    async fn user_info(self: &Arc<Self>, call: &LoginCall) -> LocalReply {
        let verified = match self.session_of(call.origin, call.session.as_deref()).await {
            Some(Ok(verified)) => verified,
            Some(Err(SessionRejected::Unavailable)) => return unavailable(),
            Some(Err(SessionRejected::Over)) | None => {
                return LocalReply::from_code(401, "login_required", Outcome::Unauthenticated);
            }
        };
        let identity = &verified.facts.identity;
        let document = serde_json::json!({
            "user": identity.subject,
            "email": identity.email,
            "groups": identity.groups,
            "preferredUsername": identity.user,
        });
        let mut answer =
            LocalReply::document("application/json", "no-store", document.to_string().into_bytes());
        let renewed = verified.session.as_ref().and_then(|session| session.renewed.as_deref());
        answer.fields.extend(renewed.map(|cookie| ("set-cookie".into(), cookie.to_owned().into())));
        answer
    }

    /// The name of a provider in its callback address; the first provider has none.
    fn callback_name(&self, provider: &LoginProviderClient) -> Option<String> {
        let first = self.providers.first().is_some_and(|first| first.config.name == provider.config.name);
        (!first).then(|| provider.config.name.to_string())
    }

    fn callback_endpoint(&self, provider: &LoginProviderClient) -> String {
        self.callback_name(provider).map_or_else(|| "callback".to_owned(), |name| format!("callback/{name}"))
    }

    fn callback_uri(&self, origin: &Origin, provider: &LoginProviderClient) -> String {
        self.address(origin, &self.callback_endpoint(provider), &[])
    }

    /// The reply for a login that failed.
    fn login_failed(
        &self,
        call: &LoginCall,
        provider: &LoginProviderClient,
        fault: &ProviderFault,
        again: &str,
    ) -> LocalReply {
        let refused = fault.is_refusal_of_user() || fault.is_final();
        let counts = &self.shared.counts;
        if refused { &counts.login_refused } else { &counts.login_failed }.fetch_add(1, Relaxed);
        if fault.is_outage() {
            tracing::debug!(provider = &*provider.config.name, %fault, "login failed");
        } else if self.shared.log_throttles.login.is_due() {
            tracing::warn!(provider = &*provider.config.name, %fault, "login failed");
        }
        let title = provider.config.display_name.to_string();
        let notice = match fault {
            ProviderFault::Refused(error) if refused => PageNotice::Refused { title, error: error.clone() },
            fault if fault.is_final() => PageNotice::InvalidAnswer { title },
            _ => PageNotice::ProviderSilent { title },
        };
        self.pages(call).problem(&notice, Some(again))
    }
}

/// Whether the answer is from this provider (RFC 9207 §2.4). It must not name another one, and a
/// provider that always names itself must be named.
async fn is_from(provider: &LoginProviderClient, call: &LoginCall) -> Result<(), ProviderFault> {
    let metadata = provider.metadata().await?;
    let mut named = call.all("iss");
    match (named.next(), named.next()) {
        (None, _) if !metadata.sends_iss => Ok(()),
        (Some(issuer), None) if issuer == metadata.issuer => Ok(()),
        _ => {
            Err(ProviderFault::Identity("the authorization response has a wrong or missing `iss`".to_owned()))
        }
    }
}

fn unavailable() -> LocalReply {
    let mut answer = LocalReply::from_code(503, "auth_unavailable", Outcome::AuthUnavailable);
    answer.fields.push(("retry-after".into(), "1".into()));
    answer
}
