//! Hosts of Ingresses and Routes, and the namespaces that they belong to.
//!
//! Owns: which namespace has a host of the Gateway that serves Ingresses and Routes. As in OpenShift,
//! it is that of the oldest object that asks for the host, for a wildcard that includes it, or, if the
//! host is a wildcard itself, for a host within it. Objects of other namespaces cannot have the host.
//! HTTPRoutes and GRPCRoutes may share hosts among themselves, as the Gateway API says. With Ingresses
//! and Routes of other namespaces they do not.
//! Does not own: on which listeners an object is served ([`crate::ingress`]).
//! Flow: `replace` notes the hosts of an object; `owner` says who has one of them.
//!
//! An object that lost its host to another namespace takes nothing from the owner: younger objects of
//! the owner keep the host. Wildcards count even if they are lost, as in [`super::claims`].

use std::collections::{BTreeSet, HashMap};

use super::claims::{ByHost, Claimant, above, covers};
use crate::names::{Kind, Name, ObjectKey};
use crate::objects::Seconds;

/// Stands for every host. It conflicts with itself alone: each host is more specific.
pub const ANY_HOST: &str = "*";

/// The hosts that an object asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostDemands {
    /// Names, wildcards, or [`ANY_HOST`].
    pub hosts: Vec<Name>,
    /// The path of a Route. Two Routes of a namespace cannot have the same host and path.
    pub path: Option<Name>,
}

/// The hosts of all objects.
#[derive(Debug, Default)]
pub struct HostOwners {
    objects: HashMap<ObjectKey, (Seconds, HostDemands)>,
    ingresses: ByHost,
    routes: ByHost,
}

impl HostOwners {
    /// Replaces the hosts of an object. Returns the objects for which something may differ.
    pub fn replace(
        &mut self,
        object: &ObjectKey,
        created: Seconds,
        demands: HostDemands,
    ) -> BTreeSet<ObjectKey> {
        let new = (!demands.hosts.is_empty()).then_some((created, demands));
        if self.objects.get(object) == new.as_ref() {
            return BTreeSet::new();
        }
        let mut touched = BTreeSet::new();
        if let Some((created, former)) = self.objects.remove(object) {
            let claimant = claimant(object, created);
            for host in &former.hosts {
                let by_host = self.by_host(object.kind);
                if let Some(claimants) = by_host.get_mut(host) {
                    claimants.remove(&claimant);
                    if claimants.is_empty() {
                        by_host.remove(host);
                    }
                }
            }
            touched.extend(self.sharing(object, &former.hosts));
        }
        if let Some((created, demands)) = new {
            touched.extend(self.sharing(object, &demands.hosts));
            for host in &demands.hosts {
                let claimants = self.by_host(object.kind).entry(host.clone()).or_default();
                claimants.insert(claimant(object, created));
            }
            self.objects.insert(object.clone(), (created, demands));
        }
        touched
    }

    fn by_host(&mut self, kind: Kind) -> &mut ByHost {
        if kind.is_ingress() { &mut self.ingresses } else { &mut self.routes }
    }

    /// The objects for which something may differ, if `object` asks for `hosts` or no longer does.
    fn sharing(&self, object: &ObjectKey, hosts: &[Name]) -> BTreeSet<ObjectKey> {
        let mut found = BTreeSet::new();
        let others = |claimants: &BTreeSet<Claimant>| claimants.iter().map(Claimant::key).collect::<Vec<_>>();
        for host in hosts {
            let ingresses = sharing(&self.ingresses, host);
            // Routes of the Gateway API alone have nothing to settle here.
            if object.kind.is_ingress() || !ingresses.is_empty() {
                found.extend(sharing(&self.routes, host).into_iter().flat_map(|(_, one)| others(one)));
            }
            found.extend(ingresses.into_iter().flat_map(|(_, one)| others(one)));
        }
        found.remove(object);
        found
    }

