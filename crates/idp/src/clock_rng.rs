//! The outside as arguments: time and randomness.
//!
//! Owns: the two traits through which a [`Provider`](crate::Provider) learns the time and draws identifiers.
//! Does not own: a clock. The binary passes its own; a test passes one it can turn.
//!
//! Signature nonces and new signing keys draw from the generator inside the cryptographic library, which
//! takes no other; [`Entropy`] feeds everything else that must not be guessed (token identifiers, client secrets).

use auth::time::Timestamp;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// Tells the time. Implemented by every `Fn() -> Timestamp`.
pub trait Clock: Send + Sync {
    /// The current instant; may jump, as wall clocks do.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// The random source gave nothing; no identifier may be made up instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the random source failed")]
pub struct EntropyFailed;

/// A source of bytes that nobody can predict.
pub trait Entropy: Send + Sync {
    /// Fills `out` wholly or fails.
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyFailed>;
}

impl Entropy for SystemRandom {
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyFailed> {
        SecureRandom::fill(self, out).map_err(|_| EntropyFailed)
    }
}
