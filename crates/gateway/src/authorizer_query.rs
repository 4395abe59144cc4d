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

use self::exchange::QueryError;
use crate::authorizer::{
    Authorizer, AuthorizerAnswer, AuthorizerQuestion, AuthorizerResult, AuthorizerUnknown, Unshared, answer,
};
use crate::worker::{ActiveConfig, Worker};

/// Maximum rounds of lookup, waiting and query for one request.
const ROUNDS: usize = 4;
/// Maximum queries about one request: an answer may reflect fewer revocations than are known here.
const ASKED: usize = 2;

impl Authorizer {
    /// Returns the answer: joins a query under way, or sends one.
    pub(crate) async fn find_out(
        &self,
        question: &AuthorizerQuestion,
        worker: &Worker,
        running: &Rc<ActiveConfig>,
    ) -> AuthorizerResult {
        let counts = &running.authorizers[self.at].counts;
        let alone = async || match self.ask(question, worker, running).await {
            Ok((said, _)) => Ok(Arc::new(said)),
            Err(_) => Err(AuthorizerUnknown),
        };
        for _ in 0..ROUNDS {
            match self.cache.lookup(question.key(), worker.clock.refresh()) {
                // Another request got the answer since this request looked.
                CacheLookup::Hit(said) => {
                    counts.answered(&worker.metrics, Consulted::Hit);
                    return Ok(said);
                }
                // The last answer could not be shared: waiting for this one would mean to wait
                // twice.
                CacheLookup::Pending(_) if !self.keeps.load(Relaxed) => return alone().await,
                CacheLookup::Pending(flight) => match flight.land().await {
                    FlightResult::Known(said) => {
                        counts.answered(&worker.metrics, Consulted::Coalesced);
                        return Ok(said);
                    }
                    FlightResult::Denied(Unshared::Silent) => return Err(AuthorizerUnknown),
                    FlightResult::Denied(Unshared::Alone) => return alone().await,
                    FlightResult::Again => {}
                },
                CacheLookup::Denied(_) => return alone().await,
                CacheLookup::Miss(ticket) => match self.ask(question, worker, running).await {
                    Err(_) => {
                        ticket.fail(Unshared::Silent);
                        return Err(AuthorizerUnknown);
                    }
                    Ok((said, None)) => {
                        ticket.fail(Unshared::Alone);
                        return Ok(Arc::new(said));
                    }
                    // An error means that a revocation arrived while the answer was stored: look up
                    // again.
                    Ok((said, Some(life))) => {
                        if let Ok(said) = ticket.fill(said, life, worker.clock.refresh()) {
                            return Ok(said);
                        }
                    }
                },
            }
        }
        Err(AuthorizerUnknown)
    }

    /// Queries the authorizer, with how long the answer may be cached; `None`: the answer is for
    /// this request only.
    async fn ask(
        &self,
        question: &AuthorizerQuestion,
        worker: &Worker,
        running: &Rc<ActiveConfig>,
    ) -> Result<(AuthorizerAnswer, Option<Lifetime>), QueryError> {
        let began = worker.clock.refresh();
        let answer = self.try_ask(question, worker, running).await;
        let took = worker.clock.refresh().monotonic.saturating_duration_since(began.monotonic);
        let what = match &answer {
            Ok((said, _)) => said.counted(),
            Err(why) => why.counted(),
        };
        let counts = &running.authorizers[self.at].counts;
        counts.asked(&worker.metrics, what, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        match &answer {
            Ok((_, life)) => {
                self.outage.succeeded();
                self.keeps.store(life.is_some(), Relaxed);
            }
            Err(why) => self.outage.failed(why),
        }
        answer
    }

    async fn try_ask(
        &self,
        question: &AuthorizerQuestion,
        worker: &Worker,
        running: &Rc<ActiveConfig>,
    ) -> Result<(AuthorizerAnswer, Option<Lifetime>), QueryError> {
        for _ in 0..ASKED {
            // Taken before the query is sent: the answer may be as old as the query.
            let (departed, now) = (self.follows.depart(), worker.clock.refresh());
            let heard = exchange::ask(&self.config, question, worker, running).await?;
            let answer::ParsedAnswer { said, fresh, statement, lasts } =
                answer::read(heard, &self.config, &running.config.identity_headers, question)?;
            let (asked, ends) = (now.monotonic, lasts.map(|lasts| now.wall.plus(lasts)));
            let said = said.until(ends);
            let for_as_long = |most: Duration| fresh.map(|fresh| asked + fresh.min(most));
            let expires = ends.unwrap_or(Timestamp::MAX);
            let life = |until, hold| Lifetime { expires, until: Some(until), hold };
            let of = |issuer: &str| departed.into_iter().find(|departed| departed.is_of(issuer));
            let followed = statement.and_then(|(issuer, said)| Some((of(&issuer)?, said)));
            let Some((departed, statement)) = followed else {
                let until = for_as_long(self.config.max_age);
                return Ok((said, until.filter(|until| *until > asked).map(|until| life(until, None))));
            };
            // An answer that knows of fewer revocations than are known here authorizes nothing:
            // query again.
            let Some((revocable, hold)) = departed.hold_relayed(statement) else { continue };
            let until = for_as_long(self.config.max_age_with_revocation).filter(|until| *until > asked);
            let life = until.zip(hold).map(|(until, hold)| life(until, Some(hold)));
            return Ok((said.until_revoked(revocable), life));
        }
        Err(QueryError::Behind)
    }
}
