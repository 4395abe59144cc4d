//! The rules of the security design that are pure, each as a test named after it.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod token_credential;
mod token_keyset;
mod token_mapping;
mod token_properties;
mod token_rules;
mod token_shape;
mod token_signer;
mod token_support;
mod token_time;
