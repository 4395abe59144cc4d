//! Who is calling: from a credential to verified facts, through the cache.
//!
//! Owns: choosing the issuer, verification with its current keys, what a failure means, the key sets and
//! their refresh, client certificates. Does not own: finding the credential in the request, rules, answers.
//!
//! Flow: `lookup` (hot, sync) `→ Hit | Denied`, or `Unknown`, then `authenticate` (verify; for a key that is
//! unknown or may have changed fetch, wait within bounds, verify again; for what nobody can verify here ask the one
//! authority that may know) `→ Verified | Rejection`.
//!
//! A token is [`Rejection::Invalid`] when it is known to be bad, and the client is to be told 401. It is
//! [`Rejection::Unavailable`] or [`Rejection::Silent`] when nothing can be said because the issuer's keys cannot be had or
//! the authority gives no answer: 503 with `Retry-After`, never 403, never cached, never let pass.

mod authority;
mod certificate;
mod fetch;
mod key_source;
mod key_store;
mod verified;

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::headers::IdentityHeaders;
use auth::identity::Facts;
use auth::mapping::CertificateMapping;
use auth::token::IssuerConfig;
use auth::token::jwt::{self, MAX_TOKEN_BYTES};
use auth::token_error::TokenError;
use http_engine::clock::{Clock, Now};
use rustls_pki_types::CertificateDer;
use telemetry::phases::CacheUse;

use self::authority::AuthorityClient;
pub use self::authority::AuthorityStatus;
pub use self::certificate::CertificateError;
pub use self::fetch::FetchError;
pub use self::key_source::KeyOrigin;
pub use self::key_source::{SourceError, check as check_source, read_file as read_key_file};
pub use self::key_source::{key_url, metadata_urls};
pub use self::key_store::{DEMAND_INTERVAL, DEMAND_WAIT, KeySetStatus};
pub use self::key_store::{KeyRenewal, KeySchedule, KeyStore, KeyStoreRuntime};
pub use self::verified::SessionCredential;
pub use self::verified::Verified;
use crate::assertion::AssertionReserve;
use crate::cache::{
    self, CacheEntryBasis, CacheScope, CacheSecret, DecisionCache, FlightResult, FlightVoided, Generation,
    KnownFacts, Lifetime, Ticket, Usage,
};
use crate::config::{AssertionConfig, Authentication, CacheLimits, IssuerSource};
use crate::revocation::{
    AuthoritativeAnswer, FollowedIssuer, FollowedIssuers, IssuerAnswer, RevocableToken,
    RevocationStatus as Heard, TokenEvidence,
};
use crate::watch::WatchStatus;

/// Looking up, waiting and finding out, so often at most for one request. More than two rounds take flushes
/// or cancelled requests in between.
const ROUNDS: usize = 8;
/// Asking an authority about one token, so often at most: it may know less than what is known here.
const ASKED: usize = 2;
/// Fetching keys for one token, so often at most.
const RENEWALS: usize = 2;

/// Why a credential was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The token is bad: 401 `invalid_token` (RFC 6750 section 3.1).
    #[error(transparent)]
    Invalid(TokenError),
    /// Nobody can tell now, for the issuer's keys are lacking: 503.
    #[error("the keys of issuer {issuer} cannot be had now; see its source and the log")]
    Unavailable {
        /// The issuer's configured name.
        issuer: Arc<str>,
        /// When to ask again, at least 1 s.
        retry_after: Duration,
    },
    /// Nobody can tell now, for the authority that was asked gives no answer: 503.
    #[error("the authority {authority} does not say what the token is worth; see the log")]
    Silent {
        /// The authority's configured name.
        authority: Arc<str>,
    },
}

impl Rejection {
    /// Short name for logs and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(error) => error.code(),
            Self::Unavailable { .. } => "keys_unavailable",
            Self::Silent { .. } => "authority_unavailable",
        }
    }
}

/// What is known of a token at once.
pub enum CredentialLookup {
    /// Verified before, and still to be believed.
    Hit(Arc<Verified>),
    /// Rejected a moment ago.
    Denied(Rejection),
    /// To be found out by [`Authenticator::authenticate`].
    Unknown,
}

/// What came of a token, and what the cache had to do with it.
pub type AuthenticationOutcome = (Result<Arc<Verified>, Rejection>, CacheUse);

