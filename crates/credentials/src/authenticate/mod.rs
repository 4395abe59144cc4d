//! Authentication: from a credential to verified facts, through the cache.
//!
//! Owns: choosing the issuer, verification with its current keys, the meaning of a failure, the key
//! sets and their refresh, client certificates. Does not own: finding the credential in the
//! request, rules, responses.
//!
//! 1. [`Authenticator::lookup`] (hot, synchronous) returns a hit, a denial, or unknown.
//! 2. For an unknown token, [`Authenticator::authenticate`] verifies the signature.
//! 3. If the key is unknown or may have changed, it fetches keys, waits within bounds, and verifies
//!    again.
//! 4. A token that cannot be verified locally goes to the one token authority that may know it.
//!
//! A token is [`Rejection::Invalid`] when it is known to be invalid: the client receives 401. It is
//! [`Rejection::Unavailable`] when the issuer's keys are missing, and [`Rejection::Silent`] when a
//! token authority or issuer gives no answer. Then the client receives 503 with `Retry-After`; this
//! is never 403, never cached, and never authorizes a request.

mod authority;
mod basic;
mod certificate;
mod fetch;
mod issuer_keys;
mod key_source;
mod key_store;
pub mod outcome;
mod rendering;
mod verified;

use crate::authenticate::outcome::{
    AuthenticationOutcome, CredentialLookup, CredentialName, Rejection, UncheckedToken, VerificationObstacle,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::headers::IdentityHeaders;
use auth::mapping::CertificateMapping;
use auth::token::jwt::{self, MAX_TOKEN_BYTES};
use auth::token_error::{ClaimError, ClaimFault, TokenError};
use http_engine::clock::{Clock, Now};
use rustls_pki_types::CertificateDer;
use telemetry::phases::CacheUse;

use self::authority::AuthorityClient;
pub use self::authority::AuthorityStatus;
use self::basic::PasswordCheck;
pub use self::certificate::CertificateError;
pub use self::fetch::FetchError;
use self::issuer_keys::IssuerKeys;
pub(crate) use self::issuer_keys::start_key_store;
pub use self::key_source::{IssuerMetadata, KeyOrigin};
pub use self::key_source::{SourceError, check as check_source, read_file as read_key_file};
pub use self::key_source::{key_url, metadata_urls};
pub use self::key_store::{DEMAND_INTERVAL, DEMAND_WAIT, KeySetStatus};
pub use self::key_store::{KeyRenewal, KeySchedule, KeyStore, KeyStoreRuntime};
pub use self::rendering::Rendering;
pub use self::verified::SessionCredential;
pub use self::verified::Verified;
use crate::assertion::AssertionReserve;
use crate::cache::{
    self, CacheEntryBasis, CacheScope, CacheSecret, DecisionCache, FlightResult, FlightVoided, Generation,
    KnownFacts, Lifetime, Ticket, Usage,
};
use crate::config::{AssertionConfig, Authentication, CacheLimits};
use crate::revocation::{
    AuthoritativeAnswer, FollowedIssuer, FollowedIssuers, IssuerAnswer, RevocationStatus as Heard,
    TokenEvidence,
};
use crate::watch::WatchStatus;

/// Maximum rounds of lookup, waiting and verification for one request. More than two rounds happen
/// only when flushes or cancelled requests intervene.
const MAX_ROUNDS: usize = 8;
/// Maximum requests to an authority about one token: its answer may reflect fewer revocations than
/// are known here.
const MAX_AUTHORITY_QUERIES: usize = 2;
/// Maximum key fetches for one token.
const MAX_RENEWALS: usize = 2;

/// Process-wide dependencies of an authenticator; the same for all its successors.
#[derive(Clone)]
pub struct AuthenticatorRuntime {
    /// Clock for fetching keys.
    pub clock: Arc<dyn Clock>,
    /// Runtime that fetches keys: not a worker's.
    pub control: tokio::runtime::Handle,
    /// Secret of the cache keys, drawn once per process.
    pub secret: CacheSecret,
    /// Voids cached facts; advanced here when a key is withdrawn.
    pub generation: Generation,
    /// Issuers whose revocation log is followed.
    pub follows: FollowedIssuers,
}

/// The parts of the configuration that authentication depends on.
#[derive(Clone, Copy)]
pub struct AuthenticatorSetup<'a> {
    /// Issuers, certificates, cache bounds.
    pub authentication: &'a Authentication,
    /// The identity fields to render for the upstream.
    pub identity_headers: &'a IdentityHeaders,
    /// The assertion for the upstream; only its size in the cache matters here.
    pub assertion: Option<&'a AssertionConfig>,
}

