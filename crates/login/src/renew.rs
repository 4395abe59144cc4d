//! Renewal: asks a provider whether a session still holds, and stores the result.
//!
//! There is one renewal per session, for any number of requests: a lock of the session ensures this
//! in this process, and a claim in the store among the processes that share it. A refresh token is
//! used once. So the result of a renewal is kept for clients that still send the previous cookie,
//! for a limited time and number. Tokens that a provider issued are either stored or revoked, never
//! dropped.
//!
//! A session in a cookie cannot be deleted. So the form of it that a provider refused is remembered:
//! a provider that gives no answer later does not bring it back. A newer form, which another process
//! renewed, is not refused with it.

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
/// Maximum number of refused sessions to keep; about 100 bytes each.
const REFUSALS: usize = 100_000;

/// Renewals in progress, and recent results where sessions are kept in browsers.
#[derive(Default)]
pub(super) struct Renewals {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// By session identifier: the session after its last renewal.
    successors: Mutex<HashMap<String, (BrowserSession, Timestamp)>>,
    /// By session identifier: the renewals of its newest form that the provider refused, and when
    /// the session is over in any case.
    refused: Mutex<HashMap<String, (u32, Timestamp)>>,
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
                if let Err(fault) = store.remove(id).await {
                    // It may still be found.
                    self.shared.renewals.refuse(&found.session);
                    return Err(store_unavailable(fault));
                }
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
        let has_ended = self.shared.ended.is_revoked(&session.revocation_keys())
            || renewals.is_refused(newest.as_ref().unwrap_or(session));
        let answer = match newest {
            _ if has_ended => Err(SessionRejected::Over),
            Some(newest)
                if !newest.needs_renewal(now) && !self.has_outdated_claims(&newest).await.unwrap_or(true) =>
            {
                Ok(Some(Renewed { session: newest, confirmed: true }))
            }
            newest => {
                let newest = newest.as_ref().unwrap_or(session);
                match self.ask_provider(provider, newest).await {
                    Ok(tokens) => {
                        let confirmed = tokens.confirmed;
                        let session = self.extended(newest, tokens, now);
                        renewals.remember(&session, self.surroundings.clock.now().wall);
                        Ok(Some(Renewed { session, confirmed }))
                    }
                    Err(SessionRejected::Unavailable) => Ok(None),
                    Err(SessionRejected::Over) => {
                        if !renewals.refuse(newest) {
                            // Without space for this form alone, the session ends in all its forms.
                            self.mark_revoked(newest, now);
                        }
                        Err(SessionRejected::Over)
                    }
                }
            }
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

    /// Whether the provider refused this form of a session, or a newer one.
    pub(super) fn is_refused(&self, session: &BrowserSession) -> bool {
        self.refused.lock().get(&session.id).is_some_and(|(renewals, _)| session.renewals <= *renewals)
    }

    /// Remembers that the provider refused this form of a session, until the session is over in any
    /// case: the access token of an older form may expire later than that of this one. False: there
    /// is no space before the next sweep.
    fn refuse(&self, session: &BrowserSession) -> bool {
        let mut refused = self.refused.lock();
        if refused.len() >= REFUSALS && !refused.contains_key(&session.id) {
            return false;
        }
        let ends = Timestamp::from_millis(session.ends);
        let (renewals, _) = refused.entry(session.id.clone()).or_insert((session.renewals, ends));
        *renewals = session.renewals.max(*renewals);
        true
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        self.successors.lock().retain(|_, (_, until)| now < *until);
        self.refused.lock().retain(|_, (_, ends)| now < *ends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const ENDS: Timestamp = Timestamp::from_secs(1_800_043_200);

    fn form(id: &str, renewals: u32) -> BrowserSession {
        BrowserSession {
            id: id.into(),
            provider: "id".into(),
            binding: "b".into(),
            subject: "u1".into(),
            sid: None,
            claims: r#"{"sub":"u1"}"#.into(),
            more: None,
            began: NOW.as_millis(),
            issued: NOW.as_millis(),
            read_at: None,
            claims_obtained_at: NOW.as_millis(),
            renewals,
            ends: ENDS.as_millis(),
            fresh: NOW.as_millis(),
            expires: NOW.plus(Duration::from_hours(1)).as_millis(),
            refresh_token: None,
            access_token: None,
            id_token: None,
        }
    }

    #[test]
    fn a_refusal_is_of_a_form_and_of_those_before_it() {
        let renewals = Renewals::default();
        assert!(!renewals.is_refused(&form("one", 0)));
        assert!(renewals.refuse(&form("one", 3)));
        assert!(renewals.refuse(&form("one", 1)), "takes nothing back");
        for (number, refused) in [(0, true), (3, true), (4, false)] {
            assert_eq!(renewals.is_refused(&form("one", number)), refused, "{number}");
        }
        assert!(!renewals.is_refused(&form("two", 0)), "another session");
        assert!(renewals.refuse(&form("one", 5)));
        assert!(renewals.is_refused(&form("one", 4)));
    }

    #[test]
    fn a_refusal_is_remembered_until_the_session_is_over() {
        let renewals = Renewals::default();
        assert!(renewals.refuse(&form("one", 0)));
        renewals.sweep(ENDS.minus(Duration::from_millis(1)));
        assert!(renewals.is_refused(&form("one", 0)));
        renewals.sweep(ENDS);
        assert!(renewals.refused.lock().is_empty());
    }

    #[test]
    fn a_full_memory_of_refusals_loses_none() {
        let renewals = Renewals::default();
        renewals.refused.lock().extend((0..REFUSALS).map(|id| (id.to_string(), (0, ENDS))));
        assert!(!renewals.refuse(&form("one", 0)));
        assert!(renewals.refuse(&form("0", 1)), "a session that is in it");
        assert!(renewals.is_refused(&form("0", 1)) && renewals.is_refused(&form("1", 0)));
        assert_eq!(renewals.refused.lock().len(), REFUSALS);
        renewals.sweep(ENDS);
        assert!(renewals.refuse(&form("one", 0)));
    }
}