/// What an authenticator needs of the process; the same for all that replace each other.
#[derive(Clone)]
pub struct AuthenticatorRuntime {
    /// Tells the time to those who fetch keys.
    pub clock: Arc<dyn Clock>,
    /// The runtime that fetches keys: not a worker's.
    pub control: tokio::runtime::Handle,
    /// Drawn once per process.
    pub secret: CacheSecret,
    /// Voids cached facts; advanced here when a key is withdrawn.
    pub generation: Generation,
    /// Issuers that tell when they take something back.
    pub follows: FollowedIssuers,
}

/// The parts of the configuration that authentication rests on.
#[derive(Clone, Copy)]
pub struct AuthenticatorSetup<'a> {
    /// Issuers, certificates, cache bounds.
    pub authentication: &'a Authentication,
    /// What is rendered for the upstream.
    pub identity_headers: &'a IdentityHeaders,
    /// What is signed for the upstream; only its weight in the cache matters here.
    pub assertion: Option<&'a AssertionConfig>,
}

/// Answers who is calling. Shared by all workers; replaced as a whole on reload.
pub struct Authenticator {
    issuers: Box<[IssuerKeys]>,
    authorities: Box<[AuthorityClient]>,
    certificates: Option<CertificateMapping>,
    rendering: Rendering,
    cache: DecisionCache<Verified, Rejection>,
    limits: CacheLimits,
    scope: CacheScope,
    version: u64,
    surroundings: AuthenticatorRuntime,
}

/// Whoever signs, with the keys.
struct IssuerKeys {
    config: Arc<IssuerConfig>,
    name: Arc<str>,
    keys: Arc<KeyStore>,
    /// It tells when it takes a token back.
    followed: Option<Arc<FollowedIssuer>>,
}

/// What shapes a cached value beside the facts.
pub struct Rendering {
    headers: IdentityHeaders,
    reserve: AssertionReserve,
    /// Counts the changes of the other two within this process.
    variant: u64,
}

impl Authenticator {
    /// The first of a process: an empty cache, and keys being fetched from now on.
    pub fn new(setup: AuthenticatorSetup<'_>, surroundings: AuthenticatorRuntime) -> Self {
        Self::build(setup, surroundings, None)
    }

    /// The successor under a new configuration. Keeps the key sets of issuers whose keys come from where they
    /// came from, and the cached facts when [`Authentication::version`], the cache's bounds and the rendering
    /// are what they were. Both may be used side by side until the last request of the old one is done.
    #[must_use]
    pub fn rebuild(&self, setup: AuthenticatorSetup<'_>) -> Self {
        Self::build(setup, self.surroundings.clone(), Some(self))
    }

    fn build(
        setup: AuthenticatorSetup<'_>,
        surroundings: AuthenticatorRuntime,
        before: Option<&Self>,
    ) -> Self {
        let Authentication { issuers, authorities, certificates, cache: limits, version, .. } =
            setup.authentication;
        let (headers, reserve) = (setup.identity_headers.clone(), AssertionReserve::of(setup.assertion));
        let variant = before.map_or(0, |before| {
            let old = &before.rendering;
            old.variant + u64::from(!old.is_like(&headers, reserve))
        });
        // Keys of another version or variant are never looked up again; an own cache frees their bytes.
        let kept = before.filter(|before| {
            before.version == *version && before.rendering.variant == variant && before.limits == *limits
        });
        let cache = kept.map_or_else(
            || DecisionCache::new(limits, surroundings.generation.clone()),
            |before| before.cache.clone(),
        );
        Self {
            issuers: issuers
                .iter()
                .map(|issuer| {
                    let same = |other: &&IssuerKeys| other.config.issuer() == issuer.config.issuer();
                    let before = before.and_then(|before| before.issuers.iter().find(same));
                    IssuerKeys::new(issuer, &surroundings, before)
                })
                .collect(),
            authorities: authorities
                .iter()
                .map(|authority| {
                    let same = |other: &&AuthorityClient| other.config.name == authority.config.name;
                    let before = before.and_then(|before| before.authorities.iter().find(same));
                    AuthorityClient::new(authority, &surroundings, before)
                })
                .collect(),
            certificates: certificates.clone(),
            rendering: Rendering { headers, reserve, variant },
            cache,
            limits: limits.clone(),
            scope: surroundings.secret.scope(*version, variant),
            version: *version,
            surroundings,
        }
    }

