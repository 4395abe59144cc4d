//! Tests of the provider over HTTP on loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod account;
mod account_links;
mod attributes;
mod audit;
mod audit_delivery;
mod authentication;
mod browser;
mod client_credentials;
mod clients;
mod codes;
mod devices;
mod discovery;
mod keys;
mod logs;
mod mails;
mod must_change_password;
mod openid;
mod outage;
mod pages;
mod pairwise;
mod passwords;
mod played;
mod races;
mod requests;
mod server;
mod session_bound;
mod signals;
mod strictness;
mod tokens;
mod verify;
mod wire;
mod world;
