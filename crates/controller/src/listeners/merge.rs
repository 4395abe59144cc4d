//! Listeners of several objects on the same ports.
//!
//! Owns: which of them conflict, and which hostnames of TLS listeners overlap.
//! Does not own: whether a listener is valid by itself.
//! Flow: groups in the order of precedence → conflicts.

use std::collections::{HashMap, HashSet};

use super::ListenerState;
use crate::fault::Fault;
use crate::names::Name;
use crate::plan::SocketProtocol;

const HOSTNAME: &str = "HostnameConflict";
const PROTOCOL: &str = "ProtocolConflict";

/// Marks conflicting listeners. Within one object all that are indistinct conflict: no winner may be
/// picked (Gateway API, `GatewaySpec.listeners`). Between objects the earlier group wins (GEP-1713).
pub(super) fn resolve_conflicts(groups: &mut [Vec<ListenerState>]) {
    let mut protocols: HashMap<u16, SocketProtocol> = HashMap::new();
    let mut hostnames: HashSet<(u16, Option<Name>)> = HashSet::new();
    for group in groups {
        let mut seen: HashMap<u16, HashSet<SocketProtocol>> = HashMap::new();
        let mut counts: HashMap<(u16, Option<Name>), usize> = HashMap::new();
        for (listener, protocol) in served(group) {
            seen.entry(listener.port).or_default().insert(protocol);
            *counts.entry((listener.port, listener.hostname.clone())).or_default() += 1;
        }
        for listener in group.iter_mut() {
            let host = (listener.port, listener.hostname.clone());
            let earlier = protocols.get(&listener.port);
            let reason = match listener.protocol {
                // The port of an earlier object is taken, whatever the protocol.
                None if listener.is_tcp && earlier.is_some() => PROTOCOL,
                Some(protocol) if earlier.is_some_and(|earlier| *earlier != protocol) => PROTOCOL,
                Some(_) if seen[&listener.port].len() > 1 => PROTOCOL,
                Some(_) if hostnames.contains(&host) || counts[&host] > 1 => HOSTNAME,
                _ => continue,
            };
            listener.conflict = Some(reason);
            listener.fault = Some(Fault::new(reason, conflict_message(listener, reason)));
            listener.tls = None;
        }
        let distinct = served(group).filter(|(listener, _)| listener.conflict.is_none());
        for (listener, protocol) in distinct {
            protocols.insert(listener.port, protocol);
            hostnames.insert((listener.port, listener.hostname.clone()));
        }
    }
}

fn served(group: &[ListenerState]) -> impl Iterator<Item = (&ListenerState, SocketProtocol)> {
    group.iter().filter_map(|listener| Some((listener, listener.protocol?)))
}

fn conflict_message(listener: &ListenerState, reason: &str) -> String {
    let port = listener.port;
    if reason == PROTOCOL {
        return format!("another listener on port {port} has another protocol: use another port");
    }
    match &listener.hostname {
        Some(hostname) => format!("another listener on port {port} has the hostname {hostname}"),
        None => format!("another listener on port {port} has no hostname either: set one"),
    }
}

/// Marks TLS listeners on one port of which one hostname includes the other. Connections that were
/// opened for one of them may then be used for the other.
pub(super) fn mark_overlaps(groups: &mut [Vec<ListenerState>]) {
    let is_served = |listener: &ListenerState| {
        listener.fault.is_none() && listener.protocol == Some(SocketProtocol::Https)
    };
    let key = |listener: &ListenerState| (listener.port, listener.hostname.clone());
    let all: HashSet<_> = groups.iter().flatten().filter(|one| is_served(one)).map(key).collect();
    let mut marked = HashSet::new();
    for (port, hostname) in &all {
        for broader in broader(hostname.as_deref()) {
            let broader = (*port, broader);
            if all.contains(&broader) {
                marked.insert(broader);
                marked.insert((*port, hostname.clone()));
            }
        }
    }
    for listener in groups.iter_mut().flatten().filter(|one| is_served(one)) {
        listener.overlaps = marked.contains(&key(listener));
    }
}

/// Every hostname of a listener that includes `hostname`, but itself.
fn broader(hostname: Option<&str>) -> Vec<Option<Name>> {
    let Some(hostname) = hostname else { return Vec::new() };
    let mut rest = hostname.strip_prefix("*.").unwrap_or(hostname);
    let mut found = vec![None];
    while let Some((_, parent)) = rest.split_once('.') {
        found.push(Some(Name::from(format!("*.{parent}"))));
        rest = parent;
    }
    found
}