    /// What is known of a token at once: the hot path. `now` may be a coarse reading.
    pub fn lookup(&self, token: &[u8], now: Now) -> CredentialLookup {
        // Nothing longer is ever a fact; its digest is not worth computing.
        if token.len() > MAX_TOKEN_BYTES {
            return CredentialLookup::Denied(Rejection::Invalid(TokenError::TooLarge));
        }
        match self.cache.peek(self.scope.key(token), now) {
            Some(KnownFacts::Fact(verified)) => CredentialLookup::Hit(verified),
            Some(KnownFacts::Denied(why)) => CredentialLookup::Denied(why),
            None => CredentialLookup::Unknown,
        }
    }

    /// Until when a token is believed that [`Authenticator::lookup`] knows; `None`: it does not, or not any more.
    pub fn until(&self, token: &[u8], now: Now) -> Option<Instant> {
        self.cache.until(self.scope.key(token), now).map(|(until, _)| until)
    }

    /// Finds out about a token that [`Authenticator::lookup`] does not know: waits for who is finding out
    /// already, or verifies, and if keys are lacking waits for them, up to [`DEMAND_WAIT`] each time. `now`
    /// reads the clock; waiting makes an earlier reading old.
    pub async fn authenticate(&self, token: &[u8], now: impl Fn() -> Now) -> AuthenticationOutcome {
        if token.len() > MAX_TOKEN_BYTES {
            return (Err(Rejection::Invalid(TokenError::TooLarge)), CacheUse::Denied);
        }
        let key = self.scope.key(token);
        for _ in 0..ROUNDS {
            match self.cache.lookup(key, now()) {
                cache::CacheLookup::Hit(verified) => return (Ok(verified), CacheUse::Hit),
                cache::CacheLookup::Denied(why) => return (Err(why), CacheUse::Denied),
                cache::CacheLookup::Pending(flight) => match flight.land().await {
                    FlightResult::Known(verified) => return (Ok(verified), CacheUse::Coalesced),
                    FlightResult::Denied(why) => return (Err(why), CacheUse::Coalesced),
                    FlightResult::Again => {}
                },
                cache::CacheLookup::Miss(ticket) => {
                    // Voided by a flush, the answer proves nothing.
                    if let Ok(answer) = self.find_out(token, ticket, &now).await {
                        return (answer, CacheUse::Miss);
                    }
                }
            }
        }
        // Flushes outran every attempt: keys change faster than a signature is checked.
        self.not_in_time()
    }

    /// What is answered to somebody who waits no longer.
    pub fn not_in_time(&self) -> AuthenticationOutcome {
        (Err(self.unavailable()), CacheUse::Miss)
    }

    fn unavailable(&self) -> Rejection {
        let issuer = self.issuers.first().map_or_else(|| "none".into(), |issuer| issuer.name.clone());
        Rejection::Unavailable { issuer, retry_after: Duration::from_secs(1) }
    }

    /// Who holds a client certificate whose chain was verified in the handshake; the end-entity certificate
    /// is meant. Not cached here: ask once per connection, keep the answer with it, and judge
    /// [`auth::identity::Facts::valid_at`] for each request.
    ///
    /// # Errors
    /// When certificates are no credential here, or this one says nothing usable.
    pub fn certificate(
        &self,
        end_entity: &CertificateDer<'_>,
        now: Now,
    ) -> Result<Arc<Verified>, CertificateError> {
        let mapping = self.certificates.as_ref().ok_or(CertificateError::NotConfigured)?;
        let facts = certificate::facts(end_entity, mapping, now.wall)?;
        Ok(Arc::new(self.rendering.verified(facts, None)))
    }

    /// How the key set of each issuer stands, in configured order; then of each authority whose answers are signed.
    pub fn key_sets(&self) -> Vec<KeySetStatus> {
        let now = self.surroundings.clock.now();
        self.signers().map(|signer| signer.keys.status(now)).collect()
    }

    /// Everybody whose signatures are verified here.
    fn signers(&self) -> impl Iterator<Item = &IssuerKeys> {
        self.issuers.iter().chain(self.authorities.iter().filter_map(AuthorityClient::signer))
    }

