//! Offline work: records, audits, reports, comparisons, imports.

mod audit;
mod compare;
mod gate;
mod history;
mod import;
mod merge;
mod record;
mod report;
mod size;
mod streams;
mod targets;
mod verdict;
