//! HTTP/2, both roles (RFC 9113), based on the `h2` crate.
//!
//! Owns: the socket of a downstream connection ([`server_socket`]), the fields of a request
//! ([`fields`]), an HTTP/2 stream as one side of an exchange ([`stream`]). Does not own: framing and
//! flow control (the `h2` crate), the downstream connection and its streams, the relay.

#[cfg(test)]
mod decoder_tests;
pub mod fields;
mod huffman;
mod repeated_strings;
pub mod server_socket;
pub mod stream;
