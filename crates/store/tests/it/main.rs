//! What every database must do, run on each of them.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod audit;
mod crash;
mod databases;
mod grants;
mod log;
mod people;
mod writes;
