//! Others who are asked, before a request is forwarded, whether it may be: external authorization.
//!
//! Owns: what is asked of an authorizer about a request, what its answer means, how long the answer is kept, one asking however many
//! wait. Does not own: our own decision, which comes first (`auth::decide`), the connections ([`crate::upstream`]: an authorizer is
//! an upstream, and is asked by the worker that needs to know), forwarding. Where others ask us is [`crate::vouch`].
//!
//! Flow: `About::key → Authorizer::peek → Said`, or [`Question`], then [`Authorizer::find_out`] (wait for who asks already, or ask)
//! and the same lookup again with what was found.
//!
//! Success is leave to forward; every other answer is the client's, as it is. Where there is no answer that can be read, nobody
//! knows, and that is 503: never yes, and never the authorizer's no.
//!
//! # What is kept
//!
//! Only what the authorizer says may be (RFC 9111), under all that it was shown ([`question`]), and no longer than the
//! configuration says. An authorizer that is a Postern says more: which issuer may take the answer back, and by what
//! ([`coherence::statement`]). Where that issuer is followed here, the answer is kept while nothing of it is told here and no
//! longer than the issuer is heard of; without a lease it is good for the request that it was asked for, and nobody after it.

mod answer;
mod exchange;
mod question;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use auth::time::Timestamp;

pub(crate) use self::answer::{Allowed, Said};
pub use self::question::request_line;
pub(crate) use self::question::{About, Question};
use crate::cache::{
    self, DecisionCache, Generation, Held, Key, Known, Landing, Lifetime, Scope, Secret, Usage,
};
use crate::clock::Now;
use crate::config;
use crate::followed::Follows;
use crate::metrics::{AuthorizerMetrics, Consulted};
use crate::outbound::Throttle;
use crate::worker::{Running, Worker};

/// Looking up, waiting and asking, so often at most for one request.
const ROUNDS: usize = 4;
/// Asking about one request, so often at most: the authorizer may know less than what is known here.
const ASKED: usize = 2;

