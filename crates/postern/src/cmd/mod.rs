//! The commands, one module each.

pub mod check;
pub mod demo;
pub mod echo;
pub mod serve;
pub mod token;
