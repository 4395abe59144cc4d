//! Retry: repeats a request whose first attempt failed, where the upstream allows it.
//!
//! Owns: which requests can be repeated, after which outcomes, and how often. Does not own: the
//! budget of an upstream ([`http_engine::upstream::pool`]), requests of which nothing was sent
//! ([`mod@crate::forward`]): these are not repetitions.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_engine::config::Retries;
use http_engine::head::Framing;
use http_engine::upstream::pool::{ExchangeFailure, Lease, Pool, Selection};

use crate::config::RouteRetries;
use crate::exchange_error::ExchangeError;

/// Delay before the first attempt on an endpoint that was tried already; doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(25);
const MAX_DELAY: Duration = Duration::from_millis(250);

/// The attempts that a request has left.
pub(crate) struct RetryState {
    pool: Rc<Pool>,
    /// What the route says in place of the upstream.
    route: Option<Arc<RouteRetries>>,
    left: Cell<u32>,
    /// Whether the route limits the time of an attempt.
    is_limited: bool,
    made: Cell<u32>,
}

impl RetryState {
    /// The retries of a request; `None`: it is not repeated. Only requests with an idempotent method
    /// (RFC 9110 section 9.2.2) and without a body are. `attempt` and `route`: the time limit of one
    /// attempt, and the retries, as the route has them.
    pub(crate) fn new(
        pool: &Rc<Pool>,
        (method, framing): (&str, Framing),
        attempt: Option<Duration>,
        route: Option<&Arc<RouteRetries>>,
    ) -> Option<Self> {
        let retries = pool.config.retries.as_ref()?;
        let idempotent = matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE");
        if !idempotent || framing != Framing::Length(0) {
            return None;
        }
        let left = route.map_or(retries.attempts - 1, |route| route.retries);
        let (pool, route, left) = (pool.clone(), route.cloned(), Cell::new(left));
        Some(Self { pool, route, left, is_limited: attempt.is_some(), made: Cell::new(0) })
    }

    fn retries(&self) -> Option<&Retries> {
        self.pool.config.retries.as_ref()
    }

    /// Time limit of an attempt until the head of the response.
    pub(crate) fn per_try_timeout(&self) -> Option<Duration> {
        self.retries()?.per_try_timeout
    }

    /// Whether a response with this status is dropped and the request repeated. Takes the retry from
    /// the budget then.
    pub(crate) fn takes_status(&self, status: u16) -> bool {
        let is_named = match &self.route {
            Some(route) => route.on_statuses.contains(&status),
            None => self.retries().is_some_and(|retries| retries.on_statuses.contains(&status)),
        };
        is_named && self.take()
    }

    /// Whether the request is repeated after a failure that the client knows nothing of. Takes the
    /// retry from the budget then.
    pub(crate) fn takes_failure(&self, failure: &ExchangeError) -> bool {
        let Some(retries) = self.retries() else { return false };
        match failure {
            ExchangeError::RetriedStatus => true,
            ExchangeError::UpstreamClosed(_) => retries.on_reset && self.take(),
            ExchangeError::UpstreamTimeout => {
                (retries.per_try_timeout.is_some() || self.is_limited) && self.take()
            }
            _ => false,
        }
    }

    /// Whether connecting is tried again after every endpoint refused. Takes the retry from the
    /// budget then.
    pub(crate) fn takes_connect_failure(&self) -> bool {
        self.retries().is_some_and(|retries| retries.on_connect_failure) && self.take()
    }

    fn take(&self) -> bool {
        let left = self.left.get();
        let taken = left > 0 && self.pool.take_retry();
        if taken {
            self.left.set(left - 1);
            self.made.set(self.made.get() + 1);
        }
        taken
    }

    /// Number of retries so far.
    pub(crate) fn made(&self) -> u32 {
        self.made.get()
    }

    /// Waits before an endpoint is tried again.
    pub(crate) async fn pause(&self) {
        let backoff = self.route.as_ref().and_then(|route| route.backoff);
        let doubled =
            backoff.unwrap_or(FIRST_DELAY).saturating_mul(1 << self.made.get().saturating_sub(1).min(8));
        // A route may wait longer than the gateway would.
        let longest = backoff.map_or(MAX_DELAY, |backoff| backoff.max(MAX_DELAY));
        tokio::time::sleep(doubled.min(longest)).await;
    }

    /// Waits before the next attempt, unless there is an endpoint that was not tried. A route with a
    /// pause of its own waits in any case.
    pub(crate) async fn pause_without_other(&self, selection: &Selection) {
        if self.route.as_ref().is_some_and(|route| route.backoff.is_some()) || !self.pool.has_other(selection)
        {
            self.pause().await;
        }
    }
}

/// Ends the failed attempt of a lease, and counts its retry at the endpoint.
pub(crate) fn end_attempt(lease: Lease, failure: &ExchangeError, selection: &mut Selection) {
    lease.retried();
    selection.avoid(&lease);
    tracing::debug!(endpoint = &**lease.label(), ?failure, "request is sent again");
    match failure {
        // The endpoint works as far as connections are concerned.
        ExchangeError::RetriedStatus => lease.release(),
        ExchangeError::UpstreamTimeout => lease.fail(ExchangeFailure::TimedOut, &"no response in time"),
        ExchangeError::UpstreamClosed(error) => lease.fail(ExchangeFailure::Broken, error),
        _ => {}
    }
}
