//! Hosts that objects claim on the listeners of a Gateway, and who has them.
//!
//! Owns: which of two objects gets a host that both claim and cannot share. HTTPRoutes and GRPCRoutes
//! claim hosts on listeners: the standard accepts exactly one of two routes of different kinds, the
//! older, then the first by name (`GRPCRoute.hostnames`). With exclusive hosts also which of two
//! namespaces gets a host: that of the oldest route. Ingresses and Routes of OpenShift claim hosts on
//! the Gateway that serves them, where a host belongs to the namespace of the oldest object that claims
//! it, a wildcard that includes it, or, if it is a wildcard itself, a host within it. HTTPRoutes and
//! GRPCRoutes share hosts among themselves there, and with Ingresses and Routes of their namespace
//! alone.
//! Does not own: on which listeners an object is served ([`super`], [`crate::ingress`]).
//! Flow: `replace` notes the claims of an object; `older`, `owner` and `duplicate` say to whom it loses.
//!
//! An object yields to an older claim even if that one had to yield itself. So the result depends on
//! the claims alone, not on the order of events. But an object that lost its host to another namespace
//! takes nothing from the owner: younger objects of the owner keep the host.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::includes;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::Seconds;
use crate::plan::ListenerId;

/// Stands for every host.
pub const ANY_HOST: &str = "*";

/// Where hosts are claimed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostScope {
    /// A listener.
    Listener(ListenerId),
    /// The Gateway that serves Ingresses and Routes, with all of its own listeners.
    IngressGateway,
}

/// A scope with the hosts that are claimed there: names, wildcards, or [`ANY_HOST`]. Not empty.
pub type HostClaim = (HostScope, Vec<Name>);

/// What an object claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostClaims {
    /// Each scope once.
    pub hosts: Vec<HostClaim>,
    /// The path of a Route. Two Routes of a namespace cannot have the same host and path.
    pub path: Option<Name>,
}

impl HostClaims {
    /// The claims of an Ingress or Route.
    pub fn of_ingress(hosts: Vec<Name>, path: Option<Name>) -> Self {
        let hosts = (!hosts.is_empty()).then_some((HostScope::IngressGateway, hosts));
        Self { hosts: hosts.into_iter().collect(), path }
    }

    fn on(&self, scope: &HostScope) -> Option<&[Name]> {
        self.hosts.iter().find(|(claimed, _)| claimed == scope).map(|(_, hosts)| &hosts[..])
    }
}

/// An object that claims a host. The oldest is the least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claimant {
    created: Seconds,
    at: NamespacedName,
    kind: Kind,
}

impl Claimant {
    fn new(object: &ObjectKey, created: Seconds) -> Self {
        Self { created, at: object.at.clone(), kind: object.kind }
    }

    fn key(&self) -> ObjectKey {
        self.at.clone().of(self.kind)
    }
}

type Claimants = BTreeSet<Claimant>;
type ByHost = HashMap<Name, Claimants>;

/// Whether [`ANY_HOST`] takes hosts from others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnyHost {
    /// It includes each host.
    IncludesAll,
    /// Each host is more specific, so it counts for itself alone.
    Alone,
}

/// The claims of all objects.
#[derive(Debug, Default)]
pub struct HostTable {
    /// Whether routes of two namespaces cannot share a host.
    exclusive: bool,
    objects: HashMap<ObjectKey, (Seconds, HostClaims)>,
    scopes: HashMap<HostScope, BTreeMap<Kind, ByHost>>,
}

impl HostTable {
    /// No claims. `exclusive`: see [`crate::settings::Settings::exclusive_hosts`].
    pub fn new(exclusive: bool) -> Self {
        Self { exclusive, ..Self::default() }
    }

