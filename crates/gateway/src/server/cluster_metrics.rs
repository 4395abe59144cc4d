//! Metrics of a cluster: a scrape has those of the configuration in force, and no others.
//!
//! Owns: which Gateways, listeners and routes a scrape has. Does not own: what is counted, and how
//! it is written (`telemetry::metrics`).

use std::sync::Weak;

use parking_lot::Mutex;
use telemetry::metrics::{ClusterMetrics, Metrics};

use super::Applied;
use crate::config::Config;

/// Sets the source of a cluster's metrics.
pub(super) fn register(metrics: &Metrics, applied: Weak<Mutex<Applied>>) {
    metrics.set_cluster(move || {
        let applied = applied.upgrade();
        let config = applied.map(|applied| applied.lock().generation.config.clone());
        config.map(|config| of_config(&config)).unwrap_or_default()
    });
}

fn of_config(config: &Config) -> ClusterMetrics {
    ClusterMetrics {
        gateways: config.listeners.iter().filter_map(|listener| listener.metrics.clone()).collect(),
        listeners: config.routing.all_scope_metrics().cloned().collect(),
        routes: config.routing.routes().filter_map(|route| route.metrics.clone()).collect(),
    }
}
