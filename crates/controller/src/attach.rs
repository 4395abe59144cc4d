//! Attachment of routes to listeners.
//!
//! Owns: for each parent of a route, the listeners that take it and the hosts on which it is served
//! there, or the reason why none does; who has which host ([`HostTable`]).
//! Does not own: the rules of the route ([`crate::rules`]), the state of listeners
//! ([`crate::listeners`]).
//! Flow: `parentRefs → GatewayState → ParentOutcome → HostTable`.

mod hosts;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use self::hosts::{ANY_HOST, HostClaim, HostClaims, HostScope, HostTable};
use crate::fault::Fault;
use crate::known::Known;
use crate::listeners::{GatewayState, Offer, in_scope};
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::Route;
use crate::objects::gateway::FromNamespaces;
use crate::objects::reference::ParentReference;
use crate::plan::{ListenerId, SocketId};

/// What became of one parent reference.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentOutcome {
    /// As it is in the spec.
    pub reference: ParentReference,
    /// The Gateway that the parent is or belongs to.
    pub gateway: NamespacedName,
    /// Listeners that take the route. Not empty, unless there is a fault.
    pub listeners: Vec<Attached>,
    /// Why no listener takes the route.
    pub fault: Option<Fault>,
}

/// A listener that takes a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Attached {
    /// Which listener.
    pub listener: ListenerId,
    /// The port of the Gateway that it is on.
    pub socket: SocketId,
    /// Whether it is served.
    pub is_served: bool,
    /// See [`crate::plan::Attachment::hosts`].
    pub hosts: Option<Arc<[Name]>>,
    /// The hostname of the listener.
    hostname: Option<Name>,
}

/// The Gateways of a route's parents.
pub trait Gateways {
    /// The state of a Gateway that is ours.
    fn state(&self, gateway: &NamespacedName) -> Option<&GatewayState>;
}

/// The outcome of each parent that is ours. Parents that do not exist, or belong to another
/// controller, have none.
pub fn derive(known: &Known, gateways: &impl Gateways, kind: Kind, route: &Route) -> Vec<ParentOutcome> {
    let mut outcomes: Vec<ParentOutcome> = Vec::new();
    for reference in route.spec.parents() {
        let Some(parent) = reference.target(&route.meta.at.namespace) else { continue };
        let Some(gateway) = gateway_of(known, &parent) else { continue };
        let Some(state) = gateways.state(&gateway) else { continue };
        if outcomes.iter().any(|outcome| outcome.reference == *reference) {
            continue;
        }
        let result = listeners(known, state, kind, route, (reference, &parent, &gateway));
        let (listeners, fault) = match result {
            Ok(listeners) => (listeners, None),
            Err(fault) => (Vec::new(), Some(fault)),
        };
        outcomes.push(ParentOutcome { reference: reference.clone(), gateway, listeners, fault });
    }
    outcomes
}

/// The Gateway that a Gateway or ListenerSet belongs to.
pub fn gateway_of(known: &Known, parent: &ObjectKey) -> Option<NamespacedName> {
    match parent.kind {
        Kind::Gateway => Some(parent.at.clone()),
        Kind::ListenerSet => known.listener_sets.get(&parent.at).and_then(|set| Known::parent_of(set)),
        _ => None,
    }
}

