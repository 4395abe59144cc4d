//! AccessPolicy: which policy applies to a rule on a listener.
//!
//! Owns: inheritance by GEP-713 (atomic defaults or overrides), conflicts between policies of one
//! target, validity.
//! Does not own: the schema of a policy's body, which [`Settings::policy_check`] knows; the response
//! to a request without a policy.
//! Flow: `targets from the Gateway to the rule → PolicyOutcome`.

use std::sync::Arc;

use crate::fault::Fault;
use crate::ingress::class::{self, Class};
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::reference::PolicyTarget;
use crate::objects::{AccessPolicy, Route, Seconds};
use crate::plan::{ListenerId, PolicyOutcome, PolicyPlan};
use crate::settings::Settings;

/// The kinds of objects that a policy may target.
pub const TARGETS: [Kind; 6] =
    [Kind::Gateway, Kind::ListenerSet, Kind::HttpRoute, Kind::GrpcRoute, Kind::Ingress, Kind::OpenShiftRoute];

/// The policy of a rule on a listener of `gateway`.
///
/// Targets are, from broad to specific: the Gateway, the listener of the Gateway, the ListenerSet,
/// the listener of the ListenerSet, the route, the rule; an Ingress or Route is in the place of a
/// route, and has no sections. Overrides of a broader target win over all
/// that is more specific; without overrides the defaults of the most specific target apply. If one of
/// the policies in this chain is not valid, none applies: it may have been the strictest.
pub fn resolve(
    known: &Known,
    gateway: &NamespacedName,
    listener: &ListenerId,
    route: (&ObjectKey, Option<&Name>),
) -> PolicyOutcome {
    let gateway = gateway.clone().of(Kind::Gateway);
    let is_own = listener.parent == gateway;
    let mut chain = [None, None, None, None, None, None];
    chain[0] = winner(known, &gateway, None);
    if is_own {
        chain[1] = winner(known, &gateway, Some(&listener.section));
    } else {
        chain[2] = winner(known, &listener.parent, None);
        chain[3] = winner(known, &listener.parent, Some(&listener.section));
    }
    chain[4] = winner(known, route.0, None);
    chain[5] = route.1.and_then(|rule| winner(known, route.0, Some(rule)));
    let mut default = None;
    let mut overriding = None;
    for policy in chain.into_iter().flatten() {
        if known.access_faults.contains_key(&policy.meta.at) {
            return PolicyOutcome::Invalid(policy.meta.at.clone());
        }
        let plan = |body: &Arc<_>| PolicyPlan {
            policy: policy.meta.at.clone(),
            generation: policy.meta.generation,
            body: Arc::clone(body),
        };
        if overriding.is_none() {
            overriding = policy.spec.overrides.as_ref().map(plan);
        }
        default = policy.spec.defaults.as_ref().map(plan).or(default);
    }
    overriding.or(default).map_or(PolicyOutcome::None, PolicyOutcome::Applied)
}

/// The policy that counts for a target: the oldest, then by name. An invalid one counts too, so
/// breaking a policy does not put a younger one in its place.
fn winner<'a>(known: &'a Known, target: &ObjectKey, section: Option<&Name>) -> Option<&'a AccessPolicy> {
    let policies = known.access_targets.get(target)?;
    let first = (section.cloned(), Seconds::MIN, NamespacedName::default());
    let (of_section, _, at) = policies.range(first..).next()?;
    known.access_policies.get(at).filter(|_| of_section.as_ref() == section).map(AsRef::as_ref)
}

/// Why a policy cannot be applied to anything.
pub fn fault(settings: &Settings, policy: &AccessPolicy) -> Option<Fault> {
    let invalid = |message: String| Some(Fault::new("Invalid", message));
    if let Some(problem) = &policy.not_understood {
        return invalid(format!("not used, because of {problem}"));
    }
    let body = match (&policy.spec.defaults, &policy.spec.overrides) {
        (Some(body), None) | (None, Some(body)) => body,
        (Some(_), Some(_)) => return invalid("defaults and overrides exclude each other: remove one".into()),
        (None, None) => return invalid("the policy has neither defaults nor overrides: set one".into()),
    };
    settings.policy_check.check(body).err().and_then(invalid)
}

/// Why a policy does not apply to one of its targets, although it is valid. `None` for a target that
/// is not ours as well: it has no status.
pub fn target_fault(
    known: &Known,
    settings: &Settings,
    policy: &AccessPolicy,
    target: &PolicyTarget,
) -> Option<Fault> {
    let not_found = |message: String| Some(Fault::new("TargetNotFound", message));
    let key = target.target(&policy.meta.at.namespace).filter(|key| TARGETS.contains(&key.kind));
    let Some(key) = key else {
        let message =
            format!("policies for {} are not supported: target a Gateway, ListenerSet or route", target.kind);
        return Some(Fault::new("Invalid", message));
    };
    match has_section(known, &key, target.section_name.as_ref()) {
        None => return not_found(format!("{key} does not exist")),
        Some(false) => {
            let section = target.section_name.as_ref().map(Name::as_str).unwrap_or_default();
            return not_found(format!("{key} has no section named {section}"));
        }
        Some(true) => {}
    }
    if let Some(fault) = known.access_faults.get(&policy.meta.at) {
        return Some(fault.clone());
    }
    let ingress = known.ingresses.get(&key.at).filter(|_| key.kind == Kind::Ingress);
    if ingress.is_some_and(|ingress| class::of_ingress(known, settings, ingress) == Class::Foreign) {
        let controller = &settings.controller_name;
        let message = format!(
            "{key} is not of a class of {controller}, so the policy does not protect it: set its \
             spec.ingressClassName"
        );
        return Some(Fault::new("Invalid", message));
    }
    let winner = winner(known, &key, target.section_name.as_ref())?;
    (winner.meta.at != policy.meta.at).then(|| {
        let message = format!("AccessPolicy {} has the same target and is older", winner.meta.at);
        Fault::new("Conflicted", message)
    })
}

/// Whether an object has a section, if it exists.
fn has_section(known: &Known, key: &ObjectKey, section: Option<&Name>) -> Option<bool> {
    match key.kind {
        Kind::Gateway => known.gateways.get(&key.at).map(|gateway| {
            section.is_none_or(|name| gateway.spec.listeners.iter().any(|one| one.name == *name))
        }),
        Kind::ListenerSet => known
            .listener_sets
            .get(&key.at)
            .map(|set| section.is_none_or(|name| set.spec.listeners.iter().any(|one| one.name == *name))),
        Kind::Ingress => known.ingresses.get(&key.at).map(|_| section.is_none()),
        Kind::OpenShiftRoute => known.openshift_routes.get(&key.at).map(|_| section.is_none()),
        _ => known
            .routes
            .get(key)
            .map(|route: &Arc<Route>| section.is_none_or(|name| route.spec.has_rule(name))),
    }
}
