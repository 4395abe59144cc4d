//! Login with a browser (OpenID relying party): sessions as a credential, and the pages around
//! them.
//!
//! Owns:
//!
//! - the session of a cookie ([`Login::lookup`], `session_search`, `session_lookup`);
//! - the addresses below the login's path (`endpoints`, `backchannel`, `pages`);
//! - the provider's answers (`provider`), and renewal (`renew`);
//! - sealing ([`keys`], `session`, `login_state`);
//! - sessions that ended elsewhere (`revocation_poll`), logins during a logout (`session_locks`).
//!
//! Does not own: the decision (a session is a credential like a token, and its facts take the same
//! path), the session store and the list of revoked sessions (`credentials`), the database, the
//! provider's side.
//!
//! Flow of a login: `a page without a session → 303 start → the provider → callback: code for
//! tokens, tokens for facts → a session in a cookie or a store → back to the page`. Flow of a
//! request with a session: `lookup` (hot, synchronous) `→ Hit | Denied`, or `Unknown`, then
//! `find_out`: open the cookie or read the store, ask the provider when that is due
//! `→ Verified | Rejected`.
//!
//! I/O runs on the control runtime, and continues when the request is dropped: a refresh token that
//! was used must not be lost with the request that happened to need it.

pub mod auth_conditions;
mod backchannel;
pub mod call;
pub mod config;
mod endpoints;
pub mod keys;
mod lifecycle;
pub(crate) mod login_state;
mod navigation;
pub mod pages;
pub mod preview;
mod provider;
mod redirect;
mod renew;
mod revocation_poll;
pub(crate) mod session;
mod session_locks;
mod session_lookup;
mod session_search;
#[cfg(test)]
mod test_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::rand::SystemRandom;
use credentials::assertion::AssertionReserve;
use credentials::authenticate::{
    Authenticator, AuthenticatorRuntime, KeyOrigin, KeySchedule, KeyStore, KeyStoreRuntime, Rendering,
    Verified,
};
use credentials::cache::{CacheKey, CacheScope, DecisionCache, KnownFacts, Usage};
use credentials::config::CacheLimits;
use credentials::cookies::CookieReach;
use credentials::open_session::SessionStatusSources;
use credentials::revoked_sessions::RevokedSessions;
use credentials::session_store::{Bounded, SWEEP, SessionStore};
use http_engine::clock::Now;
use http_engine::http_client::Throttle;
use telemetry::metrics::{Collect, Encoder, FamilyKind};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use self::backchannel::SeenLogouts;
use self::provider::LoginProviderClient;
use self::renew::Renewals;
use self::session_locks::SessionLocks;
use crate::config::LoginKind;
use crate::login_state::UsedStates;
pub use crate::session_lookup::SessionOutcome;

/// Maximum number of calls to the login's own addresses at once.
const MAX_CALLS: usize = 1024;
/// Maximum time that facts of a session that ended elsewhere may still be in use here.
const MAX_IN_FLIGHT: Duration = Duration::from_mins(1);
/// Maximum bytes of a cookie that can be a session's.
const MAX_COOKIE: usize = 4096;
/// Schedule on which metadata and keys of a provider are fetched: the default of issuers.
const KEY_SCHEDULE: KeySchedule =
    KeySchedule { refresh: Duration::from_mins(5), max_stale: Duration::from_hours(1) };

/// Why a session is no credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRejected {
    /// There is no session, or not any more: the user has to log in.
    Over,
    /// The session cannot be checked now: 503.
    Unavailable,
}

/// The cached result for a session.
pub enum SessionLookup {
    /// The session is valid.
    Hit(Arc<Verified>),
    /// The session is not a credential, for this reason.
    Denied(SessionRejected),
    /// Not cached: call [`Login::resolve`].
    Unknown,
}

