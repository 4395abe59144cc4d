//! Analysis tests: records, and what follows from them.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails with it")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures made up here are small and positive"
)]

mod diagnose;
mod offline;