fn listeners(
    known: &Known,
    state: &GatewayState,
    kind: Kind,
    route: &Route,
    (reference, parent, gateway): (&ParentReference, &ObjectKey, &NamespacedName),
) -> Result<Vec<Attached>, Fault> {
    let refused = state.sets.get(&parent.at).filter(|_| parent.kind == Kind::ListenerSet);
    if let (Some(Some(fault)), None) = (refused, state.offers.get(parent)) {
        let message = format!("{parent} is not accepted: {}", fault.message);
        return Err(Fault::new("NoMatchingParent", message));
    }
    let offers = state.offers.get(parent).map(AsRef::as_ref).unwrap_or_default();
    let selected: Vec<&Offer> = offers.iter().filter(|offer| is_selected(reference, offer)).collect();
    if selected.is_empty() {
        let message = format!("{parent} has no listener{}", selection(reference));
        return Err(Fault::new("NoMatchingParent", message));
    }
    let (home, from) = (&parent.at.namespace, &route.meta.at.namespace);
    let allowed = selected.into_iter().filter(|offer| {
        offer.is_accepted
            && offer.kinds.contains(&kind)
            && in_scope(known, offer.namespaces.as_ref(), FromNamespaces::Same, home, from)
    });
    let allowed: Vec<&Offer> = allowed.collect();
    if allowed.is_empty() {
        let message = format!(
            "no accepted listener of {parent}{} allows {} from namespace {from}",
            selection(reference),
            kind.name()
        );
        return Err(Fault::new("NotAllowedByListeners", message));
    }
    let hostnames = route.spec.hostnames();
    let attached: Vec<Attached> = allowed
        .into_iter()
        .filter_map(|offer| {
            Some(Attached {
                hosts: intersection(offer.hostname.as_ref(), hostnames)?,
                listener: ListenerId { parent: parent.clone(), section: offer.section.clone() },
                socket: SocketId { gateway: gateway.clone(), port: offer.port },
                is_served: offer.is_served,
                hostname: offer.hostname.clone(),
            })
        })
        .collect();
    if attached.is_empty() {
        let message = format!("no hostname of the route is one of a listener of {parent}");
        return Err(Fault::new("NoMatchingListenerHostname", message));
    }
    Ok(attached)
}

/// The hosts that a route claims on the listeners that take it, and those that it names itself on the
/// listeners of `gateway`, which serves Ingresses.
pub fn claims_of(gateway: Option<&NamespacedName>, outcomes: &[ParentOutcome]) -> HostClaims {
    let (mut hosts, mut own): (Vec<HostClaim>, BTreeSet<Name>) = Default::default();
    for attached in outcomes.iter().flat_map(|outcome| &outcome.listeners) {
        if is_own(gateway, attached) {
            own.extend(attached.hosts.iter().flat_map(|hosts| hosts.to_vec()));
        }
        let scope = HostScope::Listener(attached.listener.clone());
        if hosts.iter().any(|(claimed, _)| *claimed == scope) {
            continue;
        }
        let claimed = match (&attached.hosts, &attached.hostname) {
            (Some(hosts), _) => hosts.to_vec(),
            (None, Some(hostname)) => vec![hostname.clone()],
            (None, None) => vec![Name::from(ANY_HOST)],
        };
        hosts.push((scope, claimed));
    }
    if !own.is_empty() {
        hosts.push((HostScope::IngressGateway, own.into_iter().collect()));
    }
    HostClaims { hosts, path: None }
}

/// Takes from a route what others have that are older: the listeners on which a route of the other
/// kind has its hosts, and the hosts on listeners of `gateway`, which serves Ingresses, that belong to
/// an Ingress or Route of another namespace.
pub fn yield_to_older(
    table: &HostTable,
    gateway: Option<&NamespacedName>,
    route: &ObjectKey,
    outcomes: &mut [ParentOutcome],
) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.fault.is_none()) {
        let mut winner = None;
        outcome.listeners.retain_mut(|attached| {
            if let Some(older) = table.older(route, &attached.listener) {
                winner.get_or_insert(older);
                return false;
            }
            let Some(hosts) = attached.hosts.as_ref().filter(|_| is_own(gateway, attached)) else {
                return true;
            };
            let is_left = |host: &&Name| match table.owner(route, host) {
                None => true,
                Some(owner) => {
                    winner.get_or_insert(owner);
                    false
                }
            };
            let left: Vec<Name> = hosts.iter().filter(is_left).cloned().collect();
            if left.len() < hosts.len() {
                attached.hosts = Some(Arc::from(left));
            }
            attached.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty())
        });
        if let Some(older) = winner.filter(|_| outcome.listeners.is_empty()) {
            let message = format!("{older} is older and has the same hostnames: use other hostnames");
            outcome.fault = Some(Fault::new("HostnameConflict", message));
        }
    }
}

