//! Back-channel logout: a provider reports that a user logged out there (OpenID Connect
//! Back-Channel Logout 1.0).
//!
//! Owns: validating the logout token, and ending the sessions it means. An invalid token gets 400,
//! and no session ends. So does a token that was used before, at every process that keeps its
//! sessions in the same store.
//!
//! Another session of the user that began after the token was issued or received is not meant. So a
//! token that is held back and delivered later ends no newer session. A user who was logged out may
//! log in again at once.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use auth::request::form_pairs;
use auth::time::Timestamp;
use auth::token::id_token::logout_token;
use auth::token::jwt;
use auth::token_error::TokenError;
use credentials::revoked_sessions::LogoutScope;
use credentials::session_store::{OnceKey, SessionsOf};
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;
use parking_lot::Mutex;

use super::Login;
use super::call::{LoginCall, is_form};
use super::provider::{LoginProviderClient, TokenKind};
use super::session::{logout_of, sid_of, subject_of};
use crate::config::LoginKind;
use crate::provider::provider_fault::ProviderFault;

/// Maximum number of stored identifiers. When they are exceeded, the provider receives 503 and
/// retries.
const MAX_ENTRIES: usize = 65_536;

/// The logout tokens that were accepted.
#[derive(Default)]
pub(super) struct SeenLogouts(Mutex<HashMap<Name, Timestamp>>);

/// Provider and `jti`.
type Name = (Box<str>, Box<str>);

/// Why a logout token ends no session.
#[derive(Debug, thiserror::Error)]
enum LogoutRefused {
    #[error("the body is not a form with exactly one `logout_token`")]
    Form,
    #[error("the logout token is not from a configured provider")]
    UnknownIssuer,
    #[error("the logout token was used before")]
    Replayed,
    #[error("{0}")]
    Provider(#[from] ProviderFault),
    #[error("{0}")]
    Unavailable(String),
}

impl LogoutRefused {
    /// Whether it might be accepted later.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Form
            | Self::UnknownIssuer
            | Self::Replayed
            // Retries do not help: an expired token stays expired, and one from the future may have
            // any real age.
            | Self::Provider(ProviderFault::Token(
                TokenError::Expired | TokenError::NotYetValid | TokenError::InFuture(_),
            )) => false,
            Self::Provider(fault) => !fault.is_final(),
            Self::Unavailable(_) => true,
        }
    }
}

/// The parsed content of a logout token.
struct LogoutTokenContent {
    sessions: SessionsOf,
    jti: Box<str>,
    issued: Timestamp,
    expires: Timestamp,
}

impl Login {
    pub(super) async fn backchannel_logout(&self, call: &LoginCall, body: &[u8]) -> LocalReply {
        match self.end_by_token(call, body).await {
            Ok(sessions) => {
                self.shared.counts.provider_logouts.fetch_add(1, Relaxed);
                tracing::info!(sessions, "back-channel logout received");
                let mut answer = LocalReply::from_code(200, "logged_out", Outcome::Local);
                answer.body = (&b""[..]).into();
                answer
            }
            Err(refused) => {
                // Providers, key sets and stores have outage logs of their own.
                if refused.is_retryable() {
                    tracing::debug!(%refused, "back-channel logout deferred");
                } else if self.shared.log_throttles.logout.is_due() {
                    tracing::warn!(%refused, "back-channel logout refused");
                }
                let (status, error) = if refused.is_retryable() {
                    (503, "temporarily_unavailable")
                } else {
                    (400, "invalid_request")
                };
                let outcome = if status == 503 { Outcome::AuthUnavailable } else { Outcome::Malformed };
                let mut answer = LocalReply::from_code(status, "logout_refused", outcome);
                if status == 503 {
                    answer.fields.push(("retry-after".into(), "5".into()));
                }
                answer.fields[0].1 = "application/json".into();
                answer.body = format!("{{\"error\":\"{error}\"}}\n").into_bytes().into();
                answer
            }
        }
    }