    /// How each authority stands, in configured order.
    pub fn authorities(&self) -> Vec<AuthorityStatus> {
        self.authorities.iter().map(AuthorityClient::status).collect()
    }

    /// Begins to watch what authorities' answers rest on, where that is wanted. What is watched already stays so.
    pub fn watch(&self) {
        for authority in &self.authorities {
            authority.watches().start();
        }
    }

    /// How the authorities' watches stand.
    pub fn watches(&self) -> impl Iterator<Item = WatchStatus> {
        self.authorities.iter().flat_map(|authority| authority.watches().status())
    }

    /// Returns once keys were asked for at least once for everybody who signs, with or without success.
    pub async fn first_fetches(&self) {
        for signer in self.signers() {
            signer.keys.first_attempt().await;
        }
    }

    /// What some credential in use rests on, if its issuer is followed: to be audited ([`crate::revocation::audit`]).
    pub fn any_held(&self, random: u64) -> Option<Arc<CacheEntryBasis>> {
        self.cache.any_held(random)
    }

    /// What the cache holds, for metrics.
    pub fn cache_usage(&self) -> Usage {
        self.cache.usage()
    }

    /// Verifies and tells the cache.
    async fn find_out(
        &self,
        token: &[u8],
        ticket: Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<Result<Arc<Verified>, Rejection>, FlightVoided> {
        let verified = self.verify(token, &ticket, now).await;
        let now = now();
        match verified {
            Ok((verified, life)) => ticket.fill(verified, life, now).map(Ok),
            Err(why) => {
                match why {
                    // The next key set may know the key, and nothing was computed that is worth keeping.
                    Rejection::Unavailable { .. }
                    | Rejection::Silent { .. }
                    | Rejection::Invalid(TokenError::UnknownKey) => {
                        ticket.fail(why.clone());
                    }
                    Rejection::Invalid(_) => ticket.deny(why.clone(), now),
                }
                Ok(Err(why))
            }
        }
    }

    /// Verifies with the keys at hand, or deals with what is in the way of that.
    async fn verify(
        &self,
        token: &[u8],
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        match self.attempt(token, now()) {
            Ok(verified) => Ok(verified),
            // Rare and large: apart from the future of every miss.
            Err(obstacle) => Box::pin(self.overcome(obstacle, token, ticket, now)).await,
        }
    }

    async fn overcome(
        &self,
        mut obstacle: KeyObstacle,
        token: &[u8],
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        let mut refused = None;
        for _ in 0..RENEWALS {
            let (issuer, seen, why) = match obstacle {
                KeyObstacle::Token(error) => return Err(Rejection::Invalid(error)),
                KeyObstacle::Unknown { authority } => return self.ask(authority, token, ticket, now).await,
                KeyObstacle::Unheard(unheard) => return self.confirm(*unheard, ticket, now).await,
                KeyObstacle::Keys { issuer, seen, why } => (&self.issuers[issuer], seen, why),
            };
            if issuer.followed.as_ref().is_some_and(|followed| followed.desk.is_silent()) {
                // Its keys may lie elsewhere; whether it has revoked the token it would have to say itself.
                return Err(Rejection::Silent { authority: issuer.name.clone() });
            }
            let retry_after = match issuer.keys.renew(seen, now()).await {
                KeyRenewal::Newer => {
                    refused = why;
                    obstacle = match self.attempt(token, now()) {
                        Ok(verified) => return Ok(verified),
                        Err(obstacle) => obstacle,
                    };
                    continue;
                }
                KeyRenewal::Fresh => match why {
                    Some(error) => return Err(Rejection::Invalid(error)),
                    None => Duration::from_secs(1),
                },
                KeyRenewal::Failed { retry_after } => match why {
                    // A set that may still be used has a key for this token, and that key refuses it.
                    Some(error) if error != TokenError::UnknownKey => return Err(Rejection::Invalid(error)),
                    _ => retry_after,
                },
            };
            return Err(Rejection::Unavailable { issuer: issuer.name.clone(), retry_after });
        }
        // As many newer sets did not help.
        Err(Rejection::Invalid(match obstacle {
            KeyObstacle::Token(error) => error,
            _ => refused.unwrap_or(TokenError::UnknownKey),
        }))
    }

    /// Has an authority say what a token is worth.
    async fn ask(
        &self,
        at: usize,
        token: &[u8],
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        let authority = &self.authorities[at];
        let silent = || Rejection::Silent { authority: (*authority.config.name).into() };
        for _ in 0..ASKED {
            let asked = now();
            let position = authority.watches().position();
            let departed = authority.followed.as_ref().map(FollowedIssuer::depart);
            let Some(said) = authority.ask(token, asked, now).await else {
                return Err(silent());
            };
            let facts = said.verdict.map_err(Rejection::Invalid)?;
            let uid = facts.identity.claim("uid").first().map(|uid| &**uid);
            if authority.watches().is_deleted(uid, token) {
                return Err(Rejection::Invalid(TokenError::Inactive));
            }
            // The answer may be as old as the question.
            let bounded = Some(asked.monotonic + authority.ttl);
            if departed.as_ref().is_some_and(|departed| !departed.is_heard_of()) {
                ticket.close();
            }
            let vouched = match (departed, said.statement, said.revocable) {
                (Some(departed), _, Some(revocable)) => Some((revocable.vouched(departed).await, bounded)),
                // What is followed is believed for as long as the cache believes anything.
                (Some(departed), Some(statement), _) => Some((departed.hold(statement).await, None)),
                _ => None,
            };
            let (hold, until, revocable) = match vouched {
                Some((AuthoritativeAnswer::Good(revocable, Some(hold)), until)) => {
                    (Some(hold), until, Some(revocable))
                }
                Some((AuthoritativeAnswer::Good(revocable, None), _)) => {
                    (None, Some(asked.monotonic), Some(revocable))
                }
                Some((AuthoritativeAnswer::Denied, _)) => {
                    return Err(Rejection::Invalid(TokenError::Revoked));
                }
                Some((AuthoritativeAnswer::Silent, _)) => return Err(silent()),
                Some((AuthoritativeAnswer::Again, _)) => continue,
                None => {
                    let hold = authority.watches().hold(facts.identity.display_name(), token, position);
                    (hold, bounded, None)
                }
            };
            let life = Lifetime { expires: facts.expires, until, hold };
            let verified = self.rendering.verified(facts, None).until_revoked(revocable);
            return Ok((Arc::new(verified), life));
        }
        Err(silent())
    }

    /// Has an issuer say whether it has taken a token back.
    async fn confirm(
        &self,
        unheard: IssuerUnheard,
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        let IssuerUnheard { issuer, facts, until, revocable } = unheard;
        if !revocable.is_heard_of() {
            ticket.close();
        }
        let hold = match revocable.told().await {
            IssuerAnswer::Good(hold) => hold,
            IssuerAnswer::Denied => return Err(Rejection::Invalid(TokenError::Revoked)),
            IssuerAnswer::Silent => {
                return Err(Rejection::Silent { authority: self.issuers[issuer].name.clone() });
            }
        };
        // What may not be remembered is over at once.
        let until = Some(if hold.is_some() { until } else { now().monotonic });
        let life = Lifetime { expires: facts.expires, until, hold };
        let verified = self.rendering.verified(facts, Some(issuer)).until_revoked(Some(revocable));
        Ok((Arc::new(verified), life))
    }

    /// Parses and verifies with the keys at hand; waits for nothing.
    fn attempt(&self, token: &[u8], now: Now) -> Result<(Arc<Verified>, Lifetime), KeyObstacle> {
        if let Some(authority) = authority::of_prefix(&self.authorities, token)? {
            return Err(KeyObstacle::Unknown { authority });
        }
        let unverified = match jwt::parse(token) {
            Ok(unverified) => unverified,
            Err(error) => match authority::of_rest(&self.authorities).filter(|_| error == TokenError::NotJwt)
            {
                Some(authority) => return Err(KeyObstacle::Unknown { authority }),
                None => return Err(error.into()),
            },
        };
        // The unverified `iss` only picks whose keys must have signed it; `verify` compares it again.
        let at = self.issuers.iter().position(|i| i.config.issuer() == unverified.issuer());
        let Some(at) = at else {
            return Err(match authority::of_issuer(&self.authorities, unverified.issuer()) {
                Some(authority) => KeyObstacle::Unknown { authority },
                None => TokenError::WrongIssuer.into(),
            });
        };
        let issuer = &self.issuers[at];
        let Some(keys) = issuer.keys.current(now) else {
            return Err(KeyObstacle::Keys { issuer: at, seen: 0, why: None });
        };
        let mut facts = match unverified.verify(&issuer.config, &keys.set, now.wall) {
            Ok(facts) => facts,
            Err(error) if unverified.may_pass_newer_keys(&error) => {
                return Err(KeyObstacle::Keys { issuer: at, seen: keys.attempt, why: Some(error) });
            }
            Err(error) => return Err(error.into()),
        };
        // A fact ends with the key set it was proven by, should that not be confirmed in time.
        let until = issuer.keys.usable_until(&keys);
        let (hold, revocable) = match &issuer.followed {
            None => (None, None),
            Some(followed) => {
                let lineage = unverified.lineage();
                if let Some(longest) = followed.longest {
                    // What was told of it may be forgotten by then.
                    facts.expires = facts.expires.min(lineage.issued_at.plus(longest));
                    if now.wall >= facts.expires {
                        return Err(TokenError::Expired.into());
                    }
                }
                let revocable = followed.revocable(&lineage, TokenEvidence::Said, now.wall);
                match revocable.known() {
                    Heard::Good(hold) => (Some(hold), Some(revocable)),
                    Heard::Denied => return Err(TokenError::Revoked.into()),
                    Heard::Nothing => {
                        let unheard = IssuerUnheard { issuer: at, facts, until, revocable };
                        return Err(KeyObstacle::Unheard(Box::new(unheard)));
                    }
                }
            }
        };
        let life = Lifetime { expires: facts.expires, until: Some(until), hold };
        let verified = self.rendering.verified(facts, Some(at)).until_revoked(revocable);
        Ok((Arc::new(verified), life))
    }
}

/// What is in the way of a verified token.
enum KeyObstacle {
    /// The token itself.
    Token(TokenError),
    /// Only an authority can tell.
    Unknown { authority: usize },
    /// Its issuer is not heard of, which could have taken it back.
    Unheard(Box<IssuerUnheard>),
    /// No usable key set, or one that may be older than the token's key: then it says why it refuses the token.
    Keys { issuer: usize, seen: u64, why: Option<TokenError> },
}

/// A token with a good signature, of which nobody here knows whether it was taken back.
struct IssuerUnheard {
    issuer: usize,
    facts: Facts,
    /// Until when its issuer's keys may be used.
    until: Instant,
    revocable: RevocableToken,
}

impl From<TokenError> for KeyObstacle {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

impl Rendering {
    /// `variant` tells renderings of one process apart.
    pub fn new(headers: IdentityHeaders, reserve: AssertionReserve, variant: u64) -> Self {
        Self { headers, reserve, variant }
    }

