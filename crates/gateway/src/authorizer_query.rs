//! Authorizer query: queries an authorizer from the worker that needs the answer, once for all
//! requests that wait for it.
//!
//! Owns: which request sends the query and which wait, when a query is repeated, counting each
//! query. Does not own: the exchange ([`crate::authorizer_query::exchange`]), what the answer means
//! ([`crate::authorizer::answer`]), the cache ([`Authorizer`]).

mod exchange;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::cache::{CacheLookup, FlightResult, Lifetime};
use http_engine::labels::Consulted;
use telemetry::metrics::AuthorizerMetrics;

use self::exchange::QueryError;
use crate::authorizer::answer::OwnFields;
use crate::authorizer::{
    Authorizer, AuthorizerAnswer, AuthorizerQuestion, AuthorizerResult, AuthorizerUnknown, NotShared, answer,
};
use crate::worker::{ActiveConfig, Worker};

/// Maximum rounds of lookup, waiting and query for one request.
const MAX_ROUNDS: usize = 4;
/// Maximum queries about one request: an answer may reflect fewer revocations than are known here.
const MAX_QUERIES: usize = 2;

impl Authorizer {
    /// Returns the answer: joins a query under way, or sends one.
    pub(crate) async fn resolve(
        &self,
        question: &AuthorizerQuestion,
        counts: &AuthorizerMetrics,
        worker: &Worker,
        running: &Rc<ActiveConfig>,
    ) -> AuthorizerResult {
        let alone = async || match self.query(question, counts, worker, running).await {
            Ok((answer, _)) => Ok(Arc::new(answer)),
            Err(_) => Err(AuthorizerUnknown),
        };
        for _ in 0..MAX_ROUNDS {
            match self.cache.lookup(question.key(), worker.clock.refresh()) {
                // Another request got the answer since this request looked.
                CacheLookup::Hit(answer) => {
                    counts.count_result(&worker.metrics, Consulted::Hit);
                    return Ok(answer);
                }
                // The last answer could not be shared: waiting for this one would mean to wait
                // twice.
                CacheLookup::Pending(_) if !self.last_was_cacheable.load(Relaxed) => return alone().await,
                CacheLookup::Pending(flight) => match flight.wait().await {
                    FlightResult::Known(answer) => {
                        counts.count_result(&worker.metrics, Consulted::Coalesced);
                        return Ok(answer);
                    }
                    FlightResult::Denied(NotShared::QueryFailed) => return Err(AuthorizerUnknown),
                    FlightResult::Denied(NotShared::SingleUse) => return alone().await,
                    FlightResult::Again => {}
                },
                CacheLookup::Denied(_) => return alone().await,
                CacheLookup::Miss(ticket) => match self.query(question, counts, worker, running).await {
                    Err(_) => {
                        ticket.fail(NotShared::QueryFailed);
                        return Err(AuthorizerUnknown);
                    }
                    Ok((answer, None)) => {
                        ticket.fail(NotShared::SingleUse);
                        return Ok(Arc::new(answer));
                    }
                    // An error means that a revocation arrived while the answer was stored: look up
                    // again.
                    Ok((answer, Some(life))) => {
                        if let Ok(answer) = ticket.fill(answer, life, worker.clock.refresh()) {
                            return Ok(answer);
                        }
                    }
                },
            }
        }
        Err(AuthorizerUnknown)
    }

    /// Queries the authorizer, with how long the answer may be cached; `None`: the answer is for
    /// this request only.
    async fn query(
        &self,
        question: &AuthorizerQuestion,
        counts: &AuthorizerMetrics,
        worker: &Worker,
        running: &Rc<ActiveConfig>,
    ) -> Result<(AuthorizerAnswer, Option<Lifetime>), QueryError> {
        let began = worker.clock.refresh();
        let answer = self.try_query(question, worker, running).await;
        let took = worker.clock.refresh().monotonic.saturating_duration_since(began.monotonic);
        let result = match &answer {
            Ok((parsed, _)) => parsed.metric_label(),
            Err(why) => why.metric_label(),
        };
        counts.count_query(&worker.metrics, result, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        match &answer {
            Ok((_, life)) => {
                self.outage.succeeded();
                self.last_was_cacheable.store(life.is_some(), Relaxed);
            }
            Err(why) => self.outage.failed(why),
        }
        answer
    }

    async fn try_query(
        &self,
        question: &AuthorizerQuestion,
        worker: &Worker,
        running: &Rc<ActiveConfig>,
    ) -> Result<(AuthorizerAnswer, Option<Lifetime>), QueryError> {
        let own = OwnFields { identity: &running.config.identity_headers, strip: &running.config.strip };
        for _ in 0..MAX_QUERIES {
            // Taken before the query is sent: the answer may be as old as the query.
            let (departed, now) = (self.followed_issuers.begin_query(), worker.clock.refresh());
            let response = exchange::send_query(&self.config, question, worker, running).await?;
            let answer::ParsedAnswer { answer, fresh, revocation: statement, credential_lifetime: lifetime } =
                answer::read(response, &self.config, own, question)?;
            let (sent_at, ends) = (now.monotonic, lifetime.map(|lifetime| now.wall.plus(lifetime)));
            let answer = answer.expiring_at(ends);
            let for_as_long = |most: Duration| fresh.map(|fresh| sent_at + fresh.min(most));
            let expires = ends.unwrap_or(Timestamp::MAX);
            let life = |until, hold| Lifetime { expires, until: Some(until), basis: hold };
            let of = |issuer: &str| departed.into_iter().find(|departed| departed.is_of(issuer));
            let followed = statement.and_then(|(issuer, tags)| Some((of(&issuer)?, tags)));
            let Some((departed, statement)) = followed else {
                let until = for_as_long(self.config.max_age);
                return Ok((answer, until.filter(|until| *until > sent_at).map(|until| life(until, None))));
            };
            // An answer that knows of fewer revocations than are known here authorizes nothing:
            // query again.
            let Some((revocable, hold)) = departed.use_relayed_answer(statement) else { continue };
            let until = for_as_long(self.config.max_age_with_revocation).filter(|until| *until > sent_at);
            let life = until.zip(hold).map(|(until, hold)| life(until, Some(hold)));
            return Ok((answer.until_revoked(revocable), life));
        }
        Err(QueryError::Outdated)
    }
}
