//! What is derived from one route.
//!
//! Owns: joining attachment, rules and policies into plans.
//! Does not own: comparing them with the former ones ([`super::settle`]).
//! Flow: `attach + rules + policies → RouteState`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::certificates::Certificate;
use crate::attach::{self, Gateways, HostClaims, HostTable, ParentOutcome};
use crate::conditions::{IngressOutcome, PolicyReach};
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::{Route, Seconds};
use crate::plan::{
    Attachment, BackendTarget, FilterPlan, ListenerId, PlanId, PolicyOutcome, RoutePlan, RuleAction,
    UpstreamKey,
};
use crate::policies;
use crate::rules::{self, RouteRules, RulePlan};
use crate::settings::Settings;

/// A route with at least one parent of ours, or an Ingress or Route of OpenShift that is ours.
#[derive(Debug, Default)]
pub(super) struct RouteState {
    pub(super) outcomes: Vec<(ParentOutcome, PolicyReach)>,
    /// The faults of the rules. The rules themselves are in the plans.
    pub(super) rules: RouteRules,
    pub(super) plans: Vec<Arc<RoutePlan>>,
    /// Sorted, each once.
    pub(super) upstreams: Vec<UpstreamKey>,
    /// Listeners that take the route. Sorted, each once.
    pub(super) listeners: Vec<ListenerId>,
    /// Gateways of these listeners, with the Services that the route names. Sorted.
    pub(super) uses: Vec<(NamespacedName, NamespacedName)>,
    /// When the object was created.
    pub(super) created: Seconds,
    /// Of an Ingress or Route of OpenShift alone.
    pub(super) ingress: Option<IngressOutcome>,
    pub(super) certificates: Vec<Certificate>,
}

impl RouteState {
    /// Whether the object is one of ours.
    pub(super) fn is_ours(&self) -> bool {
        self.ingress.is_some() || !self.outcomes.is_empty()
    }

    /// What the status of the object has no room for.
    pub(super) fn unsaid(&self, kind: Kind) -> Vec<Fault> {
        self.ingress.as_ref().map(|outcome| outcome.unsaid(kind)).unwrap_or_default()
    }
}

/// What is derived from a route before it is compared with routes of the other kind.
pub(super) struct RouteCandidate {
    outcomes: Vec<ParentOutcome>,
    rules: RouteRules,
}

impl RouteCandidate {
    /// `None` if no parent is ours.
    pub(super) fn derive(
        known: &Known,
        settings: &Settings,
        gateways: &impl Gateways,
        (key, route): (&ObjectKey, &Route),
    ) -> Option<Self> {
        let outcomes = attach::derive(known, gateways, key.kind, route);
        if outcomes.is_empty() {
            return None;
        }
        Some(Self { outcomes, rules: rules::derive(known, settings, key.kind, route) })
    }

    /// A route that takes no requests claims nothing.
    pub(super) fn claims(&self, settings: &Settings) -> HostClaims {
        if self.rules.rules.is_empty() {
            return HostClaims::default();
        }
        attach::claims_of(settings.ingress_gateway.as_ref(), &self.outcomes)
    }
}

/// Derives the state of a route, when the claims of all routes are known.
pub(super) fn derive(
    (known, settings, gateways): (&Known, &Settings, &impl Gateways),
    hosts: &HostTable,
    (key, route): (&ObjectKey, &Route),
    candidate: RouteCandidate,
) -> RouteState {
    let RouteCandidate { mut outcomes, mut rules } = candidate;
    attach::yield_to_older(hosts, settings.ingress_gateway.as_ref(), key, &mut outcomes);
    let is_refused = rules.refused.is_some();
    let rule_plans = std::mem::take(&mut rules.rules);
    let attachments = Attachments::derive((known, gateways), key, &outcomes, &rule_plans);
    // Rules that fail keep their requests, even if the route is refused.
    let plans = plans(key, route, rule_plans, &attachments);
    let outcomes: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| {
            let served = !is_refused && outcome.fault.is_none();
            let reach = if served { attachments.reach(&outcome) } else { PolicyReach::NotServed };
            (outcome, reach)
        })
        .collect();
    let taken = outcomes.iter().filter(|_| !is_refused).flat_map(|(outcome, _)| {
        outcome.listeners.iter().map(|one| (one.listener.clone(), one.socket.gateway.clone()))
    });
    let (listeners, gateways): (BTreeSet<_>, BTreeSet<_>) = taken.unzip();
    let services = route.spec.services(&route.meta.at.namespace);
    let uses =
        gateways.iter().flat_map(|gateway| services.iter().map(|service| (service.clone(), gateway.clone())));
    RouteState {
        uses: uses.collect::<BTreeSet<_>>().into_iter().collect(),
        upstreams: upstreams(&plans).into_iter().collect(),
        listeners: listeners.into_iter().collect(),
        outcomes,
        rules,
        plans,
        ..RouteState::default()
    }
}

