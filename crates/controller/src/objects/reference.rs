//! References from one object to another, as the Gateway API writes them.
//!
//! Owns: the kinds of references and their defaults.
//! Does not own: whether a reference is permitted ([`crate::known`]).
//! Flow: JSON → reference → [`ObjectKey`].

#![allow(missing_docs, reason = "names and meaning of fields are those of the API")]

use serde::{Deserialize, Serialize};

use crate::names::{GATEWAY_GROUP, Kind, Name, NamespacedName, ObjectKey};

/// A reference of a route to the Gateway or ListenerSet that it attaches to. It is written into the
/// status exactly as it is in the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
    pub name: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl ParentReference {
    /// The Gateway or ListenerSet, for a reference from `namespace`. `None` for other kinds.
    pub fn target(&self, namespace: &Name) -> Option<ObjectKey> {
        let group = self.group.as_deref().unwrap_or(GATEWAY_GROUP);
        let kind = Kind::of(group, self.kind.as_deref().unwrap_or("Gateway"))?;
        let namespace = self.namespace.as_ref().unwrap_or(namespace);
        let is_parent = matches!(kind, Kind::Gateway | Kind::ListenerSet);
        is_parent.then(|| ObjectKey::new(kind, namespace.clone(), self.name.clone()))
    }
}

/// A reference to a Secret, possibly in another namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SecretReference {
    pub group: Option<Name>,
    pub kind: Option<Name>,
    pub name: Name,
    pub namespace: Option<Name>,
}

impl SecretReference {
    /// The Secret, for a reference from `namespace`. `None` if it names another kind.
    pub fn target(&self, namespace: &Name) -> Option<NamespacedName> {
        let is_secret = self.group.as_deref().unwrap_or_default().is_empty()
            && self.kind.as_deref().unwrap_or("Secret") == "Secret";
        let namespace = self.namespace.as_ref().unwrap_or(namespace);
        is_secret.then(|| NamespacedName { namespace: namespace.clone(), name: self.name.clone() })
    }
}

/// A reference with a group and kind of its own, possibly to another namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ObjectReference {
    pub group: Name,
    pub kind: Name,
    pub name: Name,
    pub namespace: Option<Name>,
}

impl ObjectReference {
    /// The object, for a reference from `namespace`. `None` if its kind is not one that is read.
    pub fn target(&self, namespace: &Name) -> Option<ObjectKey> {
        let namespace = self.namespace.as_ref().unwrap_or(namespace);
        Some(ObjectKey::new(Kind::of(&self.group, &self.kind)?, namespace.clone(), self.name.clone()))
    }
}

/// A reference within one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct LocalReference {
    pub group: Name,
    pub kind: Name,
    pub name: Name,
}

/// What a policy applies to, in the policy's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTarget {
    pub group: Name,
    pub kind: Name,
    pub name: Name,
    pub section_name: Option<Name>,
}

impl PolicyTarget {
    /// The object, for a policy in `namespace`. `None` if its kind is not one that is read.
    pub fn target(&self, namespace: &Name) -> Option<ObjectKey> {
        Some(ObjectKey::new(Kind::of(&self.group, &self.kind)?, namespace.clone(), self.name.clone()))
    }
}

/// A kind of route that a listener allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKind {
    #[serde(default = "gateway_group")]
    pub group: Name,
    pub kind: Name,
}

fn gateway_group() -> Name {
    Name::from(GATEWAY_GROUP)
}

/// A reference to what serves requests: a Service and one of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct BackendObjectReference {
    pub group: Option<Name>,
    pub kind: Option<Name>,
    pub name: Name,
    pub namespace: Option<Name>,
    pub port: Option<u16>,
}

impl BackendObjectReference {
    /// The Service, for a reference from `namespace`. `None` if it names another kind.
    pub fn service(&self, namespace: &Name) -> Option<NamespacedName> {
        let is_service = self.group.as_deref().unwrap_or_default().is_empty()
            && self.kind.as_deref().unwrap_or("Service") == "Service";
        let namespace = self.namespace.as_ref().unwrap_or(namespace);
        is_service.then(|| NamespacedName { namespace: namespace.clone(), name: self.name.clone() })
    }
}
