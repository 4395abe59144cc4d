//! Renewal: asks a provider whether a session still holds, and stores the result.
//!
//! There is one renewal per session, for any number of requests: a lock of the session ensures this
//! in this process, and a claim in the store among the processes that share it. A refresh token is
//! used once. So the result of a renewal is kept for clients that still send the previous cookie,
//! for a limited time and number. Tokens that a provider issued are either stored or revoked, never
//! dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::session_store::SessionStore;
use parking_lot::Mutex;

use super::provider::{LoginProviderClient, ProviderTokens};
use super::session::BrowserSession;
use super::session_search::{FoundSession, session_too_large, store_unavailable};
use super::{Login, SessionRejected};
use crate::provider::provider_fault::ProviderFault;

/// How long a replaced cookie still leads to its successor.
pub(super) const SUCCESSOR_TTL: Duration = Duration::from_mins(2);
/// How long a session stays valid after a renewal without an answer, before the next attempt.
pub(super) const RETRY: Duration = Duration::from_secs(10);
/// How long an unavailable store is retried to save the tokens of a renewal; the next constant is
/// the interval.
const STORE_RETRY_TIMEOUT: Duration = Duration::from_secs(3);
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of successors to keep; a few kilobytes each.
const SUCCESSORS: usize = 10_000;

/// Renewals in progress, and recent results where sessions are kept in browsers.
#[derive(Default)]
pub(super) struct Renewals {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// By session identifier: the session after its last renewal.
    successors: Mutex<HashMap<String, (BrowserSession, Timestamp)>>,
}

/// A session after its renewal.
pub(super) struct Renewed {
    pub(super) session: BrowserSession,
    /// Whether the provider identified the user; otherwise it issued tokens and then gave no
    /// further answer.
    pub(super) confirmed: bool,
}

impl Login {
    /// Asks the provider. Only a definite refusal ends the session; a missing answer is
    /// [`SessionRejected::Unavailable`].
    pub(super) async fn ask_provider(
        &self,
        provider: &LoginProviderClient,
        session: &BrowserSession,
    ) -> Result<ProviderTokens, SessionRejected> {
        let now = self.surroundings.clock.now().wall;
        let counts = &self.shared.counts;
        match provider.renew(session, now).await {
            Ok(tokens) => {
                let count = if tokens.confirmed { &counts.renewed } else { &counts.renewal_failed };
                count.fetch_add(1, Relaxed);
                Ok(tokens)
            }
            Err(fault) if fault.is_final() => {
                counts.renewal_refused.fetch_add(1, Relaxed);
                tracing::debug!(provider = &*provider.config.name, %fault, "session ended by the provider");
                if matches!(fault, ProviderFault::Identity(_)) {
                    // Even if the provider later answers differently for this cookie: it is not the
                    // user who logged in.
                    self.mark_revoked(session, now);
                }
                Err(SessionRejected::Over)
            }
            Err(fault) => {
                counts.renewal_failed.fetch_add(1, Relaxed);
                tracing::debug!(provider = &*provider.config.name, %fault, "session renewal failed, keeping the session for now");
                Err(SessionRejected::Unavailable)
            }
        }
    }

