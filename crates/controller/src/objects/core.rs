//! Service, EndpointSlice, Secret, ConfigMap and Namespace, as far as they are used.
//!
//! Owns: the part of these kinds that routing needs. Fields that are not used are ignored: the kinds
//! of Kubernetes grow compatibly, and a new field of a Service does not change what is read here.
//! Does not own: which endpoints a route reaches ([`crate::backends`]).
//! Flow: JSON → part of the object.

#![allow(missing_docs, reason = "names and meaning of fields are those of the API")]

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::names::Name;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub of_type: Option<Name>,
    #[serde(default)]
    pub ports: Box<[ServicePort]>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The name by which EndpointSlices and policies refer to the port. Empty if it has none.
    #[serde(default)]
    pub name: Name,
    pub port: u16,
    #[serde(default)]
    pub protocol: Option<Name>,
    pub app_protocol: Option<Name>,
    /// The port of the pods. Absent: the same as `port`.
    pub target_port: Option<TargetPort>,
}

/// A port of pods, by number or by the name that the pods have for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    Number(u16),
    Name(Name),
}

/// The endpoints of a Service, or a part of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSliceSpec {
    #[serde(default)]
    pub address_type: Name,
    #[serde(default)]
    pub endpoints: Box<[SliceEndpoint]>,
    #[serde(default)]
    pub ports: Box<[SlicePort]>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceEndpoint {
    /// The addresses of one endpoint. Only the first is used, as the API demands.
    #[serde(default)]
    pub addresses: Box<[Box<str>]>,
    #[serde(default)]
    pub conditions: SliceConditions,
    pub zone: Option<Name>,
    #[serde(default)]
    pub hints: Option<SliceHints>,
}

impl SliceEndpoint {
    pub fn address(&self) -> Option<IpAddr> {
        self.addresses.first().and_then(|address| address.parse().ok())
    }
}

/// Absent conditions count as the API says: ready, serving as ready, not terminating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct SliceConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceHints {
    #[serde(default)]
    pub for_zones: Box<[ZoneHint]>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ZoneHint {
    pub name: Name,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SlicePort {
    #[serde(default)]
    pub name: Option<Name>,
    pub port: Option<u16>,
}

/// The values of a Secret that TLS uses: certificate chain, private key, certificate authorities.
#[derive(Clone, Default)]
pub struct SecretData {
    pub certificate: Option<Arc<[u8]>>,
    pub key: Option<PrivateKey>,
    pub authorities: Option<Arc<[u8]>>,
    /// The result of the check of certificate and key. A Secret never changes, only its entry in the
    /// cluster, so the check runs once for each version.
    checked: OnceLock<Result<(), String>>,
}

impl PartialEq for SecretData {
    fn eq(&self, other: &Self) -> bool {
        let Self { certificate, key, authorities, checked: _ } = self;
        *certificate == other.certificate && *key == other.key && *authorities == other.authorities
    }
}

impl SecretData {
    /// A certificate chain with its private key, both in PEM.
    pub(super) fn new(certificate: Option<Arc<[u8]>>, key: Option<PrivateKey>) -> Self {
        Self { certificate, key, authorities: None, checked: OnceLock::new() }
    }

    /// Certificate chain and private key, if both are there and `check` accepts them.
    pub fn pair(
        &self,
        check: fn(&[u8], &[u8]) -> Result<(), String>,
    ) -> Result<(&Arc<[u8]>, &PrivateKey), String> {
        let missing = |name: &str| format!("has no entry {name}");
        let chain = self.certificate.as_ref().ok_or_else(|| missing("tls.crt"))?;
        let key = self.key.as_ref().ok_or_else(|| missing("tls.key"))?;
        let checked = self.checked.get_or_init(|| check(chain, key.pem()));
        checked.clone().map(|()| (chain, key)).map_err(|problem| format!("is not usable: {problem}"))
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretData")
    }
}

/// A private key in PEM. It is erased when dropped, and `Debug` prints nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(Arc<Zeroizing<Vec<u8>>>);

impl PrivateKey {
    pub fn new(pem: Vec<u8>) -> Self {
        Self(Arc::new(Zeroizing::new(pem)))
    }

    pub fn pem(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PrivateKey")
    }
}

/// The entry `data` of a Secret, as far as it is used. A value that is not base64 counts as absent;
/// the API server lets none pass.
pub(super) fn secret(data: Option<&serde_json::Value>) -> SecretData {
    let entry = |name: &str| {
        let text = data?.get(name)?.as_str()?;
        STANDARD.decode(text).ok()
    };
    SecretData {
        certificate: entry("tls.crt").map(Arc::from),
        key: entry("tls.key").map(PrivateKey::new),
        authorities: entry("ca.crt").map(Arc::from),
        checked: OnceLock::new(),
    }
}

/// The bundles of certificate authorities in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigMapData {
    pub authorities: Option<Arc<[u8]>>,
    /// Those of the certificates that OpenShift issues for Services.
    pub service_authorities: Option<Arc<[u8]>>,
}

pub(super) fn config_map(data: Option<&serde_json::Value>) -> ConfigMapData {
    let entry = |name: &str| {
        let text = data.and_then(|data| data.get(name)).and_then(serde_json::Value::as_str);
        text.map(|text| Arc::from(text.as_bytes()))
    };
    ConfigMapData { authorities: entry("ca.crt"), service_authorities: entry("service-ca.crt") }
}

/// Labels of an object.
pub type Labels = BTreeMap<Name, Name>;
