//! Tests of the data plane's parts, one file each.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod access_log;
mod admin;
mod cache;
mod cache_model;
mod cgroup;
mod exposition;
mod metrics;
mod otlp;