/// Authenticates callers. Shared by all workers; replaced as a whole on reload.
pub struct Authenticator {
    issuers: Box<[IssuerKeys]>,
    authorities: Box<[AuthorityClient]>,
    certificates: Option<CertificateMapping>,
    passwords: Option<PasswordCheck>,
    rendering: Rendering,
    cache: DecisionCache<Verified, Rejection>,
    limits: CacheLimits,
    scope: CacheScope,
    version: u64,
    runtime: AuthenticatorRuntime,
}

impl Authenticator {
    /// Creates the first authenticator of a process: an empty cache, and key fetches that start
    /// now.
    pub fn new(setup: AuthenticatorSetup<'_>, surroundings: AuthenticatorRuntime) -> Self {
        Self::build(setup, surroundings, None)
    }

    /// Creates the successor under a new configuration. It keeps the key sets of issuers whose
    /// source did not change. It keeps the cached facts if [`Authentication::version`], the cache's
    /// bounds and the rendering are equal. Both may be used side by side until the last request of
    /// the old one ends.
    #[must_use]
    pub fn rebuild(&self, setup: AuthenticatorSetup<'_>) -> Self {
        Self::build(setup, self.runtime.clone(), Some(self))
    }

    fn build(
        setup: AuthenticatorSetup<'_>,
        surroundings: AuthenticatorRuntime,
        before: Option<&Self>,
    ) -> Self {
        let Authentication { issuers, authorities, certificates, basic, cache: limits, version, .. } =
            setup.authentication;
        let (headers, reserve) = (setup.identity_headers.clone(), AssertionReserve::of(setup.assertion));
        let variant = before.map_or(0, |before| {
            let old = &before.rendering;
            old.variant() + u64::from(!old.is_like(&headers, reserve))
        });
        // Keys of another version or variant are never looked up again; a separate cache frees
        // their bytes.
        let reused = before.filter(|before| {
            before.version == *version && before.rendering.variant() == variant && before.limits == *limits
        });
        let cache = reused.map_or_else(
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
            passwords: basic.as_ref().map(|basic| {
                let before = before.and_then(|before| before.passwords.as_ref());
                PasswordCheck::new(basic, &surroundings, (*version, variant), before)
            }),
            rendering: Rendering::new(headers, reserve, variant),
            cache,
            limits: limits.clone(),
            scope: surroundings.secret.scope(*version, variant),
            version: *version,
            runtime: surroundings,
        }
    }

    /// The name of a token in the cache. Finding it costs more than looking the token up.
    pub fn name(&self, token: &[u8]) -> CredentialName {
        CredentialName { scope: self.name_scope(), key: self.scope.key(token) }
    }

    /// Whether a name is valid under this configuration.
    pub fn knows(&self, name: &CredentialName) -> bool {
        name.scope == self.name_scope()
    }

    fn name_scope(&self) -> (u64, u64) {
        (self.version, self.rendering.variant())
    }

