//! HTTP/2, both sides (RFC 9113), on the `h2` crate.
//!
//! Owns: a stream as a leg of an exchange ([`stream`]). Does not own: framing and flow control (the `h2` crate), the downstream
//! connection and its streams, the relay.

pub mod stream;