    /// Replaces the claims of an object. Returns the objects that claim one of the same hosts and must
    /// not share it: what becomes of them may differ.
    pub fn replace(
        &mut self,
        object: &ObjectKey,
        created: Seconds,
        claims: HostClaims,
    ) -> BTreeSet<ObjectKey> {
        let new = (!claims.hosts.is_empty()).then_some((created, claims));
        if self.objects.get(object) == new.as_ref() {
            return BTreeSet::new();
        }
        let former = self.objects.remove(object);
        let rest = |side: &Option<(Seconds, HostClaims)>| {
            side.as_ref().map(|(created, claims)| (*created, claims.path.clone()))
        };
        let is_comparable = rest(&former) == rest(&new);
        let is_in = |claim: &HostClaim, side: &Option<(Seconds, HostClaims)>| {
            is_comparable && side.iter().any(|(_, claims)| claims.hosts.contains(claim))
        };
        let mut touched = BTreeSet::new();
        if let Some((created, claims)) = &former {
            for claim in claims.hosts.iter().filter(|claim| !is_in(claim, &new)) {
                self.remove(&Claimant::new(object, *created), claim);
                touched.extend(self.rivals(object, claim));
            }
        }
        if let Some((created, claims)) = &new {
            for claim in claims.hosts.iter().filter(|claim| !is_in(claim, &former)) {
                touched.extend(self.rivals(object, claim));
                let (scope, hosts) = claim;
                let kinds = self.scopes.entry(scope.clone()).or_default();
                let by_host = kinds.entry(object.kind).or_default();
                for host in hosts {
                    let claimants = by_host.entry(host.clone()).or_default();
                    claimants.insert(Claimant::new(object, *created));
                }
            }
        }
        self.objects.extend(new.map(|new| (object.clone(), new)));
        touched.remove(object);
        touched
    }

    fn remove(&mut self, claimant: &Claimant, (scope, hosts): &HostClaim) {
        let Some(kinds) = self.scopes.get_mut(scope) else { return };
        if let Some(by_host) = kinds.get_mut(&claimant.kind) {
            for host in hosts {
                if let Some(claimants) = by_host.get_mut(host) {
                    claimants.remove(claimant);
                    if claimants.is_empty() {
                        by_host.remove(host);
                    }
                }
            }
            if by_host.is_empty() {
                kinds.remove(&claimant.kind);
            }
        }
        if kinds.is_empty() {
            self.scopes.remove(scope);
        }
    }

    /// The claimants of hosts that have names in common with `host`, of the kinds that count.
    fn related<'a>(
        &'a self,
        (scope, host): (&HostScope, &str),
        any: AnyHost,
        counts: impl Fn(Kind) -> bool,
    ) -> Vec<(&'a Name, &'a Claimants)> {
        let kinds = self.scopes.get(scope).into_iter().flatten().filter(|(kind, _)| counts(**kind));
        kinds.flat_map(|(_, by_host)| overlapping(by_host, host, any)).collect()
    }

    /// The objects for which something may differ, if `object` claims these hosts or no longer does.
    fn rivals(&self, object: &ObjectKey, (scope, hosts): &HostClaim) -> BTreeSet<ObjectKey> {
        let mut found = BTreeSet::new();
        let mut add = |related: &[(&Name, &Claimants)], counts: &dyn Fn(&&Claimant) -> bool| {
            let claimants = related.iter().flat_map(|(_, claimants)| *claimants);
            found.extend(claimants.filter(counts).map(Claimant::key));
        };
        for host in hosts {
            let at = (scope, host.as_str());
            match scope {
                HostScope::Listener(_) => {
                    add(&self.related(at, AnyHost::IncludesAll, |kind| kind != object.kind), &|_| true);
                    if self.exclusive {
                        let is_strange = |other: &&Claimant| other.at.namespace != object.at.namespace;
                        add(&self.related(at, AnyHost::Alone, |_| true), &is_strange);
                    }
                }
                HostScope::IngressGateway => {
                    let ingresses = self.related(at, AnyHost::Alone, Kind::is_ingress);
                    // Routes of the Gateway API alone have nothing to settle here.
                    if object.kind.is_ingress() || !ingresses.is_empty() {
                        add(&self.related(at, AnyHost::Alone, |_| true), &|_| true);
                    }
                }
            }
        }
        found
    }

    /// The oldest route that claims a host of `route` on a listener before it, and does not share it.
    pub fn older(&self, route: &ObjectKey, listener: &ListenerId) -> Option<ObjectKey> {
        let (created, claims) = self.objects.get(route)?;
        let (own, scope) = (Claimant::new(route, *created), HostScope::Listener(listener.clone()));
        let oldest = claims.on(&scope)?.iter().filter_map(|host| {
            let at = (&scope, host.as_str());
            let of_other_kind = self.related(at, AnyHost::IncludesAll, |kind| kind != route.kind);
            let owner = oldest(&self.related(at, AnyHost::Alone, |_| self.exclusive));
            // Younger routes of the namespace that has the host share it.
            let owner = owner.filter(|owner| owner.at.namespace != route.at.namespace);
            oldest(&of_other_kind).into_iter().chain(owner).min()
        });
        oldest.min().filter(|oldest| **oldest < own).map(Claimant::key)
    }

    /// The oldest object of the namespace to which `object` loses a host on the Gateway that serves
    /// Ingresses.
    pub fn owner(&self, object: &ObjectKey, host: &str) -> Option<ObjectKey> {
        let (created, _) = self.objects.get(object)?;
        let (own, is_ingress) = (Claimant::new(object, *created), object.kind.is_ingress());
        // A route of the Gateway API may have a wildcard around a host of others: it takes nothing.
        let counts = |other: &Name| is_ingress || *other == *host || covers(other, host);
        let related = |is_meant: &dyn Fn(Kind) -> bool| {
            let mut found = self.related((&HostScope::IngressGateway, host), AnyHost::Alone, is_meant);
            found.retain(|(other, _)| counts(other));
            found
        };
        let (ingresses, routes) = (related(&Kind::is_ingress), related(&|kind| !kind.is_ingress()));
        let oldest = oldest(&ingresses).into_iter().chain(oldest(&routes)).min()?;
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
        let (created, claims) = self.objects.get(object)?;
        let own = Claimant::new(object, *created);
        let is_same = |other: &&Claimant| {
            other.at.namespace == object.at.namespace
                && self.objects.get(&other.key()).is_some_and(|(_, other)| other == claims)
        };
        let host = claims.on(&HostScope::IngressGateway)?.first()?;
        let by_host = self.scopes.get(&HostScope::IngressGateway)?.get(&Kind::OpenShiftRoute)?;
        let mut older = by_host.get(host)?.iter().take_while(|other| **other < own);
        older.find(is_same).map(Claimant::key)
    }
}

