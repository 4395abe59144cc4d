//! Virtual user: the dependent requests of each kind of transaction.
//!
//! Owns: the flows, and the checks of the responses. Does not own: HTTP ([`super::browser`]),
//! timing and counting.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lab_analysis::units::count;
use serde::Deserialize;

use super::browser::{Browser, Request, Response, SharedState};
use super::description::{Client, ProviderDescription, Users};
use super::html::{self, FieldKind, Form};
use super::scenario::Flow;
use super::tally::{Step, TransactionFailure};
use super::url::{FormEncoded, Leads, query_value, resolve};
use crate::load::Random;

/// Largest number of pages between the authorization request and the redirect to the client. More
/// indicate a loop.
const MAX_PAGES: usize = 12;
/// Largest number of tokens for introspection, at most one per virtual user.
pub(crate) const MAX_INTROSPECTED_TOKENS: usize = 100;

/// Response of a token endpoint (RFC 6749 §5.1).
#[derive(Deserialize)]
struct Tokens<'a> {
    #[serde(borrow)]
    access_token: Cow<'a, str>,
    token_type: Cow<'a, str>,
    refresh_token: Option<Cow<'a, str>>,
    id_token: Option<Cow<'a, str>>,
}

/// Response of an introspection endpoint (RFC 7662 §2.2).
#[derive(Deserialize)]
struct IntrospectionResponse {
    active: bool,
}

/// An access token, and the `Authorization` value of the client that obtained it.
pub(crate) type Token = (String, Rc<str>);

/// Index of a virtual user, and the total number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl Place {
    /// Assigns the client of the user, and the part of the accounts with which it signs in. In the
    /// authorization code flow, virtual users of the same client use different accounts, as long as
    /// there are enough. This matches reality: a person does not sign in to one application with
    /// two browsers at the same time.
    fn at(self, description: &ProviderDescription, scenario: Flow) -> (&Client, (u64, u64)) {
        let pool = description.clients_for(scenario);
        let client = &pool[self.index % pool.len()];
        let parts = count(self.of.div_ceil(pool.len()));
        let enough = description.users.as_ref().is_some_and(|users| users.count >= parts);
        let part = if scenario == Flow::CodeConsent && enough {
            (count(self.index / pool.len()), parts)
        } else {
            (0, 1)
        };
        (client, part)
    }
}

/// A virtual user and its state.
pub(crate) struct User {
    browser: Browser,
    description: Rc<ProviderDescription>,
    scenario: Flow,
    client_id: Rc<str>,
    basic: Rc<str>,
    random: Random,
    /// Index of its part of the accounts, and number of parts.
    part: (u64, u64),
    refresh: Option<String>,
    /// Tokens for introspection, shared by all virtual users.
    tokens: Rc<RefCell<Vec<Token>>>,
}

impl User {
    pub(crate) fn new(
        shared: Rc<SharedState>,
        description: Rc<ProviderDescription>,
        scenario: Flow,
        place: Place,
        random: Random,
        tokens: Rc<RefCell<Vec<Token>>>,
    ) -> Self {
        let (client, part) = place.at(&description, scenario);
        let (client_id, basic) = (client.id.as_str().into(), client.basic().into());
        let browser = Browser::new(shared);
        Self { browser, description, scenario, client_id, basic, random, part, refresh: None, tokens }
    }

    /// Whether tokens must be obtained before the next transaction.
    pub(crate) fn needs_preparation(&self) -> bool {
        match self.scenario {
            Flow::Refresh => self.refresh.is_none(),
            Flow::Introspection => self.tokens.borrow().is_empty(),
            _ => false,
        }
    }

    /// Obtains the tokens with which the transactions start.
    pub(crate) async fn prepare(&mut self) -> Result<(), TransactionFailure> {
        let page = self.password().await?;
        let tokens = tokens(&page)?;
        if self.scenario == Flow::Introspection {
            let token = (tokens.access_token.into_owned(), Rc::clone(&self.basic));
            self.tokens.borrow_mut().push(token);
            return Ok(());
        }
        let refresh = tokens.refresh_token.ok_or_else(no_refresh_token)?;
        self.refresh = Some(refresh.into_owned());
        Ok(())
    }

