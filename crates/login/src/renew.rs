//! Asking a provider whether a session still holds.
//!
//! One renewal per session, however many requests want it: in this process by a lock of the session's own, among all who share a
//! store by a claim there. A refresh token is used once, so what came of the last one is remembered for whoever still holds the cookie
//! before; only for a while, and for so many. Whatever a provider gave out is kept or revoked, never dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::session_store::SessionStore;
use parking_lot::Mutex;

use super::find::{FoundSession, sealed, silent};
use super::provider::{LoginProviderClient, ProviderFault, ProviderTokens};
use super::session::BrowserSession;
use super::{Login, SessionRejected};

/// For how long a cookie that was exchanged still leads to its successor.
pub(super) const SUCCESSION: Duration = Duration::from_mins(2);
/// How long a session whose provider gives no answer is believed without trying again.
pub(super) const RETRY: Duration = Duration::from_secs(10);
/// For how long a store that is away is asked to keep what a provider gave out, and how often.
const KEPT_WITHIN: Duration = Duration::from_secs(3);
const RETRY_KEPT: Duration = Duration::from_millis(250);
/// How many successors are remembered; a few kilobytes each.
const SUCCESSORS: usize = 10_000;

/// Renewals under way, and what came of the last ones where sessions are kept in browsers.
#[derive(Default)]
pub(super) struct Renewals {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// By the session's name: what it was last renewed to.
    successors: Mutex<HashMap<String, (BrowserSession, Timestamp)>>,
}

/// A session that was renewed.
pub(super) struct Renewed {
    pub(super) session: BrowserSession,
    /// Its provider said whose it is; otherwise it gave out tokens and then nothing more.
    pub(super) confirmed: bool,
}

impl Login {
    /// Asks the provider; what it says for certain is an answer, silence is not.
    pub(super) async fn ask(
        &self,
        provider: &LoginProviderClient,
        session: &BrowserSession,
    ) -> Result<ProviderTokens, SessionRejected> {
        let now = self.surroundings.clock.now().wall;
        let counts = &self.shared.counts;
        match provider.renew(session, now).await {
            Ok(told) => {
                let count = if told.confirmed { &counts.renewed } else { &counts.renewal_failed };
                count.fetch_add(1, Relaxed);
                Ok(told)
            }
            Err(fault) if fault.is_final() => {
                counts.renewal_refused.fetch_add(1, Relaxed);
                tracing::debug!(provider = &*provider.config.name, %fault, "a session is over");
                if matches!(fault, ProviderFault::Person(_)) {
                    // Whatever the provider says next of whoever has this cookie: it is not who logged in.
                    self.mark(session, now);
                }
                Err(SessionRejected::Over)
            }
            Err(fault) => {
                counts.renewal_failed.fetch_add(1, Relaxed);
                tracing::debug!(provider = &*provider.config.name, %fault, "a session is not confirmed");
                Err(SessionRejected::Silent)
            }
        }
    }

    /// Renews a session that a store keeps, by the right to do so. `None`: the provider gives no answer.
    pub(super) async fn renew_kept(
        &self,
        origin: usize,
        provider: &LoginProviderClient,
        store: &dyn SessionStore,
        found: &FoundSession,
    ) -> Result<Option<Renewed>, SessionRejected> {
        let Some((id, version)) = found.kept else { return Err(SessionRejected::Silent) };
        let asked = self.surroundings.clock.now().wall;
        let told = match self.ask(provider, &found.session).await {
            Ok(told) => told,
            Err(SessionRejected::Over) => {
                store.remove(id).await.map_err(silent)?;
                return Err(SessionRejected::Over);
            }
            Err(SessionRejected::Silent) => {
                store.release(id, version).await.map_err(silent)?;
                return Ok(None);
            }
        };
        let confirmed = told.confirmed;
        let session = self.prolonged(&found.session, told, asked);
        let place = &*self.config.origins[origin].text;
        let content = session.content(&self.config.keys, place, &id, &self.random);
        let content = content.map_err(|fault| sealed(&fault))?;
        // False: somebody ended it in the meantime, and what it was just given must not live on. Nor may it where it cannot be kept; but the
        // provider takes no refresh token twice, so that a store that is away for a moment is waited for.
        let until = tokio::time::Instant::now() + KEPT_WITHIN;
        let kept = loop {
            match store.replace(id, version, content.clone()).await {
                Err(_) if tokio::time::Instant::now() < until => tokio::time::sleep(RETRY_KEPT).await,
                kept => break kept,
            }
        };
        match kept {
            Ok(true) => Ok(Some(Renewed { session, confirmed })),
            Ok(false) => {
                self.forget(provider, &session).await;
                Err(SessionRejected::Over)
            }
            Err(fault) => {
                self.forget(provider, &session).await;
                Err(silent(fault))
            }
        }
    }

