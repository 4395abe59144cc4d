//! Test helpers, also for other crates (feature `test_support`).

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures made up here are small and positive"
)]

pub mod sample;
