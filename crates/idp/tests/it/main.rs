//! The provider over real HTTP on loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod authentication;
mod client_credentials;
mod discovery;
mod keys;
mod logs;
mod server;
mod strictness;
mod verify;
mod wire;
