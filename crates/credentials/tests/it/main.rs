//! Tests of authentication, one file each.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod assertion;
mod authenticate;
mod authenticate_reload;
mod authenticate_rotation;
mod authenticate_tenants;
mod authenticate_tls;
mod basic;
mod cache;
mod cache_model;
mod certificate;
mod followed;
mod issuer;
