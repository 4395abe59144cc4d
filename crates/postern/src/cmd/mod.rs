//! The commands, one module each.

pub mod check;
pub mod echo;
pub(crate) mod token;
