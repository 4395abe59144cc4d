//! Faults that the data plane reported, in the status of objects.
//!
//! Owns: which faults are known, since when they are not true any more, and how they change the state
//! that conditions are derived from.
//! Does not own: the conditions ([`crate::conditions`]), finding faults (the data plane).
//! Flow: [`Event::Reported`](super::Event::Reported) → [`Faults`] → the status of routes, policies and
//! Gateways.
//!
//! A report marks status documents and nothing else, so it leads to no other report.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::route_state::RouteState;
use crate::attach::ParentOutcome;
use crate::conditions::{IngressOutcome, ListenerFaults, NOT_CARRIED_OUT, PolicyReach};
use crate::fault::Fault;
use crate::names::{Kind, NamespacedName, ObjectKey};
use crate::plan::{Changes, DataPlaneReport, ListenerFault, PlanFault, PlanId, UpstreamKey};
use crate::rules::RouteRules;

/// The faults that are known.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: BTreeMap<PlanId, Vec<PlanFault>>,
    /// Rules that a policy does not fit.
    by_policy: BTreeMap<NamespacedName, BTreeSet<PlanId>>,
    listeners: BTreeMap<NamespacedName, Vec<ListenerFault>>,
    upstreams: BTreeMap<UpstreamKey, String>,
}

/// What a condition about a rule says.
fn phrase(id: &PlanId, problem: &str) -> String {
    format!("rule {}{NOT_CARRIED_OUT}{problem}", id.rule)
}

impl Faults {
    /// The faults of the rules of one object.
    fn of_route<'f>(&'f self, route: &ObjectKey) -> impl Iterator<Item = (&'f PlanId, &'f PlanFault)> {
        let first = PlanId { route: route.clone(), rule: 0, matched: 0 };
        let route = route.clone();
        let rules = self.rules.range(first..).take_while(move |(id, _)| id.route == route);
        rules.flat_map(|(id, faults)| faults.iter().map(move |fault| (id, fault)))
    }

    fn remove_rule(&mut self, id: &PlanId) -> Vec<PlanFault> {
        let gone = self.rules.remove(id).unwrap_or_default();
        for policy in gone.iter().filter_map(|fault| fault.policy.as_ref()) {
            if let Some(rules) = self.by_policy.get_mut(policy) {
                rules.remove(id);
                if rules.is_empty() {
                    self.by_policy.remove(policy);
                }
            }
        }
        gone
    }

    fn insert_rule(&mut self, id: PlanId, fault: PlanFault) {
        if let Some(policy) = &fault.policy {
            self.by_policy.entry(policy.clone()).or_default().insert(id.clone());
        }
        self.rules.entry(id).or_default().push(fault);
    }

    /// The rules that a valid policy does not fit.
    pub(super) fn of_policy(&self, policy: &NamespacedName) -> Option<Fault> {
        let rules = self.by_policy.get(policy)?;
        let first = rules.first()?;
        let mut faults = self.rules.get(first)?.iter();
        let fault = faults.find(|fault| fault.policy.as_ref() == Some(policy))?;
        let more = match rules.len() - 1 {
            0 => String::new(),
            1 => ", and one more rule".to_owned(),
            more => format!(", and {more} more rules"),
        };
        let message = format!(
            "these requests are refused: {} rule {}{more}: {}",
            first.route, first.rule, fault.problem
        );
        Some(Fault::new("UnsupportedValue", message))
    }

    /// The listeners of a Gateway that are not served.
    pub(super) fn of_gateway(&self, gateway: &NamespacedName) -> ListenerFaults<'_> {
        ListenerFaults(self.listeners.get(gateway).map(|faults| &faults[..]).unwrap_or_default())
    }

    /// Why no rule of an object is carried out, or why some are not.
    fn refusal(&self, key: &ObjectKey, state: &RouteState) -> Refusal {
        let own: BTreeMap<&PlanId, &PlanFault> =
            self.of_route(key).filter(|(_, fault)| fault.policy.is_none()).collect();
        let Some((first, fault)) = own.first_key_value() else { return Refusal::None };
        let message = phrase(first, &fault.problem);
        let is_left = |id: &PlanId| !own.contains_key(id);
        let mut served = state.plans.iter().filter(|plan| !plan.is_exempt());
        if served.any(|plan| is_left(&plan.id)) {
            let numbers: BTreeSet<u16> = own.keys().map(|id| id.rule).collect();
            let numbers: Vec<String> = numbers.iter().map(u16::to_string).collect();
            let message = format!("Dropped Rule(s) {}: {message}", numbers.join(", "));
            return Refusal::Partial(Fault::new("UnsupportedValue", message));
        }
        Refusal::Whole(Fault::new("UnsupportedValue", message))
    }

    /// Why an upstream of the object cannot be used.
    fn upstream(&self, state: &RouteState) -> Option<Fault> {
        let problem = state.upstreams.iter().find_map(|key| self.upstreams.get(key))?;
        Some(Fault::new("BackendNotFound", problem.clone()))
    }

    /// The policy of a listener of these that does not fit a rule.
    fn unfit(
        &self,
        key: &ObjectKey,
        state: &RouteState,
        outcome: Option<&ParentOutcome>,
    ) -> Option<PolicyReach> {
        let mut faults =
            self.of_route(key).filter_map(|(id, fault)| Some((id, fault, fault.policy.as_ref()?)));
        let (id, fault, policy) = faults.find(|(id, _, policy)| {
            let plan = state.plans.iter().find(|plan| plan.id == **id);
            let attachments = plan.iter().flat_map(|plan| plan.attachments.iter());
            let mut here = attachments.filter(|one| {
                outcome.is_none_or(|outcome| {
                    outcome.listeners.iter().any(|taken| taken.listener == one.listener)
                })
            });
            here.any(|one| one.policy.is_of(policy))
        })?;
        Some(PolicyReach::Unfit(policy.clone(), phrase(id, &fault.problem)))
    }

    fn has_any(&self, key: &ObjectKey, state: &RouteState) -> bool {
        !self.rules.is_empty() && self.of_route(key).next().is_some()
            || !self.upstreams.is_empty()
                && state.upstreams.iter().any(|one| self.upstreams.contains_key(one))
    }

    /// The state of a route from which its conditions are derived.
    pub(super) fn route<'s>(&self, key: &ObjectKey, state: &'s RouteState) -> RouteView<'s> {
        if !self.has_any(key, state) {
            return (Cow::Borrowed(&state.outcomes), Cow::Borrowed(&state.rules));
        }
        let (mut outcomes, mut rules) = (state.outcomes.clone(), state.rules.clone());
        match self.refusal(key, state) {
            Refusal::None => {}
            Refusal::Whole(fault) => {
                rules.refused.get_or_insert(fault);
            }
            Refusal::Partial(fault) => match &mut rules.partial {
                Some(known) => known.message = format!("{}; {}", known.message, fault.message),
                none => *none = Some(fault),
            },
        }
        rules.unresolved = rules.unresolved.or_else(|| self.upstream(state));
        for (outcome, reach) in &mut outcomes {
            if matches!(reach, PolicyReach::All | PolicyReach::Missing)
                && let Some(unfit) = self.unfit(key, state, Some(outcome))
            {
                *reach = unfit;
            }
        }
        (Cow::Owned(outcomes), Cow::Owned(rules))
    }

    /// The outcome of an Ingress or Route from which its status is derived.
    pub(super) fn ingress<'s>(
        &self,
        key: &ObjectKey,
        state: &'s RouteState,
    ) -> Option<Cow<'s, IngressOutcome>> {
        let outcome = state.ingress.as_ref()?;
        if !self.has_any(key, state) {
            return Some(Cow::Borrowed(outcome));
        }
        let mut outcome = outcome.clone();
        match self.refusal(key, state) {
            Refusal::None => {}
            Refusal::Whole(fault) => {
                outcome.is_served = false;
                outcome.refused.get_or_insert(fault);
            }
            Refusal::Partial(fault) => outcome.faults.push(fault),
        }
        outcome.faults.extend(self.upstream(state));
        if let Some(unfit) = self.unfit(key, state, None) {
            outcome.reach = unfit;
        }
        Some(Cow::Owned(outcome))
    }
}

