//! What depends on what.
//!
//! Owns: for each object, those whose derived state reads it.
//! Does not own: what becomes stale when it changes.
//! Flow: references of an object → edges → dependents of their targets.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::backends::SERVICE_AUTHORITIES;
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::gateway::GatewaySpec;
use crate::objects::{
    AccessPolicy, BackendTlsPolicy, Gateway, GatewayClass, Ingress, ListenerSet, OpenShiftRoute, Route,
};

/// Reverse edges, and the forward ones that are needed to remove them.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// Most sets have one element, which a tree would store in a node for eleven.
    dependents: HashMap<ObjectKey, HashSet<ObjectKey>>,
    targets: HashMap<ObjectKey, Box<[ObjectKey]>>,
}

impl Edges {
    /// Replaces the targets of an object.
    pub(super) fn set(&mut self, from: &ObjectKey, mut targets: Vec<ObjectKey>) {
        targets.sort();
        targets.dedup();
        let former = if targets.is_empty() {
            self.targets.remove(from)
        } else {
            self.targets.insert(from.clone(), targets.clone().into_boxed_slice())
        };
        for target in former.iter().flatten().filter(|target| targets.binary_search(target).is_err()) {
            if let Some(dependents) = self.dependents.get_mut(target) {
                dependents.remove(from);
                if dependents.is_empty() {
                    self.dependents.remove(target);
                }
            }
        }
        let is_new =
            |target: &ObjectKey| former.as_ref().is_none_or(|former| former.binary_search(target).is_err());
        for target in targets.into_iter().filter(is_new) {
            self.dependents.entry(target).or_default().insert(from.clone());
        }
    }

    /// The objects that depend on `target`, in no order.
    pub(super) fn dependents(&self, target: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.dependents.get(target).into_iter().flatten()
    }
}

/// The grants of a namespace, as a target. Whether a reference is permitted depends on all of them.
pub(super) fn grants_in(namespace: &Name) -> ObjectKey {
    ObjectKey::new(Kind::ReferenceGrant, namespace.clone(), "")
}

fn namespace_key(namespace: &Name) -> ObjectKey {
    ObjectKey::new(Kind::Namespace, "", namespace.clone())
}

/// A target and, if it is in another namespace than `home`, the grants there.
fn with_grants(home: &Name, target: ObjectKey, targets: &mut Vec<ObjectKey>) {
    if target.at.namespace != *home {
        targets.push(grants_in(&target.at.namespace));
    }
    targets.push(target);
}

pub(super) fn of_class(class: &GatewayClass) -> Vec<ObjectKey> {
    let parameters = class.spec.parameters_ref.as_ref();
    parameters.and_then(|parameters| parameters.target(&Name::default())).into_iter().collect()
}

pub(super) fn of_gateway(gateway: &Gateway) -> Vec<ObjectKey> {
    let GatewaySpec { gateway_class_name, listeners, tls, .. } = &gateway.spec;
    let home = &gateway.meta.at.namespace;
    let mut targets = vec![ObjectKey::new(Kind::GatewayClass, "", gateway_class_name.clone())];
    let client = tls.as_ref().and_then(|tls| tls.backend.as_ref()?.client_certificate_ref.as_ref());
    let certificates =
        listeners.iter().flat_map(|listener| &listener.tls).flat_map(|tls| &tls.certificate_refs);
    for secret in certificates.chain(client).filter_map(|reference| reference.target(home)) {
        with_grants(home, secret.of(Kind::Secret), &mut targets);
    }
    if let Some(frontend) = tls.as_ref().and_then(|tls| tls.frontend.as_ref()) {
        let configs = frontend.per_port.iter().map(|port| &port.tls).chain([&frontend.default]);
        let references =
            configs.flat_map(|config| &config.validation).flat_map(|one| &one.ca_certificate_refs);
        for target in references.filter_map(|reference| reference.target(home)) {
            with_grants(home, target, &mut targets);
        }
    }
    targets
}

