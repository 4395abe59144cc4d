//! Hosts that HTTPRoutes and GRPCRoutes claim on listeners.
//!
//! Owns: which of two routes of different kinds gets a host that both claim on one listener. The
//! standard accepts exactly one of them: the older, then the first by name (`GRPCRoute.hostnames`).
//! With exclusive hosts also which of two namespaces gets it: that of the oldest route.
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
    /// Whether routes of two namespaces cannot share a host.
    exclusive: bool,
    routes: HashMap<ObjectKey, (Seconds, Vec<HostClaim>)>,
    listeners: HashMap<ListenerId, HashMap<Kind, ByHost>>,
}

/// The kind of route that must not share a host with routes of `kind`.
fn other(kind: Kind) -> Kind {
    if kind == Kind::GrpcRoute { Kind::HttpRoute } else { Kind::GrpcRoute }
}

impl HostClaims {
    /// No claims. `exclusive`: see [`crate::settings::Settings::exclusive_hosts`].
    pub fn new(exclusive: bool) -> Self {
        Self { exclusive, ..Self::default() }
    }

    /// Replaces the claims of a route. Returns the routes that claim one of the same hosts and must
    /// not share it: what becomes of them may differ.
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
            touched.extend(self.rivals(route, claims));
            self.remove(route, *created, claims);
        }
        if !claims.is_empty() {
            touched.extend(self.rivals(route, &claims));
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

    fn rivals(&self, route: &ObjectKey, claims: &[HostClaim]) -> BTreeSet<ObjectKey> {
        let mut found = BTreeSet::new();
        for (listener, hosts) in claims {
            let Some(kinds) = self.listeners.get(listener) else { continue };
            let by_host = kinds.get(&other(route.kind));
            for claimants in by_host.into_iter().flat_map(|by_host| intersecting(by_host, hosts)) {
                found.extend(claimants.iter().map(Claimant::key));
            }
            for claimants in kinds.values().filter(|_| self.exclusive).flat_map(|one| owning(one, hosts)) {
                let others = claimants.iter().filter(|one| one.at.namespace != route.at.namespace);
                found.extend(others.map(Claimant::key));
            }
        }
        found
    }

    /// The oldest route that claims a host of `route` on a listener before it, and does not share it.
    pub fn older(&self, route: &ObjectKey, listener: &ListenerId) -> Option<ObjectKey> {
        let (created, claims) = self.routes.get(route)?;
        let (_, hosts) = claims.iter().find(|(claimed, _)| claimed == listener)?;
        let kinds = self.listeners.get(listener)?;
        let own = Claimant { created: *created, at: route.at.clone(), kind: route.kind };
        let by_host = kinds.get(&other(route.kind)).into_iter();
        let of_other_kind =
            by_host.flat_map(|by_host| intersecting(by_host, hosts)).filter_map(BTreeSet::first).min();
        let owner = kinds.values().filter(|_| self.exclusive).flat_map(|by_host| owning(by_host, hosts));
        let owner = owner.filter_map(BTreeSet::first).min();
        // Younger routes of the namespace that has the host share it.
        let owner = owner.filter(|owner| owner.at.namespace != route.at.namespace);
        of_other_kind.into_iter().chain(owner).min().filter(|oldest| **oldest < own).map(Claimant::key)
    }
}

/// The claimants of hosts that have names in common with `hosts`. A route for any host takes no host
/// from others, who are more specific: it counts for itself alone.
fn owning<'a>(by_host: &'a ByHost, hosts: &'a [Name]) -> impl Iterator<Item = &'a BTreeSet<Claimant>> {
    let (any, named): (Vec<_>, Vec<_>) = hosts.iter().partition(|host| ***host == *"*");
    let named = named.into_iter().flat_map(move |host| {
        let below = by_host.iter().filter(move |(other, _)| host.starts_with('*') && covers(host, other));
        let above = above(host).into_iter().filter(|other| other != "*");
        below.map(|(_, claimants)| claimants).chain(above.filter_map(move |other| by_host.get(&*other)))
    });
    any.into_iter().filter_map(move |any| by_host.get(any)).chain(named)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NamespacedName;

    fn listener() -> ListenerId {
        ListenerId { parent: ObjectKey::new(Kind::Gateway, "infra", "gw"), section: "http".into() }
    }

    fn key(kind: Kind, at: &str) -> ObjectKey {
        let (namespace, name) = at.split_once('/').unwrap();
        NamespacedName::new(namespace, name).of(kind)
    }

    /// Whether the younger route loses its host to the older one, both HTTPRoutes.
    fn loses(exclusive: bool, older: (&str, &str), younger: (&str, &str)) -> bool {
        let mut claims = HostClaims::new(exclusive);
        let (first, second) = (key(Kind::HttpRoute, older.0), key(Kind::HttpRoute, younger.0));
        let claim = |host: &str| vec![(listener(), vec![Name::from(host)])];
        claims.replace(&second, 2, claim(younger.1));
        let touched = claims.replace(&first, 1, claim(older.1));
        let is_lost = claims.older(&second, &listener()) == Some(first.clone());
        assert_eq!(claims.older(&first, &listener()), None);
        assert!(!is_lost || touched.contains(&second), "{older:?} {younger:?}");
        assert!(!is_lost || claims.replace(&first, 1, Vec::new()).contains(&second));
        is_lost
    }

    #[test]
    fn an_exclusive_host_belongs_to_the_namespace_of_the_oldest() {
        for (older, younger, expected) in [
            (("a/x", "x.com"), ("b/y", "x.com"), true),
            (("a/x", "x.com"), ("a/y", "x.com"), false),
            (("a/x", "x.com"), ("b/y", "y.com"), false),
            (("a/x", "*.x.com"), ("b/y", "a.x.com"), true),
            (("a/x", "a.x.com"), ("b/y", "*.x.com"), true),
            (("a/x", "*"), ("b/y", "x.com"), false),
            (("a/x", "x.com"), ("b/y", "*"), false),
            (("a/x", "*"), ("b/y", "*"), true),
        ] {
            assert_eq!(loses(true, older, younger), expected, "{older:?} {younger:?}");
            assert!(!loses(false, older, younger), "{older:?} {younger:?}");
        }
    }

    #[test]
    fn younger_routes_of_the_owner_keep_the_host() {
        let mut claims = HostClaims::new(true);
        let claim = || vec![(listener(), vec![Name::from("x.com")])];
        let routes = [("a/first", 1), ("b/other", 2), ("a/second", 3)];
        for (at, created) in routes {
            claims.replace(&key(Kind::HttpRoute, at), created, claim());
        }
        let older = |at: &str| claims.older(&key(Kind::HttpRoute, at), &listener());
        assert_eq!(older("b/other"), Some(key(Kind::HttpRoute, "a/first")));
        assert_eq!((older("a/first"), older("a/second")), (None, None));
    }
}
