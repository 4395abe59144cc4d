//! The rules of the security design that need no I/O, each as a test named after it.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod decide_permit;
mod decide_rules;
mod fixtures;
mod headers_identity;
mod headers_strip;
mod model_server;
mod policy_review;
mod policy_route;
mod policy_rule;
mod request_host;
mod request_path;
mod request_properties;
mod request_target;
mod token_credential;
mod token_keyset;
mod token_mapping;
mod token_properties;
mod token_providers;
mod token_rules;
mod token_shape;
mod token_signer;
mod token_support;
mod token_time;
