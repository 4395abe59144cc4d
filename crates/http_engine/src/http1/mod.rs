//! HTTP/1.1, both sides, strict (RFC 9112).
//!
//! Owns: what is written ([`writing`]), the connection that serves either role ([`connection`]), reading of recordings
//! ([`replay`]). Does not own: the grammar ([`crate::head`], [`crate::chunked`]), the loop that serves requests, the relay.

pub mod connection;
pub mod replay;
pub mod writing;