    /// The cached result for a token: the hot path. `name` finds its name, which must be valid here;
    /// `now` may be a coarse reading.
    pub fn lookup(&self, token: &[u8], name: impl FnOnce() -> CredentialName, now: Now) -> CredentialLookup {
        // A longer token is never a fact; its digest is not worth computing.
        if token.len() > MAX_TOKEN_BYTES {
            return CredentialLookup::Denied(Rejection::Invalid(TokenError::TooLarge));
        }
        match self.cache.peek(name().key, now) {
            Some(KnownFacts::Fact(verified)) => CredentialLookup::Hit(verified),
            Some(KnownFacts::Denied(why)) => CredentialLookup::Denied(why),
            None => CredentialLookup::Unknown,
        }
    }

    /// Whether a token is for this gateway: an issuer or a token authority is configured for tokens
    /// like it, even if it is malformed. A token for which this is false would be refused.
    pub fn claims(&self, token: &[u8]) -> bool {
        if authority::select_default(&self.authorities).is_some() {
            return true;
        }
        match authority::select_by_prefix(&self.authorities, token) {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return true,
        }
        let Some(issuer) = jwt::named_issuer(token) else { return false };
        IssuerKeys::position(&self.issuers, &issuer).is_some()
            || authority::select_by_issuer(&self.authorities, &issuer).is_some()
    }

    /// Until when the cached fact of a token may be used; `None`: there is none, or not any more.
    pub fn valid_until(&self, token: &[u8], now: Now) -> Option<Instant> {
        self.cache.valid_until(self.scope.key(token), now).map(|(until, _)| until)
    }

    /// Authenticates a token that [`Authenticator::lookup`] does not know. It joins a running
    /// verification of the same token, or verifies; if keys are missing it waits for them, up to
    /// [`DEMAND_WAIT`] each time. `now` reads the clock, because waiting makes an earlier reading
    /// stale.
    pub async fn authenticate(&self, token: &[u8], now: impl Fn() -> Now) -> AuthenticationOutcome {
        if token.len() > MAX_TOKEN_BYTES {
            return (Err(Rejection::Invalid(TokenError::TooLarge)), CacheUse::Denied);
        }
        let key = self.scope.key(token);
        for _ in 0..MAX_ROUNDS {
            match self.cache.lookup(key, now()) {
                cache::CacheLookup::Hit(verified) => return (Ok(verified), CacheUse::Hit),
                cache::CacheLookup::Denied(why) => return (Err(why), CacheUse::Denied),
                cache::CacheLookup::Pending(flight) => match flight.wait().await {
                    FlightResult::Known(verified) => return (Ok(verified), CacheUse::Coalesced),
                    FlightResult::Denied(why) => return (Err(why), CacheUse::Coalesced),
                    FlightResult::Again => {}
                },
                cache::CacheLookup::Miss(ticket) => {
                    // After a flush the answer proves nothing.
                    if let Ok(answer) = self.verify_and_cache(token, ticket, &now).await {
                        return (answer, CacheUse::Miss);
                    }
                }
            }
        }
        // Flushes overtook every attempt: keys change faster than a signature is verified.
        self.timed_out()
    }

    /// The result for a request that stops waiting.
    pub fn timed_out(&self) -> AuthenticationOutcome {
        (Err(self.unavailable()), CacheUse::Miss)
    }

    fn unavailable(&self) -> Rejection {
        let issuer = self.issuers.first().map_or_else(|| "none".into(), |issuer| issuer.name.clone());
        Rejection::Unavailable { issuer, retry_after: Duration::from_secs(1) }
    }

    /// Authenticates a client certificate, given as end-entity certificate, whose chain the
    /// handshake verified. The result is not cached here: call this once per connection, keep the
    /// result with it, and check [`auth::identity::Facts::valid_at`] for each request.
    ///
    /// # Errors
    /// When certificates are no credential here, or this one gives no identity.
    pub fn certificate(
        &self,
        end_entity: &CertificateDer<'_>,
        now: Now,
    ) -> Result<Arc<Verified>, CertificateError> {
        let mapping = self.certificates.as_ref().ok_or(CertificateError::NotConfigured)?;
        let facts = certificate::facts(end_entity, mapping, now.wall)?;
        Ok(Arc::new(self.rendering.verified(facts, None)))
    }

