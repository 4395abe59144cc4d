//! Test helpers, also for other crates (feature `test_support`).

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

pub mod exposition;
