//! Lab: measures what a server costs under load, from outside the server.
//!
//! Owns:
//! - running programs: topologies ([`topology`]), an unreliable network between them ([`relay`]);
//! - scenarios ([`scenario`]) and their runs ([`run`]);
//! - reading and writing records, reports, tables and baselines ([`files`]);
//! - the commands of `postern lab` ([`cli`]).
//!
//! Does not own: sending load and observing processes ([`lab_load`]), and what follows from a
//! record ([`lab_analysis`]). The servers that it measures are programs like any other, so none of
//! the three crates depends on another crate of the project.
//!
//! Flow of a run: a scenario names topologies and loads; [`run`] starts the programs of each
//! topology, has [`lab_load`] send each load, and fills a record; [`files`] writes it, with the
//! report that [`lab_analysis`] makes of it.

pub mod cli;
pub mod files;
pub mod relay;
pub mod run;
pub mod scenario;
pub mod topology;
