//! Endpoint statistics: the trait through which the pool reports counts and failures of an
//! endpoint. It is a trait because metrics belong to a crate that depends on this one.

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

/// Counters of one endpoint, written by one worker.
pub trait EndpointStats {
    /// A request was assigned to the endpoint. [`EndpointStats::request_ended`] follows.
    fn request_begun(&self);
    /// The exchange has ended, successfully or not.
    fn request_ended(&self);
    /// A connection was established, TLS included. [`EndpointStats::disconnected`] follows.
    fn connected(&self);
    /// An established connection was closed, by either side.
    fn disconnected(&self);
    /// A connection could not be established.
    fn connect_failed(&self);
    /// A request of which nothing was sent is retried; counted at the endpoint that failed.
    fn retried(&self);
    /// A connection broke or a stream was reset during an exchange.
    fn reset(&self);
    /// The endpoint did not answer in time, or stalled.
    fn timed_out(&self);
    /// This worker stops sending requests to the endpoint.
    fn ejected(&self);
    /// This worker sends requests to the endpoint, for the first time or again.
    fn readmitted(&self);
    /// The endpoint has reached the number of failures that ejects it. Each worker detects this
    /// itself; the implementation decides whether to log it.
    fn unhealthy(&self, why: &dyn Display);
    /// An exchange succeeded.
    fn healthy(&self);
}

/// Counters of the active health checks of one endpoint, written by one task.
pub trait HealthStats: Send + Sync {
    /// A check ended.
    fn checked(&self, passed: bool);
    /// All workers stop sending requests to the endpoint (`true`) or may resume.
    fn set_down(&self, down: bool);
}

/// Finds the counters of an endpoint by upstream and endpoint.
pub type HealthStatsOf = Arc<dyn Fn(&str, &str) -> Arc<dyn HealthStats> + Send + Sync>;

/// Counts an open connection to an endpoint until dropped.
pub struct OpenConnection(Rc<dyn EndpointStats>);

impl OpenConnection {
    pub(crate) fn new(stats: Rc<dyn EndpointStats>) -> Self {
        stats.connected();
        Self(stats)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}
