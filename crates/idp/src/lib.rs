//! The OpenID provider: who may have a token, and the token itself.
//!
//! Owns: the signing keys and their rotation ([`keys`]), and what else follows from the provider's one secret
//! ([`secrets`]); the clients and how they prove themselves ([`client`]); people ([`person`]), passwords: their hashes,
//! rules and lockout ([`passwords`]), logging in ([`login`]), sessions and cookies ([`session`]); the OAuth vocabulary and its
//! one error table ([`oauth`]); one file per grant ([`grants`]); the tokens ([`access_token`], [`id_token`]); what is asked at
//! the authorization endpoint and how it is answered ([`authorization`]), also for devices ([`device`]), and what is
//! remembered in between ([`flow`]); what is told when something ends ([`ending`]), to clients too ([`logout`]); the discovery documents ([`discovery`]); the HTTP
//! surface ([`endpoint`], [`router()`]); the pages that people see ([`pages`]); what operators look at and change ([`admin`]);
//! what happens by itself ([`maintain()`]).
//!
//! Does not own: the listener and its TLS, limits on connections and header sizes (the binary serves the
//! router), facts (`store`), the verification of tokens (`auth`), the configuration file's syntax (the binary translates it
//! into a [`Config`]), a clock, a random number generator or a way to clients (all are arguments of [`Provider::start`]).
//! Nothing here is global: two providers live in one process without knowing of each other.
//!
//! Flow of a token request:
//!
//! ```text
//! router → endpoint::token → endpoint::form  the body (type, size, deadline), strictly parsed
//!        → client::authenticate  exactly one method → grants::issue  shared checks
//!        → grants::…  what is granted → access_token::mint, id_token::mint → store  kept in one change → answer
//! ```
//!
//! Flow of a person: `router → crate::endpoint::browser_request  cookies, language → endpoint::authorize → authorization::next → a page, or an
//! answer to the client`.
//!
//! Every refusal on the way is an [`oauth::error::Fault`], turned into an answer and a log line in one place.

pub mod access_token;
pub mod admin;
pub mod authorization;
pub mod authorization_state;
pub mod client;
pub mod clock_rng;
pub mod config;
pub mod device;
pub mod discovery;
pub mod endpoint;
pub mod grants;
pub mod id_token;
pub mod issuer;
pub mod keys;
pub mod lifetime;
pub mod login;
pub mod logout;
mod maintenance;
pub mod oauth;
pub mod pages;
pub mod passwords;
pub mod person;
pub mod provider;
pub mod revocations;
mod router;
pub mod secrets;
pub mod session;
pub mod signals;
mod verified_cache;

pub use client::{
    Introspects, TokenFormat,
    config::{ClientConfig, ConfiguredSecret},
};
pub use clock_rng::{Clock, Entropy, EntropyFailed};
pub use config::{Config, ConfigFault, ConfigFaults, ConfigReason, Lifetimes, PasswordConfig};
pub use issuer::Issuer;
pub use keys::{KeyError, Keys, SigningAlgorithm};
pub use maintenance::maintain;
pub use oauth::grant_type::GrantType;
pub use provider::{Answered, Outbound, Parts, Post, Provider, ProviderFault};
pub use router::router;
pub use secrets::Secrets;
pub use session::Caller;