/// Whether a listener is one of the Gateway itself.
fn is_own(gateway: Option<&NamespacedName>, attached: &Attached) -> bool {
    let parent = &attached.listener.parent;
    parent.kind == Kind::Gateway && Some(&parent.at) == gateway
}

/// Patterns of listeners that include `host`, from the most specific to any host (`None`).
pub fn patterns_of(host: &str) -> impl Iterator<Item = Option<Name>> {
    hosts::above(host).into_iter().map(|pattern| (pattern != ANY_HOST).then(|| Name::from(pattern)))
}

fn is_selected(reference: &ParentReference, offer: &Offer) -> bool {
    reference.section_name.as_ref().is_none_or(|section| *section == offer.section)
        && reference.port.is_none_or(|port| port == offer.port)
}

fn selection(reference: &ParentReference) -> String {
    let name = reference.section_name.as_ref().map(|name| format!(" named {name}")).unwrap_or_default();
    let port = reference.port.map(|port| format!(" on port {port}")).unwrap_or_default();
    name + &port
}

/// The hosts that both a listener and a route have. `None` if there are none; `Some(None)` if all of
/// the listener's.
pub fn intersection(listener: Option<&Name>, route: &[Name]) -> Option<Option<Arc<[Name]>>> {
    if route.is_empty() {
        return Some(None);
    }
    let mut hosts: Vec<Name> = route
        .iter()
        .filter_map(|host| match listener {
            None => Some(host.clone()),
            Some(listener) if listener == host || includes(listener, host) => Some(host.clone()),
            Some(listener) => includes(host, listener).then(|| listener.clone()),
        })
        .collect();
    hosts.sort();
    hosts.dedup();
    (!hosts.is_empty()).then(|| Some(Arc::from(hosts)))
}

/// Whether the wildcard `broad` includes `narrow`. A wildcard stands for one label or more.
fn includes(broad: &str, narrow: &str) -> bool {
    let Some(suffix) = broad.strip_prefix('*').filter(|suffix| suffix.starts_with('.')) else {
        return false;
    };
    narrow.len() > suffix.len() && narrow.ends_with(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_both() {
        type Case = (Option<&'static str>, &'static [&'static str], Option<&'static [&'static str]>);
        let cases: [Case; 11] = [
            (None, &["a.com"], Some(&["a.com"])),
            (Some("a.com"), &["a.com", "b.com"], Some(&["a.com"])),
            (Some("a.com"), &["b.com"], None),
            (Some("*.a.com"), &["x.a.com", "a.com"], Some(&["x.a.com"])),
            (Some("*.a.com"), &["x.y.a.com"], Some(&["x.y.a.com"])),
            (Some("*.a.com"), &["a.com"], None),
            (Some("*.a.com"), &["xa.com"], None),
            (Some("x.a.com"), &["*.a.com"], Some(&["x.a.com"])),
            (Some("*.a.com"), &["*.x.a.com"], Some(&["*.x.a.com"])),
            (Some("*.x.a.com"), &["*.a.com"], Some(&["*.x.a.com"])),
            (Some("*.a.com"), &["*.a.com", "*.b.com"], Some(&["*.a.com"])),
        ];
        for (listener, route, expected) in cases {
            let names = |names: &[&str]| names.iter().map(|name| Name::from(*name)).collect::<Vec<_>>();
            let found = intersection(listener.map(Name::from).as_ref(), &names(route));
            let expected = expected.map(|hosts| Some(Arc::from(names(hosts))));
            assert_eq!(found, expected, "{listener:?} and {route:?}");
        }
        assert_eq!(intersection(Some(&Name::from("a.com")), &[]), Some(None));
    }
}
