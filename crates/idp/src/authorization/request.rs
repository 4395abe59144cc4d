//! Parser of authorization requests (RFC 6749 §4.1.1, OpenID Connect Core 1.0 §3.1.2.1).
//!
//! Owns: reading every parameter, and the choice who receives an error. Does not own: login,
//! consent.
//!
//! A known parameter that is not supported is refused with the standard's error code, never
//! ignored. An unknown parameter is ignored, as the standard requires.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::pkce::Challenge;
use super::response::{ResponseMode, ReturnAddress};
use crate::claims::scope_of;
use crate::oauth::form::Form;
use crate::oauth::redirect_uri::{RedirectUri, is_private_use};
use crate::oauth::request_fault::{AddressFault, RequestFault};
use crate::oauth::scope::ScopeSet;

/// Longest `state`, `nonce`, `login_hint`, `id_token_hint` and `claims` in bytes.
const MAX_TEXT: usize = 8 * 1024;
/// Most claims requested by name.
const MAX_CLAIMS: usize = 64;

/// Claim that a client requests by name (Core §5.5) to learn when the user's data was read, in
/// milliseconds of log time.
pub(crate) const READ_AT: &str = "read_at";

/// Rights and settings of the client that limit its requests.
#[derive(Debug, Clone, Copy)]
pub struct ClientRights<'a> {
    /// Registered redirect URIs of the client.
    pub redirect_uris: &'a [RedirectUri],
    /// Scopes that it may request.
    pub scopes: &'a ScopeSet,
    /// Scopes for a request without `scope`.
    pub default_scopes: &'a ScopeSet,
    /// Whether it must use PKCE: public clients always must (RFC 9700 §2.1.1).
    pub needs_challenge: bool,
}

/// Which interactions the client requires or forbids (`prompt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// No page may be shown (`none`).
    NoInteraction,
    /// Pages are shown when necessary; those selected here are always shown.
    AsNeeded {
        /// The user must authenticate again.
        login: bool,
        /// The user must be asked for consent again.
        consent: bool,
        /// The user must be able to choose another account.
        select_account: bool,
    },
}

impl Default for Prompt {
    fn default() -> Self {
        Self::AsNeeded { login: false, consent: false, select_account: false }
    }
}

/// A claim requested by name (OpenID Connect Core 1.0 §5.5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Name of the claim.
    pub name: String,
    /// Whether the client marked the claim as essential.
    pub essential: bool,
    /// Acceptable values; empty: any value.
    pub values: Vec<Value>,
}

/// The parsed `claims` parameter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimRequests {
    /// Claims requested for the ID token.
    pub id_token: Vec<ClaimRequest>,
    /// Claims requested for the userinfo endpoint.
    pub userinfo: Vec<ClaimRequest>,
}

/// A valid authorization request, before login and consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationRequest {
    /// Where the response is sent.
    pub address: ReturnAddress,
    /// The `redirect_uri` as received, which the token request must repeat (RFC 6749 §4.1.3);
    /// `None`: it was omitted.
    pub redirect_uri: Option<Box<str>>,
    /// The requested scopes that the client may have (RFC 6749 §3.3); unknown scopes are ignored
    /// (Core §3.1.2.1).
    pub scopes: ScopeSet,
    /// Scopes that need the user's consent: the requested ones and those of claims requested by
    /// name.
    pub consent_scopes: ScopeSet,
    /// Value for the `nonce` claim of the ID token.
    pub nonce: Option<Box<str>>,
    /// PKCE challenge that the token request must satisfy.
    pub challenge: Option<Challenge>,
    /// Which interactions the client requires or forbids.
    pub prompt: Prompt,
    /// Largest age of the last authentication.
    pub max_age: Option<Duration>,
    /// Requested `acr` values, in order of preference.
    pub acr_values: Vec<Box<str>>,
    /// Login name that the client expects.
    pub login_hint: Option<Box<str>>,
    /// An ID token of the expected user, not verified yet.
    pub id_token_hint: Option<Box<str>>,
    /// Language tags, in order of preference.
    pub ui_locales: Option<Box<str>>,
    /// Claims requested by name.
    pub claims: ClaimRequests,
}

