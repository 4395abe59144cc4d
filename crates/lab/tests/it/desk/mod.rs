//! The desk: records, audits, reports, comparisons, imports.

mod audit;
mod record;
mod report;
mod sample;
