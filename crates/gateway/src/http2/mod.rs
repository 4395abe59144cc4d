//! HTTP/2, both sides (RFC 9113), on the `h2` crate.
//!
//! Owns: a stream as a leg of an exchange ([`stream`]), the downstream connection and its streams
//! ([`server`]). Does not own: framing and flow control (the `h2` crate), decisions, the relay.

mod call;
pub(crate) mod server;
pub(crate) mod stream;
