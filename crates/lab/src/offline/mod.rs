//! The desk: work on figures that are already measured.
//!
//! Owns: taking in other tools' files ([`import`]), putting runs side by side ([`compare`](mod@compare)), adding generators up
//! ([`merge`](mod@merge)), holding a run to a baseline ([`gate`](mod@gate)) and to what its scenario wants
//! ([`targets`](mod@targets)), recomputing published tables ([`audit`](mod@audit)), and reports for people
//! ([`report`], [`render`]). Does not own: measuring; nothing here opens a socket or looks at a clock.
//!
//! Flow: files → [`crate::record`] → [`crate::statistics`] → words and pictures.

pub mod audit;
pub mod compare;
pub mod gate;
pub mod import;
pub mod merge;
pub mod render;
pub mod report;
pub mod targets;
pub mod warnings;
