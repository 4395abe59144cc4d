//! Who is calling: credentials verified with what others know, remembered, and taken back.
//!
//! Owns: keys of issuers and questions to authorities ([`authenticate`]), what is verified and remembered ([`cache`]), what takes it
//! back ([`followed`], [`events`], [`watch`], [`ended`]), the statement of the caller for the upstream ([`assertion`]), and what
//! other rooms must know of a browser's session: its cookies' names, where it is kept, whether it lasts ([`cookies`], [`store`],
//! [`lasting`]).
//!
//! Does not own: the rules of a token (`auth`), logging in (`login`), what a request is decided by (`gateway`).

pub mod assertion;
pub mod authenticate;
pub mod cache;
pub mod config;
pub mod cookies;
pub mod events;
pub mod open_session;
pub mod revocation;
pub mod revoked_sessions;
pub mod session_store;
pub mod watch;