    /// The oldest object of the namespace to which `object` loses one of its hosts.
    pub fn owner(&self, object: &ObjectKey, host: &str) -> Option<ObjectKey> {
        let (created, _) = self.objects.get(object)?;
        let own = claimant(object, *created);
        let is_ingress = object.kind.is_ingress();
        // A route of the Gateway API may have a wildcard around a host of others: it takes nothing.
        let counts = |other: &Name| is_ingress || *other == *host || covers(other, host);
        let related = |by_host| {
            let found: Vec<_> =
                sharing(by_host, host).into_iter().filter(|(other, _)| counts(other)).collect();
            found
        };
        let (ingresses, routes) = (related(&self.ingresses), related(&self.routes));
        let oldest = ingresses.iter().chain(&routes).filter_map(|(_, claimants)| claimants.first()).min()?;
        if oldest.at.namespace == object.at.namespace {
            return None;
        }
        if is_ingress {
            return Some(oldest.key());
        }
        // Two routes may share the host, but not with an older Ingress of its owner.
        let of_owner = ingresses.iter().filter_map(|(_, claimants)| {
            claimants.iter().find(|other| other.at.namespace == oldest.at.namespace)
        });
        of_owner.min().filter(|ingress| **ingress < own).map(Claimant::key)
    }

    /// The oldest Route of the same namespace with the host and path of the Route `object`, if it is
    /// older.
    pub fn duplicate(&self, object: &ObjectKey) -> Option<ObjectKey> {
        let (created, demands) = self.objects.get(object)?;
        let own = claimant(object, *created);
        let is_same = |other: &&Claimant| {
            other.kind == Kind::OpenShiftRoute
                && other.at.namespace == object.at.namespace
                && self.objects.get(&other.key()).is_some_and(|(_, other)| other == demands)
        };
        let claimants = demands.hosts.first().and_then(|host| self.ingresses.get(host))?;
        claimants.iter().take_while(|other| **other < own).find(is_same).map(Claimant::key)
    }
}

fn claimant(object: &ObjectKey, created: Seconds) -> Claimant {
    Claimant { created, at: object.at.clone(), kind: object.kind }
}

