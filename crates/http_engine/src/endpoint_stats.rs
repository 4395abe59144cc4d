//! What the pool counts of an endpoint, and how it says that one is gone: a trait, so that whoever keeps metrics stands above.

use std::fmt::Display;
use std::rc::Rc;

/// Counts of one endpoint, written by one worker.
pub trait EndpointStats {
    /// A request is given to the endpoint. [`EndpointStats::request_ended`] ends it.
    fn request_begun(&self);
    /// The exchange is over, well or not.
    fn request_ended(&self);
    /// A connection stands, TLS included. [`EndpointStats::disconnected`] ends it.
    fn connected(&self);
    /// A connection that stood was closed, by either side.
    fn disconnected(&self);
    /// A connection could not be made.
    fn connect_failed(&self);
    /// A request of which nothing was sent is tried again; counted at the endpoint that failed.
    fn retried(&self);
    /// A connection broke, or a stream was reset, in the middle of an exchange.
    fn reset(&self);
    /// The endpoint did not answer, or stalled, within its time.
    fn timed_out(&self);
    /// This worker sends no more requests to the endpoint.
    fn ejected(&self);
    /// This worker sends requests to the endpoint (again).
    fn readmitted(&self);
    /// So many exchanges failed that the endpoint is taken out. Each worker finds out for itself; whether it makes a line in the
    /// log is for the implementation to say.
    fn unhealthy(&self, why: &dyn Display);
    /// An exchange ended well.
    fn healthy(&self);
}

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
