//! The provider over real HTTP on loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod account;
mod authentication;
mod browser;
mod client_credentials;
mod devices;
mod discovery;
mod keys;
mod logs;
mod openid;
mod passwords;
mod races;
mod security;
mod server;
mod signals;
mod strictness;
mod verify;
mod wire;
mod world;
