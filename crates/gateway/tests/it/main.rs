//! Tests of the data plane's parts, one file each.

mod assertion;
mod authenticate;
mod authenticate_tls;
mod cache;
mod cache_model;
mod certificate;
mod files;
mod issuer;
mod tls;
