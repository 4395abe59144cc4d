//! Rendering: what a cached value holds besides the facts of a credential.
//!
//! Owns: the identity headers and the reserve for assertions that a [`Verified`] is made with, and
//! when two renderings are equal.

use auth::headers::IdentityHeaders;
use auth::identity::Facts;

use super::verified::{SessionCredential, Verified};
use crate::assertion::AssertionReserve;

/// Determines the form of a cached value besides the facts.
pub struct Rendering {
    headers: IdentityHeaders,
    reserve: AssertionReserve,
    /// Number of changes of the other two fields within this process.
    variant: u64,
}

impl Rendering {
    /// Creates a rendering. `variant` distinguishes the renderings of one process.
    pub fn new(headers: IdentityHeaders, reserve: AssertionReserve, variant: u64) -> Self {
        Self { headers, reserve, variant }
    }

    /// Whether both renderings are equal.
    pub fn is_like(&self, headers: &IdentityHeaders, reserve: AssertionReserve) -> bool {
        self.headers == *headers && self.reserve == reserve
    }

    /// The variant number of this rendering.
    pub fn variant(&self) -> u64 {
        self.variant
    }

    /// The verified credential of a session.
    pub fn verified_session(&self, facts: Facts, session: SessionCredential) -> Verified {
        self.verified(facts, None).with_session(session)
    }

    /// The verified credential with these facts. `issuer`: its index, if a token issuer issued it.
    pub(super) fn verified(&self, facts: Facts, issuer: Option<usize>) -> Verified {
        let reserve = self.reserve.bytes(&facts.identity);
        Verified::new(facts, &self.headers, issuer, reserve)
    }
}
