//! Next step of an authorization request: login, consent, code or error (OpenID Connect Core 1.0
//! §3.1.2.3, §3.1.2.4, §3.1.2.6).
//!
//! Owns: the decision, made again each time the browser returns. The only state between requests is
//! the time at which the request first arrived; the caller keeps it where the browser cannot change
//! it.
//!
//! Does not own: pages, sessions, consents.

use auth::time::Timestamp;

use super::request::{AuthorizationRequest, ClaimRequest, Prompt};
use crate::oauth::scope::ScopeSet;

/// The user of the browser's session.
#[derive(Debug, Clone, Copy)]
pub struct Person<'a> {
    /// The `sub` of the user.
    pub subject: &'a str,
    /// When the user last authenticated.
    pub authenticated_at: Timestamp,
    /// Authentication context class (`acr`) of that authentication.
    pub acr: Option<&'a str>,
}

/// Everything that the decision depends on besides the request.
#[derive(Debug, Clone, Copy)]
pub struct DecisionInput<'a> {
    /// The session's user, if there is a session.
    pub person: Option<Person<'a>>,
    /// The `sub` of a verified `id_token_hint`.
    pub hinted: Option<&'a str>,
    /// Scopes that this user has granted to this client; `None`: never asked, or consent withdrawn.
    pub consented: Option<&'a ScopeSet>,
    /// Whether users of this client are asked for consent; otherwise the operator grants it for
    /// them.
    pub asks_consent: bool,
    /// When the user allowed this request, if that happened.
    pub allowed_at: Option<Timestamp>,
    /// When this request first arrived.
    pub began_at: Timestamp,
    /// The current time.
    pub now: Timestamp,
}

/// Reason why a login is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginReason {
    /// There is no session.
    NoSession,
    /// The client requests a new authentication (`prompt=login`) or a choice of account
    /// (`prompt=select_account`).
    Requested,
    /// The last authentication is too old (`max_age`).
    TooOld,
    /// The request names another user (`id_token_hint`, or `sub` in `claims`).
    OtherUser,
}

/// Error that the client receives instead of a code (Core §3.1.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A login is required, but `prompt=none` forbids pages.
    LoginRequired,
    /// Consent is required, but `prompt=none` forbids pages.
    ConsentRequired,
    /// An essential `acr` value cannot be met (Unmet Authentication Requirements 1.0).
    UnmetAuthentication,
}

impl Refused {
    /// The `error` of the response.
    pub const fn code(self) -> &'static str {
        match self {
            Self::LoginRequired => "login_required",
            Self::ConsentRequired => "consent_required",
            Self::UnmetAuthentication => "unmet_authentication_requirements",
        }
    }
}

/// The next step of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Show the login page.
    Login(LoginReason),
    /// Show the consent page; holds the scopes to be granted.
    Consent(ScopeSet),
    /// Send an error to the client.
    Refuse(Refused),
    /// Issue a code with these scopes.
    Issue(ScopeSet),
}

/// Decides the next step of a request.
pub fn next_step(request: &AuthorizationRequest, situation: &DecisionInput<'_>) -> Next {
    let silent = request.prompt == Prompt::NoInteraction;
    let person = match session_user(request, situation) {
        Ok(person) => person,
        Err(_) if silent => return Next::Refuse(Refused::LoginRequired),
        Err(reason) => return Next::Login(reason),
    };
    if let Some(acr) = requested_claim(&request.claims.id_token, "acr").filter(|claim| claim.essential)
        && !accepts_value(acr, person.acr)
    {
        return Next::Refuse(Refused::UnmetAuthentication);
    }
    let asked_again = matches!(request.prompt, Prompt::AsNeeded { consent: true, .. });
    let allowed = situation.allowed_at.is_some_and(|at| at >= situation.began_at);
    let new = situation
        .consented
        .map_or_else(|| request.consent_scopes.clone(), |had| request.consent_scopes.without(had));
    // A request without scopes also needs consent: the user's identity is personal data too.
    let consented = situation.consented.is_some() && new.is_empty();
    let settled = allowed || (!asked_again && (consented || !situation.asks_consent));
    match settled {
        true => Next::Issue(request.scopes.clone()),
        false if silent => Next::Refuse(Refused::ConsentRequired),
        false if new.is_empty() => Next::Consent(request.consent_scopes.clone()),
        false => Next::Consent(new),
    }
}

/// Returns the session's user if the session satisfies the request.
fn session_user<'a>(
    request: &AuthorizationRequest,
    situation: &DecisionInput<'a>,
) -> Result<Person<'a>, LoginReason> {
    let person = situation.person.ok_or(LoginReason::NoSession)?;
    let meant = requested_claim(&request.claims.id_token, "sub")
        .is_none_or(|sub| accepts_value(sub, Some(person.subject)));
    if !meant || situation.hinted.is_some_and(|hinted| hinted != person.subject) {
        return Err(LoginReason::OtherUser);
    }
    let fresh = person.authenticated_at >= situation.began_at;
    let is_requested =
        matches!(request.prompt, Prompt::AsNeeded { login, select_account, .. } if login || select_account);
    if is_requested && !fresh {
        return Err(LoginReason::Requested);
    }
    // After an authentication for this request `max_age` is satisfied, however small it is.
    let age = situation.now.since(person.authenticated_at);
    if !fresh && request.max_age.is_some_and(|most| age > most) {
        return Err(LoginReason::TooOld);
    }
    Ok(person)
}

