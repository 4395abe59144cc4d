//! Lab load: loads a server and observes processes, from outside.
//!
//! Owns:
//! - sending load: requests, streams and WebSockets ([`load`]), transactions with an OpenID provider
//!   ([`provider`]), idle and slow connections ([`idle_connections`]), revocations during a load
//!   ([`revoke`]), changes of a Kubernetes cluster ([`cluster`]), single requests ([`fetch`]), the
//!   command lines of other generators ([`generator`]);
//! - observing processes ([`observe`]), and limiting them ([`cgroup`]);
//! - the reports of load, connections and processes, and the iteration of a record that a run
//!   becomes ([`report`]);
//! - the end of a run on request ([`Interrupt`]).
//!
//! Does not own: the servers that it measures, which it neither starts nor configures (`lab`), and
//! conclusions from a record (`lab_analysis`). It loads and observes a peer exactly as it does
//! Postern, so it depends on no crate of Postern's.
//!
//! Flow of a load run:
//! 1. A [`load::Plan`] is checked and connections are opened.
//! 2. The schedule hands each arrival to a free connection.
//! 3. Each response goes into a histogram by its class. Latency counts from the moment at which the
//!    request *should* have started.
//! 4. The generator observes itself throughout. Its report begins with what makes the figures
//!    doubtful.

pub mod cgroup;
pub mod cluster;
pub mod fetch;
pub mod generator;
pub mod idle_connections;
mod interrupt;
pub mod load;
pub mod observe;
pub mod provider;
pub mod report;
pub mod revoke;

pub use interrupt::{Interrupt, Interrupter};
