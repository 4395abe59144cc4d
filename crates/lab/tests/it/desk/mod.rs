//! Offline commands: records, audits, reports, comparisons, imports.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures made up here are small and positive"
)]

mod audit;
mod commands;
mod compare;
mod gate;
mod import;
mod merge;
mod record;
mod report;
pub(crate) mod sample;
mod targets;