/// The hosts in `by_host` that intersect `host`, with their claimants.
fn sharing<'a>(by_host: &'a ByHost, host: &str) -> Vec<(&'a Name, &'a BTreeSet<Claimant>)> {
    if host == ANY_HOST {
        return by_host.get_key_value(ANY_HOST).into_iter().collect();
    }
    let mut found = Vec::new();
    for pattern in above(host).iter().filter(|pattern| *pattern != ANY_HOST) {
        found.extend(by_host.get_key_value(pattern.as_str()));
    }
    if host.starts_with('*') {
        found.extend(by_host.iter().filter(|(other, _)| covers(host, other)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: Kind, at: &str) -> ObjectKey {
        let (namespace, name) = at.split_once('/').unwrap();
        ObjectKey::new(kind, namespace, name)
    }

    fn demands(host: &str) -> HostDemands {
        HostDemands { hosts: vec![Name::from(host)], path: None }
    }

    /// Whether the younger object of namespace `b` loses its host to the older one of `a`.
    fn loses(older: (Kind, &str), younger: (Kind, &str)) -> bool {
        let mut owners = HostOwners::default();
        let (first, second) = (key(older.0, "a/first"), key(younger.0, "b/second"));
        owners.replace(&second, 2, demands(younger.1));
        let touched = owners.replace(&first, 1, demands(older.1));
        let is_lost = owners.owner(&second, younger.1) == Some(first.clone());
        assert_eq!(owners.owner(&first, older.1), None);
        assert!(!is_lost || touched.contains(&second), "{older:?} {younger:?}");
        owners.replace(&first, 1, HostDemands::default());
        assert_eq!(owners.owner(&second, younger.1), None);
        is_lost
    }

    #[test]
    fn a_host_belongs_to_the_namespace_of_the_oldest() {
        use Kind::{GrpcRoute, HttpRoute, Ingress, OpenShiftRoute};
        let cases = [
            ((Ingress, "x.com"), (Ingress, "x.com"), true),
            ((Ingress, "x.com"), (OpenShiftRoute, "x.com"), true),
            ((OpenShiftRoute, "x.com"), (Ingress, "x.com"), true),
            ((Ingress, "x.com"), (Ingress, "y.com"), false),
            ((Ingress, "*.x.com"), (Ingress, "a.x.com"), true),
            ((Ingress, "a.x.com"), (Ingress, "*.x.com"), true),
            ((Ingress, "*.x.com"), (Ingress, "*.a.x.com"), true),
            ((Ingress, "*.x.com"), (Ingress, "x.com"), false),
            ((Ingress, "*"), (Ingress, "x.com"), false),
            ((Ingress, "x.com"), (Ingress, "*"), false),
            ((Ingress, "*"), (Ingress, "*"), true),
            ((HttpRoute, "x.com"), (Ingress, "x.com"), true),
            ((GrpcRoute, "*.x.com"), (OpenShiftRoute, "a.x.com"), true),
            ((Ingress, "x.com"), (HttpRoute, "x.com"), true),
            ((Ingress, "*.x.com"), (HttpRoute, "a.x.com"), true),
            ((Ingress, "a.x.com"), (HttpRoute, "*.x.com"), false),
            ((HttpRoute, "x.com"), (HttpRoute, "x.com"), false),
            ((HttpRoute, "x.com"), (GrpcRoute, "x.com"), false),
        ];
        for (older, younger, expected) in cases {
            assert_eq!(loses(older, younger), expected, "{older:?} {younger:?}");
        }
    }

    #[test]
    fn an_object_that_lost_its_host_takes_it_from_nobody() {
        for (stranger, late) in [
            (Kind::Ingress, Kind::Ingress),
            (Kind::OpenShiftRoute, Kind::Ingress),
            (Kind::Ingress, Kind::HttpRoute),
        ] {
            let mut owners = HostOwners::default();
            let [first, second, third] =
                [key(Kind::HttpRoute, "a/first"), key(stranger, "b/second"), key(late, "a/third")];
            for (created, object) in (1..).zip([&first, &second, &third]) {
                owners.replace(object, created, demands("x.com"));
            }
            let lost: Vec<_> = [&first, &second, &third].map(|one| owners.owner(one, "x.com")).into();
            assert_eq!(lost, [None, Some(first.clone()), None], "{stranger:?} {late:?}");
            // Without the first the second has the host, and the third loses it.
            let touched = owners.replace(&first, 1, HostDemands::default());
            assert_eq!(touched, BTreeSet::from([second.clone(), third.clone()]));
            assert_eq!(owners.owner(&third, "x.com"), Some(second));
        }
    }

    #[test]
    fn routes_share_a_host_until_its_owner_has_an_older_ingress() {
        let mut owners = HostOwners::default();
        let [first, second] = ["a/first", "b/second"].map(|at| key(Kind::HttpRoute, at));
        owners.replace(&first, 1, demands("x.com"));
        assert_eq!(owners.replace(&second, 3, demands("x.com")), BTreeSet::new());
        owners.replace(&key(Kind::Ingress, "a/young"), 4, demands("x.com"));
        assert_eq!(owners.owner(&second, "x.com"), None);
        let ingress = key(Kind::Ingress, "a/old");
        assert!(owners.replace(&ingress, 2, demands("x.com")).contains(&second));
        assert_eq!(owners.owner(&second, "x.com"), Some(ingress));
        assert_eq!(owners.owner(&first, "x.com"), None);
    }

    #[test]
    fn objects_of_a_namespace_share_a_host_but_two_routes_no_path() {
        let mut owners = HostOwners::default();
        let at = |path: &str| HostDemands { path: Some(Name::from(path)), ..demands("x.com") };
        let [first, second, other] =
            ["a/first", "a/second", "a/other"].map(|name| key(Kind::OpenShiftRoute, name));
        owners.replace(&first, 1, at("/"));
        owners.replace(&second, 2, at("/"));
        owners.replace(&other, 3, at("/other"));
        owners.replace(&key(Kind::Ingress, "a/ingress"), 0, demands("x.com"));
        assert_eq!(owners.duplicate(&second), Some(first.clone()));
        assert_eq!(owners.duplicate(&other), None);
        assert_eq!(owners.duplicate(&first), None);
        assert_eq!(owners.owner(&second, "x.com"), None);
    }
}