/// The login under one configuration. Shared by all workers; replaced as a whole on reload.
pub struct Login {
    config: Arc<crate::config::LoginConfig>,
    /// The tokens that some route forwards, so that sessions keep them.
    forwards: ForwardedTokens,
    /// The cache scope of each origin: a cookie of one origin is not valid at another, unless they
    /// share a session.
    scopes: Box<[CacheScope]>,
    providers: Box<[LoginProviderClient]>,
    key_stores: Box<[Option<Arc<KeyStore>>]>,
    cache: DecisionCache<Verified, SessionRejected>,
    limits: CacheLimits,
    rendering: Rendering,
    store: Option<Arc<dyn SessionStore>>,
    shared: Arc<LoginState>,
    session_sources: Arc<SessionStatusSources>,
    surroundings: AuthenticatorRuntime,
    random: SystemRandom,
    /// Limit of concurrent calls, because their clients are unauthenticated.
    call_limit: Arc<Semaphore>,
    sweeper: std::sync::OnceLock<AbortHandle>,
    follower: std::sync::OnceLock<AbortHandle>,
}

/// State that outlives a configuration.
#[derive(Default)]
struct LoginState {
    ended: Arc<RevokedSessions>,
    used: UsedStates,
    logouts: SeenLogouts,
    session_locks: SessionLocks,
    renewals: Renewals,
    counts: OutcomeCounts,
    log_throttles: LogThrottles,
    /// When a session was last searched in the store, in milliseconds since 1970.
    last_store_search: AtomicU64,
}

/// Throttles for log lines that any client can cause.
#[derive(Default)]
struct LogThrottles {
    login: Throttle,
    logout: Throttle,
}

/// Counters of outcomes.
#[derive(Default)]
struct OutcomeCounts {
    logins: AtomicU64,
    login_refused: AtomicU64,
    login_failed: AtomicU64,
    renewed: AtomicU64,
    renewal_refused: AtomicU64,
    renewal_failed: AtomicU64,
    logouts: AtomicU64,
    provider_logouts: AtomicU64,
}

/// Counters of the login, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoginStatus {
    /// Sessions begun.
    pub logins: u64,
    /// Logins refused by the provider, or because of its answer.
    pub login_refused: u64,
    /// Logins that failed because of a missing answer.
    pub login_failed: u64,
    /// Sessions that their provider confirmed.
    pub renewed: u64,
    /// Sessions that their provider ended.
    pub renewal_refused: u64,
    /// Renewals without an answer about the session.
    pub renewal_failed: u64,
    /// Sessions that their user ended.
    pub logouts: u64,
    /// Logout tokens of providers that were accepted.
    pub provider_logouts: u64,
    /// Entries in the list of revoked sessions.
    pub ended: usize,
    /// Usage of the session cache.
    pub cache: Usage,
}

impl Collect for LoginStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        let Some(logins) = all.first() else { return };
        let help = "Logins that returned from a provider, by result.";
        let mut family = e.family("postern_logins", FamilyKind::Counter, help);
        for (result, count) in
            [("good", logins.logins), ("refused", logins.login_refused), ("failed", logins.login_failed)]
        {
            family.sample(&[("result", result)], count);
        }
        let help = "Session renewals at a provider, by result.";
        let mut family = e.family("postern_session_renewals", FamilyKind::Counter, help);
        for (result, count) in
            [("good", logins.renewed), ("refused", logins.renewal_refused), ("failed", logins.renewal_failed)]
        {
            family.sample(&[("result", result)], count);
        }
        let help =
            "Logouts, by initiator: sessions ended by their user, and accepted logout tokens of providers.";
        let mut family = e.family("postern_logouts", FamilyKind::Counter, help);
        for (initiator, count) in [("holder", logins.logouts), ("provider", logins.provider_logouts)] {
            family.sample(&[("by", initiator)], count);
        }
        e.family("postern_sessions_ended", FamilyKind::Gauge, "Entries in the list of revoked sessions.")
            .sample(&[], logins.ended as u64);
        e.family("postern_sessions_cached", FamilyKind::Gauge, "Sessions with cached facts.")
            .sample(&[], logins.cache.facts as u64);
    }
}

/// The tokens of sessions that some route forwards to its upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardedTokens {
    /// The access token.
    pub access_token: bool,
    /// The ID token.
    pub id_token: bool,
}

/// The parts of the configuration that the login depends on.
#[derive(Clone, Copy)]
pub struct LoginSetup<'a> {
    /// The login's own configuration.
    pub login: &'a Arc<config::LoginConfig>,
    /// The identity fields for the upstream, and the bounds of the cache.
    pub credentials: credentials::authenticate::AuthenticatorSetup<'a>,
    /// The tokens of a session that some route forwards to its upstream.
    pub forwards: ForwardedTokens,
    /// Issuers whose metadata and keys are those of a provider with the same URL.
    pub authenticator: &'a Authenticator,
}

