//! Lab analysis: the record of a load test, and what follows from it.
//!
//! Owns:
//! - the record of a run ([`record`]), and how its numbers are converted and written ([`units`],
//!   [`formatting`]);
//! - what follows from a record: statistics ([`statistics`]) and causes ([`diagnose`]);
//! - work on runs that are already measured: imports, comparisons, gates, audits and reports
//!   ([`offline`]).
//!
//! Does not own: measuring (`lab_load`), and files (`lab`). Nothing here opens a socket or a file,
//! starts a process or reads a clock: bytes and texts in, values and texts out. Two tests hold it
//! to that, by its dependencies and by its source.

pub mod amount;
pub mod diagnose;
pub mod formatting;
pub mod offline;
#[cfg(test)]
mod random;
pub mod record;
pub mod statistics;
#[cfg(feature = "test_support")]
pub mod test_support;
pub mod units;
