//! Lab tests: commands, files, and runs with real programs.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails with it")]

mod commands;
mod files;
mod floor;
mod pull_request;