    /// State of the key set of each issuer, in configured order; then of each authority with signed
    /// answers.
    pub fn key_sets(&self) -> Vec<KeySetStatus> {
        let now = self.runtime.clock.now();
        self.signers().map(|signer| signer.keys.status(now)).collect()
    }

    /// The keys and metadata of the issuer that are fetched from this source, if there is one.
    pub fn key_store(&self, origin: &KeyOrigin) -> Option<Arc<KeyStore>> {
        self.issuers.iter().map(|issuer| &issuer.keys).find(|keys| keys.has_origin(origin)).cloned()
    }

    /// All signers whose signatures are verified here.
    fn signers(&self) -> impl Iterator<Item = &IssuerKeys> {
        self.issuers.iter().chain(self.authorities.iter().filter_map(AuthorityClient::signer))
    }

    /// Counters of each token authority, in configured order.
    pub fn authorities(&self) -> Vec<AuthorityStatus> {
        self.authorities.iter().map(AuthorityClient::status).collect()
    }

    /// Starts the watches that authorities' answers depend on, where configured. Has no effect on
    /// running ones.
    pub fn watch(&self) {
        for authority in &self.authorities {
            authority.watches().start();
        }
    }

    /// State of the authorities' watches.
    pub fn watches(&self) -> impl Iterator<Item = WatchStatus> {
        self.authorities.iter().flat_map(|authority| authority.watches().status())
    }

    /// Returns once keys were fetched at least once for every signer, with or without success.
    pub async fn first_fetches(&self) {
        for signer in self.signers() {
            signer.keys.first_attempt().await;
        }
    }

    /// The basis of some credential in use, if its issuer is followed: to be audited
    /// ([`crate::revocation::audit`]).
    pub fn any_entry_basis(&self, random: u64) -> Option<Arc<CacheEntryBasis>> {
        self.cache.any_entry_basis(random)
    }

    /// Cache usage, for metrics.
    pub fn cache_usage(&self) -> Usage {
        self.cache.usage()
    }

