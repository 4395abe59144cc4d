//! Tests of connections, one file each.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod listener_tls;
mod outbound_proxy;
mod tls;
mod trust;
