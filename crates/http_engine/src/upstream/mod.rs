//! Upstreams: the endpoints that requests are forwarded to, their connections and their health.
//!
//! Owns: the current endpoints ([`endpoints`]), looking up their names and checking their health
//! ([`discovery`], [`resolver`]), the choice of an endpoint (fewest requests in flight, unhealthy
//! ones left out), one pool of connections per worker ([`pool`]), connecting ([`connect`]). Does
//! not own: the content of requests, time limits of exchanges.
//!
//! Flow:
//!
//! 1. `Discovery` publishes the endpoints of an upstream with names, and each worker's `Pool`
//!    applies them.
//! 2. `Pool::acquire_slot` takes a slot for a request in flight, or reports overload.
//! 3. `Pool::lease` returns a connection.
//! 4. The relay forwards the exchange.
//! 5. `Lease::release` returns the connection to the pool. A dropped lease does not: its connection
//!    is in an unknown state.

mod balance;
pub mod connect;
pub mod discovery;
mod endpoint_state;
pub mod endpoints;
mod health_check;
#[cfg(any(test, feature = "test_support"))]
pub mod name_server;
pub mod pool;
mod rendezvous;
pub mod resolver;
mod retry_budget;