    /// Verifies a token and stores the result in the cache.
    async fn verify_and_cache(
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
                    // The next key set may contain the key, and no computed result is worth
                    // keeping.
                    Rejection::Unavailable { .. }
                    | Rejection::Silent { .. }
                    | Rejection::Busy { .. }
                    | Rejection::Invalid(TokenError::UnknownKey) => {
                        ticket.fail(why.clone());
                    }
                    Rejection::Invalid(_) | Rejection::WrongPassword => ticket.deny(why.clone(), now),
                }
                Ok(Err(why))
            }
        }
    }

    /// Verifies with the current keys, or handles the obstacle to that.
    async fn verify(
        &self,
        token: &[u8],
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        match self.verify_locally(token, now()) {
            Ok(verified) => Ok(verified),
            // Rare and large: kept out of the future of every miss.
            Err(obstacle) => Box::pin(self.resolve_obstacle(obstacle, token, ticket, now)).await,
        }
    }

    async fn resolve_obstacle(
        &self,
        mut obstacle: VerificationObstacle,
        token: &[u8],
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        let mut refused = None;
        for _ in 0..MAX_RENEWALS {
            let (issuer, seen, why) = match obstacle {
                VerificationObstacle::Token(error) => return Err(Rejection::Invalid(error)),
                VerificationObstacle::Unknown { authority } => {
                    return self.ask_authority(authority, token, ticket, now).await;
                }
                VerificationObstacle::Unheard(unheard) => {
                    return self.ask_issuer(*unheard, ticket, now).await;
                }
                VerificationObstacle::Keys { issuer, seen, why } => (&self.issuers[issuer], seen, why),
            };
            if issuer.followed_issuer.as_ref().is_some_and(|followed| followed.query_desk.is_silent()) {
                // The keys may be elsewhere, but only the issuer knows whether it has revoked the
                // token.
                return Err(Rejection::Silent { authority: issuer.name.clone() });
            }
            let retry_after = match issuer.keys.renew(seen, now()).await {
                KeyRenewal::Newer => {
                    refused = why;
                    obstacle = match self.verify_locally(token, now()) {
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
                    // A set that may still be used has a key for this token, and that key rejects
                    // it.
                    Some(error) if error != TokenError::UnknownKey => return Err(Rejection::Invalid(error)),
                    _ => retry_after,
                },
            };
            return Err(Rejection::Unavailable { issuer: issuer.name.clone(), retry_after });
        }
        // Several newer sets did not help.
        Err(Rejection::Invalid(match obstacle {
            VerificationObstacle::Token(error) => error,
            _ => refused.unwrap_or(TokenError::UnknownKey),
        }))
    }

    /// Asks a token authority about a token.
    async fn ask_authority(
        &self,
        at: usize,
        token: &[u8],
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        let authority = &self.authorities[at];
        let silent = || Rejection::Silent { authority: (*authority.config.name).into() };
        for _ in 0..MAX_AUTHORITY_QUERIES {
            let sent_at = now();
            let position = authority.watches().position();
            let departed = authority.followed_issuer.as_ref().map(FollowedIssuer::depart);
            let Some(answer) = authority.query(token, sent_at, now).await else {
                return Err(silent());
            };
            let facts = answer.verdict.map_err(Rejection::Invalid)?;
            let uid = facts.identity.claim("uid").first().map(|uid| &**uid);
            if authority.watches().is_deleted(uid, token) {
                return Err(Rejection::Invalid(TokenError::Inactive));
            }
            // The answer may be as old as the request.
            let bounded = Some(sent_at.monotonic + authority.ttl);
            if departed.as_ref().is_some_and(|departed| !departed.is_heard_of()) {
                ticket.close();
            }
            let vouched = match (departed, answer.revocation_tags, answer.revocable) {
                (Some(departed), _, Some(revocable)) => {
                    Some((revocable.use_confirmation(departed).await, bounded))
                }
                // An answer of a followed issuer has no bound but the cache's own time to live.
                (Some(departed), Some(statement), _) => {
                    Some((departed.use_issuer_answer(statement).await, None))
                }
                _ => None,
            };
            let (hold, until, revocable) = match vouched {
                Some((AuthoritativeAnswer::Good(revocable, Some(hold)), until)) => {
                    (Some(hold), until, Some(revocable))
                }
                Some((AuthoritativeAnswer::Good(revocable, None), _)) => {
                    (None, Some(sent_at.monotonic), Some(revocable))
                }
                Some((AuthoritativeAnswer::Denied, _)) => {
                    return Err(Rejection::Invalid(TokenError::Revoked));
                }
                Some((AuthoritativeAnswer::Silent, _)) => return Err(silent()),
                Some((AuthoritativeAnswer::Again, _)) => continue,
                None => {
                    let hold =
                        authority.watches().entry_basis(facts.identity.display_name(), token, position);
                    (hold, bounded, None)
                }
            };
            let life = Lifetime { expires: facts.expires, until, basis: hold };
            let verified = self.rendering.verified(facts, None).until_revoked(revocable);
            return Ok((Arc::new(verified), life));
        }
        Err(silent())
    }

    /// Asks an issuer whether it has revoked a token.
    async fn ask_issuer(
        &self,
        unheard: UncheckedToken,
        ticket: &Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Result<(Arc<Verified>, Lifetime), Rejection> {
        let UncheckedToken { issuer, facts, until, revocable } = unheard;
        if !revocable.has_lease() {
            ticket.close();
        }
        let hold = match revocable.status_or_ask().await {
            IssuerAnswer::NotRevoked(hold) => hold,
            IssuerAnswer::Denied => return Err(Rejection::Invalid(TokenError::Revoked)),
            IssuerAnswer::NoAnswer => {
                return Err(Rejection::Silent { authority: self.issuers[issuer].name.clone() });
            }
        };
        // A result that may not be cached expires at once.
        let until = Some(if hold.is_some() { until } else { now().monotonic });
        let life = Lifetime { expires: facts.expires, until, basis: hold };
        let verified = self.rendering.verified(facts, Some(issuer)).until_revoked(Some(revocable));
        Ok((Arc::new(verified), life))
    }

    /// Parses and verifies with the current keys; never waits.
    fn verify_locally(
        &self,
        token: &[u8],
        now: Now,
    ) -> Result<(Arc<Verified>, Lifetime), VerificationObstacle> {
        if let Some(authority) = authority::select_by_prefix(&self.authorities, token)? {
            return Err(VerificationObstacle::Unknown { authority });
        }
        let unverified = match jwt::parse(token) {
            Ok(unverified) => unverified,
            Err(error) => {
                match authority::select_default(&self.authorities).filter(|_| error == TokenError::NotJwt) {
                    Some(authority) => return Err(VerificationObstacle::Unknown { authority }),
                    None => return Err(error.into()),
                }
            }
        };
        // The unverified `iss` only selects whose keys must have signed the token; `verify`
        // compares it again.
        let Some(at) = IssuerKeys::position(&self.issuers, unverified.issuer()) else {
            return Err(match authority::select_by_issuer(&self.authorities, unverified.issuer()) {
                Some(authority) => VerificationObstacle::Unknown { authority },
                None => TokenError::WrongIssuer.into(),
            });
        };
        let issuer = &self.issuers[at];
        let Some(keys) = issuer.keys.current(now) else {
            return Err(VerificationObstacle::Keys { issuer: at, seen: 0, why: None });
        };
        let mut facts = match unverified.verify(&issuer.config, &keys.set, now.wall) {
            Ok(facts) => facts,
            Err(error) if unverified.may_pass_newer_keys(&error) => {
                return Err(VerificationObstacle::Keys { issuer: at, seen: keys.attempt, why: Some(error) });
            }
            Err(error) => return Err(error.into()),
        };
        issuer.report(&facts.identity, unverified.partial_groups(&issuer.config));
        // A fact ends with the key set that proved it, if that is not confirmed in time.
        let until = issuer.keys.usable_until(&keys);
        let (hold, revocable) = match &issuer.followed_issuer {
            None => (None, None),
            Some(followed) => {
                let lineage = unverified.lineage();
                if let Some(longest) = followed.max_token_age {
                    // By then, events about the token may no longer be stored.
                    facts.expires = facts.expires.min(lineage.issued_at.plus(longest));
                    if now.wall >= facts.expires {
                        return Err(TokenError::Expired.into());
                    }
                }
                if !followed.opens_tags_of(&lineage) {
                    let fault = ClaimFault::NotA("list of tags that its issuer sealed for its followers");
                    return Err(TokenError::from(ClaimError::new("revocation_tags", fault)).into());
                }
                let revocable = followed.revocable(&lineage, TokenEvidence::FromCredential, now.wall);
                match revocable.local_status() {
                    Heard::NotRevoked(hold) => (Some(hold), Some(revocable)),
                    Heard::Denied => return Err(TokenError::Revoked.into()),
                    Heard::Unknown => {
                        let unheard = UncheckedToken { issuer: at, facts, until, revocable };
                        return Err(VerificationObstacle::Unheard(Box::new(unheard)));
                    }
                }
            }
        };
        let life = Lifetime { expires: facts.expires, until: Some(until), basis: hold };
        let verified = self.rendering.verified(facts, Some(at)).until_revoked(revocable);
        Ok((Arc::new(verified), life))
    }
}