    /// Runs one transaction.
    pub(crate) async fn transaction(&mut self) -> Result<(), TransactionFailure> {
        match self.scenario {
            Flow::ClientCredentials => {
                let form = FormEncoded::default().with("grant_type", "client_credentials");
                let form = form.with_some("scope", &self.description.scopes.client_credentials).finish();
                let page = self.token(&form).await?;
                tokens(&page).map(drop)
            }
            Flow::Password => {
                let page = self.password().await?;
                tokens(&page).map(drop)
            }
            Flow::PasswordRevoke => self.password_revoke().await,
            Flow::Refresh => self.refresh().await,
            Flow::Introspection => self.introspection().await,
            Flow::CodeConsent => self.code_consent().await,
        }
    }

    /// Name of a random user in the assigned part, and the description with its password.
    fn random_user(&mut self) -> (String, Rc<ProviderDescription>) {
        let description = Rc::clone(&self.description);
        let (part, parts) = self.part;
        let name = |users: &Users| {
            let each = users.count / parts;
            users.name(1 + part * each + self.random.below(each))
        };
        (description.users.as_ref().map_or_else(String::new, name), description)
    }

    async fn token(&mut self, form: &str) -> Result<Response, TransactionFailure> {
        let (description, basic) = (Rc::clone(&self.description), Rc::clone(&self.basic));
        self.post(Step::Token, &description.endpoints.token, &basic, form)
            .await?
            .expect_status(Step::Token, 200)
    }

    async fn post(
        &mut self,
        step: Step,
        path: &str,
        basic: &str,
        form: &str,
    ) -> Result<Response, TransactionFailure> {
        let request = Request { step, path, authorization: Some(basic), form: Some(form), cookies: false };
        self.browser.send(&request).await
    }

    async fn password(&mut self) -> Result<Response, TransactionFailure> {
        let (name, description) = self.random_user();
        let password = description.users.as_ref().map_or("", |users| users.password.as_str());
        let form = FormEncoded::default().with("grant_type", "password").with("username", &name);
        let form = form.with("password", password).with_some("scope", &description.scopes.password).finish();
        self.token(&form).await
    }

    async fn password_revoke(&mut self) -> Result<(), TransactionFailure> {
        let page = self.password().await?;
        let tokens = tokens(&page)?;
        let form = FormEncoded::default().with("token", &tokens.access_token);
        let form = form.with("token_type_hint", "access_token").finish();
        let (description, basic) = (Rc::clone(&self.description), Rc::clone(&self.basic));
        let answer = self.post(Step::Revoke, &description.endpoints.revoke, &basic, &form).await?;
        answer.expect_status(Step::Revoke, 200).map(drop)
    }

    async fn refresh(&mut self) -> Result<(), TransactionFailure> {
        // The token is taken, because after a failure it is unknown whether the provider still
        // accepts it.
        let Some(token) = self.refresh.take() else { return Err(no_refresh_token()) };
        let form =
            FormEncoded::default().with("grant_type", "refresh_token").with("refresh_token", &token).finish();
        let page = self.token(&form).await?;
        let next = tokens(&page)?.refresh_token.ok_or_else(no_refresh_token)?;
        self.refresh = Some(next.into_owned());
        Ok(())
    }

    async fn introspection(&mut self) -> Result<(), TransactionFailure> {
        let (form, basic) = {
            let tokens = self.tokens.borrow();
            let held = count(tokens.len()).max(1);
            let picked = usize::try_from(self.random.below(held)).unwrap_or(0);
            let (token, basic) = &tokens[picked];
            (FormEncoded::default().with("token", token).finish(), Rc::clone(basic))
        };
        let description = Rc::clone(&self.description);
        let page = self.post(Step::Introspect, &description.endpoints.introspect, &basic, &form).await?;
        let page = page.expect_status(Step::Introspect, 200)?;
        match serde_json::from_slice(&page.content) {
            Ok(IntrospectionResponse { active: true }) => Ok(()),
            _ => {
                Err(TransactionFailure::content(Step::Introspect, format!("not active: {}", page.excerpt())))
            }
        }
    }

