//! Endpoints: the HTTP interface of the provider.
//!
//! Owns: parsing requests into typed values ([`mod@form`], `client_request`, `browser_request`) and
//! building responses ([`answer`]).
//!
//! - For programs of clients: [`token`], [`introspect`], [`revoke`], [`userinfo`], [`par`],
//!   [`signals`], and the public documents ([`metadata`]).
//! - For browsers: [`authorize`], [`login`], [`logout`], [`device`], [`account`].
//! - For programs of operators: [`admin`]. For everyone at other addresses: [`mod@not_found`].
//!
//! Does not own: decisions. They are functions of [`crate::client`], [`crate::grants`] and
//! [`crate::authorization`], which do not build HTTP responses.

pub mod account;
pub mod account_link;
pub mod admin;
pub mod answer;
pub mod authorize;
mod browser_request;
mod client_request;
pub mod device;
pub mod forgot_password;
pub mod form;
pub mod introspect;
pub mod login;
pub mod logout;
pub mod metadata;
pub mod not_found;
pub mod par;
mod password_problem;
pub mod revoke;
pub mod signals;
pub mod token;
pub mod userinfo;
