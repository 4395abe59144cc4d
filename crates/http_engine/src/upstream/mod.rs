//! Upstreams: the endpoints that requests are forwarded to, their connections and their health.
//!
//! Owns: the choice of an endpoint (fewest requests in flight, failing endpoints ejected), one pool
//! of connections per worker ([`pool`]), connecting ([`connect`]). Does not own: the content of
//! requests, time limits of exchanges.
//!
//! Flow:
//!
//! 1. `Pool::enter` takes a slot for a request in flight, or reports overload.
//! 2. `Pool::lease` returns a connection.
//! 3. The relay forwards the exchange.
//! 4. `Lease::release` returns the connection to the pool. A dropped lease does not: its connection
//!    is in an unknown state.

pub mod connect;
pub mod pool;
