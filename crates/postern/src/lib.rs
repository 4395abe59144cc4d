//! Postern binary: reads the configuration, connects the crates, runs the commands.
//!
//! Owns: the configuration file ([`config`]), the command line ([`cli`], [`cmd`]), the life of the
//! process ([`lifecycle`], [`service_manager`]), serving the provider ([`provider`]), following revocations
//! ([`revocation`]), storage of the gateway's sessions ([`sessions`]).
//!
//! Does not own: anything that happens to a request.

pub mod cli;
mod client;
mod cluster_settings;
pub mod cmd;
pub mod events;
pub mod exit;
pub mod lifecycle;
pub mod logging;
pub mod process;
pub mod provider;
mod readiness;
pub mod revocation;
pub mod service_manager;
pub mod sessions;
pub mod shell;
pub mod terminal;