fn requested_claim<'a>(claims: &'a [ClaimRequest], name: &str) -> Option<&'a ClaimRequest> {
    claims.iter().find(|claim| claim.name == name)
}

/// Whether a value is among the requested ones. If none is named, any value matches, but not
/// `None`.
fn accepts_value(claim: &ClaimRequest, value: Option<&str>) -> bool {
    value.is_some_and(|value| claim.values.is_empty() || claim.values.iter().any(|v| v == value))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::authorization::request::ClaimRequests;
    use crate::authorization::response::{ResponseMode, ReturnAddress};

    const BEGAN: Timestamp = Timestamp::from_secs(10_000);

    fn scopes(text: &str) -> ScopeSet {
        ScopeSet::parse(text).unwrap()
    }

    fn request(prompt: Prompt) -> AuthorizationRequest {
        AuthorizationRequest {
            address: ReturnAddress {
                redirect_uri: "https://app.example/cb".into(),
                mode: ResponseMode::Query,
                state: None,
            },
            redirect_uri: None,
            scopes: scopes("openid email"),
            consent_scopes: scopes("openid email"),
            nonce: None,
            challenge: None,
            prompt,
            max_age: None,
            acr_values: Vec::new(),
            login_hint: None,
            id_token_hint: None,
            ui_locales: None,
            claims: ClaimRequests::default(),
        }
    }

    /// A request with these words in `prompt`.
    fn ask(prompt: &str) -> AuthorizationRequest {
        let has = |word| prompt.split(' ').any(|given| given == word);
        request(Prompt::AsNeeded {
            login: has("login"),
            consent: has("consent"),
            select_account: has("select_account"),
        })
    }

    /// Ada authenticated this many seconds before the request arrived and has granted everything.
    fn ada(seconds: u64, consented: &ScopeSet) -> DecisionInput<'_> {
        let authenticated_at = BEGAN.minus(Duration::from_secs(seconds));
        DecisionInput {
            person: Some(Person { subject: "ada", authenticated_at, acr: None }),
            hinted: None,
            consented: Some(consented),
            asks_consent: true,
            allowed_at: None,
            began_at: BEGAN,
            now: BEGAN.plus(Duration::from_secs(1)),
        }
    }

    #[test]
    fn who_is_known_and_has_consented_gets_a_code() {
        let all = scopes("openid email profile");
        assert_eq!(next_step(&ask(""), &ada(60, &all)), Next::Issue(scopes("openid email")));
        assert_eq!(
            next_step(&request(Prompt::NoInteraction), &ada(60, &all)),
            Next::Issue(scopes("openid email"))
        );
    }

    #[test]
    fn nobody_is_asked_silently() {
        let (all, none) = (scopes("openid email"), ScopeSet::default());
        let nobody = DecisionInput { person: None, ..ada(0, &all) };
        let silent = request(Prompt::NoInteraction);
        assert_eq!(next_step(&silent, &nobody), Next::Refuse(Refused::LoginRequired));
        assert_eq!(next_step(&silent, &ada(60, &none)), Next::Refuse(Refused::ConsentRequired));
        let somebody = DecisionInput { hinted: Some("eve"), ..ada(60, &all) };
        assert_eq!(next_step(&silent, &somebody), Next::Refuse(Refused::LoginRequired));
        let old = AuthorizationRequest { max_age: Some(Duration::from_secs(10)), ..silent };
        assert_eq!(next_step(&old, &ada(60, &all)), Next::Refuse(Refused::LoginRequired));
        assert_eq!(next_step(&ask(""), &nobody), Next::Login(LoginReason::NoSession));
    }

    #[test]
    fn a_fresh_proof_is_one_made_for_this_request() {
        let all = scopes("openid email");
        for wanted in [ask("login"), ask("select_account")] {
            assert_eq!(next_step(&wanted, &ada(1, &all)), Next::Login(LoginReason::Requested));
            assert_eq!(
                next_step(&wanted, &ada(0, &all)),
                Next::Issue(scopes("openid email")),
                "when they come back"
            );
        }
    }

    #[test]
    fn max_age_counts_from_the_last_proof() {
        let all = scopes("openid email");
        let within = |most| AuthorizationRequest { max_age: Some(Duration::from_secs(most)), ..ask("") };
        // The current time is one second after the request arrived.
        assert_eq!(next_step(&within(61), &ada(60, &all)), Next::Issue(scopes("openid email")));
        assert_eq!(next_step(&within(60), &ada(60, &all)), Next::Login(LoginReason::TooOld));
        assert_eq!(next_step(&within(0), &ada(60, &all)), Next::Login(LoginReason::TooOld));
        assert_eq!(
            next_step(&within(0), &ada(0, &all)),
            Next::Issue(scopes("openid email")),
            "not asked for ever"
        );
    }

    #[test]
    fn whoever_is_meant_must_be_there() {
        let all = scopes("openid email");
        for (hinted, expected) in
            [("ada", Next::Issue(scopes("openid email"))), ("eve", Next::Login(LoginReason::OtherUser))]
        {
            let situation = DecisionInput { hinted: Some(hinted), ..ada(0, &all) };
            assert_eq!(next_step(&ask(""), &situation), expected);
            let sub = ClaimRequest { name: "sub".into(), essential: true, values: vec![Value::from(hinted)] };
            let claims = ClaimRequests { id_token: vec![sub], userinfo: Vec::new() };
            let named = AuthorizationRequest { claims, ..ask("") };
            assert_eq!(next_step(&named, &ada(0, &all)), expected);
        }
    }

    #[test]
    fn what_is_new_is_asked_for() {
        let some = scopes("openid");
        let plain = ask("");
        assert_eq!(next_step(&plain, &ada(60, &some)), Next::Consent(scopes("email")));
        let vouched = DecisionInput { asks_consent: false, ..ada(60, &some) };
        assert_eq!(next_step(&plain, &vouched), Next::Issue(scopes("openid email")));
        let allowed = DecisionInput { allowed_at: Some(BEGAN), ..ada(60, &some) };
        assert_eq!(next_step(&plain, &allowed), Next::Issue(scopes("openid email")));
        let long_ago =
            DecisionInput { allowed_at: Some(BEGAN.minus(Duration::from_secs(1))), ..ada(60, &some) };
        assert_eq!(next_step(&plain, &long_ago), Next::Consent(scopes("email")), "that was another request");
    }

    #[test]
    fn who_asks_for_no_scope_is_asked_about_once() {
        let none = ScopeSet::default();
        let bare = |prompt| AuthorizationRequest {
            scopes: none.clone(),
            consent_scopes: none.clone(),
            ..request(prompt)
        };
        let plain = bare(Prompt::AsNeeded { login: false, consent: false, select_account: false });
        let never = DecisionInput { consented: None, ..ada(60, &none) };
        assert_eq!(next_step(&plain, &never), Next::Consent(none.clone()));
        assert_eq!(next_step(&bare(Prompt::NoInteraction), &never), Next::Refuse(Refused::ConsentRequired));
        assert_eq!(
            next_step(&plain, &DecisionInput { allowed_at: Some(BEGAN), ..never }),
            Next::Issue(none.clone())
        );
        assert_eq!(
            next_step(&plain, &DecisionInput { asks_consent: false, ..never }),
            Next::Issue(none.clone())
        );
        assert_eq!(
            next_step(&plain, &ada(60, &none)),
            Next::Issue(none.clone()),
            "allowed before, though of no scope"
        );
    }

    #[test]
    fn consent_that_is_wanted_again_is_asked_again() {
        let all = scopes("openid email");
        let again = ask("consent");
        assert_eq!(next_step(&again, &ada(60, &all)), Next::Consent(scopes("openid email")));
        let vouched = DecisionInput { asks_consent: false, ..ada(60, &all) };
        assert_eq!(next_step(&again, &vouched), Next::Consent(scopes("openid email")));
        let allowed = DecisionInput { allowed_at: Some(BEGAN), ..ada(60, &all) };
        assert_eq!(next_step(&again, &allowed), Next::Issue(scopes("openid email")));
    }

    #[test]
    fn an_essential_level_is_met_or_the_client_hears_so() {
        let all = scopes("openid email");
        let request = |essential| {
            let acr = ClaimRequest { name: "acr".into(), essential, values: vec![Value::from("gold")] };
            let claims = ClaimRequests { id_token: vec![acr], userinfo: Vec::new() };
            AuthorizationRequest { claims, ..ask("") }
        };
        let with = |acr| {
            let mut situation = ada(60, &all);
            situation.person = situation.person.map(|person| Person { acr, ..person });
            situation
        };
        assert_eq!(next_step(&request(true), &with(Some("gold"))), Next::Issue(scopes("openid email")));
        for acr in [None, Some("silver")] {
            assert_eq!(next_step(&request(true), &with(acr)), Next::Refuse(Refused::UnmetAuthentication));
            assert_eq!(next_step(&request(false), &with(acr)), Next::Issue(scopes("openid email")), "a wish");
        }
    }

    #[test]
    fn refusals_have_the_codes_of_the_standard() {
        let codes = [Refused::LoginRequired, Refused::ConsentRequired, Refused::UnmetAuthentication];
        assert_eq!(
            codes.map(Refused::code),
            ["login_required", "consent_required", "unmet_authentication_requirements"]
        );
    }
}
