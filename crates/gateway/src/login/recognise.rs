//! Whose session a cookie is, when that is not known at once; how sessions begin, are renewed, and end.
//!
//! One renewal per session, however many requests want it: in this process by a lock of the session's own, among all who share a
//! store by a claim there. A refresh token is used once, so what came of it is remembered for whoever still holds the cookie
//! before; only for a while, and for so many.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use auth::identity::Facts;
use auth::time::Timestamp;
use parking_lot::Mutex;

use super::attempt::random_text;
use super::cookies::Cookie;
use super::provider::{Provider, Told};
use super::session::{SealFault, Session, kept_as};
use super::store::{Digest, Kept, SessionStore, StoreFault};
use super::{Login, Lookup, OfSession, Rejected};
use crate::authenticate::Verified;
use crate::cache::{self, Landing, Lifetime};
use crate::clock::Now;
use crate::phases::CacheUse;

/// Looking up, waiting and finding out, so often at most for one request.
const ROUNDS: usize = 8;
/// For how long a cookie that was renewed still leads to its successor.
const SUCCESSION: Duration = Duration::from_mins(2);
/// How many are remembered; a few kilobytes each.
const SUCCESSORS: usize = 10_000;
/// How long one process has the right to renew a session in a store: longer than it may take, with metadata, tokens, keys
/// and userinfo asked for one after the other.
const CLAIM: Duration = Duration::from_secs(30);
/// How long somebody waits for another process to renew it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often they look.
const LOOK: Duration = Duration::from_millis(50);
/// How long a session whose provider gives no answer is believed without trying again.
const RETRY: Duration = Duration::from_secs(10);

/// What came of finding out, and what the cache had to do with it.
pub(crate) type Outcome = (Result<Arc<Verified>, Rejected>, CacheUse);

/// Renewals under way, and what came of the last ones where sessions are kept in browsers.
#[derive(Default)]
pub(super) struct Renewals {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    successors: Mutex<HashMap<Digest, (Arc<Session>, Timestamp)>>,
}

/// A session where it was found.
struct Found {
    session: Session,
    /// In a store, under this name and version.
    kept: Option<(Digest, u64)>,
    /// It is not what the cookie holds, but what came of it.
    succeeded: bool,
}

/// What a request is told of a session that is good.
struct Good {
    found: Found,
    /// In its provider's words, where they were heard just now.
    claims: Option<String>,
    /// To be believed until then, without looking again.
    until: Timestamp,
}

impl Login {
    /// Finds out whose session a cookie is that [`Login::lookup`] does not know.
    pub(crate) async fn find_out(self: &Arc<Self>, origin: usize, cookie: &[u8]) -> Outcome {
        let key = self.scopes[origin].key(cookie);
        let clock = &self.surroundings.clock;
        for _ in 0..ROUNDS {
            match self.cache.lookup(key, clock.now()) {
                cache::Lookup::Hit(verified) if self.is_ended(&verified) => {
                    return (Err(Rejected::Over), CacheUse::Denied);
                }
                cache::Lookup::Hit(verified) => return (Ok(verified), CacheUse::Hit),
                cache::Lookup::Denied(why) => return (Err(why), CacheUse::Denied),
                cache::Lookup::Pending(flight) => match flight.land().await {
                    Landing::Known(verified) => return (Ok(verified), CacheUse::Coalesced),
                    Landing::Denied(why) => return (Err(why), CacheUse::Coalesced),
                    Landing::Again => {}
                },
                cache::Lookup::Miss(ticket) => {
                    let (this, cookie) = (self.clone(), cookie.to_vec());
                    // It goes on when nobody waits: what was renewed must be known to those who come next.
                    let finding = self.control().spawn(async move {
                        let good = this.recognise(origin, &cookie).await;
                        let now = this.surroundings.clock.now();
                        match good.and_then(|good| this.verified(origin, good, now)) {
                            Ok((verified, life)) => ticket.fill(verified, life, now).map(Ok),
                            Err(Rejected::Over) => {
                                ticket.deny(Rejected::Over, now);
                                Ok(Err(Rejected::Over))
                            }
                            Err(Rejected::Silent) => {
                                ticket.fail(Rejected::Silent);
                                Ok(Err(Rejected::Silent))
                            }
                        }
                    });
                    match finding.await {
                        Ok(Ok(answer)) => return (answer, CacheUse::Miss),
                        // A flush overtook it: look again.
                        Ok(Err(cache::Voided)) => {}
                        Err(_) => break,
                    }
                }
            }
        }
        (Err(Rejected::Silent), CacheUse::Miss)
    }