pub(super) fn of_listener_set(set: &ListenerSet) -> Vec<ObjectKey> {
    let home = &set.meta.at.namespace;
    let mut targets = vec![namespace_key(home)];
    targets.extend(Known::parent_of(set).map(|gateway| gateway.of(Kind::Gateway)));
    let tls = set.spec.listeners.iter().flat_map(|listener| &listener.tls);
    for secret in tls.flat_map(|tls| &tls.certificate_refs).filter_map(|reference| reference.target(home)) {
        with_grants(home, secret.of(Kind::Secret), &mut targets);
    }
    targets
}

pub(super) fn of_route(route: &Route) -> Vec<ObjectKey> {
    let home = &route.meta.at.namespace;
    let mut targets = vec![namespace_key(home)];
    targets.extend(route.spec.parents().iter().filter_map(|parent| parent.target(home)));
    for service in route.spec.services(home) {
        with_grants(home, service.of(Kind::Service), &mut targets);
    }
    targets
}

/// Stands for all IngressClasses: any of them may be the default one.
pub(super) fn any_class() -> ObjectKey {
    ObjectKey::new(Kind::IngressClass, "", "")
}

/// `gateway` is the one that serves Ingresses.
pub(super) fn of_ingress(ingress: &Ingress, gateway: Option<&NamespacedName>) -> Vec<ObjectKey> {
    let home = &ingress.meta.at.namespace;
    let class = ingress.spec.class().filter(|name| !name.is_empty());
    let class = class.map(|name| ObjectKey::new(Kind::IngressClass, "", name.clone()));
    let mut targets = vec![namespace_key(home), class.unwrap_or_else(any_class)];
    targets.extend(gateway.map(|gateway| gateway.clone().of(Kind::Gateway)));
    targets.extend(ingress.spec.services(home).into_iter().map(|service| service.of(Kind::Service)));
    let secrets = ingress.spec.tls.iter().filter_map(|tls| tls.secret_name.as_ref());
    targets.extend(secrets.map(|name| ObjectKey::new(Kind::Secret, home.clone(), name.clone())));
    targets
}

/// `gateway` is the one that serves Routes.
pub(super) fn of_openshift_route(route: &OpenShiftRoute, gateway: Option<&NamespacedName>) -> Vec<ObjectKey> {
    let home = &route.meta.at.namespace;
    let mut targets = vec![namespace_key(home)];
    targets.extend(gateway.map(|gateway| gateway.clone().of(Kind::Gateway)));
    targets.extend(route.spec.services(home).into_iter().map(|service| service.of(Kind::Service)));
    let external = route.spec.tls.as_ref().and_then(|tls| tls.external_certificate.as_ref());
    targets.extend(external.map(|one| ObjectKey::new(Kind::Secret, home.clone(), one.name.clone())));
    if route.spec.reencrypts().is_some() {
        targets.push(ObjectKey::new(Kind::ConfigMap, home.clone(), SERVICE_AUTHORITIES));
    }
    targets
}

pub(super) fn of_backend_tls(policy: &BackendTlsPolicy) -> Vec<ObjectKey> {
    let namespace = &policy.meta.at.namespace;
    let references = policy.spec.validation.ca_certificate_refs.iter();
    let bundles = references.filter_map(|reference| {
        let kind = Kind::of(&reference.group, &reference.kind)?;
        Some(ObjectKey::new(kind, namespace.clone(), reference.name.clone()))
    });
    bundles.collect()
}

/// The Services that a BackendTLSPolicy targets.
pub(super) fn tls_services(policy: &BackendTlsPolicy) -> BTreeSet<NamespacedName> {
    let namespace = &policy.meta.at.namespace;
    let targets = policy.spec.target_refs.iter().filter_map(|target| target.target(namespace));
    targets.filter(|key| key.kind == Kind::Service).map(|key| key.at).collect()
}

/// The objects that an AccessPolicy targets, with the section of each.
pub(super) fn access_targets(policy: &AccessPolicy) -> BTreeSet<(ObjectKey, Option<Name>)> {
    let namespace = &policy.meta.at.namespace;
    let targets = policy.spec.target_refs.iter();
    targets.filter_map(|one| Some((one.target(namespace)?, one.section_name.clone()))).collect()
}