/// The attachments of all rules: those of rules with the same name are shared.
struct Attachments(Vec<(Option<Name>, Arc<[Attachment]>)>);

impl Attachments {
    fn derive(
        (known, gateways): (&Known, &impl Gateways),
        key: &ObjectKey,
        outcomes: &[ParentOutcome],
        rules: &[RulePlan],
    ) -> Self {
        let mut found: Vec<(Option<Name>, Arc<[Attachment]>)> = Vec::new();
        for rule in rules {
            if found.iter().any(|(name, _)| *name == rule.name) {
                continue;
            }
            let mut list: Vec<Attachment> = Vec::new();
            for attached in outcomes.iter().flat_map(|outcome| &outcome.listeners) {
                if list.iter().any(|one| one.listener == attached.listener) {
                    continue;
                }
                let target = (key, rule.name.as_ref());
                let gateway = &attached.socket.gateway;
                let policy = policies::resolve(known, gateway, &attached.listener, target);
                let state = gateways.state(gateway);
                list.push(Attachment {
                    listener: attached.listener.clone(),
                    socket: attached.socket.clone(),
                    is_served: attached.is_served,
                    hosts: attached.hosts.clone(),
                    policy,
                    client_certificate: state.map(|one| one.client_certificate.clone()).unwrap_or_default(),
                });
            }
            found.push((rule.name.clone(), Arc::from(list)));
        }
        Self(found)
    }

    fn of_rule(&self, name: Option<&Name>) -> Arc<[Attachment]> {
        let found = self.0.iter().find(|(own, _)| own.as_ref() == name);
        found.map(|(_, list)| list.clone()).unwrap_or_default()
    }

    /// Whether policies apply to all rules on the listeners of one parent.
    fn reach(&self, outcome: &ParentOutcome) -> PolicyReach {
        let listeners: BTreeSet<_> = outcome.listeners.iter().map(|one| &one.listener).collect();
        let attachments = self.0.iter().flat_map(|(_, list)| list.iter());
        let mut reach = PolicyReach::All;
        for attachment in attachments.filter(|one| listeners.contains(&one.listener)) {
            match &attachment.policy {
                PolicyOutcome::Invalid(policy) => return PolicyReach::Invalid(policy.clone()),
                PolicyOutcome::None => reach = PolicyReach::Missing,
                PolicyOutcome::Applied(_) | PolicyOutcome::Exempt => {}
            }
        }
        reach
    }
}

fn plans(
    key: &ObjectKey,
    route: &Route,
    rules: Vec<RulePlan>,
    attachments: &Attachments,
) -> Vec<Arc<RoutePlan>> {
    let mut plans = Vec::new();
    for (number, rule) in (0_u16..).zip(rules) {
        let attachments = attachments.of_rule(rule.name.as_ref());
        if attachments.is_empty() {
            continue;
        }
        for (matched, matches) in (0_u16..).zip(rule.matches) {
            plans.push(Arc::new(RoutePlan {
                id: PlanId { route: key.clone(), rule: number, matched },
                rule_name: rule.name.clone(),
                created: route.meta.created,
                labels: route.meta.labels.clone(),
                attachments: attachments.clone(),
                matches,
                action: rule.action.clone(),
                filters: rule.filters.clone(),
                request_timeout: rule.request_timeout,
                backend_timeout: rule.backend_timeout,
                retry: rule.retry.clone(),
            }));
        }
    }
    plans
}

/// Every upstream that a plan refers to, as the Gateways of its listeners reach it.
pub(super) fn upstreams(plans: &[Arc<RoutePlan>]) -> BTreeSet<UpstreamKey> {
    let mut found = BTreeSet::new();
    let mut add = |target: &BackendTarget, plan: &RoutePlan| {
        let BackendTarget::Upstream(key) = target else { return };
        for attachment in &*plan.attachments {
            found.extend(key.shown(&attachment.client_certificate).map(Cow::into_owned));
        }
    };
    let of_filters = |filters: &[FilterPlan], add: &mut dyn FnMut(&BackendTarget)| {
        for filter in filters {
            match filter {
                FilterPlan::Mirror(mirror) => add(&mirror.target),
                FilterPlan::ExternalAuth(auth) => add(&auth.target),
                _ => {}
            }
        }
    };
    for plan in plans {
        let mut add = |target: &BackendTarget| add(target, plan);
        of_filters(&plan.filters, &mut add);
        if let RuleAction::Forward(backends) = &plan.action {
            for backend in backends.iter() {
                add(&backend.target);
                of_filters(&backend.filters, &mut add);
            }
        }
    }
    found
}
