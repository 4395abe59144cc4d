//! The gateway.

pub mod access_log;
pub mod admin;
pub mod assertion;
pub mod authenticate;
pub mod cache;
pub mod cgroup;
pub mod clock;
pub mod config;
pub mod metrics;
pub mod phases;
pub mod process;
pub mod proxy_protocol;
pub mod tls;
pub mod trace;
