//! Transports over real servers, each started by the test that needs it. `dev/setup brokers`
//! installs them; PostgreSQL comes with `dev/setup test`.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod amqp;
mod brokers;
mod nats;
mod postgres;
mod promises;
mod proxy;
mod released_messages;
mod servers;
mod strict;
