//! Clock and random source: traits that are passed in as arguments.
//!
//! Owns: the two traits through which a [`Provider`](crate::Provider) reads the time and draws
//! identifiers. Does not own: a clock. The binary passes its own; a test passes one it controls.
//!
//! Signature nonces and new signing keys use the generator inside the cryptographic library, which
//! accepts no other. [`Entropy`] provides every other unpredictable value (token identifiers,
//! client secrets).

use auth::time::Timestamp;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// A source of the current time. Implemented by every `Fn() -> Timestamp`.
pub trait Clock: Send + Sync {
    /// The current time; may jump, as wall clocks do.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// The random source failed. The caller must fail too, never use a substitute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("random source failed")]
pub struct EntropyFailed;

/// A source of unpredictable bytes.
pub trait Entropy: Send + Sync {
    /// Fills `out` completely.
    ///
    /// # Errors
    /// [`EntropyFailed`] when the source fails.
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyFailed>;
}

impl Entropy for SystemRandom {
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyFailed> {
        SecureRandom::fill(self, out).map_err(|_| EntropyFailed)
    }
}
