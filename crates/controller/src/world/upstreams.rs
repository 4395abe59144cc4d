//! Upstreams that are in use.
//!
//! Owns: counting the routes that refer to an upstream, its TLS and its endpoints.
//! Does not own: resolving references ([`crate::backends`]).
//! Flow: `retain / release → refresh → Changes`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::backends;
use crate::known::Known;
use crate::names::NamespacedName;
use crate::plan::{Changes, EndpointPlan, UpstreamKey, UpstreamPlan};

#[derive(Debug, Default)]
pub(super) struct Upstreams {
    used: HashMap<UpstreamKey, Upstream>,
    services: HashMap<NamespacedName, Vec<UpstreamKey>>,
    /// By the Secret of the certificate that they are shown.
    certificates: HashMap<NamespacedName, Vec<UpstreamKey>>,
    /// Upstreams whose number of users fell to zero since the last refresh.
    idle: BTreeSet<UpstreamKey>,
    added: BTreeSet<UpstreamKey>,
}

#[derive(Debug)]
struct Upstream {
    /// Number of routes that refer to it.
    users: usize,
    /// `None` until the next refresh.
    plan: Option<Arc<UpstreamPlan>>,
    endpoints: Arc<[EndpointPlan]>,
}

impl Upstreams {
    /// One more route refers to the upstream.
    pub(super) fn retain(&mut self, key: &UpstreamKey) {
        if let Some(upstream) = self.used.get_mut(key) {
            upstream.users += 1;
            self.idle.remove(key);
            return;
        }
        self.used.insert(key.clone(), Upstream { users: 1, plan: None, endpoints: Arc::default() });
        self.services.entry(key.service.clone()).or_default().push(key.clone());
        if let Some(secret) = &key.client_certificate {
            self.certificates.entry(secret.clone()).or_default().push(key.clone());
        }
        self.added.insert(key.clone());
    }

    /// One route less refers to the upstream. It is removed by the next refresh, unless another
    /// route refers to it until then.
    pub(super) fn release(&mut self, key: &UpstreamKey) {
        if let Some(upstream) = self.used.get_mut(key) {
            upstream.users -= 1;
            if upstream.users == 0 {
                self.idle.insert(key.clone());
            }
        }
    }

    /// The upstreams of all ports of a Service.
    pub(super) fn of_service(&self, service: &NamespacedName) -> impl Iterator<Item = &UpstreamKey> {
        self.services.get(service).into_iter().flatten()
    }

    /// The upstreams that are shown the certificate of a Secret.
    pub(super) fn showing(&self, secret: &NamespacedName) -> impl Iterator<Item = &UpstreamKey> {
        self.certificates.get(secret).into_iter().flatten()
    }

    /// Derives new upstreams, those in `stale`, and the endpoints of the Services in `endpoints`.
    pub(super) fn refresh(
        &mut self,
        known: &Known,
        stale: &BTreeSet<UpstreamKey>,
        services: &BTreeSet<NamespacedName>,
        changes: &mut Changes,
    ) {
        let added = std::mem::take(&mut self.added);
        for key in std::mem::take(&mut self.idle) {
            self.remove(&key, !added.contains(&key), changes);
        }
        for key in stale.iter().chain(&added) {
            let Some(upstream) = self.used.get_mut(key) else { continue };
            changes.recomputed.upstreams += 1;
            let Some(plan) = backends::upstream(known, key) else { continue };
            if upstream.plan.as_deref() != Some(&plan) {
                let plan = Arc::new(plan);
                upstream.plan = Some(plan.clone());
                changes.upstreams.insert(key.clone(), plan);
            }
        }
        let moved = services.iter().filter_map(|service| self.services.get(service)).flatten();
        let moved: BTreeSet<UpstreamKey> = moved.cloned().chain(added.iter().cloned()).collect();
        for key in moved {
            let Some(upstream) = self.used.get_mut(&key) else { continue };
            changes.recomputed.endpoints += 1;
            let endpoints = backends::endpoints(known, &key);
            if upstream.endpoints != endpoints || added.contains(&key) {
                upstream.endpoints = endpoints.clone();
                changes.endpoints.insert(key, endpoints);
            }
        }
    }

    fn remove(&mut self, key: &UpstreamKey, was_served: bool, changes: &mut Changes) {
        self.used.remove(key);
        forget(&mut self.services, &key.service, key);
        if let Some(secret) = &key.client_certificate {
            forget(&mut self.certificates, secret, key);
        }
        if was_served {
            changes.upstreams_removed.push(key.clone());
        }
    }

    pub(super) fn plans(&self) -> BTreeMap<UpstreamKey, Arc<UpstreamPlan>> {
        let plans = self.used.iter();
        plans.filter_map(|(key, upstream)| Some((key.clone(), upstream.plan.clone()?))).collect()
    }

    pub(super) fn endpoints(&self) -> BTreeMap<UpstreamKey, Arc<[EndpointPlan]>> {
        self.used.iter().map(|(key, upstream)| (key.clone(), upstream.endpoints.clone())).collect()
    }
}

/// Removes an upstream from an index.
fn forget(index: &mut HashMap<NamespacedName, Vec<UpstreamKey>>, at: &NamespacedName, key: &UpstreamKey) {
    if let Some(keys) = index.get_mut(at) {
        keys.retain(|one| one != key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}
