//! Authorization requests and responses (RFC 6749 §4.1, OpenID Connect Core 1.0 §3.1.2).
//!
//! Owns: PKCE, which binds a code to the client that requested it ([`pkce`]), the parsed request
//! ([`request`]), the decision about the next step ([`mod@next_step`]), and the transport of the
//! response ([`response`]).
//!
//! Does not own: who the user is, the user's consent, the code itself.
//!
//! Flow: `form → request::read → AuthorizationRequest | error page | error to the client →
//! Response`. Until client and redirect URI are verified, errors are shown to the user on a page of
//! the provider: an unverified address must not receive anything.

pub mod next_step;
pub mod pkce;
pub mod request;
pub mod response;
