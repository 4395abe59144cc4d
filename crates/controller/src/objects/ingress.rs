//! Specs of Ingress and IngressClass (networking.k8s.io/v1).
//!
//! Owns: the fields, as the API has them, and the annotations that say something about access or
//! routing.
//! Does not own: what they mean ([`crate::ingress`]).
//! Flow: JSON → spec.

#![allow(missing_docs, reason = "names and meaning of fields are those of the API")]

use serde::Deserialize;
use serde_json::Value;

use crate::names::{Name, NamespacedName};

/// Annotations that may change what an object means. All others are dropped.
const KEPT: [&str; 5] = [
    "kubernetes.io/ingress.class",
    "ingressclass.kubernetes.io/is-default-class",
    "nginx.ingress.kubernetes.io/",
    "haproxy.router.openshift.io/",
    "router.openshift.io/",
];

/// Annotations of an Ingress, IngressClass or Route by name, sorted.
pub type Annotations = Box<[(Name, Name)]>;

/// The annotations of an object that may change what it means.
pub(super) fn annotations(object: &Value) -> Annotations {
    let all = object["metadata"]["annotations"].as_object().into_iter().flatten();
    let kept = all.filter(|(name, _)| KEPT.iter().any(|kept| is_meant(kept, name)));
    let mut kept: Vec<_> = kept
        .filter_map(|(name, value)| Some((Name::from(name.as_str()), Name::from(value.as_str()?))))
        .collect();
    kept.sort();
    kept.into_boxed_slice()
}

/// Whether `kept` is the name of an annotation, or its prefix with a slash.
fn is_meant(kept: &str, name: &str) -> bool {
    if kept.ends_with('/') { name.starts_with(kept) } else { name == kept }
}

/// The value of an annotation.
pub fn annotation<'a>(annotations: &'a Annotations, name: &str) -> Option<&'a Name> {
    annotations.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressClassSpec {
    #[serde(default)]
    pub controller: Name,
    pub parameters: Option<ClassParameters>,
    #[serde(skip)]
    pub annotations: Annotations,
}

impl IngressClassSpec {
    /// Whether Ingresses without a class are of this one.
    pub fn is_default(&self) -> bool {
        let value = annotation(&self.annotations, "ingressclass.kubernetes.io/is-default-class");
        value.is_some_and(|value| *value == "true")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassParameters {
    pub api_group: Option<Name>,
    pub kind: Name,
    pub name: Name,
    pub scope: Option<Name>,
    pub namespace: Option<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressSpec {
    pub ingress_class_name: Option<Name>,
    pub default_backend: Option<IngressBackend>,
    #[serde(default)]
    pub tls: Box<[IngressTls]>,
    #[serde(default)]
    pub rules: Box<[IngressRule]>,
    #[serde(skip)]
    pub annotations: Annotations,
}

impl IngressSpec {
    /// The class. The deprecated annotation comes before the field, as the API demands.
    pub fn class(&self) -> Option<&Name> {
        annotation(&self.annotations, "kubernetes.io/ingress.class").or(self.ingress_class_name.as_ref())
    }

    /// Every Service that the Ingress refers to. `namespace` is its own.
    pub fn services(&self, namespace: &Name) -> Vec<NamespacedName> {
        let paths = self.rules.iter().flat_map(|rule| &rule.http).flat_map(|http| &http.paths);
        let backends = paths.map(|path| &path.backend).chain(&self.default_backend);
        let names = backends.filter_map(|backend| backend.service.as_ref());
        let mut services: Vec<_> =
            names.map(|service| NamespacedName::new(namespace.clone(), service.name.clone())).collect();
        services.sort();
        services.dedup();
        services
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressTls {
    #[serde(default)]
    pub hosts: Box<[Name]>,
    pub secret_name: Option<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct IngressRule {
    pub host: Option<Name>,
    pub http: Option<IngressPaths>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct IngressPaths {
    #[serde(default)]
    pub paths: Box<[IngressPath]>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressPath {
    pub path: Option<Name>,
    #[serde(default)]
    pub path_type: Name,
    pub backend: IngressBackend,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct IngressBackend {
    pub service: Option<IngressService>,
    pub resource: Option<IngressResource>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct IngressService {
    pub name: Name,
    #[serde(default)]
    pub port: IngressPort,
}

/// A port of a Service, by its name or its number.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct IngressPort {
    pub name: Option<Name>,
    pub number: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressResource {
    pub api_group: Option<Name>,
    pub kind: Name,
    pub name: Name,
}