    /// The session of a cookie, whether it is known or not.
    pub(super) async fn session_of(
        self: &Arc<Self>,
        origin: usize,
        cookie: Option<&[u8]>,
    ) -> Option<Result<Arc<Verified>, Rejected>> {
        let cookie = cookie?;
        match self.lookup(origin, cookie, self.surroundings.clock.now()) {
            Lookup::Hit(verified) => Some(Ok(verified)),
            Lookup::Denied(why) => Some(Err(why)),
            Lookup::Unknown => Some(self.find_out(origin, cookie).await.0),
        }
    }

    /// The fact that a session is, and how long it holds.
    fn verified(&self, origin: usize, good: Good, now: Now) -> Result<(Arc<Verified>, Lifetime), Rejected> {
        let Good { found, claims, until } = good;
        let session = &found.session;
        let marks = session.marks();
        if self.shared.ended.holds(&marks) {
            return Err(Rejected::Over);
        }
        let provider = self.provider_of(session).ok_or(Rejected::Over)?;
        let heard = claims.unwrap_or_else(|| session.claims.clone());
        let identity = super::session::identity(&provider.config, heard.as_bytes()).map_err(|why| {
            // It was good when it began: the mapping has changed since.
            tracing::warn!(provider = &*provider.config.name, why, "a session names nobody: it is over");
            Rejected::Over
        })?;
        let until = until.min(session.ends());
        let facts = Facts { identity, expires: until, not_before: Timestamp::from_millis(0) };
        let renewed = match (&found.kept, found.succeeded) {
            (None, true) => Some(self.cookie_of(origin, session, now.wall).map_err(|_| Rejected::Silent)?),
            _ => None,
        };
        let access_token = session.access_token.clone().filter(|_| self.passes_tokens);
        let of_session = OfSession { marks, renewed: renewed.map(Into::into), access_token };
        let lasts = match (&found.kept, found.succeeded) {
            (None, true) => SUCCESSION,
            _ => self.limits.ttl,
        };
        let lasts = if provider.is_openshift() { lasts.min(self.config.ttl) } else { lasts };
        let life = Lifetime { expires: until, until: Some(now.monotonic + lasts) };
        Ok((Arc::new(self.rendering.verified_session(facts, of_session)), life))
    }

    fn provider_of(&self, session: &Session) -> Option<&Provider> {
        self.providers.iter().find(|provider| *provider.config.name == *session.provider)
    }

    /// Finds the session of a cookie, renewed if that is due.
    async fn recognise(&self, origin: usize, cookie: &[u8]) -> Result<Good, Rejected> {
        let now = || self.surroundings.clock.now().wall;
        let mut found = self.find(origin, cookie, now()).await?;
        let began = now();
        loop {
            let session = &found.session;
            if session.is_over(self.config.idle, now()) || self.shared.ended.holds(&session.marks()) {
                return Err(Rejected::Over);
            }
            let provider = self.provider_of(session).ok_or(Rejected::Over)?;
            if !session.is_due(now()) {
                let until = Timestamp::from_millis(session.fresh);
                // Its tokens can be revoked, and only it knows.
                let told =
                    if provider.is_openshift() { Some(self.ask(provider, session).await?) } else { None };
                return Ok(Good { found, claims: told.map(|told| told.claims), until });
            }
            let renewed = match (&self.store, found.kept) {
                (Some(store), Some((id, version))) => {
                    let until = now().plus(CLAIM);
                    if store.claim(id, version, now(), until).await.map_err(|fault| self.silent(&fault))? {
                        self.renew_kept(origin, provider, &**store, &found).await
                    } else {
                        // Another process does: its answer will be there in a moment, unless it has ended.
                        if now().since(began) >= PATIENCE {
                            return self.forgiven(provider, found, now()).ok_or(Rejected::Silent);
                        }
                        tokio::time::sleep(LOOK).await;
                        found = self.find(origin, cookie, now()).await?;
                        continue;
                    }
                }
                _ => self.renew_carried(provider, cookie, &found.session).await,
            };
            return match renewed {
                Ok(Some(session)) => {
                    let until = Timestamp::from_millis(session.fresh);
                    let succeeded = found.kept.is_none();
                    Ok(Good { found: Found { session, succeeded, ..found }, claims: None, until })
                }
                Ok(None) => self.forgiven(provider, found, now()).ok_or(Rejected::Silent),
                Err(rejected) => Err(rejected),
            };
        }
    }

