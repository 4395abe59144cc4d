//! Others who are asked, before a request is forwarded, whether it may be: external authorization.
//!
//! Owns: what is asked of an authorizer about a request, what its answer means, how long the answer is kept, one asking however many
//! wait. Does not own: our own decision, which comes first (`auth::decide`), the connections ([`http_engine::upstream`]: an authorizer is
//! an upstream, and is asked by the worker that needs to know), forwarding. Where others ask us is [`crate::auth_response`].
//!
//! Flow: `QuestionInput::key → Authorizer::peek → Said`, or [`AuthorizerQuestion`], then [`Authorizer::find_out`] (wait for who asks already, or ask)
//! and the same lookup again with what was found.
//!
//! Success is leave to forward; every other answer is the client's, as it is. Where there is no answer that can be read, nobody
//! knows, and that is 503: never yes, and never the authorizer's no.
//!
//! # What is kept
//!
//! Only what the authorizer says may be (RFC 9111), under all that it was shown ([`question`]), and no longer than the
//! configuration says. An authorizer that is a Postern says more: which issuer may take the answer back, and by what
//! ([`coherence::revocation_tags`]). Where that issuer is followed here, the answer is kept while nothing of it is told here and no
//! longer than the issuer is heard of; without a lease it is good for the request that it was asked for, and nobody after it.

pub(crate) mod answer;
pub(crate) mod question;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use credentials::cache::{
    CacheEntryBasis, CacheKey, CacheScope, CacheSecret, DecisionCache, Generation, KnownFacts, Usage,
};
use credentials::revocation::FollowedIssuers;
use http_engine::clock::Now;
use outage::{CALM, Outage};
use telemetry::metrics::{Collect, Encoder, FamilyKind};

pub(crate) use self::answer::{AuthorizerAllowed, AuthorizerAnswer};
pub(crate) use self::question::{AuthorizerQuestion, QuestionInput};
pub use self::question::{ambiguous, request_line};
use crate::config;

/// The field that says in how many milliseconds the credential ends that a voucher rests on, so that an edge can end what it let in by it. It is
/// counted from the answer: clocks of machines differ.
pub(crate) const ENDS_IN: &str = "postern-ends-in-ms";

/// Why no answer is shared with those who wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unshared {
    /// It is for one request alone.
    Alone,
    /// There is none.
    Silent,
}

/// Nobody knows whether the request may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuthorizerUnknown;

/// Whether a request may pass, as an authorizer says.
pub(crate) type AuthorizerResult = Result<Arc<AuthorizerAnswer>, AuthorizerUnknown>;

/// An authorizer, with what is kept of its answers. Shared by all workers, and made anew with each configuration: no answer
/// outlives the one it was asked under.
pub(crate) struct Authorizer {
    pub(crate) config: config::AuthorizerConfig,
    /// Index among those of the configuration.
    pub(crate) at: usize,
    pub(crate) cache: DecisionCache<AuthorizerAnswer, Unshared>,
    pub(crate) scope: CacheScope,
    pub(crate) follows: FollowedIssuers,
    /// Whether its last answer could be kept: then the next one is worth waiting for.
    pub(crate) keeps: AtomicBool,
    /// Outlives the configuration, like what is counted.
    pub(crate) outage: Arc<Outage>,
}

fn outage_of(name: &str) -> Arc<Outage> {
    let outage = Outage::of(format!("authorizer {name}")).with_calm(CALM);
    Arc::new(outage.with_effect("requests that it is asked about are answered 503"))
}

/// What is kept of an authorizer's answers, for metrics.
#[derive(Debug, Clone)]
pub struct AuthorizerStatus {
    /// The configured name.
    pub name: Box<str>,
    /// Its answers.
    pub kept: Usage,
}

impl Collect for AuthorizerStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        if all.is_empty() {
            return;
        }
        let mut gauge = |name, help, value: fn(&Usage) -> u64| {
            let mut family = e.family(name, FamilyKind::Gauge, help);
            for status in all {
                family.sample(&[("authorizer", &*status.name)], value(&status.kept));
            }
        };
        gauge("postern_authorizer_kept", "Answers of an authorizer that are kept.", |kept| kept.facts as u64);
        gauge("postern_authorizer_kept_bytes", "Approximate size of them.", |kept| kept.bytes as u64);
    }
}

impl Authorizer {
    /// Keeps nothing yet. `generation` counts configurations; `outage` is that of the one before of its name.
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
            ttl: config.max_age.max(config.max_age_followed),
            deny_ttl: Duration::ZERO,
            deny_entries: 1,
        };
        Self {
            config: config.clone(),
            at,
            // Nothing that voids facts of ours says anything of its answers.
            cache: DecisionCache::new(&limits, Generation::default()),
            scope: secret.scope(generation, at as u64),
            follows: follows.clone(),
            keeps: AtomicBool::new(!config.max_age.is_zero() || !config.max_age_followed.is_zero()),
            outage: outage.unwrap_or_else(|| outage_of(&config.name)),
        }
    }

    pub(crate) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    /// How it is asked.
    pub(crate) fn config(&self) -> &config::AuthorizerConfig {
        &self.config
    }

    /// What is kept of it.
    pub(crate) fn status(&self) -> AuthorizerStatus {
        AuthorizerStatus { name: self.config.name.clone(), kept: self.cache.usage() }
    }

    /// What some answer in use rests on, if that is followed.
    pub(crate) fn any_held(&self, random: u64) -> Option<Arc<CacheEntryBasis>> {
        self.cache.any_held(random)
    }

    /// What the answer about a request is kept under.
    pub(crate) fn key(&self, about: &QuestionInput<'_>) -> CacheKey {
        about.key(&self.config, &self.scope)
    }

    /// What is known at once: the hot path.
    pub(crate) fn peek(&self, key: CacheKey, now: Now) -> Option<Arc<AuthorizerAnswer>> {
        match self.cache.peek(key, now) {
            Some(KnownFacts::Fact(said)) => Some(said),
            Some(KnownFacts::Denied(_)) | None => None,
        }
    }
}
