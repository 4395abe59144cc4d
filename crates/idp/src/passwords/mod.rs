//! Passwords: rules, hashing, verification and lockout.
//!
//! Owns: a password in clear text while it is needed ([`password`]); the cost of a hash
//! ([`parameters`]), its text ([`phc`]) and its computation ([`hash`]); the threads for this work
//! ([`pool`]); which passwords may be set ([`rules`]); lockout after failures ([`lockout`]); the
//! optional cache of verified passwords ([`verified`]).
//!
//! Does not own: accounts, their stored hashes and failure records (the store; they are arguments
//! and results here), the forms and grants through which a password arrives, a clock or a random
//! source.
//!
//! Flow of a login with a password:
//!
//! ```text
//! lockout::Policy::decide   the records of the account and of the caller's network: Allowed or Locked
//!   → verified::VerifiedPasswords::contains   only where switched on: right a moment ago, nothing to compute
//!   → pool::Pool::verify    the account's hash, or none: an unknown user costs the same → Verdict
//!        Right                → the account's record is deleted; VerifiedPasswords::insert
//!        Right and outdated   → pool::Pool::hash of its form with today's parameters, kept by the store
//!        Wrong                → lockout::Policy::after_failure for both records
//! ```
//!
//! Flow of a new password: `pool::Pool::judge` by the [`rules`] → `pool::Pool::hash` → the store →
//! `Verified::forget`.
//!
//! Hashes are made of the normalized form of a password (RFC 8265), so different input methods give
//! the same password. Older and imported hashes were made of the text as typed, byte for byte. So
//! that text is compared too, and the hash is then replaced.

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
