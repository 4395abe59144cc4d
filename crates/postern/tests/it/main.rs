//! The binary from outside, and its configuration from inside.

mod check;
mod demo;
mod docs;
mod echo;
mod explain;
mod failure_and_configuration;
mod faults;
mod schema;
mod serve;
mod support;
mod token;
