//! Offline: works on runs that are already measured.
//!
//! Owns:
//! - importing files of other tools ([`import`]) and merging the records of several generators
//!   ([`merge`](mod@merge));
//! - comparing runs ([`compare`](mod@compare)) and their profiles, and checking them against a baseline
//!   ([`gate`](mod@gate)) or the targets of their scenario ([`targets`](mod@targets));
//! - following figures over many reports ([`history`](mod@history)), and how many cores a load needs
//!   ([`size`](mod@size));
//! - recomputing published tables ([`audit`](mod@audit));
//! - reports for people ([`report`], [`render`]).
//!
//! Does not own: measuring. Nothing here opens a socket or reads a clock.
//!
//! Flow: files → [`crate::record`] → [`crate::statistics`] → text and charts.

pub mod audit;
pub mod compare;
mod flame;
pub mod gate;
pub mod history;
pub mod import;
pub mod merge;
mod profile_difference;
pub mod render;
pub mod report;
pub mod size;
pub mod targets;
pub mod warnings;
