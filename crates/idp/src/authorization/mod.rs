//! The authorization request and its answer (RFC 6749 §4.1, OpenID Connect Core 1.0 §3.1.2).
//!
//! Owns: where a client may be answered ([`redirect`]), the proof that ties a code to who asked for it ([`pkce`]), what is
//! asked ([`request`]), what comes next for it ([`mod@next`]), and how the answer travels ([`response`]).
//! Does not own: who the person is, what they consent to, or the code itself.
//!
//! Flow: `form → request::read → what is asked | a page | an answer to the client → response::Response`. Until the client and
//! its redirect URI are known, a fault is shown to the person on a page of ours: an address that anybody may name must
//! not get anything.

pub mod next;
pub mod pkce;
pub mod redirect;
pub mod request;
pub mod response;