    /// Whether it renders as these do.
    pub fn is_like(&self, headers: &IdentityHeaders, reserve: AssertionReserve) -> bool {
        self.headers == *headers && self.reserve == reserve
    }

    /// Which rendering of the process this is.
    pub fn variant(&self) -> u64 {
        self.variant
    }

    /// What a session proves.
    pub fn verified_session(&self, facts: Facts, session: SessionCredential) -> Verified {
        self.verified(facts, None).of_session(session)
    }

    fn verified(&self, facts: Facts, issuer: Option<usize>) -> Verified {
        let reserve = self.reserve.bytes(&facts.identity);
        Verified::new(facts, &self.headers, issuer, reserve)
    }
}

impl IssuerKeys {
    /// Takes over the keys of the one `before`, if they come from where those came from.
    fn new(issuer: &IssuerSource, surroundings: &AuthenticatorRuntime, before: Option<&Self>) -> Self {
        let config = issuer.config.clone();
        let source = KeyOrigin::new(config.issuer(), issuer.keys.clone(), issuer.tls.clone());
        let schedule = KeySchedule { refresh: issuer.refresh, max_stale: issuer.max_stale };
        let means = KeyStoreRuntime {
            clock: surroundings.clock.clone(),
            control: surroundings.control.clone(),
            secret: surroundings.secret.clone(),
            generation: surroundings.generation.clone(),
        };
        let keys = KeyStore::start(config.name(), source, schedule, means, before.map(|before| &before.keys));
        let followed = surroundings.follows.of(config.issuer());
        Self { name: config.name().into(), config, keys, followed }
    }
}
