//! Session lookup: authenticates a session cookie that is not in the cache.
//!
//! Owns: whether the session is valid, by its own times, by the list of revoked sessions, by an
//! earlier refusal of its provider, and by its provider when that is due; and the resulting fact.
//! Does not own: where the session is kept ([`super::session_search`]), asking the provider
//! ([`super::renew`]).

use std::sync::Arc;
use std::time::Duration;

use auth::identity::Facts;
use auth::time::Timestamp;
use credentials::authenticate::{SessionCredential, Verified};
use credentials::cache::{self, EntryBasis, FlightResult, Lifetime, Ticket};
use credentials::open_session::OpenSession;
use credentials::revocation::{FollowedIssuer, IssuerAnswer, RevocableToken, TokenEvidence};
use credentials::revoked_sessions::SessionKeysToRevoke;
use http_engine::clock::Now;
use telemetry::phases::CacheUse;

use super::provider::LoginProviderClient;
use super::renew::{RETRY, Renewed, SUCCESSOR_TTL};
use super::session::BrowserSession;
use super::session_search::{FoundSession, session_too_large, store_unavailable};
use super::{Login, SessionLookup, SessionRejected};
use crate::config::LoginKind;

/// Maximum rounds of lookup, waiting and processing for one request.
const MAX_ROUNDS: usize = 8;
/// Time limit for waiting for another process that renews a session.
const RENEWAL_WAIT: Duration = Duration::from_secs(5);
/// Interval at which the store is read while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a request may continue with a session whose renewal became due while it waited.
const REQUEST_GRACE: Duration = Duration::from_secs(30);

/// The result of a lookup, and how the cache contributed.
pub type SessionOutcome = (Result<Arc<Verified>, SessionRejected>, CacheUse);

/// A valid session with the data for its fact.
struct ValidSession {
    found: FoundSession,
    /// The provider's claims, if they were obtained in this lookup.
    claims: Option<String>,
    /// Until when the session is valid without another check.
    until: Timestamp,
    /// What can revoke the session, if its provider's log is followed, with the basis of the cache
    /// entry; without a basis nothing is cached.
    revocable: Option<(RevocableToken, Option<EntryBasis>)>,
}

impl Login {
    /// Authenticates a session cookie that [`Login::lookup`] does not know.
    pub async fn resolve(self: &Arc<Self>, origin: usize, cookie: &[u8]) -> SessionOutcome {
        let key = self.scopes[origin].key(cookie);
        let clock = &self.surroundings.clock;
        for _ in 0..MAX_ROUNDS {
            match self.cache.lookup(key, clock.now()) {
                cache::CacheLookup::Hit(verified) if self.is_ended(&verified) => {
                    return (Err(SessionRejected::Over), CacheUse::Denied);
                }
                cache::CacheLookup::Hit(verified) => return (Ok(verified), CacheUse::Hit),
                cache::CacheLookup::Denied(why) => return (Err(why), CacheUse::Denied),
                cache::CacheLookup::Pending(flight) => match flight.wait().await {
                    FlightResult::Known(verified) if self.is_ended(&verified) => {
                        return (Err(SessionRejected::Over), CacheUse::Denied);
                    }
                    FlightResult::Known(verified) => return (Ok(verified), CacheUse::Coalesced),
                    FlightResult::Denied(why) => return (Err(why), CacheUse::Coalesced),
                    FlightResult::Again => {}
                },
                cache::CacheLookup::Miss(ticket) => {
                    let (this, cookie) = (self.clone(), cookie.to_vec());
                    // Continues when the request is dropped: the renewed session must be available
                    // to later requests.
                    let finding = self.control().spawn(async move {
                        // The result may be as old as the start of the lookup.
                        let began = this.surroundings.clock.now();
                        let good = match this.load_session(origin, &cookie).await {
                            Ok(good) => this.check_revocation(good, &ticket).await,
                            Err(rejected) => Err(rejected),
                        };
                        let now = this.surroundings.clock.now();
                        match good.and_then(|good| this.verified(origin, good, began)) {
                            Ok((verified, life)) => ticket.fill(verified, life, now).map(Ok),
                            Err(SessionRejected::Over) => {
                                ticket.deny(SessionRejected::Over, now);
                                Ok(Err(SessionRejected::Over))
                            }
                            Err(SessionRejected::Unavailable) => {
                                ticket.fail(SessionRejected::Unavailable);
                                Ok(Err(SessionRejected::Unavailable))
                            }
                        }
                    });
                    match finding.await {
                        Ok(Ok(answer)) => return (answer, CacheUse::Miss),
                        // A flush overtook the lookup: look up again.
                        Ok(Err(cache::FlightVoided)) => {}
                        Err(_) => break,
                    }
                }
            }
        }
        (Err(SessionRejected::Unavailable), CacheUse::Miss)
    }

