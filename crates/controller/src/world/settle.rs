//! Deriving what is stale.
//!
//! Owns: the order of the stages, and the difference between the former and the new state.
//! Does not own: what makes a part stale ([`super::apply`]), status documents ([`super::status`]).
//! Flow: Gateways → routes and Ingresses → certificates of Ingresses → upstreams → statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ingress_state::{self, IngressCandidate};
use super::route_state::{self, RouteCandidate, RouteState};
use super::{GatewayEntry, World};
use crate::attach::HostClaims;
use crate::conditions::depends_on_gateway;
use crate::listeners::{self, GatewayState};
use crate::names::{Kind, NamespacedName, ObjectKey};
use crate::objects::{ListenerSet, Metadata, Seconds};
use crate::plan::{Changes, ObjectFaults, PlanId, RoutePlan};

/// What is derived from an object with rules before it is compared with others.
enum Candidate {
    Route(RouteCandidate),
    Ingress(IngressCandidate),
}

impl World {
    /// Derives everything that is stale, for a data plane that reports nothing.
    pub fn settle(&mut self, now: Seconds) -> Changes {
        let mut changes = self.derive();
        self.derive_statuses(now, &mut changes);
        changes
    }

    /// Derives what is stale of the desired state, and returns what differs from the state before.
    pub fn derive(&mut self) -> Changes {
        let mut changes = Changes::default();
        for gateway in std::mem::take(&mut self.stale.gateways) {
            self.settle_gateway(gateway, &mut changes);
        }
        for (route, candidate) in self.candidates() {
            self.settle_route(route, candidate, &mut changes);
        }
        self.settle_certificates(&mut changes);
        let upstreams = std::mem::take(&mut self.stale.upstreams);
        let services = std::mem::take(&mut self.stale.endpoints);
        self.upstreams.refresh(&self.known, &upstreams, &services, &mut changes);
        self.forget_faults(&changes);
        changes
    }

    /// Adds the stale status documents that differ from what the objects have. `now` is the time of
    /// conditions whose status changes.
    pub fn derive_statuses(&mut self, now: Seconds, changes: &mut Changes) {
        for object in std::mem::take(&mut self.stale.statuses) {
            changes.recomputed.statuses += 1;
            changes.statuses.extend(self.status(&object, now));
        }
    }

    fn settle_gateway(&mut self, at: NamespacedName, changes: &mut Changes) {
        changes.recomputed.gateways += 1;
        let key = at.clone().of(Kind::Gateway);
        let gateway = self.known.gateways.get(&at);
        let gateway = gateway.filter(|one| self.known.is_ours(one, &self.settings.controller_name));
        let entry = gateway.map(|gateway| {
            let sets: Vec<Arc<ListenerSet>> = self
                .edges
                .dependents(&key)
                .filter(|dependent| dependent.kind == Kind::ListenerSet)
                .filter_map(|set| self.known.listener_sets.get(&set.at).cloned())
                .collect();
            let state = listeners::derive(&self.known, &self.settings, gateway, &sets);
            let mut plan = listeners::plan(gateway, &state);
            if self.settings.ingress_gateway.as_ref() == Some(&at) {
                self.certificates.put_into(&mut plan);
            }
            GatewayEntry { state, plan: Arc::new(plan) }
        });
        let former = match &entry {
            Some(_) => self.gateways.0.remove(&at),
            None => {
                let former = self.gateways.0.remove(&at);
                changes.gateways_removed.extend(former.as_ref().map(|_| at.clone()));
                former
            }
        };
        let (old, new) = (former.as_ref().map(|one| &one.state), entry.as_ref().map(|one| &one.state));
        self.routes_of_changed_parents(old, new);
        if self.settings.ingress_gateway.as_ref() == Some(&at) {
            self.ingresses_of_changed_gateway(old, new);
        }
        for state in [old, new].into_iter().flatten() {
            let differs =
                |object: &ObjectKey| !old.zip(new).is_some_and(|(old, new)| old.has_same_status(new, object));
            self.stale.statuses.extend(depends_on_gateway(&at, state).into_iter().filter(differs));
        }
        self.stale.statuses.insert(key);
        if let Some(mut entry) = entry {
            match former {
                Some(former) if former.plan == entry.plan => entry.plan = former.plan,
                _ => {
                    changes.gateways.insert(at.clone(), entry.plan.clone());
                }
            }
            self.gateways.0.insert(at, entry);
        }
    }

