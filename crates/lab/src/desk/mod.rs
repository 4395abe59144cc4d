//! The desk: work on figures that are already measured.
//!
//! Owns: recomputing published tables ([`audit`]) and reports for people ([`report`], [`render`]). Does not own: measuring; nothing here
//! opens a socket or looks at a clock.
//!
//! Flow: files → [`crate::record`] → [`crate::analyse`] → words and pictures.

pub mod audit;
pub mod render;
pub mod report;
