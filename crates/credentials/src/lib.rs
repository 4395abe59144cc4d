//! Credentials: verifies the caller's credential, caches the result, and revokes it.
//!
//! Owns:
//!
//! - the keys of issuers and the requests to token authorities ([`authenticate`]);
//! - the users of an htpasswd file ([`htpasswd`]);
//! - the cache of verified credentials ([`cache`]);
//! - revocation ([`revocation`], [`events`], [`watch`], [`revoked_sessions`]);
//! - the assertion of the caller for the upstream ([`assertion`]);
//! - what other crates need to know of a browser's session: cookie names, the store, whether it is
//!   over ([`cookies`], [`session_store`], [`open_session`]).
//!
//! Does not own: the rules of a token (`auth`), login (`login`), the decision about a request
//! (`gateway`).

pub mod assertion;
pub mod authenticate;
pub mod cache;
pub mod config;
pub mod cookies;
pub mod events;
pub mod htpasswd;
pub mod open_session;
pub mod revocation;
pub mod revoked_sessions;
pub mod session_store;
pub mod watch;
