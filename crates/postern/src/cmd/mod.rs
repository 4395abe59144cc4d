//! Commands of the binary, one module each.

pub mod admin;
pub mod check;
pub mod demo;
pub mod echo;
#[cfg(feature = "lab")]
pub mod lab;
pub mod serve;
pub mod token;
