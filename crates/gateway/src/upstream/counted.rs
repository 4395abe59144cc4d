//! Open connections to an endpoint, for the gauge.

use std::rc::Rc;
use std::sync::Arc;

use crate::metrics::{self, EndpointMetrics};

/// Counts an open upstream connection until dropped.
pub(crate) struct Counted {
    metrics: Rc<metrics::Worker>,
    counts: Arc<EndpointMetrics>,
}

impl Counted {
    pub(super) fn new(metrics: Rc<metrics::Worker>, counts: Arc<EndpointMetrics>) -> Self {
        counts.connected(&metrics);
        Self { metrics, counts }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.disconnected(&self.metrics);
    }
}
