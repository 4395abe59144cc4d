//! Telemetry tests, one file each.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod access_log;
mod cgroup;
mod cluster;
mod metrics;
mod otlp;
mod prometheus_client;
