//! The gateway.
pub mod assertion;
pub mod authenticate;
pub mod cache;
pub mod clock;
pub mod config;
pub mod proxy_protocol;
pub mod tls;
