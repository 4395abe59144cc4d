//! Everything about passwords but where they are kept.
//!
//! Owns: a password in the clear while it is needed ([`password`]); the cost of a hash ([`parameters`]), its
//! text ([`phc`]) and its making and checking ([`hash`]); the threads this work is done on ([`pool`]); which
//! passwords may be set ([`rules`]); how failures slow a guesser down ([`lockout`]); the opt-in memory of
//! passwords that were right a moment ago ([`verified`]).
//!
//! Does not own: accounts, their stored hashes and their failure records (the store: plain values come in, plain
//! values go out), the forms and grants through which a password arrives, a clock or a random source.
//!
//! Flow of a login with a password:
//!
//! ```text
//! lockout::Policy::decide   the records of the account and of the caller's network: Allowed or Locked
//!   → verified::Verified::holds          only where switched on: right a moment ago, nothing to compute
//!   → pool::Pool::verify    the account's hash, or none: an unknown user costs the same → Verdict
//!        Right                → the account's record is deleted; Verified::remember
//!        Right and outdated   → pool::Pool::hash of its form with today's parameters, kept by the store
//!        Wrong                → lockout::Policy::after_failure for both records
//! ```
//!
//! Flow of a new password: `pool::Pool::judge` by the [`rules`] → `pool::Pool::hash` → the store → `Verified::forget`.
//!
//! A password is one however it was typed: hashes are made of its form (RFC 8265), and compared with it. Hashes of before, and those that
//! come from elsewhere, were made of what was typed, byte for byte; so that is compared as well, and the hash is made anew.

pub mod hash;
pub mod lockout;
pub mod parameters;
pub mod password;
pub mod phc;
pub mod pool;
pub mod rules;
pub mod verified;

pub use hash::{HashFault, Hasher, Memory, Verdict};
pub use parameters::{ParameterFault, Parameters};
pub use password::{Password, PasswordTooLong};
pub use phc::{Phc, PhcFault};
pub use pool::{Pool, PoolConfig, PoolError};
