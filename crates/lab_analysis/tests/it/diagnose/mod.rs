//! Findings in records that need no run: each fault is found by its name, and nothing else is
//! found.

mod any;
mod load_shapes;
mod made_up;
mod published;
mod streams;
mod timeouts;
mod waiting;

use lab_analysis::record::{Record, Variant};
use lab_analysis::test_support::sample;

/// A record of these variants, measured on this machine.
fn record(variants: Vec<Variant>) -> Record {
    sample::measured(variants, std::thread::available_parallelism().unwrap().get().try_into().unwrap())
}