/// What is derived from a route, with the faults that were reported.
pub(super) type RouteView<'s> = (Cow<'s, Vec<(ParentOutcome, PolicyReach)>>, Cow<'s, RouteRules>);

enum Refusal {
    None,
    Partial(Fault),
    Whole(Fault),
}

impl World {
    /// What the data plane reported in place of former faults. Only status depends on it.
    pub(super) fn reported(&mut self, report: DataPlaneReport) {
        let DataPlaneReport { is_whole, rules, gateways, listeners, upstreams } = report;
        if is_whole {
            let known: Vec<PlanId> = self.faults.rules.keys().cloned().collect();
            for id in &known {
                self.forget_rule(id);
            }
            let known: Vec<_> = self.faults.listeners.keys().cloned().collect();
            for gateway in &known {
                self.forget_listeners(gateway);
            }
        }
        for gateway in &gateways {
            self.forget_listeners(gateway);
        }
        for (id, fault) in rules {
            self.stale.statuses.insert(id.route.clone());
            self.stale.statuses.extend(fault.policy.iter().map(|at| at.clone().of(Kind::AccessPolicy)));
            self.faults.insert_rule(id, fault);
        }
        for fault in listeners {
            let gateway = fault.socket.gateway.clone();
            self.listeners_reported(&gateway);
            self.faults.listeners.entry(gateway).or_default().push(fault);
        }
        for (key, problem) in upstreams {
            self.users_reported(&key);
            self.faults.upstreams.insert(key, problem);
        }
    }

    /// Forgets the faults of what was derived anew: the next report says what is true of it.
    pub(super) fn forget_faults(&mut self, changes: &Changes) {
        let ids = changes.plans.keys().chain(&changes.plans_removed);
        ids.for_each(|id| self.forget_rule(id));
        changes.gateways_removed.iter().for_each(|gateway| self.forget_listeners(gateway));
        for key in changes.upstreams.keys().chain(&changes.upstreams_removed) {
            if self.faults.upstreams.remove(key).is_some() {
                self.users_reported(key);
            }
        }
    }

    fn forget_rule(&mut self, id: &PlanId) {
        for fault in self.faults.remove_rule(id) {
            self.stale.statuses.insert(id.route.clone());
            self.stale.statuses.extend(fault.policy.map(|at| at.of(Kind::AccessPolicy)));
        }
    }

    fn forget_listeners(&mut self, gateway: &NamespacedName) {
        if self.faults.listeners.remove(gateway).is_some() {
            self.listeners_reported(gateway);
        }
    }

    /// The status of the listeners of a Gateway is stale.
    fn listeners_reported(&mut self, gateway: &NamespacedName) {
        let key = gateway.clone().of(Kind::Gateway);
        let sets = self.edges.dependents(&key).filter(|one| one.kind == Kind::ListenerSet);
        self.stale.statuses.extend(sets.cloned());
        self.stale.statuses.insert(key);
    }

    /// The status of the routes to a Service is stale.
    fn users_reported(&mut self, key: &UpstreamKey) {
        let service = key.service.clone().of(Kind::Service);
        let users = self.edges.dependents(&service);
        let users = users.filter(|one| one.kind.is_route() || one.kind.is_ingress());
        self.stale.statuses.extend(users.cloned());
    }
}
