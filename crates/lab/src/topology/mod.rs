//! Topologies: which programs run, how they connect, and where load enters.
//!
//! A component can be any program, so that a peer runs exactly as Postern does. For Unix only:
//! processes are ended by process group and observed through `/proc`.
//!
//! Owns:
//! - the TOML form of a topology ([`Topology`]), and the shipped topologies ([`Library`]);
//! - finding programs, starting components in order, readiness, limits, and ending components in
//!   reverse order with all their child processes ([`Running`]).
//!
//! Does not own: load, measurement, rounds.
//!
//! 1. A file is read into a [`Topology`]; names, placeholders and numbers are checked.
//! 2. [`Running::start`] takes ports, writes files, starts processes and waits until each is ready.
//! 3. Tokens are obtained from the topology's own provider.
//! 4. One request must pass, and one without a valid token must be refused.
//! 5. Load runs.
//! 6. When [`Running`] is dropped, all processes are ended.

mod account;
mod check;
mod cluster;
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

pub(crate) use component::{ComponentInfo, RootPid};
pub(crate) use description::Metrics;
pub use description::Topology;
pub use during::{Action, FileRewrite, SignalName};
pub use error::TopologyError;
pub use library::Library;
pub(crate) use process::with_affinity;
pub use program::ProgramFinder;
pub use running::Running;
pub(crate) use running::WrapperTool;
pub(crate) use table::WireProtocol;
pub(crate) use workdir::cores;
pub use workdir::{TopologyOverrides, Workdir};
