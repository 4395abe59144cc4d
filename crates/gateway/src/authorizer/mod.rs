//! External authorization: queries other services, before a request is forwarded, whether it may
//! be.
//!
//! Owns: the query to an authorizer, the meaning of its answer, the caching of the answer, one
//! query for all requests that wait for the same answer. Does not own: our own decision, which
//! comes first (`auth::decide`); the connections ([`http_engine::upstream`]: an authorizer is an
//! upstream, and the worker that needs the answer queries it); forwarding. The other direction,
//! where other proxies query us, is [`crate::auth_response`].
//!
//! 1. `QuestionInput::key` computes the cache key, and `Authorizer::peek` looks the answer up.
//! 2. Without a cached answer the request waits for [`Authorizer::resolve`] with an
//!    [`AuthorizerQuestion`]: it joins a query under way, or sends one.
//! 3. The same lookup runs again with the result.
//!
//! A 2xx answer permits forwarding. Any other answer goes to the client unchanged. Without a usable
//! answer the client receives 503: a failure is never an approval, and never the authorizer's
//! refusal.
//!
//! # Caching
//!
//! An answer is cached only if the authorizer allows it (RFC 9111), under everything that the
//! authorizer was shown ([`question`]), and no longer than configured. An authorizer that is a
//! Postern also sends which issuer may revoke the answer, and the tags to revoke it by
//! ([`coherence::revocation_tags`]). If this gateway follows that issuer, the answer is cached
//! until a revocation of one of the tags arrives. It is used only under a live lease. Without a
//! lease it authorizes only the request that it was queried for.

pub(crate) mod answer;
mod check_response;
mod freshness;
pub(crate) mod question;
pub(crate) mod response;
pub(crate) mod routed;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use credentials::cache::{
    CacheEntryBasis, CacheKey, CacheScope, CacheSecret, DecisionCache, Generation, KnownFacts, Usage,
};
use credentials::revocation::FollowedIssuers;
use http_engine::clock::Now;
use outage::{Outage, RECOVERY_PERIOD};
use telemetry::metrics::{Collect, Encoder, FamilyKind};

pub(crate) use self::answer::{AuthorizerAllowed, AuthorizerAnswer};
pub(crate) use self::question::{AuthorizerQuestion, QuestionInput};
pub use self::question::{ambiguous, request_line};
use crate::config;

/// Field with the milliseconds until the credential that an answer depends on expires. An edge
/// proxy uses it to end the exchanges that the answer authorized. The time counts from the answer,
/// because clocks of machines differ.
pub(crate) const ENDS_IN: &str = "postern-ends-in-ms";

/// Why requests that wait for an answer do not share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotShared {
    /// The answer is for one request only.
    SingleUse,
    /// The query failed.
    QueryFailed,
}

/// The authorizer gave no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuthorizerUnknown;

/// An authorizer's answer about a request, or that there is none.
pub(crate) type AuthorizerResult = Result<Arc<AuthorizerAnswer>, AuthorizerUnknown>;

/// An authorizer with its cached answers. All workers share it. Each configuration creates a new
/// one: no answer outlives the configuration under which it was queried.
pub(crate) struct Authorizer {
    pub(crate) config: config::AuthorizerConfig,
    pub(crate) cache: DecisionCache<AuthorizerAnswer, NotShared>,
    pub(crate) scope: CacheScope,
    pub(crate) followed_issuers: FollowedIssuers,
    /// Whether the last answer could be cached. If so, requests wait for a query under way instead
    /// of sending their own.
    pub(crate) last_was_cacheable: AtomicBool,
    /// Outage log, kept across configurations like the counters.
    pub(crate) outage: Arc<Outage>,
}

fn outage_of(name: &str) -> Arc<Outage> {
    let outage = Outage::new(format!("authorizer {name}")).with_recovery_period(RECOVERY_PERIOD);
    Arc::new(outage.with_effect("answering 503 to its requests"))
}

/// Cache usage of an authorizer, for metrics.
#[derive(Debug, Clone)]
pub struct AuthorizerStatus {
    /// The configured name.
    pub name: Box<str>,
    /// Usage of its answer cache.
    pub cache_usage: Usage,
}

impl Collect for AuthorizerStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        if all.is_empty() {
            return;
        }
        let mut gauge = |name, help, value: fn(&Usage) -> u64| {
            let mut family = e.family(name, FamilyKind::Gauge, help);
            for status in all {
                family.sample(&[("authorizer", &*status.name)], value(&status.cache_usage));
            }
        };
        gauge("postern_authorizer_cached_responses", "Cached answers of an authorizer.", |kept| {
            kept.facts as u64
        });
        gauge(
            "postern_authorizer_cache_bytes",
            "Approximate bytes of cached answers of an authorizer.",
            |kept| kept.bytes as u64,
        );
    }
}

impl Authorizer {
    /// Creates an authorizer with an empty cache. `generation` counts configurations; `outage` is
    /// that of the previous authorizer of this name.
    pub(crate) fn new(
        config: &config::AuthorizerConfig,
        at: usize,
        generation: u64,
        secret: &CacheSecret,
        follows: &FollowedIssuers,
        outage: Option<Arc<Outage>>,
    ) -> Self {
        let limits = credentials::config::CacheLimits {
            bytes: config.cache_bytes,
            ttl: config.max_age.max(config.max_age_with_revocation),
            deny_ttl: Duration::ZERO,
            deny_entries: 1,
        };
        Self {
            config: config.clone(),
            // Flushes of verified credentials do not concern the authorizer's answers.
            cache: DecisionCache::new(&limits, Generation::default()),
            scope: secret.scope(generation, at as u64),
            followed_issuers: follows.clone(),
            last_was_cacheable: AtomicBool::new(
                !config.max_age.is_zero() || !config.max_age_with_revocation.is_zero(),
            ),
            outage: outage.unwrap_or_else(|| outage_of(&config.name)),
        }
    }

    pub(crate) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    /// The configuration of this authorizer.
    pub(crate) fn config(&self) -> &config::AuthorizerConfig {
        &self.config
    }

    /// Cache usage, for metrics.
    pub(crate) fn status(&self) -> AuthorizerStatus {
        AuthorizerStatus { name: self.config.name.clone(), cache_usage: self.cache.usage() }
    }

    /// The basis of some answer in use, if it depends on a followed issuer. `random` selects which.
    pub(crate) fn any_entry_basis(&self, random: u64) -> Option<Arc<CacheEntryBasis>> {
        self.cache.any_entry_basis(random)
    }

    /// The cache key of the answer about a request.
    pub(crate) fn key(&self, about: &QuestionInput<'_>) -> CacheKey {
        about.key(&self.config, &self.scope)
    }

    /// The cached answer, without waiting: the hot path.
    pub(crate) fn peek(&self, key: CacheKey, now: Now) -> Option<Arc<AuthorizerAnswer>> {
        match self.cache.peek(key, now) {
            Some(KnownFacts::Fact(answer)) => Some(answer),
            Some(KnownFacts::Denied(_)) | None => None,
        }
    }
}