/// The oldest of all claimants.
fn oldest<'a>(related: &[(&Name, &'a Claimants)]) -> Option<&'a Claimant> {
    related.iter().filter_map(|(_, claimants)| claimants.first()).min()
}

/// The hosts in `by_host` that have names in common with `host`, with their claimants.
fn overlapping<'a>(by_host: &'a ByHost, host: &str, any: AnyHost) -> Vec<(&'a Name, &'a Claimants)> {
    let counts = |other: &str| host == other || other != ANY_HOST || any == AnyHost::IncludesAll;
    let patterns = above(host).into_iter().filter(|pattern| counts(pattern));
    let mut found: Vec<_> = patterns.filter_map(|pattern| by_host.get_key_value(pattern.as_str())).collect();
    // A pattern may include any of the hosts; an exact name is only in those above it.
    if host.starts_with('*') && (host != ANY_HOST || any == AnyHost::IncludesAll) {
        found.extend(by_host.iter().filter(|(other, _)| covers(host, other)));
    }
    found
}

/// Whether the pattern `broad` includes the host or pattern `narrow`, other than itself.
fn covers(broad: &str, narrow: &str) -> bool {
    broad != narrow && (broad == ANY_HOST || includes(broad, narrow))
}

/// The host, and every pattern that includes it.
pub(super) fn above(host: &str) -> Vec<String> {
    let mut found = vec![host.to_owned()];
    if host == ANY_HOST {
        return found;
    }
    let mut rest = host.strip_prefix("*.").unwrap_or(host);
    while let Some((_, parent)) = rest.split_once('.') {
        found.push(format!("*.{parent}"));
        rest = parent;
    }
    found.push(ANY_HOST.to_owned());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> ListenerId {
        ListenerId { parent: ObjectKey::new(Kind::Gateway, "infra", "gw"), section: "http".into() }
    }

    fn key(kind: Kind, at: &str) -> ObjectKey {
        let (namespace, name) = at.split_once('/').unwrap();
        NamespacedName::new(namespace, name).of(kind)
    }

    fn on_listener(hosts: &[&str]) -> HostClaims {
        let hosts = hosts.iter().map(|host| Name::from(*host)).collect();
        HostClaims { hosts: vec![(HostScope::Listener(listener()), hosts)], path: None }
    }

    /// Whether the younger route loses its host to the older one, both HTTPRoutes.
    fn loses_on_listener(exclusive: bool, older: (&str, &str), younger: (&str, &str)) -> bool {
        let mut claims = HostTable::new(exclusive);
        let (first, second) = (key(Kind::HttpRoute, older.0), key(Kind::HttpRoute, younger.0));
        let claim = |host: &str| on_listener(&[host]);
        claims.replace(&second, 2, claim(younger.1));
        let touched = claims.replace(&first, 1, claim(older.1));
        let is_lost = claims.older(&second, &listener()) == Some(first.clone());
        assert_eq!(claims.older(&first, &listener()), None);
        assert!(!is_lost || touched.contains(&second), "{older:?} {younger:?}");
        assert!(!is_lost || claims.replace(&first, 1, HostClaims::default()).contains(&second));
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
            assert_eq!(loses_on_listener(true, older, younger), expected, "{older:?} {younger:?}");
            assert!(!loses_on_listener(false, older, younger), "{older:?} {younger:?}");
        }
    }

    #[test]
    fn younger_routes_of_the_owner_keep_the_host() {
        let mut claims = HostTable::new(true);
        let claim = || on_listener(&["x.com"]);
        let routes = [("a/first", 1), ("b/other", 2), ("a/second", 3)];
        for (at, created) in routes {
            claims.replace(&key(Kind::HttpRoute, at), created, claim());
        }
        let older = |at: &str| claims.older(&key(Kind::HttpRoute, at), &listener());
        assert_eq!(older("b/other"), Some(key(Kind::HttpRoute, "a/first")));
        assert_eq!((older("a/first"), older("a/second")), (None, None));
    }

    #[test]
    fn each_exclusive_host_has_its_own_owner() {
        let mut claims = HostTable::new(true);
        let routes: [(&str, &[&str]); 3] =
            [("a/first", &["x.com"]), ("b/other", &["y.com"]), ("a/second", &["x.com", "y.com"])];
        for (created, (at, hosts)) in (1..).zip(routes) {
            claims.replace(&key(Kind::HttpRoute, at), created, on_listener(hosts));
        }
        let older = claims.older(&key(Kind::HttpRoute, "a/second"), &listener());
        assert_eq!(older, Some(key(Kind::HttpRoute, "b/other")));
    }

    #[test]
    fn a_changed_claim_touches_the_rivals_of_its_scope_alone() {
        let mut table = HostTable::new(true);
        table.replace(&key(Kind::HttpRoute, "b/route"), 1, on_listener(&["x.com"]));
        table.replace(&key(Kind::Ingress, "b/ingress"), 1, demands("x.com"));
        let both = |host: &str| HostClaims {
            hosts: on_listener(&["x.com"]).hosts.into_iter().chain(demands(host).hosts).collect(),
            path: None,
        };
        let object = key(Kind::HttpRoute, "a/one");
        assert_eq!(table.replace(&object, 2, both("x.com")).len(), 2);
        let touched = table.replace(&object, 2, both("y.com"));
        assert_eq!(touched, BTreeSet::from([key(Kind::Ingress, "b/ingress")]));
        assert_eq!(
            table.replace(&object, 3, both("y.com")),
            BTreeSet::from([key(Kind::HttpRoute, "b/route")])
        );
    }

    fn demands(host: &str) -> HostClaims {
        HostClaims::of_ingress(vec![Name::from(host)], None)
    }

    /// Whether the younger object of namespace `b` loses its host to the older one of `a`.
    fn loses(older: (Kind, &str), younger: (Kind, &str)) -> bool {
        let mut owners = HostTable::default();
        let (first, second) = (key(older.0, "a/first"), key(younger.0, "b/second"));
        owners.replace(&second, 2, demands(younger.1));
        let touched = owners.replace(&first, 1, demands(older.1));
        let is_lost = owners.owner(&second, younger.1) == Some(first.clone());
        assert_eq!(owners.owner(&first, older.1), None);
        assert!(!is_lost || touched.contains(&second), "{older:?} {younger:?}");
        owners.replace(&first, 1, HostClaims::default());
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
            let mut owners = HostTable::default();
            let [first, second, third] =
                [key(Kind::HttpRoute, "a/first"), key(stranger, "b/second"), key(late, "a/third")];
            for (created, object) in (1..).zip([&first, &second, &third]) {
                owners.replace(object, created, demands("x.com"));
            }
            let lost: Vec<_> = [&first, &second, &third].map(|one| owners.owner(one, "x.com")).into();
            assert_eq!(lost, [None, Some(first.clone()), None], "{stranger:?} {late:?}");
            // Without the first the second has the host, and the third loses it.
            let touched = owners.replace(&first, 1, HostClaims::default());
            assert_eq!(touched, BTreeSet::from([second.clone(), third.clone()]));
            assert_eq!(owners.owner(&third, "x.com"), Some(second));
        }
    }

    #[test]
    fn routes_share_a_host_until_its_owner_has_an_older_ingress() {
        let mut owners = HostTable::default();
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
        let mut owners = HostTable::default();
        let at = |path: &str| HostClaims { path: Some(Name::from(path)), ..demands("x.com") };
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
