//! Everything that is known of the cluster, as it was last seen.
//!
//! Owns: the objects by kind and name, and the question whether a reference to another namespace is
//! permitted.
//! Does not own: what changed, and what follows from it ([`crate::world`]).
//! Flow: `World::apply` writes; all that derives state reads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use crate::fault::Fault;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::core::{ConfigMapData, EndpointSliceSpec, Labels, SecretData, ServiceSpec};
use crate::objects::{
    AccessPolicy, BackendTlsPolicy, Gateway, GatewayClass, Ingress, IngressClass, ListenerSet,
    OpenShiftRoute, ReferenceGrant, Route, Seconds,
};

/// An AccessPolicy with a target: the section that it names, when it was created, and its name.
pub type TargetingPolicy = (Option<Name>, Seconds, NamespacedName);

/// Objects of one kind in one place, by name.
type ByName<T> = BTreeMap<Name, Arc<T>>;

/// Addresses of a Gateway, as whoever provides them says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayAddresses {
    /// IP addresses or host names at which the Gateway is reachable.
    pub assigned: Vec<String>,
    /// Requested addresses that cannot be had.
    pub unusable: Vec<String>,
    /// Why what the Gateway needs for its addresses and ports is not there.
    pub problem: Option<String>,
}

/// Whether an address is an IP address; otherwise it is a host name.
pub(crate) fn is_ip(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok()
}

/// The objects of the cluster.
#[allow(missing_docs, reason = "maps by kind")]
#[derive(Debug, Default)]
pub struct Known {
    pub classes: HashMap<Name, Arc<GatewayClass>>,
    pub gateways: HashMap<NamespacedName, Arc<Gateway>>,
    pub listener_sets: HashMap<NamespacedName, Arc<ListenerSet>>,
    pub routes: HashMap<ObjectKey, Arc<Route>>,
    /// By namespace.
    pub grants: HashMap<Name, ByName<ReferenceGrant>>,
    pub backend_tls: HashMap<NamespacedName, Arc<BackendTlsPolicy>>,
    /// The BackendTLSPolicies that name a Service as target.
    pub tls_targets: HashMap<NamespacedName, BTreeSet<NamespacedName>>,
    pub services: HashMap<NamespacedName, Arc<ServiceSpec>>,
    /// By Service.
    pub slices: HashMap<NamespacedName, ByName<EndpointSliceSpec>>,
    /// The Service of each slice.
    pub slice_owners: HashMap<NamespacedName, NamespacedName>,
    pub secrets: HashMap<NamespacedName, Arc<SecretData>>,
    pub config_maps: HashMap<NamespacedName, Arc<ConfigMapData>>,
    pub namespaces: HashMap<Name, Arc<Labels>>,
    pub access_policies: HashMap<NamespacedName, Arc<AccessPolicy>>,
    /// Why an AccessPolicy is not valid. It is looked into once, when it arrives.
    pub access_faults: HashMap<NamespacedName, Fault>,
    /// The AccessPolicies that name an object as target. Of those with one section the first counts.
    pub access_targets: HashMap<ObjectKey, BTreeSet<TargetingPolicy>>,
    pub ingresses: HashMap<NamespacedName, Arc<Ingress>>,
    pub ingress_classes: HashMap<Name, Arc<IngressClass>>,
    pub openshift_routes: HashMap<NamespacedName, Arc<OpenShiftRoute>>,
    /// Addresses of Gateways.
    pub addresses: HashMap<NamespacedName, GatewayAddresses>,
    /// The version of the Gateway API's definitions in the cluster.
    pub bundle_version: Option<Name>,
}

impl Known {
    /// Whether an object of `kind` in `namespace` may refer to `target`: within a namespace always,
    /// else if a ReferenceGrant in the target's namespace says so.
    pub fn permits(&self, kind: Kind, namespace: &Name, target: &ObjectKey) -> bool {
        if *namespace == target.at.namespace {
            return true;
        }
        let grants = self.grants.get(&target.at.namespace).into_iter().flat_map(BTreeMap::values);
        grants.filter(|grant| grant.not_understood.is_none()).any(|grant| {
            let from = grant.spec.from.iter().any(|from| {
                from.group == kind.group() && from.kind == kind.name() && from.namespace == *namespace
            });
            let to = grant.spec.to.iter().any(|to| {
                to.group == target.kind.group()
                    && to.kind == target.kind.name()
                    && to.name.as_ref().is_none_or(|name| *name == target.at.name)
            });
            from && to
        })
    }

    /// How many objects of each kind are known.
    pub fn counts(&self) -> BTreeMap<Kind, usize> {
        let mut counts: BTreeMap<Kind, usize> = Kind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        for route in self.routes.keys() {
            *counts.entry(route.kind).or_default() += 1;
        }
        counts.extend([
            (Kind::GatewayClass, self.classes.len()),
            (Kind::Gateway, self.gateways.len()),
            (Kind::ListenerSet, self.listener_sets.len()),
            (Kind::ReferenceGrant, self.grants.values().map(BTreeMap::len).sum()),
            (Kind::BackendTlsPolicy, self.backend_tls.len()),
            (Kind::Service, self.services.len()),
            (Kind::EndpointSlice, self.slice_owners.len()),
            (Kind::Secret, self.secrets.len()),
            (Kind::ConfigMap, self.config_maps.len()),
            (Kind::Namespace, self.namespaces.len()),
            (Kind::AccessPolicy, self.access_policies.len()),
            (Kind::Ingress, self.ingresses.len()),
            (Kind::IngressClass, self.ingress_classes.len()),
            (Kind::OpenShiftRoute, self.openshift_routes.len()),
        ]);
        counts
    }

    /// The labels of a namespace. Kubernetes sets `kubernetes.io/metadata.name` itself.
    pub fn labels(&self, namespace: &Name) -> Option<&Labels> {
        self.namespaces.get(namespace).map(Arc::as_ref)
    }

    /// The Gateway of a ListenerSet.
    pub fn parent_of(listener_set: &ListenerSet) -> Option<NamespacedName> {
        let parent = &listener_set.spec.parent_ref;
        let group = parent.group.as_deref().unwrap_or(Kind::Gateway.group());
        let kind = parent.kind.as_deref().unwrap_or(Kind::Gateway.name());
        let namespace = parent.namespace.as_ref().unwrap_or(&listener_set.meta.at.namespace);
        (Kind::of(group, kind) == Some(Kind::Gateway))
            .then(|| NamespacedName { namespace: namespace.clone(), name: parent.name.clone() })
    }

    /// Whether a Gateway is of a class that the controller `name` serves.
    pub fn is_ours(&self, gateway: &Gateway, name: &Name) -> bool {
        let class = self.classes.get(&gateway.spec.gateway_class_name);
        class.is_some_and(|class| class.spec.controller_name == *name)
    }
}

/// Sets or removes an entry, and returns what was there.
pub(crate) fn put<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}
