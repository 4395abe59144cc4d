//! Topologies: which programs run, how they connect, and where load enters.
//!
//! Owns: the TOML form of a topology ([`Topology`]), those that ship with the lab ([`Library`]), finding programs, starting components in
//! order, knowing when each is ready, limiting them, and ending them in the reverse order with everything they started ([`Running`]).
//! Does not own: load, measuring, rounds. A component is any program, so that a peer is run exactly as Postern is.
//!
//! Flow: file → [`Topology`] (names, placeholders and numbers checked) → [`Running::start`]: ports, files, processes, readiness → tokens
//! of the topology's own provider → one request that has to pass and one that must not → load → dropped: everything is ended.
//! Only for Unix: processes are ended by group, and watched over `/proc`.

mod account;
mod check;
mod component;
mod description;
mod during;
mod error;
mod library;
mod names;
mod ports;
mod process;
mod program;
mod provider;
mod read;
mod ready;
mod running;
mod signer;
mod table;
mod template;
mod tokens;
mod workdir;

pub(crate) use component::{Root, Started};
pub(crate) use description::Metrics;
pub use description::Topology;
pub use during::{Act, Anew, Signalled};
pub use error::TopologyError;
pub use library::Library;
pub(crate) use process::on_cores;
pub use program::Programs;
pub use running::Running;
pub(crate) use running::Under;
pub(crate) use table::Wire;
pub(crate) use workdir::cores;
pub use workdir::{Change, Workdir};