    /// Marks the routes of Gateways and ListenerSets whose listeners look different to routes.
    fn routes_of_changed_parents(&mut self, old: Option<&GatewayState>, new: Option<&GatewayState>) {
        let both = || [old, new].into_iter().flatten();
        let parents = both().flat_map(|state| state.offers.keys().cloned());
        let sets = both().flat_map(|state| state.sets.keys().map(|set| set.clone().of(Kind::ListenerSet)));
        let parents: BTreeSet<ObjectKey> = parents.chain(sets).collect();
        let shown = |state: Option<&GatewayState>| state.map(|state| state.client_certificate.clone());
        let shows_another = shown(old) != shown(new);
        for parent in parents {
            let offers = |state: Option<&GatewayState>| {
                state.map(|state| (state.offers.get(&parent).cloned(), state.sets.get(&parent.at).cloned()))
            };
            if shows_another || offers(old) != offers(new) {
                let routes = self.edges.dependents(&parent).filter(|dependent| dependent.kind.is_route());
                self.stale.routes.extend(routes.cloned());
            }
        }
    }

    /// Marks the Ingresses and Routes whose listeners look different, if the Gateway that serves them
    /// changes from `old` to `new`.
    fn ingresses_of_changed_gateway(&mut self, old: Option<&GatewayState>, new: Option<&GatewayState>) {
        let gateway = self.settings.ingress_gateway.clone().unwrap_or_default().of(Kind::Gateway);
        let seen = |state: Option<&GatewayState>| {
            let state = state?;
            let (offers, fault) = (state.offers.get(&gateway).cloned(), state.fault.clone());
            // A listener of a ListenerSet has all requests for its hosts.
            Some((offers, fault, state.set_hostnames.clone(), state.client_certificate.clone()))
        };
        if seen(old) != seen(new) {
            let dependents = self.edges.dependents(&gateway).filter(|one| one.kind.is_ingress());
            self.stale.routes.extend(dependents.cloned());
        }
    }

    /// The stale routes, and those that share hosts with them. The claims of all routes are final
    /// when this returns.
    fn candidates(&mut self) -> BTreeMap<ObjectKey, Option<Candidate>> {
        let mut candidates = BTreeMap::new();
        while let Some(key) = self.stale.routes.pop_first() {
            if candidates.contains_key(&key) {
                continue;
            }
            let candidate = self.candidate(&key);
            let created = self.meta_of(&key).map(|meta| meta.created).unwrap_or_default();
            let claims = match &candidate {
                None => HostClaims::default(),
                Some(Candidate::Route(route)) => route.claims(&self.settings),
                Some(Candidate::Ingress(ingress)) => ingress.claims(),
            };
            self.stale.routes.extend(self.hosts.replace(&key, created, claims));
            candidates.insert(key, candidate);
        }
        candidates
    }

    fn candidate(&self, key: &ObjectKey) -> Option<Candidate> {
        let Self { known, settings, gateways, .. } = self;
        if key.kind.is_ingress() {
            return IngressCandidate::derive(known, settings, gateways, key).map(Candidate::Ingress);
        }
        let route = known.routes.get(key)?;
        RouteCandidate::derive(known, settings, gateways, (key, route)).map(Candidate::Route)
    }

    /// The metadata of an object with rules.
    fn meta_of(&self, key: &ObjectKey) -> Option<&Metadata> {
        match key.kind {
            Kind::Ingress => self.known.ingresses.get(&key.at).map(|object| &object.meta),
            Kind::OpenShiftRoute => self.known.openshift_routes.get(&key.at).map(|object| &object.meta),
            _ => self.known.routes.get(key).map(|object| &object.meta),
        }
    }

    /// The state of an object, when the claims of all objects are known.
    fn route_state(&self, key: &ObjectKey, candidate: Candidate) -> Option<RouteState> {
        let (known, meta) = (&self.known, self.meta_of(key)?);
        let state = match candidate {
            Candidate::Ingress(ingress) => ingress_state::derive(known, &self.hosts, (key, meta), ingress),
            Candidate::Route(candidate) => {
                let route = (key, &**known.routes.get(key)?);
                let world = (known, &self.settings, &self.gateways);
                route_state::derive(world, &self.hosts, route, candidate)
            }
        };
        Some(RouteState { created: meta.created, ..state })
    }

