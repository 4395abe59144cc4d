//! Commands of the binary, one module each.

pub mod admin;
pub mod check;
pub mod completions;
pub mod crd;
pub mod demo;
#[cfg(test)]
mod documented;
pub mod echo;
pub mod health;
pub mod init;
#[cfg(feature = "lab")]
pub mod lab;
pub mod man;
pub mod migrate;
mod new_files;
#[cfg(any(not(feature = "lab"), test))]
pub mod no_lab;
pub mod serve;
pub mod token;

#[cfg(not(feature = "lab"))]
pub use no_lab as lab;
