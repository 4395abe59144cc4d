//! Endpoints: HTTP in, HTTP out.
//!
//! Owns: reading requests into typed values ([`mod@form`], `client_request`) and forming answers ([`answer`]). What programs call: [`token`],
//! [`introspect`], [`revoke`], [`userinfo`], [`pushed`], and the public [`documents`]. What people see: [`authorize`],
//! [`login`], [`logout`], [`device`], [`account`], each within a visit. What operators' programs call: [`admin`].
//! Does not own: decisions; those are functions of [`crate::client`], [`crate::grants`], [`crate::authorization`] that know no
//! HTTP answer.

pub mod account;
pub mod admin;
pub mod answer;
pub mod authorize;
mod browser_request;
mod client_request;
pub mod device;
pub mod form;
pub mod introspect;
pub mod login;
pub mod logout;
pub mod metadata;
pub mod par;
pub mod revoke;
pub mod signals;
pub mod token;
pub mod userinfo;
