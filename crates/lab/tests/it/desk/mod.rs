//! The desk: records, audits, reports, comparisons, imports.

mod audit;
mod commands;
mod compare;
mod gate;
mod import;
mod merge;
mod record;
mod report;
mod sample;