    /// The session of a cookie, cached or not.
    pub(super) async fn session_of(
        self: &Arc<Self>,
        origin: usize,
        cookie: Option<&[u8]>,
    ) -> Option<Result<Arc<Verified>, SessionRejected>> {
        let cookie = cookie?;
        match self.lookup(cookie, || self.name(origin, cookie), self.surroundings.clock.now()) {
            SessionLookup::Hit(verified) => Some(Ok(verified)),
            SessionLookup::Denied(why) => Some(Err(why)),
            SessionLookup::Unknown => Some(self.resolve(origin, cookie).await.0),
        }
    }

    /// Checks that the provider has not revoked the session, if its log is followed.
    async fn check_revocation(
        &self,
        good: ValidSession,
        ticket: &Ticket<Verified, SessionRejected>,
    ) -> Result<ValidSession, SessionRejected> {
        let session = &good.found.session;
        let provider = self.provider_of(session).ok_or(SessionRejected::Over)?;
        let Some(followed) = self.followed_of(provider) else { return Ok(good) };
        let email = followed.max_token_age.and_then(|_| session.email());
        let sealed = session.sealed_tags();
        let lineage = session.lineage(&provider.config.client_id, email.as_deref(), sealed.as_deref());
        if !followed.opens_tags_of(&lineage) {
            return Err(SessionRejected::Over);
        }
        let now = self.surroundings.clock.now().wall;
        let revocable = followed.revocable(&lineage, TokenEvidence::FromQuery, now);
        if !revocable.has_lease() {
            ticket.close();
        }
        match revocable.status_or_ask().await {
            IssuerAnswer::NotRevoked(hold) => {
                // Now that the fact has its position in the log, it is compared with events that
                // arrived while the provider was asked. An outdated fact is for this request alone.
                let hold = if self.has_outdated_claims(session).await? { None } else { hold };
                Ok(ValidSession { revocable: Some((revocable, hold)), ..good })
            }
            IssuerAnswer::Denied => Err(SessionRejected::Over),
            IssuerAnswer::NoAnswer => Err(SessionRejected::Unavailable),
        }
    }

    fn followed_of(&self, provider: &LoginProviderClient) -> Option<Arc<FollowedIssuer>> {
        let LoginKind::OpenId { issuer, .. } = &provider.config.kind else { return None };
        self.surroundings.follows.of(issuer)
    }

    /// Whether security events of the provider show that the user's claims have changed since they
    /// were obtained.
    pub(super) async fn has_outdated_claims(
        &self,
        session: &BrowserSession,
    ) -> Result<bool, SessionRejected> {
        let provider = self.provider_of(session).ok_or(SessionRejected::Over)?;
        let Some(followed) = self.followed_of(provider).filter(|followed| followed.max_token_age.is_some())
        else {
            return Ok(false);
        };
        let email = session.email();
        let lineage = session.lineage(&provider.config.client_id, email.as_deref(), None);
        let Some(outdated) = followed.claims_outdated(&lineage, session.claims_at()) else {
            return Ok(false);
        };
        match outdated.status_or_ask().await {
            IssuerAnswer::NotRevoked(_) => Ok(false),
            IssuerAnswer::Denied => Ok(true),
            IssuerAnswer::NoAnswer => Err(SessionRejected::Unavailable),
        }
    }

    /// The fact of a session, and how long it is valid.
    fn verified(
        &self,
        origin: usize,
        good: ValidSession,
        began: Now,
    ) -> Result<(Arc<Verified>, Lifetime), SessionRejected> {
        let ValidSession { found, claims, until, revocable } = good;
        let session = &found.session;
        let store_key = found.store_entry.map(|(id, _)| id);
        let marks = SessionKeysToRevoke { store_key, ..session.revocation_keys() };
        if self.shared.ended.is_revoked(&marks) {
            return Err(SessionRejected::Over);
        }
        let provider = self.provider_of(session).ok_or(SessionRejected::Over)?;
        let current_claims = claims.as_deref().unwrap_or(&session.claims);
        let identity = super::session::identity(&provider.config, current_claims, session.more.as_deref());
        let identity = identity.map_err(|why| {
            // It was valid at first: the mapping has changed since.
            tracing::warn!(
                provider = &*provider.config.name,
                why,
                "session has no mapped identity, signed out"
            );
            SessionRejected::Over
        })?;
        let until = until.min(session.ends(&self.config));
        // A request that waits for something else may continue with it: a session that is due for
        // renewal has not ended.
        let expires = until.plus(REQUEST_GRACE).min(session.ends(&self.config));
        let facts = Facts { identity, expires, not_before: Timestamp::from_millis(0) };
        let renewed = match (&found.store_entry, found.is_successor) {
            (None, true) => {
                Some(self.cookie_of(origin, session, began.wall).map_err(|fault| session_too_large(&fault))?)
            }
            _ => None,
        };
        let access_token = session.access_token.clone().filter(|_| self.forwards.access_token);
        let id_token = session.id_token.clone().filter(|_| self.forwards.id_token);
        let lasting =
            OpenSession { marks, ends: session.ends(&self.config), sources: self.session_sources.clone() };
        let of_session = SessionCredential {
            open_session: lasting,
            renewed: renewed.map(Into::into),
            access_token,
            id_token,
        };
        let ttl = match (&found.store_entry, found.is_successor) {
            (None, true) => SUCCESSOR_TTL,
            _ => self.limits.ttl,
        };
        let ttl = if provider.is_openshift() { ttl.min(self.config.ttl) } else { ttl };
        let (revocable, hold) = revocable.unzip();
        let ttl = if matches!(hold, Some(None)) { Duration::ZERO } else { ttl };
        let life = Lifetime { expires: until, until: Some(began.monotonic + ttl), basis: hold.flatten() };
        let verified = self.rendering.verified_session(facts, of_session).until_revoked(revocable);
        Ok((Arc::new(verified), life))
    }