    async fn code_consent(&mut self) -> Result<(), TransactionFailure> {
        self.browser.jar.clear();
        let description = Rc::clone(&self.description);
        let verifier = self.secret();
        let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()));
        let (state, nonce) = (self.secret(), self.secret());
        let query = FormEncoded::default()
            .with("response_type", "code")
            .with("client_id", &self.client_id)
            .with("redirect_uri", &description.redirect_uri)
            .with("scope", &description.scopes.code)
            .with("state", &state)
            .with("nonce", &nonce)
            .with("code_challenge", &challenge)
            .with("code_challenge_method", "S256")
            .with_some("prompt", &description.prompt)
            .finish();
        let joint = if description.endpoints.authorize.contains('?') { '&' } else { '?' };
        let start = format!("{}{joint}{query}", description.endpoints.authorize);
        let (step, back) = self.follow_pages(start).await?;
        if query_value(&back, "state").as_deref() != Some(state.as_str()) {
            return Err(TransactionFailure::content(
                step,
                format!("the response has a different state: {back}"),
            ));
        }
        let code = query_value(&back, "code")
            .ok_or_else(|| TransactionFailure::content(step, format!("the response has no code: {back}")))?;
        let form = FormEncoded::default()
            .with("grant_type", "authorization_code")
            .with("code", &code)
            .with("redirect_uri", &description.redirect_uri)
            .with("code_verifier", &verifier)
            .finish();
        let page = self.token(&form).await?;
        let requests_openid = description.scopes.code.split(' ').any(|scope| scope == "openid");
        if requests_openid && tokens(&page)?.id_token.is_none() {
            return Err(TransactionFailure::content(
                Step::Token,
                "no id_token although scope openid was requested",
            ));
        }
        tokens(&page).map(drop)
    }

    /// Follows the pages from the authorization request through sign-in and consent. Returns the
    /// query of the redirect to the client, and the step that produced it.
    async fn follow_pages(&mut self, start: String) -> Result<(Step, String), TransactionFailure> {
        let description = Rc::clone(&self.description);
        let (mut step, mut path, mut form) = (Step::Authorize, start, None::<String>);
        let (mut signed_in, mut consented) = (false, false);
        for _ in 0..MAX_PAGES {
            let request =
                Request { step, path: &path, authorization: None, form: form.as_deref(), cookies: true };
            let page = self.browser.send(&request).await?;
            let lead =
                |reference: &str| resolve(&description.origin, &description.redirect_uri, &path, reference);
            if let Some(location) = page.redirect() {
                match lead(location) {
                    Leads::Provider(next) => (step, path, form) = (Step::Redirect, next, None),
                    Leads::Client(query) if signed_in && consented => return Ok((step, query)),
                    // A transaction that skipped a page cannot be compared with one that did not.
                    Leads::Client(query) => {
                        let missed = if signed_in { "consent" } else { "sign-in" };
                        return Err(TransactionFailure::content(
                            step,
                            format!("redirected to the client without {missed}: {query}"),
                        ));
                    }
                    Leads::Elsewhere => {
                        return Err(TransactionFailure::content(
                            step,
                            format!("redirect to another origin: {location}"),
                        ));
                    }
                }
                continue;
            }
            let page = page.expect_status(step, 200)?;
            let forms = html::forms(&page.text());
            let fields = &description.fields;
            let login = forms.iter().find(|form| form.field(FieldKind::Input, &fields.password).is_some());
            let consent = forms
                .iter()
                .find(|form| has_consent_button(form, &fields.consent.name, &fields.consent.value));
            let (next, sent, filled) = match (login, consent) {
                (Some(form), _) if !signed_in => {
                    signed_in = true;
                    (Step::Login, form, self.credentials(form))
                }
                (None, Some(form)) if !consented => {
                    consented = true;
                    let clicked = &fields.consent;
                    (Step::Consent, form, fixed(form).with(&clicked.name, &clicked.value))
                }
                (Some(_), _) => {
                    return Err(TransactionFailure::content(step, "the sign-in page was shown again"));
                }
                (None, Some(_)) => {
                    return Err(TransactionFailure::content(step, "the consent page was shown again"));
                }
                (None, None) => {
                    return Err(TransactionFailure::content(step, unknown_page_error(&forms, &page)));
                }
            };
            let Leads::Provider(action) = lead(sent.action.as_deref().unwrap_or_default()) else {
                return Err(TransactionFailure::content(step, "a form submits to another origin"));
            };
            (step, path, form) = (next, action, Some(filled.finish()));
        }
        Err(TransactionFailure::content(step, format!("no redirect to the client after {MAX_PAGES} pages")))
    }

    fn credentials(&mut self, form: &Form) -> FormEncoded {
        let (name, description) = self.random_user();
        let password = description.users.as_ref().map_or("", |users| users.password.as_str());
        let fields = &description.fields;
        fixed(form).with(&fields.username, &name).with(&fields.password, password)
    }

    /// Creates a secret of 256 bits as 43 characters.
    fn secret(&mut self) -> String {
        let mut bytes = [0; 32];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.random.next_u64().to_le_bytes());
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// Whether the form has this consent button. Some pages have several buttons with the same name.
fn has_consent_button(form: &Form, name: &str, value: &str) -> bool {
    let mut fields = form.fields.iter();
    fields.any(|field| field.kind == FieldKind::Button && field.name == name && field.value == value)
}

