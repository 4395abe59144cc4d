//! The rules of this crate, each a test named after it.

#![allow(clippy::unwrap_used, reason = "a helper that cannot set up its test fails it")]

mod token_credential;
mod token_keyset;
mod token_mapping;
mod token_properties;
mod token_rules;
mod token_shape;
mod token_signer;
mod token_support;
mod token_time;
