//! Store: behaviour that is the same with every database, tested on each.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod account_import;
mod account_links;
mod audit;
mod audit_retention;
mod copies;
mod crash;
mod databases;
mod deadlocks;
mod endings;
mod files;
mod followers;
mod former_schema;
mod grants;
mod lists;
mod log;
mod login_sessions;
mod mail_queue;
mod names;
mod operators;
mod people;
mod proof;
mod security_events;
mod silence;
mod so_far;
mod writes;
