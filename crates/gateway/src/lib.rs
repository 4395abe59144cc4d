//! The gateway.

pub mod access_log;
pub mod admin;
pub mod cgroup;
pub mod metrics;
pub mod phases;
pub mod process;
pub mod trace;
