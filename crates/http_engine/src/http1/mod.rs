//! HTTP/1.1, both roles, strict (RFC 9112).
//!
//! Owns: serialization ([`writing`]), the connection for either role ([`connection`]), parsing of
//! recorded bytes ([`replay`]). Does not own: the grammar ([`crate::head`], [`crate::chunked`]),
//! the loop that serves requests, the relay.

pub mod connection;
pub mod replay;
pub mod writing;