    /// A session of which nobody can say whether it still holds. Its own token does, for a while; but for one that can be
    /// deleted before.
    #[expect(clippy::unused_self, reason = "one of the ways a session is judged, like those beside it")]
    fn forgiven(&self, provider: &Provider, found: Found, now: Timestamp) -> Option<Good> {
        let expires = Timestamp::from_millis(found.session.expires);
        let forgiven = !provider.is_openshift() && now < expires;
        forgiven.then(|| Good { found, claims: None, until: now.plus(RETRY).min(expires) })
    }

    /// The store gives no answer.
    fn silent(&self, fault: &StoreFault) -> Rejected {
        if self.shared.told.store.is_due() {
            tracing::warn!(%fault, "nobody can say whose session a cookie is: answered 503, said once in 10 s");
        }
        Rejected::Silent
    }

    async fn find(&self, origin: usize, cookie: &[u8], now: Timestamp) -> Result<Found, Rejected> {
        let (keys, place) = (&self.config.keys, &*self.config.origins[origin].text);
        let Some(store) = &self.store else {
            let session = Session::of_cookie(keys, place, cookie).ok_or(Rejected::Over)?;
            let successor = self.shared.renewals.successor(cookie, now).filter(|_| session.is_due(now));
            return Ok(match successor {
                Some(session) => Found { session: Session::clone(&session), kept: None, succeeded: true },
                None => Found { session, kept: None, succeeded: false },
            });
        };
        if !super::attempt::is_browser(cookie) {
            return Err(Rejected::Over);
        }
        let id = kept_as(cookie);
        let kept = store.find(id, now).await.map_err(|fault| self.silent(&fault))?.ok_or(Rejected::Over)?;
        let session = Session::of_content(keys, place, &id, &kept.content).ok_or(Rejected::Over)?;
        Ok(Found { session, kept: Some((id, kept.version)), succeeded: false })
    }

    /// Asks the provider; what it says for certain is an answer, silence is not.
    async fn ask(&self, provider: &Provider, session: &Session) -> Result<Told, Rejected> {
        let now = self.surroundings.clock.now().wall;
        let counts = &self.shared.counts;
        match provider.renew(session, now).await {
            Ok(told) => {
                counts.renewed.fetch_add(1, Relaxed);
                Ok(told)
            }
            Err(fault) if fault.is_final() => {
                counts.renewal_refused.fetch_add(1, Relaxed);
                tracing::debug!(provider = &*provider.config.name, %fault, "a session is over");
                Err(Rejected::Over)
            }
            Err(fault) => {
                counts.renewal_failed.fetch_add(1, Relaxed);
                if self.shared.told.provider.is_due() {
                    tracing::warn!(
                        provider = &*provider.config.name,
                        %fault,
                        "nobody can say whether a session still holds, said once in 10 s"
                    );
                }
                Err(Rejected::Silent)
            }
        }
    }

