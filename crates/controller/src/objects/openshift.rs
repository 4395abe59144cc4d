//! Spec of a Route of OpenShift (route.openshift.io/v1).
//!
//! Owns: the fields, as the API has them. A certificate in the Route itself becomes the same type as
//! one in a Secret.
//! Does not own: what they mean ([`crate::ingress`]).
//! Flow: JSON → spec.

#![allow(missing_docs, reason = "names and meaning of fields are those of the API")]

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::core::{PrivateKey, SecretData, TargetPort};
use super::ingress::Annotations;
use crate::names::{Name, NamespacedName};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenShiftRouteSpec {
    #[serde(default)]
    pub host: Name,
    pub subdomain: Option<Name>,
    #[serde(default)]
    pub path: Name,
    #[serde(default)]
    pub to: RouteTarget,
    #[serde(default)]
    pub alternate_backends: Box<[RouteTarget]>,
    pub port: Option<RoutePort>,
    pub tls: Option<Box<RouteTls>>,
    pub wildcard_policy: Option<Name>,
    pub http_headers: Option<Value>,
    #[serde(skip)]
    pub annotations: Annotations,
}

impl OpenShiftRouteSpec {
    /// Its backends, the main one first.
    pub fn targets(&self) -> impl Iterator<Item = &RouteTarget> {
        std::iter::once(&self.to).chain(&self.alternate_backends)
    }

    /// Every Service that the Route refers to. `namespace` is its own.
    pub fn services(&self, namespace: &Name) -> Vec<NamespacedName> {
        let names = self.targets().filter(|target| target.is_service());
        let mut services: Vec<_> =
            names.map(|target| NamespacedName::new(namespace.clone(), target.name.clone())).collect();
        services.sort();
        services.dedup();
        services
    }

    /// The authorities of its backends, for the termination `reencrypt`.
    pub fn reencrypts(&self) -> Option<&RouteTls> {
        self.tls.as_deref().filter(|tls| tls.termination == "reencrypt")
    }
}

/// A Service with its share of the requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RouteTarget {
    pub kind: Option<Name>,
    #[serde(default)]
    pub name: Name,
    pub weight: Option<u32>,
}

impl RouteTarget {
    pub fn is_service(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind.is_empty() || kind == "Service")
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutePort {
    /// A port of the pods by number, or by the name that the Service has for it.
    pub target_port: TargetPort,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTls {
    #[serde(default)]
    pub termination: Name,
    #[serde(default)]
    certificate: Name,
    #[serde(default, deserialize_with = "private_key")]
    key: Option<PrivateKey>,
    #[serde(rename = "caCertificate", default)]
    ca_certificate: Name,
    #[serde(rename = "destinationCACertificate", default)]
    pub destination_ca_certificate: Name,
    pub insecure_edge_termination_policy: Option<Name>,
    pub external_certificate: Option<ExternalCertificate>,
    /// The certificate with its chain, and its key. `None`: the Route has none.
    #[serde(skip)]
    pub pair: Option<Arc<SecretData>>,
}

impl RouteTls {
    /// Joins the certificate with its chain and key.
    pub(super) fn join(&mut self) {
        let mut chain = std::mem::take(&mut self.certificate).to_string();
        let authorities = std::mem::take(&mut self.ca_certificate);
        if !authorities.is_empty() {
            if !chain.ends_with('\n') {
                chain.push('\n');
            }
            chain.push_str(&authorities);
        }
        let key = self.key.take();
        if !chain.is_empty() || key.is_some() {
            let chain = (!chain.is_empty()).then(|| Arc::from(chain.into_bytes()));
            self.pair = Some(Arc::new(SecretData::new(chain, key)));
        }
    }
}

fn private_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PrivateKey>, D::Error> {
    let pem = Option::<String>::deserialize(deserializer)?.filter(|pem| !pem.is_empty());
    Ok(pem.map(|pem| PrivateKey::new(pem.into_bytes())))
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ExternalCertificate {
    #[serde(default)]
    pub name: Name,
}
