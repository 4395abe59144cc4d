//! The whole gateway, from its configuration file to its sockets; the binary from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod check;
mod dataplane;
mod demo;
mod docs;
mod echo;
mod explain;
mod failure_and_configuration;
mod faults;
mod rooms;
mod schema;
mod serve;
mod support;
mod token;
