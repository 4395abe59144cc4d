//! Status documents of objects, from the derived state.
//!
//! Owns: which function derives the status of which object.
//! Does not own: the documents ([`crate::conditions`]).
//! Flow: object → derived state → [`StatusDocument`], if it differs.

use super::World;
use crate::conditions;
use crate::known::Known;
use crate::names::{Kind, ObjectKey};
use crate::objects::Seconds;
use crate::plan::StatusDocument;

impl World {
    /// Every status document that differs from what its object has. A process that becomes the one
    /// that writes status begins with these.
    pub fn statuses(&self, now: Seconds) -> Vec<StatusDocument> {
        let known = &self.known;
        let classes = known.classes.values().map(|class| class.meta.at.clone().of(Kind::GatewayClass));
        let gateways = known.gateways.keys().map(|at| at.clone().of(Kind::Gateway));
        let sets = known.listener_sets.keys().map(|at| at.clone().of(Kind::ListenerSet));
        let tls = known.backend_tls.keys().map(|at| at.clone().of(Kind::BackendTlsPolicy));
        let access = known.access_policies.keys().map(|at| at.clone().of(Kind::AccessPolicy));
        let ingresses = known.ingresses.keys().map(|at| at.clone().of(Kind::Ingress));
        let routes = known.openshift_routes.keys().map(|at| at.clone().of(Kind::OpenShiftRoute));
        let objects = classes.chain(gateways).chain(sets).chain(tls).chain(access).chain(ingresses);
        let objects = objects.chain(routes);
        let mut objects: Vec<ObjectKey> = objects.chain(known.routes.keys().cloned()).collect();
        objects.sort();
        objects.iter().filter_map(|object| self.status(object, now)).collect()
    }

    /// The status document of an object, if it differs from the status that the object has.
    pub(super) fn status(&self, object: &ObjectKey, now: Seconds) -> Option<StatusDocument> {
        let (known, settings, at) = (&self.known, &self.settings, &object.at);
        let state = |at| self.gateways.0.get(at).map(|entry| &entry.state);
        match object.kind {
            Kind::GatewayClass => {
                let class = known.classes.get(&at.name)?;
                let is_ours = class.spec.controller_name == settings.controller_name;
                is_ours.then(|| conditions::class(known, settings, class, now))?
            }
            Kind::Gateway => {
                let listeners = (&self.counts, self.faults.of_gateway(at));
                conditions::gateway(known, known.gateways.get(at)?, state(at)?, listeners, now)
            }
            Kind::ListenerSet => {
                let set = known.listener_sets.get(at)?;
                let gateway = Known::parent_of(set)?;
                let listeners = (&self.counts, self.faults.of_gateway(&gateway));
                conditions::listener_set(set, state(&gateway)?, listeners, now)
            }
            Kind::HttpRoute | Kind::GrpcRoute => {
                let route = known.routes.get(object)?;
                let (outcomes, rules) = match self.routes.get(object) {
                    Some(state) => self.faults.route(object, state),
                    None => Default::default(),
                };
                let name = &settings.controller_name;
                conditions::route((object.kind, route), name, &outcomes, &rules, now)
            }
            Kind::BackendTlsPolicy => {
                let policy = known.backend_tls.get(at)?;
                conditions::backend_tls_policy(known, settings, policy, &self.service_gateways, now)
            }
            Kind::AccessPolicy => {
                let partial = self.faults.of_policy(at);
                conditions::access_policy(
                    (known, settings),
                    known.access_policies.get(at)?,
                    partial.as_ref(),
                    now,
                )
            }
            Kind::Ingress => {
                let (ingress, state) = (known.ingresses.get(at)?, self.routes.get(object)?);
                let gateway = settings.ingress_gateway.as_ref();
                let addresses = gateway.and_then(|gateway| known.addresses.get(gateway));
                conditions::ingress(ingress, &*self.faults.ingress(object, state)?, addresses)
            }
            Kind::OpenShiftRoute => {
                let route = known.openshift_routes.get(at)?;
                let outcome = self.routes.get(object).and_then(|state| self.faults.ingress(object, state));
                conditions::openshift_route(route, &settings.controller_name, outcome.as_deref(), now)
            }
            _ => None,
        }
    }
}
