//! End-to-end tests of the data plane, and the harness that they share.
//!
//! The tests (`tests/it`) start a gateway in this process from a configuration file, send it any
//! bytes over real sockets, and judge by what the upstream receives.
//!
//! Owns: the harness ([`harness`]), an issuer of tokens ([`issuer`]), Envoy as a client
//! ([`ext_authz`]), HTTP/2 and TLS clients ([`http2`], [`certificates`]), protocol switches
//! ([`upgrade`]), addresses ([`ports`]). Does not own: tests that need a database, the provider or
//! the binary; those are in `postern`.

#![expect(
    missing_docs,
    clippy::assigning_clones,
    clippy::needless_pass_by_value,
    clippy::new_without_default,
    clippy::similar_names,
    reason = "a harness of tests: names that say it all, and values passed as tests write them"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on fails"
)]

pub mod certificates;
pub mod ext_authz;
pub mod harness;
pub mod http2;
pub mod issuer;
pub mod ports;
pub mod upgrade;