/// Error text for a page without a known form. It lists the fields, so that the description can be
/// corrected.
fn unknown_page_error(forms: &[Form], page: &Response) -> String {
    let named = forms
        .iter()
        .flat_map(|form| &form.fields)
        .map(|field| format!("{} ({})", field.name, field.kind.name()));
    let named: Vec<String> = named.take(16).collect();
    format!("no known form; fields on the page: [{}]: {}", named.join(", "), page.excerpt())
}

/// The fields that are submitted unchanged.
fn fixed(form: &Form) -> FormEncoded {
    let fixed = form.fields.iter().filter(|field| field.kind == FieldKind::Fixed);
    fixed.fold(FormEncoded::default(), |encoded, field| encoded.with(&field.name, &field.value))
}

fn tokens(page: &Response) -> Result<Tokens<'_>, TransactionFailure> {
    let refused = || TransactionFailure::content(Step::Token, format!("no bearer token: {}", page.excerpt()));
    let tokens: Tokens<'_> = serde_json::from_slice(&page.content).map_err(|_| refused())?;
    let fits = !tokens.access_token.is_empty() && tokens.token_type.eq_ignore_ascii_case("bearer");
    if fits { Ok(tokens) } else { Err(refused()) }
}

fn no_refresh_token() -> TransactionFailure {
    TransactionFailure::content(
        Step::Token,
        "no refresh token in the response: enable it for the client and the scope",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_share_a_client_share_no_users() {
        let text = r#"{"name":"x","origin":"http://x","endpoints":{"token":"/t"},
            "clients":[{"id":"a","secret":"s"},{"id":"b","secret":"s"}],
            "users":{"pattern":"u{n}","count":7,"password":"p"}}"#;
        let description: ProviderDescription = serde_json::from_str(text).unwrap();
        let at = |index, of, scenario| {
            let (client, part) = Place { index, of }.at(&description, scenario);
            (client.id.as_str(), part)
        };
        let seen: Vec<_> = (0..5).map(|index| at(index, 5, Flow::CodeConsent)).collect();
        assert_eq!(seen, [("a", (0, 3)), ("b", (0, 3)), ("a", (1, 3)), ("b", (1, 3)), ("a", (2, 3))]);
        assert_eq!(at(4, 5, Flow::Password), ("a", (0, 1)));
        assert_eq!(at(15, 16, Flow::CodeConsent), ("b", (0, 1)), "eight parts of seven users");
    }

    #[test]
    fn every_name_is_understood() {
        for scenario in Flow::ALL {
            assert_eq!(scenario.name().parse(), Ok(scenario));
        }
        assert!("none".parse::<Flow>().unwrap_err().contains("code_consent"));
    }
}