/// Who receives an error, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The user, on a page: there is no verified redirect URI.
    Page(AddressFault),
    /// The client, at its redirect URI.
    Answer(ReturnAddress, RequestFault),
}

/// Claims of a request object (Core §6.1). Request objects are always refused. Their claims,
/// unverified, only help to send the error response: to a registered redirect URI, in a supported
/// response mode.
struct RequestObject(Map<String, Value>);

impl RequestObject {
    fn parse(form: &Form) -> Self {
        let read = |object: &str| {
            let claims = URL_SAFE_NO_PAD.decode(object.split('.').nth(1)?).ok()?;
            serde_json::from_slice(&claims).ok()
        };
        Self(form.get("request").and_then(read).unwrap_or_default())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }
}

/// Reads a request of a client that was already looked up.
///
/// # Errors
/// [`Refusal`] with the error and who receives it.
pub fn read(form: &Form, rights: ClientRights<'_>) -> Result<AuthorizationRequest, Refusal> {
    let object = RequestObject::parse(form);
    let requested = form.get("redirect_uri").or_else(|| object.text("redirect_uri"));
    let redirect_uri = redirect_uri(form, requested, rights).map_err(Refusal::Page)?;
    // If the mode is not valid, errors are sent in the default mode.
    let mode = form.get("response_mode").map(ResponseMode::from_wire);
    let inside = || object.text("response_mode").and_then(ResponseMode::from_wire);
    let fits = |text: &&str| text.len() <= MAX_TEXT;
    let state = form.get("state").or_else(|| object.text("state"));
    let address = ReturnAddress {
        redirect_uri: redirect_uri.into(),
        mode: mode.unwrap_or_else(inside).unwrap_or_default(),
        state: state.filter(fits).map(Into::into),
    };
    let refuse = |fault| Refusal::Answer(address.clone(), fault);
    require(mode != Some(None), RequestFault::ResponseMode).map_err(refuse)?;
    check_supported(form).map_err(refuse)?;
    let text = |name| match form.get(name) {
        Some(text) if text.len() > MAX_TEXT => Err(refuse(RequestFault::TooLong)),
        text => Ok(text.map(Box::from)),
    };
    text("state")?;
    let needs_challenge = rights.needs_challenge || is_private_use(&address.redirect_uri);
    let scopes = scopes(form, rights).map_err(refuse)?;
    let claims = claims(text("claims")?.as_deref()).map_err(refuse)?;
    Ok(AuthorizationRequest {
        redirect_uri: requested.map(Into::into),
        consent_scopes: consent_scopes(&scopes, &claims, rights.scopes),
        scopes,
        challenge: challenge(form, needs_challenge).map_err(refuse)?,
        prompt: form.get("prompt").map_or(Ok(Prompt::default()), prompt).map_err(refuse)?,
        max_age: form.get("max_age").map(seconds).transpose().map_err(refuse)?,
        claims,
        nonce: text("nonce")?,
        login_hint: text("login_hint")?,
        id_token_hint: text("id_token_hint")?,
        ui_locales: text("ui_locales")?,
        acr_values: text("acr_values")?
            .map_or_else(Vec::new, |t: Box<str>| split_words(&t).map(Box::from).collect()),
        address,
    })
}

