//! HTTP/2, both roles (RFC 9113), based on the `h2` crate.
//!
//! Owns: an HTTP/2 stream as one side of an exchange ([`stream`]). Does not own: framing and flow
//! control (the `h2` crate), the downstream connection and its streams, the relay.

pub mod stream;