    fn settle_route(&mut self, key: ObjectKey, candidate: Option<Candidate>, changes: &mut Changes) {
        changes.recomputed.routes += 1;
        let state = candidate.and_then(|candidate| self.route_state(&key, candidate));
        let mut state = state.unwrap_or_default();
        changes.recomputed.plans += state.plans.len();
        let former = self.routes.remove(&key).unwrap_or_default();
        difference(&former.plans, &mut state.plans, changes);
        // New users first, so that an upstream in both is never without users.
        state.upstreams.iter().for_each(|key| self.upstreams.retain(key));
        former.upstreams.iter().for_each(|key| self.upstreams.release(key));
        for listener in former.listeners.iter().filter(|one| !state.listeners.contains(one)) {
            if let Some(count) = self.counts.get_mut(listener) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(listener);
                }
            }
            self.stale.statuses.insert(listener.parent.clone());
        }
        for listener in state.listeners.iter().filter(|one| !former.listeners.contains(one)) {
            *self.counts.entry(listener.clone()).or_default() += 1;
            self.stale.statuses.insert(listener.parent.clone());
        }
        self.count_uses(&former.uses, &state.uses);
        if key.kind.is_ingress() {
            self.settle_ingress(&key, &former, &state, changes);
        }
        self.stale.statuses.insert(key.clone());
        if state.is_ours() {
            self.routes.insert(key, state);
        }
    }

    /// What only Ingresses and Routes of OpenShift have.
    fn settle_ingress(
        &mut self,
        key: &ObjectKey,
        former: &RouteState,
        state: &RouteState,
        changes: &mut Changes,
    ) {
        let certificates = |state: &RouteState| (state.created, state.certificates.clone());
        if certificates(former) != certificates(state) {
            let (old, new) = (&former.certificates[..], &state.certificates[..]);
            self.certificates.replace(key, (former.created, old), (state.created, new));
            self.stale.certificates |= !old.is_empty() || !new.is_empty();
        }
        let faults = state.unsaid(key.kind);
        if faults != former.unsaid(key.kind) {
            changes.faults.push(ObjectFaults { object: key.clone(), faults });
        }
        // The TLS of a Route to its backends is in the Route itself.
        self.stale.upstreams.extend(state.upstreams.iter().filter(|one| one.reencrypt.is_some()).cloned());
    }

    /// Puts the certificates of Ingresses and Routes onto the ports of their Gateway.
    fn settle_certificates(&mut self, changes: &mut Changes) {
        if !std::mem::take(&mut self.stale.certificates) {
            return;
        }
        let Some(at) = &self.settings.ingress_gateway else { return };
        let Some(entry) = self.gateways.0.get_mut(at) else { return };
        let mut plan = (*entry.plan).clone();
        self.certificates.put_into(&mut plan);
        if plan != *entry.plan {
            entry.plan = Arc::new(plan);
            changes.gateways.insert(at.clone(), entry.plan.clone());
        }
    }

    /// Counts which Gateways use which Services: the ancestors of BackendTLSPolicies. Both lists are
    /// sorted: those of one route may have thousands of Services.
    fn count_uses(
        &mut self,
        former: &[(NamespacedName, NamespacedName)],
        uses: &[(NamespacedName, NamespacedName)],
    ) {
        let mut changed = BTreeSet::new();
        for (service, gateway) in former.iter().filter(|one| uses.binary_search(one).is_err()) {
            let Some(gateways) = self.service_gateways.get_mut(service) else { continue };
            if let Some(index) = gateways.iter().position(|(at, _)| at == gateway) {
                gateways[index].1 -= 1;
                if gateways[index].1 == 0 {
                    gateways.swap_remove(index);
                    changed.insert(service.clone());
                }
            }
            if gateways.is_empty() {
                self.service_gateways.remove(service);
            }
        }
        for (service, gateway) in uses.iter().filter(|one| former.binary_search(one).is_err()) {
            let gateways = self.service_gateways.entry(service.clone()).or_default();
            match gateways.iter_mut().find(|(at, _)| at == gateway) {
                Some((_, count)) => *count += 1,
                None => {
                    gateways.push((gateway.clone(), 1));
                    changed.insert(service.clone());
                }
            }
        }
        for service in &changed {
            self.tls_policies_stale(service);
        }
    }
}

/// Puts the difference of the plans of one route into `changes`. Plans that are equal keep their
/// former address. Both lists are sorted by id.
fn difference(former: &[Arc<RoutePlan>], plans: &mut [Arc<RoutePlan>], changes: &mut Changes) {
    let find = |list: &[Arc<RoutePlan>], id: &PlanId| list.binary_search_by(|plan| plan.id.cmp(id)).ok();
    for plan in former {
        if find(plans, &plan.id).is_none() {
            changes.plans_removed.push(plan.id.clone());
        }
    }
    for plan in plans {
        match find(former, &plan.id).map(|index| &former[index]) {
            Some(same) if same == plan => *plan = same.clone(),
            _ => {
                changes.plans.insert(plan.id.clone(), plan.clone());
            }
        }
    }
}