/// Why no answer is shared with those who wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unshared {
    /// It is for one request alone.
    Alone,
    /// There is none.
    Silent,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Silent {
    #[error(
        "{0} questions are under way on this worker already, which is as many as `max_requests` of its upstream allows"
    )]
    Busy(usize),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("it cannot be reached, or broke off: {0}")]
    Unreachable(&'static str),
    #[error("its answer cannot be used: {0}")]
    Unclear(#[from] answer::Unclear),
    #[error("it knows less of what was revoked than is known here")]
    Behind,
}

impl Silent {
    fn counted(&self) -> Consulted {
        match self {
            Self::Busy(_) => Consulted::Busy,
            Self::Late(_) => Consulted::Timeout,
            Self::Unreachable(_) => Consulted::Unreachable,
            Self::Unclear(_) => Consulted::Malformed,
            Self::Behind => Consulted::Behind,
        }
    }
}

/// Nobody knows whether the request may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unknown;

/// Whether a request may pass, as an authorizer says.
pub(crate) type Answered = Result<Arc<Said>, Unknown>;

/// An authorizer, with what is kept of its answers. Shared by all workers, and made anew with each configuration: no answer
/// outlives the one it was asked under.
pub(crate) struct Authorizer {
    config: config::Authorizer,
    /// Index among those of the configuration.
    at: usize,
    cache: DecisionCache<Said, Unshared>,
    scope: Scope,
    follows: Follows,
    /// Whether its last answer could be kept: then the next one is worth waiting for.
    keeps: AtomicBool,
    told: Throttle,
}

/// What is kept of an authorizer's answers, for metrics.
#[derive(Debug, Clone)]
pub struct AuthorizerStatus {
    /// The configured name.
    pub name: Box<str>,
    /// Its answers.
    pub kept: Usage,
}

impl Authorizer {
    /// Keeps nothing yet. `generation` counts configurations.
    pub(crate) fn new(
        config: &config::Authorizer,
        at: usize,
        generation: u64,
        secret: &Secret,
        follows: &Follows,
    ) -> Self {
        let limits = config::CacheLimits {
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
            told: Throttle::default(),
        }
    }

    /// How it is asked.
    pub(crate) fn config(&self) -> &config::Authorizer {
        &self.config
    }

    /// What is kept of it.
    pub(crate) fn status(&self) -> AuthorizerStatus {
        AuthorizerStatus { name: self.config.name.clone(), kept: self.cache.usage() }
    }

    /// What some answer in use rests on, if that is followed.
    pub(crate) fn any_held(&self, random: u64) -> Option<Arc<Held>> {
        self.cache.any_held(random)
    }

    /// What the answer about a request is kept under.
    pub(crate) fn key(&self, about: &About<'_>) -> Key {
        about.key(&self.config, &self.scope)
    }

    /// What is known at once: the hot path.
    pub(crate) fn peek(&self, key: Key, now: Now) -> Option<Arc<Said>> {
        match self.cache.peek(key, now) {
            Some(Known::Fact(said)) => Some(said),
            Some(Known::Denied(_)) | None => None,
        }
    }

    /// Waits for who asks already, or asks.
    pub(crate) async fn find_out(
        &self,
        question: &Question,
        worker: &Worker,
        running: &Rc<Running>,
    ) -> Answered {
        let counts = &running.authorizers[self.at].counts;
        let alone = async || match self.ask(question, worker, running).await {
            Ok((said, _)) => Ok(Arc::new(said)),
            Err(_) => Err(Unknown),
        };
        for _ in 0..ROUNDS {
            match self.cache.lookup(question.key(), worker.clock.refresh()) {
                // Found out by another since this request looked.
                cache::Lookup::Hit(said) => {
                    counts.answered(&worker.metrics, Consulted::Hit);
                    return Ok(said);
                }
                // Whoever waits for what cannot be shared in the end waits twice.
                cache::Lookup::Pending(_) if !self.keeps.load(Relaxed) => return alone().await,
                cache::Lookup::Pending(flight) => match flight.land().await {
                    Landing::Known(said) => {
                        counts.answered(&worker.metrics, Consulted::Coalesced);
                        return Ok(said);
                    }
                    Landing::Denied(Unshared::Silent) => return Err(Unknown),
                    Landing::Denied(Unshared::Alone) => return alone().await,
                    Landing::Again => {}
                },
                cache::Lookup::Denied(_) => return alone().await,
                cache::Lookup::Miss(ticket) => match self.ask(question, worker, running).await {
                    Err(_) => {
                        ticket.fail(Unshared::Silent);
                        return Err(Unknown);
                    }
                    Ok((said, None)) => {
                        ticket.fail(Unshared::Alone);
                        return Ok(Arc::new(said));
                    }
                    // Void already: something was told while it was stored.
                    Ok((said, Some(life))) => {
                        if let Ok(said) = ticket.fill(said, life, worker.clock.refresh()) {
                            return Ok(said);
                        }
                    }
                },
            }
        }
        Err(Unknown)
    }

    /// Asks, and says how long the answer may be kept; `None`: it is for this request alone.
    async fn ask(
        &self,
        question: &Question,
        worker: &Worker,
        running: &Rc<Running>,
    ) -> Result<(Said, Option<Lifetime>), Silent> {
        let began = worker.clock.refresh();
        let answer = self.try_ask(question, worker, running).await;
        let took = worker.clock.refresh().monotonic.saturating_duration_since(began.monotonic);
        let what = match &answer {
            Ok((said, _)) => said.counted(),
            Err(why) => why.counted(),
        };
        let counts: &AuthorizerMetrics = &running.authorizers[self.at].counts;
        counts.asked(&worker.metrics, what, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        match &answer {
            Ok((_, life)) => self.keeps.store(life.is_some(), Relaxed),
            Err(why) if self.told.is_due() => {
                tracing::warn!(
                    authorizer = &*self.config.name,
                    %why,
                    "nobody can say whether a request may pass: answered 503, said once in 10 s"
                );
            }
            Err(_) => {}
        }
        answer
    }

    async fn try_ask(
        &self,
        question: &Question,
        worker: &Worker,
        running: &Rc<Running>,
    ) -> Result<(Said, Option<Lifetime>), Silent> {
        for _ in 0..ASKED {
            // Before it is asked: its answer may be as old as the question.
            let (departed, asked) = (self.follows.depart(), worker.clock.refresh().monotonic);
            let heard = exchange::ask(&self.config, question, worker, running).await?;
            let answer::Read { said, fresh, statement } =
                answer::read(heard, &self.config, &running.config.identity_headers, question)?;
            let for_as_long = |most: Duration| fresh.map(|fresh| asked + fresh.min(most));
            let life = |until, hold| Lifetime { expires: Timestamp::MAX, until: Some(until), hold };
            let of = |issuer: &str| departed.into_iter().find(|(followed, _)| *followed.issuer == *issuer);
            let followed = statement.and_then(|(issuer, said)| Some((of(&issuer)?, said)));
            let Some(((followed, departed), statement)) = followed else {
                let until = for_as_long(self.config.max_age);
                return Ok((said, until.filter(|until| *until > asked).map(|until| life(until, None))));
            };
            // Nobody is let in on the strength of what knows less than is known here.
            let Some((revocable, hold)) = followed.hold_relayed(departed, statement) else { continue };
            let until = for_as_long(self.config.max_age_followed).filter(|until| *until > asked);
            let life = until.zip(hold).map(|(until, hold)| life(until, Some(hold)));
            return Ok((said.until_revoked(revocable), life));
        }
        Err(Silent::Behind)
    }
}
