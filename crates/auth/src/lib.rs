//! Authentication and authorization of requests, without I/O.
//!
//! Owns:
//! - the one canonical request that every other part matches, authorizes, logs and forwards
//!   ([`request`]);
//! - finding the credential in a request ([`credential`]);
//! - the parsing and verification of tokens ([`token`], [`keyset`]);
//! - reading the answers of token authorities ([`authority`]);
//! - mapping a verified credential to the identity of the caller ([`mapping`], [`identity`]);
//! - routes and rules ([`policy`]), and the decision itself ([`decide`]);
//! - the header fields that tell the upstream who the caller is ([`headers`]);
//! - collections whose versions share what did not change ([`snapshot`]).
//!
//! Does not own: sockets, clocks, caches, files. This crate is pure: bytes, a time and a
//! configuration in, a value out. So each step can be tested to the last byte, and fuzzed.
//!
//! Flow: `Canonical::parse → RouteTable::find → jwt::verify → decide → Permit | Denial →
//! IdentityHeaders`.

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
pub mod sealing;
pub mod snapshot;
pub mod time;
pub mod token;
pub mod token_error;