impl Login {
    /// Creates the login of a configuration. `before` is the login that it replaces: its
    /// process-wide state is kept, and its cache too if nothing that shapes cached facts changed.
    pub fn new(
        setup: LoginSetup<'_>,
        surroundings: &AuthenticatorRuntime,
        store: Option<Arc<dyn SessionStore>>,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let LoginSetup { login, credentials, forwards, authenticator } = setup;
        let login = login.clone();
        let (headers, reserve) =
            (credentials.identity_headers.clone(), AssertionReserve::of(credentials.assertion));
        let limits = limits(&login, &credentials.authentication.cache, store.is_some());
        let reused = before.filter(|before| {
            before.config.version == login.version
                && before.limits == limits
                && before.forwards == forwards
                && before.rendering.is_like(&headers, reserve)
        });
        let variant = before.map_or(0, |before| before.rendering.variant() + u64::from(reused.is_none()));
        let cache = reused.map_or_else(
            || DecisionCache::new(&limits, surroundings.generation.clone()),
            |before| before.cache.clone(),
        );
        let mut key_stores = Vec::new();
        for provider in &login.providers {
            let found = key_store(provider, (authenticator, &key_stores), surroundings, before);
            key_stores.push(found);
        }
        let key_stores: Box<[_]> = key_stores.into();
        let (clock, control) = (&surroundings.clock, &surroundings.control);
        let providers = login.providers.iter().zip(&key_stores);
        let providers = providers.map(|(p, keys)| {
            let earlier = before.and_then(|b| b.providers.iter().find(|e| e.config.name == p.name));
            LoginProviderClient::new(p, keys.clone(), clock.clone(), control.clone(), earlier)
        });
        let store = store.map(|store| Arc::new(Bounded::new(store)) as Arc<dyn SessionStore>);
        let shared: Arc<LoginState> = before.map_or_else(Arc::default, |before| before.shared.clone());
        let signs = SessionStatusSources {
            clock: clock.clone(),
            ended: shared.ended.clone(),
            store: store.clone(),
            ttl: login.ttl,
        };
        let scope = |at: usize| {
            let place = if login.shared.is_some() { 0 } else { at as u64 };
            surroundings.secret.scope(login.version ^ place, variant)
        };
        let this = Arc::new(Self {
            scopes: (0..login.origin_count()).map(scope).collect(),
            providers: providers.collect(),
            key_stores,
            cache,
            limits,
            forwards,
            rendering: Rendering::new(headers, reserve, variant),
            store,
            shared,
            session_sources: Arc::new(signs),
            surroundings: surroundings.clone(),
            random: SystemRandom::new(),
            call_limit: Arc::new(Semaphore::new(MAX_CALLS)),
            sweeper: std::sync::OnceLock::new(),
            follower: std::sync::OnceLock::new(),
            config: login,
        });
        let weak = Arc::downgrade(&this);
        let sweeper = control.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(login) = weak.upgrade() else { return };
                login.sweep().await;
            }
        });
        let _ = this.sweeper.set(sweeper.abort_handle());
        if this.store.is_some() {
            let follower = control.spawn(revocation_poll::follow_store(Arc::downgrade(&this)));
            let _ = this.follower.set(follower.abort_handle());
        }
        this
    }

    /// Index of the origin of a request, by its canonical authority; `None`: there is no login at
    /// that host.
    pub fn origin(&self, authority: &str) -> Option<usize> {
        self.config.origin(authority)
    }

    /// How browsers keep the cookies of an origin.
    pub fn cookie_reach(&self, origin: usize) -> CookieReach<'_> {
        self.config.cookie_reach(origin)
    }

    /// The name of a session cookie of an origin in the cache of this login. Finding it costs more than
    /// looking the session up.
    pub fn name(&self, origin: usize, cookie: &[u8]) -> CacheKey {
        self.scopes[origin].key(cookie)
    }

    /// The cached result for a session cookie: the hot path. `name` finds its name; `now` may be a
    /// coarse reading.
    pub fn lookup(&self, cookie: &[u8], name: impl FnOnce() -> CacheKey, now: Now) -> SessionLookup {
        if cookie.len() > MAX_COOKIE {
            return SessionLookup::Denied(SessionRejected::Over);
        }
        match self.cache.peek(name(), now) {
            Some(KnownFacts::Fact(verified)) if self.is_ended(&verified) => {
                SessionLookup::Denied(SessionRejected::Over)
            }
            Some(KnownFacts::Fact(verified)) => SessionLookup::Hit(verified),
            Some(KnownFacts::Denied(why)) => SessionLookup::Denied(why),
            None => SessionLookup::Unknown,
        }
    }

    fn is_ended(&self, verified: &Verified) -> bool {
        verified
            .session
            .as_ref()
            .is_none_or(|session| self.shared.ended.is_revoked(&session.open_session.marks))
    }

    /// Until when facts of a session that ends now may still be in use here.
    fn facts_valid_until(&self, ends: Timestamp, now: Timestamp) -> Timestamp {
        match self.store {
            // The store reports the end; only facts read earlier can still be in use.
            Some(_) => now.plus(self.config.ttl).plus(MAX_IN_FLIGHT),
            None => ends,
        }
    }

    async fn sweep(&self) {
        let now = self.surroundings.clock.now().wall;
        self.shared.ended.sweep(now);
        self.shared.renewals.sweep(now);
        self.shared.logouts.sweep(now);
        if let Some(store) = &self.store
            && let Err(fault) = store.sweep(now).await
        {
            tracing::debug!(%fault, "deleting expired sessions failed, retrying");
        }
    }

    /// Counters of the login, for metrics.
    pub fn status(&self) -> LoginStatus {
        let counts = &self.shared.counts;
        LoginStatus {
            logins: counts.logins.load(Relaxed),
            login_refused: counts.login_refused.load(Relaxed),
            login_failed: counts.login_failed.load(Relaxed),
            renewed: counts.renewed.load(Relaxed),
            renewal_refused: counts.renewal_refused.load(Relaxed),
            renewal_failed: counts.renewal_failed.load(Relaxed),
            logouts: counts.logouts.load(Relaxed),
            provider_logouts: counts.provider_logouts.load(Relaxed),
            ended: self.shared.ended.entries(),
            cache: self.cache.usage(),
        }
    }

    fn control(&self) -> &Handle {
        &self.surroundings.control
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        for task in [&self.sweeper, &self.follower].into_iter().filter_map(std::sync::OnceLock::get) {
            task.abort();
        }
    }
}

