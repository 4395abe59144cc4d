//! What the process tells of itself: metrics, traces, access log, phases of a request, and what the system says of the process.
//!
//! Owns: counts per worker and their exposition ([`metrics`]), spans and their export ([`trace`]), the access log
//! ([`access_log`]), the clock of a request's phases ([`phases`]), CPU limits and use ([`cgroup`], [`process`]).
//!
//! Does not own: what is counted and when (each room, for itself), the HTTP around a scrape (`gateway::admin`). No room is named
//! here: one that has figures of its own implements [`metrics::Collect`].

pub mod access_log;
pub mod cgroup;
pub mod metrics;
pub mod phases;
pub mod process;
#[cfg(feature = "test_support")]
pub mod test_support;
pub mod trace;
pub mod trace_context;