/// The redirect URI: the requested one, or the only registered one if a plain OAuth request omits
/// it.
fn redirect_uri<'a>(
    form: &Form,
    requested: Option<&'a str>,
    rights: ClientRights<'a>,
) -> Result<&'a str, AddressFault> {
    let openid = match form.get("scope") {
        Some(scope) => split_words(scope).any(|word| word == "openid"),
        None => rights.default_scopes.contains("openid"),
    };
    match (requested, rights.redirect_uris) {
        (Some(requested), registered) if registered.iter().any(|uri| uri.matches(requested)) => Ok(requested),
        (Some(_), _) => Err(AddressFault::NotRegistered),
        (None, [only]) if !openid => Ok(only.as_str()),
        (None, _) => Err(AddressFault::Missing),
    }
}

fn check_supported(form: &Form) -> Result<(), RequestFault> {
    require(form.get("request").is_none(), RequestFault::RequestObject)?;
    require(form.get("request_uri").is_none(), RequestFault::RequestUri)?;
    require(form.get("registration").is_none(), RequestFault::Registration)?;
    let response_type = form.get("response_type").ok_or(RequestFault::ResponseTypeMissing)?;
    require(response_type == "code", RequestFault::ResponseType)
}

/// The requested scopes that the client may have, or its default scopes (RFC 6749 §3.3).
fn scopes(form: &Form, rights: ClientRights<'_>) -> Result<ScopeSet, RequestFault> {
    let Some(requested) = form.get("scope") else { return Ok(rights.default_scopes.clone()) };
    let requested = ScopeSet::parse(requested).map_err(|_| RequestFault::Scope)?;
    let granted = requested.within(rights.scopes);
    require(!granted.is_empty(), RequestFault::NoScope)?;
    Ok(granted)
}

/// Adds the scopes of claims requested by name, because the consent page shows scopes, not claims.
/// Only scopes that the client may have are added.
fn consent_scopes(scopes: &ScopeSet, claims: &ClaimRequests, own: &ScopeSet) -> ScopeSet {
    let mut all = scopes.clone();
    for claim in claims.id_token.iter().chain(&claims.userinfo) {
        if let Some(scope) = scope_of(&claim.name).filter(|scope| own.contains(scope)) {
            // It is one of the client's scopes, which fit into a set, so this cannot fail.
            let _ = all.insert(scope);
        }
    }
    all
}

fn challenge(form: &Form, needed: bool) -> Result<Option<Challenge>, RequestFault> {
    match (form.get("code_challenge"), form.get("code_challenge_method")) {
        (None, None) if needed => Err(RequestFault::ChallengeMissing),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(RequestFault::ChallengeMissing),
        (Some(text), Some("S256")) => Challenge::parse(text).map(Some).ok_or(RequestFault::Challenge),
        (Some(_), _) => Err(RequestFault::ChallengeMethod),
    }
}

fn prompt(text: &str) -> Result<Prompt, RequestFault> {
    if split_words(text).eq(["none"]) {
        return Ok(Prompt::NoInteraction);
    }
    let (mut login, mut consent, mut select_account) = (false, false, false);
    for word in split_words(text) {
        *match word {
            "login" => &mut login,
            "consent" => &mut consent,
            "select_account" => &mut select_account,
            _ => return Err(RequestFault::Prompt),
        } = true;
    }
    Ok(Prompt::AsNeeded { login, consent, select_account })
}

fn seconds(text: &str) -> Result<Duration, RequestFault> {
    let digits = (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(seconds) if digits => Ok(Duration::from_secs(seconds)),
        _ => Err(RequestFault::MaxAge),
    }
}

fn claims(text: Option<&str>) -> Result<ClaimRequests, RequestFault> {
    let Some(text) = text else { return Ok(ClaimRequests::default()) };
    let Ok(Value::Object(mut members)) = serde_json::from_str(text) else { return Err(RequestFault::Claims) };
    Ok(ClaimRequests {
        id_token: claim_list(members.remove("id_token"))?,
        userinfo: claim_list(members.remove("userinfo"))?,
    })
}

fn claim_list(member: Option<Value>) -> Result<Vec<ClaimRequest>, RequestFault> {
    let claims = match member {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(claims)) if claims.len() <= MAX_CLAIMS => claims,
        Some(_) => return Err(RequestFault::Claims),
    };
    claims.into_iter().map(|(name, how)| claim(name, how)).collect()
}

