//! Hosts that HTTPRoutes and GRPCRoutes claim on listeners.
//!
//! Owns: which of two routes of different kinds gets a host that both claim on one listener. The
//! standard accepts exactly one of them: the older, then the first by name (`GRPCRoute.hostnames`).
//! Does not own: which listeners a route may attach to ([`super`]).
//! Flow: `replace` notes the claims of a route; `older` says who has them.
//!
//! A route yields to an older claim even if that one had to yield itself. So the result depends on
//! the claims alone, not on the order of events.

use std::collections::{BTreeSet, HashMap};

use super::includes;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::Seconds;
use crate::plan::ListenerId;

/// A listener and the hosts claimed on it. `*` stands for all hosts.
pub type HostClaim = (ListenerId, Vec<Name>);

/// A route that claims a host. The oldest is the least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claimant {
    pub(super) created: Seconds,
    pub(super) at: NamespacedName,
    pub(super) kind: Kind,
}

impl Claimant {
    pub(super) fn key(&self) -> ObjectKey {
        self.at.clone().of(self.kind)
    }
}

pub(super) type ByHost = HashMap<Name, BTreeSet<Claimant>>;

/// The claims of all routes.
#[derive(Debug, Default)]
pub struct HostClaims {
    routes: HashMap<ObjectKey, (Seconds, Vec<HostClaim>)>,
    listeners: HashMap<ListenerId, HashMap<Kind, ByHost>>,
}

/// The kind of route that must not share a host with routes of `kind`.
fn other(kind: Kind) -> Kind {
    if kind == Kind::GrpcRoute { Kind::HttpRoute } else { Kind::GrpcRoute }
}

impl HostClaims {
    /// Replaces the claims of a route. Returns the routes of the other kind that claim one of the
    /// same hosts: what becomes of them may differ.
    pub fn replace(
        &mut self,
        route: &ObjectKey,
        created: Seconds,
        claims: Vec<HostClaim>,
    ) -> BTreeSet<ObjectKey> {
        let former = self.routes.remove(route);
        if former.as_ref().is_some_and(|former| *former == (created, claims.clone())) {
            self.routes.extend(former.map(|former| (route.clone(), former)));
            return BTreeSet::new();
        }
        let mut touched = BTreeSet::new();
        if let Some((created, claims)) = &former {
            touched.extend(self.sharing(route.kind, claims));
            self.remove(route, *created, claims);
        }
        if !claims.is_empty() {
            touched.extend(self.sharing(route.kind, &claims));
            for (listener, hosts) in &claims {
                let kinds = self.listeners.entry(listener.clone()).or_default();
                let by_host = kinds.entry(route.kind).or_default();
                for host in hosts {
                    let claimant = Claimant { created, at: route.at.clone(), kind: route.kind };
                    by_host.entry(host.clone()).or_default().insert(claimant);
                }
            }
            self.routes.insert(route.clone(), (created, claims));
        }
        touched
    }

    fn remove(&mut self, route: &ObjectKey, created: Seconds, claims: &[HostClaim]) {
        let claimant = Claimant { created, at: route.at.clone(), kind: route.kind };
        for (listener, hosts) in claims {
            let Some(kinds) = self.listeners.get_mut(listener) else { continue };
            if let Some(by_host) = kinds.get_mut(&route.kind) {
                for host in hosts {
                    if let Some(claimants) = by_host.get_mut(host) {
                        claimants.remove(&claimant);
                        if claimants.is_empty() {
                            by_host.remove(host);
                        }
                    }
                }
                if by_host.is_empty() {
                    kinds.remove(&route.kind);
                }
            }
            if kinds.is_empty() {
                self.listeners.remove(listener);
            }
        }
    }

    fn sharing(&self, kind: Kind, claims: &[HostClaim]) -> BTreeSet<ObjectKey> {
        let mut found = BTreeSet::new();
        for (listener, hosts) in claims {
            let by_host = self.listeners.get(listener).and_then(|kinds| kinds.get(&other(kind)));
            for claimants in by_host.into_iter().flat_map(|by_host| intersecting(by_host, hosts)) {
                found.extend(claimants.iter().map(Claimant::key));
            }
        }
        found
    }

    /// The oldest route of the other kind that claims a host of `route` on a listener before it.
    pub fn older(&self, route: &ObjectKey, listener: &ListenerId) -> Option<ObjectKey> {
        let (created, claims) = self.routes.get(route)?;
        let (_, hosts) = claims.iter().find(|(claimed, _)| claimed == listener)?;
        let by_host = self.listeners.get(listener)?.get(&other(route.kind))?;
        let own = Claimant { created: *created, at: route.at.clone(), kind: route.kind };
        let oldest = intersecting(by_host, hosts).filter_map(BTreeSet::first).min()?;
        (*oldest < own).then(|| oldest.key())
    }
}

/// The claimants of hosts that have names in common with `hosts`.
fn intersecting<'a>(by_host: &'a ByHost, hosts: &'a [Name]) -> impl Iterator<Item = &'a BTreeSet<Claimant>> {
    hosts.iter().flat_map(move |host| {
        let is_pattern = host.starts_with('*');
        // A pattern may include any of the hosts; an exact name is only in those above it.
        let below = by_host.iter().filter(move |(other, _)| is_pattern && covers(host, other));
        let above = above(host).into_iter().filter_map(move |other| by_host.get(&*other));
        below.map(|(_, claimants)| claimants).chain(above)
    })
}

/// Whether the pattern `broad` includes the host or pattern `narrow`, other than itself.
pub(super) fn covers(broad: &str, narrow: &str) -> bool {
    broad != narrow && (broad == "*" || includes(broad, narrow))
}

/// The host, and every pattern that includes it.
pub(super) fn above(host: &str) -> Vec<String> {
    let mut found = vec![host.to_owned()];
    if host == "*" {
        return found;
    }
    let mut rest = host.strip_prefix("*.").unwrap_or(host);
    while let Some((_, parent)) = rest.split_once('.') {
        found.push(format!("*.{parent}"));
        rest = parent;
    }
    found.push("*".to_owned());
    found
}
