//! Endpoints: HTTP in, HTTP out.
//!
//! Owns: reading requests into typed values and forming answers ([`answer`]); the token endpoint ([`token`])
//! and the public documents ([`documents`]).
//! Does not own: any decision; those are functions of [`crate::client`] and [`crate::grants`] that know no HTTP
//! answer.

pub mod answer;
pub mod documents;
pub mod token;