    /// Renews a session that its browser keeps, unless somebody has just done so, or ended it.
    pub(super) async fn renew_carried(
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
            _ if self.shared.ended.holds(&session.marks()) => Err(SessionRejected::Over),
            Some(newest) if !newest.is_due(now) && !self.is_outdated(&newest).await.unwrap_or(true) => {
                Ok(Some(Renewed { session: newest, confirmed: true }))
            }
            newest => match self.ask(provider, newest.as_ref().unwrap_or(session)).await {
                Ok(told) => {
                    let confirmed = told.confirmed;
                    let session = self.prolonged(newest.as_ref().unwrap_or(session), told, now);
                    renewals.remember(&session, self.surroundings.clock.now().wall);
                    Ok(Some(Renewed { session, confirmed }))
                }
                Err(SessionRejected::Silent) => Ok(None),
                Err(SessionRejected::Over) => Err(SessionRejected::Over),
            },
        };
        drop(held);
        renewals.unlock(&session.id, &lock);
        answer
    }

    /// A session by what its provider says, who was asked then.
    fn prolonged(&self, session: &BrowserSession, told: ProviderTokens, asked: Timestamp) -> BrowserSession {
        let now = self.surroundings.clock.now().wall;
        let (mut fresh, expires) = self.times(told.lasts, now);
        let told_at = if told.confirmed && told.speaks { asked } else { session.told() };
        if !told.confirmed {
            // It gave out tokens and then said nothing of whose they are: what was known holds for a moment.
            fresh = fresh.min(now.plus(RETRY).as_millis());
        }
        BrowserSession {
            access_token: self.kept_access_token(&told),
            sid: told.sid,
            claims: told.claims,
            more: told.more,
            fresh,
            expires,
            refresh_token: told.refresh_token,
            id_token: told.id_token,
            told: told_at.as_millis(),
            renewals: session.renewals.saturating_add(1),
            ..session.clone()
        }
    }

    /// When to ask again, and when the access token ends. Asked a little earlier than it ends, it never ends under way.
    pub(super) fn times(&self, lasts: Option<Duration>, now: Timestamp) -> (u64, u64) {
        let lasts = lasts.unwrap_or(self.config.refresh);
        let fresh = now.plus(self.config.refresh.min(lasts / 10 * 9));
        (fresh.as_millis(), now.plus(lasts).as_millis())
    }

    /// The access token, where somebody will want it: an upstream, or we, to ask whose it is.
    pub(super) fn kept_access_token(&self, told: &ProviderTokens) -> Option<zeroize::Zeroizing<String>> {
        let wanted = self.passes_tokens || told.refresh_token.is_none();
        wanted.then(|| told.access_token.clone())
    }

    /// Has the provider forget what a session that is over was given.
    pub(super) async fn forget(&self, provider: &LoginProviderClient, session: &BrowserSession) {
        if let Err(fault) = provider.revoke(session).await {
            // Here it is over all the same. A provider that is away has a line of its own.
            if fault.is_outage() {
                tracing::debug!(provider = &*provider.config.name, %fault, "tokens are not revoked");
                return;
            }
            tracing::warn!(provider = &*provider.config.name, %fault, "the tokens of a session that ended may live on");
        }
    }
}

impl Renewals {
    /// The lock of a session.
    pub(super) fn lock(&self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.locks.lock().entry(id.to_owned()).or_default().clone()
    }

    /// Takes the lock off the table, unless somebody waits for it.
    pub(super) fn unlock(&self, id: &str, lock: &Arc<tokio::sync::Mutex<()>>) {
        let mut locks = self.locks.lock();
        // The table's and ours.
        if Arc::strong_count(lock) <= 2 {
            locks.remove(id);
        }
    }

    /// What came of a session, if it is known and newer.
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
            // Whoever loses its place logs in again, which the provider makes short.
            let oldest = successors.iter().min_by_key(|(_, (_, until))| *until).map(|(id, _)| id.clone());
            oldest.map(|id| successors.remove(&id));
        }
        successors.insert(session.id.clone(), (session.clone(), now.plus(SUCCESSION)));
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        self.successors.lock().retain(|_, (_, until)| now < *until);
    }
}
