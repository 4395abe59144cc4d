//! What the operator decides about the controller, and the checks that other crates provide.
//!
//! Owns: the controller's name, the experimental channel, the standard's version, the Gateway of
//! Ingresses and Routes, the functions that look into certificates, matches and policies.
//! Does not own: where these come from.
//! Flow: [`Settings`] → every function that derives state.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::names::{Name, NamespacedName};
use crate::plan::MatchPlan;

/// The version of the Gateway API whose fields are read, and for which conformance is claimed.
pub const GATEWAY_API_VERSION: &str = "v1.6.3";

/// Whether a certificate chain and its private key (both PEM) can be served. The error is a phrase
/// for the condition of the listener.
pub type CertificateCheck = fn(chain: &[u8], key: &[u8]) -> Result<(), String>;

/// Whether the data plane can carry out a match of an HTTPRoute or GRPCRoute. The error is a phrase for
/// the condition of the route.
pub type MatchCheck = fn(matches: &MatchPlan) -> Result<(), String>;

/// Whether the body of an AccessPolicy (`defaults` or `overrides`) is valid. The error is a phrase
/// for the condition of the policy. What it answers may change with [`Event::PolicyCheckChanged`].
///
/// [`Event::PolicyCheckChanged`]: crate::world::Event::PolicyCheckChanged
#[derive(Clone)]
pub struct PolicyCheck(Arc<CheckBody>);

/// Checks the body of a policy.
type CheckBody = dyn Fn(&Value) -> Result<(), String> + Send + Sync;

impl PolicyCheck {
    /// A check by a function.
    pub fn new(check: impl Fn(&Value) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// Checks a body.
    ///
    /// # Errors
    /// Why it is not valid.
    pub fn check(&self, body: &Value) -> Result<(), String> {
        (self.0)(body)
    }
}

impl fmt::Debug for PolicyCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PolicyCheck")
    }
}

/// Settings of the controller. They do not change while it runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The `controllerName` of the classes that are ours.
    pub controller_name: Name,
    /// Whether fields of the experimental channel are accepted: `retry` and `ExternalAuth`.
    pub experimental: bool,
    /// Features of the data plane, by the names of the conformance suite, sorted.
    pub supported_features: Vec<&'static str>,
    /// Whether a host on a listener belongs to the namespace of the oldest route that has it: routes of
    /// other namespaces do not get it. Otherwise they share it, as the Gateway API permits.
    pub exclusive_hosts: bool,
    /// The Gateway whose listeners serve Ingresses and the Routes of OpenShift, which name no listener
    /// themselves. `None`: they are not served.
    pub ingress_gateway: Option<NamespacedName>,
    /// Labels that a Route of OpenShift must have, as the `routeSelector` of a router. Empty: all
    /// Routes of the namespaces that the listeners allow are served.
    pub route_labels: BTreeMap<Name, Name>,
    /// See [`CertificateCheck`].
    pub certificate_check: CertificateCheck,
    /// See [`MatchCheck`].
    pub match_check: MatchCheck,
    /// See [`PolicyCheck`].
    pub policy_check: PolicyCheck,
}

impl Settings {
    /// Settings without experimental fields and features. Of the checks only that of certificates looks
    /// at anything, and at PEM only.
    pub fn new(controller_name: &str) -> Self {
        Self {
            controller_name: Name::from(controller_name),
            experimental: false,
            supported_features: Vec::new(),
            exclusive_hosts: false,
            ingress_gateway: None,
            route_labels: BTreeMap::new(),
            certificate_check: is_pem_pair,
            match_check: |_| Ok(()),
            policy_check: PolicyCheck::new(|_| Ok(())),
        }
    }
}

/// Whether both texts are PEM of what they should be. Whether the key belongs to the certificate is
/// for a check with a cryptographic library.
pub fn is_pem_pair(chain: &[u8], key: &[u8]) -> Result<(), String> {
    has_certificates(chain).map_err(|problem| format!("tls.crt {problem}"))?;
    match PrivateKeyDer::from_pem_slice(key) {
        Ok(_) => Ok(()),
        Err(_) => Err("tls.key has no private key in PEM".to_owned()),
    }
}

/// Whether `pem` has at least one certificate, and nothing that is malformed.
pub fn has_certificates(pem: &[u8]) -> Result<(), String> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        certificate.map_err(|error| format!("is not valid PEM: {error}"))?;
        count += 1;
    }
    if count == 0 { Err("has no certificate in PEM".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";

    #[test]
    fn a_pair_needs_a_certificate_and_a_key() {
        assert_eq!(is_pem_pair(CERTIFICATE, KEY), Ok(()));
        let error = |chain, key| is_pem_pair(chain, key).unwrap_err();
        assert_eq!(error(b"Hello world\n", KEY), "tls.crt has no certificate in PEM");
        assert_eq!(error(KEY, KEY), "tls.crt has no certificate in PEM");
        assert_eq!(error(CERTIFICATE, CERTIFICATE), "tls.key has no private key in PEM");
        let cut = &CERTIFICATE[..40];
        assert!(error(cut, KEY).starts_with("tls.crt is not valid PEM"), "{}", error(cut, KEY));
    }
}
