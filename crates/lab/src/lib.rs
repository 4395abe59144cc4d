//! Lab: measures what a server costs under load, from outside the server.
//!
//! Owns:
//! - sending load: requests ([`load`]), transactions with an OpenID provider ([`provider`]), idle
//!   and slow connections ([`idle_connections`]), revocations during a load ([`revoke`]);
//! - running programs: topologies ([`topology`]), their CPU and memory limits ([`cgroup`]), an
//!   unreliable network between them ([`relay`]);
//! - observing processes ([`observe`]), and the reports of load, connections and processes
//!   ([`report`]);
//! - scenarios ([`scenario`]), their runs ([`run`]), and the record of a run ([`record`]);
//! - what follows from a record: statistics ([`statistics`]), causes ([`diagnose`]), work on runs
//!   that are already measured ([`offline`]) and its commands ([`cli`]).
//!
//! Does not own: the servers that it measures. It loads and observes a peer exactly as it does
//! Postern, so this crate depends on no other crate of the project.
//!
//! Flow of a load run:
//! 1. A [`load::Plan`] is checked and connections are opened.
//! 2. The schedule hands each arrival to a free connection.
//! 3. Each response goes into a histogram by its class. Latency counts from the moment at which the
//!    request *should* have started.
//! 4. The generator observes itself throughout. Its report begins with what makes the figures
//!    doubtful.

mod amount;
pub mod cgroup;
pub mod cli;
pub mod diagnose;
mod fetch;
mod generator;
pub mod idle_connections;
mod interrupt;
pub mod load;
pub mod observe;
pub mod offline;
pub mod provider;
pub mod record;
pub mod relay;
pub mod report;
pub mod revoke;
pub mod run;
pub mod scenario;
pub mod statistics;
pub mod topology;

mod units;
mod words;

pub use generator::Generator;
pub use interrupt::{Interrupt, Interrupter};