    /// Renews a session that a store keeps, by the right to do so. `None`: the provider gives no answer.
    async fn renew_kept(
        &self,
        origin: usize,
        provider: &Provider,
        store: &dyn SessionStore,
        found: &Found,
    ) -> Result<Option<Session>, Rejected> {
        let Some((id, version)) = found.kept else { return Err(Rejected::Silent) };
        let told = match self.ask(provider, &found.session).await {
            Ok(told) => told,
            Err(Rejected::Over) => {
                store.remove(id).await.map_err(|fault| self.silent(&fault))?;
                return Err(Rejected::Over);
            }
            Err(Rejected::Silent) => {
                store.release(id, version).await.map_err(|fault| self.silent(&fault))?;
                return Ok(None);
            }
        };
        let session = self.prolonged(&found.session, told);
        let place = &*self.config.origins[origin].text;
        let content = session.content(&self.config.keys, place, &id, &self.random).map_err(sealed)?;
        // False: somebody ended it in the meantime, and what it was just given must not live on.
        if store.replace(id, version, content).await.map_err(|fault| self.silent(&fault))? {
            return Ok(Some(session));
        }
        let _ = provider.revoke(&session).await;
        Err(Rejected::Over)
    }

    /// Renews a session that its browser keeps, unless somebody has just done so.
    async fn renew_carried(
        &self,
        provider: &Provider,
        cookie: &[u8],
        session: &Session,
    ) -> Result<Option<Session>, Rejected> {
        let renewals = &self.shared.renewals;
        let lock = renewals.lock(&session.id);
        let held = lock.lock().await;
        let now = self.surroundings.clock.now().wall;
        let answer = match renewals.successor(cookie, now) {
            Some(successor) => Ok(Some(Session::clone(&successor))),
            None => match self.ask(provider, session).await {
                Ok(told) => {
                    let session = self.prolonged(session, told);
                    renewals.remember(cookie, &session, now);
                    Ok(Some(session))
                }
                Err(Rejected::Silent) => Ok(None),
                Err(Rejected::Over) => Err(Rejected::Over),
            },
        };
        drop(held);
        renewals.unlock(&session.id, &lock);
        answer
    }

    /// A session by what its provider says now.
    fn prolonged(&self, session: &Session, told: Told) -> Session {
        let now = self.surroundings.clock.now().wall;
        let (fresh, expires) = self.times(told.lasts, now);
        Session {
            access_token: self.kept_access_token(&told),
            sid: told.sid,
            claims: told.claims,
            fresh,
            expires,
            refresh_token: told.refresh_token,
            id_token: told.id_token,
            ..session.clone()
        }
    }

    /// When to ask again, and when the access token ends. Asked a little earlier than it ends, it never ends under way.
    fn times(&self, lasts: Option<Duration>, now: Timestamp) -> (u64, u64) {
        let lasts = lasts.unwrap_or(self.config.refresh);
        let fresh = now.plus(self.config.refresh.min(lasts / 10 * 9));
        (fresh.as_millis(), now.plus(lasts).as_millis())
    }

    /// The access token, where somebody will want it: an upstream, or we, to ask whose it is.
    fn kept_access_token(&self, told: &Told) -> Option<zeroize::Zeroizing<String>> {
        let wanted = self.passes_tokens || told.refresh_token.is_none();
        wanted.then(|| told.access_token.clone())
    }

    /// Begins a session; gives the `Set-Cookie` for it.
    pub(super) async fn begin(
        &self,
        origin: usize,
        provider: &Provider,
        told: Told,
    ) -> Result<String, BeginFault> {
        let now = self.surroundings.clock.now().wall;
        let (fresh, expires) = self.times(told.lasts, now);
        let session = Session {
            id: random_text::<16>(&self.random).map_err(SealFault::from)?,
            provider: provider.config.name.to_string(),
            subject: told.subject.clone(),
            sid: told.sid.clone(),
            claims: told.claims.clone(),
            began: now.as_millis(),
            ends: now.plus(self.config.lifetime).as_millis(),
            fresh,
            expires,
            access_token: self.kept_access_token(&told),
            refresh_token: told.refresh_token,
            id_token: told.id_token,
        };
        let Some(store) = &self.store else { return Ok(self.cookie_of(origin, &session, now)?) };
        let secret = random_text::<32>(&self.random).map_err(SealFault::from)?;
        let id = kept_as(secret.as_bytes());
        let place = &self.config.origins[origin];
        let marks = session.marks();
        let content = session.content(&self.config.keys, &place.text, &id, &self.random)?;
        let kept = Kept {
            id,
            subject: marks.subject,
            sid: marks.sid,
            began: marks.began,
            ends: session.ends(),
            version: 0,
            content,
        };
        store.insert(kept).await?;
        Ok(Cookie::Session.set(place.https, &secret, session.ends().since(now)))
    }

