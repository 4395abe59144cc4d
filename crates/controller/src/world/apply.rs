//! Events, and what they make stale.
//!
//! Owns: the rules by which a change of one object marks others.
//! Does not own: deriving anything.
//! Flow: [`Event`] → [`Known`] and edges → [`Stale`].
//!
//! An object whose status alone changed makes nothing stale but its status document.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::edges::{self, grants_in};
use super::{Event, World};
use crate::known::{GatewayAddresses, Known, TargetingPolicy, put};
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::core::EndpointSliceSpec;
use crate::objects::{
    AccessPolicy, BackendTlsPolicy, Gateway, GatewayClass, Ingress, IngressClass, ListenerSet, Metadata,
    Object, OpenShiftRoute, ReferenceGrant, Resource, Route,
};
use crate::policies;

/// Whether two versions of an object mean the same. Their status may differ.
fn is_same<S: PartialEq>(one: Option<&Arc<Resource<S>>>, other: Option<&Arc<Resource<S>>>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    let Metadata { at: _, generation, created, labels, version: _ } = &one.meta;
    *generation == other.meta.generation
        && *created == other.meta.created
        && *labels == other.meta.labels
        && one.not_understood == other.not_understood
        && one.spec == other.spec
}

/// Whether an AccessPolicy counts: it is the first of its section.
fn is_first(policies: &BTreeSet<TargetingPolicy>, own: &TargetingPolicy) -> bool {
    policies.range(..own).next_back().is_none_or(|(section, ..)| *section != own.0)
}

