//! Status of GatewayClasses, Gateways and ListenerSets.
//!
//! Owns: their conditions, listeners and addresses.
//! Does not own: why something is not accepted ([`crate::listeners`]).
//! Flow: [`GatewayState`] → status.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Condition, conditions, document, with};
use crate::fault::Fault;
use crate::known::{GatewayAddresses, Known, is_ip};
use crate::listeners::{GatewayState, ListenerState, class_fault};
use crate::names::{Kind, NamespacedName, ObjectKey};
use crate::objects::{Gateway, GatewayClass, ListenerSet, Seconds};
use crate::plan::{ListenerFault, ListenerId, StatusDocument};
use crate::settings::{GATEWAY_API_VERSION, Settings};

/// How many routes are attached to each listener.
pub type ListenerCounts = HashMap<ListenerId, u32>;

/// What is known of the listeners of a Gateway besides their state.
pub type ListenerFacts<'w> = (&'w ListenerCounts, ListenerFaults<'w>);

/// Why listeners of a Gateway are not served, although their state says so.
#[derive(Clone, Copy, Debug)]
pub struct ListenerFaults<'w>(pub &'w [ListenerFault]);

impl<'w> ListenerFaults<'w> {
    fn of(self, listener: &ListenerState) -> Option<&'w ListenerFault> {
        self.0.iter().find(|fault| match &fault.listener {
            Some(id) => *id == listener.id,
            None => fault.socket.port == listener.port,
        })
    }

    fn is_programmed(self, listener: &ListenerState) -> bool {
        listener.is_programmed() && self.of(listener).is_none()
    }
}

/// The status of a GatewayClass of ours.
pub fn class(
    known: &Known,
    settings: &Settings,
    class: &GatewayClass,
    now: Seconds,
) -> Option<StatusDocument> {
    let seen = class.seen_status();
    let list =
        [Condition::of("Accepted", "Accepted", class_fault(known, class).as_ref()), supported_version(known)];
    let features = settings.supported_features.iter().map(|name| json!({ "name": name }));
    let status = json!({
        "conditions": conditions(&seen["conditions"], class.meta.generation, &list, now),
        "supportedFeatures": features.collect::<Value>(),
    });
    document(Kind::GatewayClass, &class.meta, &seen, &status)
}

/// Whether the definitions in the cluster are of the minor version that is read here. Newer patch
/// versions have the same fields.
fn supported_version(known: &Known) -> Condition {
    let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
    let (status, reason, message) = match &known.bundle_version {
        Some(version) if minor(version) == minor(GATEWAY_API_VERSION) => {
            (true, "SupportedVersion", String::new())
        }
        Some(version) => {
            let message = format!("the definitions are of Gateway API {version}: use {GATEWAY_API_VERSION}");
            (false, "UnsupportedVersion", message)
        }
        None => {
            let message = format!("the definitions name no version: use those of {GATEWAY_API_VERSION}");
            (false, "UnsupportedVersion", message)
        }
    };
    Condition::new("SupportedVersion", status, reason, message)
}

/// The status of a Gateway of ours.
pub fn gateway(
    known: &Known,
    gateway: &Gateway,
    state: &GatewayState,
    facts: ListenerFacts<'_>,
    now: Seconds,
) -> Option<StatusDocument> {
    let seen = gateway.seen_status();
    let none = GatewayAddresses::default();
    let addresses = known.addresses.get(&gateway.meta.at).unwrap_or(&none);
    let programmed = gateway_programmed(gateway, (state, facts.1), addresses);
    let mut list = vec![
        gateway_accepted(gateway, state),
        Condition::of("Programmed", "Programmed", programmed.as_ref()),
        gateway_resolved(gateway, state),
    ];
    if state.is_insecure {
        let message = "a listener serves clients without a valid certificate too";
        list.push(Condition::new("InsecureFrontendValidationMode", true, "ConfigurationChanged", message));
    }
    let parent = gateway.meta.at.clone().of(Kind::Gateway);
    let accepted_sets = state.sets.values().filter(|fault| fault.is_none()).count();
    let assigned = addresses.assigned.iter().map(|value| {
        let of_type = if is_ip(value) { "IPAddress" } else { "Hostname" };
        json!({ "type": of_type, "value": value })
    });
    let status = json!({
        "conditions": conditions(&seen["conditions"], gateway.meta.generation, &list, now),
        "listeners": listeners(&seen, gateway.meta.generation, &parent, (state, facts), now),
        "addresses": assigned.collect::<Value>(),
        "attachedListenerSets": accepted_sets,
    });
    document(Kind::Gateway, &gateway.meta, &seen, &status)
}

