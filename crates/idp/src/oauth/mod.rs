//! OAuth 2.0 basics, shared by all endpoints and grants.
//!
//! Owns: the strict form parser ([`form`]), the names of grants ([`grant_type`]), redirect URIs
//! ([`redirect_uri`]), scopes ([`scope`]), resource indicators ([`target`]), the faults of
//! authorization requests ([`request_fault`]) and the one table of errors ([`error`]).
//!
//! Does not own: what a client may request ([`crate::client`]), how a grant uses it
//! ([`crate::grants`]).

pub mod error;
pub mod form;
pub mod grant_type;
pub mod redirect_uri;
pub mod request_fault;
pub mod scope;
pub mod target;
