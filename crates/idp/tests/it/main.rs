//! The provider over real HTTP on loopback.

mod authentication;
mod client_credentials;
mod discovery;
mod keys;
mod server;
mod strictness;
mod verify;
mod wire;