    pub(super) fn provider_of(&self, session: &BrowserSession) -> Option<&LoginProviderClient> {
        let is_his = |provider: &&LoginProviderClient| {
            *provider.config.name == *session.provider && provider.binding == session.binding
        };
        self.providers.iter().find(is_his)
    }

    /// Finds the session of a cookie, and renews it if that is due.
    async fn load_session(&self, origin: usize, cookie: &[u8]) -> Result<ValidSession, SessionRejected> {
        let now = || self.surroundings.clock.now().wall;
        let mut found = self.find(origin, cookie, now()).await?;
        let began = now();
        loop {
            let session = &found.session;
            if session.is_over(&self.config, now())
                || self.shared.ended.is_revoked(&session.revocation_keys())
                || self.shared.renewals.is_refused(session)
            {
                return Err(SessionRejected::Over);
            }
            let provider = self.provider_of(session).ok_or(SessionRejected::Over)?;
            if self.followed_of(provider).is_some_and(|followed| followed.query_desk.is_silent()) {
                // Whether the session was revoked cannot be determined now.
                return Err(SessionRejected::Unavailable);
            }
            let outdated = self.has_outdated_claims(session).await?;
            if !outdated && !session.needs_renewal(now()) {
                let until = Timestamp::from_millis(session.fresh);
                // Its tokens can be revoked, and only the provider knows.
                let tokens = if provider.is_openshift() {
                    Some(self.ask_provider(provider, session).await?)
                } else {
                    None
                };
                return Ok(ValidSession {
                    found,
                    claims: tokens.map(|tokens| tokens.claims),
                    until,
                    revocable: None,
                });
            }
            let renewed = match (&self.store, found.store_entry) {
                (Some(store), Some((id, version))) => {
                    let until = now().plus(provider.max_renewal());
                    if store.claim(id, version, now(), until).await.map_err(store_unavailable)? {
                        self.renew_stored(origin, provider, &**store, &found).await
                    } else {
                        // Another process renews it: the result will be there in a moment, unless
                        // that process has ended.
                        if now().since(began) >= RENEWAL_WAIT {
                            let forgiven =
                                if outdated { None } else { self.accept_unconfirmed(provider, found, now()) };
                            return forgiven.ok_or(SessionRejected::Unavailable);
                        }
                        tokio::time::sleep(POLL_INTERVAL).await;
                        found = self.find(origin, cookie, now()).await?;
                        continue;
                    }
                }
                _ => self.renew_in_cookie(provider, &found.session).await,
            };
            return match renewed {
                // Outdated claims authorize no request. If the provider was asked and the changed
                // claims cannot be obtained, the user logs in again. If the provider gave no
                // answer, the client retries.
                Ok(Some(Renewed { session, confirmed }))
                    if outdated && self.has_outdated_claims(&session).await? =>
                {
                    Err(if confirmed { SessionRejected::Over } else { SessionRejected::Unavailable })
                }
                Ok(None) if outdated => Err(SessionRejected::Unavailable),
                Ok(Some(Renewed { session, .. })) => {
                    let until = Timestamp::from_millis(session.fresh);
                    let succeeded = found.store_entry.is_none();
                    let found = FoundSession { session, is_successor: succeeded, ..found };
                    Ok(ValidSession { found, claims: None, until, revocable: None })
                }
                Ok(None) => {
                    self.accept_unconfirmed(provider, found, now()).ok_or(SessionRejected::Unavailable)
                }
                Err(rejected) => Err(rejected),
            };
        }
    }

    /// Accepts a session that cannot be confirmed now, for a while, as long as its access token is
    /// valid. Not for `OpenShift`, whose tokens can be deleted earlier.
    #[expect(clippy::unused_self, reason = "one of the ways a session is judged, like those beside it")]
    fn accept_unconfirmed(
        &self,
        provider: &LoginProviderClient,
        found: FoundSession,
        now: Timestamp,
    ) -> Option<ValidSession> {
        let expires = Timestamp::from_millis(found.session.expires);
        let forgiven = !provider.is_openshift() && now < expires;
        let until = now.plus(RETRY).min(expires);
        forgiven.then(|| ValidSession { found, claims: None, until, revocable: None })
    }
}
