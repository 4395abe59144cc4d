//! Telemetry: metrics, traces, access log, the phases of a request, and resource use of the
//! process.
//!
//! Owns: counters per worker and their exposition ([`metrics`]), spans and their export
//! ([`trace`]), the access log ([`access_log`]), the phase timer of a request ([`phases`]), CPU
//! limits and use ([`cgroup`], [`process`]).
//!
//! Does not own: what is counted and when, which each crate decides for itself; the HTTP side of a
//! scrape (`gateway::admin`). No other crate is named here: one with metrics of its own implements
//! [`metrics::Collect`].

pub mod access_log;
pub mod cgroup;
pub mod metrics;
pub mod phases;
pub mod process;
#[cfg(feature = "test_support")]
pub mod test_support;
pub mod trace;
pub mod trace_context;
