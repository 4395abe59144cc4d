//! Upstreams: ports of Services with their protocol, TLS and endpoints.
//!
//! Owns: the types.
//! Does not own: how they are resolved ([`crate::backends`]).
//! Flow: `BackendTarget::Upstream(key)` → [`UpstreamPlan`] and endpoints.

#![allow(missing_docs, reason = "fields without a comment are what the standard calls so")]

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use super::listener::KeyPair;
use crate::names::{Name, NamespacedName};

/// What a rule sends requests to.
#[derive(Clone, Debug, PartialEq)]
pub enum BackendTarget {
    Upstream(UpstreamKey),
    /// The reference cannot be used. Its share of the requests gets 500. The text is for logs.
    Invalid(Name),
}

/// Rules with the same key share one upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamKey {
    pub service: NamespacedName,
    /// Port of the Service, not of its endpoints.
    pub port: u16,
    pub protocol: UpstreamProtocol,
    /// The BackendTLSPolicy that applies.
    pub tls_policy: Option<NamespacedName>,
    /// The Route of OpenShift with the termination `reencrypt`, whose TLS applies instead.
    pub reencrypt: Option<NamespacedName>,
    /// The Secret with the certificate that the endpoints are shown. In rules it is absent: which one
    /// it is follows from the Gateway ([`UpstreamKey::shown`]).
    pub client_certificate: Option<NamespacedName>,
}

impl UpstreamKey {
    /// Whether its connections have TLS.
    pub fn has_tls(&self) -> bool {
        self.tls_policy.is_some() || self.reencrypt.is_some()
    }

    /// The upstream as a Gateway reaches it that shows `certificate`. `None`: it must not be reached,
    /// since the certificate is one that cannot be shown.
    pub fn shown(&self, certificate: &ClientCertificate) -> Option<Cow<'_, Self>> {
        match certificate {
            ClientCertificate::Secret(secret) if self.has_tls() => {
                Some(Cow::Owned(Self { client_certificate: Some(secret.clone()), ..self.clone() }))
            }
            ClientCertificate::Unusable if self.has_tls() => None,
            _ => Some(Cow::Borrowed(self)),
        }
    }
}

/// What a Gateway shows the upstreams to which it speaks TLS
/// (`spec.tls.backend.clientCertificateRef`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    /// Nothing, as the Gateway says.
    #[default]
    None,
    /// The certificate in this Secret.
    Secret(NamespacedName),
    /// The Gateway names a certificate that cannot be used.
    Unusable,
}

/// By the `appProtocol` of the port, or by the kind of route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpstreamProtocol {
    /// HTTP/1.1, and WebSocket by upgrade.
    Http,
    /// HTTP/2; without TLS by prior knowledge (`kubernetes.io/h2c`, or a GRPCRoute).
    Http2,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamPlan {
    pub key: UpstreamKey,
    pub tls: Option<UpstreamTls>,
    /// What endpoints are shown that ask for it.
    pub client_certificate: Option<KeyPair>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamTls {
    /// The name to ask for (SNI), and to authenticate unless `subject_alt_names` has entries.
    pub hostname: Name,
    pub authorities: CaSource,
    /// One of these must be in the certificate instead of `hostname`.
    pub subject_alt_names: Vec<SubjectAltName>,
    pub name_check: NameCheck,
}

/// Whether the name in the certificate of an upstream counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCheck {
    /// It must be the hostname, or one of the alternative names.
    Required,
    /// Every certificate of the authorities is valid: a Route with its own authorities names none.
    AnyName,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CaSource {
    /// The certificate authorities of the system.
    System,
    /// PEM, one text for each reference.
    Bundles(Vec<Arc<[u8]>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectAltName {
    Hostname(Name),
    Uri(Name),
}

/// One endpoint of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointPlan {
    pub address: IpAddr,
    pub port: u16,
    /// Whether new requests are to be sent to it.
    pub ready: bool,
    /// Whether it still serves while it is terminating. Used if no endpoint is ready.
    pub serving: bool,
    pub terminating: bool,
    pub zone: Option<Name>,
    /// Zones that should prefer this endpoint. Empty: all zones.
    pub for_zones: Vec<Name>,
}