fn claim(name: String, how: Value) -> Result<ClaimRequest, RequestFault> {
    let mut members = match how {
        Value::Null => Map::new(),
        Value::Object(members) => members,
        _ => return Err(RequestFault::Claims),
    };
    let essential = match members.remove("essential") {
        None => false,
        Some(Value::Bool(essential)) => essential,
        Some(_) => return Err(RequestFault::Claims),
    };
    let values = match (members.remove("value"), members.remove("values")) {
        (None, None) => Vec::new(),
        (Some(value), None) => vec![value],
        (None, Some(Value::Array(values))) => values,
        _ => return Err(RequestFault::Claims),
    };
    Ok(ClaimRequest { name, essential, values })
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

fn require(holds: bool, fault: RequestFault) -> Result<(), RequestFault> {
    if holds { Ok(()) } else { Err(fault) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLBACK: &str = "https://app.example/cb";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    /// Reads the default request of a confidential client with one redirect URI, modified by
    /// `changes`. An empty value removes a parameter.
    fn ask(changes: &[(&str, &str)]) -> Result<AuthorizationRequest, Refusal> {
        ask_as(&[CALLBACK], false, changes)
    }

    fn ask_as(
        registered: &[&str],
        needs_challenge: bool,
        changes: &[(&str, &str)],
    ) -> Result<AuthorizationRequest, Refusal> {
        let usual = [
            ("response_type", "code"),
            ("redirect_uri", CALLBACK),
            ("scope", "openid profile"),
            ("state", "the state"),
        ];
        let kept = usual.into_iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
        let body: Vec<String> = kept
            .chain(changes.iter().copied())
            .map(|(name, value)| {
                let escaped: Vec<String> = value.bytes().map(|b| format!("%{b:02x}")).collect();
                format!("{name}={}", escaped.concat())
            })
            .collect();
        let redirect_uris: Vec<_> = registered.iter().map(|uri| RedirectUri::parse(uri).unwrap()).collect();
        let scopes = ScopeSet::parse("openid profile email").unwrap();
        let default_scopes = ScopeSet::parse("email").unwrap();
        let rights = ClientRights {
            redirect_uris: &redirect_uris,
            scopes: &scopes,
            default_scopes: &default_scopes,
            needs_challenge,
        };
        read(&Form::parse(body.join("&").as_bytes()).unwrap(), rights)
    }

    fn refused(changes: &[(&str, &str)]) -> RequestFault {
        match ask(changes) {
            Err(Refusal::Answer(address, fault)) => {
                assert_eq!(address.redirect_uri(), CALLBACK);
                assert_eq!(address.state.as_deref(), Some("the state"), "every answer carries it");
                fault
            }
            other => panic!("{changes:?}: {other:?}"),
        }
    }

    /// Another app on the device can claim the scheme and receive the code.
    #[test]
    fn a_scheme_of_an_app_needs_pkce() {
        for uri in ["com.example.app:/cb", "vscode://vendor.extension/cb"] {
            let fault = ask_as(&[uri], false, &[("redirect_uri", uri)]).unwrap_err();
            assert!(matches!(fault, Refusal::Answer(_, RequestFault::ChallengeMissing)), "{uri}: {fault:?}");
            let with =
                [("redirect_uri", uri), ("code_challenge", CHALLENGE), ("code_challenge_method", "S256")];
            assert!(ask_as(&[uri], false, &with).is_ok(), "{uri}");
        }
        let uri = "http://127.0.0.1/cb";
        assert!(ask_as(&[uri], false, &[("redirect_uri", uri)]).is_ok(), "its client decides");
    }

    #[test]
    fn a_plain_request_is_read() {
        let request = ask(&[]).unwrap();
        assert_eq!(request.address.redirect_uri(), CALLBACK);
        assert_eq!(request.address.mode, ResponseMode::Query);
        assert_eq!(request.redirect_uri.as_deref(), Some(CALLBACK));
        assert_eq!(request.scopes.to_wire().as_deref(), Some("openid profile"));
        assert_eq!((request.nonce, request.challenge, request.max_age), (None, None, None));
        assert_eq!(request.prompt, Prompt::default());
    }

    #[test]
    fn who_asks_for_no_scope_gets_the_default() {
        let request = ask(&[("scope", "")]).unwrap();
        assert_eq!(request.scopes.to_wire().as_deref(), Some("email"));
        assert_eq!(request.consent_scopes, request.scopes, "and it is to be allowed");
    }

    #[test]
    fn every_parameter_is_read() {
        let request = ask(&[
            ("response_mode", "form_post"),
            ("nonce", "n"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("prompt", "login consent"),
            ("max_age", "0"),
            ("acr_values", "gold silver"),
            ("login_hint", "ada"),
            ("id_token_hint", "e30.e30.x"),
            ("ui_locales", "de en"),
            ("unknown", "is ignored"),
        ])
        .unwrap();
        assert_eq!(request.address.mode, ResponseMode::FormPost);
        assert_eq!(request.challenge.map(|c| c.as_str().to_owned()).as_deref(), Some(CHALLENGE));
        assert_eq!(request.prompt, Prompt::AsNeeded { login: true, consent: true, select_account: false });
        assert_eq!(request.max_age, Some(Duration::ZERO));
        assert_eq!(request.acr_values, ["gold".into(), "silver".into()] as [Box<str>; 2]);
        let texts = [request.nonce, request.login_hint, request.id_token_hint, request.ui_locales];
        assert_eq!(texts.map(|t| t.unwrap().into_string()), ["n", "ada", "e30.e30.x", "de en"]);
    }

    #[test]
    fn without_a_registered_address_nobody_is_answered() {
        let page = |registered: &[&str], changes: &[(&str, &str)]| match ask_as(registered, false, changes) {
            Err(Refusal::Page(fault)) => fault,
            other => panic!("{other:?}"),
        };
        let evil = [("redirect_uri", "https://evil.example/cb"), ("response_type", "nonsense")];
        assert_eq!(page(&[CALLBACK], &evil), AddressFault::NotRegistered);
        assert_eq!(page(&[], &[]), AddressFault::NotRegistered);
        let left_out = [("redirect_uri", "")];
        assert_eq!(page(&[CALLBACK], &left_out), AddressFault::Missing, "OpenID Connect demands it");
        let oauth = [("redirect_uri", ""), ("scope", "profile")];
        assert_eq!(page(&[CALLBACK, "https://app.example/2"], &oauth), AddressFault::Missing);
        let request = ask_as(&[CALLBACK], false, &oauth).unwrap();
        assert_eq!((request.address.redirect_uri(), request.redirect_uri), (CALLBACK, None));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        for (name, value, code) in [
            ("request", "e30.e30.", "request_not_supported"),
            ("request_uri", "https://app.example/request", "request_uri_not_supported"),
            ("registration", "{}", "registration_not_supported"),
            ("response_type", "token", "unsupported_response_type"),
            ("response_type", "code id_token", "unsupported_response_type"),
            ("response_type", "", "invalid_request"),
            ("response_mode", "web_message", "invalid_request"),
            ("scope", "openid  profile", "invalid_scope"),
            ("scope", "admin", "invalid_scope"),
        ] {
            assert_eq!(refused(&[(name, value)]).code(), code, "{name}={value}");
        }
    }

    #[test]
    fn scopes_of_others_are_left_out() {
        let request = ask(&[("scope", "openid admin email")]).unwrap();
        assert_eq!(request.scopes.to_wire().as_deref(), Some("openid email"));
    }

    #[test]
    fn pkce_is_s256_and_public_clients_need_it() {
        let with = |challenge, method| [("code_challenge", challenge), ("code_challenge_method", method)];
        assert_eq!(refused(&with(CHALLENGE, "")), RequestFault::ChallengeMethod, "no method means plain");
        assert_eq!(refused(&with(CHALLENGE, "plain")), RequestFault::ChallengeMethod);
        assert_eq!(refused(&with(CHALLENGE, "s256")), RequestFault::ChallengeMethod);
        assert_eq!(refused(&with("short", "S256")), RequestFault::Challenge);
        assert_eq!(refused(&with("", "S256")), RequestFault::ChallengeMissing);
        assert!(ask(&with(CHALLENGE, "S256")).unwrap().challenge.is_some());
        let public = |changes: &[(&str, &str)]| ask_as(&[CALLBACK], true, changes);
        assert!(matches!(public(&[]), Err(Refusal::Answer(_, RequestFault::ChallengeMissing))));
        assert!(public(&with(CHALLENGE, "S256")).is_ok());
    }

    #[test]
    fn prompt_none_stands_alone() {
        assert_eq!(ask(&[("prompt", "none")]).unwrap().prompt, Prompt::NoInteraction);
        for bad in ["none login", "consent none", "create", "Login", "login,consent"] {
            assert_eq!(refused(&[("prompt", bad)]), RequestFault::Prompt, "{bad}");
        }
    }

    #[test]
    fn max_age_is_a_number_of_seconds() {
        assert_eq!(ask(&[("max_age", "3600")]).unwrap().max_age, Some(Duration::from_hours(1)));
        for bad in ["-1", "+1", "1.5", "x", "99999999999", " 1"] {
            assert_eq!(refused(&[("max_age", bad)]), RequestFault::MaxAge, "{bad}");
        }
    }

    #[test]
    fn claims_are_asked_for_by_name() {
        let claims = concat!(
            r#"{"id_token": {"auth_time": {"essential": true}, "acr": {"values": ["gold", "silver"]}}, "#,
            r#""userinfo": {"email": null, "sub": {"value": "ada"}}, "other": 1}"#,
        );
        let request = ask(&[("claims", claims)]).unwrap();
        let of = |name: &str, essential, values: &[&str]| ClaimRequest {
            name: name.into(),
            essential,
            values: values.iter().map(|v| Value::from(*v)).collect(),
        };
        assert_eq!(
            request.claims.id_token,
            [of("acr", false, &["gold", "silver"]), of("auth_time", true, &[])]
        );
        assert_eq!(request.claims.userinfo, [of("email", false, &[]), of("sub", false, &["ada"])]);
        for bad in [
            "x",
            "[]",
            r#"{"id_token": []}"#,
            r#"{"id_token": {"a": 1}}"#,
            r#"{"id_token": {"a": {"essential": "yes"}}}"#,
            r#"{"id_token": {"a": {"values": "x"}}}"#,
            r#"{"id_token": {"a": {"value": 1, "values": [1]}}}"#,
        ] {
            assert_eq!(refused(&[("claims", bad)]), RequestFault::Claims, "{bad}");
        }
        let many: Vec<String> = (0..=MAX_CLAIMS).map(|n| format!(r#""c{n}": null"#)).collect();
        let many = format!(r#"{{"userinfo": {{{}}}}}"#, many.join(","));
        assert_eq!(refused(&[("claims", &many)]), RequestFault::Claims);
    }

    #[test]
    fn texts_have_an_end() {
        let long = "x".repeat(MAX_TEXT + 1);
        for name in ["nonce", "login_hint", "id_token_hint", "claims", "acr_values", "ui_locales"] {
            assert_eq!(refused(&[(name, &long)]), RequestFault::TooLong, "{name}");
        }
        let state = ask(&[("state", &long)]);
        assert!(matches!(state, Err(Refusal::Answer(a, RequestFault::TooLong)) if a.state.is_none()));
    }
}
