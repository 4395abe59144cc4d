//! Commands of the binary, one module each.

pub mod admin;
pub mod check;
pub mod demo;
pub mod echo;
#[cfg_attr(not(feature = "lab"), path = "no_lab.rs")]
pub mod lab;
pub mod serve;
pub mod token;
