//! Names of objects.
//!
//! Owns: shared strings ([`Name`]), the kinds of objects, and the keys by which objects are found.
//! Does not own: the objects.
//! Flow: `Kind + namespace + name → ObjectKey`.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string that is shared instead of copied. It is never changed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(Arc::from(text))
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Strings of which many objects have the same one: namespaces, keys of labels. Each is stored once.
#[derive(Debug, Default)]
pub struct Interner {
    known: HashSet<Name>,
    /// Number of strings at which those that nobody else has are dropped.
    limit: usize,
}

impl Interner {
    /// The shared form of `text`.
    pub fn shared(&mut self, text: &str) -> Name {
        if let Some(name) = self.known.get(text) {
            return name.clone();
        }
        if self.known.len() >= self.limit.max(1024) {
            self.known.retain(|name| Arc::strong_count(&name.0) > 1);
            self.limit = self.known.len() * 2;
        }
        let name = Name::from(text);
        self.known.insert(name.clone());
        name
    }
}

/// The API group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The API group of Postern's own kinds.
pub const ACCESS_GROUP: &str = "access.postern.dev";

/// The version of Postern's own kinds.
pub const ACCESS_VERSION: &str = "v1alpha1";

/// The API group of Ingress and IngressClass.
pub const INGRESS_GROUP: &str = "networking.k8s.io";

/// The API group of the Routes of OpenShift.
pub const OPENSHIFT_ROUTE_GROUP: &str = "route.openshift.io";

/// The kinds of objects that are read.
#[allow(missing_docs, reason = "the names that the API has for them")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    GatewayClass,
    Gateway,
    ListenerSet,
    HttpRoute,
    GrpcRoute,
    ReferenceGrant,
    BackendTlsPolicy,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    Namespace,
    AccessPolicy,
    Ingress,
    IngressClass,
    OpenShiftRoute,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::GatewayClass,
        Self::Gateway,
        Self::ListenerSet,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::ReferenceGrant,
        Self::BackendTlsPolicy,
        Self::Service,
        Self::EndpointSlice,
        Self::Secret,
        Self::ConfigMap,
        Self::Namespace,
        Self::AccessPolicy,
        Self::Ingress,
        Self::IngressClass,
        Self::OpenShiftRoute,
    ];

    /// The API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::GatewayClass
            | Self::Gateway
            | Self::ListenerSet
            | Self::HttpRoute
            | Self::GrpcRoute
            | Self::ReferenceGrant
            | Self::BackendTlsPolicy => GATEWAY_GROUP,
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Service | Self::Secret | Self::ConfigMap | Self::Namespace => "",
            Self::AccessPolicy => ACCESS_GROUP,
            Self::Ingress | Self::IngressClass => INGRESS_GROUP,
            Self::OpenShiftRoute => OPENSHIFT_ROUTE_GROUP,
        }
    }

    /// The version in which objects of this kind are watched and their status is written.
    pub fn version(self) -> &'static str {
        if self == Self::AccessPolicy { ACCESS_VERSION } else { "v1" }
    }

    /// The name of the kind, as an object has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::GatewayClass => "GatewayClass",
            Self::Gateway => "Gateway",
            Self::ListenerSet => "ListenerSet",
            Self::HttpRoute => "HTTPRoute",
            Self::GrpcRoute => "GRPCRoute",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::BackendTlsPolicy => "BackendTLSPolicy",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Namespace => "Namespace",
            Self::AccessPolicy => "AccessPolicy",
            Self::Ingress => "Ingress",
            Self::IngressClass => "IngressClass",
            Self::OpenShiftRoute => "Route",
        }
    }

    /// The name of the resource, as paths of the API have it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::GatewayClass => "gatewayclasses",
            Self::Gateway => "gateways",
            Self::ListenerSet => "listenersets",
            Self::HttpRoute => "httproutes",
            Self::GrpcRoute => "grpcroutes",
            Self::ReferenceGrant => "referencegrants",
            Self::BackendTlsPolicy => "backendtlspolicies",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
            Self::Namespace => "namespaces",
            Self::AccessPolicy => "accesspolicies",
            Self::Ingress => "ingresses",
            Self::IngressClass => "ingressclasses",
            Self::OpenShiftRoute => "routes",
        }
    }

    /// Whether objects of this kind belong to a namespace.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::GatewayClass | Self::Namespace | Self::IngressClass)
    }

    /// The `apiVersion` of objects of this kind.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }

    /// The kind with this group and name, if it is one that is read.
    pub fn of(group: &str, name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.name() == name)
    }

    /// Whether objects of this kind are routes of the Gateway API.
    pub fn is_route(self) -> bool {
        matches!(self, Self::HttpRoute | Self::GrpcRoute)
    }

    /// Whether objects of this kind have rules, but name no listener: Ingress, and Route of OpenShift.
    pub fn is_ingress(self) -> bool {
        matches!(self, Self::Ingress | Self::OpenShiftRoute)
    }
}

/// The name of an object within one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// Empty for cluster-wide kinds.
    pub namespace: Name,
    /// Unique within its kind and namespace.
    pub name: Name,
}

impl NamespacedName {
    /// The name in a namespace.
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// This name as an object of `kind`.
    pub fn of(self, kind: Kind) -> ObjectKey {
        ObjectKey { kind, at: self }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return formatter.write_str(&self.name);
        }
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Which object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub at: NamespacedName,
}

impl ObjectKey {
    /// The key of an object.
    pub fn new(kind: Kind, namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { kind, at: NamespacedName::new(namespace, name) }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.name(), self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_group_and_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.group(), kind.name()), Some(kind));
        }
        assert_eq!(Kind::of("", "Gateway"), None);
        assert_eq!(Kind::of("route.openshift.io", "Route"), Some(Kind::OpenShiftRoute));
        assert_eq!(Kind::AccessPolicy.api_version(), "access.postern.dev/v1alpha1");
        assert_eq!(Kind::Secret.api_version(), "v1");
    }

    #[test]
    fn interned_strings_are_shared_and_dropped_when_unused() {
        let mut interner = Interner::default();
        let kept = interner.shared("team-a");
        assert!(Arc::ptr_eq(&kept.0, &interner.shared("team-a").0));
        for number in 0..5000 {
            interner.shared(&number.to_string());
        }
        assert!(interner.known.len() <= 1025, "{} strings are kept", interner.known.len());
        assert!(Arc::ptr_eq(&kept.0, &interner.shared("team-a").0));
    }
}
