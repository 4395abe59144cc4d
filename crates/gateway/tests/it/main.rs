//! The gateway from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod access_log;
mod admin;
mod cgroup;
mod exposition;
mod metrics;
mod otlp;