/// The listeners of the Gateway itself. Those of ListenerSets have a status there.
fn own_listeners<'a>(gateway: &Gateway, state: &'a GatewayState) -> impl Iterator<Item = &'a ListenerState> {
    state.listeners_of(&gateway.meta.at.clone().of(Kind::Gateway)).iter()
}

/// Accepted with at least one valid listener; the reason says if own ones are not.
fn gateway_accepted(gateway: &Gateway, state: &GatewayState) -> Condition {
    if let Some(fault) = &state.fault {
        return Condition::new("Accepted", false, fault.reason, fault.message.clone());
    }
    let any = state.listeners.iter().any(|listener| listener.fault.is_none());
    let invalid = own_listeners(gateway, state).filter(|listener| listener.fault.is_some());
    let names: Vec<&str> = invalid.map(|listener| listener.id.section.as_str()).collect();
    if names.is_empty() && any {
        return Condition::new("Accepted", true, "Accepted", "");
    }
    let message = match names.len() {
        0 => "no listener of the Gateway or its ListenerSets is valid".to_owned(),
        1 => format!("listener {} is not valid", names[0]),
        _ => format!("listeners {} are not valid", names.join(", ")),
    };
    Condition::new("Accepted", any, "ListenersNotValid", message)
}

fn gateway_programmed(
    gateway: &Gateway,
    (state, faults): (&GatewayState, ListenerFaults<'_>),
    addresses: &GatewayAddresses,
) -> Option<Fault> {
    if state.fault.is_some() || !state.listeners.iter().any(|one| faults.is_programmed(one)) {
        return Some(Fault::new("Invalid", "no listener of the Gateway is served"));
    }
    let requested = gateway.spec.addresses.iter().map(|address| &address.value);
    let unusable: Vec<_> = requested.filter(|value| addresses.unusable.contains(value)).cloned().collect();
    if !unusable.is_empty() {
        let what = if unusable.len() == 1 { "address" } else { "addresses" };
        let message = format!("{what} {} cannot be used", unusable.join(", "));
        return Some(Fault::new("AddressNotUsable", message));
    }
    match (&addresses.problem, addresses.assigned.is_empty()) {
        (Some(problem), true) => Some(Fault::new("AddressNotAssigned", problem.clone())),
        (Some(problem), false) => Some(Fault::new("NoResources", problem.clone())),
        (None, true) => Some(Fault::new("AddressNotAssigned", "no address is assigned to the Gateway yet")),
        (None, false) => None,
    }
}

fn gateway_resolved(gateway: &Gateway, state: &GatewayState) -> Condition {
    if state.unresolved.is_some() {
        return Condition::of("ResolvedRefs", "ResolvedRefs", state.unresolved.as_ref());
    }
    let unresolved = own_listeners(gateway, state).filter(|listener| listener.unresolved.is_some());
    let names: Vec<&str> = unresolved.map(|listener| listener.id.section.as_str()).collect();
    let fault = (!names.is_empty()).then(|| {
        let what = if names.len() == 1 { "listener" } else { "listeners" };
        let message = format!("references of {what} {} are not resolved", names.join(", "));
        Fault::new("ListenersNotResolved", message)
    });
    Condition::of("ResolvedRefs", "ResolvedRefs", fault.as_ref())
}

/// The status of a ListenerSet whose Gateway is ours.
pub fn listener_set(
    set: &ListenerSet,
    state: &GatewayState,
    facts: ListenerFacts<'_>,
    now: Seconds,
) -> Option<StatusDocument> {
    let seen = set.seen_status();
    let fault = state.sets.get(&set.meta.at)?;
    let parent = set.meta.at.clone().of(Kind::ListenerSet);
    let mut own = state.listeners_of(&parent).iter();
    let mut accepted = Condition::of("Accepted", "Accepted", fault.as_ref());
    if fault.is_none() && own.any(|listener| listener.fault.is_some()) {
        accepted.reason = "ListenersNotValid";
        "some listeners are not valid".clone_into(&mut accepted.message);
    }
    let list = [accepted, Condition::of("Programmed", "Programmed", fault.as_ref())];
    let status = json!({
        "conditions": conditions(&seen["conditions"], set.meta.generation, &list, now),
        "listeners": listeners(&seen, set.meta.generation, &parent, (state, facts), now),
    });
    document(Kind::ListenerSet, &set.meta, &seen, &status)
}

/// The status of the listeners of one object.
fn listeners(
    seen: &Value,
    generation: i64,
    parent: &ObjectKey,
    (state, (counts, faults)): (&GatewayState, ListenerFacts<'_>),
    now: Seconds,
) -> Value {
    let one = |listener: &ListenerState| {
        let former = with(&seen["listeners"], "name", &listener.id.section);
        let former = former.map_or(&Value::Null, |former| &former["conditions"]);
        let kinds = listener.kinds.iter().map(|kind| json!({ "group": kind.group(), "kind": kind.name() }));
        json!({
            "name": listener.id.section,
            "supportedKinds": kinds.collect::<Value>(),
            "attachedRoutes": counts.get(&listener.id).copied().unwrap_or_default(),
            "conditions": conditions(former, generation, &listener_conditions((state, faults), listener), now),
        })
    };
    state.listeners_of(parent).iter().map(one).collect()
}

fn listener_conditions(
    (state, faults): (&GatewayState, ListenerFaults<'_>),
    listener: &ListenerState,
) -> Vec<Condition> {
    let programmed = match (&state.fault, &listener.conflict) {
        (Some(_), _) => Some(Fault::new("Invalid", "the Gateway is not accepted")),
        (None, Some(conflict)) => {
            let message = listener.fault.as_ref().map(|fault| fault.message.clone());
            Some(Fault::new(conflict, message.unwrap_or_default()))
        }
        (None, None) if listener.is_programmed() => {
            faults.of(listener).map(|fault| Fault::new("Invalid", fault.problem.clone()))
        }
        (None, None) => {
            let reason = listener.fault.as_ref().or(listener.unresolved.as_ref());
            let message = reason.map(|fault| fault.message.clone());
            Some(Fault::new("Invalid", message.unwrap_or_default()))
        }
    };
    let conflicted = match listener.conflict {
        None => Condition::new("Conflicted", false, "NoConflicts", ""),
        Some(reason) => {
            let message = listener.fault.as_ref().map(|fault| fault.message.clone());
            Condition::new("Conflicted", true, reason, message.unwrap_or_default())
        }
    };
    let mut list = vec![
        Condition::of("Accepted", "Accepted", listener.fault.as_ref()),
        Condition::of("Programmed", "Programmed", programmed.as_ref()),
        Condition::of("ResolvedRefs", "ResolvedRefs", listener.unresolved.as_ref()),
        conflicted,
    ];
    if listener.overlaps {
        let message = "the hostname of another TLS listener on the port includes this one or is included: \
                       a request for its hosts over a connection that was opened for this one gets 421";
        list.push(Condition::new("OverlappingTLSConfig", true, "OverlappingHostnames", message));
    }
    list
}

/// Objects whose status is derived from a Gateway: itself, and its ListenerSets.
pub fn depends_on_gateway(at: &NamespacedName, state: &GatewayState) -> Vec<ObjectKey> {
    let sets = state.sets.keys().map(|set| set.clone().of(Kind::ListenerSet));
    std::iter::once(at.clone().of(Kind::Gateway)).chain(sets).collect()
}
