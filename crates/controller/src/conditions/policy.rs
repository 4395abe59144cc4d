//! Status of BackendTLSPolicies and AccessPolicies.
//!
//! Owns: the conditions for each ancestor. The ancestors of a BackendTLSPolicy are the Gateways whose
//! routes use its Services. The ancestor of an AccessPolicy is its target.
//! Does not own: whether a policy is valid ([`crate::backends`], [`crate::policies`]).
//! Flow: policy → verdict → status.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::{Condition, Entry, entries};
use crate::backends::{conflicts_with, evaluate};
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, NamespacedName};
use crate::objects::{AccessPolicy, BackendTlsPolicy, Seconds};
use crate::plan::StatusDocument;
use crate::policies;
use crate::settings::Settings;

/// The Gateways whose routes use a Service, with the number of such routes.
pub type ServiceGateways = HashMap<NamespacedName, Vec<(NamespacedName, u32)>>;

/// The status of a BackendTLSPolicy.
pub fn backend_tls_policy(
    known: &Known,
    settings: &Settings,
    policy: &BackendTlsPolicy,
    gateways: &ServiceGateways,
    now: Seconds,
) -> Option<StatusDocument> {
    let verdict = evaluate(known, policy);
    let namespace = &policy.meta.at.namespace;
    let mut conflicts: BTreeMap<NamespacedName, Option<Fault>> = BTreeMap::new();
    for target in &policy.spec.target_refs {
        let Some(key) = target.target(namespace).filter(|key| key.kind == Kind::Service) else { continue };
        let conflict = conflicts_with(known, policy, target).map(|older| {
            let message = format!("BackendTLSPolicy {} has the same target and is older", older.meta.at);
            Fault::new("Conflicted", message)
        });
        for (gateway, _) in gateways.get(&key.at).into_iter().flatten() {
            let entry = conflicts.entry(gateway.clone()).or_default();
            *entry = entry.take().or(conflict.clone());
        }
    }
    let list = conflicts.into_iter().map(|(gateway, conflict)| Entry {
        reference: json!({
            "group": Kind::Gateway.group(),
            "kind": Kind::Gateway.name(),
            "namespace": gateway.namespace,
            "name": gateway.name,
        }),
        conditions: vec![
            Condition::of("Accepted", "Accepted", conflict.as_ref().or(verdict.fault.as_ref())),
            Condition::of("ResolvedRefs", "ResolvedRefs", verdict.unresolved.as_ref()),
        ],
    });
    let list = list.collect();
    let seen = policy.seen_status();
    let object = (Kind::BackendTlsPolicy, &policy.meta, &seen);
    entries(object, ("ancestors", "ancestorRef"), &settings.controller_name, list, now)
}

/// The status of an AccessPolicy. `partial` says which rules a valid policy does not fit. Targets that
/// exist and belong to other controllers have no entry.
pub fn access_policy(
    (known, settings): (&Known, &Settings),
    policy: &AccessPolicy,
    partial: Option<&Fault>,
    now: Seconds,
) -> Option<StatusDocument> {
    let targets: BTreeSet<_> = policy.spec.target_refs.iter().collect();
    let ours = targets.into_iter().filter(|target| {
        let key = target.target(&policy.meta.at.namespace);
        let gateway = match key {
            Some(key) if key.kind == Kind::Gateway => Some(key.at),
            Some(key) if key.kind == Kind::ListenerSet => {
                known.listener_sets.get(&key.at).and_then(|set| Known::parent_of(set))
            }
            _ => None,
        };
        let gateway = gateway.and_then(|at| known.gateways.get(&at));
        gateway.is_none_or(|gateway| known.is_ours(gateway, &settings.controller_name))
    });
    let list = ours.map(|target| {
        let fault = policies::target_fault(known, settings, policy, target);
        let mut reference = json!({ "group": target.group, "kind": target.kind, "name": target.name });
        reference["namespace"] = json!(policy.meta.at.namespace);
        if let Some(section) = &target.section_name {
            reference["sectionName"] = Value::from(section.as_str());
        }
        let mut conditions = vec![Condition::of("Accepted", "Accepted", fault.as_ref())];
        if let (None, Some(Fault { reason, message })) = (&fault, partial) {
            conditions.push(Condition::new("PartiallyInvalid", true, reason, message.clone()));
        }
        Entry { reference, conditions }
    });
    let list = list.collect();
    let seen = policy.seen_status();
    let object = (Kind::AccessPolicy, &policy.meta, &seen);
    entries(object, ("ancestors", "ancestorRef"), &settings.controller_name, list, now)
}
