//! The OAuth 2.0 vocabulary: what every endpoint and grant of the provider speaks.
//!
//! Owns: the strict form parser ([`form`]), the names of grants ([`grant_type`]), scopes ([`scope`]), resource indicators ([`target`]) and the one
//! table of errors ([`error`]).
//! Does not own: what a client may ask for ([`crate::client`]) or what a grant does with it ([`crate::grants`]).

pub mod error;
pub mod form;
pub mod grant_type;
pub mod scope;
pub mod target;
