//! Specs of GatewayClass, Gateway and ListenerSet (Gateway API 1.6.3, experimental channel).
//!
//! Owns: the fields, as the API has them.
//! Does not own: what they mean ([`crate::listeners`]).
//! Flow: JSON → spec.

#![allow(missing_docs, reason = "names and meaning of fields are those of the API")]

use std::collections::BTreeMap;

use serde::Deserialize;

use super::reference::{GroupKind, LocalReference, ObjectReference, SecretReference};
use crate::names::Name;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    pub controller_name: Name,
    pub parameters_ref: Option<ObjectReference>,
    pub description: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    pub gateway_class_name: Name,
    #[serde(default)]
    pub listeners: Vec<Listener>,
    #[serde(default)]
    pub addresses: Vec<RequestedAddress>,
    pub infrastructure: Option<Infrastructure>,
    pub allowed_listeners: Option<AllowedListeners>,
    pub tls: Option<GatewayTls>,
    pub default_scope: Option<DefaultScope>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetSpec {
    pub parent_ref: ParentGateway,
    #[serde(default)]
    pub listeners: Vec<Listener>,
}

/// The Gateway of a ListenerSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ParentGateway {
    pub group: Option<Name>,
    pub kind: Option<Name>,
    pub name: Name,
    pub namespace: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    pub name: Name,
    pub hostname: Option<Name>,
    pub port: u16,
    pub protocol: Name,
    pub tls: Option<ListenerTlsConfig>,
    pub allowed_routes: Option<AllowedRoutes>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTlsConfig {
    pub mode: Option<TlsMode>,
    #[serde(default)]
    pub certificate_refs: Vec<SecretReference>,
    #[serde(default)]
    pub options: BTreeMap<Name, Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TlsMode {
    Terminate,
    Passthrough,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AllowedRoutes {
    pub namespaces: Option<NamespaceScope>,
    #[serde(default)]
    pub kinds: Vec<GroupKind>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AllowedListeners {
    pub namespaces: Option<NamespaceScope>,
}

/// The namespaces from which routes or ListenerSets may attach.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct NamespaceScope {
    pub from: Option<FromNamespaces>,
    pub selector: Option<LabelSelector>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum FromNamespaces {
    All,
    Selector,
    Same,
    None,
}

/// A selector of labels, as `metav1.LabelSelector`. An empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(default)]
    pub match_labels: BTreeMap<Name, Name>,
    #[serde(default)]
    pub match_expressions: Vec<LabelExpression>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LabelExpression {
    pub key: Name,
    pub operator: LabelOperator,
    #[serde(default)]
    pub values: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<Name, Name>) -> bool {
        let equal = self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        equal
            && self.match_expressions.iter().all(|expression| {
                let value = labels.get(&expression.key);
                match expression.operator {
                    LabelOperator::In => value.is_some_and(|value| expression.values.contains(value)),
                    LabelOperator::NotIn => !value.is_some_and(|value| expression.values.contains(value)),
                    LabelOperator::Exists => value.is_some(),
                    LabelOperator::DoesNotExist => value.is_none(),
                }
            })
    }
}

/// TLS settings of a whole Gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GatewayTls {
    pub backend: Option<BackendTls>,
    pub frontend: Option<FrontendTls>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTls {
    pub client_certificate_ref: Option<SecretReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    pub default: FrontendTlsConfig,
    #[serde(default)]
    pub per_port: Vec<FrontendTlsPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct FrontendTlsConfig {
    pub validation: Option<FrontendValidation>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct FrontendTlsPort {
    pub port: u16,
    pub tls: FrontendTlsConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct FrontendValidation {
    #[serde(rename = "caCertificateRefs", default)]
    pub ca_certificate_refs: Vec<ObjectReference>,
    pub mode: Option<ValidationMode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ValidationMode {
    AllowValidOnly,
    AllowInsecureFallback,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RequestedAddress {
    #[serde(rename = "type")]
    pub of_type: Option<Name>,
    #[serde(default)]
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Infrastructure {
    #[serde(default)]
    pub labels: BTreeMap<Name, Name>,
    #[serde(default)]
    pub annotations: BTreeMap<Name, Name>,
    pub parameters_ref: Option<LocalReference>,
}

/// Whether routes without a parent attach to a Gateway (GEP-3793, experimental).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum DefaultScope {
    All,
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_needs_all_of_its_labels_and_expressions() {
        let labels = BTreeMap::from([(Name::from("team"), Name::from("a"))]);
        let cases = [
            ("{}", true),
            (r#"{"matchLabels":{"team":"a"}}"#, true),
            (r#"{"matchLabels":{"team":"b"}}"#, false),
            (r#"{"matchLabels":{"team":"a","stage":"x"}}"#, false),
            (r#"{"matchExpressions":[{"key":"team","operator":"In","values":["a","b"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"team","operator":"NotIn","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"stage","operator":"NotIn","values":["a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"team","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}"#, false),
        ];
        for (text, expected) in cases {
            let selector: LabelSelector = serde_json::from_str(text).unwrap();
            assert_eq!(selector.matches(&labels), expected, "{text}");
        }
    }
}
