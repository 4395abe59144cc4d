//! The caller of an explained request: which credential counts, and what it proves.

use crate::cmd::check::auth_response::QueryProtocols;
use crate::cmd::check::explain::{ExplanationEnded, authenticator_runtime};
use crate::cmd::check::outline::Outline;
use crate::cmd::check::token;
use crate::exit::Failure;
use auth::credential::{self, PresentedToken};
use auth::identity::{Facts, Identity};
use auth::policy::rule::Policy;
use auth::request::{Canonical, Field};
use auth::time::Timestamp;
use auth::token::jwt;
use credentials::authenticate::outcome::Rejection;
use credentials::authenticate::{Authenticator, AuthenticatorSetup, Verified};
use gateway::config::Config;
use http_engine::clock::Clock;
use login::preview;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// Authenticates the caller.
pub(super) struct Caller<'a> {
    pub(crate) config: &'a Config,
    pub(crate) certificate: Option<CertificateDer<'static>>,
    pub(crate) now: Timestamp,
    /// Whether a serving gateway follows the revocations of the token's issuer.
    pub(crate) followed: bool,
}

pub(super) type ExplainedLookups = Result<Option<Arc<Verified>>, ExplanationEnded>;

impl Caller<'_> {
    pub(crate) async fn authenticate(
        &self,
        story: &mut Outline,
        index: usize,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
    ) -> Result<ExplainedLookups, Failure> {
        story.part("caller");
        if matches!(self.config.route(index).policy, Policy::Public) {
            story.step(0, None, "the route is public: no credential is needed");
            return Ok(Ok(None));
        }
        let presented = credential::bearer(fields, request.query());
        let token = match presented.and_then(|token| token.map(PresentedToken::checked).transpose()) {
            Ok(token) => token,
            Err(fault) => {
                story.step(0, Some(false), fault);
                story.refuse(400, fault.code(), fault);
                return Ok(Err(ExplanationEnded));
            }
        };
        let (surroundings, _) = authenticator_runtime(self.now, &tokio::runtime::Handle::current())?;
        let clock = surroundings.clock.clone();
        let authenticator = Authenticator::new(AuthenticatorSetup::from(self.config), surroundings);
        let Some(token) = token else {
            let accepted = self.config.route(index).basic_auth.is_some();
            if let Some(encoded) = credential::basic(fields).filter(|_| accepted) {
                let (answer, _) = authenticator.authenticate_basic(encoded, || clock.now()).await;
                return Ok(self.explain_password(story, answer));
            }
            self.session(story, index, request, fields);
            return Ok(Ok(self.certificate(story, &authenticator, clock.as_ref())));
        };
        let (answer, _) = authenticator.authenticate(token, || clock.now()).await;
        let verdict = match &answer {
            Err(Rejection::Invalid(error)) => Some(error),
            _ => None,
        };
        let unavailable = matches!(answer, Err(Rejection::Unavailable { .. }));
        // For a token that is not a JWT of a known issuer, only its authority's answer is known.
        let issuers = &self.config.authentication.issuers;
        let ours = self.config.authentication.authorities.is_empty()
            || jwt::parse(token).is_ok_and(|jwt| issuers.iter().any(|i| i.config.is_issuer(jwt.issuer())));
        if ours {
            token::explain_token(story, self.config, token, verdict, unavailable);
        }
        Ok(match answer {
            Ok(verified) => {
                explain_identity(story, &verified.facts, self.now);
                if self.followed {
                    let message =
                        "revocation is not checked here: only a serving gateway receives revocations";
                    story.step(0, None, message);
                }
                Ok(Some(verified))
            }
            Err(Rejection::Invalid(error)) => {
                let why = format!("{error} (the client gets error=\"invalid_token\")");
                story.refuse(401, error.code(), why);
                Err(ExplanationEnded)
            }
            Err(rejection @ Rejection::Silent { .. }) => {
                for error in authenticator.authorities().into_iter().filter_map(|status| status.last_error) {
                    story.step(1, None, error);
                }
                // These are errors of keys that verify signed answers.
                for error in authenticator.key_sets().into_iter().filter_map(|status| status.last_error) {
                    story.step(1, None, error);
                }
                story.unknown(503, rejection.code(), rejection);
                Err(ExplanationEnded)
            }
            Err(rejection) => {
                for status in authenticator.key_sets() {
                    if let Some(error) = &status.last_error {
                        story.step(1, None, error);
                    }
                }
                story.unknown(503, rejection.code(), rejection);
                Err(ExplanationEnded)
            }
        })
    }

    /// Explains the result for a user name and a password.
    fn explain_password(
        &self,
        story: &mut Outline,
        answer: Result<Arc<Verified>, Rejection>,
    ) -> ExplainedLookups {
        match answer {
            Ok(verified) => {
                story.step(0, Some(true), "the user name and the password are right");
                explain_identity(story, &verified.facts, self.now);
                Ok(Some(verified))
            }
            Err(rejection @ Rejection::WrongPassword) => {
                story.refuse(401, rejection.code(), rejection);
                Err(ExplanationEnded)
            }
            Err(rejection) => {
                story.unknown(503, rejection.code(), rejection);
                Err(ExplanationEnded)
            }
        }
    }

    /// Explains a session cookie. Only a serving process opens it, because it may have to query the
    /// database and renew the session.
    fn session(&self, story: &mut Outline, index: usize, request: &Canonical<'_>, fields: &[Field<'_>]) {
        let login = self.config.login.as_ref().filter(|_| self.config.route(index).login);
        if login.is_some_and(|login| preview::carries_session(login, request, fields)) {
            let message = "this command does not open session cookies; the cookie is ignored";
            story.step(0, None, message);
        }
    }

    fn certificate(
        &self,
        story: &mut Outline,
        authenticator: &Authenticator,
        clock: &dyn Clock,
    ) -> Option<Arc<Verified>> {
        let Some(certificate) = &self.certificate else {
            story.step(0, None, "there is no token and no client certificate");
            return None;
        };
        if QueryProtocols::from_config(self.config).is_some() {
            story.step(
                0,
                None,
                "a client certificate belongs to the querying proxy, and is not a credential",
            );
            return None;
        }
        match authenticator.certificate(certificate, clock.now()) {
            Ok(verified) => {
                story.step(0, Some(true), "the client certificate identifies its holder");
                explain_identity(story, &verified.facts, self.now);
                Some(verified)
            }
            Err(error) => {
                // As in serving, an unusable certificate is not a credential.
                story.step(0, Some(false), format_args!("the client certificate is no credential: {error}"));
                None
            }
        }
    }
}

pub(super) fn explain_identity(story: &mut Outline, facts: &Facts, now: Timestamp) {
    let Identity { issuer, subject, user, email, client, groups, scopes, claims, .. } = &facts.identity;
    let list = |values: &[Box<str>]| values.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
    story.step(0, None, format_args!("subject {subject:?}, authenticated by {issuer:?}"));
    for (name, value) in [("user", user), ("email", email), ("client", client)] {
        if let Some(value) = value {
            story.step(1, None, format_args!("{name} {value:?}"));
        }
    }
    for (name, values) in [("groups", groups), ("scopes", scopes)] {
        if !values.is_empty() {
            story.step(1, None, format_args!("{name} {}", list(values)));
        }
    }
    for (path, values) in claims {
        story.step(1, None, format_args!("claim {path} {}", list(values)));
    }
    if facts.expires != Timestamp::MAX && facts.valid_at(now) {
        story.step(1, None, format_args!("valid for another {} s", facts.expires.since(now).as_secs()));
    }
}
