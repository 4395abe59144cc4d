//! Transmitter of security events (OpenID Shared Signals Framework 1.0, CAEP 1.0).
//!
//! Owns: delivery to push receivers (RFC 8935, `push`), and security event tokens ([`set`]).
//!
//! Does not own: the receivers ([`crate::receivers`]); the queue (the store writes an event in the
//! transaction that caused it); polling ([`crate::endpoint::signals`]).
//!
//! Flow: `revocations → Revocation.occurrence → store: log entry and event in one transaction →
//! maintenance: push::deliver → TakeReceiver → push each → GiveBack`.
//!
//! Each receiver gets every event at least once, in the order of the log. One node delivers to a
//! receiver at a time. An event that cannot be delivered is retried, and later ones wait for it: no
//! receiver sees a login before the logout that preceded it. Events older than
//! [`crate::receivers::MAX_EVENT_AGE`] are dropped. A token that a receiver refuses with 400 is not
//! sent again.

pub(crate) mod push;
pub mod set;
