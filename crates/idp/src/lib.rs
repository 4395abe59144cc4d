//! The OpenID provider: who may have a token, and the token itself.
//!
//! Owns: the signing keys and their rotation ([`keys`]); the clients and how they prove themselves
//! ([`client`]); passwords: their hashes, rules and lockout ([`passwords`]); the OAuth vocabulary and its one
//! error table ([`oauth`]); one file per grant ([`grants`]); the access token ([`access_token`]); what is asked at
//! the authorization endpoint and how it is answered ([`authorization`]); the discovery documents
//! ([`discovery`]); the HTTP surface ([`endpoint`], [`router`]); the pages that people see ([`pages`]).
//!
//! Does not own: the listener and its TLS, limits on connections and header sizes (the binary serves the
//! router), the verification of tokens (`auth`), the configuration file's syntax (the binary translates it
//! into a [`Config`]), a clock or a random number generator (both are arguments of [`Provider::new`]).
//! Nothing here is global: two providers live in one process without knowing of each other.
//!
//! Flow of a token request:
//!
//! ```text
//! router → endpoint::token  read the body (type, size, deadline) → oauth::form  strict parse
//!        → client::authenticate  exactly one method → grants::issue  shared checks
//!        → grants::client_credentials  what is granted → access_token::mint → answer
//! ```
//!
//! Every refusal on the way is an [`oauth::error::Fault`], turned into an answer and a log line in one place.

pub mod access_token;
pub mod ambient;
pub mod authorization;
pub mod client;
pub mod config;
pub mod discovery;
pub mod endpoint;
pub mod grants;
pub mod issuer;
pub mod keys;
pub mod oauth;
pub mod pages;
pub mod passwords;
pub mod provider;
mod router;

pub use ambient::{Clock, Entropy, EntropyFailed};
pub use config::{ClientConfig, Config, ConfigFault, ConfigFaults, ConfigReason, ConfiguredSecret};
pub use grants::GrantType;
pub use issuer::Issuer;
pub use keys::{KeyError, Keys, SigningAlgorithm};
pub use provider::{Provider, ProviderFault};
pub use router::router;
