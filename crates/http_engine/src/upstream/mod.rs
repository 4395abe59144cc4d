//! Where requests go: the endpoints of each upstream, their connections and their health.
//!
//! Owns: the choice of an endpoint (least requests under way, resting those that fail), one pool of
//! connections per worker ([`pool`]), connecting ([`connect`]). Does not own: what is sent, how long an
//! exchange may take.
//!
//! Flow: `Pool::enter` (a place among the requests under way, or overload) → `Pool::lease` (a connection)
//! → the relay → `Lease::release` or drop (a connection in doubt is never pooled).

pub mod connect;
pub mod pool;
