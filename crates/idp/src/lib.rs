//! OpenID provider: authenticates users and clients, and issues tokens.
//!
//! Owns, from the bottom up:
//!
//! - plain values: [`lifetime`], [`issuer`], [`paths`], [`clock_rng`], [`device`];
//! - keys and secrets: signing keys and their rotation ([`keys`]), everything derived from the
//!   provider's one secret ([`secrets`]), subject identifiers ([`subject`]), client secrets
//!   ([`client_secret`]), password hashes, rules and lockout ([`passwords`]);
//! - the OAuth vocabulary with its one table of errors ([`oauth`]), claims and attributes of users
//!   ([`claims`], [`attributes`], [`claim_mapping`], [`person`]), pages ([`pages`]);
//! - clients and their settings ([`client`]), receivers of security events ([`receivers`]) and of
//!   the audit log ([`audit_receivers`]), the mail server ([`mailer`]), the form of audit entries (`audit_draft`) and the count of
//!   failures (`failure_log`), the checked configuration ([`config`]), sign-in with a password ([`login`]), authorization
//!   requests and responses ([`authorization`]), discovery documents ([`discovery`]);
//! - the running provider ([`provider`]);
//! - what works on it: client authentication ([`client_authentication`]), browser sessions
//!   ([`session`]), tokens ([`access_token`], [`id_token`]), revocations ([`revocations`]), state
//!   between pages ([`authorization_state`]), back-channel logout ([`logout`]), mails with account
//!   links (`mail_delivery`), security events
//!   ([`signals`]), the audit of sign-ins and grants (`audit_trail`), its delivery
//!   (`audit_delivery`) and its retention (`audit_retention`), one file a grant ([`grants`]),
//!   administration ([`admin`]), periodic work ([`maintain()`]);
//! - the HTTP surface ([`endpoint`], [`router()`]).
//!
//! Does not own: the listener, its TLS and its limits (the binary serves the router), storage
//! (`store`), token verification (`auth`), the syntax of the configuration file (crate `config`
//! makes a [`Config`] of it). The clock, the random number generator and the HTTP client are
//! arguments of [`Provider::start`], so two providers can live in one process.
//!
//! Flow of a token request:
//!
//! ```text
//! router → endpoint::token → endpoint::form            body: type, size, deadline, strict parsing
//!        → client_authentication::authenticate         exactly one method
//!        → grants::issue → grants::…                   shared checks, then the grant
//!        → access_token::mint, id_token::mint → store  written in one transaction → response
//! ```
//!
//! Flow of a browser request: `router → endpoint::browser_request` (cookies, language)
//! `→ endpoint::authorize → authorization::next →` a page, or a response to the client.
//!
//! Each refusal is an [`oauth::error::OAuthFault`], which one place turns into a response and a log
//! line.

pub mod access_token;
pub mod admin;
pub mod attributes;
mod audit_delivery;
mod audit_draft;
pub mod audit_receivers;
mod audit_retention;
mod audit_trail;
pub mod authorization;
pub mod authorization_state;
pub mod claim_mapping;
pub mod claims;
pub mod client;
pub mod client_authentication;
pub mod client_secret;
pub mod clock_rng;
pub mod config;
pub mod device;
pub mod discovery;
pub mod endpoint;
mod failure_log;
pub mod grants;
pub mod id_token;
pub mod issuer;
pub mod keys;
pub mod lifetime;
pub mod login;
pub mod logout;
pub mod logout_outages;
mod mail_delivery;
pub mod mailer;
mod maintenance;
pub mod oauth;
pub mod pages;
pub mod passwords;
pub mod paths;
pub mod person;
pub mod provider;
pub mod receivers;
pub mod revocations;
mod router;
pub mod secrets;
pub mod session;
pub mod signals;
pub mod subject;
mod verified_cache;

pub use client::{
    AccessTokenTyp, Introspects, TokenFormat,
    config::{ClientConfig, ConfiguredSecret},
};
pub use clock_rng::{Clock, Entropy, EntropyFailed};
pub use config::{Config, ConfigFault, ConfigFaults, ConfigReason, Lifetimes, PasswordConfig};
pub use failure_log::AuditEvents;
pub use issuer::Issuer;
pub use keys::{KeyError, Keys, SigningAlgorithm};
pub use maintenance::maintain;
pub use oauth::grant_type::GrantType;
pub use provider::{OutboundClient, Parts, PendingResponse, PostRequest, Provider, ProviderFault};
pub use router::router;
pub use secrets::Secrets;
pub use session::Caller;
pub use subject::SubjectType;
