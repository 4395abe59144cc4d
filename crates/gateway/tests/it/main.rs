//! Tests of the data plane's parts, one file each.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod access_log;
mod admin;
mod assertion;
mod authenticate;
mod authenticate_reload;
mod authenticate_rotation;
mod authenticate_tls;
mod cache;
mod cache_model;
mod certificate;
mod cgroup;
mod exposition;
mod files;
mod followed;
mod issuer;
mod metrics;
mod otlp;
mod tls;