    /// The `Set-Cookie` that is a session.
    fn cookie_of(&self, origin: usize, session: &Session, now: Timestamp) -> Result<String, SealFault> {
        let place = &self.config.origins[origin];
        let value = session.cookie(&self.config.keys, &place.text, &self.random)?;
        Ok(Cookie::Session.set(place.https, &value, session.ends().since(now)))
    }

    /// Ends the session of a cookie, here and in the store; gives it back for what is left to do elsewhere. `None`: there is
    /// none.
    pub(super) async fn end(&self, origin: usize, cookie: &[u8]) -> Result<Option<Session>, StoreFault> {
        let now = self.surroundings.clock.now().wall;
        let found = async || match self.find(origin, cookie, now).await {
            Ok(found) => Ok(Some(found)),
            Err(Rejected::Over) => Ok(None),
            Err(Rejected::Silent) => Err(StoreFault("see the log".to_owned())),
        };
        let Some(mut ended) = found().await? else { return Ok(None) };
        match (&self.store, ended.kept) {
            (Some(store), Some((id, _))) => {
                store.remove(id).await?;
            }
            _ => {
                // A renewal under way comes to its end first: it is its tokens that have to be revoked.
                let renewals = &self.shared.renewals;
                let lock = renewals.lock(&ended.session.id);
                let held = lock.lock().await;
                if let Some(successor) = renewals.successor(cookie, now) {
                    ended.session = Session::clone(&successor);
                }
                drop(held);
                renewals.unlock(&ended.session.id, &lock);
            }
        }
        let session = ended.session;
        let until = self.believed_until(session.ends(), now);
        self.shared.ended.end(session.marks().id, now, until);
        Ok(Some(session))
    }
}

/// Why no session begins.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginFault {
    #[error(transparent)]
    Seal(#[from] SealFault),
    #[error(transparent)]
    Store(#[from] StoreFault),
}

fn sealed(fault: SealFault) -> Rejected {
    tracing::error!(%fault, "a session cannot be kept");
    Rejected::Silent
}

impl Renewals {
    /// The lock of a session.
    fn lock(&self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.locks.lock().entry(id.to_owned()).or_default().clone()
    }

    /// Takes the lock off the table, unless somebody waits for it.
    fn unlock(&self, id: &str, lock: &Arc<tokio::sync::Mutex<()>>) {
        let mut locks = self.locks.lock();
        // The table's and ours.
        if Arc::strong_count(lock) <= 2 {
            locks.remove(id);
        }
    }

    /// What came of a cookie.
    fn successor(&self, cookie: &[u8], now: Timestamp) -> Option<Arc<Session>> {
        let successors = self.successors.lock();
        successors.get(&kept_as(cookie)).filter(|(_, until)| now < *until).map(|(session, _)| session.clone())
    }

    fn remember(&self, cookie: &[u8], session: &Session, now: Timestamp) {
        let mut successors = self.successors.lock();
        if successors.len() >= SUCCESSORS {
            successors.retain(|_, (_, until)| now < *until);
        }
        if successors.len() >= SUCCESSORS {
            // Whoever loses its place logs in again, which the provider makes short.
            let oldest = successors.iter().min_by_key(|(_, (_, until))| *until).map(|(digest, _)| *digest);
            oldest.map(|digest| successors.remove(&digest));
        }
        successors.insert(kept_as(cookie), (Arc::new(session.clone()), now.plus(SUCCESSION)));
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        self.successors.lock().retain(|_, (_, until)| now < *until);
    }
}
