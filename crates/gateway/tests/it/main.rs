//! Tests of the data plane's parts, one file each.

mod cache;
mod cache_model;