    /// Renews a session in a store, after it was claimed. `None`: the provider gives no answer.
    pub(super) async fn renew_stored(
        &self,
        origin: usize,
        provider: &LoginProviderClient,
        store: &dyn SessionStore,
        found: &FoundSession,
    ) -> Result<Option<Renewed>, SessionRejected> {
        let Some((id, version)) = found.store_entry else { return Err(SessionRejected::Unavailable) };
        let sent_at = self.surroundings.clock.now().wall;
        let tokens = match self.ask_provider(provider, &found.session).await {
            Ok(tokens) => tokens,
            Err(SessionRejected::Over) => {
                store.remove(id).await.map_err(store_unavailable)?;
                return Err(SessionRejected::Over);
            }
            Err(SessionRejected::Unavailable) => {
                store.release(id, version).await.map_err(store_unavailable)?;
                return Ok(None);
            }
        };
        let confirmed = tokens.confirmed;
        let session = self.extended(&found.session, tokens, sent_at);
        let place = self.config.session_place(origin);
        let content = session.content(&self.config.keys, place, &id, &self.random);
        let content = content.map_err(|fault| session_too_large(&fault))?;
        // False: another request ended the session meanwhile, and the new tokens must be revoked.
        // The same holds if they cannot be stored. But the provider accepts no refresh token twice,
        // so a short outage of the store is waited for.
        let until = tokio::time::Instant::now() + STORE_RETRY_TIMEOUT;
        let replaced = loop {
            match store.replace(id, version, content.clone()).await {
                Err(_) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(STORE_RETRY_INTERVAL).await;
                }
                replaced => break replaced,
            }
        };
        match replaced {
            Ok(true) => Ok(Some(Renewed { session, confirmed })),
            Ok(false) => {
                self.revoke_tokens(provider, &session).await;
                Err(SessionRejected::Over)
            }
            Err(fault) => {
                self.revoke_tokens(provider, &session).await;
                Err(store_unavailable(fault))
            }
        }
    }

    /// Renews a session in a cookie, unless another request has just renewed or ended it.
    pub(super) async fn renew_in_cookie(
        &self,
        provider: &LoginProviderClient,
        session: &BrowserSession,
    ) -> Result<Option<Renewed>, SessionRejected> {
        let renewals = &self.shared.renewals;
        let lock = renewals.lock(&session.id);
        let held = lock.lock().await;
        let now = self.surroundings.clock.now().wall;
        let newest = renewals.successor(session, now);
        let answer = match newest {
            _ if self.shared.ended.is_revoked(&session.revocation_keys()) => Err(SessionRejected::Over),
            Some(newest)
                if !newest.needs_renewal(now) && !self.has_outdated_claims(&newest).await.unwrap_or(true) =>
            {
                Ok(Some(Renewed { session: newest, confirmed: true }))
            }
            newest => match self.ask_provider(provider, newest.as_ref().unwrap_or(session)).await {
                Ok(tokens) => {
                    let confirmed = tokens.confirmed;
                    let session = self.extended(newest.as_ref().unwrap_or(session), tokens, now);
                    renewals.remember(&session, self.surroundings.clock.now().wall);
                    Ok(Some(Renewed { session, confirmed }))
                }
                Err(SessionRejected::Unavailable) => Ok(None),
                Err(SessionRejected::Over) => Err(SessionRejected::Over),
            },
        };
        drop(held);
        renewals.unlock(&session.id, &lock);
        answer
    }

    /// The session with the provider's answer to a request that was sent at `sent_at`.
    fn extended(
        &self,
        session: &BrowserSession,
        tokens: ProviderTokens,
        sent_at: Timestamp,
    ) -> BrowserSession {
        let now = self.surroundings.clock.now().wall;
        let (mut fresh, expires) = self.refresh_times(tokens.expires_in, now);
        let claims_obtained_at =
            if tokens.confirmed && tokens.has_claims { sent_at } else { session.claims_at() };
        if !tokens.confirmed {
            // The provider issued tokens and then failed to identify their user: earlier claims
            // stay valid for a short time.
            fresh = fresh.min(now.plus(RETRY).as_millis());
        }
        BrowserSession {
            access_token: self.kept_access_token(&tokens),
            sid: tokens.sid,
            claims: tokens.claims,
            more: tokens.more,
            fresh,
            expires,
            refresh_token: tokens.refresh_token,
            id_token: tokens.id_token,
            claims_obtained_at: claims_obtained_at.as_millis(),
            renewals: session.renewals.saturating_add(1),
            ..session.clone()
        }
    }

    /// When to ask again, and when the access token expires. Asking a little earlier avoids that it
    /// expires in transit.
    pub(super) fn refresh_times(&self, expires_in: Option<Duration>, now: Timestamp) -> (u64, u64) {
        let expires_in = expires_in.unwrap_or(self.config.refresh);
        let fresh = now.plus(self.config.refresh.min(expires_in / 10 * 9));
        (fresh.as_millis(), now.plus(expires_in).as_millis())
    }

    /// The access token, if it is needed: for an upstream, or to ask the provider about its user.
    pub(super) fn kept_access_token(&self, tokens: &ProviderTokens) -> Option<zeroize::Zeroizing<String>> {
        let is_needed = self.forwards.access_token || tokens.refresh_token.is_none();
        is_needed.then(|| tokens.access_token.clone())
    }

    /// Revokes the tokens of a session that is over at the provider.
    pub(super) async fn revoke_tokens(&self, provider: &LoginProviderClient, session: &BrowserSession) {
        if let Err(fault) = provider.revoke(session).await {
            // The session is over here in any case. An unavailable provider has an outage log of
            // its own.
            if fault.is_outage() {
                tracing::debug!(provider = &*provider.config.name, %fault, "token revocation failed");
                return;
            }
            tracing::warn!(provider = &*provider.config.name, %fault, "token revocation failed, tokens may stay valid");
        }
    }
}

impl Renewals {
    /// The lock of a session.
    pub(super) fn lock(&self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.locks.lock().entry(id.to_owned()).or_default().clone()
    }

    /// Removes the lock from the table, unless another request waits for it.
    pub(super) fn unlock(&self, id: &str, lock: &Arc<tokio::sync::Mutex<()>>) {
        let mut locks = self.locks.lock();
        // One reference in the table and one here.
        if Arc::strong_count(lock) <= 2 {
            locks.remove(id);
        }
    }

    /// The renewed form of a session, if there is a newer one.
    pub(super) fn successor(&self, session: &BrowserSession, now: Timestamp) -> Option<BrowserSession> {
        let successors = self.successors.lock();
        let (newest, until) = successors.get(&session.id)?;
        (now < *until && newest.renewals > session.renewals).then(|| newest.clone())
    }

    fn remember(&self, session: &BrowserSession, now: Timestamp) {
        let mut successors = self.successors.lock();
        if successors.len() >= SUCCESSORS {
            successors.retain(|_, (_, until)| now < *until);
        }
        if successors.len() >= SUCCESSORS {
            // The user whose successor is evicted logs in again, which is quick while the
            // provider's session lasts.
            let oldest = successors.iter().min_by_key(|(_, (_, until))| *until).map(|(id, _)| id.clone());
            oldest.map(|id| successors.remove(&id));
        }
        successors.insert(session.id.clone(), (session.clone(), now.plus(SUCCESSOR_TTL)));
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        self.successors.lock().retain(|_, (_, until)| now < *until);
    }
}
