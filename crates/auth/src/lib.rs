//! Who is this, and may they.
//!
//! Owns: the one canonical request every other part matches, authorizes, logs and forwards ([`request`]);
//! finding the credential in a request ([`credential`]); the parsing and verification of tokens ([`token`],
//! [`keyset`]); what somebody says of a token who was asked about it ([`authority`]); what a verified credential says about its holder ([`mapping`], [`identity`]); routes and
//! rules ([`policy`]); the decision itself ([`decide`]); and what the upstream is told of the caller
//! ([`headers`]).
//!
//! Does not own: sockets, clocks, caches, files. This crate is pure: bytes, a time and a configuration in,
//! a value out. That is what makes each step testable to the last byte and fuzzable.
//!
//! Flow: `Canonical::parse → RouteTable::find → jwt::verify → decide → Permit | Denial → IdentityHeaders`.

pub mod algorithm;
pub mod authority;
pub mod credential;
pub mod decide;
pub mod headers;
pub mod identity;
pub mod json;
pub mod keyset;
pub mod mapping;
pub mod policy;
pub mod request;
pub mod time;
pub mod token;
pub mod token_error;