/// Cache bounds for sessions, equal to those for tokens except for the time to live. A session in a
/// cookie is valid until its refresh is due; a session in a store is read again after `ttl`.
fn limits(login: &crate::config::LoginConfig, cache: &CacheLimits, stored: bool) -> CacheLimits {
    CacheLimits { ttl: if stored { login.ttl } else { login.refresh }, ..cache.clone() }
}

/// The key store of a provider's ID tokens, which has its metadata too. An issuer or a provider with
/// the same URL and the same trusted CAs shares its own; otherwise one with the same source is kept.
fn key_store(
    provider: &crate::config::LoginProvider,
    (authenticator, others): (&Authenticator, &[Option<Arc<KeyStore>>]),
    surroundings: &AuthenticatorRuntime,
    before: Option<&Arc<Login>>,
) -> Option<Arc<KeyStore>> {
    let LoginKind::OpenId { issuer, keys, tls, .. } = &provider.kind else { return None };
    let origin = KeyOrigin::new(issuer, keys.clone(), tls.clone(), provider.server.proxies.clone());
    let other = || others.iter().flatten().find(|keys| keys.has_origin(&origin)).cloned();
    if let Some(shared) = authenticator.key_store(&origin).or_else(other) {
        return Some(shared);
    }
    let earlier = before.and_then(|before| {
        let at = before.config.providers.iter().position(|earlier| earlier.name == provider.name)?;
        before.key_stores[at].as_ref()
    });
    let means = KeyStoreRuntime {
        clock: surroundings.clock.clone(),
        control: surroundings.control.clone(),
        secret: surroundings.secret.clone(),
        generation: surroundings.generation.clone(),
    };
    Some(KeyStore::start(&provider.name, origin, KEY_SCHEDULE, means, earlier))
}
