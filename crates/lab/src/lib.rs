//! The lab: what a server costs under load, measured from outside.
//!
//! Owns: the load driver ([`load`]), whole transactions with an OpenID provider ([`provider`]), connections that do nothing or almost nothing ([`hold`]), the
//! watch over processes ([`observe`]) and the reports of them all ([`report`]); programs that run together ([`topology`], limited by
//! [`cgroup`]), with a bad network between them where that is wanted ([`relay`]), what is measured on them ([`scenario`]), how long revoked credentials live meanwhile ([`revoke`]), and measuring it ([`run`]); the record of a whole run ([`record`]), what follows
//! from it ([`analyse`]) and why it is so ([`diagnose`]), and work on runs that are measured already ([`desk`], as commands [`cli`]). Does not own: the servers it measures; a peer is
//! loaded and watched exactly as Postern is, so this crate depends on no other crate of the project.
//!
//! Flow of a load run: a [`load::Plan`] is checked, connections are opened, then the schedule hands arrivals to free
//! connections; every answer goes into histograms by its class, measured from the moment the request *should* have
//! started. The generator watches itself the whole time, and its report begins with what makes its figures doubtful.

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