    /// Ends the sessions that a logout token means; returns how many the store contained.
    async fn end_by_token(&self, call: &LoginCall, body: &[u8]) -> Result<usize, LogoutRefused> {
        let token = token_of(call, body).ok_or(LogoutRefused::Form)?;
        // The unverified `iss` only selects whose keys must have signed the token.
        let issuer = jwt::parse(token.as_bytes()).map_err(ProviderFault::Token)?.issuer().to_owned();
        let is_his =
            |kind: &LoginKind| matches!(kind, LoginKind::OpenId { issuer: own, .. } if **own == *issuer);
        // Several clients of one provider may be configured: the token's audience selects one.
        let mut refused = LogoutRefused::UnknownIssuer;
        for provider in self.providers.iter().filter(|provider| is_his(&provider.config.kind)) {
            let name = &*provider.config.name;
            let meant = provider
                .with_signed(TokenKind::Logout, &token, |signed, expected, now| {
                    let token = logout_token(signed, expected, now)?;
                    let sid = token.sid.map(|sid| SessionsOf::Sid(sid_of(name, sid)));
                    let subject = token.subject.map(|subject| SessionsOf::Subject(subject_of(name, subject)));
                    // With both, it means that one session of the user (§2.4); at least one of them
                    // is present.
                    let sessions = sid.or(subject).ok_or(TokenError::NotALogoutToken("sub"))?;
                    Ok(LogoutTokenContent {
                        sessions,
                        jti: token.jti.into(),
                        issued: token.issued,
                        expires: token.expires,
                    })
                })
                .await;
            match meant {
                Ok(meant) => return self.end_sessions(provider, &meant).await,
                Err(ProviderFault::Token(TokenError::WrongAudience)) => {}
                Err(fault) => refused = fault.into(),
            }
        }
        Err(refused)
    }

    async fn end_sessions(
        &self,
        provider: &LoginProviderClient,
        meant: &LogoutTokenContent,
    ) -> Result<usize, LogoutRefused> {
        let now = self.surroundings.clock.now().wall;
        let name = &*provider.config.name;
        self.shared.logouts.mark_used(name, meant, now)?;
        let until = self.facts_valid_until(now.plus(self.config.lifetime), now);
        let logout = match meant.sessions {
            // A session of the provider that ended does not begin again: a login in progress with
            // it is meant too.
            SessionsOf::Sid(_) => LogoutScope::WHOLE,
            // The provider's clock may be behind ours, and has whole seconds.
            SessionsOf::Subject(_) => LogoutScope {
                began: meant.issued.plus(provider.config.clock_skew).min(now),
                issued: meant.issued,
            },
        };
        let end_here = || self.shared.ended.revoke_all(meant.sessions, logout, now, until);
        let Some(store) = &self.store else {
            end_here();
            return Ok(0);
        };
        let once = OnceKey { name: logout_of(&provider.binding, &meant.jti), until: meant.expires };
        // A session that is stored at the same time is either deleted in the store, or finds the
        // entry in the list.
        let _alone = self.shared.session_locks.for_logout(meant.sessions).await;
        match store.remove_of(meant.sessions, logout.began, once).await {
            Ok(Some(ended)) => {
                end_here();
                Ok(ended.len())
            }
            // Another process accepted this token, and a session that began since is not meant.
            Ok(None) => Err(LogoutRefused::Replayed),
            Err(fault) => {
                // The session is over here, but not where the store is read, so the provider has to
                // retry.
                end_here();
                self.shared.logouts.forget(name, &meant.jti);
                Err(LogoutRefused::Unavailable(fault.to_string()))
            }
        }
    }
}

fn token_of(call: &LoginCall, body: &[u8]) -> Option<String> {
    call.content_type.as_deref().filter(|text| is_form(text))?;
    let body = std::str::from_utf8(body).ok()?;
    let mut tokens = form_pairs(body).filter(|(name, _)| name == "logout_token");
    match (tokens.next(), tokens.next()) {
        (Some((_, token)), None) => Some(token.into_owned()),
        _ => None,
    }
}

impl SeenLogouts {
    fn mark_used(
        &self,
        provider: &str,
        meant: &LogoutTokenContent,
        now: Timestamp,
    ) -> Result<(), LogoutRefused> {
        let mut seen = self.0.lock();
        let name = (provider.into(), meant.jti.clone());
        if seen.get(&name).is_some_and(|until| now < *until) {
            return Err(LogoutRefused::Replayed);
        }
        if seen.len() >= MAX_ENTRIES {
            seen.retain(|_, until| now < *until);
        }
        if seen.len() >= MAX_ENTRIES {
            return Err(LogoutRefused::Unavailable("too many logout tokens".to_owned()));
        }
        seen.insert(name, meant.expires);
        Ok(())
    }

    fn forget(&self, provider: &str, jti: &str) {
        self.0.lock().remove(&(provider.into(), jti.into()));
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        self.0.lock().retain(|_, until| now < *until);
    }
}
