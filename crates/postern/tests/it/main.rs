//! The whole gateway, from its configuration file to its sockets, and the binary from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(
    clippy::assigning_clones,
    clippy::float_cmp,
    clippy::format_collect,
    clippy::large_stack_arrays,
    clippy::needless_pass_by_value,
    clippy::similar_names,
    reason = "a test is read more often than it is run: plain beats thrifty"
)]

mod addresses;
mod admin;
mod check;
mod commands;
mod crd;
mod demo;
mod dependencies;
mod docs;
mod echo;
mod expiry;
mod explain;
mod failure_and_configuration;
mod faults;
mod former;
// Built with `--features lab`: these run commands of the lab.
#[cfg(feature = "lab")]
mod help;
mod init;
mod init_terminal;
#[cfg(feature = "lab")]
mod lab;
mod login;
mod manifests;
mod manifests_ingress;
mod migrations;
mod outages;
mod provider;
mod provider_faults;
mod recipes;
mod releases;
mod restart;
mod revoked;
mod schema;
mod security_events;
mod serve;
mod service_manager;
mod signals;
mod support;
mod token;
mod values;
