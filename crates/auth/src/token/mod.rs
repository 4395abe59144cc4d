//! Tokens: parsing, verification and signing of JSON Web Tokens, also those of a login
//! ([`id_token`]) and security events ([`security_event`]); opaque tokens ([`opaque`]).
//!
//! Owns: what is expected of an issuer's tokens ([`IssuerConfig`]); parsing and verification
//! ([`jwt`]); signing ([`jws`]); the form of opaque tokens. It uses the strict JSON parser
//! ([`crate::json`]), the signature algorithms ([`crate::algorithm`]) and the table of all token
//! errors ([`crate::token_error`]).
//!
//! Does not own: public keys ([`crate::keyset`]), what claims mean ([`crate::mapping`]), fetching,
//! caching.
//!
//! Flow: `jwt::parse(bytes)` checks the form and returns the unverified issuer. By it the caller
//! chooses an [`IssuerConfig`] and its key set. `verify(config, keys, now)` then checks, in this
//! order, issuer, algorithm, key, signature, token type, audience, times, and maps the claims to
//! `Facts`.

pub(crate) mod claims;
pub mod id_token;
mod issuer;
pub mod jws;
pub mod jwt;
pub mod opaque;
mod pem;
pub mod security_event;

pub use issuer::{IssuerConfig, IssuerConfigError, MAX_CLOCK_SKEW, TENANT, Tenants, TokenTypes};

/// Whether a header's `typ` is this one; `application/` may be left out (RFC 7515 §4.1.9).
fn is_media_type(typ: &str, subtype: &str) -> bool {
    let rest = typ.split_at_checked("application/".len());
    let rest = rest.filter(|(prefix, _)| prefix.eq_ignore_ascii_case("application/")).map_or(typ, |(_, r)| r);
    rest.eq_ignore_ascii_case(subtype)
}
