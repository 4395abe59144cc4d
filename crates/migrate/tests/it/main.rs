//! Translations: realistic settings of each program, and every flag that it has.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod envoy;
mod istio;
mod keycloak;
mod kube_rbac_proxy;
mod oauth2_proxy;
mod oauth_proxy;
