//! HTTP/1.1, both sides, strict (RFC 9112).
//!
//! Owns: the grammar ([`head`], [`chunked`]), what is written ([`writing`]), the connection that serves either
//! role ([`connection`]), the downstream request loop ([`server`]), reading of recordings ([`replay`]). Does not
//! own: decisions, the choice of an upstream, the relay.

pub mod chunked;
pub(crate) mod connection;
pub mod head;
pub mod replay;
pub(crate) mod server;
pub(crate) mod writing;