impl World {
    /// Takes note of an event. What follows from it is derived by [`World::settle`].
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Set(object) => self.set(object),
            Event::Removed(key) => self.remove(key),
            Event::Addresses(gateway, addresses) => {
                let known = addresses != GatewayAddresses::default();
                put(&mut self.known.addresses, gateway.clone(), known.then_some(addresses));
                let gateway = gateway.of(Kind::Gateway);
                let served = self.edges.dependents(&gateway).filter(|one| one.kind == Kind::Ingress);
                self.stale.statuses.extend(served.cloned());
                self.stale.statuses.insert(gateway);
            }
            Event::BundleVersion(version) => {
                self.known.bundle_version = version;
                let classes = self.known.classes.keys();
                let classes = classes.map(|name| ObjectKey::new(Kind::GatewayClass, "", name.clone()));
                self.stale.statuses.extend(classes);
            }
            Event::PolicyCheckChanged => self.check_policies(),
            Event::Reported(report) => self.reported(report),
        }
    }

    fn set(&mut self, object: Object) {
        match object {
            Object::GatewayClass(class) => self.class(&class.meta.at.name, Some(&class)),
            Object::Gateway(gateway) => self.gateway(&gateway.meta.at, Some(&gateway)),
            Object::ListenerSet(set) => self.listener_set(&set.meta.at, Some(&set)),
            Object::Route(kind, route) => self.route(route.meta.at.clone().of(kind), Some(&route)),
            Object::ReferenceGrant(grant) => self.grant(&grant.meta.at, Some(&grant)),
            Object::BackendTlsPolicy(policy) => self.backend_tls(&policy.meta.at, Some(&policy)),
            Object::AccessPolicy(policy) => self.access_policy(&policy.meta.at, Some(&policy)),
            Object::Ingress(ingress) => self.ingress(ingress.meta.at.clone(), Some(&ingress)),
            Object::IngressClass(class) => self.ingress_class(&class.meta.at.name, Some(&class)),
            Object::OpenShiftRoute(route) => self.openshift_route(route.meta.at.clone(), Some(&route)),
            Object::EndpointSlice(at, service, slice) => self.slice(at, service, Some(slice)),
            Object::Service(at, spec) => {
                let former = self.known.services.insert(at.clone(), spec.clone());
                if former.as_ref() != Some(&spec) {
                    self.service_changed(at);
                }
            }
            Object::Secret(at, data) => {
                let former = self.known.secrets.insert(at.clone(), data.clone());
                if former.as_ref() != Some(&data) {
                    self.stale.upstreams.extend(self.upstreams.showing(&at).cloned());
                    self.dependents_stale(&at.of(Kind::Secret));
                }
            }
            Object::ConfigMap(at, data) => {
                let former = self.known.config_maps.insert(at.clone(), data.clone());
                if former.as_ref() != Some(&data) {
                    self.dependents_stale(&at.of(Kind::ConfigMap));
                }
            }
            Object::Namespace(name, labels) => {
                let former = self.known.namespaces.insert(name.clone(), labels.clone());
                if former.as_ref() != Some(&labels) {
                    self.dependents_stale(&ObjectKey::new(Kind::Namespace, "", name));
                }
            }
        }
    }

    fn remove(&mut self, key: ObjectKey) {
        match key.kind {
            Kind::GatewayClass => self.class(&key.at.name, None),
            Kind::Gateway => self.gateway(&key.at, None),
            Kind::ListenerSet => self.listener_set(&key.at, None),
            Kind::HttpRoute | Kind::GrpcRoute => self.route(key, None),
            Kind::ReferenceGrant => self.grant(&key.at, None),
            Kind::BackendTlsPolicy => self.backend_tls(&key.at, None),
            Kind::AccessPolicy => self.access_policy(&key.at, None),
            Kind::Ingress => self.ingress(key.at, None),
            Kind::IngressClass => self.ingress_class(&key.at.name, None),
            Kind::OpenShiftRoute => self.openshift_route(key.at, None),
            Kind::EndpointSlice => self.slice(key.at, None, None),
            Kind::Service => {
                self.known.services.remove(&key.at);
                self.service_changed(key.at);
            }
            Kind::Secret => {
                self.known.secrets.remove(&key.at);
                self.dependents_stale(&key);
            }
            Kind::ConfigMap => {
                self.known.config_maps.remove(&key.at);
                self.dependents_stale(&key);
            }
            Kind::Namespace => {
                self.known.namespaces.remove(&key.at.name);
                self.dependents_stale(&key);
            }
        }
    }

    fn class(&mut self, name: &Name, class: Option<&Arc<GatewayClass>>) {
        let key = ObjectKey::new(Kind::GatewayClass, "", name.clone());
        self.edges.set(&key, class.map(|class| edges::of_class(class)).unwrap_or_default());
        let former = put(&mut self.known.classes, name.clone(), class.cloned());
        if !is_same(former.as_ref(), class) {
            self.dependents_stale(&key);
        }
        self.stale.statuses.insert(key);
    }

    fn gateway(&mut self, at: &NamespacedName, gateway: Option<&Arc<Gateway>>) {
        let key = at.clone().of(Kind::Gateway);
        let former = put(&mut self.known.gateways, at.clone(), gateway.cloned());
        if !is_same(former.as_ref(), gateway) {
            self.edges.set(&key, gateway.map(|gateway| edges::of_gateway(gateway)).unwrap_or_default());
            self.stale.gateways.insert(at.clone());
            self.policies_of_gateway_stale(&key);
        }
        self.stale.statuses.insert(key);
    }

    fn listener_set(&mut self, at: &NamespacedName, set: Option<&Arc<ListenerSet>>) {
        let key = at.clone().of(Kind::ListenerSet);
        let former = put(&mut self.known.listener_sets, at.clone(), set.cloned());
        if !is_same(former.as_ref(), set) {
            self.edges.set(&key, set.map(|set| edges::of_listener_set(set)).unwrap_or_default());
            let parents =
                [former.as_ref(), set].into_iter().flatten().filter_map(|set| Known::parent_of(set));
            self.stale.gateways.extend(parents);
            self.policies_of_target_stale(&key);
        }
        self.stale.statuses.insert(key);
    }

    fn route(&mut self, key: ObjectKey, route: Option<&Arc<Route>>) {
        let former = put(&mut self.known.routes, key.clone(), route.cloned());
        if !is_same(former.as_ref(), route) {
            self.edges.set(&key, route.map(|route| edges::of_route(route)).unwrap_or_default());
            self.policies_of_target_stale(&key);
            self.stale.routes.insert(key.clone());
        }
        self.stale.statuses.insert(key);
    }

    fn ingress(&mut self, at: NamespacedName, ingress: Option<&Arc<Ingress>>) {
        let key = at.clone().of(Kind::Ingress);
        let former = put(&mut self.known.ingresses, at, ingress.cloned());
        if !is_same(former.as_ref(), ingress) {
            let gateway = self.settings.ingress_gateway.as_ref();
            let targets = ingress.map(|ingress| edges::of_ingress(ingress, gateway));
            self.edges.set(&key, targets.unwrap_or_default());
            self.policies_of_target_stale(&key);
            self.stale.routes.insert(key.clone());
        }
        self.stale.statuses.insert(key);
    }

    fn ingress_class(&mut self, name: &Name, class: Option<&Arc<IngressClass>>) {
        let former = put(&mut self.known.ingress_classes, name.clone(), class.cloned());
        if !is_same(former.as_ref(), class) {
            self.dependents_stale(&ObjectKey::new(Kind::IngressClass, "", name.clone()));
            self.dependents_stale(&edges::any_class());
        }
    }

    fn openshift_route(&mut self, at: NamespacedName, route: Option<&Arc<OpenShiftRoute>>) {
        let key = at.clone().of(Kind::OpenShiftRoute);
        let former = put(&mut self.known.openshift_routes, at, route.cloned());
        if !is_same(former.as_ref(), route) {
            let gateway = self.settings.ingress_gateway.as_ref();
            let targets = route.map(|route| edges::of_openshift_route(route, gateway));
            self.edges.set(&key, targets.unwrap_or_default());
            self.policies_of_target_stale(&key);
            self.stale.routes.insert(key.clone());
        }
        self.stale.statuses.insert(key);
    }

    fn grant(&mut self, at: &NamespacedName, grant: Option<&Arc<ReferenceGrant>>) {
        let grants = self.known.grants.entry(at.namespace.clone()).or_default();
        let former = match grant {
            Some(grant) => grants.insert(at.name.clone(), grant.clone()),
            None => grants.remove(&at.name),
        };
        if grants.is_empty() {
            self.known.grants.remove(&at.namespace);
        }
        if !is_same(former.as_ref(), grant) {
            self.dependents_stale(&grants_in(&at.namespace));
        }
    }

    fn backend_tls(&mut self, at: &NamespacedName, policy: Option<&Arc<BackendTlsPolicy>>) {
        let key = at.clone().of(Kind::BackendTlsPolicy);
        let former = put(&mut self.known.backend_tls, at.clone(), policy.cloned());
        if !is_same(former.as_ref(), policy) {
            self.edges.set(&key, policy.map(|policy| edges::of_backend_tls(policy)).unwrap_or_default());
            let services = |policy: Option<&Arc<BackendTlsPolicy>>| {
                policy.map(|policy| edges::tls_services(policy)).unwrap_or_default()
            };
            let (old, new) = (services(former.as_ref()), services(policy));
            let targets = &mut self.known.tls_targets;
            for service in &old {
                if let Some(policies) = targets.get_mut(service) {
                    policies.remove(at);
                    if policies.is_empty() {
                        targets.remove(service);
                    }
                }
            }
            for service in &new {
                targets.entry(service.clone()).or_default().insert(at.clone());
            }
            for service in old.union(&new) {
                self.tls_changed(service);
            }
        }
        self.stale.statuses.insert(key);
    }

    /// Checks all policies again.
    fn check_policies(&mut self) {
        let policies: Vec<_> = self.known.access_policies.values().cloned().collect();
        for policy in policies {
            let (at, fault) = (&policy.meta.at, policies::fault(&self.settings, &policy));
            if self.known.access_faults.get(at) == fault.as_ref() {
                continue;
            }
            put(&mut self.known.access_faults, at.clone(), fault);
            for (object, _) in edges::access_targets(&policy) {
                self.policies_of_target_stale(&object);
                self.routes_below_stale(&object);
            }
            self.stale.statuses.insert(at.clone().of(Kind::AccessPolicy));
        }
    }

    fn access_policy(&mut self, at: &NamespacedName, policy: Option<&Arc<AccessPolicy>>) {
        let key = at.clone().of(Kind::AccessPolicy);
        let former = put(&mut self.known.access_policies, at.clone(), policy.cloned());
        if !is_same(former.as_ref(), policy) {
            let fault = policy.and_then(|policy| policies::fault(&self.settings, policy));
            put(&mut self.known.access_faults, at.clone(), fault);
            // Among many policies with one target, a change of one that does not count affects nothing
            // else.
            let mut affected = self.take_access_targets(former.as_deref());
            affected.extend(self.put_access_targets(policy.map(AsRef::as_ref)));
            for object in &affected {
                self.policies_of_target_stale(object);
                self.routes_below_stale(object);
            }
        }
        self.stale.statuses.insert(key);
    }

    /// Forgets the targets of a policy. Answers those for which it counted.
    fn take_access_targets(&mut self, policy: Option<&AccessPolicy>) -> BTreeSet<ObjectKey> {
        let mut counted = BTreeSet::new();
        let Some(policy) = policy else { return counted };
        for (object, section) in edges::access_targets(policy) {
            let Some(policies) = self.known.access_targets.get_mut(&object) else { continue };
            let own = (section, policy.meta.created, policy.meta.at.clone());
            let is_first = is_first(policies, &own);
            policies.remove(&own);
            if policies.is_empty() {
                self.known.access_targets.remove(&object);
            }
            if is_first {
                counted.insert(object);
            }
        }
        counted
    }

    /// Takes note of the targets of a policy. Answers those for which it counts.
    fn put_access_targets(&mut self, policy: Option<&AccessPolicy>) -> BTreeSet<ObjectKey> {
        let mut counts = BTreeSet::new();
        let Some(policy) = policy else { return counts };
        for (object, section) in edges::access_targets(policy) {
            let own = (section, policy.meta.created, policy.meta.at.clone());
            let policies = self.known.access_targets.entry(object.clone()).or_default();
            policies.insert(own.clone());
            if is_first(policies, &own) {
                counts.insert(object);
            }
        }
        counts
    }

    fn slice(
        &mut self,
        at: NamespacedName,
        service: Option<NamespacedName>,
        slice: Option<Arc<EndpointSliceSpec>>,
    ) {
        let former = put(&mut self.known.slice_owners, at.clone(), service.clone());
        if let Some(former) = former.filter(|former| Some(former) != service.as_ref()) {
            if let Some(slices) = self.known.slices.get_mut(&former) {
                slices.remove(&at.name);
                if slices.is_empty() {
                    self.known.slices.remove(&former);
                }
            }
            self.stale.endpoints.insert(former);
        }
        if let (Some(service), Some(slice)) = (service, slice) {
            let slices = self.known.slices.entry(service.clone()).or_default();
            if slices.insert(at.name, slice.clone()).as_ref() != Some(&slice) {
                self.stale.endpoints.insert(service);
            }
        }
    }

    fn service_changed(&mut self, service: NamespacedName) {
        self.dependents_stale(&service.clone().of(Kind::Service));
        self.stale.endpoints.insert(service);
    }

    /// The BackendTLSPolicies of a Service changed, or something that one of them reads.
    fn tls_changed(&mut self, service: &NamespacedName) {
        self.dependents_stale(&service.clone().of(Kind::Service));
        self.stale.upstreams.extend(self.upstreams.of_service(service).cloned());
        self.tls_policies_stale(service);
    }

    /// The status of the BackendTLSPolicies of a Service is stale.
    pub(super) fn tls_policies_stale(&mut self, service: &NamespacedName) {
        let policies = self.known.tls_targets.get(service).into_iter().flatten();
        self.stale.statuses.extend(policies.map(|at| at.clone().of(Kind::BackendTlsPolicy)));
    }

    /// The status of the AccessPolicies of a target is stale.
    fn policies_of_target_stale(&mut self, target: &ObjectKey) {
        let policies = self.known.access_targets.get(target).into_iter().flatten();
        self.stale.statuses.extend(policies.map(|(_, _, at)| at.clone().of(Kind::AccessPolicy)));
    }

    /// The status of the AccessPolicies of a Gateway and of its ListenerSets is stale: whether they are
    /// ours depends on the class of the Gateway.
    fn policies_of_gateway_stale(&mut self, gateway: &ObjectKey) {
        self.policies_of_target_stale(gateway);
        let sets = self.edges.dependents(gateway).filter(|one| one.kind == Kind::ListenerSet);
        for set in sets.cloned().collect::<Vec<_>>() {
            self.policies_of_target_stale(&set);
        }
    }

    /// The routes that a policy on `target` reaches are stale.
    fn routes_below_stale(&mut self, target: &ObjectKey) {
        if target.kind.is_route() || target.kind.is_ingress() {
            self.stale.routes.insert(target.clone());
            return;
        }
        let dependents: Vec<ObjectKey> = self.edges.dependents(target).cloned().collect();
        for dependent in dependents {
            if dependent.kind.is_route() || dependent.kind.is_ingress() {
                self.stale.routes.insert(dependent);
            } else if target.kind == Kind::Gateway && dependent.kind == Kind::ListenerSet {
                self.routes_below_stale(&dependent);
            }
        }
    }

    /// What is derived from `target` is stale.
    fn dependents_stale(&mut self, target: &ObjectKey) {
        let dependents: Vec<ObjectKey> = self.edges.dependents(target).cloned().collect();
        for dependent in dependents {
            match dependent.kind {
                Kind::Gateway => {
                    self.policies_of_gateway_stale(&dependent);
                    self.stale.gateways.insert(dependent.at);
                }
                Kind::ListenerSet => {
                    let set = self.known.listener_sets.get(&dependent.at);
                    let gateway = set.and_then(|set| Known::parent_of(set));
                    self.stale.gateways.extend(gateway);
                }
                Kind::HttpRoute | Kind::GrpcRoute | Kind::OpenShiftRoute => {
                    self.stale.routes.insert(dependent);
                }
                Kind::Ingress => {
                    // Whether a policy protects it depends on its class.
                    self.policies_of_target_stale(&dependent);
                    self.stale.routes.insert(dependent);
                }
                Kind::GatewayClass => {
                    self.dependents_stale(&dependent);
                    self.stale.statuses.insert(dependent);
                }
                Kind::BackendTlsPolicy => {
                    let policy = self.known.backend_tls.get(&dependent.at);
                    let services = policy.map(|policy| edges::tls_services(policy)).unwrap_or_default();
                    for service in &services {
                        self.tls_changed(service);
                    }
                    self.stale.statuses.insert(dependent);
                }
                _ => {}
            }
        }
    }
}
