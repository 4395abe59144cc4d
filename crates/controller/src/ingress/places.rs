//! Listeners that serve Ingresses and Routes.
//!
//! Owns: which listeners of the Gateway take a host from a namespace.
//! Does not own: whose the host is ([`crate::attach`]).
//! Flow: host + namespace + [`GatewayState`] → [`Place`]s.

use std::sync::Arc;

use crate::attach::{intersection, patterns_of};
use crate::fault::Fault;
use crate::known::Known;
use crate::listeners::{GatewayState, Offer, in_scope};
use crate::names::{Kind, Name, NamespacedName};
use crate::objects::gateway::FromNamespaces;
use crate::plan::{ListenerId, SocketId, SocketProtocol};

/// A listener that serves a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Which listener.
    pub listener: ListenerId,
    /// The port that it is on.
    pub socket: SocketId,
    /// Whether it is served.
    pub is_served: bool,
    /// The protocol of the port.
    pub protocol: SocketProtocol,
    /// See [`crate::plan::Attachment::hosts`].
    pub hosts: Option<Arc<[Name]>>,
    /// Whether a certificate for the host can be presented: the listener includes it, and has another
    /// hostname itself.
    pub takes_certificate: bool,
}

/// The listeners of the Gateway itself. Those of ListenerSets belong to other teams.
fn offers<'a>(gateway: &NamespacedName, state: &'a GatewayState) -> &'a [Offer] {
    state.offers.get(&gateway.clone().of(Kind::Gateway)).map(AsRef::as_ref).unwrap_or_default()
}

fn takes(known: &Known, gateway: &NamespacedName, offer: &Offer, namespace: &Name) -> bool {
    let scope = offer.namespaces.as_ref();
    offer.is_accepted
        && offer.takes_ingresses
        && in_scope(known, scope, FromNamespaces::Same, &gateway.namespace, namespace)
}

/// Whether a listener of the Gateway takes objects of a namespace.
pub fn allows(known: &Known, (gateway, state): (&NamespacedName, &GatewayState), namespace: &Name) -> bool {
    offers(gateway, state).iter().any(|offer| takes(known, gateway, offer, namespace))
}

/// The listeners of the Gateway that serve a host for objects of a namespace, or the reason why none
/// does. On each port the listener with the most specific hostname has the requests for a host.
pub fn places(
    known: &Known,
    (gateway, state): (&NamespacedName, &GatewayState),
    namespace: &Name,
    host: Option<&Name>,
) -> Result<Vec<Place>, Fault> {
    if let Some(fault) = &state.fault {
        let message = format!("Gateway {gateway} is not accepted: {}", fault.message);
        return Err(Fault::new("GatewayNotAccepted", message));
    }
    let offers = offers(gateway, state);
    let taking = || offers.iter().filter(|offer| takes(known, gateway, offer, namespace));
    if taking().next().is_none() {
        let message = format!(
            "no listener of Gateway {gateway} takes Ingresses and Routes of namespace {namespace}: allow the \
             namespace in allowedRoutes.namespaces, and leave allowedRoutes.kinds empty"
        );
        return Err(Fault::new("NotAllowedByListeners", message));
    }
    let requested: Vec<Name> = host.iter().map(|host| (*host).clone()).collect();
    let mut found = Vec::new();
    let mut taken = None;
    for offer in taking() {
        let Some(hosts) = intersection(offer.hostname.as_ref(), &requested) else { continue };
        let Some(protocol) = offer.protocol else { continue };
        let is_around = host.is_some_and(|host| patterns_of(host).any(|one| one == offer.hostname));
        if let Some(host) = host.filter(|_| is_around) {
            match most_specific(state, offers, offer.port, host) {
                MostSpecific::OfSet(set) => {
                    taken.get_or_insert(set);
                    continue;
                }
                MostSpecific::Own(hostname) if hostname == offer.hostname => {}
                MostSpecific::Own(_) => continue,
            }
        }
        let parent = gateway.clone().of(Kind::Gateway);
        found.push(Place {
            listener: ListenerId { parent, section: offer.section.clone() },
            socket: SocketId { gateway: gateway.clone(), port: offer.port },
            is_served: offer.is_served,
            protocol,
            hosts,
            takes_certificate: is_around && offer.hostname.as_ref() != host,
        });
    }
    if let (Some(set), Some(host)) = (taken, host) {
        let message = format!("host {host} belongs to a listener of ListenerSet {set}: use another host");
        return Err(Fault::new("HostAlreadyClaimed", message));
    }
    if found.is_empty() {
        let host = host.map(Name::as_str).unwrap_or_default();
        let message = format!(
            "no listener of Gateway {gateway} for namespace {namespace} has a hostname that includes {host}"
        );
        return Err(Fault::new("NoMatchingListenerHostname", message));
    }
    Ok(found)
}

/// The listener that has the requests for a host on a port.
enum MostSpecific {
    Own(Option<Name>),
    OfSet(NamespacedName),
}

fn most_specific(state: &GatewayState, offers: &[Offer], port: u16, host: &str) -> MostSpecific {
    for pattern in patterns_of(host) {
        if offers.iter().any(|offer| offer.is_accepted && offer.port == port && offer.hostname == pattern) {
            return MostSpecific::Own(pattern);
        }
        if let Some(set) = state.set_hostnames.get(&(port, pattern)) {
            return MostSpecific::OfSet(set.clone());
        }
    }
    MostSpecific::Own(None)
}
