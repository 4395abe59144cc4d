//! Specs of ReferenceGrant, BackendTLSPolicy and AccessPolicy.
//!
//! Owns: the fields, as the APIs have them. The body of an AccessPolicy stays opaque.
//! Does not own: what they mean ([`crate::known`], [`crate::backends`], [`crate::policies`]).
//! Flow: JSON → spec.

#![allow(missing_docs, reason = "names and meaning of fields are those of the API")]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::reference::{LocalReference, PolicyTarget};
use crate::names::Name;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ReferenceGrantSpec {
    #[serde(default)]
    pub from: Vec<GrantFrom>,
    #[serde(default)]
    pub to: Vec<GrantTo>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GrantFrom {
    pub group: Name,
    pub kind: Name,
    pub namespace: Name,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GrantTo {
    pub group: Name,
    pub kind: Name,
    pub name: Option<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsPolicySpec {
    #[serde(default)]
    pub target_refs: Vec<PolicyTarget>,
    #[serde(default)]
    pub validation: BackendValidation,
    #[serde(default)]
    pub options: BTreeMap<Name, Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct BackendValidation {
    #[serde(rename = "caCertificateRefs", default)]
    pub ca_certificate_refs: Vec<LocalReference>,
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<Name>,
    pub hostname: Name,
    #[serde(rename = "subjectAltNames", default)]
    pub subject_alt_names: Vec<SubjectAltNameSpec>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SubjectAltNameSpec {
    #[serde(rename = "type")]
    pub of_type: Name,
    #[serde(default)]
    pub hostname: Name,
    #[serde(default)]
    pub uri: Name,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicySpec {
    #[serde(default)]
    pub target_refs: Vec<PolicyTarget>,
    /// What applies where nothing more specific is set.
    #[serde(default, deserialize_with = "shared")]
    pub defaults: Option<Arc<Value>>,
    /// What applies whatever is set below the target.
    #[serde(default, deserialize_with = "shared")]
    pub overrides: Option<Arc<Value>>,
}

fn shared<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Value>>, D::Error> {
    Option::<Value>::deserialize(deserializer).map(|value| value.map(Arc::new))
}
